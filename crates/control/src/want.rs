//! Whether a tenant would use more memory than it has.
//!
//! It shows that when it grows, evicts or is refused memory. Memory is taken in segments, though. A slow writer shows
//! it only every few seconds, and adds items all the while.

use std::time::Duration;

use tidemark_types::UnixMs;

/// It is taken to be so for this time: longer than a round, so that one quiet round takes nobody's headroom away.
const LASTS: Duration = Duration::from_secs(2);
/// The time for which it is taken to be so while items are added. A tenant that needs longer for a segment fills its
/// headroom so slowly that it shows it again before that is used up.
const LASTS_FILLING: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Want {
    shown_at: Option<UnixMs>,
    added_at: Option<UnixMs>,
}

impl Want {
    /// It has shown it.
    pub(crate) fn show(&mut self, now: UnixMs) {
        self.shown_at = Some(now);
    }

    /// It has more items than before.
    pub(crate) fn add_items(&mut self, now: UnixMs) {
        self.added_at = Some(now);
    }

    /// Whether it is so at this moment.
    pub(crate) fn is_there(&self, now: UnixMs) -> bool {
        let within = |at: Option<UnixMs>, time: Duration| at.is_some_and(|at| now.since(at) <= time);
        within(self.shown_at, LASTS) || within(self.shown_at, LASTS_FILLING) && within(self.added_at, LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_from_one_segment_to_the_next_while_items_are_added() {
        let second = |n: u64| UnixMs(1_000_000 + n * 1000);
        let lasts = |shown: &[u64], added: std::ops::Range<u64>| {
            let mut want = Want::default();
            shown.iter().for_each(|at| want.show(second(*at)));
            added.for_each(|at| want.add_items(second(at)));
            (0..100).rfind(|at| want.is_there(second(*at)))
        };
        assert_eq!(lasts(&[], 0..50), None, "it never grew");
        assert_eq!(lasts(&[5], 0..0), Some(7));
        assert_eq!(lasts(&[5], 0..9), Some(10));
        assert_eq!(lasts(&[5], 0..50), Some(15), "so slowly that it will show it in time");
        assert_eq!(lasts(&[5, 12], 0..50), Some(22));
    }
}
