//! Bad input and bad clients: nothing changes, memory stays bounded, others are served.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tidemark_server::Limits;
use tidemark_types::{MIB, TenantPlan};

use crate::harness::{Client, Harness, PATIENCE, Setup, found, open_tenant, set, tenant, wait_until};

/// Clients may be slow for so long in these tests.
const SHORT: Limits = Limits {
    stalled: Duration::from_secs(2),
    incomplete_command: Duration::from_secs(2),
    login: Duration::from_secs(2),
    failed_login: Duration::from_millis(5),
    buffer_bytes: 64 << 20,
    suspended_commands: 4096,
};

fn server(limits: Limits, grant_bytes: u64) -> Harness {
    let tenants = vec![
        TenantPlan {
            grant_bytes,
            ..open_tenant()
        },
        tenant(2, "shop"),
    ];
    Harness::start(Setup {
        limits,
        tenants,
        ..Setup::default()
    })
}

#[test]
fn a_command_that_is_cut_off_changes_nothing() {
    let harness = server(Limits::default(), 16 * MIB);
    let mut client = harness.connect();
    client.ask(&set("k", b"5"), b"STORED\r\n");
    client.ask(b"ms t 1 c\r\n5\r\n", b"HD c1\r\n");
    for command in [
        "set k 0 0 3\r\nabc\r\n",
        "set k 0 0 3 noreply\r\nabc\r\n",
        "add new 0 0 3\r\nabc\r\n",
        "replace k 0 0 3\r\nabc\r\n",
        "append k 0 0 3\r\nabc\r\n",
        "prepend k 0 0 3\r\nabc\r\n",
        "cas t 0 0 3 1\r\nabc\r\n",
        "ms k 3\r\nabc\r\n",
        "ms k 3 MA q\r\nabc\r\n",
        "incr k 1\r\n",
        "decr k 1\r\n",
        "delete k\r\n",
        "touch k -1\r\n",
        "gat -1 k\r\n",
        "md k\r\n",
        "ma k N0\r\n",
        "mg k T-1\r\n",
        "mg new N0\r\n",
        "flush_all\r\n",
    ] {
        for length in 1..command.len() {
            let mut cut = harness.connect();
            cut.send(&command.as_bytes()[..length]);
            cut.stream.shutdown(Shutdown::Write).unwrap();
            cut.expect_end(b"");
        }
        client.ask(b"get k t new\r\n", b"VALUE k 0 1\r\n5\r\nVALUE t 0 1\r\n5\r\nEND\r\n");
        client.ask(b"mg k t\r\nmg t t c\r\n", b"HD t-1\r\nHD t-1 c1\r\n");
    }
}

#[test]
fn a_client_that_stays_in_the_middle_of_a_command_is_dropped() {
    let harness = server(SHORT, 16 * MIB);
    let mut idle = harness.connect();
    let mut clients: Vec<Client> = [
        &b"get k"[..],
        b"set k 0 0 5\r\nab",
        b"set k 0 0 1000000\r\nab",
        b"mg k v\r\nms k 5 c\r\n",
        b"\r",
        b"stats\r\nget ",
    ]
    .iter()
    .map(|part| {
        let mut client = harness.connect();
        client.send(part);
        client
    })
    .collect();
    for client in &mut clients {
        let (_, ended) = client.receive_until(|_| false);
        assert!(ended);
    }
    wait_until("nothing is held for them", || {
        harness.buffer_bytes() == 0 && harness.look().connections == 1
    });
    // A client that is silent between commands may stay, and so may one that sends slowly but goes on.
    idle.ask(b"get k\r\n", b"END\r\n");
    let begin = Instant::now();
    while begin.elapsed() < 2 * SHORT.incomplete_command {
        for byte in b"get k\r\n" {
            idle.send(&[*byte]);
        }
        idle.expect(b"END\r\n");
    }
}

/// A client that asks for much more than fits into the system's buffers and reads nothing.
fn deaf(harness: &Harness, request: &[u8]) -> Client {
    let mut client = harness.connect();
    SockRef::from(&client.stream).set_recv_buffer_size(4096).unwrap();
    client.send(request);
    client
}

