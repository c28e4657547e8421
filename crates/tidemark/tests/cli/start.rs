//! How the server starts, its output then, and when it does not.

use super::*;

#[test]
fn the_ready_line_names_addresses_and_folder() {
    let server = Server::start(&[]);
    let words: Vec<&str> = server.ready.splitn(6, ' ').collect();
    assert_eq!(words[0], "ready");
    for (word, key) in words[1..4].iter().zip(["memcached=", "redis=", "admin="]) {
        let address: std::net::SocketAddr = word.strip_prefix(key).unwrap().parse().unwrap();
        assert!(address.port() != 0 && address.ip().is_loopback());
        std::net::TcpStream::connect(address).unwrap();
    }
    assert_eq!(words[4], "s3=off");
    assert_eq!(words[5], format!("data={}", server.data()));
    let shown = server.json(&["server", "show"]);
    assert_eq!(format!("redis={}", shown["redis"].as_str().unwrap()), words[2]);
    let (code, log, folder) = server.stop();
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("there is an admin token now").count(), 1, "{log}");
    let token = std::fs::read_to_string(Path::new(&data(&folder)).join("admin.token")).unwrap();
    assert!(!log.contains(token.trim()), "a log is no place for a token: {log}");
    assert!(
        log.lines().all(|line| line.starts_with('{')),
        "JSON lines where nobody reads them: {log}"
    );
    assert!(!Path::new(&data(&folder)).join("admin.sock").exists());

    let again = Server::start_in(folder, &["--memcached", "off", "--admin", "off"]);
    assert!(
        again.ready.starts_with("ready memcached=off redis=127.0.0.1:"),
        "{}",
        again.ready
    );
    assert!(again.ready.contains(" admin=off s3=off data="), "{}", again.ready);
    let (code, log, _) = again.stop();
    assert_eq!((code, log.contains("admin token")), (Some(0), false), "{log}");
}

#[test]
fn what_was_set_while_it_ran_is_printed_with_the_configuration() {
    let server = Server::start(&["--memory", "64MiB"]);
    let set = server.run(&["server", "set", "--memory", "32MiB", "--round-period", "500ms"]);
    assert!(set.status.success(), "{}", stderr(&set));
    let data = server.data();
    let printed = |memory: &str, more: &[&str]| {
        stdout(&run(&[
            &["serve", "--print-config", "--data", &data, "--memory", memory],
            more,
        ]
        .concat()))
    };
    let text = printed("64MiB", &[]);
    for line in [
        "memory = \"64MiB\"  # --memory",
        "# memory is 32MiB in this data folder, by `tidemark server set`",
        "# round_period is 500ms in this data folder, by `tidemark server set`",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let (_, _, _folder) = server.stop();
    let json: serde_json::Value = serde_json::from_str(&printed("64MiB", &["--json"])).unwrap();
    assert_eq!(
        json["set_while_running"],
        serde_json::json!({"memory": "32MiB", "round_period": "500ms"})
    );
    // A later configuration of another size makes the earlier setting void.
    let text = printed("128MiB", &[]);
    assert!(
        !text.contains("# memory is") && text.contains("# round_period is"),
        "{text}"
    );
}

#[test]
fn options_are_checked_and_printed_without_a_server() {
    let output = tidemark()
        .args(["serve", "--print-config", "--memory", "2GiB"])
        .env("TIDEMARK_WORKERS", "3")
        .output()
        .unwrap();
    let printed = stdout(&output);
    assert!(
        printed.contains("memory = \"2GiB\"  # --memory") && printed.contains("workers = 3  # TIDEMARK_WORKERS"),
        "{printed}"
    );
    // The output is a configuration that says the same.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    std::fs::write(&file, &printed).unwrap();
    let json = |arguments: &[&str]| stdout(&run(&[&["serve", "--print-config", "--json"], arguments].concat()));
    assert_eq!(
        json(&["--config", file.to_str().unwrap()]),
        json(&["--memory", "2GiB", "--workers", "3"])
    );

    let good = run(&["serve", "--check-config", "--config", file.to_str().unwrap()]);
    assert!(good.status.success() && stdout(&good).is_empty());
    std::fs::write(&file, "memroy = '2GiB'").unwrap();
    let path = file.to_str().unwrap();
    check_fails(
        &["serve", "--check-config", "--config", path],
        USAGE,
        &["`memroy`", path, "did you mean `memory`?"],
    );
    check_fails(&["serve", "--memory", "3XB"], USAGE, &["--memory 3XB"]);
    let mistyped = tidemark()
        .args(["serve", "--check-config"])
        .env("TIDEMARK_MEMROY", "2GiB")
        .output()
        .unwrap();
    assert_eq!(mistyped.status.code(), Some(USAGE));
    assert!(
        stderr(&mistyped).contains("did you mean TIDEMARK_MEMORY?"),
        "{}",
        stderr(&mistyped)
    );
    check_fails(
        &["serve", "--tls-cert", "x"],
        USAGE,
        &["--tls-cert x", "not available in this version"],
    );
    check_fails(&["serve", "--prices", "x"], USAGE, &["--prices x", "No such file"]);
}

#[test]
fn a_start_that_can_not_be_says_why_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let holder = format!("(process {})", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for flag in ["--memcached", "--redis", "--admin"] {
        let mut arguments = vec!["serve", "--data", data, "--memory", "16MiB"];
        for other in ["--memcached", "--redis", "--admin"] {
            arguments.extend([other, if other == flag { &address } else { "127.0.0.1:0" }]);
        }
        let output = run(&arguments);
        let message = stderr(&output);
        let line = message.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert_eq!(output.status.code(), Some(FAILED));
        let place = format!(
            "{flag} {address}: port {} is taken by ",
            taken.local_addr().unwrap().port()
        );
        assert!(line.contains(&place) && line.contains(&holder), "{line}");
    }

    let server = Server::start(&[]);
    let arguments = [
        "serve",
        "--data",
        &server.data(),
        "--redis",
        "127.0.0.1:0",
        "--memcached",
        "off",
        "--admin",
        "off",
    ];
    check_fails(
        &arguments,
        FAILED,
        &["in use by another Tidemark", &format!("process {}", server.child.id())],
    );
    let (_, _, folder) = server.stop();
    let state = Path::new(&self::data(&folder)).join("state.sqlite");
    std::fs::write(&state, "not a database").unwrap();
    let data = self::data(&folder);
    let arguments = [
        "serve",
        "--data",
        &data,
        "--redis",
        "127.0.0.1:0",
        "--memcached",
        "off",
        "--admin",
        "off",
    ];
    check_fails(&arguments, FAILED, &["is damaged", state.to_str().unwrap()]);
}

#[test]
fn a_cause_is_said_once_and_the_token_when_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("admin.token")).unwrap();
    let data = folder.path().to_str().unwrap();
    let free = "127.0.0.1:0";
    let arguments = [
        "serve",
        "--data",
        data,
        "--memcached",
        free,
        "--redis",
        free,
        "--admin",
        free,
    ];
    let failed = run(&arguments);
    let message = stderr(&failed);
    assert_eq!(failed.status.code(), Some(FAILED));
    assert_eq!(message.matches("Is a directory").count(), 1, "{message}");

    std::fs::remove_dir(folder.path().join("admin.token")).unwrap();
    let holder = TcpListener::bind(free).unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (flag, is_made) in [("--admin", false), ("--redis", true), ("--redis", false)] {
        let mut arguments = arguments;
        let place = arguments.iter().position(|argument| *argument == flag).unwrap();
        arguments[place + 1] = &taken;
        let message = stderr(&run(&arguments));
        assert!(message.contains("is taken"), "{message}");
        assert_eq!(
            message.contains("there is an admin token now"),
            is_made,
            "{flag}: {message}"
        );
    }
}

