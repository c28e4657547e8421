//! What no command waits for: giving memory back, removing what has expired or was flushed, cleaning segments.

use std::collections::HashSet;
use std::time::Duration;

use tidemark_types::UnixMs;

use super::sweep::Sweep;
use super::{Database, Shard};
use crate::grave::Grave;
use crate::policy::Queue;
use crate::segment::{SegmentId, State};
use crate::shared::Left;

/// A shard without items gives its memory back after this time: one whose last item is deleted is often written to again
/// at once.
const EMPTY_LINGERS: Duration = Duration::from_secs(1);
/// A shrink by at most one of so many parts of a shard is slight.
const SLIGHT_SHRINK_DIVISOR: u64 = 6;
/// A shrink to less than one of so many parts of a shard leaves little of it.
const DEEP_SHRINK_PARTS: u64 = 4;
/// Index buckets moved per piece of upkeep.
const INDEX_PIECE: u32 = 16;
/// Parts of memory that was put aside which are given back in a piece: each may take the pool's lock.
const GRAVE_PIECE: u32 = 16;
/// Segments that are looked at in a piece for those that a flush of a single database has left.
const PURGE_LOOKS: u32 = 64;

/// How a shard stands after a piece of upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// There is more to do now.
    More,
    /// Nothing for now; look again in a while.
    Later,
    /// The shard holds no memory; until it is written to there is nothing to look after.
    Empty,
}

/// How far the segments are looked through for what flushes of single databases have left.
#[derive(Debug, Default)]
pub(super) struct Purge {
    /// The number of the next one.
    next: u32,
    /// One of those passed has such items, and could not be cleaned.
    left_some: bool,
}

impl Shard {
    /// Removes everything at once. The memory is put aside, however much it is, and comes back in pieces
    /// ([`TenantShared::dig`]).
    pub(crate) fn clear(&mut self) {
        self.reset_evictions();
        let mut runs = self.index.clear(&self.view);
        runs.extend(self.ghosts.take().into_iter().flat_map(|ghosts| ghosts.into_runs()));
        runs.extend(self.spare.take());
        let segments = self.log.take();
        let outside = self.take_outside();
        let kept = self.log.detached_units() + self.outside.len() as u64 + self.reserved_units;
        let buried = std::mem::replace(&mut self.units, kept) - kept;
        self.shared.bury(Grave::new(runs, segments, outside), buried);
        self.databases = Vec::new();
        self.flush_pending = false;
        self.purge = Purge::default();
        self.last_expiry = UnixMs(0);
        self.sweep = Sweep::default();
        self.empty_since = None;
    }

    /// Removes everything of one database.
    pub(crate) fn flush(&mut self, db: u8) {
        if self.items() == self.items_in(db) {
            self.empty(Left::Removed);
            return;
        }
        if self.items_in(db) == 0 {
            return;
        }
        self.tell_emptied(self.items_in(db), Left::Removed);
        // Other databases' items lie between: what is older than this moment is dead, and upkeep removes it.
        self.seal(Queue::Small);
        self.seal(Queue::Main);
        self.flushes += 1;
        self.flush_pending = true;
        self.purge = Purge::default();
        self.databases[db as usize] = Database {
            flushed_before: self.log.next_sequence(),
            ..Database::default()
        };
    }

    /// Does a piece of what there is to do, of a few microseconds.
    pub(crate) fn upkeep(&mut self, now: UnixMs) -> Upkeep {
        if self.shared.dig(GRAVE_PIECE) {
            return Upkeep::More;
        }
        if self.units == 0 {
            return Upkeep::Empty;
        }
        let worked = self.shrink(now)
            || self.remove_all_expired(now)
            || self.clean(now)
            || self.purge(now)
            || self.sweep(now)
            || self.resize_index();
        if worked {
            return self.more_or_empty();
        }
        self.index.look_again();
        self.release_if_empty(now)
    }

    /// Whether the shard holds more than its share of a grant that was lowered; then gives a bit back.
    fn shrink(&mut self, now: UnixMs) -> bool {
        if self.shared.excess() == 0 || self.units <= self.shared.share() {
            return false;
        }
        // The tier below takes evicted items one by one only.
        if (self.shared.allowed() == 0 && !self.has_below()) || self.items() == 0 {
            // What replies are being sent from, and what is being written, stays until then.
            let before = self.units;
            self.empty(Left::Evicted);
            return self.units < before;
        }
        self.release_spare();
        // What the index has too much goes before items do: only from a resize's end on is memory given back, and where it
        // waited for evictions, there would be no items left by then.
        if self.resize_index() || self.shrink_step(now) {
            return true;
        }
        // No sealed segment is left: the open ones and the ghosts must go too.
        let had_open = self.log.has_open();
        self.seal(Queue::Small);
        self.seal(Queue::Main);
        let had_ghosts = self.ghosts.is_some();
        self.drop_ghosts();
        had_open || had_ghosts
    }

