//! Access: AUTH, HELLO AUTH, permissions, and a connection that changes its tenant.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use tidemark_types::{Permissions, TenantPlan};

use crate::harness::{Client, Harness, array, open_tenant, tenant, wait_until};

const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

/// A tenant with a secret for each of some sets of permissions.
fn shop() -> TenantPlan {
    let secrets = [
        ("all", Permissions::ALL),
        ("read", Permissions::READ),
        ("write", Permissions::WRITE),
        ("both", Permissions::READ.with(Permissions::WRITE)),
        ("flush", Permissions::FLUSH),
        ("admin", Permissions::ADMIN),
        ("none", Permissions::NONE),
    ];
    tenant(2, "shop", &secrets)
}

/// A server without an open tenant.
fn closed() -> Harness {
    Harness::with(2, vec![shop(), tenant(3, "bank", &[("gold", Permissions::ALL)])])
}

#[test]
fn nothing_is_answered_before_login() {
    let harness = closed();
    let hello = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
                 option can be used to authenticate the client and select the RESP protocol version at the same time\r\n";
    for (command, reply) in [
        ("GET a", NO_AUTH),
        ("SET a 1", NO_AUTH),
        ("PING", NO_AUTH),
        ("MULTI", NO_AUTH),
        ("SELECT 1", NO_AUTH),
        ("INFO", NO_AUTH),
        ("COMMAND", NO_AUTH),
        ("CLIENT ID", NO_AUTH),
        ("CLIENT SETINFO LIB-NAME x", NO_AUTH),
        ("CONFIG GET save", NO_AUTH),
        ("ACL WHOAMI", NO_AUTH),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n"),
        ("HELLO", hello),
        ("HELLO 3", hello),
        ("HELLO 3 SETNAME x", hello),
        ("HELLO 9", "-NOPROTO unsupported protocol version\r\n"),
        ("AUTH x", WRONG_PASS),
        ("AUTH shop x", WRONG_PASS),
        ("AUTH nobody all", WRONG_PASS),
        ("HELLO 3 AUTH shop x", WRONG_PASS),
        ("HELLO 3 AUTH bank all", WRONG_PASS),
        ("RESET", "+RESET\r\n"),
        ("AUTH shop all", "+OK\r\n"),
        ("QUIT", "+OK\r\n"),
    ] {
        let mut client = harness.connect();
        assert_eq!(client.ask(command), reply, "{command}");
        if !command.contains("all") && command != "QUIT" {
            assert_eq!(client.ask("GET a"), NO_AUTH, "{command}");
        }
    }
}

#[test]
fn little_is_received_before_login() {
    let harness = closed();
    let multibulk = "-ERR Protocol error: unauthenticated multibulk length\r\n";
    let bulk = "-ERR Protocol error: unauthenticated bulk length\r\n";
    for (sent, reply) in [
        ("*11\r\n".to_owned(), multibulk),
        ("*3\r\n$4\r\nAUTH\r\n$4097\r\n".to_owned(), bulk),
        (
            format!("*3\r\n$4\r\nAUTH\r\n$4000\r\n{}\r\n$100\r\n", "x".repeat(4000)),
            bulk,
        ),
        ("x".repeat(5000), ""),
    ] {
        let mut client = harness.connect();
        client.send(sent.as_bytes());
        assert_eq!(
            String::from_utf8(client.rest()).unwrap(),
            reply,
            "{}",
            &sent[..sent.len().min(30)]
        );
    }
}

#[test]
fn a_secret_allows_what_it_permits() {
    let harness = closed();
    // Each command, and the secrets beside `all` that permit it.
    for (command, permitted) in [
        ("GET a", "read both"),
        ("MGET a b", "read both"),
        ("STRLEN a", "read both"),
        ("EXISTS a", "read both"),
        ("TTL a", "read both"),
        ("SCAN 0", "read both"),
        ("KEYS *", "read both"),
        ("DBSIZE", "read both"),
        ("SET a 1", "write both"),
        ("MSET a 1 b 2", "write both"),
        ("DEL a", "write both"),
        ("EXPIRE a 100", "write both"),
        ("INCR n", "write both"),
        ("APPEND b x", "write both"),
        ("RENAME b c", "write both"),
        ("GETSET a 1", "both"),
        ("GETDEL a", "both"),
        ("GETEX a", "both"),
        ("FLUSHDB", "flush"),
        ("FLUSHALL", "flush"),
        ("CLIENT LIST", "admin"),
        ("CLIENT KILL TYPE pubsub", "admin"),
        ("PING", "read write both flush admin none"),
        ("MULTI", "read write both flush admin none"),
        ("WATCH a", "read write both flush admin none"),
        ("INFO", "read write both flush admin none"),
        ("CONFIG GET save", "read write both flush admin none"),
        ("CLIENT INFO", "read write both flush admin none"),
        ("COMMAND COUNT", "read write both flush admin none"),
    ] {
        let permitted: HashSet<&str> = permitted.split(' ').collect();
        for secret in ["all", "read", "write", "both", "flush", "admin", "none"] {
            let mut client = harness.connect();
            assert_eq!(client.ask(&format!("AUTH shop {secret}")), "+OK\r\n");
            client.ask("MSET a 1 b 1");
            let reply = client.ask(command);
            let words: Vec<&str> = command.split(' ').collect();
            let name = if words[0] == "CLIENT" {
                words[..2].join("|")
            } else {
                words[0].to_owned()
            };
            let refused = format!(
                "-NOPERM this user has no permissions to run the '{}' command\r\n",
                name.to_ascii_lowercase()
            );
            let is_permitted = secret == "all" || permitted.contains(secret);
            assert_eq!(reply != refused, is_permitted, "{command} with {secret}: {reply}");
        }
    }
}

