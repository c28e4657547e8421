//! CLIENT: the descriptions of connections, and how they end each other.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};

use tidemark_types::Permissions;

use crate::harness::{Client, Harness, open_tenant, tenant, wait_until};

/// The fields of a line of CLIENT LIST.
fn fields(line: &str) -> HashMap<&str, &str> {
    line.trim_end_matches('\n')
        .split(' ')
        .map(|field| field.split_once('=').unwrap())
        .collect()
}

/// A field of the line that CLIENT LIST has for a connection.
fn field_of(asker: &mut Client, id: i64, name: &str) -> String {
    let line = asker.text(&format!("CLIENT LIST ID {id}"));
    fields(&line)[name].to_owned()
}

#[test]
fn a_client_that_tracks_is_told_behind_each_read_not_to_keep_it() {
    let harness = Harness::start();
    let mut client = harness.connect();
    let refused = client.ask("CLIENT TRACKING ON");
    assert!(refused.starts_with("-ERR CLIENT TRACKING needs RESP3"), "{refused}");
    client.ask("HELLO 3");
    for option in ["REDIRECT 5", "BCAST", "PREFIX a", "OPTIN", "OPTOUT"] {
        let refused = client.ask(&format!("CLIENT TRACKING ON {option}"));
        assert!(refused.contains("is not offered by Tidemark"), "{refused}");
    }
    assert_eq!(client.ask("CLIENT TRACKING maybe"), "-ERR syntax error\r\n");
    assert_eq!(client.ask("CLIENT TRACKING ON NOLOOP"), "+OK\r\n");
    assert!(client.text("CLIENT INFO").contains(" flags=t "));
    assert!(client.text("INFO clients").contains("tracking_clients:1\r\n"));
    assert_eq!(client.ask("SET a 1"), "+OK\r\n");
    let told = |keys: &[&str]| {
        let keys: String = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
        format!(">2\r\n$10\r\ninvalidate\r\n{keys}")
    };
    for (command, answer, push) in [
        (
            "GET a",
            "$1\r\n1\r\n",
            Some(told(&["a"]).replace("invalidate\r\n", "invalidate\r\n*1\r\n")),
        ),
        (
            "MGET a b",
            "*2\r\n$1\r\n1\r\n_\r\n",
            Some(told(&["a", "b"]).replace("invalidate\r\n", "invalidate\r\n*2\r\n")),
        ),
        ("INCR a", ":2\r\n", None),
        ("PING", "+PONG\r\n", None),
        ("MULTI", "+OK\r\n", None),
        ("GET a", "+QUEUED\r\n", None),
        ("EXEC", "*1\r\n$1\r\n2\r\n", Some(told(&[]) + "_\r\n")),
        ("CLIENT TRACKING OFF", "+OK\r\n", None),
        ("GET a", "$1\r\n2\r\n", None),
    ] {
        assert_eq!(client.ask(command), answer, "{command}");
        if let Some(push) = push {
            assert_eq!(String::from_utf8(client.reply()).unwrap(), push, "{command}");
        }
    }
}

