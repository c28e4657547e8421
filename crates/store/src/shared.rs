//! The state that the shards of one tenant share: the grant, the usage, the policy, and the threshold of sampling.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_types::{Fault, LogShare, Policy, SamplingThreshold, UNIT_BYTES};

use crate::grave::{Grave, Part};
use crate::hash::{Hasher, KeyHash};
use crate::item::Attributes;
use crate::pool::{PoolCore, Run};
use crate::shard::{Key, Value};

/// Called when something happened that others should know of. May be called under a shard's lock, so it does little.
pub type Alarm = Arc<dyn Fn() + Send + Sync>;

/// Why an item is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// Its place was needed.
    Evicted,
    /// Its time had come.
    Expired,
    /// It was removed: alone, with all others, or with its tenant.
    Removed,
}

/// The receiver of events about items that leave. It is called under a shard's lock: it must not panic, and not use the
/// store.
pub trait Listener: Send + Sync {
    /// An item leaves, whose value is so long, in bytes.
    fn left(&self, key: &[u8], value_bytes: usize, why: Left);
    /// So many items leave at once, without being told one by one.
    fn emptied(&self, items: u64, why: Left);
}

/// An item that memory gives up for lack of space.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Its key.
    pub key: Key<'a>,
    /// Its value.
    pub value: Value<'a>,
    /// Everything besides.
    pub attributes: Attributes,
    /// It was read since it was written, or a ghost knew it.
    pub was_used: bool,
}

/// The place below memory that holds more of a tenant's items. It is called under a shard's lock: it must neither wait
/// nor use the store. Its copy of a key is out of date from the call of [`Self::forget`] on.
pub trait Below: Send + Sync {
    /// A client wrote, changed or removed a key of this hash, or its item is not to be kept.
    fn forget(&self, hash: KeyHash);
    /// Takes an item in that leaves memory.
    fn demote(&self, item: &Leaving<'_>);
    /// Everything of a database, or of all, was removed. Called once for all shards, while all of them are locked.
    fn flush(&self, db: Option<u8>);
}

/// The hooks of a program that embeds the cache, and the place below its tenants' memory.
#[derive(Clone, Default)]
pub struct Hooks {
    /// The place below memory.
    pub below: Option<Arc<dyn Below>>,
    /// The listener to items that leave.
    pub left: Option<Arc<dyn Listener>>,
    /// The listener to the replacement of a custom policy. It is called under a shard's lock, as a [`Listener`] is.
    pub replaced: Option<Arc<dyn Fn(Fault) + Send + Sync>>,
}

/// Parts of memory put aside that a write takes back at a time, until it has found room.
const DUG_AT_ONCE: u32 = 4;
/// Times that one write does so while it takes a run: a whole grave may take milliseconds, and a shard is locked meanwhile. It
/// suffices for a whole block of runs of one unit each.
const DIGS_PER_TAKE: u32 = 16;
/// The same for a caller that waits for all of it: others may want the lock in between.
const DUG_UNDER_A_LOCK: u32 = 64;
/// Times that what is held is read while others change it.
const HELD_READS: u32 = 4;
/// Units that a shard needs for its first item: its index and a segment.
const UNITS_TO_BEGIN: u64 = 2;

impl Hooks {
    fn is_any(&self) -> bool {
        self.below.is_some() || self.left.is_some() || self.replaced.is_some()
    }
}

/// Shared by all shards of a tenant. Counts are in units of 64 KiB.
///
/// Fields that are read before a lock is taken lie apart from locks, see `tenant::Cell`.
#[repr(C, align(128))]
pub(crate) struct TenantShared {
    grant: AtomicU64,
    used: AtomicU64,
    /// Held by items that were removed all at once, beside what is used.
    buried: AtomicU64,
    /// The most that was ever held.
    peak: AtomicU64,
    /// The units that may be granted here at the first write while the grant is zero.
    first_grant: AtomicU64,
    /// The units that a tenant with a grant may hold, however small the grant is.
    least: AtomicU64,
    pub(crate) pool: Arc<PoolCore>,
    pub(crate) hasher: Hasher,
    /// log2 of the number of shards.
    pub(crate) shard_bits: u32,
    /// The policy's number by [`policy_number`].
    policy: AtomicU16,
    sampling: AtomicU32,
    /// Records of sampled keys that were made, modulo 2^32.
    samples: AtomicU32,
    /// Whether refused keys are remembered as ghosts.
    remembers: AtomicBool,
    alarm: Alarm,
    graves: Mutex<VecDeque<Grave>>,
    has_graves: AtomicBool,
    /// The units that may be held whatever is granted; `u32::MAX` for any number. It is short, so that an idle tenant takes no
    /// further line.
    limit: AtomicU32,
    /// `None` if there are none, which is the usual case.
    hooks: Option<Box<Hooks>>,
}

impl fmt::Debug for TenantShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (grant, used) = (self.grant.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed));
        write!(f, "TenantShared {{ grant: {grant} units, used: {used} units }}")
    }
}