#[test]
fn what_is_not_permitted_is_not_queued() {
    let harness = closed();
    let mut client = harness.connect();
    client.ask("AUTH shop read");
    client.ask("MULTI");
    assert_eq!(
        client.ask("SET a 1"),
        "-NOPERM this user has no permissions to run the 'set' command\r\n"
    );
    assert_eq!(
        client.ask("EXEC"),
        "-EXECABORT Transaction discarded because of previous errors.\r\n"
    );
    assert!(client.text("INFO stats").contains("acl_access_denied_cmd:1\r\n"));
}

#[test]
fn a_login_moves_the_connection() {
    let harness = Harness::with(
        2,
        vec![open_tenant(), shop(), tenant(3, "bank", &[("gold", Permissions::ALL)])],
    );
    let mut client = harness.connect();
    for (command, reply) in [
        ("SET a open", "+OK\r\n"),
        ("SELECT 2", "+OK\r\n"),
        ("SET a open-2", "+OK\r\n"),
        ("WATCH a", "+OK\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("AUTH shop read", "+OK\r\n"),
        ("ACL WHOAMI", "$4\r\nshop\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        // The database stays, the keys are others.
        ("GET a", "$-1\r\n"),
        ("AUTH shop all", "+OK\r\n"),
        ("SET a shop-2", "+OK\r\n"),
        // A login that fails changes nothing.
        ("AUTH bank silver", WRONG_PASS),
        ("HELLO 3 AUTH bank silver", WRONG_PASS),
        (
            "HELLO 3 AUTH bank gold SETNAME",
            "-ERR Syntax error in HELLO option 'SETNAME'\r\n",
        ),
        ("GET a", "$6\r\nshop-2\r\n"),
        ("GET b", "$-1\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("GET a", "$-1\r\n"),
        // Within a transaction nobody logs in.
        ("MULTI", "+OK\r\n"),
        ("AUTH bank gold", "-ERR Command not allowed inside a transaction\r\n"),
        ("DISCARD", "+OK\r\n"),
        ("ACL WHOAMI", "$4\r\nshop\r\n"),
        ("RESET", "+RESET\r\n"),
        ("ACL WHOAMI", "$7\r\ndefault\r\n"),
        ("GET a", "$4\r\nopen\r\n"),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    let hello = client.ask("HELLO 3 AUTH bank gold SETNAME you");
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello}");
    assert_eq!(client.ask("ACL WHOAMI"), "$4\r\nbank\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$3\r\nyou\r\n");
    assert_eq!(client.ask("GET a"), "_\r\n");
}

#[test]
fn what_was_watched_is_the_old_tenant_s() {
    let harness = Harness::with(2, vec![open_tenant(), shop()]);
    let (mut client, mut other) = (harness.connect(), harness.connect());
    client.ask("SET a 1");
    client.ask("WATCH a");
    client.ask("AUTH shop all");
    other.ask("SET a 2");
    client.ask("MULTI");
    client.ask("SET a 1");
    assert_eq!(client.ask("EXEC"), "*1\r\n+OK\r\n");
    // The same tenant with another secret: watched keys stay.
    client.ask("WATCH a");
    client.ask("SET a 2");
    client.ask("AUTH shop both");
    client.ask("MULTI");
    assert_eq!(client.ask("EXEC"), "*-1\r\n");
}

#[test]
fn a_right_secret_is_never_refused() {
    const FAILURES: usize = 240;
    let here = Ipv4Addr::new(127, 0, 0, 1);
    let harness = closed();
    for number in 0..FAILURES / 3 {
        let name = if number % 2 == 0 {
            "shop".to_owned()
        } else {
            format!("nobody-{number}")
        };
        // Each connection may fail three times.
        let mut guesser = harness.connect_from(here);
        for _ in 0..2 {
            assert_eq!(guesser.ask(&format!("AUTH {name} x")), WRONG_PASS);
            assert_eq!(guesser.ask("GET a"), NO_AUTH);
        }
        guesser.send(format!("AUTH {name} x\r\nAUTH shop all\r\n").as_bytes());
        assert_eq!(String::from_utf8(guesser.rest()).unwrap(), WRONG_PASS);
    }
    for login in ["shop all", "bank gold"] {
        let mut client = harness.connect_from(here);
        assert_eq!(client.ask(&format!("AUTH {login}")), "+OK\r\n");
    }
    // One that mistyped may go on.
    let mut client = harness.connect_from(here);
    assert_eq!(client.ask("HELLO 3 AUTH shop x"), WRONG_PASS);
    assert_eq!(client.ask("AUTH shop all"), "+OK\r\n");
    let info = client.text("INFO stats");
    let counted = format!("tidemark_failed_logins:{}", FAILURES / 2 + 1);
    assert!(info.contains(&counted), "{info}");
    assert_eq!(harness.pool().failed_logins, FAILURES as u64 + 1);
}

#[test]
fn a_failure_in_a_pipeline_is_answered_in_its_order_and_once() {
    let harness = Harness::with(1, vec![open_tenant(), shop()]);
    let mut client = harness.connect();
    client.send(
        b"SET a 1\r\nCLIENT REPLY SKIP\r\nAUTH shop x\r\nGET a\r\nAUTH shop x\r\nINCR a\r\nAUTH shop all\r\nGET a\r\n",
    );
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let expected = format!("+OK\r\n$1\r\n1\r\n{WRONG_PASS}:2\r\n+OK\r\n$-1\r\n");
    assert_eq!(String::from_utf8(client.rest()).unwrap(), expected);
}

#[test]
fn a_connection_ends_with_its_secret() {
    let harness = Harness::with(2, vec![open_tenant(), shop()]);
    let mut clients = ["all", "read", "write"].map(|secret| {
        let mut client = harness.connect();
        assert_eq!(client.ask(&format!("AUTH shop {secret}")), "+OK\r\n");
        client
    });
    // One that moved on to another secret is that one's.
    assert_eq!(clients[2].ask("AUTH shop all"), "+OK\r\n");
    let mut plan = shop();
    plan.version += 1;
    plan.secrets
        .retain(|secret| secret.permissions != Permissions::READ && secret.permissions != Permissions::WRITE);
    harness.apply(vec![plan]);
    assert_eq!(clients[1].rest(), b"");
    assert_eq!(clients[0].ask("SET a 1"), "+OK\r\n");
    assert_eq!(clients[2].ask("GET a"), "$1\r\n1\r\n");
    // Back in the open tenant it needs none.
    assert_eq!(clients[2].ask("RESET"), "+RESET\r\n");
    assert_eq!(clients[2].ask("GET a"), "$-1\r\n");
}

/// The bytes of buffers that a tenant is charged for.
fn charged(client: &mut Client) -> i64 {
    let text = client.text("INFO memory");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("mem_clients_normal:"))
        .unwrap();
    line.parse().unwrap()
}

#[test]
fn the_charge_for_buffers_goes_where_the_connection_goes() {
    // A login that comes in two pieces is held, for the tenant that the connection is in then.
    let (ours, theirs) = ("o".repeat(2000), "t".repeat(2000));
    let secrets = |id, name, secret: &str| tenant(id, name, &[(secret, Permissions::ALL), ("short", Permissions::ALL)]);
    let harness = Harness::with(
        2,
        vec![open_tenant(), secrets(2, "ours", &ours), secrets(3, "theirs", &theirs)],
    );
    let mut askers = ["default", "ours", "theirs"].map(|name| {
        let mut asker = harness.connect();
        asker.ask(&format!("AUTH {name} short"));
        asker
    });
    let mut client = harness.connect();
    let unused = harness.pool().other_bytes;
    // In which tenant each is sent, as a number of `askers`.
    let logins: [(usize, Vec<u8>); 4] = [
        (0, array(&["AUTH", "ours", &ours])),
        (1, array(&["AUTH", "theirs", &theirs])),
        (2, array(&["HELLO", "3", "AUTH", "ours", &ours])),
        (1, array(&["HELLO", "2", "AUTH", "theirs", &theirs])),
    ];
    for (at, login) in logins {
        let (begin, end) = login.split_at(1500);
        client.send(begin);
        wait_until("the first part is charged for", || charged(&mut askers[at]) >= 1500);
        assert!(harness.pool().other_bytes >= unused + 1500);
        client.send(end);
        client.reply();
        wait_until("nothing is held any more", || harness.pool().other_bytes == unused);
        assert_eq!(askers.each_mut().map(charged), [0; 3], "{}", login.escape_ascii());
    }
    // Queued commands are the tenant's that they were queued in.
    client.ask("MULTI");
    client.call(&["SET", "a", &"v".repeat(500_000)]);
    wait_until("it is charged for", || charged(&mut askers[2]) >= 500_000);
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    wait_until("nothing is held any more", || harness.pool().other_bytes == unused);
    assert_eq!(askers.each_mut().map(charged), [0; 3]);
    // The same with a connection that goes in the middle of it.
    client.ask("MULTI");
    client.call(&["SET", "a", &"v".repeat(500_000)]);
    wait_until("it is charged for", || charged(&mut askers[0]) >= 500_000);
    drop(client);
    wait_until("nothing is held any more", || harness.pool().other_bytes == unused);
    assert_eq!(askers.each_mut().map(charged), [0; 3]);
}
