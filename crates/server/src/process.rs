//! The system's figures for this process, for `stats` and INFO.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How old [`Process::recent`] may be.
const RECENT: Duration = Duration::from_secs(1);

/// The last answer and when it was given.
static LAST: Mutex<Option<(Instant, Process)>> = Mutex::new(None);

/// CPU time and memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    /// Seconds of CPU time in user mode.
    pub(crate) user_seconds: f64,
    /// Seconds of CPU time in the system.
    pub(crate) system_seconds: f64,
    /// Physical memory.
    pub(crate) resident_bytes: u64,
}

impl Process {
    /// Reads `/proc/self/stat` (proc(5)); zeros where the system does not tell.
    pub(crate) fn read() -> Self {
        std::fs::read_to_string("/proc/self/stat")
            .ok()
            .and_then(|stat| Self::parse(&stat))
            .unwrap_or_default()
    }

    /// The same, at most a second old: asking often costs nothing.
    pub(crate) fn recent() -> Self {
        let mut last = LAST.lock();
        match *last {
            Some((at, process)) if at.elapsed() < RECENT => process,
            _ => {
                let process = Self::read();
                *last = Some((Instant::now(), process));
                process
            }
        }
    }

    fn parse(stat: &str) -> Option<Self> {
        // The command's name, in parentheses, may hold anything; fields 3 and on follow its end.
        let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / ticks);
        let (user_seconds, system_seconds) = (seconds()?, seconds()?);
        let pages: u64 = fields.nth(8)?.parse().ok()?;
        Some(Self {
            user_seconds,
            system_seconds,
            resident_bytes: pages * rustix::param::page_size() as u64,
        })
    }
}

/// The system's name, release and architecture.
pub(crate) fn operating_system() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!("Linux {} {}", release.trim_end(), std::env::consts::ARCH)
    });
    &NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_process() {
        let process = Process::read();
        assert!(process.resident_bytes > 100_000, "{process:?}");
        assert!(Process::recent().resident_bytes > 100_000);
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_confuse() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 200 300 13 14 15 16 17 18 19 20 5 21";
        let process = Process::parse(stat).unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(
            (process.user_seconds, process.system_seconds),
            (200.0 / ticks, 300.0 / ticks)
        );
        assert_eq!(process.resident_bytes, 5 * rustix::param::page_size() as u64);
        assert_eq!(Process::parse("7 (x) S 1"), None);
    }
}
