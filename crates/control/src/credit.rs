//! What a tenant is owed for memory that it was promised, did not need and left to others (credits as in Karma, OSDI 2023).
//!
//! Byte-seconds: lending a mebibyte for a minute is owed back as that. A pure value, brought up to date once a round.

use std::time::Duration;

/// Whoever is owed something is owed it over this time: so long it comes first with as much memory as it lent on average.
const PAID_BACK_OVER: Duration = Duration::from_secs(60);
/// No more is owed than an hour of the memory that is lent at once: what was lent last week must not starve others today.
const OWED_AT_MOST: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Credit {
    byte_seconds: f64,
}

impl Credit {
    /// For `elapsed`, the tenant left `lent_bytes` of its floor to others, and had `borrowed_bytes` beyond its own.
    pub(crate) fn note(&mut self, elapsed: Duration, lent_bytes: u64, borrowed_bytes: u64) {
        let seconds = elapsed.as_secs_f64();
        let most = self.byte_seconds.max(lent_bytes as f64 * OWED_AT_MOST.as_secs_f64());
        let owed = self.byte_seconds + (lent_bytes as f64 - borrowed_bytes as f64) * seconds;
        self.byte_seconds = owed.clamp(0.0, most);
    }

    /// The memory with which it comes first now.
    pub(crate) fn bytes(&self) -> u64 {
        (self.byte_seconds / PAID_BACK_OVER.as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_owed_until_it_was_had_back() {
        let mut credit = Credit::default();
        let second = Duration::from_secs(1);
        for _ in 0..60 {
            credit.note(second, 1000, 0);
        }
        assert_eq!(credit.bytes(), 1000);
        for _ in 0..30 {
            credit.note(second, 0, 1000);
        }
        assert_eq!(credit.bytes(), 500);
        for _ in 0..100 {
            credit.note(second, 0, 1000);
        }
        assert_eq!(credit, Credit::default(), "nobody owes for what was lent to it");
        credit.note(Duration::from_secs(100_000), 1000, 0);
        assert_eq!(credit.bytes(), 60_000, "an hour's worth at most");
    }
}
