//! One tenant's part of the store: its shards, its grant, its keys.
//!
//! This file has the shards, and [`guard`] one that is locked. [`held`] has the values that stay in place without a lock, [`report`] the
//! reports on all shards, and [`keeper`] those who look after them. [`flush`] removes all, at once or at a moment.
//! [`withdraw`] takes a grant back as a whole, [`limit`] holds beside any. [`custom`] has the decisions of a program that
//! embeds the cache.

mod custom;
mod flush;
mod guard;
mod held;
mod keeper;
mod limit;
mod report;
mod withdraw;

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_types::{Policy, TenantPlan, TenantState, UNIT_BYTES, UnixMs};

use crate::arena::prefetch_value;
use crate::hash::{Hasher, KeyHash};
use crate::index::IndexView;
use crate::item::Attributes;
use crate::pool::Pool;
use crate::shard::{Key, Refused, Shard, Upkeep};
use crate::shared::{Alarm, Hooks, TenantShared};
pub use guard::ShardGuard;
pub use held::{PinnedValue, Reservation};
use keeper::Visit;
pub use keeper::{Keeper, KeeperInbox};
pub use report::{StoreCounts, TenantReport};

/// The most shards that a tenant can have.
pub const SHARDS_MAX: usize = 64;
/// Keys looked up together: sixteen independent loads take 10 to 12 ns each on the development machine, a dependent one 160.
const BATCH_KEYS: usize = 16;

/// How a tenant's store is made.
#[derive(Clone)]
pub struct TenantConfig {
    /// A power of two, at most [`SHARDS_MAX`].
    pub shards: usize,
    /// Which items go when memory is short.
    pub policy: Policy,
    /// Places keys.
    pub hasher: Hasher,
    /// The keepers of the shards: shard `i` has the `(i + first)`-th one, counted around.
    pub keepers: Arc<[Arc<KeeperInbox>]>,
    /// Number of the first shard's keeper.
    pub first_keeper: usize,
    /// Called after a first grant.
    pub alarm: Alarm,
    /// Called when upkeep has changed how much the tenant holds, which no command of a client tells of.
    pub usage_changed: Alarm,
}

impl TenantConfig {
    /// One shard of the usual policy, which one keeper looks after. Nobody is told of anything.
    pub fn with_keeper(keeper: Arc<KeeperInbox>, hasher: Hasher) -> Self {
        Self {
            shards: 1,
            policy: Policy::default(),
            hasher,
            keepers: Arc::new([keeper]),
            first_keeper: 0,
            alarm: Arc::new(|| {}),
            usage_changed: Arc::new(|| {}),
        }
    }
}

/// One tenant's keys and memory.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct TenantStore {
    keepers: Arc<[Arc<KeeperInbox>]>,
    first_keeper: usize,
    pinned_bytes: AtomicU64,
    /// Lengths of the values that are being written in pieces.
    written_bytes: AtomicU64,
    shared: Arc<TenantShared>,
    /// Made at the first write: a tenant that is never used costs next to nothing.
    cells: OnceLock<Box<[Cell]>>,
    /// When database 0 is to be flushed, in milliseconds since 1970.
    flush_at: AtomicU64,
    usage_changed: UsageChanged,
    /// CPU time that keepers used for its shards, as far as they measure it, in nanoseconds.
    upkeep_cpu_ns: AtomicU64,
}

/// No flush is due.
const NEVER: u64 = u64::MAX;

struct UsageChanged(Alarm);

impl fmt::Debug for UsageChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsageChanged")
    }
}

/// A shard with its lock. Cells do not share cache lines.
///
/// A processor lets a load wait for a recent store if the lowest twelve bits of the two addresses are the same (4K
/// aliasing). The store may be the release of a lock, and the load the beginning of the next operation. Operations then
/// no longer overlap. Locks, and the fields read on the way to them ([`TenantStore`], [`TenantShared`]), therefore lie
/// in different parts of 128 bytes, wherever they are in memory.
#[derive(Debug)]
#[repr(C, align(128))]
struct Cell {
    view: Arc<IndexView>,
    /// Units that the shard holds, for others to see without the lock.
    units: AtomicU64,
    shard: Mutex<Shard>,
    /// Whether a keeper looks at the shard regularly.
    is_kept: AtomicBool,
    /// Whether a keeper was asked to look at the shard and has not done so yet.
    is_nudged: AtomicBool,
}

