//! Backups of a server that runs and of one that was killed, and backups and restores that are killed.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;

use super::*;

fn names(server: &Server) -> Vec<String> {
    let tenants = server.json(&["tenant", "list"]);
    let tenants = tenants["tenants"].as_array().unwrap().iter();
    tenants
        .map(|tenant| tenant["name"].as_str().unwrap().to_owned())
        .collect()
}

fn restored(archive: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["restore", archive, "--data", &data(&folder)]);
    assert!(output.status.success(), "{}", stderr(&output));
    Server::start_in(folder, &[])
}

#[test]
fn each_backup_of_a_busy_server_is_one_moment_of_it() {
    let mut server = Server::start(&["--ledger-period", "1s"]);
    let backups = tempfile::tempdir().unwrap();
    let path = |number: usize| backups.path().join(format!("{number}.tar")).display().to_string();
    let data = server.data();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..30 {
                let output = run(&["tenant", "create", &format!("t{number:02}"), "--data", &data]);
                assert!(output.status.success(), "{}", stderr(&output));
            }
        });
        for number in 0..6 {
            let output = run(&["backup", &path(number), "--data", &data, "--json"]);
            assert!(output.status.success(), "{}", stderr(&output));
            let backup: Value = serde_json::from_str(&stdout(&output)).unwrap();
            let files = backup["files"].as_array().unwrap();
            let has = |name: &str| files.iter().any(|file| file["name"] == name);
            assert!(
                has("state.sqlite") && has("ledger.sqlite") && has("admin.token"),
                "{backup}"
            );
        }
        writer.join().unwrap();
    });
    let all = names(&server);
    assert_eq!(all.len(), 31);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let after_kill = path(6);
    assert!(run(&["backup", &after_kill, "--data", &data]).status.success());
    let mut before = 0;
    for number in 0..7 {
        let found = names(&restored(&path(number)));
        assert_eq!(found, all.get(..found.len()).unwrap(), "backup {number}");
        assert!(found.len() >= before, "backup {number} is older than the one before it");
        before = found.len();
    }
    assert_eq!(before, 31, "a kill loses nothing");
}

#[test]
fn a_restore_is_refused_where_it_would_lose_something() {
    let server = Server::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("backup.tar").display().to_string();
    let data = server.data();
    assert!(run(&["backup", &archive, "--data", &data]).status.success());
    check_fails(
        &["backup", &archive, "--data", &data],
        FAILED,
        &[&archive, "exists already"],
    );
    check_fails(
        &["restore", &archive, "--data", &data, "--replace"],
        FAILED,
        &["in use by another Tidemark"],
    );
    let folder = tempfile::tempdir().unwrap();
    let other = super::data(&folder);
    check_fails(
        &["restore", "/dev/null", "--data", &other],
        FAILED,
        &["no backup of Tidemark"],
    );
    assert!(run(&["restore", &archive, "--data", &other]).status.success());
    check_fails(&["restore", &archive, "--data", &other], FAILED, &["--replace"]);
    assert!(
        run(&["restore", &archive, "--data", &other, "--replace"])
            .status
            .success()
    );
}

/// Ends a process at once when something is so, if it has not ended before.
fn kill_when(mut process: Running, is_so: impl Fn() -> bool) {
    while process.try_wait().unwrap().is_none() && !is_so() {
        std::thread::yield_now();
    }
    // One that has ended is not there to be killed.
    let _ = process.kill();
    process.wait().unwrap();
}

/// A command that goes on by itself.
fn begin(arguments: &[&str]) -> Running {
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Running(quiet(tidemark().args(arguments)))
}

/// The tenants that a load makes, with which floor and cap each: every one has a cap of twice its floor.
fn sizes(server: &Server) -> Vec<(String, u64, u64)> {
    let tenants = server.json(&["tenant", "list"]);
    let tenants = tenants["tenants"].as_array().unwrap().iter().skip(1);
    let number = |goals: &Value, name: &str| goals[name].as_u64().unwrap();
    tenants
        .map(|tenant| {
            let (name, goals) = (tenant["name"].as_str().unwrap().to_owned(), &tenant["goals"]);
            (name, number(goals, "floor_bytes"), number(goals, "cap_bytes"))
        })
        .collect()
}

/// Makes tenants and changes them, as long as there is a server; counts those that it was answered for.
fn change_tenants(data: &str, made: &AtomicUsize) {
    for number in 0..20 {
        let name = format!("t{number:02}");
        let create = ["tenant", "create", &name, "--floor", "1MiB", "--cap", "2MiB"];
        let change = ["tenant", "set", &name, "--floor", "2MiB", "--cap", "4MiB"];
        for (arguments, is_new) in [(create, true), (change, false)] {
            if !run(&[&arguments[..], &["--data", data]].concat()).status.success() {
                return;
            }
            made.fetch_add(usize::from(is_new), Ordering::SeqCst);
        }
    }
}

