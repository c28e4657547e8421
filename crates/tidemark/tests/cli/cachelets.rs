//! `tidemark demo cachelets`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Running, USAGE, run, stderr, stdout, tidemark};

#[test]
fn nodes_share_what_functions_read() {
    let output = run(&["demo", "cachelets", "--duration", "18s", "--phase", "6s", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let shown: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let lines = shown["lines"].as_array().unwrap();
    let sum = |place: &str| -> u64 {
        lines
            .iter()
            .map(|line| line.pointer(place).unwrap().as_u64().unwrap())
            .sum()
    };
    for place in ["/calls", "/reads/copy", "/messages", "/store_calls"] {
        assert!(sum(place) > 0, "{place}: {shown:#}");
    }
    assert_eq!(sum("/failed"), 0, "{}", stderr(&output));
    let of = |load: &'static str| lines.iter().filter(move |line| line["load"] == load);
    let hits = |load| {
        of(load)
            .filter_map(|line| line["hit_ratio"].as_f64())
            .fold(0.0, f64::max)
    };
    assert!(hits("shared") > 0.9, "{shown:#}");
    assert!(of("read once").count() == 0 || hits("read once") < 0.5, "{shown:#}");
    let loads: std::collections::BTreeSet<_> = lines.iter().map(|line| line["load"].as_str().unwrap()).collect();
    assert!(loads.len() > 1, "{loads:?}");
    assert!(
        lines.iter().all(|line| line["config"]["coherence"].is_string()),
        "{shown:#}"
    );
}

#[test]
fn ctrl_c_ends_all_that_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tidemark();
    command
        .args(["demo", "cachelets", "--duration", "1h"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert!(first.contains("CONFIGURATION"), "{first}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    // Whoever were left would hold the pipe open, so that it has no end; the folder is removed at the very last.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn times_are_checked() {
    for time in ["0s", "25h", "soon"] {
        let refused = run(&["demo", "cachelets", "--duration", time]);
        assert_eq!(refused.status.code(), Some(USAGE), "{time}: {}", stderr(&refused));
    }
}
