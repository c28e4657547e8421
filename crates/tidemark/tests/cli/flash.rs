//! Flash below memory: real clients' bytes against the real server, whose memory is far too small for their items.

mod denied;
mod shown;
mod within;

use std::collections::HashSet;
use std::io::Write as _;
use std::net::TcpStream;

use tidemark_flash::device::FileDevice;

use super::*;

const MEMORY: &str = "8MiB";
const FLASH: &str = "96MiB";
const FLASH_BYTES: u64 = 96 << 20;
/// Far more bytes than memory has room for, and fewer than flash has.
const KEYS: usize = 40_000;
const BATCH: usize = 500;
/// A write drops items with its tag on flash unread, which hits another key in some 5,000.
const FOUND_MIN: usize = KEYS - KEYS / 500;

/// A client that sends many commands before it reads.
struct Client(BufReader<TcpStream>);

/// A reply of RESP2; errors and simple strings with their sign.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Line(String),
    Number(i64),
    Bulk(Option<String>),
    Array(Vec<Reply>),
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.to_owned()))
}

const NONE: Reply = Reply::Bulk(None);

fn ok() -> Reply {
    Reply::Line("+OK".to_owned())
}

impl Client {
    fn connect(server: &Server, listener: &str) -> Self {
        let address = server.ready.split(' ').find_map(|word| word.strip_prefix(listener));
        let socket = TcpStream::connect(address.unwrap().trim_start_matches('=')).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(socket))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end_matches("\r\n").to_owned()
    }

    fn reply(&mut self) -> Reply {
        let line = self.line();
        let (sign, rest) = line.split_at(1);
        match sign {
            ":" => Reply::Number(rest.parse().unwrap()),
            "$" if rest == "-1" => NONE,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                bulk(&String::from_utf8(bytes).unwrap())
            }
            "*" => Reply::Array((0..rest.parse().unwrap()).map(|_| self.reply()).collect()),
            _ => Reply::Line(line),
        }
    }

    fn all(&mut self, commands: &[Vec<String>]) -> Vec<Reply> {
        let array = |command: &Vec<String>| {
            let args = command.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len()));
            format!("*{}\r\n{}", command.len(), args.collect::<String>())
        };
        self.write(commands.iter().map(array).collect::<String>().as_bytes());
        commands.iter().map(|_| self.reply()).collect()
    }

    fn one(&mut self, command: &str) -> Reply {
        let words = command.split(' ').map(str::to_owned).collect();
        self.all(&[words]).remove(0)
    }

    fn fill(&mut self, range: std::ops::Range<usize>, version: usize) {
        for first in range.clone().step_by(BATCH) {
            let batch = first..range.end.min(first + BATCH);
            let set = |n| vec!["SET".to_owned(), key(n), value(n, version)];
            let replies = self.all(&batch.map(set).collect::<Vec<_>>());
            assert!(replies.iter().all(|reply| *reply == ok()), "{replies:?}");
        }
    }

    /// The number of the keys that are there. Each of them has this version.
    fn count(&mut self, range: std::ops::Range<usize>, version: usize) -> usize {
        let mut found = 0;
        for first in range.clone().step_by(BATCH) {
            let batch = first..range.end.min(first + BATCH);
            let get = |n| vec!["GET".to_owned(), key(n)];
            let replies = self.all(&batch.clone().map(get).collect::<Vec<_>>());
            for (n, reply) in batch.zip(replies) {
                assert!(reply == NONE || reply == bulk(&value(n, version)), "key {n}: {reply:?}");
                found += usize::from(reply != NONE);
            }
        }
        found
    }

    /// memcached: the lines of the answer up to one that ends it.
    fn text(&mut self, request: &str) -> Vec<String> {
        self.write(request.as_bytes());
        let mut lines = Vec::new();
        loop {
            lines.push(self.line());
            let last = lines.last().map_or("", String::as_str);
            if !last.starts_with("VALUE ") && !last.starts_with('v') {
                return lines;
            }
            lines.push(self.line());
        }
    }
}

fn key(n: usize) -> String {
    format!("key-{n}")
}

fn value(n: usize, version: usize) -> String {
    format!("{n}.{version} ").repeat(40 + n % 60)
}

