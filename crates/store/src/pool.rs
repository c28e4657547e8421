//! All memory for segments, indexes and large values: one budget in units of 64 KiB, shared by every tenant.
//!
//! A run of units has one owner at a time: the caller that took it and has not put it back. One of the pool's threads
//! tends it and backs huge pages with memory before they are asked for. The first touch of one takes 500 to 850 us, so
//! it must never happen in a command. Some huge pages are taken whole. Others are opened, and smaller runs are taken of
//! them. The other thread returns memory that was put back to the system. It also makes huge pages of ordinary blocks
//! whose units are all taken: finding an item takes a tenth less in one.
//!
//! Invariant: `used` counts exactly the units that are taken. It exceeds the budget only when the budget is lowered,
//! and then it does not grow. A taking is within the budget, or in the place of a putting back. Backed memory follows
//! within the same budget. Excepted are runs that the two threads are returning just now, and runs that have yet to be
//! split. Nothing is made ready that could not be handed out. A taking in the place of runs that wait to be returned,
//! or are ready, returns those first.

mod blocks;
mod errands;
mod opened;
mod pace;
mod state;
mod threads;

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tidemark_types::PoolSnapshot;

use crate::arena::{Arena, BLOCK_BYTES, BLOCK_ORDER, BLOCK_UNITS, PLACES_MAX, UNIT_SHIFT};
use crate::buddy::Buddy;
use blocks::{Blocks, block_of, block_offset};
use errands::{Errand, Errands};
use opened::Opened;
use state::State;

/// The limit of huge pages that are kept ready. Backing one takes 0.85 ms, so 16 of 2 MiB cover a burst of 2 GB/s for
/// 16 ms.
const READY_MAX: usize = 16;
/// A thread that rests in between returns memory. Memory that still waits for so long is returned by the other thread.
const LATE: Duration = Duration::from_secs(1);
/// Without a demand for huge pages in this time, those kept ready go back to the system.
const READY_IDLE: Duration = Duration::from_millis(500);

/// The memory of all tenants. Dropping it stops its threads; memory that tenants still hold stays valid until they drop it.
#[derive(Debug)]
pub struct Pool {
    core: Arc<PoolCore>,
    threads: Vec<JoinHandle<()>>,
}

/// How a pool stands. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// The limit.
    pub pool_bytes: u64,
    /// Taken by tenants.
    pub usage_bytes: u64,
    /// Free but backed by memory: not yet returned, or kept ready.
    pub resident_free_bytes: u64,
}

impl From<PoolStats> for PoolSnapshot {
    /// The pool's account of itself.
    fn from(stats: PoolStats) -> Self {
        Self {
            pool_bytes: stats.pool_bytes,
            usage_bytes: stats.usage_bytes,
            resident_free_bytes: stats.resident_free_bytes,
            ..Self::default()
        }
    }
}

impl Pool {
    /// A pool of `pool_bytes` that can later be resized up to `reserve_bytes` of address space (the machine's memory
    /// when `None`). Its threads return freed memory and prepare huge pages.
    ///
    /// # Errors
    /// The system refuses the address space or a thread.
    pub fn start(pool_bytes: u64, reserve_bytes: Option<u64>) -> io::Result<Self> {
        let mut pool = Self::without_thread(pool_bytes, reserve_bytes)?;
        pool.begin_threads()?;
        Ok(pool)
    }

    fn begin_threads(&mut self) -> io::Result<()> {
        let core = Arc::clone(&self.core);
        {
            let mut state = core.state.lock();
            state.has_thread = true;
            if core.arena.can_collapse() {
                state.blocks.begin_collapsing();
            }
        }
        let other = self.spawn("tidemark-free", PoolCore::do_errands)?;
        self.spawn("tidemark-pool", move |core| core.tend(&other))?;
        Ok(())
    }

