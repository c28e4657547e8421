//! The circumstances of a measurement: the machine, the programs, the commit. Nothing tells one machine from its
//! equals.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::report::short;

/// The machine and the programs measured on it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel's version, without what its builder added.
    pub kernel: String,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Versions of the servers, by name.
    pub software: BTreeMap<String, String>,
    /// How many cores processes had, in the mean, that were no part of the measurement.
    #[serde(serialize_with = "short")]
    pub others_cores: f64,
}

impl Machine {
    /// This one; `cores` as they were before this process bound itself to one.
    pub fn this(cores: usize, software: BTreeMap<String, String>, others_cores: f64) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores,
            kernel: plain_version(&kernel).to_owned(),
            memory_bytes: memory_bytes("MemTotal"),
            software,
            others_cores,
        }
    }
}

/// The memory that programs can still take without swapping.
pub(super) fn available_memory_bytes() -> u64 {
    memory_bytes("MemAvailable")
}

/// A line of `/proc/meminfo` (proc(5)), 0 where it is not there.
fn memory_bytes(name: &str) -> u64 {
    let text = field("/proc/meminfo", name);
    let kibibytes = text.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// The value of the first line `NAME: VALUE` of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    line.map(|(_, value)| value.trim().to_owned())
}

/// A version's digits and points: text behind them may name a machine or an owner.
fn plain_version(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// The commit that the sources are of, marked if they were changed since; `unknown` outside a repository.
pub fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".into();
    };
    // Documents, which an earlier experiment wrote, change nothing that is measured.
    match git(&["status", "--porcelain", "--", "Cargo.toml", "Cargo.lock", "crates"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}, changed"),
    }
}

/// The version that a program reports, in one line without its name.
pub(super) fn version_of(program: &Path, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |word: &&str| word.trim_start_matches("v=").starts_with(|c: char| c.is_ascii_digit());
    let word = text.split_whitespace().find(number)?;
    Some(word.trim_start_matches("v=").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_cut_to_their_numbers() {
        for (text, expected) in [
            ("6.1.0-13-amd64\n", "6.1.0"),
            ("6.18.44-name-of-somebody", "6.18.44"),
            ("6.8.", "6.8"),
            ("5", "5"),
            ("", ""),
        ] {
            assert_eq!(plain_version(text), expected, "{text:?}");
        }
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this(2, BTreeMap::new(), 0.0);
        assert!(machine.memory_bytes > 1 << 20 && !machine.cpu.is_empty(), "{machine:?}");
        assert!(machine.kernel.contains('.'), "{machine:?}");
    }
}