#[test]
fn a_log_level_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = tidemark()
        .args(["serve", "--data", folder.path().to_str().unwrap()])
        .env("TIDEMARK_LOG", "loud")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(USAGE));
    assert_eq!(
        stderr(&output),
        "error: TIDEMARK_LOG=loud: allowed are error, warn, info, debug, trace\n"
    );
}

#[test]
fn a_start_says_what_an_operator_should_know() {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let folder = tempfile::tempdir().unwrap();
    let data = data(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    let notes = ["others may look into the data folder", "there is no open tenant"];
    let said = |log: &str| notes.map(|part| log.contains(part));
    let server = Server::start_in(folder, &[]);
    assert!(server.run(&["tenant", "remove", "default", "--yes"]).status.success());
    let (_, log, folder) = server.stop();
    assert_eq!(said(&log), [false, false], "{log}");

    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_in(folder, &[]);
    assert!(server.run(&["tenant", "create", "default"]).status.success());
    assert_eq!(server.json(&["tenant", "show", "default"])["open"], true);
    let (_, log, folder) = server.stop();
    assert_eq!(said(&log), [true, true], "{log}");

    let (_, log, _) = Server::start_in(folder, &[]).stop();
    assert_eq!(said(&log), [true, false], "{log}");
}

#[test]
fn listening_elsewhere_warns_until_a_tenant_has_a_secret() {
    let server = Server::start(&["--redis", "0.0.0.0:0"]);
    let created = server.run(&["tenant", "create", "shop"]);
    assert!(
        stderr(&created).contains("redis-cli -h 127.0.0.1 -p "),
        "{}",
        stderr(&created)
    );
    let (_, log, folder) = server.stop();
    assert!(log.contains("no tenant has a secret yet"), "{log}");
    let (_, log, _) = Server::start_in(folder, &["--redis", "0.0.0.0:0"]).stop();
    assert!(!log.contains("no tenant has a secret yet"), "{log}");
}

#[test]
fn state_survives_a_kill() {
    let server = Server::start(&[]);
    assert!(server.run(&["tenant", "create", "shop"]).status.success());
    server.signal(Signal::KILL);
    let Server { mut child, folder, .. } = server;
    child.wait().unwrap();
    let server = Server::start_in(folder, &[]);
    assert_eq!(server.json(&["tenant", "show", "shop"])["name"], "shop");
    assert_eq!(server.stop().0, Some(0));
}