#[test]
fn who_does_not_read_is_dropped_and_held_little_for() {
    const CLIENTS: usize = 200;
    // A tenant may hold half of the memory of all connections, which is 64 MiB. Beyond that it is not read from, and
    // its input is executed up to a quarter more. Until then a worker may serve a group of 16 once more: 64 KiB of
    // commands each, and replies up to 256 KiB and one value.
    let most = |value: usize| 48 * MIB + 2 * 16 * ((64 << 10) + (256 << 10) + value as u64);
    let harness = server(SHORT, 64 * MIB);
    let mut client = harness.connect();
    let (small, large) = ("s".repeat(16_000), "l".repeat(1_000_000));
    client.ask(&set("s", small.as_bytes()), b"STORED\r\n");
    client.ask(&set("l", large.as_bytes()), b"STORED\r\n");
    let mut other = harness.log_in("shop");
    for (request, value) in [
        // Copied into the reply.
        ("get s\r\n".repeat(10_000), small.len()),
        ("mg s v\r\n".repeat(10_000), small.len()),
        ("get s s\r\n".repeat(10_000), 2 * small.len()),
        // One command, answered in parts.
        (format!("get{}\r\n", " s".repeat(100_000)), small.len()),
        // Sent from where it lies; beyond the limit of pins it is copied.
        ("get l\r\n".repeat(10_000), large.len()),
    ] {
        let deaf: Vec<Client> = (0..CLIENTS).map(|_| deaf(&harness, request.as_bytes())).collect();
        let mut held = 0;
        wait_until("all were dropped", || {
            held = held.max(harness.buffer_bytes());
            // Meanwhile others are served.
            other.ask(b"mg k\r\n", b"EN\r\n");
            harness.look().connections == 2
        });
        assert!(held > MIB && held <= most(value), "{held} bytes for {}", &request[..8]);
        wait_until("nothing is held", || harness.buffer_bytes() == 0);
        assert!(deaf.into_iter().all(|mut client| client.receive_until(|_| false).1));
    }
    client.ask(b"get l\r\n", &found("l", large.as_bytes()));
}

