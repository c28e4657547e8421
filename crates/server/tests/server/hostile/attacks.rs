//! What hostile clients do.

use std::net::SocketAddr;

use super::{array, deaf, redis, send_some};
use crate::harness::Client;
use crate::remote::Remote;

/// A few bytes that ask for 62 MiB, on 64 connections.
pub(super) fn mgets(_: &Remote, address: SocketAddr) -> Vec<Client> {
    let request = array(&[&b"MGET"[..]].into_iter().chain([&b"big"[..]; 62]).collect::<Vec<_>>());
    let shorter = array(&[&b"MGET"[..]].into_iter().chain([&b"big"[..]; 30]).collect::<Vec<_>>());
    let ask = |number: usize| {
        let mut client = deaf(redis(address, ["a", "b"][number % 2]));
        send_some(&mut client, if number % 4 < 2 { &request } else { &shorter });
        client
    };
    (0..64).map(ask).collect()
}

/// A thousand values of a MiB in one transaction, and thirty.
pub(super) fn transactions(_: &Remote, address: SocketAddr) -> Vec<Client> {
    let get = array(&[b"GET", b"big"]);
    let ask = |number: usize| {
        let mut client = deaf(redis(address, ["a", "b"][number % 2]));
        let gets = get.repeat(if number % 4 < 2 { 1_000 } else { 30 });
        send_some(&mut client, &[array(&[b"MULTI"]), gets, array(&[b"EXEC"])].concat());
        client
    };
    (0..32).map(ask).collect()
}

/// Long commands of which the end never comes, of two tenants and the open one.
pub(super) fn halves(server: &Remote, address: SocketAddr) -> Vec<Client> {
    let ask = |number: usize| {
        let (mut client, bytes) = match number % 4 {
            0 => (server.log_in("a"), 1_000_000),
            1 => (server.log_in("b"), 1_000_000),
            2 => (redis(address, "a"), 1_000_000),
            _ => (server.connect(), 1_048_576),
        };
        let head = match number % 4 {
            2 => format!("*3\r\n$3\r\nSET\r\n$1\r\ns\r\n${bytes}\r\n"),
            _ => format!("set s 0 0 {bytes}\r\n"),
        };
        send_some(&mut client, &[head.as_bytes(), &vec![b'h'; bytes * 4 / 5]].concat());
        client
    };
    (0..200).map(ask).collect()
}

/// Many slow readers of copied values and of values sent from their place, by both protocols.
pub(super) fn slow_readers(server: &Remote, address: SocketAddr) -> Vec<Client> {
    let ask = |number: usize| {
        let mut client = deaf(match number % 3 {
            0 => server.log_in("a"),
            1 => server.log_in("b"),
            _ => redis(address, "a"),
        });
        let request = match number % 3 {
            0 => b"get small small small big\r\n".repeat(400),
            1 => b"mg small v\r\n".repeat(2_000),
            _ => array(&[b"GET", b"small"]).repeat(2_000),
        };
        send_some(&mut client, &request);
        client
    };
    (0..400).map(ask).collect()
}

/// Patterns and lists that take long.
pub(super) fn long_work(_: &Remote, address: SocketAddr) -> Vec<Client> {
    let class = [b"*[", &b"bc".repeat(500)[..], b"]"].concat();
    let backtracking = [b"*", &b"a".repeat(500)[..], b"b*"].concat();
    let keys: Vec<Vec<u8>> = (0..50_000).map(|number| format!("k{number}").into_bytes()).collect();
    let list = |verb: &'static [u8]| {
        array(
            &[verb]
                .into_iter()
                .chain(keys.iter().map(Vec::as_slice))
                .collect::<Vec<_>>(),
        )
    };
    let mut clients = Vec::new();
    for name in ["a", "b"] {
        for request in [
            array(&[b"SCAN", b"0", b"MATCH", &class, b"COUNT", b"10000"]),
            array(&[b"KEYS", &backtracking]),
            list(b"DEL"),
            list(b"EXISTS"),
            list(b"MGET"),
        ] {
            let mut client = deaf(redis(address, name));
            send_some(
                &mut client,
                &request.repeat(if request.len() > 10_000 { 2 } else { 200 }),
            );
            clients.push(client);
        }
    }
    clients
}