    /// The same without threads: callers that put memory back or ask for it return and prepare it. For programs that
    /// want no threads and for simulations.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn without_thread(pool_bytes: u64, reserve_bytes: Option<u64>) -> io::Result<Self> {
        if pool_bytes > PLACES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pool is at most 1 TiB"));
        }
        let reserve = reserve_bytes
            .unwrap_or_else(system_memory_bytes)
            .clamp(pool_bytes, PLACES_MAX);
        // Strict overcommit may refuse the machine's whole memory but grant the pool's, with a quarter for fragmentation.
        let arena = Arena::reserve(reserve).or_else(|_| Arena::reserve(pool_bytes + pool_bytes / 4))?;
        let units = arena.units();
        let state = State {
            buddy: Buddy::new(units),
            opened: Opened::default(),
            dirty: Default::default(),
            idle: Default::default(),
            ready: Vec::new(),
            blocks: Blocks::new(units),
            wanted: 0,
            last_demand: Instant::now(),
            has_thread: false,
            dozes_until: None,
            is_busy: false,
            collapsing: None,
            late_at: None,
            stopping: false,
        };
        let core = PoolCore {
            arena,
            owners: (0..units).map(|_| AtomicU32::new(0)).collect(),
            state: Mutex::new(state),
            tender: OnceLock::new(),
            errands: Errands::default(),
            budget_units: AtomicU64::new(pool_bytes >> UNIT_SHIFT),
            used_units: AtomicU64::new(0),
            resident_free_units: AtomicU64::new(0),
        };
        Ok(Self {
            core: Arc::new(core),
            threads: Vec::new(),
        })
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce(&PoolCore) + Send + 'static) -> io::Result<Thread> {
        let core = Arc::clone(&self.core);
        let builder = std::thread::Builder::new().name(name.to_owned());
        let handle = builder.spawn(move || work(&core))?;
        let thread = handle.thread().clone();
        self.threads.push(handle);
        Ok(thread)
    }

    /// Changes the limit. Tenants that hold more are brought down by their grants, not by the pool.
    ///
    /// Returns the limit in force: no more than the reserved address space.
    pub fn resize(&self, pool_bytes: u64) -> u64 {
        let units = pool_bytes.min(self.limit_bytes()) >> UNIT_SHIFT;
        // This is under the lock: earlier takings and counts are done when it returns.
        let mut state = self.core.state.lock();
        self.core.budget_units.store(units, Ordering::Relaxed);
        self.core.make_way(&mut state);
        drop(state);
        self.core.wake();
        units << UNIT_SHIFT
    }

    /// The most that [`Self::resize`] can make of it, in bytes: the address space that the system gave.
    pub fn limit_bytes(&self) -> u64 {
        u64::from(self.core.arena.units() - 1) << UNIT_SHIFT
    }

    /// How the pool stands.
    pub fn stats(&self) -> PoolStats {
        self.core.stats()
    }

    pub(crate) fn core(&self) -> &Arc<PoolCore> {
        &self.core
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut state = self.core.state.lock();
            state.stopping = true;
            state.has_thread = false;
        }
        self.core.errands.end();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A panic of a thread was reported by the panic hook; there is nothing left to save here.
            let _ = thread.join();
        }
        // By this thread, since the pool's own have to wait for a core where others want it.
        self.core.settle(&mut self.core.state.lock());
    }
}

/// A run of `2^order` units that the holder owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the first unit.
    pub(crate) start: u32,
    /// log2 of the length in units.
    pub(crate) order: u8,
    /// Whether every byte is zero and no page need be touched to make it so.
    pub(crate) clean: bool,
}

impl Run {
    /// Offset of the first byte in the arena.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.start) << UNIT_SHIFT
    }

    /// Length in units.
    pub(crate) fn units(self) -> u64 {
        1 << self.order
    }

    /// Length in bytes.
    pub(crate) fn bytes(self) -> usize {
        1 << (UNIT_SHIFT + u32::from(self.order))
    }
}