    /// Whether the shard holds much more than its share of a grant that was lowered.
    pub(super) fn shrinks_by_much(&self) -> bool {
        self.units_too_many() * SLIGHT_SHRINK_DIVISOR > self.units
    }

    /// Whether little will be left of what it holds now. Near the end of a deep shrink that is no longer so.
    pub(super) fn shrinks_to_little(&self) -> bool {
        (self.units - self.units_too_many()) * DEEP_SHRINK_PARTS < self.units
    }

    fn units_too_many(&self) -> u64 {
        let own = self.units.saturating_sub(self.shared.share());
        // Of a tenant's shards some are always above their share.
        own.min(self.shared.excess())
    }

    /// Takes the next segment of which half has expired.
    fn clean(&mut self, now: UnixMs) -> bool {
        // If another victim is under way, that one goes first.
        while let Some(id) = self.log.next_mostly_expired(now)
            && self.begin_cleaning(id)
        {}
        self.clean_step(now)
    }

    /// Removes the next part of what flushes of single databases have left.
    fn purge(&mut self, now: UnixMs) -> bool {
        if !self.flush_pending {
            return false;
        }
        let before = self.databases.iter().map(|db| db.flushed_before).max().unwrap_or(0);
        let end = self.log.end();
        for number in (self.purge.next..end).take(PURGE_LOOKS as usize) {
            let id = SegmentId(number);
            if let Some(segment) = self.log.get(id)
                && segment.sequence < before
            {
                if segment.state == State::Sealed && segment.pins == 0 {
                    // If another victim is under way, this goes on with that one first.
                    self.begin_cleaning(id);
                    return self.clean_step(now);
                }
                self.purge.left_some = true;
            }
            self.purge.next = number + 1;
        }
        if self.purge.next < end {
            return true;
        }
        // Segments that cannot be cleaned now are looked at again at the next visit.
        self.flush_pending = self.purge.left_some;
        self.purge = Purge::default();
        false
    }

    fn resize_index(&mut self) -> bool {
        let had_work = self.index.has_work();
        self.tend_index();
        let has_work = self.index.has_work();
        if has_work {
            self.step_index(INDEX_PIECE);
        }
        // Where that was the end of it, memory came back, and nothing may have to be evicted any more.
        had_work || has_work
    }

    /// Where every item has expired, removes all at once.
    fn remove_all_expired(&mut self, now: UnixMs) -> bool {
        let items = self.items();
        let expiring: u64 = self.databases.iter().map(|db| db.expiring).sum();
        let all = items > 0 && items == expiring && self.last_expiry <= now;
        if all {
            self.counters.expired += items;
            self.empty(Left::Expired);
        }
        all
    }

    fn release_if_empty(&mut self, now: UnixMs) -> Upkeep {
        if self.items() > 0 {
            self.empty_since = None;
            return Upkeep::Later;
        }
        let since = *self.empty_since.get_or_insert(now);
        if now.since(since) < EMPTY_LINGERS {
            return Upkeep::Later;
        }
        self.clear();
        self.more_or_empty()
    }

    /// There may be memory to give back that was put aside just now.
    fn more_or_empty(&self) -> Upkeep {
        if self.units == 0 && !self.shared.has_buried() {
            Upkeep::Empty
        } else {
            Upkeep::More
        }
    }

    /// Forgets the values outside of the log. Their units are the caller's but for those that replies are being sent from.
    fn take_outside(&mut self) -> HashSet<u32> {
        let mut kept = HashSet::new();
        for pin in self.outside_pins.values_mut() {
            pin.doomed = true;
            kept.extend(pin.units.iter().copied());
        }
        let mut outside = std::mem::take(&mut self.outside);
        kept.iter().for_each(|start| {
            outside.remove(start);
        });
        self.outside = kept;
        outside
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Pool, TenantStore, undriven};
    use std::sync::Arc;
    use tidemark_types::{MIB, Policy};

    const NOW: UnixMs = UnixMs(1_000_000_000_000);

    /// A tenant of one shard with a grant of its own.
    fn tenant(policy: Policy, grant_bytes: u64) -> (Arc<TenantStore>, Pool) {
        let pool = Pool::without_thread(2 * grant_bytes, Some(4 * grant_bytes)).unwrap();
        (undriven::tenant(&pool, 1, policy, 1, grant_bytes), pool)
    }

