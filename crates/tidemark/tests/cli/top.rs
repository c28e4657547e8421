//! The heaviest parts of a load, from clients' commands to the command line.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::*;

/// Visits of a connection, each of two commands: enough that about twenty are sampled.
const VISITS: usize = 20_000;

fn connect(server: &Server) -> TcpStream {
    let address = server
        .ready
        .split(' ')
        .find_map(|word| word.strip_prefix("redis="))
        .unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// Sends a request so often, each time when the reply to the one before has come.
fn visit(socket: &mut TcpStream, request: &[u8], reply_bytes: usize, times: usize) {
    let mut reply = vec![0; reply_bytes];
    for _ in 0..times {
        socket.write_all(request).unwrap();
        socket.read_exact(&mut reply).unwrap();
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Waits until so many visits that were sampled are known.
fn top_with(server: &Server, visits: u64) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let top = server.json(&["tenant", "top", "default"]);
        if top["sampled_visits"].as_u64().unwrap() >= visits {
            return top;
        }
        assert!(Instant::now() < deadline, "{top}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn find<'a>(top: &'a Value, list: &str, field: &str, text: &str) -> &'a Value {
    let of = |one: &&Value| one[field] == text;
    let found = top[list].as_array().unwrap().iter().find(of);
    found.unwrap_or_else(|| panic!("{text} is not in {list}: {top}"))
}

#[test]
fn the_keys_and_commands_that_cost_most_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let prices = folder.path().join("prices.toml");
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../prices.example.toml"),
        &prices,
    )
    .unwrap();
    let server = Server::start(&["--prices", prices.to_str().unwrap(), "--workers", "1"]);
    let mut socket = connect(&server);
    // A key that no terminal should be given as it is, and a longer one than is looked at.
    let hostile = b"<b>\x1b[2J:\xff";
    let long = [b"page:", &[b'x'; 200][..]].concat();
    let request = [command(&[b"GET", hostile]), command(&[b"SET", &long, &[b'v'; 3000]])].concat();
    visit(&mut socket, &request, "$-1\r\n+OK\r\n".len(), VISITS);

    let top = top_with(&server, 5);
    let key = "<b>\\u{1b}[2J:\\xff";
    let cut = format!("page:{}", "x".repeat(123));
    for (list, field, text, share) in [
        ("keys_by_operations", "key", key, 0.5),
        ("keys_by_operations", "key", cut.as_str(), 0.5),
        ("keys_by_bytes", "key", cut.as_str(), 0.98),
        ("prefixes", "key", "page:", 0.78),
        ("commands", "command", "set", 0.78),
    ] {
        let one = find(&top, list, field, text);
        let found = one["share"].as_f64().unwrap();
        assert!((found - share).abs() < 0.05, "{list} {text}: {one}");
    }
    assert_eq!(find(&top, "keys_by_bytes", "key", &cut)["is_cut"], true);
    let set = find(&top, "commands", "command", "set");
    let operations = set["operations"].as_f64().unwrap();
    // The commands that are stated add up to what was used, of which a part may have come before the first sample.
    let all = top["used"]["operations"].as_f64().unwrap();
    assert!(
        (operations - all / 2.0).abs() < 1.0 && all <= 2.0 * VISITS as f64,
        "{top}"
    );
    assert_eq!(top["currency"], "USD");
    assert!(set["cost"].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{set}");

    let tables = server.run(&["tenant", "top", "default", "--by", "prefix"]);
    assert_eq!(tables.status.code(), Some(0));
    let (table, message) = (stdout(&tables), stderr(&tables));
    assert!(
        table.starts_with("PREFIX") && table.contains("<b>\\u{1b}[2J:"),
        "{table}"
    );
    assert!(
        message.contains("sampled visits") && message.contains("cost in USD"),
        "{message}"
    );
    assert!(!table.contains('\x1b'), "{table:?}");
}

#[test]
fn keys_of_several_and_of_both_protocols_are_followed() {
    let server = Server::start(&["--key-delimiter", "/", "--workers", "1"]);
    let mut socket = connect(&server);
    visit(
        &mut socket,
        &command(&[b"MGET", b"many/1", b"many/2"]),
        "*2\r\n$-1\r\n$-1\r\n".len(),
        VISITS / 2,
    );
    let address = server
        .ready
        .split(' ')
        .find_map(|word| word.strip_prefix("memcached="))
        .unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut request = String::new();
    write!(request, "get one/1 one/2\r\nmg bWV0YS8x b v\r\n").unwrap();
    visit(&mut socket, request.as_bytes(), "END\r\nEN\r\n".len(), VISITS / 2);

    let top = top_with(&server, 8);
    for prefix in ["many/", "one/", "meta/"] {
        find(&top, "prefixes", "key", prefix);
    }
    for (command, protocol) in [("mget", "redis"), ("get", "memcached"), ("mg", "memcached")] {
        assert_eq!(find(&top, "commands", "command", command)["protocol"], protocol);
    }
    let share = |key: &str| find(&top, "keys_by_operations", "key", key)["share"].as_f64().unwrap();
    assert!((share("many/1") - share("many/2")).abs() < 1e-6, "{top}");
    // Unknown tenants are no tenants.
    let output = server.run(&["tenant", "top", "nobody"]);
    assert_eq!(output.status.code(), Some(NOT_FOUND));
}