/// The state that tenants and the pool's thread share.
#[derive(Debug)]
pub(crate) struct PoolCore {
    pub(crate) arena: Arena,
    /// A number for each unit that its owner chose (a shard: the segment that the unit belongs to).
    owners: Box<[AtomicU32]>,
    state: Mutex<State>,
    /// The thread that tends the pool, if there is one.
    tender: OnceLock<Thread>,
    errands: Errands,
    budget_units: AtomicU64,
    used_units: AtomicU64,
    resident_free_units: AtomicU64,
}

impl PoolCore {
    /// Takes a run of `2^order` units on ordinary pages (`order` below a block's), if the budget has room.
    pub(crate) fn take(&self, order: u8) -> Option<Run> {
        let state = self.state.lock();
        self.charge(1 << order)
            .then(|| self.take_charged(state, order))
            .flatten()
    }

    /// Takes a run in the place of one that the caller has just put back. It may even do so while more is in use than a
    /// budget that was lowered.
    pub(crate) fn take_back(&self, order: u8) -> Option<Run> {
        let state = self.state.lock();
        let is_over = self.used_units.load(Ordering::Relaxed) > self.budget_units.load(Ordering::Relaxed);
        if is_over {
            self.used_units.fetch_add(1 << order, Ordering::Relaxed);
        }
        (is_over || self.charge(1 << order))
            .then(|| self.take_charged(state, order))
            .flatten()
    }

    /// Finds a run that is counted as used already.
    fn take_charged(&self, mut state: MutexGuard<'_, State>, order: u8) -> Option<Run> {
        debug_assert!(order < BLOCK_ORDER);
        if let Some(start) = state.newest_dirty(order) {
            self.resident_free_units.fetch_sub(1 << order, Ordering::Relaxed);
            self.note_taken(state, start, order);
            return Some(Run {
                start,
                order,
                clean: false,
            });
        }
        // Holes first, so that blocks are filled before others are begun.
        if !state.buddy.has_hole(order) {
            let opened = state.opened.take(order, Instant::now);
            if state.blocks.are_opened() && state.opened.want_more() {
                self.wake();
            }
            if let Some(start) = opened {
                self.resident_free_units.fetch_sub(1 << order, Ordering::Relaxed);
                self.note_taken(state, start, order);
                return Some(Run {
                    start,
                    order,
                    clean: true,
                });
            }
        }
        self.make_way(&mut state);
        let start = state.buddy.take_low(order).or_else(|| {
            self.reclaim(&mut state);
            state.buddy.take_low(order)
        });
        let Some(start) = start else {
            self.used_units.fetch_sub(1 << order, Ordering::Relaxed);
            return None;
        };
        if state.blocks.take_huge(start) {
            // The block was one huge page before. Without this, its first touch would back all of it again.
            self.arena.set_huge(block_offset(block_of(start)), BLOCK_BYTES, false);
        }
        self.note_taken(state, start, order);
        Some(Run {
            start,
            order,
            clean: true,
        })
    }

    fn note_taken(&self, mut state: MutexGuard<'_, State>, start: u32, order: u8) {
        let is_news = state.blocks.note_taken(start, order, Instant::now);
        drop(state);
        if is_news {
            self.wake();
        }
    }

    /// Has the thread that tends the pool look at it again.
    fn wake(&self) {
        if let Some(thread) = self.tender.get() {
            thread.unpark();
        }
    }

