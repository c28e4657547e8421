//! Whether a tenant's memory caches as much as it should. Two traces run at once as two tenants of a real server,
//! through the command, against a simulated cache of the same size. `make experiment NAME=replay-hit-ratio` is the same
//! in full.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]
#![expect(clippy::print_stderr, reason = "where the traces are not there, the test says so")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidemark_experiments::experiment::replay_hit_ratio::{
    MadeTrace, Memory, TOLERANCE_RATIO, TRACES, oracle_general, simulated_hit_ratio,
};
use tidemark_tools::trace::{Format, Trace};

/// The number of requests of each trace: enough to fill the caps many times, in seconds.
const REQUESTS: [usize; 2] = [500_000, 40_000];
const TENANTS: [&str; 2] = ["first", "second"];

/// A server on free ports, which ends with the test.
struct Server {
    child: Child,
    ready: String,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = tidemark(folder.path())
            .args(["serve", "--memory", "256MiB", "--admin", "off"])
            .args(["--memcached", "127.0.0.1:0", "--redis", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut ready).unwrap();
        Self { child, ready, folder }
    }

    fn address(&self, protocol: &str) -> &str {
        let mut words = self.ready.split(' ');
        words.find_map(|word| word.strip_prefix(protocol)).unwrap()
    }

    /// The output of a command about this server.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = tidemark(self.folder.path())
            .args(arguments)
            .arg("--json")
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed does not care how the server ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command without any variable of the caller's that it would follow.
fn tidemark(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEMARK_") {
            command.env_remove(name);
        }
    }
    command.env("TIDEMARK_DATA", folder.join("data")).stdin(Stdio::null());
    command
}

/// Replays both at once, each as a tenant with its cap, and holds each hit ratio against the simulation's.
fn check(traces: &[Vec<u8>; 2], caps: [&str; 2]) {
    let server = Server::start();
    let folder = server.folder.path();
    let path = |file: &str| folder.join(file).to_str().unwrap().to_owned();
    let mut secrets = String::new();
    for (tenant, cap) in TENANTS.into_iter().zip(caps) {
        let created = server.json(&["tenant", "create", tenant, "--cap", cap, "--policy", "fifo"]);
        secrets.push_str(&format!("{tenant} {}\n", created["secret"].as_str().unwrap()));
    }
    std::fs::write(path("secrets"), &secrets).unwrap();
    let sources = [0, 1].map(|index| {
        let file = path(&format!("{index}.oracleGeneral"));
        File::create(&file).unwrap().write_all(&traces[index]).unwrap();
        format!("{}={file}", TENANTS[index])
    });
    let secret_file = path("secrets");
    let address = server.address("memcached=");
    let report = server.json(&[
        "replay",
        &sources[0],
        &sources[1],
        "--secret-file",
        &secret_file,
        "--address",
        address,
    ]);

    for (index, login) in secrets.lines().enumerate() {
        let (tenant, secret) = login.split_once(' ').unwrap();
        let found = &report["traces"][index];
        assert_eq!(
            (
                found["tenant"].as_str(),
                found["requests"].as_u64(),
                found["refused"].as_u64()
            ),
            (Some(tenant), Some(REQUESTS[index] as u64), Some(0)),
            "{report}"
        );
        let memory = Memory::of(server.address("redis=").parse().unwrap(), tenant, secret).unwrap();
        let trace = Trace::from_reader("made", Cursor::new(traces[index].clone()), Format::OracleGeneral).unwrap();
        let expected = simulated_hit_ratio(trace, memory).unwrap();
        let measured = found["hit_ratio"].as_f64().unwrap();
        eprintln!("{tenant}: {measured:.4}, simulated {expected:.4}");
        assert!(
            (measured - expected).abs() <= TOLERANCE_RATIO,
            "{tenant}: {measured}, simulated {expected} in {memory:?}"
        );
        // A cache in which nothing is evicted, or nothing stays, would pass whatever its policy.
        assert!((0.05..0.98).contains(&expected), "{tenant}: {expected}");
    }
}

#[test]
fn generated_traces_have_the_hit_ratio_of_their_memory() {
    let [first, second] = [0, 1].map(|index| {
        let requests = REQUESTS[index] as u64;
        let made = TRACES[index].made;
        MadeTrace { requests, ..made }.bytes(7).unwrap()
    });
    // The smallest cap is left out. One of its sixteen segments is partly empty, and on a curve as steep as this
    // trace's that is more than a point.
    check(&[first, second], ["4MiB", "64MiB"]);
}

#[test]
fn real_traces_have_the_hit_ratio_of_their_memory() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| PathBuf::from(default), PathBuf::from);
    let paths = TRACES.each_ref().map(|trace| folder.join(trace.file));
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        // The test above makes the same assertion on generated traces.
        eprintln!("skipped: {} is not there", missing.display());
        return;
    }
    let traces = [0, 1].map(|index| {
        let requests = Trace::open(&paths[index], None).unwrap().map(Result::unwrap);
        oracle_general(requests.take(REQUESTS[index]))
    });
    check(&traces, ["1MiB", "64MiB"]);
}
