//! A shard: one part of a tenant's keys, with its own index and log, used under one short lock.
//!
//! This file has what reads, deletes and changes items in place; [`write`] appends, [`grow`] resizes the index, [`evict`] makes
//! room, [`large`] keeps values outside of the log. The log itself is in [`log`], which knows bytes and no keys. [`renew`]
//! copies what is used, [`upkeep`] does what no command waits for, and [`sampling`] records what happens to sampled keys.
//! [`below`] hands items down and takes them back, and [`watch`] tells whether a key has changed. [`custom`] asks and tells the
//! program that supplied something.
//!
//! Invariants: every index entry names a live item in a segment of this shard; every item that is not dead has an entry;
//! the units held are those of the runs in `log`, `spare`, `index`, `ghosts` and of the values outside of the log, and are
//! charged to the tenant.

#[cfg(test)]
mod audit;
mod below;
mod counters;
mod custom;
mod evict;
#[cfg(test)]
mod flushed;
mod found;
mod ghosts;
mod grow;
mod key;
mod large;
mod log;
mod pin;
mod renew;
mod sampling;
mod sweep;
mod upkeep;
mod value;
mod watch;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidemark_types::{SampleKind, ShardSnapshot, UnixMs};

use crate::arena::{Arena, LINE_BYTES};
use crate::ghost::Ghosts;
use crate::hash::KeyHash;
use crate::index::{Index, IndexView, Slot};
use crate::item::{Attributes, HEADER_BYTES, Item};
use crate::pool::Run;
use crate::sample::Sampler;
use crate::segment::{SegmentId, State};
use crate::shared::{Left, TenantShared};

pub use counters::Counters;
pub(crate) use custom::Seat;
pub use found::Found;
pub use ghosts::Prospect;
pub use key::{DATABASES, Key};
pub(crate) use pin::PinnedPlace;
pub(crate) use upkeep::Upkeep;
pub use value::Value;
pub use watch::Watch;
pub use write::Refused;

use evict::Evictions;
use log::Log;
use pin::OutsidePin;
use sweep::Sweep;
use upkeep::Purge;
use watch::Watches;

/// An access is noted in the item at most once in this many seconds, so that reading hot items writes nothing (memcached's
/// own interval).
const ACCESS_NOTE_SECONDS: u16 = 60;

/// What is loaded ahead of an item: its head, its key and the value's beginning; at most so much that the processor sees
/// where it goes on.
const PREFETCHED_BYTES: std::ops::RangeInclusive<u64> = 2 * LINE_BYTES..=32 * LINE_BYTES;

/// One shard. See the module's head.
#[derive(Debug)]
pub struct Shard {
    shared: Arc<TenantShared>,
    view: Arc<IndexView>,
    index: Index,
    log: Log,
    /// A free segment kept back for the next one to be opened.
    spare: Option<Run>,
    evictions: Evictions,
    /// The program's policy, if it supplied one.
    seat: Option<Seat>,
    /// In a box of their own: most of ten thousand tenants have none.
    ghosts: Option<Box<Ghosts>>,
    /// Memory that the ghosts lack; evictions make room for it.
    ghost_units_missing: u64,
    /// Units of values outside of the log.
    outside: HashSet<u32>,
    /// Of those that replies are being sent from, by a value's first unit.
    outside_pins: HashMap<u32, OutsidePin>,
    /// How many units are held for values that are being written: whoever writes one knows which.
    reserved_units: u64,
    next_token: u64,
    /// Units held in all.
    units: u64,
    counters: Counters,
    /// [`Counters::asked`] at the last report.
    reported: u64,
    watches: Watches,
    sweep: Sweep,
    sampler: Sampler,
    /// Up to the last one that was ever used: most tenants use only the first.
    databases: Vec<Database>,
    /// Whether items of segments before a database's `flushed_before` may still exist.
    flush_pending: bool,
    purge: Purge,
    /// Flushes of single databases.
    flushes: u64,
    /// The latest expiry time of any item since the shard was last empty.
    last_expiry: UnixMs,
    /// Since when there have been no items.
    empty_since: Option<UnixMs>,
}

