//! Listeners that belong to a tenant: no login, and nobody else's keys.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::*;

/// The addresses behind `key` in the ready line, each with its tenant if it has one.
fn addresses(server: &Server, key: &str) -> Vec<(SocketAddr, Option<String>)> {
    let list = server.ready.split(' ').find_map(|word| word.strip_prefix(key)).unwrap();
    let parse = |part: &str| match part.split_once('=') {
        Some((address, tenant)) => (address.parse().unwrap(), Some(tenant.to_owned())),
        None => (part.parse().unwrap(), None),
    };
    list.split(',').map(parse).collect()
}

fn ask(address: SocketAddr, request: &str, reply: &str) {
    let mut socket = TcpStream::connect(address).unwrap();
    exchange(&mut socket, request, reply);
}

fn exchange(socket: &mut TcpStream, request: &str, reply: &str) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut found = vec![0; reply.len()];
    socket.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), reply, "{request:?}");
}

#[test]
fn a_tenant_s_listener_needs_no_login_and_is_nobody_else_s() {
    let lists = [
        "--memcached",
        "127.0.0.1:0",
        "--memcached",
        "127.0.0.1:0=shop",
        "--redis",
        "127.0.0.1:0=shop",
    ];
    let server = Server::start(&lists);
    let memcached = addresses(&server, "memcached=");
    let [(general, None), (shop, Some(name))] = memcached.as_slice() else {
        panic!("{}", server.ready)
    };
    assert_eq!(name, "shop");
    let redis = addresses(&server, "redis=");
    let [(shop_redis, Some(_))] = redis.as_slice() else {
        panic!("{}", server.ready)
    };
    let shown = server.json(&["server", "show"]);
    assert_eq!(shown["tenant_listeners"][0]["address"], shop.to_string(), "{shown}");
    assert_eq!(shown["tenant_listeners"][1]["tenant"], "shop", "{shown}");

    // There is no such tenant yet: every client must log in.
    ask(*shop, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    ask(*shop_redis, "GET a\r\n", "-NOAUTH ");
    let made = server.json(&["tenant", "create", "shop"]);
    let secret = made["secret"].as_str().unwrap();

    ask(*shop, "set a 0 0 4\r\nshop\r\n", "STORED\r\n");
    ask(*general, "get a\r\n", "END\r\n");
    let mut client = TcpStream::connect(shop_redis).unwrap();
    exchange(&mut client, "GET a\r\n", "$4\r\nshop\r\n");
    exchange(&mut client, "ACL WHOAMI\r\n", "$4\r\nshop\r\n");
    // Clients that are configured with the secret log in as ever, and RESET leads back.
    exchange(
        &mut client,
        &format!("AUTH shop {secret}\r\nRESET\r\nGET a\r\n"),
        "+OK\r\n+RESET\r\n$4\r\nshop\r\n",
    );

    assert!(server.run(&["tenant", "remove", "shop", "--yes"]).status.success());
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    ask(*shop, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
}
