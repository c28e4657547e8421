//! The credit of a tenant for memory that it was promised, did not need and left to others (credits as in Karma, OSDI
//! 2023).
//!
//! Byte-seconds: lending a mebibyte for a minute is owed back as that. A pure value, brought up to date once a round.

use std::time::Duration;

use tidemark_types::UnixMs;

/// The time over which a credit is paid back. For so long the tenant comes first with as much memory as it lent on
/// average.
const PAID_BACK_OVER: Duration = Duration::from_secs(60);
/// A credit is at most ten minutes of the memory that is lent at once, and is forgotten over this time, whatever
/// happens meanwhile. Memory lent last week must not starve others today.
const FORGOTTEN_OVER: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Credit {
    byte_seconds: f64,
    noted_at: UnixMs,
}

impl Credit {
    /// Until `now`, for `elapsed` since the last decision, the tenant left `lent_bytes` of its floor to others, and had
    /// `borrowed_bytes` beyond its own.
    pub(crate) fn note(&mut self, now: UnixMs, elapsed: Duration, lent_bytes: u64, borrowed_bytes: u64) {
        let forgotten = now.since(self.noted_at).as_secs_f64() / FORGOTTEN_OVER.as_secs_f64();
        self.noted_at = now;
        let kept = self.byte_seconds * (-forgotten).exp();
        let owed = kept + (lent_bytes as f64 - borrowed_bytes as f64) * elapsed.as_secs_f64();
        let most = kept.max(lent_bytes as f64 * FORGOTTEN_OVER.as_secs_f64());
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
    fn what_is_lent_is_owed_until_it_was_had_back_or_forgotten() {
        let mut credit = Credit::default();
        let (second, mut now) = (Duration::from_secs(1), UnixMs(0));
        let mut note = |credit: &mut Credit, seconds: u64, lent_bytes: u64, borrowed_bytes: u64| {
            for _ in 0..seconds {
                now = now.plus(second);
                credit.note(now, second, lent_bytes, borrowed_bytes);
            }
        };
        note(&mut credit, 60, 1000, 0);
        assert!((940..=1000).contains(&credit.bytes()), "{}", credit.bytes());
        note(&mut credit, 30, 0, 1000);
        assert!((400..=500).contains(&credit.bytes()), "{}", credit.bytes());
        note(&mut credit, 100, 0, 1000);
        assert_eq!(credit.bytes(), 0, "nobody owes for what was lent to it");
        note(&mut credit, 10_000, 1000, 0);
        assert!((9_000..=10_000).contains(&credit.bytes()), "{}", credit.bytes());
        note(&mut credit, 6_000, 0, 0);
        assert_eq!(credit.bytes(), 0, "forgotten");
    }
}
