//! Sweeping: items whose time has come are removed although nobody asks for them, so that counts of items are exact.
//!
//! A sweep looks at all items in pieces, when the soonest expiry has come, at most once in [`SWEEP_EVERY`]. A shard of many
//! items is swept less often ([`SWEPT_PER_SECOND`]), since looking at an item costs as much however few of them expire.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tidemark_types::UnixMs;

use super::Shard;

/// A sweep begins so long after the one before. A keeper's visits are a second apart; it is a little less, so that none of
/// them comes too early.
const SWEEP_EVERY: Duration = Duration::from_millis(900);
/// Items of a tenant that are looked at in a second at most: half a hundredth of a core, at 20 ns each.
const SWEPT_PER_SECOND: u64 = 1 << 18;
/// Items looked at in a piece: a few microseconds.
const PIECE_ITEMS: usize = 128;
/// Removed in a piece at most.
const PIECE_REMOVED: usize = 32;
/// No sweep is put off for longer: where one was, the clock was set back.
const PUT_OFF_MAX: Duration = Duration::from_secs(3600);

/// How far a shard is swept.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The position at which the sweep that is under way goes on, as a fraction of 2^64.
    position: Option<u64>,
    /// No item expires before.
    soonest: UnixMs,
    /// The same for the items that the sweep under way has passed, and for those written since it began.
    soonest_behind: UnixMs,
    /// When the next sweep may begin.
    next: UnixMs,
}

const NEVER: UnixMs = UnixMs(u64::MAX);

impl Default for Sweep {
    fn default() -> Self {
        Self {
            position: None,
            soonest: NEVER,
            soonest_behind: NEVER,
            next: UnixMs(0),
        }
    }
}

impl Sweep {
    /// An item expires then.
    #[inline]
    pub(super) fn note(&mut self, expiry: UnixMs) {
        self.soonest = self.soonest.min(expiry);
        self.soonest_behind = self.soonest_behind.min(expiry);
    }

    /// The position to look at next, if there is something to look for.
    fn begin(&mut self, now: UnixMs) -> Option<u64> {
        let is_put_off = now < self.next && self.next.since(now) <= PUT_OFF_MAX;
        if self.position.is_none() && self.soonest <= now && !is_put_off {
            self.position = Some(0);
            self.soonest_behind = NEVER;
        }
        self.position
    }

    /// A piece is done, after which it goes on at `position`; at its end the next one waits for so long.
    fn end_piece(&mut self, position: Option<u64>, wait: Duration, now: UnixMs) {
        self.position = position;
        if position.is_none() {
            self.soonest = self.soonest_behind;
            self.next = now.plus(wait);
        }
    }
}

impl Shard {
    /// Removes the next items that have expired. Whether there was anything to look for.
    pub(super) fn sweep(&mut self, now: UnixMs) -> bool {
        let Some(position) = self.sweep.begin(now) else {
            return false;
        };
        let (looked, expired) = (Cell::new(0), RefCell::new(Vec::new()));
        let mut soonest = NEVER;
        let visit = |place: u64, _: u8| {
            looked.set(looked.get() + 1);
            match self.item(place).expiry() {
                Some(expiry) if expiry <= now => expired.borrow_mut().push(place),
                Some(expiry) => soonest = soonest.min(expiry),
                None => {}
            }
        };
        let enough = || looked.get() >= PIECE_ITEMS || expired.borrow().len() >= PIECE_REMOVED;
        let next = self.index.scan(self.arena(), position, visit, enough);
        let expired = expired.into_inner();
        self.sweep.note(soonest);
        for place in expired {
            self.remove_expired(place);
        }
        let swept_per_second = (SWEPT_PER_SECOND >> self.shared.shard_bits).max(1);
        let wait = SWEEP_EVERY.max(Duration::from_millis(self.items() * 1000 / swept_per_second));
        self.sweep.end_piece(next, wait, now);
        true
    }