fn start(folder: TempDir) -> Server {
    let flash = folder.path().join("flash");
    if !flash.exists() {
        // The same hash each time: a write drops what has its tag unread, and none of the keys that are asked for is to be.
        let device = FileDevice::open(&flash, FLASH_BYTES).unwrap();
        tidemark_flash::format(&device, [5; 24]).unwrap();
    }
    let arguments = [
        "--memory",
        MEMORY,
        "--flash",
        flash.to_str().unwrap(),
        "--flash-size",
        FLASH,
    ];
    Server::start_in(folder, &arguments)
}

#[test]
fn every_command_finds_what_memory_evicted() {
    let server = start(tempfile::tempdir().unwrap());
    let mut client = Client::connect(&server, "redis");
    // First, so that all of it is on flash at the end.
    for n in 0..40 {
        let set = format!("SET old-{n} {n}");
        assert_eq!(client.one(&set), ok());
    }
    assert_eq!(client.one("SET timed 7 EX 1000"), ok());
    client.fill(0..KEYS, 1);
    let mut memcached = Client::connect(&server, "memcached");
    // The seconds that filling took have passed.
    let ttl = client.one("TTL timed");
    assert!(matches!(ttl, Reply::Number(940..=1000)), "{ttl:?}");
    for (command, reply) in [
        ("EXISTS old-0", Reply::Number(1)),
        ("STRLEN old-11", Reply::Number(2)),
        ("TTL old-2", Reply::Number(-1)),
        ("SET old-3 new NX", NONE),
        ("GET old-3", bulk("3")),
        ("SET old-4 new XX", ok()),
        ("GET old-4", bulk("new")),
        ("SET old-5 new GET", bulk("5")),
        ("SETNX old-6 new", Reply::Number(0)),
        ("APPEND old-7 x", Reply::Number(2)),
        ("INCR old-8", Reply::Number(9)),
        ("GETDEL old-9", bulk("9")),
        ("GETEX old-10 EX 100", bulk("10")),
        ("DEL old-12 old-13 absent", Reply::Number(2)),
        ("GET old-12", NONE),
        ("EXISTS old-13 old-14 old-15", Reply::Number(2)),
        ("TOUCH old-16", Reply::Number(1)),
        ("TYPE old-17", Reply::Line("+string".to_owned())),
        ("EXPIRE old-18 100", Reply::Number(1)),
        ("RENAME old-19 old-19b", ok()),
        ("GET old-19b", bulk("19")),
        ("RENAMENX old-20 old-21", Reply::Number(0)),
        ("MSETNX old-22 x fresh y", Reply::Number(0)),
        (
            "MGET old-23 absent old-24",
            Reply::Array(vec![bulk("23"), NONE, bulk("24")]),
        ),
        ("GETRANGE old-25 0 0", bulk("2")),
        ("PERSIST timed", Reply::Number(1)),
        ("GETSET old-26 new", bulk("26")),
        ("WATCH old-27", ok()),
        ("MULTI", ok()),
        ("GET old-28", Reply::Line("+QUEUED".to_owned())),
        ("INCR old-29", Reply::Line("+QUEUED".to_owned())),
        ("EXEC", Reply::Array(vec![bulk("28"), Reply::Number(30)])),
    ] {
        assert_eq!(client.one(command), reply, "{command}");
    }
    for (request, answer) in [
        (
            "get old-30 absent old-31\r\n",
            &["VALUE old-30 0 2", "30", "VALUE old-31 0 2", "31", "END"][..],
        ),
        ("add old-32 0 0 1\r\nx\r\n", &["NOT_STORED"]),
        ("replace old-33 5 0 1\r\nx\r\n", &["STORED"]),
        ("append old-34 0 0 1\r\nx\r\n", &["STORED"]),
        ("get old-34\r\n", &["VALUE old-34 0 3", "34x", "END"]),
        ("incr old-35 5\r\n", &["40"]),
        ("touch old-36 100\r\n", &["TOUCHED"]),
        ("delete old-37\r\n", &["DELETED"]),
        ("delete old-37\r\n", &["NOT_FOUND"]),
        ("mg old-38 v\r\n", &["VA 2", "38"]),
        ("md old-39\r\n", &["HD"]),
    ] {
        let lines: Vec<String> = if request.starts_with("mg ") {
            memcached.write(request.as_bytes());
            vec![memcached.line(), memcached.line()]
        } else {
            memcached.text(request)
        };
        assert_eq!(lines, answer, "{request}");
    }
    memcached.write(b"me old-1\r\n");
    assert!(memcached.line().starts_with("ME old-1 "));
    let found = client.count(0..KEYS, 1);
    assert!(found >= FOUND_MIN, "{found} of {KEYS}");
    assert_eq!(client.one("FLUSHALL"), ok());
    assert_eq!(client.count(0..KEYS, 1), 0);
    let (code, log, _) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}

