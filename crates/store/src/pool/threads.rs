//! The pool's two threads: one tends it, the other does for it what takes the system a while and nobody waits for.
//!
//! A worker may share its core with both. Both therefore work in small pieces, a tenth of the core at most
//! ([`step_back`]), and the other one rests after each piece. They are not of the system's idle class, though that
//! would stop for a worker at once. To return memory and to make huge pages the system locks a part of the address
//! space, or all of it. An idle thread that loses its core in there delays a worker's page fault for as long as the
//! core is busy. Memory that is late for any reason is returned by the thread that tends the pool.

use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::blocks::{UNTOUCHED_MAX, block_offset};
use super::errands::{Errand, Taken};
use super::{LATE, PoolCore, READY_IDLE, Run, State};
use crate::arena::{BLOCK_BYTES, BLOCK_ORDER, BLOCK_UNITS};
use crate::priority::{process_cpu_time, step_back, thread_cpu_time};

/// The rest of the other thread after an errand, in multiples of the errand's time. Without it, the thread runs until
/// the next tick if it shares a core (4 ms, however nice it is), which shows in a server's 99th percentile. With it, a
/// large shrink takes a little longer.
const REST_PER_ERRAND: u32 = 3;
/// An errand that took longer than a third of this waited for the core rather than for the system.
const REST_MAX: Duration = Duration::from_millis(1);

impl PoolCore {
    /// Makes blocks ready that will be asked for, and leaves to the other thread what that can do, until the pool ends.
    pub(super) fn tend(&self, other: &Thread) {
        // If the system refuses, the threads share the core as any threads do.
        let _ = step_back();
        // An earlier attempt to wake it was for work that the first look finds.
        let _ = self.tender.set(std::thread::current());
        let mut state = self.state.lock();
        while !state.stopping {
            let now = Instant::now();
            self.forget_old_collapse(&mut state);
            self.collect_errands(&mut state, now);
            let (is_any, more_at) = self.leave_errands(&mut state, now);
            if is_any {
                MutexGuard::unlocked(&mut state, || other.unpark());
            }
            let is_needed = state.opened.is_wanted() || state.ready.len() < state.wanted;
            if is_needed && self.unbacked_units() >= i64::from(BLOCK_UNITS) {
                // Before any of them may be taken as a whole, as far as that is known.
                if !self.help(&mut state, |errand| matches!(errand, Errand::Split(_))) {
                    self.prepare_ahead(&mut state);
                }
            } else if state.late_at.is_some_and(|at| at <= now) {
                if !self.help(&mut state, |errand| !matches!(errand, Errand::Collapse(_))) {
                    state.look_later(now);
                }
            } else {
                let has_ready = !state.ready.is_empty() || state.wanted > 0;
                let idle_at = has_ready.then(|| state.last_demand + READY_IDLE);
                let opened_idle_at = state.opened.idle_at();
                if idle_at.is_some_and(|at| at <= now) {
                    state.wanted = 0;
                    let ready = std::mem::take(&mut state.ready);
                    state.dirty[BLOCK_ORDER as usize].extend(ready);
                    state.note_late();
                } else if opened_idle_at.is_some_and(|at| at <= now) {
                    state.opened.want_none();
                    while let Some((start, order)) = state.close_opened() {
                        state.dirty[order as usize].push_back(start);
                    }
                    state.note_late();
                } else {
                    let until = [state.late_at, idle_at, opened_idle_at, more_at];
                    let until = until.into_iter().flatten().min();
                    MutexGuard::unlocked(&mut state, || rest(until));
                }
            }
        }
    }

    /// Does what who tends the pool leaves to it, until the pool ends.
    pub(super) fn do_errands(&self) {
        let _ = step_back();
        while !self.errands.is_over() {
            let Some(taken) = self.errands.take(|_| true) else {
                std::thread::park();
                continue;
            };
            let begun = Instant::now();
            self.do_errand(&taken);
            std::thread::sleep((begun.elapsed() * REST_PER_ERRAND).min(REST_MAX));
            if !self.errands.is_left() {
                self.wake();
            }
        }
    }

    /// Applies the outcomes of errands, as if they had just been done.
    pub(super) fn collect_errands(&self, state: &mut State, now: Instant) {
        while let Some(outcome) = self.errands.collect() {
            match outcome.errand {
                Errand::Return(start, order) if !outcome.succeeded => {
                    // As in `release`.
                    state.dirty[order as usize].push_back(start);
                }
                Errand::Return(start, order) => {
                    self.resident_free_units.fetch_sub(1 << order, Ordering::Relaxed);
                    state.buddy.put(start, order);
                    if state.blocks.note_released(start, order) && state.note_late() {
                        self.wake();
                    }
                }
                Errand::Split(_) => {}
                Errand::Collapse(block) => {
                    if let Some(due) = state.collapsing.take_if(|due| due.1 == block) {
                        state.blocks.note_collapsed(due, outcome.took, now, outcome.succeeded);
                    }
                }
            }
        }
    }

