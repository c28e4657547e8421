//! Hostile clients. Whatever some tenants' clients do, the process holds no more than the pool and a stated overhead.
//! Other tenants' small commands wait for no turn but the one they come in. Commands that wait for memory go on when
//! there is some.
//!
//! The attacks take a few seconds each. `TIDEMARK_SOAK_SECONDS` repeats them for so long (`make soak`).

mod attacks;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tidemark_server::Limits;
use tidemark_types::{MIB, TenantPlan, Weight};

use attacks::{halves, long_work, mgets, slow_readers, transactions};

use crate::harness::{Client, Harness, PATIENCE, SECRET, Setup, StopAtEnd, found, login, open_tenant, set, tenant};
use crate::harness::{wait_for, wait_until};
use crate::remote::{Remote, remote};

const POOL_BYTES: u64 = 64 * MIB;
const WORKERS: usize = 2;
/// Connections' memory, where nothing else is configured and the pool is small.
const CONNECTION_BYTES: u64 = 64 * MIB;
/// The memory of a worker in hand: received input, the replies of a group, buffers that it keeps.
const WORKER_BYTES: u64 = 40 * MIB;
/// A connection's own part and its state.
const OWN_BYTES: u64 = 16 << 10;
/// The program itself, as far as it grows when it is used.
const PROGRAM_BYTES: u64 = 8 * MIB;

/// Visits to connections in a worker's turn.
const TURN_VISITS: u64 = 64;

fn server() -> Harness {
    let capped = |id, name| TenantPlan {
        grant_bytes: 8 * MIB,
        ..tenant(id, name)
    };
    Harness::start(Setup {
        workers: WORKERS,
        pool_bytes: POOL_BYTES,
        tenants: vec![
            TenantPlan {
                grant_bytes: 8 * MIB,
                ..open_tenant()
            },
            capped(2, "a"),
            capped(3, "b"),
            capped(4, "c"),
        ],
        flash: None,
        limits: Limits {
            stalled: Duration::from_secs(3),
            incomplete_command: Duration::from_secs(3),
            ..Limits::default()
        },
    })
}

/// An array of bulk strings, as RESP's requests are.
fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    request
}

fn redis_address(server: &mut Remote) -> SocketAddr {
    let port = u16::try_from(server.ask("redis-port")).unwrap();
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A connection to the RESP port, logged in as a tenant.
fn redis(address: SocketAddr, name: &str) -> Client {
    let mut client = Client::connect(address);
    client.ask(&array(&[b"AUTH", name.as_bytes(), SECRET.as_bytes()]), b"+OK\r\n");
    client
}

/// A client that never reads, and asks for much more than fits into the system's buffers.
fn deaf(client: Client) -> Client {
    SockRef::from(&client.stream).set_recv_buffer_size(4096).unwrap();
    client
}

/// Sends as much as the system takes within a second.
fn send_some(client: &mut Client, bytes: &[u8]) {
    client.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The server may also have closed it.
    let _ = client.stream.write_all(bytes);
}

/// One attack: it opens connections, which hold as much as they can get until they are dropped.
type Attack = fn(&Remote, SocketAddr) -> Vec<Client>;

/// Values that the attacks ask for.
fn prepare(server: &Remote, address: SocketAddr) {
    for name in ["a", "b"] {
        let mut client = server.log_in(name);
        client.ask(&set("big", &vec![b'b'; 1 << 20]), b"STORED\r\n");
        client.ask(&set("small", &vec![b's'; 12_000]), b"STORED\r\n");
        let mut client = redis(address, name);
        for number in 0..5 {
            let key = format!("{number}{}", "a".repeat(60_000));
            client.ask(&array(&[b"SET", key.as_bytes(), b"v"]), b"+OK\r\n");
        }
    }
}

/// How long the bystander pauses between a few requests.
const PAUSE: Duration = Duration::from_millis(1);

/// The measurements of a bystander.
#[derive(Default)]
struct Bystander {
    latencies: Vec<Duration>,
}

impl Bystander {
    /// Asks small things of both ports, over open connections and new ones, until told to stop. It asks for much less
    /// than its share of the workers' time: a tenant that asks for more waits for its turn.
    fn watch(server: SocketAddr, address: SocketAddr, stop: &AtomicBool) -> Self {
        let mut memcached = Client::connect(server);
        memcached.ask(&login("c", SECRET), b"STORED\r\n");
        memcached.ask(&set("k", b"value"), b"STORED\r\n");
        let mut resp = redis(address, "c");
        let mut seen = Self::default();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            seen.time(|| memcached.ask(b"get k\r\n", &found("k", b"value")));
            seen.time(|| memcached.ask(&set("k", b"value"), b"STORED\r\n"));
            seen.time(|| resp.ask(&array(&[b"GET", b"k"]), b"$5\r\nvalue\r\n"));
            if seen.latencies.len() % 30 == 0 {
                seen.time(|| drop(redis(address, "c")));
                let mut other = Client::connect(server);
                seen.time(|| other.ask(&login("c", SECRET), b"STORED\r\n"));
            }
        }
        seen
    }

    fn time(&mut self, act: impl FnOnce()) {
        let begin = Instant::now();
        act();
        self.latencies.push(begin.elapsed());
    }

    fn show(mut self, what: &str) {
        self.latencies.sort_unstable();
        let at = |part: usize| self.latencies[(self.latencies.len() - 1) * part / 1000];
        let (median, most, max) = (at(500), at(990), at(1000));
        println!(
            "{what}: {} requests of the bystander, median {median:?}, 99th percentile {most:?}, longest {max:?}",
            self.latencies.len()
        );
    }
}