    /// Takes a whole block that is backed by memory already (one huge page if the system has them). `None` if the
    /// budget has no room or no block is ready. The caller then takes smaller runs, and the pool's thread prepares a
    /// block for the next time.
    pub(crate) fn take_block(&self) -> Option<Run> {
        let mut state = self.state.lock();
        if !self.charge(u64::from(BLOCK_UNITS)) {
            return None;
        }
        state.last_demand = Instant::now();
        state.wanted = state.wanted.saturating_sub(1);
        let order = BLOCK_ORDER;
        let ready = state.ready.pop().map(|start| Run {
            start,
            order,
            clean: true,
        });
        let warm = ready.or_else(|| {
            Some(Run {
                start: state.newest_dirty(order)?,
                order,
                clean: false,
            })
        });
        if let Some(run) = warm {
            self.resident_free_units
                .fetch_sub(u64::from(BLOCK_UNITS), Ordering::Relaxed);
            return Some(run);
        }
        if !state.has_thread
            && let Some(start) = self.prepare_block(&mut state)
        {
            return Some(Run {
                start,
                order,
                clean: true,
            });
        }
        self.used_units.fetch_sub(u64::from(BLOCK_UNITS), Ordering::Relaxed);
        None
    }

    /// Says that a block will be asked for soon, so that the pool's thread has one ready by then.
    pub(crate) fn expect_block(&self) {
        let mut state = self.state.lock();
        state.last_demand = Instant::now();
        if state.has_thread && state.wanted < READY_MAX {
            state.wanted += 1;
            drop(state);
            self.wake();
        }
    }

    /// Puts a run back. Its memory returns to the system soon.
    pub(crate) fn put(&self, run: Run) {
        let mut state = self.state.lock();
        self.used_units.fetch_sub(run.units(), Ordering::Relaxed);
        state.blocks.note_put(run.start, run.order);
        if state.has_thread {
            state.dirty[run.order as usize].push_back(run.start);
            self.resident_free_units.fetch_add(run.units(), Ordering::Relaxed);
            let is_looked_at = state.dozes_until.is_some() || state.is_busy;
            if state.note_late() || !is_looked_at {
                drop(state);
                self.wake();
            }
        } else {
            self.release(&mut state, run.start, run.order);
        }
    }

    /// Puts the end of a run back. Returns its first `2^order` units, which the holder keeps.
    pub(crate) fn put_end(&self, run: Run, order: u8) -> Run {
        if run.order == BLOCK_ORDER && order < BLOCK_ORDER {
            self.state.lock().blocks.note_broken(run.start);
        }
        for order in order..run.order {
            let start = run.start + (1 << order);
            self.put(Run { start, order, ..run });
        }
        Run { order, ..run }
    }

    /// Units that could be taken within the budget.
    pub(crate) fn free_units(&self) -> u64 {
        let budget = self.budget_units.load(Ordering::Relaxed);
        budget.saturating_sub(self.used_units.load(Ordering::Relaxed))
    }

    /// Notes the owner of a run's units.
    pub(crate) fn set_owner(&self, run: Run, owner: u32) {
        let first = run.start as usize;
        for unit in &self.owners[first..first + run.units() as usize] {
            unit.store(owner, Ordering::Relaxed);
        }
    }

