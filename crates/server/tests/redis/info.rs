//! INFO and CONFIG GET: true figures, and the tenant's own only.

use std::collections::HashMap;

use tidemark_types::{MIB, Permissions, Policy, TenantPlan};

use crate::harness::{Client, Harness, array, open_tenant, tenant, wait_until};

/// The fields of INFO.
fn info(client: &mut Client, sections: &str) -> HashMap<String, String> {
    let text = client.text(format!("INFO {sections}").trim_end());
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The titles of a reply's sections.
fn titles(client: &mut Client, sections: &str) -> String {
    let text = client.text(format!("INFO {sections}").trim_end());
    text.lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn what_valkeys_own_tests_ask_for_is_there() {
    let harness = Harness::start();
    let mut client = harness.connect();
    let info = client.text("INFO server");
    assert!(info.contains("redis_git_sha1:00000000\r\n"), "{info}");
    // Subcommands are commands of their own.
    let list = client.ask("COMMAND LIST");
    for name in ["get", "client", "client|list", "command|docs"] {
        assert!(list.contains(&format!("\r\n{name}\r\n")), "{name}: {list}");
    }
}

#[test]
fn sections_are_chosen_as_in_redis() {
    const PLAIN: &str = "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster Keyspace";
    const ALL: &str = "Server Clients Memory Persistence Stats Replication CPU Commandstats Errorstats Latencystats \
                       Cluster Keyspace";
    const EVERYTHING: &str = "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats \
                              Latencystats Cluster Keyspace";
    let harness = Harness::start();
    let mut client = harness.connect();
    for (asked, answered) in [
        ("", PLAIN),
        ("default", PLAIN),
        ("DEFAULT", PLAIN),
        ("all", ALL),
        ("everything", EVERYTHING),
        ("keyspace", "Keyspace"),
        ("KeySpace server", "Server Keyspace"),
        ("commandstats nothing cpu cpu", "CPU Commandstats"),
        ("nothing", ""),
    ] {
        assert_eq!(titles(&mut client, asked), answered, "INFO {asked}");
    }
}

/// Calls each command.
fn call_all(client: &mut Client, commands: &[&str]) {
    commands.iter().for_each(|command| {
        client.ask(command);
    });
}

#[test]
fn figures_are_of_what_happened() {
    let harness = Harness::start();
    let mut client = harness.connect();
    let mut watcher = harness.connect();
    call_all(
        &mut client,
        &[
            "SET a 1",
            "SET b 1 EX 1000",
            "SET c 1 PX 20",
            "GET a",
            "GET a",
            "GET x",
            "MGET a x",
        ],
    );
    call_all(
        &mut client,
        &[
            "EXISTS a x",
            "STRLEN a",
            "GETEX a",
            "GETDEL x",
            "SELECT 3",
            "SET d x",
            "SELECT 0",
        ],
    );
    call_all(
        &mut client,
        &["FOO", "INCR a b", "GET", "INCRBY a x", "SETEX a 0 x", "AUTH nobody x"],
    );
    call_all(&mut watcher, &["WATCH a"]);
    wait_until("c has expired", || client.number("EXISTS c") == 0);
    let found = info(&mut client, "everything");
    for (field, value) in [
        ("keyspace_hits", "4"),
        ("keyspace_misses", "3"),
        ("expired_keys", "1"),
        ("evicted_keys", "0"),
        ("db0", "keys=2,expires=1,avg_ttl=0"),
        ("db3", "keys=1,expires=0,avg_ttl=0"),
        ("connected_clients", "2"),
        ("watching_clients", "1"),
        ("total_connections_received", "2"),
        ("rejected_connections", "0"),
        ("total_error_replies", "6"),
        ("errorstat_ERR", "count=5"),
        ("errorstat_WRONGPASS", "count=1"),
        ("acl_access_denied_auth", "1"),
        ("acl_access_denied_cmd", "0"),
        ("role", "master"),
        ("redis_version", "7.2.4"),
        ("server_name", "tidemark"),
        ("tidemark_version", env!("CARGO_PKG_VERSION")),
        ("redis_mode", "standalone"),
        ("process_id", &std::process::id().to_string()),
        ("tcp_port", &client.stream.peer_addr().unwrap().port().to_string()),
        ("cluster_enabled", "0"),
        ("loading", "0"),
    ] {
        assert_eq!(found.get(field).map(String::as_str), Some(value), "{field}");
    }
    for (command, calls, rejected, failed) in [
        ("set", 4, 0, 0),
        ("get", 3, 1, 0),
        ("incr", 0, 1, 0),
        ("incrby", 1, 0, 1),
        ("setex", 1, 0, 1),
        ("watch", 1, 0, 0),
    ] {
        let stats = &found[&format!("cmdstat_{command}")];
        assert!(stats.starts_with(&format!("calls={calls},usec=")), "{command}: {stats}");
        assert!(
            stats.ends_with(&format!(",rejected_calls={rejected},failed_calls={failed}")),
            "{command}: {stats}"
        );
    }
    assert!(!found.contains_key("db1") && !found.contains_key("cmdstat_mset"));
}

#[test]
fn traffic_is_counted_to_the_byte() {
    let harness = Harness::start();
    let mut client = harness.connect();
    let figures = |client: &mut Client| {
        let found = info(client, "stats");
        [
            "total_commands_processed",
            "total_net_input_bytes",
            "total_net_output_bytes",
        ]
        .map(|field| found[field].parse::<u64>().unwrap())
    };
    let asking = array(&["INFO", "stats"]).len() as u64;
    let before = figures(&mut client);
    // Counts of the end of a turn are there in the next one: the question itself comes late.
    let answer = client.call(&["INFO", "stats"]).len() as u64;
    let long = "v".repeat(300_000);
    let commands: [&[&str]; 4] = [&["SET", "a", &long], &["GET", "a"], &["MGET", "a", "x"], &["FOO"]];
    let sent: usize = commands.iter().map(|words| array(words).len()).sum();
    let received: usize = commands.iter().map(|words| client.call(words).len()).sum();
    let after = figures(&mut client);
    assert_eq!(after[0] - before[0], 2 + commands.len() as u64);
    assert_eq!(after[1] - before[1], 2 * asking + sent as u64);
    let others = after[2] - before[2] - received as u64;
    // Two answers to INFO, whose figures may have one digit more or less.
    assert!(others.abs_diff(2 * answer) < 20, "{others} {answer}");
}

#[test]
fn memory_is_what_the_tenant_holds() {
    let small = TenantPlan {
        grant_bytes: 4 * MIB,
        cap_bytes: Some(4 * MIB),
        policy: Policy::Fifo,
        ..open_tenant()
    };
    let harness = Harness::with(2, vec![small]);
    let mut client = harness.connect();
    let number = |found: &HashMap<String, String>, field: &str| found[field].parse::<u64>().unwrap();
    assert_eq!(number(&info(&mut client, "memory"), "used_memory"), 0);
    for n in 0..10_000 {
        client.call(&["SET", &format!("key-{n}"), &"v".repeat(1000)]);
    }
    let found = info(&mut client, "everything");
    let used = number(&found, "used_memory");
    assert!((3 * MIB..=4 * MIB).contains(&used), "{used}");
    assert_eq!(number(&found, "maxmemory"), 4 * MIB);
    assert_eq!(number(&found, "tidemark_grant_bytes"), 4 * MIB);
    assert_eq!(found["maxmemory_policy"], "allkeys-fifo");
    assert_eq!(
        number(&found, "used_memory_dataset") + number(&found, "used_memory_overhead"),
        used
    );
    assert!(number(&found, "used_memory_peak") >= used);
    let evicted = number(&found, "evicted_keys");
    let keys = client.number("DBSIZE") as u64;
    assert_eq!(evicted + keys, 10_000);
    assert!(evicted > 5_000, "{evicted}");
    client.ask("FLUSHALL");
    // It comes back in pieces.
    wait_until("its memory is back", || {
        number(&info(&mut client, "memory"), "used_memory") == 0
    });
}

#[test]
fn how_long_requests_took_is_shown() {
    let harness = Harness::start();
    let mut client = harness.connect();
    for _ in 0..100 {
        client.ask("GET a");
    }
    // A pipeline is one visit, and as many requests.
    client.send(&array(&["GET", "a"]).repeat(50));
    (0..50).for_each(|_| drop(client.reply()));
    let text = client.text("INFO latencystats");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("tidemark_request_duration_usec:"));
    let parts: HashMap<&str, u64> = line
        .unwrap()
        .split(',')
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    assert_eq!(parts["requests"], 150);
    assert!(
        parts["p50"] <= parts["p99"] && parts["p99"] <= parts["p99.9"],
        "{parts:?}"
    );
    assert!(parts["p99.9"] < 20_000_000, "{parts:?}");
}

#[test]
fn nothing_is_shown_of_another_tenant() {
    let shop = tenant(2, "shop", &[("of-shop", Permissions::ALL)]);
    let harness = Harness::with(2, vec![open_tenant(), shop]);
    let (mut ours, mut theirs) = (harness.connect(), harness.connect());
    theirs.ask("AUTH shop of-shop");
    call_all(
        &mut theirs,
        &["SET a 1", "GET a", "GET x", "FOO", "INCRBY a x", "MSET b 1 c 1"],
    );
    let (mine, yours) = (info(&mut ours, "everything"), info(&mut theirs, "everything"));
    for (field, my_value, your_value) in [
        ("keyspace_hits", "0", "1"),
        ("keyspace_misses", "0", "1"),
        ("connected_clients", "1", "1"),
        ("total_error_replies", "0", "2"),
        // Both began in the open tenant.
        ("total_connections_received", "2", "1"),
    ] {
        assert_eq!(
            (mine[field].as_str(), yours[field].as_str()),
            (my_value, your_value),
            "{field}"
        );
    }
    assert_eq!(mine["used_memory"], "0");
    assert_ne!(yours["used_memory"], "0");
    assert!(!mine.contains_key("db0") && yours.contains_key("db0"));
    assert!(!mine.contains_key("cmdstat_mset") && yours.contains_key("cmdstat_mset"));
}

#[test]
fn settings_are_answered_as_they_are() {
    let capped = TenantPlan {
        cap_bytes: Some(48 * MIB),
        policy: Policy::Clock,
        ..open_tenant()
    };
    let harness = Harness::with(2, vec![capped]);
    let mut client = harness.connect();
    let port = client.stream.peer_addr().unwrap().port().to_string();
    for (asked, answered) in [
        ("maxmemory", format!("maxmemory {}", 48 * MIB)),
        ("maxmemory-policy", "maxmemory-policy allkeys-clock".to_owned()),
        ("port", format!("port {port}")),
        ("bind", "bind 127.0.0.1".to_owned()),
        ("io-threads", "io-threads 2".to_owned()),
        ("proto-max-bulk-len", format!("proto-max-bulk-len {MIB}")),
        ("save appendonly", "appendonly no save ".to_owned()),
        ("slowlog-*", "slowlog-log-slower-than -1 slowlog-max-len 0".to_owned()),
        ("Databases databases", "Databases 16".to_owned()),
    ] {
        let reply = client.ask(&format!("CONFIG GET {asked}"));
        let words: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).collect();
        assert_eq!(words.join(" "), answered, "{asked}");
    }
    assert!(client.ask("CONFIG GET *").starts_with("*44\r\n"));
}
