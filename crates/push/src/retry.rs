//! How often something is tried, and when.

use std::time::Duration;

/// Waits between one try and the next: a receiver that restarts is back within the first ones, one that is updated within the
/// last.
const WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// How long to wait after so many tries that failed; `None`: it is given up.
pub(crate) fn wait_after(tries: u32) -> Option<Duration> {
    let index = usize::try_from(tries).ok()?.checked_sub(1)?;
    WAITS.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_come_to_an_end() {
        let waits: Vec<u64> = (1..).map_while(wait_after).map(|wait| wait.as_secs()).collect();
        assert_eq!(waits, [1, 5, 30, 120, 600]);
        assert_eq!((wait_after(0), wait_after(u32::MAX)), (None, None));
    }
}
