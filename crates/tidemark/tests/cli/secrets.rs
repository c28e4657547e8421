//! Secrets as clients and operators have them: side by side, rotated apart, of one's own, and never in a log.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::*;

/// The commands that a secret allows: reading, writing.
const NONE: [bool; 2] = [false, false];
const READ: [bool; 2] = [true, false];
const BOTH: [bool; 2] = [true, true];

/// A login as `shop`, and which commands it allows.
fn may(server: &Server, secret: &str) -> [bool; 2] {
    let address = server.ready.split(' ').find_map(|word| word.strip_prefix("redis="));
    let mut socket = BufReader::new(TcpStream::connect(address.unwrap()).unwrap());
    let mut ask = |line: &str| {
        socket.get_mut().write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        socket.read_line(&mut reply).unwrap();
        reply
    };
    let login = ask(&format!("AUTH shop {secret}\r\n"));
    if login != "+OK\r\n" {
        assert!(login.starts_with("-WRONGPASS "), "{login}");
        return NONE;
    }
    ["STRLEN k\r\n", "APPEND k v\r\n"].map(|line| {
        let reply = ask(line);
        assert!(reply.starts_with(':') || reply.starts_with("-NOPERM "), "{reply}");
        reply.starts_with(':')
    })
}

fn made(server: &Server, arguments: &[&str]) -> String {
    server.json(arguments)["secret"].as_str().unwrap().to_owned()
}

fn rotate(server: &Server, name: &str, more: &[&str]) -> String {
    made(
        server,
        &[&["tenant", "rotate", "shop", "--secret", name], more].concat(),
    )
}

fn check(server: &Server, secrets: &[(&str, [bool; 2])]) {
    for (number, (secret, allowed)) in secrets.iter().enumerate() {
        assert_eq!(may(server, secret), *allowed, "secret {number}");
    }
}

#[test]
fn a_reader_s_and_a_writer_s_secret_are_rotated_apart() {
    let server = Server::start(&[]);
    let owner = made(&server, &["tenant", "create", "shop"]);
    let writer = rotate(&server, "writer", &["--permissions", "read,write"]);
    let first = rotate(&server, "reader", &["--permissions", "read"]);
    let second = rotate(&server, "reader", &[]);
    check(
        &server,
        &[(&owner, BOTH), (&writer, BOTH), (&first, READ), (&second, READ)],
    );

    let refused = server.run(&["tenant", "rotate", "shop", "--secret", "reader"]);
    assert_eq!(refused.status.code(), Some(DENIED), "{}", stderr(&refused));
    check(&server, &[(&first, READ), (&second, READ)]);
    let finished = server.run(&["tenant", "rotate", "shop", "--secret", "reader", "--finish"]);
    assert!(finished.status.success(), "{}", stderr(&finished));
    check(
        &server,
        &[(&owner, BOTH), (&writer, BOTH), (&first, NONE), (&second, READ)],
    );
    let third = rotate(&server, "reader", &[]);
    let fourth = rotate(&server, "reader", &["--force"]);
    check(
        &server,
        &[(&second, NONE), (&third, READ), (&fourth, READ), (&writer, BOTH)],
    );

    // The permissions of one secret do not pass to the next one, which is asked for without a word of them.
    let less = rotate(&server, "default", &["--permissions", "read"]);
    let more = rotate(&server, "default", &["--force"]);
    check(&server, &[(&owner, NONE), (&less, READ), (&more, BOTH)]);
    let other = rotate(&server, "other", &[]);
    let (_, _, folder) = server.stop();
    let server = Server::start_in(folder, &[]);
    check(
        &server,
        &[(&other, BOTH), (&writer, BOTH), (&fourth, READ), (&first, NONE)],
    );
    let ended = server.run(&["tenant", "rotate", "shop", "--secret", "reader", "--end"]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    check(&server, &[(&third, NONE), (&fourth, NONE), (&writer, BOTH)]);
    server.stop();
}

#[test]
fn a_secret_of_ones_own_is_read_from_a_file_and_has_128_bits() {
    const OWN: &str = "0123456789abcdef0123456789abcdef";
    const NEXT: &str = "fedcba98765432100123456789abcdef";
    let server = Server::start(&[]);
    let file = server.folder.path().join("secret");
    let path = file.to_str().unwrap();
    for weak in [
        "short",
        // 120 bits, and 114 in base64.
        "0123456789abcdef0123456789abcd",
        "q0E8l5n1p2m3k4j5h6g",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "words with spaces that are long enough otherwise",
        "",
    ] {
        std::fs::write(&file, format!("{weak}\n")).unwrap();
        let refused = server.run(&["tenant", "create", "shop", "--secret-file", path]);
        assert!(!refused.status.success(), "{weak}");
        let message = stderr(&refused);
        assert!(message.contains("secret"), "{weak}: {message}");
        assert!(weak.is_empty() || !message.contains(weak), "{message}");
        assert_eq!(server.run(&["tenant", "show", "shop"]).status.code(), Some(NOT_FOUND));
    }
    std::fs::write(&file, format!("{OWN}\n")).unwrap();
    let created = server.run(&["tenant", "create", "shop", "--secret-file", path]);
    assert!(created.status.success(), "{}", stderr(&created));
    assert!(!(stdout(&created) + &stderr(&created)).contains(OWN));
    check(&server, &[(OWN, BOTH)]);

    // From another program, which has it from where it is kept.
    let mut child = tidemark()
        .args([
            "tenant",
            "rotate",
            "shop",
            "--secret",
            "reader",
            "--permissions",
            "read",
        ])
        .args(["--secret-file", "-"])
        .env("TIDEMARK_DATA", server.data())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(NEXT.as_bytes()).unwrap();
    let rotated = child.wait_with_output().unwrap();
    assert!(rotated.status.success(), "{}", stderr(&rotated));
    check(&server, &[(OWN, BOTH), (NEXT, READ)]);
    let (_, log, _) = server.stop();
    assert!(!log.contains(OWN) && !log.contains(NEXT), "{log}");
}

#[test]
fn the_admin_token_is_shown_on_a_terminal_only() {
    let token_in = |folder: &TempDir| {
        let file = Path::new(&data(folder)).join("admin.token");
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    };
    let (_, log, folder) = Server::start(&[]).stop();
    let is_made = "there is an admin token now";
    assert!(log.contains(is_made) && !log.contains(&token_in(&folder)), "{log}");

    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut server = Running(
        tidemark()
            .args(["serve", "--memory", "64MiB", "--data", &data(&folder)])
            .args([
                "--memcached",
                "127.0.0.1:0",
                "--redis",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
            ])
            .stdout(Stdio::piped())
            .stderr(terminal)
            .spawn()
            .unwrap(),
    );
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let (mut master, mut shown) = (File::from(master), Vec::new());
    let mut buffer = [0; 4096];
    // The read fails once nobody has the terminal any more.
    while let Ok(length @ 1..) = master.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..length]);
    }
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(ready.starts_with("ready "), "{ready}: {shown}");
    assert!(shown.contains(&token_in(&folder)), "{shown}");
    // It is shown this once.
    let (_, log, _) = Server::start_in(folder, &[]).stop();
    assert!(!log.contains(is_made), "{log}");
}
