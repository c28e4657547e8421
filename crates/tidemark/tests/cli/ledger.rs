//! The ledger against the system's own figures, and where it can not be written.

use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::Value;

use super::deploy::address;
use super::usage::{exchange, rows, rows_with, sum};
use super::*;

/// The process's CPU time by the system, in seconds (proc_pid_stat(5)).
fn cpu_seconds(server: &Server) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap();
    let behind_name = text.rsplit_once(") ").unwrap().1;
    let mut fields = behind_name
        .split(' ')
        .skip(11)
        .map(|field| field.parse::<u64>().unwrap());
    let ticks = fields.next().unwrap() + fields.next().unwrap();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[test]
fn with_more_threads_than_cores_all_rows_add_up_to_the_process_s_cpu_time() {
    /// CPU time enough that the start of the server is a small part of it.
    const ENOUGH_SECONDS: f64 = 4.0;
    let cores = std::thread::available_parallelism().unwrap().get();
    let workers = (4 * cores).to_string();
    let server = Server::start(&["--ledger-period", "1s", "--workers", &workers]);
    let load = [
        "bench",
        "--address",
        address(&server, "memcached="),
        "--connections",
        "64",
        "--pipeline",
        "4",
        "--keys",
        "20000",
        "--seconds",
        "2",
        "--json",
    ];
    let mut requests = 0;
    // How much of the machine others leave for it is not known before.
    while cpu_seconds(&server) < ENOUGH_SECONDS {
        let report: Value = serde_json::from_str(&stdout(&run(&load))).unwrap();
        requests += report["requests"].as_u64().unwrap();
    }
    let used = cpu_seconds(&server);
    rows_with(&server, "use", "operations", requests as f64);
    let deadline = Instant::now() + PATIENCE;
    let (all, figures) = loop {
        let rows = rows(&server);
        let figures = ["use", "unattributed", "unexplained"].map(|kind| sum(&rows, kind, "cpu_seconds"));
        let all: f64 = figures.iter().sum();
        if all >= used * 0.98 {
            break (all, figures);
        }
        assert!(Instant::now() < deadline, "{figures:?} of {used} s");
    };
    let [_, unattributed, unexplained] = figures;
    let until_now = cpu_seconds(&server);
    assert!(
        all <= until_now * 1.02,
        "{figures:?} s, but only {until_now} s were used"
    );
    assert!(unexplained <= all * 0.02, "{figures:?}");
    assert!(unattributed <= all * 0.1, "{figures:?}");
    server.stop();
}

/// No file of the server may become longer than this from now on.
fn limit_files(server: &Server, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(Some(Pid::from_child(&server.child)), Resource::Fsize, limit).unwrap();
}

/// The disk is full for the ledger: its log can not grow.
fn fill_disk(server: &Server) {
    let log = Path::new(&server.data()).join("ledger.sqlite-wal");
    limit_files(server, Some(std::fs::metadata(log).unwrap().len()));
}

fn gets(server: &Server, count: usize) {
    let requests = "get none\r\n".repeat(count);
    exchange(server, "memcached=", requests.as_bytes(), "END\r\n".len() * count);
}

#[test]
fn on_a_full_disk_serving_goes_on_and_the_ledger_resumes() {
    let mut server = Server::start(&["--ledger-period", "1s"]);
    gets(&server, 1);
    rows_with(&server, "use", "operations", 1.0);
    fill_disk(&server);
    gets(&server, 500);
    server.wait_for_log("the ledger can not be written");
    gets(&server, 500);
    assert_eq!(server.json(&["tenant", "show", "default"])["name"], "default");
    assert_eq!(sum(&rows(&server), "use", "operations"), 1.0);
    limit_files(&server, None);
    server.wait_for_log("the ledger is written again");
    let rows = rows_with(&server, "use", "operations", 1001.0);
    assert_eq!(sum(&rows, "use", "operations"), 1001.0);
    let gaps = |rows: &[Value]| rows.iter().filter(|row| row["kind"] == "gap").count();
    assert_eq!(gaps(&rows), 0, "nothing was lost: {rows:?}");
    server.json(&["usage", "verify"]);

    // Killed on a full disk: what waited is gone, and the ledger says so.
    fill_disk(&server);
    gets(&server, 7);
    server.wait_for_log("the ledger can not be written");
    send(&server.child, Signal::KILL);
    server.child.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    drop(server);
    let server = Server::start_in(folder, &["--ledger-period", "1s"]);
    gets(&server, 3);
    let rows = rows_with(&server, "use", "operations", 1004.0);
    assert_eq!((sum(&rows, "use", "operations"), gaps(&rows)), (1004.0, 1), "{rows:?}");
    server.json(&["usage", "verify"]);
    server.stop();
}
