//! The CPU use of other processes of the machine during a measurement. They take time from servers and load, and push
//! their data out of the caches. Figures without it cannot be judged.
//!
//! Processes that began and ended meanwhile are in the times of those that waited for them (proc(5), `cutime`).

use std::fs;
use std::time::Instant;

/// Others that have more than this disturb: a machine's own work is less.
pub(super) const DISTURBED_CORES: f64 = 0.1;

/// Looks from when it is made.
#[derive(Debug)]
pub(super) struct Others {
    began: Instant,
    ticks: u64,
}

impl Others {
    /// Watches from now on.
    pub(super) fn watch() -> Self {
        Self {
            began: Instant::now(),
            ticks: ticks_of_others(),
        }
    }

    /// How many cores, in the mean, processes had since then that are neither this one nor started by it.
    pub(super) fn cores(&self) -> f64 {
        let ticks = ticks_of_others().saturating_sub(self.ticks) as f64;
        let seconds = ticks / rustix::param::clock_ticks_per_second() as f64;
        seconds / self.began.elapsed().as_secs_f64()
    }
}

/// CPU time of all processes but this one and its children, and of those that they waited for.
fn ticks_of_others() -> u64 {
    let own = std::process::id();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stats = ids
        .filter(|id| *id != own)
        .filter_map(|id| Stat::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?));
    stats.filter(|stat| stat.parent != own).map(|stat| stat.ticks).sum()
}

/// The fields of a line `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// `utime`, `stime`, `cutime` and `cstime` together.
    ticks: u64,
}

impl Stat {
    /// The second field is a name that may hold anything but ends with the last parenthesis. The fourth is the parent,
    /// the 14th to 17th are the times.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let times = fields.skip(9).take(4).map(|field| field.parse::<u64>().ok());
        Some(Self {
            parent,
            ticks: times.sum::<Option<u64>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_behind_the_name() {
        let stat = |parent, ticks| Some(Stat { parent, ticks });
        for (line, expected) in [
            ("7 (a) R 3 1 1 1 1 5 6 7 8 9 100 20 3 4 20 0 1", stat(3, 127)),
            ("7 (a) 9 (b) S 3 1 1 1 1 5 6 7 8 9 0 0 0 0 20 0 1", stat(3, 0)),
            ("7 (a) R 3 1 1 1 1 5 6 7 8 9 100 x 3 4", None),
            ("7", None),
        ] {
            assert_eq!(Stat::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn what_this_process_does_is_not_others_work() {
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(Stat::parse(&own).is_some(), "{own}");
        let others = Others::watch();
        // Busy for long enough to be seen, if it were counted, whatever the machine's speed.
        let cpu = || {
            Stat::parse(&fs::read_to_string("/proc/self/stat").unwrap())
                .unwrap()
                .ticks
        };
        let before = cpu();
        while cpu() < before + 20 {
            std::hint::black_box(before);
        }
        let elapsed = others.began.elapsed().as_secs_f64();
        let own_cores = 20.0 / rustix::param::clock_ticks_per_second() as f64 / elapsed;
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        assert!(others.cores() < cores - own_cores / 2.0, "{own_cores} of {cores}");
    }
}
