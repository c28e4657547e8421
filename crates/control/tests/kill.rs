//! The state file under `kill -9`: acknowledged changes are there afterwards, and no change is there by half.
//!
//! The writer is this test binary itself, started again with a folder in its environment. It does the same sequence of
//! changes every time and writes a line after each; the parent kills it at a random moment and compares.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]
#![expect(
    clippy::print_stdout,
    reason = "the writer acknowledges on its output, which the harness keeps otherwise"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidemark_control::{SecretName, SecretText, State, StateFile, StoredSecret, TenantRecord, TenantSettings};
use tidemark_types::{Clock, Permissions, SystemClock, UnixMs};

const FOLDER: &str = "TIDEMARK_TEST_KILL_FOLDER";
const KILLS: usize = 25;
/// Longer than any start of the writer takes, so that kills fall into its work.
const LONGEST_RUN: Duration = Duration::from_millis(60);

/// The writer says `ack NUMBER` after each change. Change `n` is about tenant `n / 3`: create it, raise its version
/// with a second secret, and, if its number is even, remove it.
fn write_until(folder: &Path, changes: usize) {
    let mut file = StateFile::open(folder, SystemClock.now()).unwrap();
    let mut tenants: BTreeMap<usize, TenantRecord> = BTreeMap::new();
    for change in 0..changes {
        let number = change / 3;
        let settings = TenantSettings {
            cap_bytes: Some(1 << 20),
            ..TenantSettings::default()
        };
        match change % 3 {
            0 => {
                let name = format!("t{number}").parse().unwrap();
                tenants.insert(number, file.add_tenant(&name, settings, secret()).unwrap());
            }
            1 => {
                let tenant = tenants.get_mut(&number).unwrap();
                tenant.version += 1;
                tenant.settings.cap_bytes = Some(2 << 20);
                tenant.secrets.push(secret());
                file.update_tenant(tenant).unwrap();
            }
            _ if number.is_multiple_of(2) => file.remove_tenant(tenants[&number].id).unwrap(),
            _ => continue,
        }
        println!("ack {change}");
    }
}

fn secret() -> StoredSecret {
    StoredSecret {
        name: SecretName::default(),
        hash: SecretText::generate().unwrap().hash(),
        permissions: Permissions::ALL,
        created_at: UnixMs(1),
    }
}

/// Whether the tenants in the file are those after some change from `acknowledged` to one more.
fn check(folder: &Path, acknowledged: Option<usize>) {
    let file = StateFile::open(folder, SystemClock.now()).unwrap();
    let found: Vec<(String, u64, Option<u64>, usize)> = file
        .tenants()
        .unwrap()
        .into_iter()
        .map(|t| (t.name.to_string(), t.version, t.settings.cap_bytes, t.secrets.len()))
        .collect();
    let least = acknowledged.map_or(0, |change| change + 1);
    // An odd tenant's third change is none: the change in flight may be the one after it.
    let possible: Vec<_> = (least..=least + 2).map(state_after).collect();
    assert!(
        possible.contains(&found),
        "after {acknowledged:?}: {:?}",
        &found[found.len().saturating_sub(3)..]
    );
}

/// The tenants after the first `changes` changes.
fn state_after(changes: usize) -> Vec<(String, u64, Option<u64>, usize)> {
    let mut tenants = vec![("default".into(), 1, None, 0)];
    for number in 0..changes.div_ceil(3) {
        let done = (changes - number * 3).min(3);
        let is_removed = done == 3 && number.is_multiple_of(2);
        if !is_removed {
            let step = done.min(2);
            tenants.push((format!("t{number}"), step as u64, Some((step as u64) << 20), step));
        }
    }
    tenants
}

#[test]
fn the_writer_leaves_what_it_acknowledged() {
    if let Ok(folder) = std::env::var(FOLDER) {
        write_until(Path::new(&folder), usize::MAX);
    }
    let folder = tempfile::tempdir().unwrap();
    for changes in [1, 2, 3, 4, 5, 6, 12] {
        let folder = folder.path().join(changes.to_string());
        write_until(&folder, changes);
        check(&folder, changes.checked_sub(1));
    }
}

#[test]
fn killed_at_any_moment_nothing_acknowledged_is_lost() {
    let seed = SystemClock.now().0;
    println!("seed {seed}");
    let mut random = seed;
    let mut acknowledged = 0;
    for round in 0..KILLS {
        let folder = tempfile::tempdir().unwrap();
        // xorshift (Marsaglia 2003): any spread of moments will do.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let run = LONGEST_RUN.mul_f64((random % 1000) as f64 / 1000.0);
        // The first few die while the file is being made, the others after some changes at least, however slow the disk.
        let changes = if round < 5 { 0 } else { 1 + (random >> 32) as usize % 8 };
        let last = kill_after(folder.path(), run, changes);
        acknowledged += last.map_or(0, |change| change + 1);
        check(folder.path(), last);
    }
    assert!(
        acknowledged >= KILLS - 5,
        "only {acknowledged} changes in {KILLS} runs (seed {seed})"
    );
}

/// Runs the writer for a while after so many acknowledgements; the last change that it acknowledged.
fn kill_after(folder: &Path, run: Duration, changes: usize) -> Option<usize> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_writer_leaves_what_it_acknowledged",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while text.matches("ack ").count() < changes {
        assert!(lines.read_line(&mut text).unwrap() > 0, "the writer ended: {text}");
    }
    let deadline = Instant::now() + run;
    while Instant::now() < deadline {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines.read_to_string(&mut text).unwrap();
    // A line that was cut off is not an acknowledgement.
    let whole = &text[..text.rfind('\n').unwrap_or(0)];
    whole
        .lines()
        .filter_map(|line| line.split_once("ack ")?.1.trim().parse().ok())
        .next_back()
}
