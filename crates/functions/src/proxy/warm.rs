//! Keeps functions warm, and has them backed up: each about once a period, at another time than the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Inner, Job};
use crate::schedule::{LOOKS, turn};

/// Chunks that move in a period: functions are for reads and writes first.
const MOVES_AT_ONCE: usize = 256;

/// Has each function in use do something once a period. The moment within the period is drawn anew each time, from the
/// function's number and the period's: so that they do not all come together, and a period lies between two on average.
pub(crate) async fn each_period(inner: Arc<Inner>, every: Duration, job: fn() -> Job) {
    let mut timer = tokio::time::interval(every / LOOKS);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut round = 0;
    loop {
        for look in 0..LOOKS {
            timer.tick().await;
            let in_use = inner.pool().in_use();
            for member in (0..in_use as u16).filter(|&member| turn(member, round) == look) {
                inner.ask(member, job());
            }
        }
        round += 1;
    }
}

/// Once a period, functions that are not needed any more are emptied, so that they need not be kept warm.
pub(crate) async fn shrink(inner: Arc<Inner>, every: Duration) {
    let mut timer = tokio::time::interval(every);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let moves = {
            let mut pool = inner.pool();
            pool.shrink();
            pool.moves(MOVES_AT_ONCE)
        };
        let moving = moves.into_iter().map(|one| Inner::relocate(&inner, one));
        futures_util::future::join_all(moving).await;
    }
}

/// Notes how many functions were reclaimed in each period: warm-ups find it.
pub(crate) async fn observe(inner: Arc<Inner>, every: Duration) {
    let mut timer = tokio::time::interval(every);
    timer.tick().await;
    let reclaimed = || inner.counts.reclaimed.load(Ordering::Relaxed);
    let mut before = reclaimed();
    loop {
        timer.tick().await;
        let now = reclaimed();
        inner
            .observed
            .lock()
            .note(u32::try_from(now - before).unwrap_or(u32::MAX));
        before = now;
    }
}