    /// Removes an item that has expired, if it is still there.
    fn remove_expired(&mut self, place: u64) {
        let item = self.item(place);
        let hash = self.shared.hasher.hash(item.db(), item.key());
        let found = self
            .index
            .find(self.arena(), self.position(hash), hash.tag(), |p| p == place);
        if let Some((slot, _)) = found {
            self.remove_invalid(slot, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Upkeep;
    use crate::{Attributes, Pool, TenantStore, undriven};
    use std::sync::Arc;
    use tidemark_types::{MIB, Policy};

    const NOW: UnixMs = UnixMs(1_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn tenant(shards: usize) -> (Arc<TenantStore>, Pool) {
        let pool = Pool::without_thread(64 * MIB, None).unwrap();
        (undriven::tenant(&pool, shards, Policy::default(), 1, 48 * MIB), pool)
    }

    fn put(store: &Arc<TenantStore>, db: u8, name: u64, expiry: Option<UnixMs>) {
        let name = name.to_string();
        let attributes = Attributes {
            expiry,
            ..Attributes::default()
        };
        store
            .put(&store.key(db, name.as_bytes()), b"value", attributes, NOW)
            .unwrap();
    }

    /// The work of a keeper at a visit.
    fn visit(store: &Arc<TenantStore>, now: UnixMs) {
        for shard in 0..store.shards() {
            while store.upkeep(shard, now) == Upkeep::More {}
            store.lock(shard).audit();
        }
    }

    fn counts(store: &Arc<TenantStore>, db: u8) -> (u64, u64) {
        let items = store.sum(|shard| shard.items_in(db));
        (items, store.sum(|shard| shard.expiring_in(db)))
    }

    #[test]
    fn counts_are_exact_at_every_visit() {
        const EACH: u64 = 1_500;
        const SECONDS: u64 = 20;
        let (store, _pool) = tenant(4);
        // So many expire in each second; others stay, between them.
        for number in 0..EACH * SECONDS {
            let life = Duration::from_millis(number * 1000 / EACH + 1);
            put(&store, (number % 2) as u8, number, Some(NOW.plus(life)));
            put(&store, 0, 1_000_000 + number / 4, None);
        }
        let staying = EACH * SECONDS / 4;
        for second in 1..=SECONDS {
            let now = NOW.plus(SECOND * second as u32);
            visit(&store, now);
            let left = EACH * (SECONDS - second) / 2;
            assert_eq!(counts(&store, 0), (staying + left, left), "after {second} s");
            assert_eq!(counts(&store, 1), (left, left), "after {second} s");
        }
        let counted = store.sum(|shard| shard.counters().expired);
        assert_eq!(counted, EACH * SECONDS);
    }

    #[test]
    fn a_shorter_life_is_seen_and_a_longer_one_too() {
        let (store, _pool) = tenant(1);
        for number in 0..100 {
            put(&store, 0, number, Some(NOW.plus(SECOND * 1000)));
            put(&store, 0, 1000 + number, Some(NOW.plus(SECOND * 2)));
            put(&store, 0, 2000 + number, None);
        }
        for number in 0..100_u64 {
            let retime = |name: u64, seconds: u32| {
                let name = name.to_string();
                let key = store.key(0, name.as_bytes());
                let expiry = Some(NOW.plus(SECOND * seconds));
                assert_eq!(store.lock(0).set_expiry(&key, expiry, NOW), Ok(true));
            };
            retime(number, 5);
            retime(1000 + number, 9);
            retime(2000 + number, 7);
        }
        for (second, left) in [(4, 300), (5, 200), (6, 200), (7, 100), (8, 100), (9, 0)] {
            visit(&store, NOW.plus(SECOND * second));
            assert_eq!(counts(&store, 0), (left, left), "after {second} s");
        }
    }

    #[test]
    fn sweeps_are_as_rare_as_the_items_are_many() {
        let (store, _pool) = tenant(1);
        // Nothing to look for.
        put(&store, 0, 1, Some(NOW.plus(SECOND * 60)));
        let mut shard = store.lock(0);
        assert!(!shard.sweep(NOW.plus(SECOND * 59)));
        let due = NOW.plus(SECOND * 60);
        assert!(shard.sweep(due) && shard.sweep.position.is_none());
        assert_eq!(shard.items(), 0);
        drop(shard);
        for number in 0..3 * SWEPT_PER_SECOND / 2 {
            put(&store, 0, number, Some(due.plus(SECOND)));
        }
        put(&store, 0, 1 << 60, Some(due.plus(Duration::from_millis(500))));
        let mut shard = store.lock(0);
        let soon = due.plus(Duration::from_millis(950));
        while shard.sweep(soon) {}
        assert_eq!(shard.items(), 3 * SWEPT_PER_SECOND / 2);
        assert!(!shard.sweep(soon.plus(Duration::from_millis(1490))));
        assert!(shard.sweep(soon.plus(Duration::from_millis(1510))));
        // A clock that was set back by a day does not put it off for a day.
        shard.sweep.position = None;
        shard.sweep.next = soon.plus(SECOND * 24 * 3600);
        assert!(shard.sweep(soon.plus(SECOND * 2)));
    }
}