#[test]
fn a_connection_describes_itself() {
    let harness = Harness::start();
    for (commands, field, value) in [
        (&[][..], "name", ""),
        (&["CLIENT SETNAME me"], "name", "me"),
        (&["CLIENT SETNAME me", "RESET"], "name", ""),
        (&["HELLO 2 SETNAME you"], "name", "you"),
        (&[], "db", "0"),
        (&["SELECT 7"], "db", "7"),
        (&["SELECT 7", "RESET"], "db", "0"),
        (&[], "resp", "2"),
        (&["HELLO 3"], "resp", "3"),
        (&["HELLO 3", "RESET"], "resp", "2"),
        (&[], "flags", "N"),
        (&["CLIENT NO-EVICT ON"], "flags", "e"),
        (&["CLIENT NO-TOUCH ON"], "flags", "T"),
        (&["CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON"], "flags", "eT"),
        (&["CLIENT NO-EVICT ON", "CLIENT NO-EVICT OFF"], "flags", "N"),
        (&["CLIENT NO-TOUCH ON", "RESET"], "flags", "N"),
        (&[], "multi", "-1"),
        (&[], "watch", "0"),
        (&["WATCH a b a"], "watch", "2"),
        (&["WATCH a", "UNWATCH"], "watch", "0"),
        (&["WATCH a", "MULTI", "EXEC"], "watch", "0"),
        (&["CLIENT SETINFO LIB-NAME ours", "RESET"], "lib-name", "ours"),
        (&["CLIENT SETINFO LIB-VER 1.2"], "lib-ver", "1.2"),
        (&["GET a"], "cmd", "client|info"),
        (&[], "user", "default"),
    ] {
        let mut client = harness.connect();
        commands.iter().for_each(|command| {
            client.ask(command);
        });
        let line = client.text("CLIENT INFO");
        assert_eq!(fields(&line).get(field), Some(&value), "{commands:?}: {line}");
    }
}

#[test]
fn others_see_what_a_connection_is_in_the_middle_of() {
    let harness = Harness::start();
    let (mut client, mut asker) = (harness.connect(), harness.connect());
    let (id, own_id) = (client.number("CLIENT ID"), asker.number("CLIENT ID"));
    assert_ne!(id, own_id);
    for (command, field, value) in [
        ("CLIENT ID", "cmd", "client|id"),
        ("GET a", "cmd", "get"),
        ("WATCH a", "watch", "1"),
        ("MULTI", "multi", "0"),
        ("PING", "multi", "1"),
        ("PING", "multi", "2"),
        ("FOO", "flags", "x"),
        ("DISCARD", "multi", "-1"),
        ("FOO", "cmd", "discard"),
    ] {
        client.ask(command);
        assert_eq!(field_of(&mut asker, id, field), value, "{command}");
    }
    let (local, peer) = (client.stream.local_addr().unwrap(), client.stream.peer_addr().unwrap());
    assert_eq!(field_of(&mut asker, id, "addr"), local.to_string());
    assert_eq!(field_of(&mut asker, id, "laddr"), peer.to_string());
    // All, in order; and gone with the connection.
    let ids = |asker: &mut Client| {
        let text = asker.text("CLIENT LIST TYPE normal");
        text.lines()
            .map(|line| fields(line)["id"].parse().unwrap())
            .collect::<Vec<i64>>()
    };
    assert_eq!(ids(&mut asker), [id.min(own_id), id.max(own_id)]);
    drop(client);
    wait_until("the connection is gone", || ids(&mut asker) == [own_id]);
}