/// Writes and reads items as long as there is a server.
fn use_items(address: &str, is_over: &AtomicBool) {
    let mut socket = TcpStream::connect(address).unwrap();
    let mut reply = [0; 1024];
    for number in 0_u64.. {
        let request = format!("set k{} 0 0 5\r\nvalue\r\n", number % 1000);
        let is_gone = socket.write_all(request.as_bytes()).is_err() || !matches!(socket.read(&mut reply), Ok(1..));
        if is_gone || is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn a_server_that_is_killed_while_it_is_backed_up_leaves_one_moment_of_it() {
    // The moments: parts of the backup, each of which is there before the next one.
    for part in ["", "state.sqlite", "ledger.sqlite", "archive"] {
        let server = Server::start(&["--ledger-period", "1s"]);
        let data = server.data();
        let address = server.ready.split(' ').find_map(|word| word.strip_prefix("memcached="));
        let address = address.unwrap().to_owned();
        let place = tempfile::tempdir().unwrap();
        let archive = place.path().join("backup.tar").display().to_string();
        let (made, is_over) = (&AtomicUsize::new(0), &AtomicBool::new(false));
        let (before, folder) = std::thread::scope(|scope| {
            scope.spawn(|| change_tenants(&data, made));
            scope.spawn(|| use_items(&address, is_over));
            let begun = Instant::now();
            while made.load(Ordering::SeqCst) < 3 {
                assert!(begun.elapsed() < PATIENCE, "nothing is made");
                std::thread::yield_now();
            }
            let before = made.load(Ordering::SeqCst);
            let mut backup = begin(&["backup", &archive, "--data", &data]);
            let begun = format!("{archive}.partial-{}/{part}", backup.id());
            let Server { child, folder, .. } = server;
            let is_there = || Path::new(&begun).exists() || Path::new(&archive).exists();
            kill_when(child, is_there);
            is_over.store(true, Ordering::Relaxed);
            assert!(backup.wait().unwrap().success(), "{part}");
            (before, folder)
        });
        // After the last answer there may be one change more.
        let all = made.load(Ordering::SeqCst);
        let after_kill = sizes(&Server::start_in(folder, &[]));
        assert!((all..=all + 1).contains(&after_kill.len()), "{part}: {after_kill:?}");
        let found = sizes(&restored(&archive));
        assert!(
            (before..=all + 1).contains(&found.len()),
            "{part}: {before} to {all}: {found:?}"
        );
        for (number, (name, floor, cap)) in found.iter().enumerate() {
            assert_eq!(*name, format!("t{number:02}"), "{part}: {found:?}");
            assert!(
                [1 << 20, 2 << 20].contains(floor) && *cap == 2 * floor,
                "{part}: {found:?}"
            );
        }
    }
}

#[test]
fn a_backup_that_is_killed_is_not_there_or_whole() {
    let server = Server::start(&["--ledger-period", "1s"]);
    assert!(server.run(&["tenant", "create", "shop"]).status.success());
    let (data, place) = (server.data(), tempfile::tempdir().unwrap());
    for (number, part) in ["", "state.sqlite", "ledger.sqlite", "archive"].into_iter().enumerate() {
        let archive = place.path().join(format!("{number}.tar")).display().to_string();
        let backup = begin(&["backup", &archive, "--data", &data]);
        let begun = format!("{archive}.partial-{}/{part}", backup.id());
        kill_when(backup, || Path::new(&begun).exists());
        if !Path::new(&archive).exists() {
            // Nothing of the one that was killed is in the way.
            assert!(run(&["backup", &archive, "--data", &data]).status.success());
        }
        assert_eq!(names(&restored(&archive)), ["default", "shop"], "{part}");
    }
    assert_eq!(names(&server), ["default", "shop"]);
}

#[test]
fn a_restore_that_is_killed_is_done_whole_or_not_at_all() {
    let server = Server::start(&["--ledger-period", "1s"]);
    assert!(server.run(&["tenant", "create", "new"]).status.success());
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("backup.tar").display().to_string();
    assert!(run(&["backup", &archive, "--data", &server.data()]).status.success());
    for part in [
        "restore.partial",
        "restore.partial/state.sqlite",
        "restore.new",
        "replaced",
    ] {
        let other = Server::start(&[]);
        assert!(other.run(&["tenant", "create", "old"]).status.success());
        let (_, _, folder) = other.stop();
        let data = data(&folder);
        let restore = begin(&["restore", &archive, "--data", &data, "--replace"]);
        let has = |name: &str| {
            let mut files = std::fs::read_dir(&data).unwrap();
            files.any(|file| file.unwrap().file_name().to_string_lossy().starts_with(name))
        };
        kill_when(restore, || {
            Path::new(&data).join(part).exists() || (part == "replaced" && has(part))
        });
        let is_decided = has("restore.new") || has("replaced");
        let found = names(&Server::start_in(folder, &[]));
        let expected = if is_decided { "new" } else { "old" };
        assert_eq!(found, ["default", expected], "{part}");
    }
}