/// The keys that a walk of SCAN meets, with `between` done after each call.
fn scan(client: &mut Client, options: &str, mut between: impl FnMut(&mut Client)) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Array(parts) = client.one(&format!("SCAN {cursor}{options}")) else {
            panic!("SCAN {cursor}{options}");
        };
        let [Reply::Bulk(Some(next)), Reply::Array(found)] = &parts[..] else {
            panic!("{parts:?}");
        };
        keys.extend(found.iter().map(text));
        assert!(next.parse::<u64>().unwrap() < 1 << 53, "{next}");
        if next == "0" {
            return keys;
        }
        cursor.clone_from(next);
        between(client);
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(Some(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn walks_meet_keys_that_lie_on_flash_only() {
    let server = start(tempfile::tempdir().unwrap());
    let mut client = Client::connect(&server, "redis");
    client.fill(0..KEYS, 1);
    let Reply::Number(all) = client.one("DBSIZE") else {
        panic!()
    };
    assert!(all as usize >= FOUND_MIN, "{all}");
    let met: HashSet<String> = scan(&mut client, "", |_| ()).into_iter().collect();
    assert_eq!(met.len(), all as usize, "nothing else happens");
    // Others read and write meanwhile, so that keys come from flash and go there.
    let (mut other, mut next) = (Client::connect(&server, "redis"), 0);
    let met: HashSet<String> = scan(&mut client, " COUNT 100", |_| {
        other.count(next % KEYS..next % KEYS + BATCH, 1);
        next += 7 * BATCH;
        other.one(&format!("SET other-{next} {}", "x".repeat(2000)));
    })
    .into_iter()
    .collect();
    let missed: Vec<usize> = (0..KEYS).filter(|n| !met.contains(&key(*n))).collect();
    let there = missed
        .iter()
        .filter(|n| client.one(&format!("GET {}", key(**n))) != NONE);
    assert_eq!(there.count(), 0, "there all the time, and not met");
    // Each once, and all that match.
    let Reply::Array(found) = client.one("KEYS key-123*") else {
        panic!()
    };
    let found: Vec<String> = found.iter().map(text).collect();
    let mut expected: Vec<String> = (0..KEYS).map(key).filter(|key| key.starts_with("key-123")).collect();
    expected.retain(|key| client.one(&format!("GET {key}")) != NONE);
    assert!(expected.len() > 100, "{expected:?}");
    let sorted = |mut keys: Vec<String>| {
        keys.sort_unstable();
        keys
    };
    assert_eq!(sorted(found), sorted(expected));
    let matching = scan(&mut client, " MATCH key-1234?", |_| ());
    assert!(matching.len() >= 9 && matching.iter().all(|key| key.starts_with("key-1234")));
    let Reply::Line(refused) = client.one("KEYS *") else {
        panic!()
    };
    assert!(refused.starts_with("-ERR") && refused.contains("SCAN"), "{refused}");
    // Memory has the newest fourth of them.
    let random: Vec<String> = (0..50).map(|_| text(&client.one("RANDOMKEY"))).collect();
    assert!(
        random
            .iter()
            .all(|key| client.one(&format!("EXISTS {key}")) == Reply::Number(1))
    );
    let is_old = |key: &&String| {
        key.strip_prefix("key-")
            .is_some_and(|n| n.parse::<usize>().unwrap() < KEYS / 4)
    };
    assert!(random.iter().any(|key| is_old(&key)), "{random:?}");
    assert_eq!(client.one("SELECT 3"), ok());
    assert_eq!(scan(&mut client, "", |_| ()), Vec::<String>::new());
    assert_eq!(client.one("RANDOMKEY"), NONE);
    server.stop();
}

#[test]
fn what_is_on_flash_survives_restarts_and_kills_and_nothing_stale_does() {
    let mut server = start(tempfile::tempdir().unwrap());
    for version in 1..=4 {
        let mut client = Client::connect(&server, "redis");
        client.fill(0..KEYS, version);
        // More than memory has room for, so that all of this version is on flash or nowhere.
        let found = client.count(0..KEYS, version);
        assert!(found >= FOUND_MIN, "{found} of {KEYS} of version {version}");
        let dead: Vec<Vec<String>> = (0..BATCH).map(|n| vec!["DEL".to_owned(), key(n)]).collect();
        client.all(&dead);
        let is_killed = version % 2 == 0;
        let folder = if is_killed {
            // A delete of the last tenth of a second may be undone.
            std::thread::park_timeout(Duration::from_millis(400));
            server.signal(Signal::KILL);
            server.child.wait().unwrap();
            std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap())
        } else {
            server.stop().2
        };
        server = start(folder);
        // A snapshot of the index lies there in each case; after a kill it is an older one.
        server.wait_for_log("flash is open");
        assert_eq!(
            (
                server.log.contains("\"index\":\"snapshot\""),
                server.log.contains("\"index\":\"footers\"")
            ),
            (!is_killed, is_killed),
            "{}",
            server.log
        );
        let mut client = Client::connect(&server, "redis");
        assert_eq!(client.count(0..BATCH, version), 0, "deleted");
        // Items in memory are lost, and after a kill also those that were not written yet.
        let found = client.count(BATCH..KEYS, version);
        assert!(found >= KEYS / 2, "{found} of {KEYS}");
    }
}

#[test]
fn a_strict_tenant_s_deletes_are_not_undone_by_a_kill_right_after_the_reply() {
    let mut server = start(tempfile::tempdir().unwrap());
    let set = server.json(&[
        "tenant",
        "set",
        "default",
        "--staleness",
        "strict",
        "--flash-cap",
        "64MiB",
    ]);
    assert_eq!(set["flash"]["staleness"], "strict", "{set}");
    let mut client = Client::connect(&server, "redis");
    client.fill(0..KEYS, 1);
    assert!(client.count(0..KEYS, 1) >= FOUND_MIN);
    let dead: Vec<Vec<String>> = (0..BATCH).map(|n| vec!["DEL".to_owned(), key(n)]).collect();
    let replies = client.all(&dead);
    server.signal(Signal::KILL);
    server.child.wait().unwrap();
    let deleted = replies.iter().filter(|reply| **reply == Reply::Number(1)).count();
    assert!(deleted >= BATCH - BATCH / 100, "{deleted}");
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    server = start(folder);
    let mut client = Client::connect(&server, "redis");
    assert_eq!(client.count(0..BATCH, 1), 0, "deleted");
    assert!(client.count(BATCH..KEYS, 1) >= KEYS / 2);
}

#[test]
fn what_is_not_a_flash_file_of_this_server_is_refused_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text = "not a flash file".repeat(10_000);
    std::fs::write(path("text"), &text).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    let data = path("data");
    let options = |flash: &str, more: &[&str]| {
        let mut all = vec![
            "serve",
            "--memcached",
            "off",
            "--redis",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--data",
            &data,
        ];
        all.extend(["--flash", flash]);
        all.extend(more);
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for (flash, more, code, part) in [
        (path("text"), &["--flash-size", "32MiB"][..], FAILED, "not empty"),
        (path("folder"), &["--flash-size", "32MiB"], FAILED, "folder"),
        (path("absent/flash"), &["--flash-size", "32MiB"], FAILED, "No such file"),
        (path("new"), &["--flash-size", "1MiB"], USAGE, "--flash-size 1MiB"),
        (path("new"), &[], USAGE, "--flash-size"),
    ] {
        let arguments = options(&flash, more);
        let output = tidemark().args(&arguments).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(part), "{part}: {message}");
    }
    let bytes = std::fs::read(path("text")).unwrap();
    assert_eq!(&bytes[..text.len()], text.as_bytes());
    // One that another server uses.
    let server = start(tempfile::tempdir().unwrap());
    let used = server.folder.path().join("flash").to_str().unwrap().to_owned();
    let output = tidemark()
        .args(options(&used, &["--flash-size", FLASH]))
        .output()
        .unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(FAILED), "{message}");
    assert!(message.contains("another process"), "{message}");
}
