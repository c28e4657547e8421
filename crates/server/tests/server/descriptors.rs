//! Many connections, and the end of file descriptors. The server is in a process of its own, whose files and memory are its
//! alone.

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Client, Harness, Setup, found, set, wait_until};
use crate::remote::{Remote, remote};

const REFUSAL: &[u8] = b"SERVER_ERROR too many open connections\r\n";
/// Files that the server keeps for other things than connections.
const RESERVED_FILES: u64 = 64;

/// A server in a process of its own, which may open so many files. `None` in that process.
fn server(name: &str, files_max: Option<u64>) -> Option<Remote> {
    let start = || {
        let limit = files_max.or(getrlimit(Resource::Nofile).maximum);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit,
                maximum: limit,
            },
        )
        .unwrap();
        Harness::start(Setup::default())
    };
    let mut hoard: Vec<File> = Vec::new();
    remote(name, start, |_, wish| match wish {
        ["take-all-files"] => {
            hoard.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            hoard.len() as u64
        }
        ["give-them-back"] => std::mem::take(&mut hoard).len() as u64,
        _ => panic!("{wish:?}"),
    })
}

fn check_served(client: &mut Client) {
    client.ask(b"get k\r\n", &found("k", b"v"));
}

fn check_refused(server: &Remote) {
    server.connect().expect_end(REFUSAL);
}

#[test]
fn connections_beyond_the_limit_are_refused_in_words() {
    const SERVED: usize = 100;
    let name = "descriptors::connections_beyond_the_limit_are_refused_in_words";
    let Some(mut server) = server(name, Some(SERVED as u64 + RESERVED_FILES)) else {
        return;
    };
    let mut clients: Vec<Client> = (0..SERVED).map(|_| server.connect()).collect();
    clients[0].ask(&set("k", b"v"), b"STORED\r\n");
    clients.iter_mut().for_each(check_served);
    for _ in 0..50 {
        check_refused(&server);
    }
    clients.iter_mut().for_each(check_served);
    assert_eq!(clients[0].stat("rejected_connections"), 50);
    assert_eq!(clients[0].stat("listen_disabled_num"), 1);
    clients.pop();
    wait_until("the place is free", || server.ask("connections") == SERVED as u64 - 1);
    clients.push(server.connect());
    clients.iter_mut().for_each(check_served);
    check_refused(&server);
    assert_eq!(clients[0].stat("listen_disabled_num"), 2);
}

#[test]
fn without_descriptors_new_connections_are_refused_and_old_ones_served() {
    let name = "descriptors::without_descriptors_new_connections_are_refused_and_old_ones_served";
    let Some(mut server) = server(name, Some(300)) else {
        return;
    };
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    clients[0].ask(&set("k", b"v"), b"STORED\r\n");
    clients.iter_mut().for_each(check_served);
    assert!(server.ask("take-all-files") > 100);
    for _ in 0..50 {
        check_refused(&server);
        clients.iter_mut().for_each(check_served);
    }
    server.ask("give-them-back");
    clients.extend((0..10).map(|_| server.connect()));
    clients.iter_mut().for_each(check_served);
}

#[test]
fn ten_thousand_connections() {
    const CONNECTIONS: usize = 10_000;
    /// The limit of an idle connection's memory in the server.
    const IDLE_BYTES: u64 = 1024;
    let Some(mut server) = server("descriptors::ten_thousand_connections", None) else {
        return;
    };
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )
    .unwrap();
    if limit.is_some_and(|files| files < CONNECTIONS as u64 + 500) {
        println!("skipped: the hard limit of open files is {limit:?}");
        return;
    }
    // Parts that are made once are made before memory is measured.
    use_all(&mut connect(&server, 100));
    wait_until("they are gone", || server.ask("connections") == 0);
    let (memory, files) = (server.ask("anonymous"), server.ask("files"));
    let mut clients = connect(&server, CONNECTIONS);
    for _ in 0..2 {
        use_all(&mut clients);
    }
    assert_eq!(server.ask("connections"), CONNECTIONS as u64);
    assert_eq!(server.ask("buffers"), 0);
    let each = server.ask("anonymous").saturating_sub(memory) / CONNECTIONS as u64;
    println!("{each} bytes for each idle connection");
    assert!(each <= IDLE_BYTES, "{each} bytes for each idle connection");
    drop(clients);
    wait_until("they are gone", || server.ask("connections") == 0);
    wait_until("their files are closed", || server.ask("files") == files);
}

fn connect(server: &Remote, count: usize) -> Vec<Client> {
    (0..count).map(|_| server.connect()).collect()
}

/// Each connection writes, reads, and misses, all at the same time.
fn use_all(clients: &mut [Client]) {
    // A few keys with a value each, so that the cache's own memory stays out of the figure.
    let keys: Vec<(String, Vec<u8>)> = (0..50_u8)
        .map(|n| (format!("key{n}"), vec![b'a' + n; n.into()]))
        .collect();
    for (number, (client, (key, value))) in clients.iter_mut().zip(keys.iter().cycle()).enumerate() {
        client.send(&[set(key, value), format!("get {key}\r\nmg {number} k\r\n").into_bytes()].concat());
    }
    for (number, (client, (key, value))) in clients.iter_mut().zip(keys.iter().cycle()).enumerate() {
        client.expect(b"STORED\r\n");
        client.expect(&found(key, value));
        client.expect(format!("EN k{number}\r\n").as_bytes());
    }
}