    fn put(store: &Arc<TenantStore>, number: u32, value: &[u8]) {
        let name = format!("{number:08}");
        let key = store.key(0, name.as_bytes());
        store.put(&key, value, Attributes::default(), NOW).unwrap();
    }

    fn get(store: &Arc<TenantStore>, number: u32) -> bool {
        let name = format!("{number:08}");
        let key = store.key(0, name.as_bytes());
        store.lock(0).get(&key, NOW).is_some()
    }

    fn drain(store: &Arc<TenantStore>) {
        while store.upkeep(0, NOW) == Upkeep::More {}
        assert!(store.usage_bytes() <= store.grant_bytes());
    }

    /// The index is nearly as large as the items are, and goes with them.
    #[test]
    fn a_deep_shrink_keeps_as_many_items_as_fit() {
        const ITEM_BYTES: u64 = 23;
        for part in [2, 4, 16] {
            let (store, _pool) = tenant(Policy::S3Fifo, 32 * MIB);
            for number in 0..1_000_000 {
                put(&store, number, &[7; 8]);
            }
            store.set_grant(32 * MIB / part, 0);
            drain(&store);
            let kept_bytes = store.lock(0).items() * ITEM_BYTES;
            // An item's entry takes 8 to 13 bytes more, and open segments are not full.
            assert!(
                3 * kept_bytes >= 32 * MIB / part,
                "{kept_bytes} of a grant of 32 MiB / {part}"
            );
        }
    }

    /// What is used again and again stays, and would stay in segments of 512 KiB, an eighth of what there is.
    #[test]
    fn what_a_shrink_leaves_comes_to_lie_in_segments_as_small_as_it_is() {
        const USED: u32 = 1_500;
        let (store, _pool) = tenant(Policy::S3Fifo, 32 * MIB);
        let orders = || -> Vec<u8> {
            let shard = store.lock(0);
            shard.log.iter().map(|(_, segment)| segment.run.order).collect()
        };
        (0..40_000).for_each(|number| put(&store, number, &[7; 1000]));
        assert!(orders().iter().filter(|order| **order == 3).count() > 50);
        store.set_grant(4 * MIB, 0);
        drain(&store);
        let used = |step: u32| 100_000 + step / 16 + step * 7 % USED;
        for step in 0..200_000 {
            if !get(&store, used(step)) {
                put(&store, used(step), &[7; 1000]);
            }
            if step % 4 == 0 {
                put(&store, 200_000 + step, &[7; 1000]);
            }
        }
        store.lock(0).audit();
        let found = (0..USED).filter(|step| get(&store, used(200_000 + step))).count() as u32;
        assert!(found > USED / 4 * 3, "{found} of those used");
        assert!(orders().iter().all(|order| *order <= 1), "{:?}", orders());
        assert!(store.usage_bytes() > 7 * MIB / 2, "{} bytes", store.usage_bytes());
    }

    #[test]
    fn how_deep_a_shrink_is_follows_from_what_will_be_left() {
        let (store, _pool) = tenant(Policy::S3Fifo, 16 * MIB);
        (0..60_000).for_each(|number| put(&store, number, &[7; 250]));
        let depth = |part: u64| {
            store.set_grant(16 * MIB / part, 0);
            let shard = store.lock(0);
            (shard.shrinks_by_much(), shard.shrinks_to_little())
        };
        let depths = [1, 2, 3, 8].map(depth);
        assert_eq!(depths, [(false, false), (true, false), (true, false), (true, true)]);
        drain(&store);
        assert_eq!(depth(8), (false, false));
    }

    /// What is used lies in the oldest segments, and what came once in the newest.
    #[test]
    fn what_a_full_shard_gets_more_of_holds_newcomers_on_probation_which_go_first() {
        const USED: u32 = 12_000;
        let (store, _pool) = tenant(Policy::S3Fifo, 8 * MIB);
        store.set_grant(4 * MIB, 0);
        (0..USED).for_each(|number| put(&store, number, &[7; 200]));
        let used = || (0..USED).filter(|&number| get(&store, number)).count();
        let small = || store.lock(0).log.queue_bytes().small;
        assert_eq!(used(), USED as usize);
        (100_000..110_000).for_each(|number| put(&store, number, &[7; 200]));
        assert!(store.lock(0).counters().evicted > 0);
        let (used_before, small_before) = (used(), small());
        store.set_grant(8 * MIB, 0);
        (200_000..212_000).for_each(|number| put(&store, number, &[7; 200]));
        // 12,000 items of 215 bytes.
        assert!(small() >= small_before + 2 * MIB, "{small_before} {}", small());
        store.set_grant(6 * MIB, 0);
        drain(&store);
        assert_eq!(used(), used_before, "of {USED}");
    }
}
