//! The system's figures for this process.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

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