    /// The number that the owner of the unit at this offset chose.
    #[inline]
    pub(crate) fn owner(&self, offset: u64) -> u32 {
        self.owners[(offset >> UNIT_SHIFT) as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> PoolStats {
        // Both counts of one moment: a run that is just put back is in one of them.
        let _state = self.state.lock();
        PoolStats {
            pool_bytes: self.budget_units.load(Ordering::Relaxed) << UNIT_SHIFT,
            usage_bytes: self.used_units.load(Ordering::Relaxed) << UNIT_SHIFT,
            resident_free_bytes: self.resident_free_units.load(Ordering::Relaxed) << UNIT_SHIFT,
        }
    }

    /// Units of the budget that nothing is backed in; negative where there is more.
    fn unbacked_units(&self) -> i64 {
        let backed = self.used_units.load(Ordering::Relaxed) + self.resident_free_units.load(Ordering::Relaxed);
        self.budget_units.load(Ordering::Relaxed).cast_signed() - backed.cast_signed()
    }

    /// Returns what waits for the thread or is ready, while more is backed than the budget allows.
    fn make_way(&self, state: &mut State) {
        while self.unbacked_units() < 0 {
            let next = state.oldest_dirty().or_else(|| state.ready_or_opened());
            if let Some((start, order)) = next {
                self.resident_free_units.fetch_sub(1 << order, Ordering::Relaxed);
                if !self.release(state, start, order) {
                    // The system refuses, and would again: then there is more than the budget.
                    return;
                }
            } else if !self.do_without_thread(state) {
                return;
            }
        }
    }

    /// Counts `units` as used if the budget allows. Only under the state's lock, which makes check and count one step.
    fn charge(&self, units: u64) -> bool {
        let fits = self.used_units.load(Ordering::Relaxed) + units <= self.budget_units.load(Ordering::Relaxed);
        if fits {
            self.used_units.fetch_add(units, Ordering::Relaxed);
        }
        fits
    }

    /// Returns the memory of a run to the system and its units to the buddy, and says whether it did. The system
    /// refuses for memory that a program has locked (madvise(2), `EINVAL`). The lock is held meanwhile: this is for
    /// callers that have no thread to leave it to.
    fn release(&self, state: &mut State, start: u32, order: u8) -> bool {
        let run = Run {
            start,
            order,
            clean: false,
        };
        // On failure the run is merely not zero, which only `clean` promises; it is overwritten or released again later.
        let is_released = self.arena.release(run.offset(), run.bytes()).is_ok();
        if is_released {
            state.buddy.put(start, order);
            if state.blocks.note_released(start, order) {
                if state.has_thread {
                    state.note_late();
                    self.wake();
                } else if let Some(block) = state.blocks.next_split() {
                    // It ended before those that use its memory.
                    self.arena.split(block_offset(block));
                }
            }
        } else {
            state.dirty[order as usize].push_back(start);
            self.resident_free_units.fetch_add(run.units(), Ordering::Relaxed);
        }
        is_released
    }

    /// The threads have ended: does the work that they left.
    fn settle(&self, state: &mut State) {
        while let Some(taken) = self.errands.take(|errand| matches!(errand, Errand::Collapse(_))) {
            self.errands.finish(&taken, false, Duration::ZERO);
        }
        self.reclaim(state);
        while let Some(block) = state.blocks.next_split() {
            self.arena.split(block_offset(block));
        }
    }

    /// Address space is short: returns at once what waits for a thread, ready blocks included.
    fn reclaim(&self, state: &mut State) {
        while self.do_without_thread(state) {}
        let dirty = std::mem::take(&mut state.dirty);
        state.idle = Default::default();
        let ready: Vec<(u32, u8)> = std::iter::from_fn(|| state.ready_or_opened()).collect();
        let all = dirty
            .into_iter()
            .zip(0..)
            .flat_map(|(runs, order)| runs.into_iter().map(move |start| (start, order)));
        for (start, order) in all.chain(ready) {
            self.resident_free_units.fetch_sub(1 << order, Ordering::Relaxed);
            self.release(state, start, order);
        }
    }

    /// Takes the highest free block and backs it with memory. `None` without a free block or without memory.
    fn prepare_block(&self, state: &mut State) -> Option<u32> {
        let start = state.buddy.take_high_block()?;
        state.blocks.note_huge(start);
        self.back_with_memory(start).then_some(start).or_else(|| {
            state.buddy.put(start, BLOCK_ORDER);
            None
        })
    }

    /// Whether the system had memory for the block. If not, the part that it had goes back, since nobody counts it.
    fn back_with_memory(&self, start: u32) -> bool {
        let offset = block_offset(block_of(start));
        self.arena.set_huge(offset, BLOCK_BYTES, true);
        let is_backed = self.arena.populate(offset, BLOCK_BYTES).is_ok();
        if !is_backed {
            // If that fails, too, it is zero, as a free block has to be.
            let _ = self.arena.release(offset, BLOCK_BYTES);
        }
        is_backed
    }
}

/// The machine's memory in bytes.
fn system_memory_bytes() -> u64 {
    // SAFETY: sysconf reads system constants and has no preconditions.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests;
