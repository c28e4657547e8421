//! Values that are copied to their places piece by piece: commands before and behind them are not affected.

use tidemark_types::{TenantLimits, TenantPlan};

use crate::harness::{Client, Harness, Random, Setup, found, open_tenant, random_seed, set, tenant, wait_until};

/// Longer than the part that a visit copies, by a piece that is no whole one.
const LONG_BYTES: usize = 900_001;
/// Clients at once.
const CLIENTS: usize = 8;

fn start(tenants: Vec<TenantPlan>) -> Harness {
    Harness::start(Setup {
        workers: 1,
        tenants,
        ..Setup::default()
    })
}

/// No two pieces of it are equal.
fn long_value(random: &mut Random, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| b'a' + random.below(26) as u8).collect()
}

fn stored(verb: &str, key: &str, value: &[u8], rest: &str) -> Vec<u8> {
    let head = format!("{verb} {key} 0 0 {}{rest}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

#[test]
fn every_way_to_store_keeps_its_condition_and_its_place_among_the_commands() {
    let harness = start(vec![open_tenant()]);
    let mut random = Random(random_seed());
    let [one, two, three] = [0, 1, 2].map(|_| long_value(&mut random, LONG_BYTES));
    let mut client = harness.connect();
    let exchanges: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (set("short", b"1"), b"STORED\r\n".to_vec()),
        (stored("replace", "k", &one, ""), b"NOT_STORED\r\n".to_vec()),
        (stored("add", "k", &one, ""), b"STORED\r\n".to_vec()),
        (b"get k\r\n".to_vec(), found("k", &one)),
        (stored("add", "k", &two, ""), b"NOT_STORED\r\n".to_vec()),
        (
            stored("cas", "k", &two, " 18446744073709551615"),
            b"EXISTS\r\n".to_vec(),
        ),
        (stored("cas", "none", &two, " 1"), b"NOT_FOUND\r\n".to_vec()),
        (b"get k none\r\n".to_vec(), found("k", &one)),
        (stored("replace", "k", &two, " noreply"), Vec::new()),
        (b"get k\r\n".to_vec(), found("k", &two)),
        (stored("set", "k", &three, ""), b"STORED\r\n".to_vec()),
        (b"incr short 1\r\n".to_vec(), b"2\r\n".to_vec()),
        (b"get k\r\n".to_vec(), found("k", &three)),
        // Gone at once.
        (
            [format!("set k 0 -1 {LONG_BYTES}\r\n").as_bytes(), &one, b"\r\n"].concat(),
            b"STORED\r\n".to_vec(),
        ),
        (b"get k\r\n".to_vec(), b"END\r\n".to_vec()),
        (
            [format!("ms k {LONG_BYTES} E5 c\r\n").as_bytes(), &two, b"\r\n"].concat(),
            b"HD c5\r\n".to_vec(),
        ),
        (
            [format!("ms k {LONG_BYTES} C7\r\n").as_bytes(), &one, b"\r\n"].concat(),
            b"EX\r\n".to_vec(),
        ),
        (
            [format!("ms k {LONG_BYTES} C5 s\r\n").as_bytes(), &three, b"\r\n"].concat(),
            format!("HD s{LONG_BYTES}\r\n").into_bytes(),
        ),
        (b"get k\r\n".to_vec(), found("k", &three)),
        (stored("append", "short", &one[..300_000], ""), b"STORED\r\n".to_vec()),
        (
            b"get short\r\n".to_vec(),
            found("short", &[b"2", &one[..300_000]].concat()),
        ),
        (b"flush_all\r\n".to_vec(), b"OK\r\n".to_vec()),
        (stored("set", "k", &one, ""), b"STORED\r\n".to_vec()),
        (b"get k short\r\n".to_vec(), found("k", &one)),
    ];
    // One after the other, and all in one stream.
    for (request, reply) in &exchanges {
        client.ask(&[request, &b"mn\r\n"[..]].concat(), &[reply, &b"MN\r\n"[..]].concat());
    }
    client.ask(b"flush_all\r\n", b"OK\r\n");
    let (requests, replies): (Vec<Vec<u8>>, Vec<Vec<u8>>) = exchanges.into_iter().unzip();
    let replies = replies.concat();
    let mut stream = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut stream, &requests.concat()).unwrap());
        client.expect(&replies);
    });
}

#[test]
fn clients_that_store_at_once_do_not_mix_their_values() {
    let harness = start(vec![open_tenant()]);
    let mut random = Random(random_seed());
    let mut clients: Vec<(Client, Vec<u8>)> = (0..CLIENTS)
        .map(|_| {
            let bytes = 300_000 + random.below(700_000);
            (harness.connect(), long_value(&mut random, bytes))
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, (client, value)) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                let key = format!("k{number}");
                for _ in 0..4 {
                    client.ask(&set(&key, value), b"STORED\r\n");
                    client.ask(&set("all", value), b"STORED\r\n");
                    client.ask(format!("get {key}\r\n").as_bytes(), &found(&key, value));
                }
            });
        }
    });
    let last = harness.connect().answer(b"get all\r\n");
    assert!(
        clients.iter().any(|(_, value)| last == found("all", value)),
        "{} bytes",
        last.len()
    );
}

#[test]
fn what_clients_stored_that_are_gone_is_all_given_back() {
    let harness = start(vec![open_tenant()]);
    let value = vec![b'v'; LONG_BYTES];
    let mut watcher = harness.connect();
    for round in 0..20 {
        let mut client = harness.connect();
        client.send(&set(&format!("k{round}"), &value));
        drop(client);
    }
    wait_until("they are gone", || watcher.stat("curr_connections") == 1);
    watcher.ask(b"flush_all\r\n", b"OK\r\n");
    wait_until("all is given back", || {
        harness.tenant(1).is_none_or(|tenant| tenant.usage_bytes == 0)
    });
}

#[test]
fn a_limit_counts_a_value_once() {
    let limits = TenantLimits {
        ops_per_second: Some(10),
        ..TenantLimits::default()
    };
    let harness = start(vec![
        open_tenant(),
        TenantPlan {
            limits,
            ..tenant(2, "shop")
        },
    ]);
    let mut client = harness.log_in("shop");
    client.ask(&set("k", &vec![b'v'; LONG_BYTES]), b"STORED\r\n");
    let after = harness.tenant(2).unwrap().counters;
    assert_eq!((after.refused.ops, after.sets), (0, 1));
    // Nine of the ten are left; a value that counted for each of its pieces would have left none.
    client.ask(&set("a", b"1").repeat(9), "STORED\r\n".repeat(9).as_bytes());
}

#[test]
fn a_limit_on_bytes_counts_a_value_when_it_begins() {
    const AT_ONCE: usize = 4;
    let limits = TenantLimits {
        bytes_per_second: Some(LONG_BYTES as u64),
        ..TenantLimits::default()
    };
    let harness = start(vec![
        open_tenant(),
        TenantPlan {
            limits,
            ..tenant(2, "shop")
        },
    ]);
    let mut clients: Vec<Client> = (0..AT_ONCE).map(|_| harness.log_in("shop")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&set(&format!("k{number}"), &vec![b'v'; LONG_BYTES]));
    }
    let replies: Vec<Vec<u8>> = clients.iter_mut().map(Client::line).collect();
    let stored = replies.iter().filter(|reply| reply.starts_with(b"STORED")).count();
    let refused = harness.tenant(2).unwrap().counters.refused.bytes;
    // Later ones may find the next second's worth.
    assert!(
        stored < AT_ONCE && stored + refused as usize == AT_ONCE,
        "{stored} {refused}"
    );
}
