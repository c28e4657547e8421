//! Commands on a running server, and the loads that are put on it.

use std::io::Write as _;

use super::*;

#[test]
fn a_tenant_s_life_on_the_command_line() {
    let server = Server::start(&[]);
    let created = server.run(&["tenant", "create", "shop", "--cap", "16MiB", "--policy", "clock"]);
    let secret = stdout(&created)
        .lines()
        .find_map(|line| line.strip_prefix("secret  "))
        .unwrap()
        .to_owned();
    assert_eq!(secret.len(), 43);
    let hints = stderr(&created);
    assert!(
        hints.contains(&format!("REDISCLI_AUTH={secret} redis-cli")) && hints.contains("| nc 127.0.0.1"),
        "{hints}"
    );

    let list = stdout(&server.run(&["tenant", "list"]));
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["NAME", "STATE", "POLICY", "FLOOR"]);
    assert_eq!(lines[1][..3], ["default", "idle", "adaptive"]);
    assert_eq!(lines[2][..6], ["shop", "idle", "clock", "none", "16.0", "MiB"]);

    let set = server.json(&["tenant", "set", "shop", "--cap", "none", "--floor", "2MiB"]);
    assert_eq!(
        (&set["goals"]["cap_bytes"], &set["goals"]["floor_bytes"]),
        (&serde_json::Value::Null, &(2 << 20).into())
    );
    let rotated = server.json(&["tenant", "rotate", "shop", "--permissions", "read"]);
    assert_ne!(rotated["secret"], secret.as_str());
    assert_eq!(
        server.json(&["tenant", "show", "shop"])["secrets"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let refused = server.run(&["tenant", "rotate", "shop"]);
    assert_eq!(refused.status.code(), Some(DENIED));
    assert!(
        stderr(&refused).contains("the older one may be in use"),
        "{}",
        stderr(&refused)
    );
    let own = server.folder.path().join("own");
    std::fs::write(&own, "q0E8l5n1p2m3k4j5h6g7f8\n").unwrap();
    let own = own.to_str().unwrap();
    let rotated = server.run(&["tenant", "rotate", "shop", "--secret", "ci", "--secret-file", own]);
    assert!(
        stderr(&rotated).contains("`ci` of shop is the one in the file"),
        "{}",
        stderr(&rotated)
    );
    let shown = stdout(&server.run(&["tenant", "show", "shop"]));
    assert!(shown.contains("secret            ci\n"), "{shown}");
    assert!(
        server
            .run(&["tenant", "rotate", "shop", "--secret", "ci", "--end"])
            .status
            .success()
    );
    assert!(stderr(&server.run(&["tenant", "rotate", "shop", "--finish"])).contains("only the newest"));
    assert_eq!(
        server.json(&["tenant", "show", "shop"])["secrets"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    let (code, _, folder) = server.stop();
    assert_eq!(code, Some(0));
    let server = Server::start_in(folder, &[]);
    let shown = stdout(&server.run(&["tenant", "show", "shop"]));
    assert!(
        shown.contains("floor             2.0 MiB"),
        "it survives a restart: {shown}"
    );
    let unasked = server.run(&["tenant", "remove", "shop"]);
    assert_eq!(unasked.status.code(), Some(USAGE));
    assert!(stderr(&unasked).contains("--yes"), "{}", stderr(&unasked));
    let removed = server.run(&["tenant", "remove", "shop", "--yes"]);
    assert!(
        removed.status.success() && stdout(&removed).is_empty(),
        "{}",
        stderr(&removed)
    );
    assert_eq!(server.run(&["tenant", "show", "shop"]).status.code(), Some(NOT_FOUND));
    server.stop();
}

#[test]
fn limits_are_set_kept_over_a_restart_and_refuse() {
    let server = Server::start(&[]);
    let set = server.json(&[
        "tenant",
        "set",
        "default",
        "--ops-limit",
        "2",
        "--bytes-limit",
        "1MiB",
        "--weight",
        "9",
    ]);
    assert_eq!(
        (
            &set["limits"]["ops_per_second"],
            &set["limits"]["bytes_per_second"],
            &set["goals"]["weight"]
        ),
        (&2.into(), &(1 << 20).into(), &9.into())
    );
    let (code, _, folder) = server.stop();
    assert_eq!(code, Some(0));
    let server = Server::start_in(folder, &[]);
    let memcached = server.json(&["server", "show"])["memcached"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut client = std::net::TcpStream::connect(memcached).unwrap();
    client.write_all(b"get a b\r\nget c\r\n").unwrap();
    let refused = b"END\r\nSERVER_ERROR the tenant's limit of 2 operations per second is reached, retry in 500 ms\r\n";
    let mut answer = [0; 512];
    client.read_exact(&mut answer[..refused.len()]).unwrap();
    assert_eq!(
        answer[..refused.len()].escape_ascii().to_string(),
        refused.escape_ascii().to_string()
    );
    // The shown figures are at most a round old.
    let begun = Instant::now();
    let shown = loop {
        let shown = server.json(&["tenant", "show", "default"]);
        if shown["refused_total"]["ops_per_second"] == 1 {
            break shown;
        }
        assert!(begun.elapsed().as_secs() < 30, "{shown}");
    };
    assert_eq!(shown["gets_total"], 2, "what is refused is no get");
    let cleared = server.json(&["tenant", "set", "default", "--ops-limit", "none", "--weight", "none"]);
    assert_eq!(
        (&cleared["limits"]["ops_per_second"], &cleared["goals"]["weight"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    server.stop();
}

#[test]
fn a_goal_is_set_and_what_became_of_the_memory_is_shown() {
    let server = Server::start(&["--first-grant", "2MiB"]);
    let set = server.json(&["tenant", "set", "default", "--hit-ratio", "0.9", "--policy", "genie"]);
    assert_eq!(
        (&set["goals"]["hit_ratio"], &set["policy"], &set["policy_in_force"]),
        (&0.9.into(), &"genie".into(), &"fifo".into())
    );
    let shown = stdout(&server.run(&["tenant", "show", "default"]));
    for line in [
        "policy            genie",
        "  in force        fifo",
        "goal              90.00 %",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(
        server.json(&["tenant", "show", "default", "--moves"]),
        serde_json::json!([])
    );
    let memcached = server.json(&["server", "show"])["memcached"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut client = std::net::TcpStream::connect(memcached).unwrap();
    client.write_all(b"set k 0 0 1\r\nv\r\n").unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    let begun = Instant::now();
    let moves = loop {
        let moves = server.json(&["tenant", "show", "default", "--moves"]);
        if moves
            .as_array()
            .unwrap()
            .iter()
            .any(|change| change["reason"] == "join")
        {
            break moves;
        }
        assert!(begun.elapsed().as_secs() < 30, "{moves}");
    };
    let first = moves.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&first["from_bytes"], &first["to_bytes"]),
        (&0.into(), &(2 << 20).into())
    );
    let table = stdout(&server.run(&["tenant", "show", "default", "--moves"]));
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        ["AT", "FROM", "TO", "OTHER", "SIDE", "REASON", "PREDICTED", "MEASURED"]
    );
    let last = lines.last().unwrap();
    assert_eq!(
        last[1..9],
        ["0", "B", "2.0", "MiB", "from", "free", "memory", "join"],
        "{table}"
    );
    let preview = server.run(&["tenant", "set", "default", "--cap", "4MiB", "--dry-run"]);
    let table = stdout(&preview);
    assert!(table.starts_with("NAME") && table.contains("\ndefault "), "{table}");
    assert!(stderr(&preview).contains("nothing is changed"), "{}", stderr(&preview));
    let shown = server.json(&["tenant", "show", "default"]);
    assert!(shown["goals"]["cap_bytes"].is_null(), "{shown}");

    let curve = server.json(&["tenant", "show", "default", "--curve"]);
    assert!(
        curve["points"].is_array() && curve["now_bytes"].as_u64() > Some(0),
        "{curve}"
    );
    let output = server.run(&["tenant", "show", "default", "--curve"]);
    assert!(stdout(&output).starts_with("BYTES"), "{}", stdout(&output));
    assert!(stderr(&output).contains("standard error"), "{}", stderr(&output));
    let lonely = server.run(&["tenant", "show", "default", "--svg", "x.svg"]);
    assert_eq!(lonely.status.code(), Some(USAGE), "{}", stderr(&lonely));
    let both = server.run(&["tenant", "show", "default", "--curve", "--moves"]);
    assert_eq!(both.status.code(), Some(USAGE));
    let (_, log, _) = server.stop();
    let told = log.lines().find(|line| line.contains("grant moved")).unwrap();
    for part in ["\"tenant\":\"default\"", "\"reason\":\"join\"", "\"to_bytes\":2097152"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn how_tenants_come_and_go_follows_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    std::fs::write(&file, "idle_after = '2m'").unwrap();
    let mut server = Server::start(&["--config", file.to_str().unwrap()]);
    for (text, expected) in [
        ("idle_after = '0s'", "idle_after = 0s in "),
        ("idle_after = '1h'\nfirst_grant = '4MiB'", "\"option\":\"first_grant\""),
    ] {
        std::fs::write(&file, text).unwrap();
        server.signal(Signal::HUP);
        server.wait_for_log(expected);
    }
    server.wait_for_log("\"option\":\"idle_after\"");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn exit_codes_tell_kinds_of_failures_apart() {
    let server = Server::start(&[]);
    let data = server.data();
    let with_data = |arguments: &[&'static str]| -> Vec<String> {
        arguments
            .iter()
            .map(|a| (*a).to_owned())
            .chain(["--data".into(), data.clone()])
            .collect()
    };
    assert!(server.run(&["tenant", "create", "shop"]).status.success());
    for (arguments, code, parts) in [
        (vec!["tenant", "create", "shop"], FAILED, vec!["`shop` exists already"]),
        (vec!["tenant", "show", "nobody"], NOT_FOUND, vec!["no tenant `nobody`"]),
        (
            vec!["tenant", "remove", "nobody", "--yes"],
            NOT_FOUND,
            vec!["no tenant `nobody`"],
        ),
        (
            vec!["tenant", "set", "shop", "--floor", "1GiB"],
            DENIED,
            vec!["floors of all tenants", "pool of 64MiB"],
        ),
        (
            vec!["tenant", "set", "shop", "--cap", "1kB"],
            USAGE,
            vec!["--cap 1kB: a cap of 1000B is not possible: allowed are 1MiB to "],
        ),
        (
            vec!["tenant", "set", "shop", "--cap", "much"],
            USAGE,
            vec!["--cap much", "64MiB"],
        ),
        (
            vec!["tenant", "set", "shop", "--policy", "lru"],
            USAGE,
            vec!["--policy lru: `lru`", "fifo, clock, s3fifo"],
        ),
        (
            vec!["tenant", "set", "shop", "--hit-ratio", "0"],
            USAGE,
            vec!["--hit-ratio 0: `0` is not a hit ratio", "0.001 to 0.9999"],
        ),
        (
            vec!["tenant", "set", "shop", "--hit-ratio", "1.5"],
            USAGE,
            vec!["--hit-ratio 1.5: ", "0.001 to 0.9999"],
        ),
        (
            vec!["tenant", "create", "x", "--hit-ratio", "ninety"],
            USAGE,
            vec!["--hit-ratio ninety: ", "0.001 to 0.9999"],
        ),
        (
            vec!["tenant", "set", "shop", "--latency", "5ms", "--miss-cost", "5ms"],
            USAGE,
            vec!["--latency 5ms: ", "met without any memory"],
        ),
        (
            vec!["tenant", "set", "shop", "--priority", "12"],
            USAGE,
            vec!["--priority 12: ", "0 to 9"],
        ),
        (
            vec!["tenant", "set", "shop", "--utility", "mine"],
            USAGE,
            vec!["--utility mine: ", "proportional, max-min, throughput, cost"],
        ),
        (
            vec!["tenant", "set", "shop", "--spending-limit", "5"],
            USAGE,
            vec![
                "--spending-limit 5: a spending limit has no effect without prices",
                "--prices FILE",
            ],
        ),
        (
            vec!["tenant", "set", "shop", "--ops-limit", "0"],
            USAGE,
            vec!["--ops-limit 0: a limit of 0 is not possible: allowed are 1 to"],
        ),
        (
            vec!["tenant", "set", "shop", "--weight", "101"],
            USAGE,
            vec!["--weight 101: ", "1 to 100"],
        ),
        (
            vec!["tenant", "show", "nobody", "--moves"],
            NOT_FOUND,
            vec!["no tenant `nobody`"],
        ),
        (
            vec!["tenant", "show", "nobody", "--curve"],
            NOT_FOUND,
            vec!["no tenant `nobody`"],
        ),
        (vec!["tenant", "set", "shop"], USAGE, vec!["nothing to set"]),
        (vec!["server", "set"], USAGE, vec!["nothing to set"]),
        (
            vec!["server", "set", "--memory", "1"],
            USAGE,
            vec!["--memory 1: 1B of memory is not possible: allowed are 8MiB to ", "iB"],
        ),
        (
            vec!["server", "set", "--round-period", "1ms"],
            USAGE,
            vec!["--round-period 1ms: a round period of 1ms is not possible: allowed are 100ms to 1m"],
        ),
        (
            vec!["server", "set", "--round-period", "soon"],
            USAGE,
            vec!["--round-period soon", "700us"],
        ),
    ] {
        let arguments = with_data(&arguments);
        check_fails(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), code, &parts);
    }
    // Before the command, too, where it takes the option.
    let before = run(&["--data", &data, "tenant", "show", "shop"]);
    assert!(before.status.success(), "{}", stderr(&before));
    check_fails(&["--data", &data, "bench"], USAGE, &["--data", "before their names"]);
    server.stop();
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().to_str().unwrap();
    // An empty variable is none: the server is looked for in the user's folder.
    let unset = tidemark()
        .args(["tenant", "list"])
        .envs([("TIDEMARK_DATA", ""), ("XDG_DATA_HOME", nowhere)])
        .output()
        .unwrap();
    let expected = format!("no server runs on {nowhere}/tidemark");
    assert!(stderr(&unset).contains(&expected), "{}", stderr(&unset));
    check_fails(
        &["tenant", "list", "--data", nowhere],
        FAILED,
        &["no server runs on", nowhere, "tidemark serve --data"],
    );
    check_fails(
        &["doctor"],
        USAGE,
        &["`tidemark doctor` is not available in this version"],
    );
    assert_eq!(run(&["tenant", "create", "a b"]).status.code(), Some(USAGE));
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(USAGE));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

#[test]
fn the_server_is_resized_live_and_by_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("workers = 1");
    let mut server = Server::start(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.json(&["server", "show"])["pool_bytes"], 64 << 20);
    assert_eq!(
        server.json(&["server", "set", "--memory", "32MiB"])["pool_bytes"],
        32 << 20
    );
    assert_eq!(
        server.json(&["server", "set", "--memory", "none"])["pool_bytes"],
        64 << 20
    );
    // The environment wins over the file: only options that the file decides are changed by it.
    for (text, expected) in [
        ("workers = 2", "needs a restart"),
        ("workers = 1\nmemroy = 5", "did you mean `memory`?"),
        ("workers = ", "is not TOML"),
        ("memory = '16MiB'\nworkers = 1", "configuration read again"),
    ] {
        write(text);
        server.signal(Signal::HUP);
        server.wait_for_log(expected);
    }
    assert_eq!(server.json(&["server", "show"])["pool_bytes"], 64 << 20);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn memory_from_the_file_follows_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    let data = folder.path().join("data");
    let write = |memory: &str| {
        let ports = "memcached = '127.0.0.1:0'\nredis = 'off'\nadmin = 'off'";
        std::fs::write(
            &file,
            format!("memory = '{memory}'\n{ports}\ndata = '{}'", data.display()),
        )
        .unwrap();
    };
    write("64MiB");
    let mut child = tidemark()
        .args(["serve", "--config", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut wait_for = |part: &str| {
        log.find_map(|line| line.ok().filter(|line| line.contains(part)))
            .unwrap()
    };
    wait_for("serving");
    let show = || {
        let output = tidemark()
            .args(["server", "show", "--json", "--data", data.to_str().unwrap()])
            .output()
            .unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["pool_bytes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(show(), 64 << 20);
    write("96MiB");
    send(&child, Signal::HUP);
    wait_for("configuration read again");
    assert_eq!(show(), 96 << 20);
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_load_is_never_another_tenant_s_and_its_errors_are_a_failure() {
    let server = Server::start(&[]);
    let read_only = {
        assert!(server.run(&["tenant", "create", "shop"]).status.success());
        let rotated = server.json(&["tenant", "rotate", "shop", "--permissions", "read"]);
        rotated["secret"].as_str().unwrap().to_owned()
    };
    let address = server.json(&["server", "show"])["memcached"]
        .as_str()
        .unwrap()
        .to_owned();
    let nobody_s = "x".repeat(43);
    for (tenant, secret, code, part) in [
        ("shop", &read_only, FAILED, "requests failed; the first: CLIENT_ERROR"),
        ("nobody", &read_only, DENIED, "refused the login of tenant `nobody`"),
        ("shop", &nobody_s, DENIED, "refused the login of tenant `shop`"),
        // Not of the form of a secret: refused as well, and never stored.
        (
            "shop",
            &nobody_s[1..].to_owned(),
            DENIED,
            "refused the login of tenant `shop`",
        ),
    ] {
        let arguments = ["bench", "--address", &address, "--tenant", tenant];
        let output = tidemark()
            .args(arguments)
            .args(["--connections", "1", "--seconds", "0.1", "--keys", "10"])
            .env("TIDEMARK_SECRET", secret)
            .output()
            .unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(part), "{part}: {message}");
    }
    // The secret is not left behind. Figures are a moment old.
    let begun = Instant::now();
    while server.json(&["tenant", "show", "default"])["items"] != 0 {
        assert!(begun.elapsed().as_secs() < 30, "the login stays as a value");
    }
    server.stop();
}