/// The end of a cell's lock, and the beginning of the fields that are read on the way to it, in bytes of 128.
const LOCK_END: usize = 32;
const _: () = {
    assert!(offset_of!(Cell, shard) < LOCK_END);
    assert!(offset_of!(TenantStore, shared) >= LOCK_END && offset_of!(TenantStore, flush_at) <= align_of::<Cell>());
    assert!(offset_of!(TenantShared, pool) >= LOCK_END && offset_of!(TenantShared, shard_bits) < align_of::<Cell>());
};

impl TenantStore {
    /// A store without items, without memory and, until a grant is set, without a right to any.
    ///
    /// # Panics
    /// If the number of shards is not a power of two up to [`SHARDS_MAX`], or there is no keeper.
    pub fn new(pool: &Pool, config: TenantConfig) -> Arc<Self> {
        Self::with_hooks(pool, config, Hooks::default())
    }

    /// The same, for a program that wants to be told of things.
    ///
    /// # Panics
    /// If [`Self::new`] would.
    pub fn with_hooks(pool: &Pool, config: TenantConfig, hooks: Hooks) -> Arc<Self> {
        assert!(
            config.shards.is_power_of_two() && config.shards <= SHARDS_MAX,
            "{} shards",
            config.shards
        );
        assert!(!config.keepers.is_empty(), "a tenant without a keeper");
        let shard_bits = config.shards.trailing_zeros();
        let shared = TenantShared::new(Arc::clone(pool.core()), config.hasher, shard_bits, config.alarm, hooks);
        shared.set_policy(config.policy);
        Arc::new(Self {
            shared: Arc::new(shared),
            keepers: config.keepers,
            first_keeper: config.first_keeper,
            cells: OnceLock::new(),
            usage_changed: UsageChanged(config.usage_changed),
            pinned_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            flush_at: AtomicU64::new(NEVER),
            upkeep_cpu_ns: AtomicU64::new(0),
        })
    }

