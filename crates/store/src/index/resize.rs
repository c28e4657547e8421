//! Growing and shrinking in place.
//!
//! A shrink cannot know how dense the table is in every part: who empties it in the order of positions (a sweep, a client
//! that scans and deletes) leaves a part as full as it was. If such a part does not fit into the smaller numbering, the
//! frontier turns around: what was moved goes back, and no entry is lost. The table then keeps its size until it is clearly
//! emptier.

use std::sync::atomic::{AtomicU32, Ordering};

use super::bucket::count;
use super::view::{ChunkTable, IndexView, scale};
use super::{
    BUCKETS_MIN, CHUNK_BUCKETS, DISPLACEMENT_MAX, DOUBLING_BELOW, Index, LARGE_FROM, PLACE_MASK, SLOTS, SURPLUS_RUNS,
    TAG_SHIFT, USES_MAX, USES_SHIFT, first_position,
};
use crate::arena::Arena;
use crate::pool::Run;

/// Buckets at the table's end that are looked at before a shrink: sweeps and scans come to them last. A few cache lines
/// in a row, and enough that chance does not decide.
const LOOKED_AT: u64 = 64;
/// A part that would be fuller than this after a shrink, in hundredths, might not fit.
const DENSE: u64 = 95;
/// The table is clearly emptier when one in so many entries has gone.
const EMPTIER_DIVISOR: u64 = 16;

/// How far a resize goes. Every resize moves all entries, so that wide ones are cheaper for what they add or free; but what
/// they add takes memory from items, and where there is no more of it, as many items go as fit into the new buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stride {
    /// Memory is free.
    Wide,
    /// Memory is short: buckets take it from items.
    Fine,
    /// Most items are about to go: it shrinks by much at a time. It grows as where memory is short.
    Coarse,
    /// Nearly all items are about to go: it shrinks by more yet, so that those are not moved again and again before. It grows
    /// as where memory is short.
    Deep,
}

impl Stride {
    /// Below this fill the index shrinks, to that one; in hundredths.
    fn shrinking(self) -> (u64, u64) {
        match self {
            Self::Wide => (60, 75),
            Self::Fine => (75, 80),
            Self::Coarse => (35, 70),
            Self::Deep => (15, 70),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    /// Buckets `0..next` still have the old numbering (`below`).
    Growing { next: u64 },
    /// Buckets `next..` still have the old numbering (`above`).
    Shrinking { next: u64 },
}

/// An entry on its way from one numbering to the other.
#[derive(Clone, Copy)]
struct Moving {
    entry: u64,
    position: u64,
}

impl Moving {
    fn place(self) -> u64 {
        self.entry & PLACE_MASK
    }

    fn tag(self) -> u16 {
        (self.entry >> TAG_SHIFT) as u16
    }

    fn uses(self) -> u8 {
        ((self.entry >> USES_SHIFT) & u64::from(USES_MAX)) as u8
    }
}

/// Why the table is larger than its entries need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Its end is too dense. To look again costs little.
    Looked,
    /// A shrink had to turn around.
    Tried,
}

/// A shrink that was not done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dense {
    why: Why,
    /// Entries at that time.
    entries: u64,
}

#[cfg(test)]
impl Dense {
    pub(super) fn was_tried(self) -> bool {
        self.why == Why::Tried
    }
}

impl Index {
    /// Whether the index should grow before more is inserted: it is seven eighths full and not growing already.
    #[inline]
    pub(crate) fn wants_growth(&self) -> bool {
        // 0.87 of eight slots are 6.96 per bucket.
        self.resize.is_none() && self.entries * 100 >= self.above * 696
    }

    /// Whether the index is so empty that it should shrink.
    #[inline]
    pub(crate) fn wants_shrinking(&self, stride: Stride) -> bool {
        let (least, _) = stride.shrinking();
        self.resize.is_none()
            && self.above > DOUBLING_BELOW
            && self.entries * 100 < self.above * SLOTS as u64 * least
            && self.is_emptier()
    }

    /// Whether a shrink that was not done might be done now.
    fn is_emptier(&self) -> bool {
        self.dense
            .is_none_or(|dense| self.entries * EMPTIER_DIVISOR < dense.entries * (EMPTIER_DIVISOR - 1))
    }

    /// Time has passed: the table's end may be looked at again.
    pub(crate) fn look_again(&mut self) {
        self.dense = self.dense.filter(|dense| dense.why == Why::Tried);
    }

