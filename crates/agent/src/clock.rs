//! The clock of leases: it goes on while the machine sleeps, and is never set.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the machine started.
#[must_use]
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000 + nanoseconds / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before_us = now_us();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now_us() >= before_us + 2_000);
    }
}
