//! The memory that connections' buffers take together.

use tidemark_server::Limits;
use tidemark_types::MIB;

use crate::harness::{Client, Harness, Setup, set};

#[test]
fn pipelines_that_hold_all_buffers_are_executed() {
    const CONNECTIONS: usize = 150;
    const COMMANDS: usize = 8_000;
    let limits = Limits {
        buffer_bytes: MIB,
        ..Limits::default()
    };
    let harness = Harness::start(Setup {
        workers: 1,
        pool_bytes: 8 * MIB,
        limits,
        ..Setup::default()
    });
    let value = [b'v'; 500];
    harness.connect().ask(&set("k", &value), b"STORED\r\n");
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| harness.connect()).collect();
    // Nobody reads yet, so that the most of each pipeline stays in a buffer, and all together more than they may.
    for client in &mut clients {
        client.send(&b"mg k v\r\n".repeat(COMMANDS));
    }
    let replies = [&b"VA 500\r\n"[..], &value, b"\r\n"].concat().repeat(COMMANDS);
    for client in &mut clients {
        client.expect(&replies);
    }
    harness.connect().ask(b"mn\r\n", b"MN\r\n");
}
