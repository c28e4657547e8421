//! The figures of flash: in lists, and in answers to clients.

use super::*;

/// The value of a line of a list, which is behind two spaces at least.
fn told<'t>(text: &'t str, label: &str) -> Vec<&'t str> {
    let of = |line: &'t str| line.strip_prefix(label)?.strip_prefix("  ").map(str::trim);
    text.lines().filter_map(of).collect()
}

#[test]
fn the_server_and_its_tenants_show_their_flash() {
    let server = start(tempfile::tempdir().unwrap());
    let columns = |server: &Server| {
        let list = stdout(&server.run(&["tenant", "list"]));
        list.lines().next().unwrap().to_owned()
    };
    server.json(&[
        "tenant",
        "set",
        "default",
        "--flash-floor",
        "8MiB",
        "--flash-write-limit",
        "40MiB",
    ]);
    let mut client = Client::connect(&server, "redis");
    client.fill(0..KEYS / 2, 1);
    client.count(0..BATCH, 1);
    // Rounds go on meanwhile: both are to be of the same one.
    let begun = Instant::now();
    let (shown, tenant) = loop {
        let tenant = || server.json(&["tenant", "show", "default"]);
        let (before, shown, after) = (tenant(), stdout(&server.run(&["tenant", "show", "default"])), tenant());
        let names = [
            "flash_usage_bytes",
            "flash_items",
            "flash_hits_total",
            "flash_written_bytes_total",
        ];
        if names
            .iter()
            .all(|name| after[*name].as_u64() > Some(0) && before[*name] == after[*name])
        {
            break (shown, after);
        }
        assert!(begun.elapsed() < PATIENCE, "{after}");
    };
    let bytes = |name: &str| format!("{:.1} MiB", tenant[name].as_f64().unwrap() / f64::from(1 << 20));
    for (label, value) in [
        ("flash floor", "8.0 MiB".to_owned()),
        ("flash cap", "none".to_owned()),
        ("flash grant", bytes("flash_grant_bytes")),
        ("  used", bytes("flash_usage_bytes")),
        ("  items", tenant["flash_items"].to_string()),
        ("  hits", tenant["flash_hits_total"].to_string()),
        ("  written", bytes("flash_written_bytes_total")),
        ("  not taken", tenant["flash_refused_total"].to_string()),
        ("  waits refused", "0".to_owned()),
        ("  bytes/s max", "40.0 MiB".to_owned()),
        ("  after a crash", "bounded:100ms".to_owned()),
        ("  takes memory", bytes("flash_memory_bytes")),
        ("  has failed", "false".to_owned()),
    ] {
        assert_eq!(told(&shown, label).first(), Some(&&*value), "{label} of\n{shown}");
    }
    let list = stdout(&server.run(&["tenant", "list"]));
    assert!(columns(&server).ends_with("FLASH GRANT  FLASH USED"), "{list}");
    assert!(list.contains(&bytes("flash_grant_bytes")), "{list}");
    let shown = server.run(&["server", "show"]);
    let (shown, of_server) = (stdout(&shown), server.json(&["server", "show"]));
    let of_all = |name: &str| format!("{:.1} MiB", of_server[name].as_f64().unwrap() / f64::from(1 << 20));
    for (label, value) in [
        ("flash", of_all("flash_bytes")),
        ("  granted", bytes("flash_grant_bytes")),
        ("  used", of_all("flash_usage_bytes")),
        ("  has failed", "false".to_owned()),
    ] {
        assert_eq!(told(&shown, label).first(), Some(&&*value), "{label} of\n{shown}");
    }
    let moves = stdout(&server.run(&["tenant", "show", "default", "--moves"]));
    assert!(moves.lines().next().unwrap().ends_with("TIER"), "{moves}");
    assert!(
        moves
            .lines()
            .any(|line| line.ends_with("flash") && line.contains("join")),
        "{moves}"
    );
    server.stop();
    // Without flash there are no such lines.
    let server = Server::start(&[]);
    assert!(!columns(&server).contains("FLASH"));
    for command in [&["tenant", "show", "default"][..], &["server", "show"]] {
        let shown = stdout(&server.run(command));
        assert!(!shown.contains("flash"), "{shown}");
    }
    server.stop();
}

#[test]
fn keys_are_counted_by_the_databases_that_they_are_in() {
    let server = start(tempfile::tempdir().unwrap());
    let mut client = Client::connect(&server, "redis");
    // The last ones alone have room in memory.
    let parts = [(3, 0..KEYS / 2), (9, KEYS / 2..KEYS), (15, KEYS..KEYS + KEYS / 4)];
    for (db, keys) in &parts {
        assert_eq!(client.one(&format!("SELECT {db}")), ok());
        client.fill(keys.clone(), 1);
    }
    let check = |client: &mut Client, left: &[i32]| {
        for (db, keys) in &parts {
            assert_eq!(client.one(&format!("SELECT {db}")), ok());
            let met: HashSet<String> = scan(client, "", |_| ()).into_iter().collect();
            let most = if left.contains(db) { keys.len() } else { 0 };
            assert!((most * 19 / 20..=most).contains(&met.len()), "{} in {db}", met.len());
            assert_eq!(client.one("DBSIZE"), Reply::Number(met.len() as i64), "database {db}");
            let info = text(&client.one("INFO keyspace"));
            let line = format!("db{db}:keys={},", met.len());
            assert_eq!(info.contains(&line), left.contains(db), "{line} of {info}");
        }
    };
    check(&mut client, &[3, 9, 15]);
    assert_eq!(client.one("SELECT 9"), ok());
    // Some come back into memory, some are written anew, some are gone.
    assert!(client.count(KEYS / 2..KEYS / 2 + 4 * BATCH, 1) > 3 * BATCH);
    client.fill(KEYS / 2..KEYS / 2 + BATCH, 2);
    let dead = (KEYS - BATCH..KEYS).map(|n| vec!["DEL".to_owned(), key(n)]);
    client.all(&dead.collect::<Vec<_>>());
    check(&mut client, &[3, 9, 15]);
    assert_eq!(client.one("SELECT 15"), ok());
    assert_eq!(client.one("FLUSHDB"), ok());
    check(&mut client, &[3, 9]);
    server.stop();
}