/// What is known of a database's items in a shard.
#[derive(Clone, Copy, Debug, Default)]
struct Database {
    items: u64,
    /// Those that have an expiry time.
    expiring: u64,
    /// Items in segments with a lower sequence number were flushed.
    flushed_before: u64,
}

impl Shard {
    pub(crate) fn new(shared: Arc<TenantShared>, view: Arc<IndexView>) -> Self {
        let sampler = Sampler::new(shared.sampling_threshold(), shared.shard_bits);
        Self {
            shared,
            view,
            index: Index::default(),
            log: Log::default(),
            spare: None,
            evictions: Evictions::default(),
            seat: None,
            ghosts: None,
            ghost_units_missing: 0,
            outside: HashSet::new(),
            outside_pins: HashMap::new(),
            reserved_units: 0,
            next_token: 1,
            units: 0,
            counters: Counters::default(),
            reported: 0,
            watches: Watches::default(),
            sweep: Sweep::default(),
            sampler,
            databases: Vec::new(),
            flush_pending: false,
            purge: Purge::default(),
            flushes: 0,
            last_expiry: UnixMs(0),
            empty_since: None,
        }
    }

    /// Looks a key up for a client that wants its value: counts for the hit ratio and for eviction.
    #[inline]
    pub fn get(&mut self, key: &Key<'_>, now: UnixMs) -> Option<Found<'_>> {
        self.count_get(key, now);
        let Some((slot, place)) = self.lookup_to_get(key, now) else {
            // Who missed it will mostly write it next, and the ghosts are asked then.
            if let Some(ghosts) = &self.ghosts {
                ghosts.prefetch(self.arena(), key.hash);
            }
            return None;
        };
        self.counters.hits += 1;
        Some(self.read(slot, place, now))
    }

    /// The same for a client whose reads shall not count as uses (CLIENT NO-TOUCH): counts for the hit ratio only.
    pub fn get_unused(&mut self, key: &Key<'_>, now: UnixMs) -> Option<Found<'_>> {
        self.count_get(key, now);
        let (_, place) = self.lookup_to_get(key, now)?;
        self.counters.hits += 1;
        Some(self.found(place))
    }

    /// Looks a key up without counting for the hit ratio, but as a use for eviction (TOUCH, GETRANGE and the like).
    pub fn access(&mut self, key: &Key<'_>, now: UnixMs) -> Option<Found<'_>> {
        let (slot, place) = self.lookup(key, now)?;
        Some(self.read(slot, place, now))
    }

    /// Looks a key up and leaves no trace (EXISTS, TTL).
    pub fn peek(&mut self, key: &Key<'_>, now: UnixMs) -> Option<Found<'_>> {
        let (_, place) = self.lookup(key, now)?;
        Some(self.found(place))
    }

    /// Removes a key. Whether it was there.
    pub fn delete(&mut self, key: &Key<'_>, now: UnixMs) -> bool {
        let found = self.lookup(key, now);
        match found {
            Some((slot, place)) => self.remove(key, slot, place, now),
            None => self.forget_below(key),
        }
        found.is_some()
    }

    /// The token of a key's item, given to it now if it has none; `None` if the key is not there.
    pub(crate) fn token(&mut self, key: &Key<'_>, now: UnixMs) -> Result<Option<u64>, Refused> {
        let Some((_, place)) = self.lookup(key, now) else {
            return Ok(None);
        };
        let attributes = self.item(place).attributes();
        if attributes.token.is_some() {
            return Ok(attributes.token);
        }
        let token = self.new_token();
        let rewritten = self.rewrite(
            key,
            Attributes {
                token: Some(token),
                ..attributes
            },
            now,
        )?;
        // Items below have no token.
        self.forget_below(key);
        Ok(rewritten.map(|()| token))
    }

    /// A token that no item of this shard has had.
    pub fn new_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token - 1
    }

    /// A client chose this token itself (the meta flag E): those given later lie above it where they can.
    pub fn note_token(&mut self, token: u64) {
        if token < u64::MAX / 2 {
            self.next_token = self.next_token.max(token + 1);
        }
    }

    /// Visits keys in the order of their hashes from `position` (a fraction of 2^64) on, until `enough` says so after a
    /// bucket. Returns where to go on, `None` at the end. Every key that is there throughout a scan is visited.
    pub fn scan(
        &self,
        position: u64,
        db: u8,
        now: UnixMs,
        mut visit: impl FnMut(&[u8]),
        enough: impl FnMut() -> bool,
    ) -> Option<u64> {
        let visit_place = |place: u64, _: u8| {
            let item = self.item(place);
            if item.db() == db && self.is_valid(place, item, now) {
                visit(item.key());
            }
        };
        self.index.scan(self.arena(), position, visit_place, enough)
    }

    /// A key of a database, picked by a random number; `None` if none was found in a few attempts.
    pub fn random_key(&self, db: u8, mut random: u64, now: UnixMs) -> Option<&[u8]> {
        // As many attempts as Redis makes to find a key that has not expired.
        (0..100).find_map(|_| {
            random = random
                .wrapping_mul(0x5851_F42D_4C95_7F2D)
                .wrapping_add(0x1405_7B7E_F767_814F);
            let place = self.index.pick(self.arena(), random)?;
            let item = self.item(place);
            (item.db() == db && self.is_valid(place, item, now)).then(|| item.key())
        })
    }

    /// Items of a database. Those that have expired are in it until somebody meets them, or they are swept.
    pub fn items_in(&self, db: u8) -> u64 {
        self.databases.get(db as usize).map_or(0, |db| db.items)
    }

    /// Items of a database that have an expiry time.
    pub fn expiring_in(&self, db: u8) -> u64 {
        self.databases.get(db as usize).map_or(0, |db| db.expiring)
    }

    /// Items of all databases.
    pub fn items(&self) -> u64 {
        self.databases.iter().map(|db| db.items).sum()
    }

    /// Counts a write that was refused.
    pub(crate) fn count_refusal(&mut self) {
        self.counters.refused_memory += 1;
    }

    /// Memory held, in units.
    #[inline]
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Memory held, in bytes.
    pub fn usage_bytes(&self) -> u64 {
        self.units * tidemark_types::UNIT_BYTES
    }

    /// A report of what was counted until now is being made.
    pub(crate) fn note_reported(&mut self) {
        self.reported = self.counters.asked();
    }

    /// Whether there was a get or a write that no report tells of.
    pub(crate) fn is_asked_since_report(&self) -> bool {
        self.counters.asked() != self.reported
    }

    /// How the shard stands.
    pub fn snapshot(&self, now: UnixMs) -> ShardSnapshot {
        let mut snapshot = ShardSnapshot {
            items: self.items(),
            usage_bytes: self.usage_bytes(),
            index_bytes: self.index.units() * tidemark_types::UNIT_BYTES,
            ..ShardSnapshot::default()
        };
        for (_, segment) in self.log.iter() {
            snapshot.free_bytes += segment.room_bytes() as u64;
            snapshot.dead_bytes += u64::from(segment.used_bytes - segment.live_bytes);
            let age = now.since(segment.opened).as_millis();
            snapshot.oldest_age_ms = snapshot.oldest_age_ms.max(u64::try_from(age).unwrap_or(u64::MAX));
        }
        snapshot
    }

    /// Loads the item of a key ahead, if its bucket is at hand: the beginning, and as much as the request is long that it is
    /// for, which may be about to take its place.
    #[inline]
    pub fn prefetch_item(&self, hash: KeyHash, request_bytes: usize) {
        let bytes = (request_bytes as u64).clamp(*PREFETCHED_BYTES.start(), *PREFETCHED_BYTES.end());
        self.index
            .prefetch_item(self.arena(), self.position(hash), hash.tag(), bytes);
    }

    #[inline]
    fn arena(&self) -> &Arena {
        &self.shared.pool.arena
    }

    #[inline]
    fn position(&self, hash: KeyHash) -> u64 {
        hash.position(self.shared.shard_bits)
    }

    /// The segment that a place of this shard lies in.
    #[inline]
    fn segment_of(&self, place: u64) -> SegmentId {
        SegmentId(self.shared.pool.owner(place))
    }

    /// The item at a place that an index entry or a segment of this shard names.
    #[inline]
    fn item(&self, place: u64) -> Item<'_> {
        item_at(&self.shared.pool.arena, place)
    }

    /// Finds a key's entry, whatever has become of its item.
    #[inline]
    fn find(&self, key: &Key<'_>) -> Option<(Slot, u64)> {
        let arena = self.arena();
        self.index
            .find(arena, self.position(key.hash), key.hash.tag(), |place| {
                // Key and value begin where the header says: without this, what lies on the item's next line would be waited
                // for after its first.
                arena.prefetch(place + LINE_BYTES);
                let item = item_at(arena, place);
                item.key() == key.bytes && item.db() == key.db
            })
    }

    /// Counts a get that is about to be done, and records it if the key is sampled.
    #[inline]
    fn count_get(&mut self, key: &Key<'_>, now: UnixMs) {
        self.counters.gets += 1;
        if self.is_sampled(key) {
            self.sample_get(key, now);
        }
    }

    /// Finds a key's item; one that has expired or was flushed is removed instead.
    #[inline]
    fn lookup(&mut self, key: &Key<'_>, now: UnixMs) -> Option<(Slot, u64)> {
        let (slot, place) = self.find(key)?;
        if self.is_valid(place, self.item(place), now) {
            return Some((slot, place));
        }
        self.remove_invalid(slot, place);
        None
    }

    /// The same for a get, which counts what it met instead.
    #[inline]
    fn lookup_to_get(&mut self, key: &Key<'_>, now: UnixMs) -> Option<(Slot, u64)> {
        let (slot, place) = self.find(key)?;
        if self.is_valid(place, self.item(place), now) {
            return Some((slot, place));
        }
        if self.flush_pending && self.is_flushed(place, self.item(place)) {
            self.counters.gets_flushed += 1;
        } else {
            self.counters.gets_expired += 1;
        }
        self.remove_invalid(slot, place);
        None
    }

    #[inline]
    fn is_valid(&self, place: u64, item: Item<'_>, now: UnixMs) -> bool {
        item.expiry().is_none_or(|expiry| expiry > now) && !(self.flush_pending && self.is_flushed(place, item))
    }

    fn is_flushed(&self, place: u64, item: Item<'_>) -> bool {
        let segment = &self.log[self.segment_of(place)];
        self.databases
            .get(item.db() as usize)
            .is_some_and(|db| segment.sequence < db.flushed_before)
    }

    #[cold]
    fn remove_invalid(&mut self, slot: Slot, place: u64) {
        if !(self.flush_pending && self.is_flushed(place, self.item(place))) {
            self.counters.expired += 1;
            self.tell_left(place, Left::Expired);
        }
        self.unlink(slot, place);
    }

    /// Counts a use and shows the item.
    #[inline]
    fn read(&mut self, slot: Slot, mut place: u64, now: UnixMs) -> Found<'_> {
        self.index.count_use(&self.shared.pool.arena, slot);
        if self.shared.attends_uses() {
            place = self.renew(slot, place, now);
        }
        let found = self.found(place);
        let second = second_of(now);
        if !found.was_used || second.wrapping_sub(found.accessed) >= ACCESS_NOTE_SECONDS {
            // SAFETY: the item is in a segment of this shard, which is exclusively borrowed.
            unsafe { found.item.note_access(second) };
        }
        self.found_before(place, found.was_used, found.accessed)
    }

    fn found(&self, place: u64) -> Found<'_> {
        let item = self.item(place);
        self.found_before(place, item.is_used(), item.accessed())
    }