#[test]
fn three_tenants_attacks_take_bounded_memory_and_delay_nobody_else() {
    const ATTACKS: [(&str, Attack); 5] = [
        ("MGET", mgets),
        ("MULTI", transactions),
        ("halves", halves),
        ("slow readers", slow_readers),
        ("long work", long_work),
    ];
    let name = "hostile::three_tenants_attacks_take_bounded_memory_and_delay_nobody_else";
    let Some(mut server) = remote(name, server, |_, words| panic!("{words:?}")) else {
        return;
    };
    let address = redis_address(&mut server);
    let base = server.ask("anonymous");
    prepare(&server, address);
    let soak = std::env::var("TIDEMARK_SOAK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(soak.unwrap_or(0));
    loop {
        for (what, attack) in ATTACKS {
            attack_once(&mut server, address, base, (what, attack));
        }
        if Instant::now() >= until {
            return;
        }
    }
}

fn attack_once(server: &mut Remote, address: SocketAddr, base: u64, (what, attack): (&str, Attack)) {
    // After the attack, as long as connections may stand still.
    const LASTS: Duration = Duration::from_secs(5);
    let (stop, memcached) = (AtomicBool::new(false), server.address);
    server.ask("visits-waited c");
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        let bystander = scope.spawn(|| Bystander::watch(memcached, address, &stop));
        let clients = attack(server, address);
        let (begin, mut held) = (Instant::now(), 0);
        let most = base
            + POOL_BYTES
            + CONNECTION_BYTES
            + WORKERS as u64 * WORKER_BYTES
            + PROGRAM_BYTES
            + clients.len() as u64 * OWN_BYTES;
        while begin.elapsed() < LASTS {
            held = held.max(server.ask("anonymous"));
            assert!(held <= most, "{what}: {held} bytes, {most} are the most");
        }
        stop.store(true, Ordering::Relaxed);
        bystander.join().unwrap().show(what);
        let visits = server.ask("visits-waited c");
        println!(
            "{what}: {held} of {most} bytes; the bystander waited for {visits} visits at most, of {TURN_VISITS} in a turn"
        );
        assert!(visits <= TURN_VISITS, "{what}: {visits} visits");
        for reason in ["memory", "stalled", "incomplete"] {
            assert_eq!(server.ask(&format!("closed {reason} 4")), 0, "{what}: {reason}");
        }
        drop(clients);
    });
    wait_until("nothing is held", || server.ask("buffers") < MIB);
}

#[test]
fn what_waits_goes_on_when_there_is_room() {
    const HOLDERS: usize = 60;
    const WAITING: usize = 40;
    let name = "hostile::what_waits_goes_on_when_there_is_room";
    let long = || {
        Harness::start(Setup {
            pool_bytes: POOL_BYTES,
            ..Setup::default()
        })
    };
    let Some(mut server) = remote(name, long, |_, words| panic!("{words:?}")) else {
        return;
    };
    let value = vec![b'v'; 1_000_000];
    server.connect().ask(&set("k", &value), b"STORED\r\n");
    let half = [&b"set s 0 0 1040000\r\n"[..], &vec![b'h'; 800_000]].concat();
    let holders: Vec<Client> = (0..HOLDERS)
        .map(|_| {
            let mut client = server.connect();
            send_some(&mut client, &half);
            client
        })
        .collect();
    wait_until("nearly all is held", || server.ask("buffers") > 55 * MIB);
    let mut waiting: Vec<Client> = (0..WAITING)
        .map(|_| {
            let mut client = server.connect();
            client.send(&set("w", &value));
            client
        })
        .collect();
    // Small commands need no room.
    server.connect().ask(b"mn\r\n", b"MN\r\n");
    let begin = Instant::now();
    drop(holders);
    for client in &mut waiting {
        client.expect(b"STORED\r\n");
    }
    println!("{WAITING} connections went on after {:?}", begin.elapsed());
    wait_until("nothing is held", || server.ask("buffers") < 10 * MIB);
}