impl TenantShared {
    pub(crate) fn new(pool: Arc<PoolCore>, hasher: Hasher, shard_bits: u32, alarm: Alarm, hooks: Hooks) -> Self {
        let zero = || AtomicU64::new(0);
        let policy = AtomicU16::new(policy_number(Policy::default()));
        Self {
            pool,
            hasher,
            shard_bits,
            policy,
            grant: zero(),
            used: zero(),
            buried: zero(),
            peak: zero(),
            first_grant: zero(),
            least: zero(),
            sampling: AtomicU32::new(0),
            samples: AtomicU32::new(0),
            remembers: AtomicBool::new(false),
            alarm,
            graves: Mutex::default(),
            has_graves: AtomicBool::new(false),
            limit: AtomicU32::new(u32::MAX),
            hooks: hooks.is_any().then(|| Box::new(hooks)),
        }
    }

    /// The place below memory, if there is one.
    #[inline]
    pub(crate) fn below(&self) -> Option<&dyn Below> {
        self.hooks.as_ref()?.below.as_deref()
    }

    /// The listener to items that leave.
    #[inline]
    pub(crate) fn listener(&self) -> Option<&dyn Listener> {
        self.hooks.as_ref()?.left.as_deref()
    }

    /// The listener to the replacement of a custom policy.
    pub(crate) fn replaced(&self) -> Option<&(dyn Fn(Fault) + Send + Sync)> {
        self.hooks.as_ref()?.replaced.as_deref()
    }

    pub(crate) fn policy(&self) -> Policy {
        numbered_policy(self.policy.load(Ordering::Relaxed))
    }

