//! Memory: the process holds what tenants' items need. It falls when a grant or the pool does, and is next to nothing
//! for idle tenants. The server is in a process of its own, so that only its memory is measured.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemark_types::{MIB, Policy, TenantId, TenantPlan, TenantState};

use crate::harness::{
    Client, Harness, PATIENCE, Random, Setup, StopAtEnd, found, open_tenant, random_seed, set, tenant, wait_until,
};
use crate::remote::{Remote, remote};

/// Requests sent before their replies are looked for.
const BATCH: usize = 1000;
/// The memory of the serving program on top of its report. It is the two workers' buffers, of 256 KiB for input and up
/// to 1 MiB for replies, and pages of its file that are read for the first time.
const PROGRAM_BYTES: u64 = 3 * MIB;

/// A value of 1,000 bytes that tells whose it is.
fn kilobyte(number: usize) -> Vec<u8> {
    format!("{number:010}").repeat(100).into_bytes()
}

fn key(number: usize) -> String {
    format!("k{number:07}")
}

/// Writes the items of these numbers.
fn write(client: &mut Client, numbers: Range<usize>) {
    let numbers: Vec<usize> = numbers.collect();
    for batch in numbers.chunks(BATCH) {
        let request: Vec<u8> = batch
            .iter()
            .flat_map(|&number| set(&key(number), &kilobyte(number)))
            .collect();
        client.ask(&request, &b"STORED\r\n".repeat(batch.len()));
    }
}

/// How many of these numbers' items are there. None may have another value.
fn count_present(client: &mut Client, numbers: &[usize]) -> usize {
    let mut count = 0;
    for batch in numbers.chunks(BATCH) {
        let request: String = batch.iter().map(|&number| format!("get {}\r\n", key(number))).collect();
        let answered = client.answer(request.as_bytes());
        let mut rest = &answered[..];
        for &number in batch {
            rest = rest.strip_prefix(b"END\r\n").unwrap_or_else(|| {
                count += 1;
                let item = found(&key(number), &kilobyte(number));
                rest.strip_prefix(&item[..])
                    .unwrap_or_else(|| panic!("another value for {number}"))
            });
        }
        assert!(rest.is_empty());
    }
    count
}

/// Waits until the process holds no more than it accounts for, and that is within `pool_bytes`. How long it takes is
/// printed; the experiment `give-back` measures it.
fn wait_for_fall(server: &mut Remote, pool_bytes: u64) {
    let begin = Instant::now();
    loop {
        let [usage, accounted, resident] = ["usage", "accounted", "resident"].map(|name| server.ask(name));
        if usage <= pool_bytes && resident * 20 <= accounted * 21 + PROGRAM_BYTES * 20 {
            println!(
                "{resident} bytes resident for {accounted} accounted, after {:?}",
                begin.elapsed()
            );
            return;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "{resident} bytes resident, {accounted} accounted, {usage} used"
        );
    }
}

#[test]
fn a_lowered_cap_is_followed_with_fifo() {
    check_lowered_cap("memory::a_lowered_cap_is_followed_with_fifo", Policy::Fifo, 1);
}

#[test]
fn a_lowered_cap_is_followed_with_clock_in_shards() {
    check_lowered_cap(
        "memory::a_lowered_cap_is_followed_with_clock_in_shards",
        Policy::Clock,
        4,
    );
}

#[test]
fn a_lowered_cap_is_followed_with_s3fifo() {
    check_lowered_cap("memory::a_lowered_cap_is_followed_with_s3fifo", Policy::S3Fifo, 1);
}

#[test]
fn a_lowered_cap_is_followed_with_s3fifo_in_shards() {
    check_lowered_cap(
        "memory::a_lowered_cap_is_followed_with_s3fifo_in_shards",
        Policy::S3Fifo,
        4,
    );
}

