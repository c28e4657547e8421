//! The command as people and scripts use it: the real binary, its output, its exit codes.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const DENIED: i32 = 4;

/// The binary without any variable of the caller's that it would follow.
fn tidemark() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEMARK_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    tidemark().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Fails with this exit code, one line that holds all of these parts, and nothing on standard output.
fn check_fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = run(arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {part}: {message}");
    }
    assert_eq!(message.trim_end().lines().count(), 1, "{arguments:?}: {message}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
}

/// A server on free ports, in a folder whose name has a space.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// What was read of standard error so far.
    log: String,
    ready: String,
    folder: TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), more)
    }

    fn start_in(folder: TempDir, more: &[&str]) -> Self {
        let data = data(&folder);
        let mut child = tidemark()
            .args(["serve", "--data", &data])
            .args(more)
            .env("TIDEMARK_MEMORY", "64MiB")
            .envs(["MEMCACHED", "REDIS", "ADMIN"].map(|name| (format!("TIDEMARK_{name}"), "127.0.0.1:0")))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (mut ready, mut log) = (String::new(), String::new());
        stdout.read_line(&mut ready).unwrap();
        if ready.is_empty() {
            stderr.read_to_string(&mut log).unwrap();
            panic!("no ready line: {log}");
        }
        Self {
            child,
            stdout,
            stderr,
            log,
            ready: ready.trim_end().to_owned(),
            folder,
        }
    }

    fn data(&self) -> String {
        data(&self.folder)
    }

    /// A command about this server.
    fn run(&self, arguments: &[&str]) -> Output {
        tidemark()
            .args(arguments)
            .env("TIDEMARK_DATA", self.data())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Asks it to end and gives its exit code and what it said on standard error.
    fn stop(mut self) -> (Option<i32>, String, TempDir) {
        self.signal(Signal::TERM);
        self.stderr.read_to_string(&mut self.log).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "only the ready line is on standard output");
        (self.child.wait().unwrap().code(), self.log, self.folder)
    }

    /// Waits for a further line of the log that holds `part`.
    fn wait_for_log(&mut self, part: &str) {
        loop {
            let before = self.log.len();
            assert!(
                self.stderr.read_line(&mut self.log).unwrap() > 0,
                "no {part}: {}",
                self.log
            );
            if self.log[before..].contains(part) {
                return;
            }
        }
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn data(folder: &TempDir) -> String {
    folder.path().join("the data").to_str().unwrap().to_owned()
}

#[test]
fn the_ready_line_names_addresses_and_folder() {
    let server = Server::start(&[]);
    let words: Vec<&str> = server.ready.splitn(5, ' ').collect();
    assert_eq!(words[0], "ready");
    for (word, key) in words[1..4].iter().zip(["memcached=", "redis=", "admin="]) {
        let address: std::net::SocketAddr = word.strip_prefix(key).unwrap().parse().unwrap();
        assert!(address.port() != 0 && address.ip().is_loopback());
        std::net::TcpStream::connect(address).unwrap();
    }
    assert_eq!(words[4], format!("data={}", server.data()));
    let shown = server.json(&["server", "show"]);
    assert_eq!(format!("redis={}", shown["redis"].as_str().unwrap()), words[2]);
    let (code, log, folder) = server.stop();
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("admin token (shown this once").count(), 1, "{log}");
    assert!(
        log.lines()
            .all(|line| line.starts_with('{') || line.starts_with("admin token")),
        "JSON lines where nobody reads them: {log}"
    );
    assert!(!Path::new(&data(&folder)).join("admin.sock").exists());

    let again = Server::start_in(folder, &["--memcached", "off", "--admin", "off"]);
    assert!(
        again.ready.starts_with("ready memcached=off redis=127.0.0.1:"),
        "{}",
        again.ready
    );
    assert!(again.ready.contains(" admin=off data="), "{}", again.ready);
    let (code, log, _) = again.stop();
    assert_eq!((code, log.contains("admin token")), (Some(0), false), "{log}");
}

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
    assert_eq!(lines[1][..3], ["default", "idle", "s3fifo"]);
    assert_eq!(lines[2][..6], ["shop", "idle", "clock", "-", "16.0", "MiB"]);

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
    let removed = server.run(&["tenant", "remove", "shop"]);
    assert!(
        removed.status.success() && stdout(&removed).is_empty(),
        "{}",
        stderr(&removed)
    );
    assert_eq!(server.run(&["tenant", "show", "shop"]).status.code(), Some(NOT_FOUND));
    server.stop();
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
            vec!["tenant", "remove", "nobody"],
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
            vec!["tenant", "set", "shop", "--hit-ratio", "0.9"],
            USAGE,
            vec!["--hit-ratio 0.9: not available in this version"],
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
    check_fails(&["top"], USAGE, &["`tidemark top` is not available in this version"]);
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
    // The environment wins over the file: only what the file decides is changed by it.
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
    // What is printed is a configuration that says the same.
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
    check_fails(
        &["serve", "--tls-cert", "x"],
        USAGE,
        &["--tls-cert x", "not available in this version"],
    );
    check_fails(
        &["serve", "--prices", "x"],
        USAGE,
        &["--prices x", "not available in this version"],
    );
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
    let taken = TcpListener::bind(free).unwrap().local_addr().unwrap();
    let _holder = TcpListener::bind(taken).unwrap();
    let taken = taken.to_string();
    for (flag, is_made) in [("--admin", false), ("--redis", true), ("--redis", false)] {
        let mut arguments = arguments;
        let place = arguments.iter().position(|argument| *argument == flag).unwrap();
        arguments[place + 1] = &taken;
        let message = stderr(&run(&arguments));
        assert!(message.contains("is taken"), "{message}");
        assert_eq!(
            message.contains("admin token (shown this once"),
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
        // Not of the form of a secret: the server stores it.
        (
            "shop",
            &nobody_s[1..].to_owned(),
            DENIED,
            "did not take the login of tenant `shop`",
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
    let begun = std::time::Instant::now();
    while server.json(&["tenant", "show", "default"])["items"] != 0 {
        assert!(begun.elapsed().as_secs() < 10, "the login stays as a value");
    }
    server.stop();
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
    assert!(server.run(&["tenant", "remove", "default"]).status.success());
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
