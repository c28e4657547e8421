//! Instructions of the whole server, counted by valgrind's callgrind: they hardly depend on the machine's other work.
//!
//! Under valgrind a server is some fifty times slower. The control plane's time is slowed with it, though less, so that its
//! share of an operation is larger here than it is in use.

use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::experiment::process::Process;

/// The program that runs another one and counts.
pub(super) const PROGRAM: &str = "valgrind";
/// The program that tells it to write down its counts.
const MESSENGER: &str = "vgdb";
/// The name of its files, in the process's folder.
const FILE: &str = "counts";

/// The arguments of [`PROGRAM`] before those of the program itself.
pub(super) fn arguments(folder: &Path) -> [String; 2] {
    [
        "--tool=callgrind".into(),
        format!("--callgrind-out-file={}", folder.join(FILE).display()),
    ]
}

/// Counts of one process, from moment to moment.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Files that were written.
    written: u32,
}

impl Counter {
    /// The instructions since the last call, or since the start.
    ///
    /// # Errors
    /// The process does not run under [`PROGRAM`], or its file cannot be read.
    pub(super) fn since_last(&mut self, process: &Process) -> Result<u64, Error> {
        let failed = |reason: String| Error::Program {
            program: MESSENGER.into(),
            reason,
        };
        let asked = Command::new(MESSENGER)
            .args([&format!("--pid={}", process.id()), "dump"])
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !asked.status.success() {
            return Err(failed(String::from_utf8_lossy(&asked.stderr).trim().to_owned()));
        }
        self.written += 1;
        let file = process.folder().join(format!("{FILE}.{}", self.written));
        let text = std::fs::read_to_string(&file).map_err(|error| failed(format!("{}: {error}", file.display())))?;
        total(&text).ok_or_else(|| failed(format!("{} has no total", file.display())))
    }
}

/// The total of a file in callgrind's format (its manual, 11.2.2).
fn total(text: &str) -> Option<u64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        let text = "# callgrind format\nevents: Ir\nsummary: 7\n\nfn=(1) main\n1 2\n\ntotals: 300460\n";
        assert_eq!(total(text), Some(300_460));
        assert_eq!(total("events: Ir\n"), None);
    }
}