    /// Whether the policy wants to know what is used: to copy it, or because it is a program's. One comparison, because
    /// every hit asks.
    #[inline]
    pub(crate) fn attends_uses(&self) -> bool {
        self.policy.load(Ordering::Relaxed) >= APPROX_LRU_FROM
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy_number(policy), Ordering::Relaxed);
    }

    /// Whether keys that were not let in are remembered, in a shard that has no ghosts of its policy's either.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers.load(Ordering::Relaxed)
    }

    pub(crate) fn set_remembers(&self, remembers: bool) {
        self.remembers.store(remembers, Ordering::Relaxed);
    }

    pub(crate) fn sampling_threshold(&self) -> SamplingThreshold {
        SamplingThreshold::new(self.sampling.load(Ordering::Relaxed))
    }

    /// Sets which keys are sampled. Returns the former value.
    pub(crate) fn set_sampling(&self, threshold: SamplingThreshold) -> SamplingThreshold {
        SamplingThreshold::new(self.sampling.swap(threshold.get(), Ordering::Relaxed))
    }

    /// Samples fewer keys until [`Self::set_sampling`] says otherwise.
    pub(crate) fn lower_sampling(&self, threshold: SamplingThreshold) {
        self.sampling.fetch_min(threshold.get(), Ordering::Relaxed);
    }

    /// The next record's number. Called under the shard's lock, so that numbers grow in the order in which things happen.
    pub(crate) fn next_sample(&self) -> u32 {
        self.samples.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the grant and the first grant, both in bytes (whole units count).
    pub(crate) fn set_grant(&self, grant_bytes: u64, first_grant_bytes: u64) {
        self.set_first_grant(first_grant_bytes);
        self.grant.store(grant_bytes / UNIT_BYTES, Ordering::Relaxed);
    }

    /// Sets the first grant, in bytes.
    pub(crate) fn set_first_grant(&self, bytes: u64) {
        self.first_grant.store(bytes / UNIT_BYTES, Ordering::Relaxed);
    }

    /// Sets the least memory that may be held with any grant: an index and a segment in each shard, within so many
    /// bytes. Else the first keys of a tenant would push each other out until its next grant.
    pub(crate) fn set_least(&self, cap_bytes: u64) {
        let units = UNITS_TO_BEGIN << self.shard_bits;
        self.least.store(units.min(cap_bytes / UNIT_BYTES), Ordering::Relaxed);
    }

    pub(crate) fn grant(&self) -> u64 {
        self.grant.load(Ordering::Relaxed)
    }

    /// Sets the units that may be held whatever is granted; `None` for any number.
    pub(crate) fn set_limit(&self, units: Option<u64>) {
        let units = units.map_or(u32::MAX, |units| u32::try_from(units).unwrap_or(u32::MAX));
        self.limit.store(units, Ordering::Relaxed);
    }

    fn limit(&self) -> u64 {
        match self.limit.load(Ordering::Relaxed) {
            u32::MAX => u64::MAX,
            units => u64::from(units),
        }
    }

    /// The units that may be held: the grant, or the least, within the limit.
    pub(crate) fn allowed(&self) -> u64 {
        match self.grant() {
            0 => 0,
            grant => grant.max(self.least.load(Ordering::Relaxed)).min(self.limit()),
        }
    }

    /// Units held by items and what belongs to them.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Units held in all, with those that wait to be given back. What is buried in between would be counted twice, so both are
    /// read again where it was.
    pub(crate) fn held(&self) -> u64 {
        let mut used = self.used.load(Ordering::Acquire);
        for _ in 0..HELD_READS {
            let held = used + self.buried.load(Ordering::Acquire);
            let again = self.used.load(Ordering::Acquire);
            if again == used {
                return held;
            }
            used = again;
        }
        used + self.buried.load(Ordering::Acquire)
    }

    /// Whether memory waits to be given back.
    pub(crate) fn has_buried(&self) -> bool {
        self.has_graves.load(Ordering::Relaxed)
    }

    /// Puts memory aside that was used until now, so many units.
    pub(crate) fn bury(&self, grave: Grave, units: u64) {
        if units == 0 {
            return;
        }
        let mut graves = self.graves.lock();
        graves.push_back(grave);
        self.has_graves.store(!graves.is_empty(), Ordering::Relaxed);
        // In this order, so that nobody takes it for free in between.
        self.buried.fetch_add(units, Ordering::Release);
        self.used.fetch_sub(units, Ordering::Release);
    }

    /// Gives up to so many parts of that back. Whether there was any.
    pub(crate) fn dig(&self, parts: u32) -> bool {
        if !self.has_buried() {
            return false;
        }
        let mut graves = self.graves.lock();
        let had_some = !graves.is_empty();
        for _ in 0..parts {
            let Some(grave) = graves.front_mut() else { break };
            match grave.next() {
                Part::Run(run) => {
                    self.pool.put(run);
                    self.buried.fetch_sub(run.units(), Ordering::Release);
                }
                Part::Nothing => {}
                Part::End => drop(graves.pop_front()),
            }
        }
        self.has_graves.store(!graves.is_empty(), Ordering::Relaxed);
        had_some
    }

    /// Gives all of it back, for a caller that holds no lock.
    pub(crate) fn dig_all(&self) {
        while self.dig(DUG_UNDER_A_LOCK) {}
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The units that each shard may hold if all hold the same.
    pub(crate) fn share(&self) -> u64 {
        self.grant().min(self.limit()) >> self.shard_bits
    }

    /// Units that may still be taken.
    pub(crate) fn room(&self) -> u64 {
        self.allowed().saturating_sub(self.used())
    }

    /// Units held beyond the allowed ones.
    pub(crate) fn excess(&self) -> u64 {
        self.used().saturating_sub(self.allowed())
    }

    /// Takes a run within the grant: a whole block where one is asked for and ready, else a smaller run.
    pub(crate) fn take(&self, order: u8) -> Option<Run> {
        for _ in 0..DIGS_PER_TAKE {
            let run = self.take_free(order);
            // Memory that was removed all at once makes room for what is written afterwards, before any of that has to go.
            let helps = run.is_none() && self.room() >= 1 << order;
            if !(helps && self.dig(DUG_AT_ONCE)) {
                return run;
            }
        }
        self.take_free(order)
    }

    /// The same without digging for it.
    fn take_free(&self, order: u8) -> Option<Run> {
        if order >= crate::arena::BLOCK_ORDER {
            if let Some(run) = self.charged(1 << order, || self.pool.take_block()) {
                return Some(run);
            }
            // If it is not the grant that is too small, no block is ready: a command never waits for one to be backed with
            // memory.
            return if self.room() < 1 << order {
                None
            } else {
                self.take_free(crate::arena::BLOCK_ORDER - 1)
            };
        }
        self.charged(1 << order, || self.pool.take(order))
    }

    /// Takes a run in the place of one that the caller has just put back. It may do so while the tenant holds more than
    /// a grant that was lowered, or all tenants more than a pool that was. A write that meets a shrink thus gives up
    /// one segment for the next, and need not bring the excess down by itself.
    pub(crate) fn take_back(&self, order: u8) -> Option<Run> {
        let order = order.min(crate::arena::BLOCK_ORDER - 1);
        let units = 1 << order;
        let most = self.allowed();
        let allowed = |used: u64| {
            let is_allowed = used > most || used + units <= most;
            is_allowed.then(|| used + units + self.buried.load(Ordering::Acquire))
        };
        self.counted(units, allowed, || self.pool.take_back(order))
    }

    /// Puts a run back.
    pub(crate) fn put(&self, run: Run) {
        self.pool.put(run);
        self.used.fetch_sub(run.units(), Ordering::Relaxed);
    }

    /// Puts the end of a run back. Returns its first `2^order` units, which the tenant keeps.
    pub(crate) fn put_end(&self, run: Run, order: u8) -> Run {
        let kept = self.pool.put_end(run, order);
        self.used.fetch_sub(run.units() - kept.units(), Ordering::Relaxed);
        kept
    }

    fn charged(&self, units: u64, take: impl FnOnce() -> Option<Run>) -> Option<Run> {
        if self.grant() == 0 {
            self.grant_first();
        }
        let most = self.allowed();
        let buried = || self.buried.load(Ordering::Acquire);
        let within = |used: u64| Some(used + buried() + units).filter(|held| *held <= most);
        self.counted(units, within, take)
    }

    /// Takes a run if the use allows it, which `allowed` says, with what is held then. The peak is of that: what is buried by the
    /// time that the run is there may be a part of what was used.
    fn counted(
        &self,
        units: u64,
        mut allowed: impl FnMut(u64) -> Option<u64>,
        take: impl FnOnce() -> Option<Run>,
    ) -> Option<Run> {
        let mut held = 0;
        let charge = |used| {
            held = allowed(used)?;
            Some(used + units)
        };
        self.used
            .fetch_update(Ordering::Acquire, Ordering::Acquire, charge)
            .ok()?;
        let run = take();
        if run.is_none() {
            self.used.fetch_sub(units, Ordering::Relaxed);
        } else {
            self.peak.fetch_max(held, Ordering::Relaxed);
        }
        run
    }

    /// A first write must not wait for a round. The grant that the plan foresaw for it is made here, as far as memory
    /// is free, and the control plane is told.
    fn grant_first(&self) {
        let free = self.pool.free_units() + self.buried.load(Ordering::Relaxed);
        let possible = self.first_grant.load(Ordering::Relaxed).min(free);
        if possible > 0
            && self
                .grant
                .compare_exchange(0, possible, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            (self.alarm)();
        }
    }
}

impl Drop for TenantShared {
    fn drop(&mut self) {
        self.dig_all();
    }
}

/// The number of `approx-lru:0`; the next thousand are those of its other shares.
const APPROX_LRU_FROM: u16 = Policy::PLAIN.len() as u16;
/// The number of a program's own policy: the last one.
const CUSTOM: u16 = u16::MAX;

/// A policy with its parameter in one number, so that both change at once.
fn policy_number(policy: Policy) -> u16 {
    match policy {
        Policy::ApproxLru(share) => APPROX_LRU_FROM + share.thousandths(),
        Policy::Custom => CUSTOM,
        plain => {
            let place = Policy::PLAIN.iter().position(|&known| known == plain);
            // Every other policy is in the list, which is short.
            place.unwrap_or_default() as u16
        }
    }
}

/// The policy of a [`policy_number`].
fn numbered_policy(number: u16) -> Policy {
    let share = number.checked_sub(APPROX_LRU_FROM);
    match share.and_then(LogShare::from_thousandths) {
        Some(share) => Policy::ApproxLru(share),
        None => Policy::PLAIN
            .get(usize::from(number))
            .copied()
            .unwrap_or(Policy::Custom),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::pool::Pool;
    use crate::segment::Segments;
    use tidemark_types::MIB;

    fn shared(pool: &Pool) -> (TenantShared, Arc<AtomicUsize>) {
        let alarms = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&alarms);
        let alarm: Alarm = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (
            TenantShared::new(
                Arc::clone(pool.core()),
                Hasher::with_seed(1),
                0,
                alarm,
                Hooks::default(),
            ),
            alarms,
        )
    }

    #[test]
    fn every_policy_is_kept_with_its_share() {
        let pool = Pool::without_thread(4 * MIB, Some(8 * MIB)).unwrap();
        let (tenant, _) = shared(&pool);
        assert_eq!(tenant.policy(), Policy::default());
        let shares = (0..=1000).filter_map(LogShare::from_thousandths);
        let policies = Policy::PLAIN
            .into_iter()
            .chain(shares.map(Policy::ApproxLru))
            .chain([Policy::Custom]);
        let mut kept = 0;
        for policy in policies {
            tenant.set_policy(policy);
            assert_eq!(tenant.policy(), policy);
            assert_eq!(tenant.attends_uses(), !Policy::PLAIN.contains(&policy), "{policy}");
            kept += 1;
        }
        assert_eq!(kept, 1005);
    }

    #[test]
    fn the_first_write_makes_the_first_grant_and_says_so_once() {
        let pool = Pool::without_thread(4 * MIB, Some(8 * MIB)).unwrap();
        let (tenant, alarms) = shared(&pool);
        assert_eq!(tenant.take(0), None, "no grant was foreseen");
        tenant.set_grant(0, 2 * MIB);
        let run = tenant.take(0).unwrap();
        assert_eq!(
            (tenant.grant(), tenant.used(), alarms.load(Ordering::Relaxed)),
            (32, 1, 1)
        );
        assert!(tenant.take(4).is_some());
        assert_eq!(alarms.load(Ordering::Relaxed), 1);
        assert_eq!(tenant.take(4), None, "33 of 32 units");
        tenant.put(run);
        assert_eq!((tenant.room(), tenant.peak()), (16, 17));
    }

    #[test]
    fn a_first_grant_is_no_larger_than_what_is_free() {
        let pool = Pool::without_thread(4 * MIB, Some(8 * MIB)).unwrap();
        let (first, _) = shared(&pool);
        first.set_grant(3 * MIB, 0);
        assert!((0..3).all(|_| first.take(4).is_some()));
        let (second, _) = shared(&pool);
        second.set_grant(0, 20 * MIB);
        assert!(second.take(0).is_some());
        assert_eq!(second.grant(), 16);
    }

    #[test]
    fn a_refused_run_is_not_counted() {
        let pool = Pool::without_thread(MIB, Some(8 * MIB)).unwrap();
        let (tenant, _) = shared(&pool);
        tenant.set_grant(4 * MIB, 0);
        assert!(tenant.take(4).is_some());
        assert_eq!(tenant.take(0), None, "the pool is full");
        assert_eq!(tenant.used(), 16);
    }

    #[test]
    fn what_is_buried_while_a_run_is_taken_is_held_once() {
        let pool = Pool::without_thread(4 * MIB, Some(8 * MIB)).unwrap();
        let (tenant, _) = shared(&pool);
        tenant.set_grant(4 * MIB, 0);
        let runs: Vec<Run> = (0..2).map(|_| tenant.take(4).unwrap()).collect();
        let run = tenant.charged(16, || {
            tenant.bury(Grave::new(runs, Segments::default(), HashSet::new()), 32);
            pool.core().take(4)
        });
        assert!(run.is_some());
        assert_eq!((tenant.used(), tenant.held(), tenant.peak()), (16, 48, 48));
    }

    #[test]
    fn one_write_digs_a_part_of_a_grave() {
        let pool = Pool::without_thread(20 * MIB, Some(32 * MIB)).unwrap();
        let (tenant, _) = shared(&pool);
        tenant.set_grant(16 * MIB, 0);
        let runs: Vec<Run> = (0..256).map(|_| tenant.take(0).unwrap()).collect();
        tenant.bury(Grave::new(runs, Segments::default(), HashSet::new()), 256);
        // Under a lowered grant none of it makes room before nearly all of it is given back.
        tenant.set_grant(UNIT_BYTES, 0);
        let digs = u64::from(DUG_AT_ONCE * DIGS_PER_TAKE);
        for writes in 1..4 {
            assert_eq!(tenant.take(0), None);
            assert_eq!(tenant.held(), 256 - writes * digs);
        }
        assert!(tenant.take(0).is_some());
        assert_eq!((tenant.held(), tenant.has_buried()), (1, true));
    }

    #[test]
    fn in_excess_a_run_is_had_only_in_the_place_of_another() {
        let pool = Pool::without_thread(4 * MIB, Some(8 * MIB)).unwrap();
        let (tenant, _) = shared(&pool);
        tenant.set_grant(4 * MIB, 0);
        let runs: Vec<Run> = (0..4).map(|_| tenant.take(4).unwrap()).collect();
        for (grant_bytes, pool_bytes) in [(MIB, 4 * MIB), (4 * MIB, MIB), (MIB, MIB)] {
            tenant.set_grant(grant_bytes, 0);
            pool.resize(pool_bytes);
            tenant.put(runs[0]);
            assert_eq!(tenant.take(4), None, "{grant_bytes} {pool_bytes}");
            assert!(tenant.take_back(4).is_some(), "{grant_bytes} {pool_bytes}");
            assert_eq!((tenant.used(), pool.stats().usage_bytes), (64, 4 * MIB));
        }
        // Within the grant and the pool the usual rule holds.
        runs.into_iter().for_each(|run| tenant.put(run));
        assert!(tenant.take_back(4).is_some());
        assert_eq!(tenant.take_back(0), None, "17 of 16 units");
    }
}