    /// A key with its hash. `db` is below [`crate::DATABASES`].
    #[inline]
    pub fn key<'a>(&self, db: u8, bytes: &'a [u8]) -> Key<'a> {
        Key {
            db,
            bytes,
            hash: self.shared.hasher.hash(db, bytes),
        }
    }

    /// Number of shards.
    #[inline]
    pub fn shards(&self) -> usize {
        1 << self.shared.shard_bits
    }

    /// The shard that a key of this hash belongs to.
    #[inline]
    pub fn shard_of(&self, hash: KeyHash) -> usize {
        hash.shard(self.shared.shard_bits)
    }

    /// Loads the index bucket of a hash ahead, without a lock.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        if let Some(cells) = self.cells.get() {
            let position = hash.position(self.shared.shard_bits);
            cells[self.shard_of(hash)]
                .view
                .prefetch(&self.shared.pool.arena, position);
        }
    }

    /// Loads ahead the part of all shards that every command reads. It is for a caller that knows that so many commands
    /// come, and has something else to do until then. If there are more shards than commands, most would be loaded for
    /// nothing, and none is.
    #[inline]
    pub fn prefetch_shards(&self, commands: usize) {
        prefetch_value::<TenantShared>(&self.shared);
        self.cells_for(commands).iter().for_each(prefetch_value);
    }

    /// The same for the lines that [`Self::prefetch`] reads first; [`Self::prefetch_shards`] loads the way to them.
    #[inline]
    pub fn prefetch_views(&self, commands: usize) {
        for cell in self.cells_for(commands) {
            prefetch_value::<IndexView>(&cell.view);
        }
    }

    /// The same for the lines that it reads next; [`Self::prefetch_views`] loads the way to them.
    #[inline]
    pub fn prefetch_tables(&self, commands: usize) {
        for cell in self.cells_for(commands) {
            cell.view.prefetch_table();
        }
    }

    /// The shards, if most of them will be asked by so many commands.
    #[inline]
    fn cells_for(&self, commands: usize) -> &[Cell] {
        self.cells
            .get()
            .filter(|cells| cells.len() <= commands)
            .map_or(&[], |cells| cells)
    }

    /// Locks a shard. Hold it for microseconds only, and never across a system call.
    #[inline]
    pub fn lock(self: &Arc<Self>, shard: usize) -> ShardGuard<'_> {
        let cell = &self.cells()[shard];
        ShardGuard {
            tenant: self,
            number: shard,
            cell,
            shard: cell.shard.lock(),
        }
    }

    /// Locks every shard in ascending order, which is the only order in which several may be locked.
    pub fn lock_all(self: &Arc<Self>) -> Vec<ShardGuard<'_>> {
        (0..self.shards()).map(|shard| self.lock(shard)).collect()
    }

    /// Writes an item whose value may be long: it is copied without holding a lock.
    ///
    /// # Errors
    /// It does not fit into the tenant's grant.
    pub fn put(
        self: &Arc<Self>,
        key: &Key<'_>,
        value: &[u8],
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        let mut guard = self.lock(self.shard_of(key.hash));
        let Some(mut reservation) = guard.reserve(value.len(), now)? else {
            return guard.put(key, value, attributes, now);
        };
        drop(guard);
        reservation.write(value, now)?;
        reservation.commit(key, attributes, now)
    }

    /// Begins to write a value of so many bytes piece by piece ([`Reservation::write`]). Each piece takes its own room
    /// only, so that no step takes long. `None` for a value that is short enough for [`ShardGuard::put`], and if the
    /// limit of values being written so is reached.
    pub fn begin(self: &Arc<Self>, hash: KeyHash, value_bytes: usize) -> Option<Reservation> {
        let guard = self.lock(self.shard_of(hash));
        if value_bytes <= guard.inline_value_max() {
            return None;
        }
        Reservation::in_pieces(&guard, value_bytes)
    }

    /// Calls `f` with the locked shard of each key in order. Faster than locking for one after the other: the index buckets
    /// of a batch of keys are loaded ahead together, and then their items.
    pub fn visit(self: &Arc<Self>, keys: &[Key<'_>], mut f: impl FnMut(usize, &mut ShardGuard<'_>)) {
        for (batch, first) in keys.chunks(BATCH_KEYS).zip((0..).step_by(BATCH_KEYS)) {
            batch.iter().for_each(|key| self.prefetch(key.hash));
            let mut held: Option<ShardGuard<'_>> = None;
            for key in batch {
                self.lock_next(&mut held, key.hash).prefetch_item(key.hash, 0);
            }
            for (i, key) in batch.iter().enumerate() {
                f(first + i, self.lock_next(&mut held, key.hash));
            }
        }
    }

    /// Locks the shard of a hash, after releasing another one that may be held.
    #[inline]
    fn lock_next<'g, 't>(
        self: &'t Arc<Self>,
        held: &'g mut Option<ShardGuard<'t>>,
        hash: KeyHash,
    ) -> &'g mut ShardGuard<'t> {
        let shard = self.shard_of(hash);
        if held.as_ref().is_some_and(|guard| guard.number != shard) {
            *held = None;
        }
        held.get_or_insert_with(|| self.lock(shard))
    }

    /// How many shards a tenant of this plan has.
    pub fn shards_of(plan: &TenantPlan) -> usize {
        usize::from(plan.shards.max(1)).next_power_of_two().min(SHARDS_MAX)
    }

    /// Follows a plan: its policy, its sampling and its grant.
    ///
    /// Nothing is lost that was written since the last report: the plan could not know of it.
    pub fn follow(self: &Arc<Self>, plan: &TenantPlan) {
        self.set_policy(plan.policy);
        self.set_sampling(plan.sampling_threshold);
        let cap = plan.cap_bytes.unwrap_or(u64::MAX);
        self.shared.set_least(cap);
        let first_grant_bytes = plan.first_grant_bytes.min(cap);
        if plan.grant_bytes > 0 {
            self.set_grant(plan.grant_bytes.min(cap), first_grant_bytes);
            return;
        }
        if plan.state == TenantState::Reclaimed {
            self.reclaim();
        }
        self.withdraw_grant(cap, first_grant_bytes);
    }

    /// Sets the memory that the tenant may hold, and the memory that it may take by itself at a first write while that
    /// is zero. Its keepers give the excess back.
    pub fn set_grant(self: &Arc<Self>, grant_bytes: u64, first_grant_bytes: u64) {
        self.shared.set_grant(grant_bytes, first_grant_bytes);
        if self.shared.excess() > 0 {
            self.nudge();
        }
    }

    /// Sets the eviction policy. Nothing is lost by it.
    pub fn set_policy(&self, policy: Policy) {
        self.shared.set_policy(policy);
    }

    /// The eviction policy in force.
    pub fn policy(&self) -> Policy {
        self.shared.policy()
    }

    /// The memory that the tenant may hold, in bytes.
    pub fn grant_bytes(&self) -> u64 {
        self.shared.grant() * UNIT_BYTES
    }

    /// The memory that the tenant holds, in bytes.
    pub fn usage_bytes(&self) -> u64 {
        self.shared.held() * UNIT_BYTES
    }

    /// The part of it that waits to be given back, in bytes.
    #[cfg(test)]
    pub(crate) fn buried_bytes(&self) -> u64 {
        (self.shared.held() - self.shared.used()) * UNIT_BYTES
    }

    /// The most memory that the tenant ever held, in bytes.
    pub fn peak_usage_bytes(&self) -> u64 {
        self.shared.peak() * UNIT_BYTES
    }

    /// Adds up something over all shards, locking one after the other.
    pub fn sum(self: &Arc<Self>, mut of: impl FnMut(&Shard) -> u64) -> u64 {
        let shards = 0..self.cells.get().map_or(0, |cells| cells.len());
        shards.map(|shard| of(&self.lock(shard).shard)).sum()
    }

    /// Charges CPU time of a keeper's to the tenant, in nanoseconds.
    pub fn charge_upkeep(&self, cpu_ns: u64) {
        self.upkeep_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Does a piece of upkeep of a shard. For keepers.
    pub(crate) fn upkeep(self: &Arc<Self>, shard: usize, now: UnixMs) -> Upkeep {
        self.flush_if_due(now);
        // Work that comes before the next nudge is seen below, since that nudge finds this one answered.
        self.cells()[shard].is_nudged.swap(false, Ordering::AcqRel);
        let mut guard = self.lock(shard);
        let before = self.shared.held();
        let state = guard.shard.upkeep(now);
        if self.shared.held() != before {
            (self.usage_changed.0)();
        }
        if state == Upkeep::Empty {
            // Under the lock, so that the next write announces the shard again.
            guard.cell.is_kept.store(false, Ordering::Relaxed);
        }
        state
    }

    /// Asks the keepers to look at all shards now.
    fn nudge(self: &Arc<Self>) {
        (0..self.cells.get().map_or(0, |cells| cells.len())).for_each(|shard| self.nudge_one(shard));
    }

    fn nudge_one(self: &Arc<Self>, shard: usize) {
        if !self.cells()[shard].is_nudged.swap(true, Ordering::AcqRel) {
            self.announce(shard, false);
        }
    }

    fn announce(self: &Arc<Self>, shard: usize, regular: bool) {
        let keeper = &self.keepers[(self.first_keeper + shard) % self.keepers.len()];
        keeper.push(Visit {
            tenant: Arc::clone(self),
            shard,
            regular,
        });
    }

    fn cells(&self) -> &[Cell] {
        self.cells.get_or_init(|| {
            let cell = || {
                let view = Arc::new(IndexView::default());
                let shard = Shard::new(Arc::clone(&self.shared), Arc::clone(&view));
                Cell {
                    view,
                    units: AtomicU64::new(0),
                    is_kept: AtomicBool::new(false),
                    is_nudged: AtomicBool::new(false),
                    shard: Mutex::new(shard),
                }
            };
            (0..self.shards()).map(|_| cell()).collect()
        })
    }
}