#[test]
fn who_reads_slowly_but_reads_gets_everything() {
    const VALUES: usize = 30;
    const PIECE_BYTES: usize = 64 << 10;
    // So little that the system does not report room within the limit: it does when a third of its buffer is free.
    const PIECES: u32 = 40;
    let harness = server(SHORT, 16 * MIB);
    let mut client = harness.connect();
    let value = vec![b'v'; 1_000_000];
    client.ask(&set("k", &value), b"STORED\r\n");
    let mut slow = harness.connect();
    slow.send(&b"get k\r\n".repeat(VALUES));
    let reply = found("k", &value).repeat(VALUES);
    let (slowly, rest) = reply.split_at(PIECES as usize * PIECE_BYTES);
    let begin = Instant::now();
    for (piece, number) in slowly.chunks(PIECE_BYTES).zip(1..) {
        slow.read_exactly(piece);
        let next = begin + SHORT.stalled / 20 * number;
        wait_until("it is time for the next piece", || Instant::now() >= next);
    }
    slow.expect(rest);
    slow.ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn who_has_sent_everything_gets_all_replies() {
    let harness = server(Limits::default(), 16 * MIB);
    let value = vec![b'v'; 1 << 20];
    harness.connect().ask(&set("k", &value), b"STORED\r\n");
    let mut client = harness.connect();
    client.send(&b"get k\r\n".repeat(20));
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.expect_end(&found("k", &value).repeat(20));
    wait_until("the connection is gone", || harness.look().connections == 0);
}

#[test]
fn a_long_list_of_keys_is_answered_in_parts() {
    let harness = server(Limits::default(), 16 * MIB);
    let values = [vec![b'a'; 1 << 20], vec![b'b'; 15_000], vec![b'c'; 10]];
    let mut client = harness.connect();
    let (mut request, mut reply) = (b"get".to_vec(), Vec::new());
    for (name, value) in ["a", "b", "c"].into_iter().zip(&values) {
        client.ask(&set(name, value), b"STORED\r\n");
    }
    for number in 0..1000 {
        let (name, value) = [("a", &values[0]), ("b", &values[1]), ("c", &values[2])][(number % 100_usize).min(2)];
        request.extend_from_slice(format!(" {name} missing").as_bytes());
        reply.extend_from_slice(found(name, value).strip_suffix(b"END\r\n").unwrap());
    }
    request.extend_from_slice(b"\r\n");
    reply.extend_from_slice(b"END\r\n");
    let before = client.stat("cmd_get");
    client.ask(&request.repeat(2), &reply.repeat(2));
    assert_eq!(client.stat("cmd_get") - before, 4000);
    client.send(&request);
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.expect_end(&reply);
}

#[test]
fn a_long_pipeline_is_served_whole_and_delays_nobody() {
    const COMMANDS: usize = 100_000;
    // Once is enough: this thread may have to wait for a core for as long as a whole pipeline takes.
    const ATTEMPTS: usize = 5;
    let tenants = vec![open_tenant()];
    let harness = Harness::start(Setup {
        workers: 1,
        tenants,
        ..Setup::default()
    });
    let value = [b'v'; 100];
    let mut other = harness.connect();
    other.ask(&set("k", &value), b"STORED\r\n");
    let mut client = harness.connect();
    let expected = found("k", &value);
    let mut was_first = || {
        let mut sender = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(&b"get k\r\n".repeat(COMMANDS)).unwrap());
            let reader = scope.spawn(|| {
                for _ in 0..COMMANDS {
                    client.expect(&expected);
                }
            });
            other.ask(b"mg k s\r\n", b"HD s100\r\n");
            !reader.is_finished()
        })
    };
    assert!(
        (0..ATTEMPTS).any(|_| was_first()),
        "the other client waited for all of the pipeline"
    );
    client.ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn large_values_in_small_grants_are_stored_whole_or_refused() {
    let value = |number: usize| vec![b'a' + (number % 26) as u8; (1 << 20) - number];
    for units in [0, 1, 2, 8, 16, 17, 18, 20, 24, 40, 64] {
        let harness = server(Limits::default(), units << 16);
        let mut client = harness.connect();
        for number in 0..30 {
            let value = value(number);
            client.send(&set("k", &value));
            let stored = client.line();
            assert!(
                stored == b"STORED\r\n" || stored == b"SERVER_ERROR out of memory storing object\r\n",
                "{units}"
            );
            // Sixteen units for the value, one for the index, one for the log.
            assert_eq!(stored == b"STORED\r\n", units > 17, "{units} units, value {number}");
            if units > 17 {
                client.ask(b"get k\r\n", &found("k", &value));
            } else {
                client.ask(b"get k\r\n", b"END\r\n");
            }
            let usage = harness.tenant(1).unwrap().usage_bytes;
            assert!(usage <= units << 16, "{usage} bytes in a grant of {units} units");
        }
    }
}

#[test]
fn what_is_refused_leaves_the_old_value_or_none() {
    let harness = server(Limits::default(), 4 << 16);
    let mut client = harness.connect();
    client.ask(&set("k", b"old"), b"STORED\r\n");
    let refused = b"SERVER_ERROR out of memory storing object\r\n";
    for request in [set("k", &[b'x'; 1 << 20]), set("k", &[b'x'; 300_000])] {
        client.ask(&request, refused);
        let now = client.answer(b"get k\r\n");
        assert!(now == b"END\r\n" || now == found("k", b"old"), "{}", now.escape_ascii());
    }
    client.ask(&set("k", b"new"), b"STORED\r\n");
    let begin = client.answer(b"get k\r\n");
    assert_eq!(begin, found("k", b"new"));
    assert!(client.stat("store_no_memory") >= 2);
}