    #[inline]
    fn found_before(&self, place: u64, was_used: bool, accessed: u16) -> Found<'_> {
        Found {
            item: self.item(place),
            arena: self.arena(),
            was_used,
            accessed,
        }
    }

    /// Removes a key for a client.
    fn remove(&mut self, key: &Key<'_>, slot: Slot, place: u64, now: UnixMs) {
        self.tell_left(place, Left::Removed);
        self.unlink(slot, place);
        self.changed(key);
        if self.is_sampled(key) {
            self.sample_absent(SampleKind::Delete, key, now);
        }
    }

    /// Removes an entry and its item.
    fn unlink(&mut self, slot: Slot, place: u64) {
        self.index.remove(&self.shared.pool.arena, slot);
        self.discard(place);
        self.tend_index();
    }

    /// Takes an item that no entry names any more out of the counts, with its value outside of the log.
    fn discard(&mut self, place: u64) {
        let units = self.item(place).outside();
        self.kill(place);
        self.free_outside(units);
    }

    /// Takes an item that no entry names any more out of the counts, and its segment too if that was the last one in it.
    /// A stub's value stays.
    fn kill(&mut self, place: u64) {
        self.uncount(place);
        let id = self.segment_of(place);
        let item = self.item(place);
        let (bytes, expiry, outside) = (item.bytes(), item.expiry(), item.outside_count());
        // SAFETY: the item is in a segment of this shard, which is exclusively borrowed.
        unsafe { item.kill() };
        self.log.move_outside(id, outside, None);
        let segment = &mut self.log[id];
        segment.live_bytes -= bytes as u32;
        segment.remove_expiry(expiry, bytes);
        let is_mostly_dead = segment.state == State::Sealed && segment.is_mostly_dead();
        if segment.live_bytes == 0 {
            self.free_if_dead(id);
        } else if is_mostly_dead {
            self.evictions.note_mostly_dead(id);
        }
    }

    /// Gives back the memory of a segment in which nothing is live any more, or begins it anew.
    fn free_if_dead(&mut self, id: SegmentId) {
        if let Some(run) = self.log.free_if_dead(id) {
            self.put_run(run);
        }
    }

    /// Counts an item that was written.
    fn count(&mut self, db: u8, expiry: Option<UnixMs>) {
        if self.databases.len() <= db as usize {
            self.databases.resize(db as usize + 1, Database::default());
        }
        let database = &mut self.databases[db as usize];
        database.items += 1;
        if let Some(expiry) = expiry {
            database.expiring += 1;
            self.last_expiry = self.last_expiry.max(expiry);
            self.sweep.note(expiry);
        }
    }

    /// Takes an item out of its database's counts, unless a flush did.
    fn uncount(&mut self, place: u64) {
        let item = self.item(place);
        if self.flush_pending && self.is_flushed(place, item) {
            return;
        }
        let (db, expires) = (item.db() as usize, item.expiry().is_some());
        self.databases[db].items -= 1;
        self.databases[db].expiring -= u64::from(expires);
    }
}

#[inline]
fn item_at(arena: &Arena, place: u64) -> Item<'_> {
    // SAFETY: places come from index entries and from walking segments, both of which name complete items of this shard
    // (invariant). The shard's memory is changed only through `&mut Shard`, and the borrow that the callers tie the item to
    // is of the shard or ends before its next change.
    unsafe { Item::at(arena.at(place, HEADER_BYTES)) }
}

/// The second of a moment as items keep it.
fn second_of(now: UnixMs) -> u16 {
    now.seconds() as u16
}