    /// Whether moving all entries takes too long to be done for one of them.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.buckets > LARGE_FROM
    }

    /// Whether a resize is under way.
    #[inline]
    pub(crate) fn is_resizing(&self) -> bool {
        self.resize.is_some()
    }

    /// Whether [`Self::step`] has work: a resize, or memory to hand back after one.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.resize.is_some() || self.has_surplus
    }

    /// Chunks (units) that must be added before [`Self::start_growing`].
    pub(crate) fn chunks_to_grow(&self, stride: Stride) -> usize {
        let needed = total_buckets(self.grown(stride)).div_ceil(CHUNK_BUCKETS) as usize;
        needed.saturating_sub(self.chunks)
    }

    /// Adds memory. The run must be clean or zeroed by the caller.
    pub(crate) fn add_run(&mut self, run: Run, view: &IndexView) {
        let more = run.units() as usize;
        let capacity = self.tables.last().map_or(0, |table| table.units.len());
        if self.chunks + more > capacity {
            let units = (0..(self.chunks + more).next_power_of_two()).map(|i| {
                let old = self.tables.last().and_then(|table| table.units.get(i));
                AtomicU32::new(old.map_or(0, |unit| unit.load(Ordering::Relaxed)))
            });
            let table = Box::new(ChunkTable { units: units.collect() });
            self.tables.push(table);
        }
        if let Some(table) = self.tables.last() {
            for (i, unit) in (run.start..).take(more).enumerate() {
                table.units[self.chunks + i].store(unit, Ordering::Relaxed);
            }
            view.publish(table);
        }
        self.chunks += more;
        self.runs.push(run);
        // It grows: what is left of an earlier size is needed again.
        self.has_surplus = false;
    }

    /// Begins to grow: doubling while small, by a stride later. All chunks needed must have been added.
    pub(crate) fn start_growing(&mut self, stride: Stride, view: &IndexView) {
        debug_assert!(self.resize.is_none() && self.chunks_to_grow(stride) == 0);
        let old = self.above;
        self.above = self.grown(stride);
        self.below = old;
        // After a shrink more may be in use than the new size needs.
        self.buckets = self.buckets.max(total_buckets(self.above));
        self.dense = None;
        if old == 0 {
            self.below = self.above;
        } else {
            self.frontier = u64::MAX;
            self.resize = Some(Resize::Growing { next: old });
        }
        self.publish(view);
    }

    /// Begins to shrink, unless the table's end is too dense for that.
    pub(crate) fn start_shrinking(&mut self, arena: &Arena, stride: Stride, view: &IndexView) {
        debug_assert!(self.resize.is_none());
        let (_, fill) = stride.shrinking();
        let smaller = (self.entries * 100).div_ceil(SLOTS as u64 * fill).max(DOUBLING_BELOW);
        if self.is_end_dense(arena, smaller) {
            self.keep_size(Why::Looked, self.entries);
            return;
        }
        self.below = smaller;
        self.frontier = 0;
        self.resize = Some(Resize::Shrinking { next: 0 });
        self.publish(view);
    }

    /// Whether the last buckets of the numbering in force would be too full in a smaller one.
    fn is_end_dense(&self, arena: &Arena, smaller: u64) -> bool {
        let looked_at = LOOKED_AT.min(self.above);
        let last = self.above - looked_at..self.above;
        let filled: u64 = last.map(|bucket| count(self.bucket(arena, bucket)) as u64).sum();
        filled * 100 * self.above > looked_at * SLOTS as u64 * DENSE * smaller
    }

    fn keep_size(&mut self, why: Why, entries: u64) {
        self.dense = Some(Dense { why, entries });
    }

    /// Moves up to `buckets` buckets to the new numbering. `position_of` gives an item's position from its place (it reads
    /// the key). Returns some of the runs that are no longer needed, from a resize's end on. Puts the places of entries into
    /// `lost` that are in the index no more, because a growth found no room for them ([`super::Full::Neighbourhood`]). That
    /// takes hundreds of keys of nearly one position: where evenly spread ones fit, they fit into a larger table.
    pub(crate) fn step(
        &mut self,
        arena: &Arena,
        view: &IndexView,
        buckets: u32,
        lost: &mut Vec<u64>,
        mut position_of: impl FnMut(u64) -> u64,
    ) -> Vec<Run> {
        let Some(resize) = self.resize else {
            return self.surplus_runs();
        };
        self.prefetch_next(arena, resize, buckets);
        for _ in 0..buckets {
            match self.resize {
                Some(Resize::Growing { next: 0 }) => {
                    self.below = self.above;
                    self.resize = None;
                }
                Some(Resize::Shrinking { next }) if next == self.above => {
                    self.above = self.below;
                    self.frontier = 0;
                    self.resize = None;
                    self.dense = None;
                    self.cut(arena);
                }
                Some(resize) => self.move_bucket(arena, resize, lost, &mut position_of),
                None => break,
            }
        }
        self.publish(view);
        if self.resize.is_some() {
            Vec::new()
        } else {
            self.surplus_runs()
        }
    }

    fn grown(&self, stride: Stride) -> u64 {
        match (self.above, stride) {
            (0, _) => BUCKETS_MIN,
            (small, _) if small < DOUBLING_BELOW => small * 2,
            (large, Stride::Wide) => large + large / 4,
            (large, Stride::Fine | Stride::Coarse | Stride::Deep) => large + large / 16,
        }
    }

    /// Forgets the buckets that a smaller numbering does not need. What the last one spilled follows it without a gap.
    fn cut(&mut self, arena: &Arena) {
        let spill = (total_buckets(self.above)..self.buckets).take_while(|&bucket| self.bucket(arena, bucket)[0] != 0);
        self.buckets = total_buckets(self.above) + spill.count() as u64;
    }

    /// Some of the runs that no bucket lies in.
    fn surplus_runs(&mut self) -> Vec<Run> {
        let runs: Vec<Run> = std::iter::from_fn(|| self.surplus_run()).take(SURPLUS_RUNS).collect();
        self.has_surplus = runs.len() == SURPLUS_RUNS;
        runs
    }

    /// The last run, if no bucket lies in it.
    fn surplus_run(&mut self) -> Option<Run> {
        let needed = self.buckets.div_ceil(CHUNK_BUCKETS) as usize;
        let last = self.runs.last()?.units() as usize;
        if self.chunks - last < needed {
            return None;
        }
        self.chunks -= last;
        self.runs.pop()
    }

    /// Gives all entries of the next bucket of the old numbering their place in the new one, and moves the frontier past it.
    fn move_bucket(
        &mut self,
        arena: &Arena,
        resize: Resize,
        lost: &mut Vec<u64>,
        position_of: &mut impl FnMut(u64) -> u64,
    ) {
        let frontier = self.frontier;
        let own = match resize {
            Resize::Growing { next } => next - 1,
            Resize::Shrinking { next } => next,
        };
        let moved = self.take_all_of(arena, own, position_of);
        match resize {
            Resize::Growing { .. } => {
                self.resize = Some(Resize::Growing { next: own });
                self.frontier = first_position(own, self.below).unwrap_or(u64::MAX);
            }
            Resize::Shrinking { .. } => {
                self.resize = Some(Resize::Shrinking { next: own + 1 });
                self.frontier = first_position(own + 1, self.above).unwrap_or(u64::MAX);
            }
        }
        for (placed, moving) in moved.iter().enumerate() {
            if self.place_moving(arena, *moving).is_ok() {
                continue;
            }
            match resize {
                Resize::Growing { .. } => lost.push(moving.place()),
                Resize::Shrinking { .. } => return self.turn_around(arena, frontier, &moved, placed, lost),
            }
        }
    }

    /// Takes all entries out whose own bucket this is.
    fn take_all_of(&mut self, arena: &Arena, own: u64, position_of: &mut impl FnMut(u64) -> u64) -> Vec<Moving> {
        // One by one, because each removal may move others of the same bucket.
        let mut taken = Vec::with_capacity(SLOTS * 2);
        while let Some((slot, entry)) = self.first_of(arena, own) {
            let position = position_of(entry & PLACE_MASK);
            taken.push(Moving { entry, position });
            self.remove(arena, slot);
        }
        taken
    }

    fn place_moving(&mut self, arena: &Arena, moving: Moving) -> Result<(), super::Full> {
        self.place(arena, moving.position, moving.tag(), moving.place(), moving.uses())
    }

    /// Turns a shrink into a growth to the size before: the entries that were just moved, of which so many found a place, do
    /// not fit. They go back behind the frontier as it was, where they have been.
    #[cold]
    fn turn_around(&mut self, arena: &Arena, frontier: u64, moved: &[Moving], placed: usize, lost: &mut Vec<u64>) {
        for moving in &moved[..placed] {
            let found = self.find(arena, moving.position, moving.tag(), |place| place == moving.place());
            if let Some((slot, _)) = found {
                self.remove(arena, slot);
            }
        }
        self.frontier = frontier;
        let next = frontier.checked_sub(1).map_or(0, |last| scale(last, self.below) + 1);
        self.resize = Some(Resize::Growing { next });
        for moving in moved {
            if self.place_moving(arena, *moving).is_err() {
                lost.push(moving.place());
            }
        }
        self.keep_size(Why::Tried, self.entries);
    }

    /// Loads the items of the buckets that this step will move: their keys are read for their positions.
    fn prefetch_next(&self, arena: &Arena, resize: Resize, buckets: u32) {
        let range = match resize {
            Resize::Growing { next } => next.saturating_sub(u64::from(buckets))..next,
            Resize::Shrinking { next } => next..(next + u64::from(buckets)).min(self.above),
        };
        for bucket in range {
            for &entry in self.bucket(arena, bucket) {
                arena.prefetch(entry & PLACE_MASK);
            }
        }
    }
}

/// Buckets for a numbering, with those behind the last one that take its spill.
fn total_buckets(buckets: u64) -> u64 {
    buckets + (buckets / 8).clamp(4, DISPLACEMENT_MAX)
}