    /// If the block that was to become a huge page is another one by now, it comes later, if it does. The outcome of
    /// this errand is collected before the next one is left, and means nothing.
    pub(super) fn forget_old_collapse(&self, state: &mut State) {
        if let Some(due) = state.collapsing
            && !state.blocks.is_due(due)
            && let Some(taken) = self.errands.take(|errand| errand == Errand::Collapse(due.1))
        {
            state.collapsing = None;
            self.errands.finish(&taken, false, Duration::ZERO);
        }
    }

    /// Leaves the errands to the other thread, and says whether there were any, and when there will be more.
    fn leave_errands(&self, state: &mut State, now: Instant) -> (bool, Option<Instant>) {
        let mut is_any = false;
        loop {
            let room = self.errands.room();
            state.is_busy = room.is_none();
            let Some(room) = room else {
                // More when the other thread has done these.
                return (is_any, None);
            };
            let errand = if let Some(block) = state.blocks.next_split() {
                Errand::Split(block)
            } else if let Some((start, order)) = state.oldest_idle(now) {
                Errand::Return(start, order)
            } else {
                let next = match state.collapsing {
                    None => state.blocks.next_collapse(now, process_cpu_time),
                    Some(_) => None,
                };
                let Some((_, due)) = next.filter(|(at, _)| *at <= now) else {
                    if state.dozes_until.is_none() && state.is_dirty() {
                        state.begin_to_doze();
                    }
                    let more = [state.dozes_until, next.map(|(at, _)| at)];
                    return (is_any, more.into_iter().flatten().min());
                };
                state.collapsing = Some(due);
                Errand::Collapse(due.1)
            };
            room.leave(errand);
            is_any = true;
        }
    }

    /// Does under the lock the waiting errands that return memory. Whether there was something.
    pub(super) fn do_without_thread(&self, state: &mut State) -> bool {
        let taken = self.errands.take(|errand| !matches!(errand, Errand::Collapse(_)));
        if let Some(taken) = &taken {
            self.do_errand(taken);
        }
        self.collect_errands(state, Instant::now());
        // The other thread may find none any more, and say nothing.
        state.is_busy = false;
        taken.is_some()
    }

    /// Does one of the wanted errands that the other thread did not come to, without the lock. Whether there was one.
    fn help(&self, state: &mut MutexGuard<'_, State>, is_wanted: impl Fn(Errand) -> bool) -> bool {
        let taken = self.errands.take(is_wanted);
        if let Some(taken) = &taken {
            MutexGuard::unlocked(state, || self.do_errand(taken));
        }
        taken.is_some()
    }

    fn do_errand(&self, taken: &Taken) {
        let before = thread_cpu_time();
        let succeeded = match taken.errand {
            Errand::Return(start, order) => {
                let run = Run {
                    start,
                    order,
                    clean: false,
                };
                self.arena.release(run.offset(), run.bytes()).is_ok()
            }
            Errand::Split(block) => {
                self.arena.split(block_offset(block));
                true
            }
            Errand::Collapse(block) => {
                let offset = block_offset(block);
                let is_touched = self.arena.resident_bytes(offset) >= BLOCK_BYTES - UNTOUCHED_MAX;
                is_touched && self.arena.collapse(offset).is_ok()
            }
        };
        let took = thread_cpu_time().saturating_sub(before);
        self.errands.finish(taken, succeeded, took);
    }

    /// Opens one more block, or makes one ready, without the lock while the system works.
    fn prepare_ahead(&self, state: &mut MutexGuard<'_, State>) {
        let is_to_open = state.opened.is_wanted();
        let start = if is_to_open {
            state.buddy.take_low(BLOCK_ORDER)
        } else {
            state.buddy.take_high_block()
        };
        let backed = start.is_some_and(|start| {
            state.blocks.note_huge(start);
            MutexGuard::unlocked(state, || self.back_with_memory(start))
        });
        match start {
            Some(start) if backed => {
                self.resident_free_units
                    .fetch_add(u64::from(BLOCK_UNITS), Ordering::Relaxed);
                if is_to_open {
                    state.blocks.note_opened();
                    state.opened.add(start, Instant::now());
                } else {
                    state.ready.push(start);
                }
                // The budget may have been lowered or used up meanwhile.
                self.make_way(state);
            }
            _ => {
                if let Some(start) = start {
                    state.buddy.put(start, BLOCK_ORDER);
                }
                if is_to_open {
                    state.opened.want_none();
                } else {
                    state.wanted = state.ready.len();
                }
            }
        }
    }
}

impl State {
    /// Something is to be returned: sees to it that it is even if nobody ever rests. Whether that is news.
    pub(super) fn note_late(&mut self) -> bool {
        let is_first = self.late_at.is_none();
        self.late_at.get_or_insert_with(|| Instant::now() + LATE);
        is_first
    }

    /// Nothing that is late can be returned now: looks again when it can, if there is any.
    fn look_later(&mut self, now: Instant) {
        if self.is_dirty() && self.dozes_until.is_none() {
            self.begin_to_doze();
        }
        self.late_at = self.is_dirty().then(|| now + LATE);
    }
}

/// Waits until the thread is woken, at most until then.
fn rest(until: Option<Instant>) {
    match until {
        Some(until) => std::thread::park_timeout(until.saturating_duration_since(Instant::now())),
        None => std::thread::park(),
    }
}
