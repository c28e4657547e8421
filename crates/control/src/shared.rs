//! The state that handles read without asking the control thread, which may hang.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidemark_types::UnixMs;

/// The state that handles read without asking the control thread.
#[derive(Debug)]
pub(crate) struct Shared {
    last_round_ms: AtomicU64,
    rounds: AtomicU64,
    period_ms: AtomicU64,
    draining: AtomicBool,
    /// The thread has ended, by a panic.
    has_ended: AtomicBool,
}

impl Shared {
    pub(crate) fn new(now: UnixMs) -> Self {
        Self {
            last_round_ms: AtomicU64::new(now.0),
            rounds: AtomicU64::new(0),
            period_ms: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn note_round(&self, now: UnixMs, period: Duration) {
        self.last_round_ms.store(now.0, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.period_ms
            .store(u64::try_from(period.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// There will be no round any more.
    pub(crate) fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// When the last round was.
    pub(crate) fn last_round(&self) -> UnixMs {
        UnixMs(self.last_round_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Time between rounds.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.load(Ordering::Relaxed))
    }

    /// The server is not ready from now on.
    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}
