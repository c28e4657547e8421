//! The system's figures for this process.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::view::ProcessView;

/// Where `/proc/self/stat` has the threads, the time of the beginning and the address space, counted from the first field behind
/// the program's name (proc_pid_stat(5)).
const THREADS: usize = 17;
const STARTED: usize = 19;
const VIRTUAL: usize = 20;

/// The process as the system shows it.
pub(crate) fn view() -> ProcessView {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // A program may have any name, also one with parentheses.
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    ProcessView {
        started_at_seconds: number(STARTED).map(started_at_seconds),
        virtual_bytes: number(VIRTUAL),
        threads: number(THREADS),
        // Since Linux 6.2 the folder's size is its number of files; to list a hundred thousand would take long.
        open_files: std::fs::metadata("/proc/self/fd")
            .ok()
            .map(|folder| folder.len())
            .filter(|files| *files > 0),
        open_files_max: getrlimit(Resource::Nofile).current,
    }
}

/// When the process began, in seconds since 1970, computed once: a clock that is set meanwhile is no new beginning.
fn started_at_seconds(ticks_since_boot: u64) -> f64 {
    static COMPUTED: OnceLock<f64> = OnceLock::new();
    *COMPUTED.get_or_init(|| {
        let booted = cpu_time(ClockId::Realtime).saturating_sub(cpu_time(ClockId::Boottime));
        booted.as_secs_f64() + ticks_since_boot as f64 / rustix::param::clock_ticks_per_second() as f64
    })
}

/// Physical memory of the process in bytes; `None` where the system has no `/proc`.
pub(crate) fn rss_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

/// CPU time of all threads of the process since it began, user and system, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    cpu_time(ClockId::ProcessCPUTime).as_secs_f64()
}

/// The same in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    u64::try_from(cpu_time(ClockId::ProcessCPUTime).as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds since the system began, whatever its clock is set to (clock_gettime(2), `CLOCK_MONOTONIC`).
pub(crate) fn steady_ms() -> u64 {
    u64::try_from(cpu_time(ClockId::Monotonic).as_millis()).unwrap_or(u64::MAX)
}

/// The same of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Makes the calling thread yield to the workers: planning can wait, a client cannot. Returns the system's reason when
/// it refuses; the thread then runs at the priority of the others.
pub(crate) fn lower_priority() -> io::Result<()> {
    /// Half as far down as a thread can go: still scheduled within a round on a busy machine.
    const NICENESS: i32 = 10;
    // On Linux `None` is the calling thread, not the process (setpriority(2), "C library/kernel differences").
    let present = rustix::process::getpriority_process(None)?;
    Ok(rustix::process::setpriority_process(None, present.max(NICENESS))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_and_uses_time() {
        assert!(rss_bytes().unwrap() > 1 << 20);
        let before = cpu_seconds();
        let mut sum = 0_u64;
        while cpu_seconds() <= before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }

    #[test]
    fn the_process_is_seen() {
        let now = || cpu_time(ClockId::Realtime).as_secs_f64();
        let seen = view();
        let started = seen.started_at_seconds.unwrap();
        assert!(started < now() && now() - started < 86_400.0, "{started}");
        assert_eq!(view().started_at_seconds, Some(started));
        assert!(seen.virtual_bytes.unwrap() >= rss_bytes().unwrap());
        assert!(seen.threads.unwrap() >= 1);
        let held: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let files = view().open_files;
        assert!(files.is_none_or(|files| files >= held.len() as u64), "{files:?}");
        assert!(seen.open_files_max > Some(0));
    }

    #[test]
    fn only_the_calling_thread_yields() {
        // The tests themselves may run at any.
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let lowered = std::thread::spawn(move || {
            lower_priority().unwrap();
            niceness()
        });
        assert_eq!(lowered.join().unwrap(), before.max(10));
        assert_eq!(niceness(), before);
    }
}
