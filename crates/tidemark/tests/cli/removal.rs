//! A removed tenant is gone at once, on a real server: nobody serves it, and its memory is back, a few rounds later.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

/// While somebody waits for a removed tenant's memory, rounds are 20 ms apart. So many come in 100 ms, and one more
/// that is due by itself.
const ROUNDS_MAX: u64 = 6;
const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 100 << 10;

fn connect(server: &Server) -> TcpStream {
    let mut words = server.ready.split(' ');
    let socket = TcpStream::connect(words.find_map(|word| word.strip_prefix("redis=")).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn ask(socket: &mut TcpStream, request: &str, reply: &str) {
    socket.write_all(request.as_bytes()).unwrap();
    let mut received = vec![0; reply.len()];
    socket.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), reply);
}

#[test]
fn a_removed_tenant_is_gone_after_a_few_rounds_with_its_memory_and_its_connections() {
    let server = Server::start(&["--memory", "256MiB"]);
    let figure = |name: &str| server.json(&["server", "show"])[name].as_u64().unwrap();
    let mut times = Vec::new();
    for _ in 0..3 {
        let created = server.json(&["tenant", "create", "shop"]);
        let secret = created["secret"].as_str().unwrap();
        let login = format!("AUTH shop {secret}\r\n");
        let mut clients: Vec<TcpStream> = (0..40).map(|_| connect(&server)).collect();
        for client in &mut clients {
            ask(client, &login, "+OK\r\n");
        }
        // Long values and short ones. A grant follows what is stored in steps, one a round: until it has, values are evicted
        // as they come, so they are stored until so much of them stays.
        let value = "v".repeat(VALUE_BYTES);
        let begin = Instant::now();
        while figure("usage_bytes") <= 90 * MIB {
            assert!(begin.elapsed() < PATIENCE, "{} bytes stay", figure("usage_bytes"));
            for key in 0..1000 {
                let set = format!("*3\r\n$3\r\nSET\r\n$4\r\n{key:04}\r\n${VALUE_BYTES}\r\n{value}\r\n");
                ask(&mut clients[0], &set, "+OK\r\n");
            }
        }
        let set = "*3\r\n$3\r\nSET\r\n$5\r\nshort\r\n$1\r\nv\r\n".repeat(1000);
        ask(&mut clients[1], &set, &"+OK\r\n".repeat(1000));

        let before = figure("rounds_total");
        let begin = Instant::now();
        let removed = server.run(&["tenant", "remove", "shop", "--yes"]);
        times.push(begin.elapsed());
        assert!(removed.status.success(), "{}", stderr(&removed));
        assert_eq!(figure("usage_bytes"), 0);
        let rounds = figure("rounds_total") - before;
        assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
        for client in &mut clients {
            let mut rest = Vec::new();
            assert_eq!(client.read_to_end(&mut rest).unwrap_or(0), 0, "{rest:?}");
        }
        let mut late = connect(&server);
        ask(&mut late, &login, "-WRONGPASS");
    }
    println!("100 MiB and 40 connections were gone after {times:?}, with the command's own start");
}