/// A tenant full of items is left a sixteenth: the memory falls, and the newest and hottest items are those that are kept.
fn check_lowered_cap(name: &str, policy: Policy, shards: u16) {
    const FULL_BYTES: u64 = 256 * MIB;
    const CAP_BYTES: u64 = 16 * MIB;
    const ITEMS: usize = 280_000;
    // The hot ones take one of 16 MiB and the rest of the index another; a quarter of it is four segments from before.
    const NEWEST: usize = 5_000;
    const OLDER: usize = 20_000;
    let wide = move || TenantPlan {
        grant_bytes: FULL_BYTES,
        policy,
        shards,
        ..open_tenant()
    };
    let setup = || Setup {
        pool_bytes: 2 * FULL_BYTES,
        tenants: vec![wide()],
        ..Setup::default()
    };
    let Some(mut server) = remote(
        name,
        move || Harness::start(setup()),
        |harness, _| {
            harness.apply(vec![TenantPlan {
                version: 2,
                cap_bytes: Some(CAP_BYTES),
                ..wide()
            }]);
            0
        },
    ) else {
        return;
    };
    let mut client = server.connect();
    let hot: Vec<usize> = (0..1000).map(|number| number * 7).collect();
    for begin in (0..ITEMS).step_by(ITEMS / 20) {
        write(&mut client, begin..begin + ITEMS / 20);
        // First in, first out asks nobody.
        let used = if policy == Policy::Fifo { 0 } else { 3 };
        (0..used).for_each(|_| assert_eq!(count_present(&mut client, &hot), hot.len()));
    }
    assert!(
        client.stat("evictions") > 0 && server.ask("usage") > FULL_BYTES * 9 / 10,
        "it is full"
    );
    server.ask("lower");
    wait_for_fall(&mut server, CAP_BYTES);
    let mut count = |numbers: &[usize]| count_present(&mut client, numbers) as f64 / numbers.len() as f64;
    let newest = count(&(ITEMS - NEWEST..ITEMS).collect::<Vec<_>>());
    let cold = count(&(ITEMS / 20..ITEMS - OLDER).collect::<Vec<_>>());
    let hot_left = count(&hot);
    println!("newest {newest}, cold {cold}, hot {hot_left}");
    // With s3fifo in shards, on a busy machine, the fall took some of the newest, too: 7 % at most as far as was seen.
    assert!(newest > 0.9 && cold < 0.01, "newest {newest}, cold {cold}");
    assert!(policy == Policy::Fifo || hot_left > 0.95, "hot {hot_left}");
    // It goes on with the memory that is left.
    write(&mut client, ITEMS..ITEMS + 2 * OLDER);
    assert!(server.ask("usage") <= CAP_BYTES);
}

#[test]
fn a_removed_tenants_memory_returns_at_once() {
    const LARGE: usize = 1_000_000;
    let tenants = || {
        let gone = TenantPlan {
            grant_bytes: 160 * MIB,
            ..tenant(1, "gone")
        };
        vec![gone, tenant(2, "stays")]
    };
    let start = move || {
        Harness::start(Setup {
            tenants: tenants(),
            ..Setup::default()
        })
    };
    let name = "memory::a_removed_tenants_memory_returns_at_once";
    let Some(mut server) = remote(name, start, |harness, _| {
        let state = TenantState::Removing;
        harness.apply(vec![TenantPlan {
            version: 2,
            state,
            ..tenant(1, "gone")
        }]);
        0
    }) else {
        return;
    };
    let (mut gone, mut stays) = (server.log_in("gone"), server.log_in("stays"));
    write(&mut gone, 0..150_000);
    write(&mut stays, 0..1000);
    gone.ask(&set("large", &vec![b'l'; LARGE]), b"STORED\r\n");
    // One in the middle of a write, and one that does not read a value sent from its place.
    let mut unfinished = server.log_in("gone");
    unfinished.send(b"set k 0 0 1000000\r\nabc");
    wait_until("a write is begun", || server.ask("buffers") > 0);
    let mut deaf = server.log_in("gone");
    deaf.send(&b"get large\r\n".repeat(100));
    assert_eq!(deaf.stream.peek(&mut [0]).unwrap(), 1, "a reply is begun");
    assert!(server.ask("resident") > 150 * MIB);
    server.ask("remove");
    wait_for_fall(&mut server, 16 * MIB);
    wait_until("it is gone", || server.ask("removed") == 1);
    gone.expect_end(b"");
    for client in [&mut deaf, &mut unfinished] {
        let (_, ended) = client.receive_until(|_| false);
        assert!(ended);
    }
    assert_eq!(count_present(&mut stays, &(0..1000).collect::<Vec<_>>()), 1000);
}