/// Whether a connection still answers.
fn lives(client: &mut Client) -> bool {
    match client.stream.write_all(b"PING\r\n") {
        Ok(()) => client.next_reply().is_some(),
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn connections_are_killed_by_what_is_known_of_them() {
    let harness = Harness::start();
    // Cases with the asking connection and two others: the command, its reply, and the survivors. `{x:me}` is the field
    // x of this one.
    for (command, reply, survivors) in [
        ("KILL {addr:a}", "+OK", "me b"),
        ("KILL {addr:me}", "+OK", "a b"),
        ("KILL ID {id:a}", ":1", "me b"),
        ("KILL id {id:me}", ":0", "me a b"),
        ("KILL ID {id:me} SKIPME no", ":1", "a b"),
        ("KILL ADDR {addr:b}", ":1", "me a"),
        ("KILL ADDR {addr:b} ID {id:a}", ":0", "me a b"),
        ("KILL ADDR {addr:b} ID {id:b}", ":1", "me a"),
        ("KILL LADDR {laddr:me}", ":2", "me"),
        ("KILL LADDR {laddr:me} SKIPME NO", ":3", ""),
        ("KILL USER default", ":2", "me"),
        ("KILL TYPE normal", ":2", "me"),
        ("KILL TYPE Normal SKIPME yes", ":2", "me"),
        ("KILL TYPE pubsub", ":0", "me a b"),
        ("KILL TYPE replica", ":0", "me a b"),
        ("KILL TYPE master", ":0", "me a b"),
        ("KILL SKIPME yes", ":2", "me"),
        ("KILL MAXAGE 3600", ":0", "me a b"),
    ] {
        let mut clients = ["me", "a", "b"].map(|name| (name, harness.connect()));
        let mut command = format!("CLIENT {command}");
        for (name, client) in &mut clients {
            let line = client.text("CLIENT INFO");
            let known = fields(&line);
            for field in ["id", "addr", "laddr"] {
                command = command.replace(&format!("{{{field}:{name}}}"), known[field]);
            }
        }
        // Those of the row before may only just have ended.
        wait_until("nobody else is connected", || {
            clients[0].1.text("CLIENT LIST").lines().count() == clients.len()
        });
        assert_eq!(clients[0].1.ask(&command), format!("{reply}\r\n"), "{command}");
        let expected = |name: &str| survivors.split(' ').any(|survivor| survivor == name);
        for (name, client) in &mut clients {
            // The worker of a killed connection may still be busy.
            wait_until(&format!("{command}: {name}"), || lives(client) == expected(name));
        }
    }
}

#[test]
fn connections_of_an_age_are_killed() {
    let harness = Harness::start();
    let (mut old, mut asker) = (harness.connect(), harness.connect());
    let id = old.number("CLIENT ID");
    wait_until("a second is over", || field_of(&mut asker, id, "age") != "0");
    let mut young = harness.connect();
    let young_id = young.number("CLIENT ID");
    assert_eq!(asker.number(&format!("CLIENT KILL MAXAGE 3600 ID {id}")), 0);
    assert_eq!(asker.number(&format!("CLIENT KILL MAXAGE 1 ID {id}")), 1);
    assert_eq!(asker.number(&format!("CLIENT KILL MAXAGE 1000 ID {young_id}")), 0);
    assert_eq!(old.rest(), b"");
    assert!(lives(&mut young));
}

#[test]
fn nobody_sees_or_kills_another_tenant_s_connections() {
    let shop = tenant(2, "shop", &[("of-shop", Permissions::ALL)]);
    let harness = Harness::with(2, vec![open_tenant(), shop]);
    let (mut ours, mut theirs) = (harness.connect(), harness.connect());
    assert_eq!(theirs.ask("AUTH shop of-shop"), "+OK\r\n");
    let (our_id, their_id) = (ours.number("CLIENT ID"), theirs.number("CLIENT ID"));
    assert_eq!(ours.text("CLIENT LIST").lines().count(), 1);
    assert_eq!(field_of(&mut theirs, their_id, "user"), "shop");
    assert_eq!(ours.text(&format!("CLIENT LIST ID {their_id}")), "");
    assert_eq!(ours.text("CLIENT LIST ID -1"), "");
    assert_eq!(ours.text(&format!("CLIENT LIST ID -1 {our_id}")).lines().count(), 1);
    assert_eq!(ours.ask("CLIENT LIST ID x"), "-ERR Invalid client ID\r\n");
    for (command, reply) in [
        (format!("CLIENT KILL ID {their_id}"), ":0\r\n"),
        ("CLIENT KILL USER shop".to_owned(), "-ERR No such user 'shop'\r\n"),
        ("CLIENT KILL TYPE normal".to_owned(), ":0\r\n"),
        (
            format!("CLIENT KILL {}", theirs.stream.local_addr().unwrap()),
            "-ERR No such client\r\n",
        ),
    ] {
        assert_eq!(ours.ask(&command), reply, "{command}");
    }
    assert!(lives(&mut theirs));
    assert_eq!(theirs.number(&format!("CLIENT KILL ID {our_id}")), 0);
    assert!(lives(&mut ours));
}