#[test]
fn those_that_hold_memory_and_wait_for_each_others_do_not_hang() {
    const CLIENTS: usize = 20;
    // Each of those that are closed makes room for the oldest to end, and that one for the next.
    const FINISH: usize = 16;
    const VALUES: usize = 7;
    let tenants = vec![TenantPlan {
        grant_bytes: 32 * MIB,
        ..open_tenant()
    }];
    // None of the limits of time may be what helps.
    let limits = Limits {
        stalled: 10 * PATIENCE,
        incomplete_command: 10 * PATIENCE,
        ..Limits::default()
    };
    let harness = Harness::start(Setup {
        pool_bytes: POOL_BYTES,
        workers: WORKERS,
        tenants,
        limits,
        flash: None,
    });
    let value = vec![b'v'; 1_000_000];
    let keys: Vec<String> = (0..VALUES).map(|number| format!("key{number}")).collect();
    let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &value]);
    let request = array(&[&b"MSET"[..]].into_iter().chain(pairs).collect::<Vec<_>>());
    let begin = Instant::now();
    let (answered, all) = (AtomicUsize::new(0), Barrier::new(CLIENTS));
    let ask = || {
        let mut client = Client::connect(harness.redis);
        // Each sends half of it before any sends the rest, so that each holds a part.
        let half = client.stream.write_all(&request[..request.len() / 2]);
        all.wait();
        let sent = half.and_then(|()| client.stream.write_all(&request[request.len() / 2..]));
        // A closed connection may have been told so while it still sent.
        let (reply, ended) = client.receive_until(|reply| reply.ends_with(b"\r\n"));
        if sent.is_ok() && !ended {
            assert_eq!(reply, b"+OK\r\n");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|_| drop(scope.spawn(ask)));
    });
    let answered = answered.into_inner();
    println!("{answered} of {CLIENTS} were answered after {:?}", begin.elapsed());
    assert!(answered >= FINISH, "{answered} were answered");
    let closed = || harness.tenant(1).map(|tenant| tenant.counters.refused.memory as usize);
    wait_until("the others are counted", || closed() == Some(CLIENTS - answered));
    wait_until("nothing is held", || harness.buffer_bytes() < 20 * MIB);
}

#[test]
fn commands_within_a_small_share_go_on_beside_a_tenant_that_takes_what_it_can_get() {
    const LARGE: u32 = 20;
    // The small one has 33 KiB of 64 MiB.
    let large = (0..LARGE).map(|number| TenantPlan {
        weight: Weight::new(100).unwrap(),
        ..tenant(3 + number, &format!("large{number}"))
    });
    let tenants = std::iter::once(tenant(2, "small")).chain(large);
    let harness = Harness::start(Setup {
        pool_bytes: POOL_BYTES,
        tenants: tenants.collect(),
        ..Setup::default()
    });
    let half = [&b"set s 0 0 1040000\r\n"[..], &vec![b'h'; 800_000]].concat();
    let _holders: Vec<Client> = (0..80)
        .map(|number| {
            let mut client = harness.log_in(&format!("large{}", number % LARGE));
            send_some(&mut client, &half);
            client
        })
        .collect();
    wait_until("all that is lent is held", || harness.buffer_bytes() > 44 * MIB);
    let mut client = harness.log_in("small");
    for bytes in [100, 5_000, 10_000, 20_000, 25_000] {
        let value = vec![b'v'; bytes];
        client.ask(&set("k", &value), b"STORED\r\n");
        // The same in pieces, each of which is received by itself.
        let request = set("k", &value);
        let mut pieces = request.chunks(request.len() / 2 + 1);
        client.send(pieces.next().unwrap());
        // Served behind it.
        harness.log_in("small").ask(b"mn\r\n", b"MN\r\n");
        client.send(pieces.next().unwrap());
        client.expect(b"STORED\r\n");
        client.ask(b"get k\r\n", &found("k", &value));
    }
}

#[test]
fn who_writes_everything_first_is_answered() {
    const COMMANDS: usize = 100_000;
    let harness = Harness::start(Setup::default());
    let key = "k".repeat(40);
    let value = [b'v'; 1024];
    harness.connect().ask(&set(&key, &value), b"STORED\r\n");
    let mut client = Client::connect(harness.redis);
    client.send(&array(&[b"GET", key.as_bytes()]).repeat(COMMANDS));
    let reply = [&b"$1024\r\n"[..], &value, b"\r\n"].concat();
    for _ in 0..COMMANDS {
        client.expect(&reply);
    }
    client.ask(&array(&[b"PING"]), b"+PONG\r\n");
    wait_until("nothing is held", || harness.buffer_bytes() == 0);
}