#[test]
fn a_tenant_out_of_memory_evicts_only_its_own() {
    let harness = server(Limits::default(), 4 * MIB);
    let value = [b'v'; 1000];
    let keys = |who: &str| (0..2000).map(|n| format!("{who}{n}")).collect::<Vec<_>>();
    let mut shop = harness.log_in("shop");
    for key in keys("s") {
        shop.ask(&set(&key, &value), b"STORED\r\n");
    }
    let mut open = harness.connect();
    for round in 0..10 {
        for key in keys(&format!("o{round}-")) {
            open.ask(&set(&key, &value), b"STORED\r\n");
        }
    }
    assert!(open.stat("evictions") > 10_000);
    assert_eq!(shop.stat("evictions"), 0);
    for key in keys("s") {
        shop.ask(format!("get {key}\r\n").as_bytes(), &found(&key, &value));
    }
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let harness = server(Limits::default(), 16 * MIB);
    let mut client = harness.connect();
    client.ask(&set("k", &[b'v'; 100_000]), b"STORED\r\n");
    for round in 0..2000 {
        let mut visitor = if round % 3 == 0 {
            harness.log_in("shop")
        } else {
            harness.connect()
        };
        match round % 8 {
            0 => {}
            1 => visitor.send(b"get k\r\n"),
            2 => visitor.ask(b"mn\r\n", b"MN\r\n"),
            3 => visitor.send(b"set k 0 0 100000\r\nxx"),
            4 => visitor.send(b"quit\r\n"),
            5 => visitor.send(&b"get k\r\n".repeat(50)),
            6 => visitor.send(b"bogus"),
            _ => SockRef::from(&visitor.stream).set_linger(Some(Duration::ZERO)).unwrap(),
        }
    }
    wait_until("only one connection is left", || harness.look().connections == 1);
    wait_until("nothing is held", || harness.buffer_bytes() == 0);
    let listed = client.answer(b"stats conns\r\n");
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(listed.matches(":addr ").count(), 1, "{listed}");
    assert_eq!(client.stat("curr_connections"), 1);
    client.ask(b"get k\r\n", &found("k", &[b'v'; 100_000]));
}

#[test]
fn draining_answers_what_has_come_and_refuses_what_is_new() {
    const COMMANDS: usize = 2000;
    let harness = server(Limits::default(), 16 * MIB);
    let value = [b'v'; 100];
    harness.connect().ask(&set("k", &value), b"STORED\r\n");
    let mut idle = harness.connect();
    idle.ask(b"mn\r\n", b"MN\r\n");
    let mut clients: Vec<Client> = (0..8).map(|_| harness.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask(b"mn\r\n", b"MN\r\n"));
    clients
        .iter_mut()
        .for_each(|client| client.send(&b"get k\r\n".repeat(COMMANDS)));
    let address = harness.address;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| harness.drain(PATIENCE));
        for client in &mut clients {
            client.expect_end(&found("k", &value).repeat(COMMANDS));
        }
    });
    idle.expect_end(b"");
    assert!(begin.elapsed() < PATIENCE, "it waited for its limit");
    // Unless another test has got the port meanwhile.
    wait_until("nobody listens", || std::net::TcpStream::connect(address).is_err());
}

#[test]
fn draining_ends_at_its_limit() {
    let harness = server(Limits::default(), 16 * MIB);
    let mut client = harness.connect();
    client.ask(&set("k", &[b'v'; 1_000_000]), b"STORED\r\n");
    let mut unfinished = harness.connect();
    unfinished.send(b"set k 0 0 5\r\nab");
    wait_until("a command is begun", || harness.buffer_bytes() > 0);
    let deaf = deaf(&harness, &b"get k\r\n".repeat(100));
    assert_eq!(deaf.stream.peek(&mut [0]).unwrap(), 1, "a reply is begun");
    let (begin, limit) = (Instant::now(), Duration::from_millis(700));
    harness.drain(limit);
    let took = begin.elapsed();
    assert!(took >= limit && took < limit + PATIENCE / 4, "{took:?}");
    unfinished.expect_end(b"");
    drop(deaf);
}