#[test]
fn the_pool_is_resized_under_load() {
    const CLIENTS: usize = 4;
    const KEYS: usize = 100_000;
    const GRANTS_BYTES: [u64; 5] = [60 * MIB, 12 * MIB, 100 * MIB, 3 * MIB, 40 * MIB];
    let plans = |step: u64, grant_bytes| {
        ["left", "right"]
            .into_iter()
            .zip(1..)
            .map(|(name, id)| TenantPlan {
                version: step + 1,
                grant_bytes,
                shards: 2,
                ..tenant(id, name)
            })
            .collect::<Vec<_>>()
    };
    let tenants = plans(0, GRANTS_BYTES[0]);
    let setup = move || Setup {
        pool_bytes: 2 * GRANTS_BYTES[0],
        tenants,
        ..Setup::default()
    };
    let Some(mut server) = remote(
        "memory::the_pool_is_resized_under_load",
        || Harness::start(setup()),
        |harness, wish| {
            let step: usize = wish[1].parse().unwrap();
            let grant_bytes = GRANTS_BYTES[step];
            harness.resize_pool(2 * grant_bytes, plans(step as u64, grant_bytes));
            0
        },
    ) else {
        return;
    };
    let (stop, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; CLIENTS]);
    let clients: Vec<Client> = (0..CLIENTS).map(|n| server.log_in(["left", "right"][n % 2])).collect();
    let seed = random_seed();
    println!("seed {seed}");
    std::thread::scope(|scope| {
        // Also when a check below fails: the clients' threads are waited for.
        let stop_at_end = StopAtEnd(&stop);
        for (number, (mut client, rounds)) in clients.into_iter().zip(&rounds).enumerate() {
            let (stop, mut random) = (&stop, Random(seed + 2 * number as u64));
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let begin = random.below(KEYS);
                    let missed = BATCH - count_present(&mut client, &(begin..begin + BATCH).collect::<Vec<_>>());
                    if missed > 0 {
                        write(&mut client, begin..begin + BATCH);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for (step, grant_bytes) in GRANTS_BYTES.into_iter().enumerate() {
            server.ask(&format!("resize {step}"));
            wait_for_fall(&mut server, 2 * grant_bytes);
            wait_until("the memory is used", || server.ask("usage") > grant_bytes * 3 / 2);
            let before: Vec<u64> = rounds.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            let goes_on = || {
                rounds
                    .iter()
                    .zip(&before)
                    .all(|(now, &before)| now.load(Ordering::Relaxed) > before + 2)
            };
            wait_until("all clients are served", goes_on);
            assert!(server.ask("usage") <= 2 * grant_bytes);
        }
        drop(stop_at_end);
    });
}

/// A server whose tenants `1..=count`, called `t` and their number, come with the wish `create` and go with `remove`.
fn many_tenants(name: &str, count: u32, pool_bytes: u64, plan: &TenantPlan) -> Option<Remote> {
    let setup = move || Setup {
        pool_bytes,
        tenants: Vec::new(),
        ..Setup::default()
    };
    remote(
        name,
        || Harness::start(setup()),
        |harness, wish| {
            let state = if wish[0] == "remove" {
                TenantState::Removing
            } else {
                TenantState::Active
            };
            let first: u32 = wish[1].parse().unwrap();
            let named = |number: u32| format!("t{}", number - first + 1).parse().unwrap();
            let plans = (first..first + count).map(|number| TenantPlan {
                id: TenantId(number),
                name: named(number),
                state,
                ..plan.clone()
            });
            harness.apply(plans.collect());
            0
        },
    )
}

#[test]
fn a_thousand_small_tenants_strand_little() {
    const TENANTS: u32 = 1000;
    const PAYLOAD_BYTES: usize = 1_000_000;
    let plan = TenantPlan {
        grant_bytes: 2 * MIB,
        ..tenant(1, "t")
    };
    let name = "memory::a_thousand_small_tenants_strand_little";
    let Some(mut server) = many_tenants(name, TENANTS, 4096 * MIB, &plan) else {
        return;
    };
    let before = server.ask("resident");
    server.ask("create 1");
    let seed = random_seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    let noise: Vec<u8> = (0..2000).map(|_| b'a' + random.below(26) as u8).collect();
    let mut payload = 0;
    for number in 1..=TENANTS {
        let (mut request, mut here, mut items) = (Vec::new(), 0, 0_u64);
        while here < PAYLOAD_BYTES {
            let (item, key) = (100 + random.below(901), key(items as usize));
            let value = &noise[here % 1000..][..item - key.len()];
            request.extend_from_slice(format!("set {key} 0 0 {} noreply\r\n", value.len()).as_bytes());
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
            here += item;
            items += 1;
        }
        let mut client = server.log_in(&format!("t{number}"));
        assert!(client.answer(&request).is_empty());
        assert_eq!((client.stat("curr_items"), client.stat("evictions")), (items, 0));
        payload += here as u64;
    }
    let added = server.ask("resident") - before;
    let share = payload as f64 / added as f64;
    println!("{payload} bytes of keys and values in {added}: {share:.3}");
    assert!(share >= 0.8, "{share}");
}

#[test]
fn ten_thousand_idle_tenants_cost_next_to_nothing() {
    const TENANTS: u32 = 10_000;
    /// For each idle tenant.
    const IDLE_BYTES: u64 = 8 << 10;
    let plan = TenantPlan {
        grant_bytes: 0,
        first_grant_bytes: MIB,
        ..tenant(1, "t")
    };
    let name = "memory::ten_thousand_idle_tenants_cost_next_to_nothing";
    let Some(mut server) = many_tenants(name, TENANTS, 4096 * MIB, &plan) else {
        return;
    };
    let before = server.ask("resident");
    let check = |server: &mut Remote, what: &str| {
        // Memory that was put back is with the system within a quarter of a second and the time that a busy machine
        // takes for it.
        let mut each = u64::MAX;
        wait_until(
            &format!("{IDLE_BYTES} bytes or less are with each tenant that {what}"),
            || {
                each = server.ask("resident").saturating_sub(before) / u64::from(TENANTS);
                each <= IDLE_BYTES
            },
        );
        println!("{each} bytes for each tenant that {what}");
        let (cpu, begin) = (server.ask("cpu"), Instant::now());
        wait_until("a second is over", || begin.elapsed() >= Duration::from_secs(1));
        let busy = Duration::from_micros(server.ask("cpu") - cpu);
        println!("{busy:?} of CPU time in a second for tenants that {what}");
        assert!(
            busy < Duration::from_millis(50),
            "{busy:?} of CPU time for tenants that {what}"
        );
    };
    server.ask("create 1");
    assert_eq!(server.ask("usage"), 0);
    check(&mut server, "were never used");
    for round in 1..=2 {
        for number in 1..=TENANTS {
            let mut client = server.log_in(&format!("t{number}"));
            client.ask(&set("k", &kilobyte(1)), b"STORED\r\n");
            match number % 3 {
                0 => client.ask(b"flush_all\r\n", b"OK\r\n"),
                1 => client.ask(b"delete k\r\n", b"DELETED\r\n"),
                _ => client.ask(b"touch k -1\r\nget k\r\n", b"TOUCHED\r\nEND\r\n"),
            }
        }
        wait_until("all memory is back", || server.ask("usage") == 0);
        check(&mut server, &format!("were used and emptied {round} times"));
    }
    // Others in their place.
    server.ask("remove 1");
    server.ask("create 20001");
    wait_until("the old ones are gone", || server.ask("removed") == u64::from(TENANTS));
    check(&mut server, "came when as many went");
}