#[test]
fn who_writes_without_end_and_never_reads_is_closed_and_counted() {
    let limits = Limits {
        stalled: Duration::from_secs(1),
        ..Limits::default()
    };
    let harness = Harness::start(Setup {
        limits,
        ..Setup::default()
    });
    harness.connect().ask(&set("k", &[b'v'; 1024]), b"STORED\r\n");
    let mut client = harness.connect();
    client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let requests = b"get k\r\n".repeat(10_000);
    let (mut sent, begin) = (0, Instant::now());
    let error = wait_for("the connection is closed", || match client.stream.write(&requests) {
        Ok(bytes) => {
            sent += bytes;
            None
        }
        Err(error) => Some(error),
    });
    assert!(
        error.kind() != ErrorKind::WouldBlock,
        "{error} after {:?}",
        begin.elapsed()
    );
    // Eight MiB are kept, and the system's buffers.
    assert!(sent > 8 << 20, "{sent}");
    wait_until("it is counted", || {
        harness
            .tenant(1)
            .is_some_and(|tenant| tenant.counters.refused.stalled == 1)
    });
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    wait_until("nothing is held", || harness.buffer_bytes() == 0);
}

#[test]
fn what_another_tenant_lent_is_given_back_when_it_is_wanted() {
    let name = "hostile::what_another_tenant_lent_is_given_back_when_it_is_wanted";
    let start = || {
        let tenants = vec![tenant(2, "a"), tenant(3, "b")];
        Harness::start(Setup {
            pool_bytes: POOL_BYTES,
            tenants,
            ..Setup::default()
        })
    };
    let Some(mut server) = remote(name, start, |_, words| panic!("{words:?}")) else {
        return;
    };
    // One tenant alone holds all that is lent.
    let half = [&b"set s 0 0 1040000\r\n"[..], &vec![b'h'; 800_000]].concat();
    let mut holders: Vec<Client> = (0..60).map(|_| server.log_in("a")).collect();
    holders.iter_mut().for_each(|client| send_some(client, &half));
    wait_until("nearly all is held", || server.ask("buffers") > 45 * MIB);
    // The other one's share is half of all.
    let mut others: Vec<Client> = (0..24).map(|_| server.log_in("b")).collect();
    let value = vec![b'v'; 1_000_000];
    others
        .iter_mut()
        .for_each(|client| client.send(&set("k", &value)[..900_000]));
    // Those that came last go on first: nothing that their own tenant holds is given back before.
    for client in others.iter_mut().rev() {
        client.send(&set("k", &value)[900_000..]);
        client.expect(b"STORED\r\n");
    }
    assert_eq!(server.ask("closed memory 3"), 0);
    let closed = server.ask("closed memory 2");
    assert!(closed > 0 && closed < 60, "{closed} connections were closed");
}

#[test]
fn a_long_list_or_walk_lets_others_go_first() {
    const KEYS: usize = 200_000;
    let tenants = vec![TenantPlan {
        grant_bytes: 128 * MIB,
        ..open_tenant()
    }];
    let harness = Harness::start(Setup {
        workers: 1,
        tenants,
        ..Setup::default()
    });
    let mut client = Client::connect(harness.redis);
    for batch in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        let request: Vec<u8> = batch.iter().flat_map(|n| set(&format!("key{n}"), b"v")).collect();
        harness.connect().ask(&request, &b"STORED\r\n".repeat(batch.len()));
    }
    let keys: Vec<String> = (0..KEYS).map(|n| format!("key{n}")).collect();
    let list = |verb: &'static str| {
        array(
            &[verb.as_bytes()]
                .into_iter()
                .chain(keys.iter().map(String::as_bytes))
                .collect::<Vec<_>>(),
        )
    };
    let all = format!(":{KEYS}\r\n").into_bytes();
    let values = [format!("*{KEYS}\r\n").into_bytes(), b"$1\r\nv\r\n".repeat(KEYS)].concat();
    let mut other = harness.connect();
    for (request, reply) in [
        (array(&[b"KEYS", b"*no such key*"]), b"*0\r\n".to_vec()),
        (list("EXISTS"), all.clone()),
        (list("TOUCH"), all.clone()),
        (list("MGET"), values),
        (list("DEL"), all),
    ] {
        // Several times, since this thread may have to wait for a core for as long as all of it takes.
        let mut sender = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(&request).unwrap());
            let reader = scope.spawn(|| client.expect(&reply));
            let mut asked = 0;
            while !reader.is_finished() {
                other.ask(b"mn\r\n", b"MN\r\n");
                asked += 1;
            }
            assert!(asked > 1);
        });
        let visits = harness.visits_waited("default").unwrap();
        assert!(visits <= TURN_VISITS, "{visits} visits");
    }
    client.ask(&array(&[b"DBSIZE"]), b":0\r\n");
}
