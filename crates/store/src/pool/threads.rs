//! The pool's threads: one prepares what will be asked for soon, one returns what was put back when there is nothing better to do.
//!
//! A worker may share its core with both. Who prepares takes a tenth of it at most, in small pieces. Who returns stops for
//! everybody, as the system's idle class does: a thread that is merely nice runs on until the next tick, and the server's
//! slowest request in a hundred took 2.8 ms beside one that gave a gibibyte back, for 0.1 ms so. What it costs: where it is
//! stopped with the pool's lock, by a thread that is not the one to wait for it, that lock is held until a core is free again; it
//! holds it for a hundredth of its time. Memory must come back also where nobody ever rests: what is late is returned by who
//! prepares.

use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::{Condvar, MutexGuard};

use super::blocks::{Due, UNTOUCHED_MAX, block_offset};
use super::{LATE, PoolCore, READY_IDLE, Run, State};
use crate::arena::{BLOCK_BYTES, BLOCK_ORDER, BLOCK_UNITS};
use crate::priority::{step_aside, step_back};

impl PoolCore {
    /// Makes blocks ready that will be asked for, and returns what the other thread does not come to, until the pool ends.
    pub(super) fn prepare_blocks(&self) {
        // Where the system refuses, all take turns as any threads do.
        let _ = step_back();
        let mut state = self.state.lock();
        while !state.stopping {
            let now = Instant::now();
            let is_late = state.late_at.is_some_and(|at| at <= now);
            if state.ready.len() < state.wanted && self.unbacked_units() >= i64::from(BLOCK_UNITS) {
                // Before any of them may be taken as a whole, as far as that is known.
                if !self.split_next(&mut state) {
                    self.prepare_ahead(&mut state);
                }
            } else if is_late && let Some(run) = state.oldest_idle(now) {
                self.return_run(&mut state, run);
            } else if is_late {
                if !self.split_next(&mut state) {
                    state.look_later(now);
                }
            } else if !state.ready.is_empty() || state.wanted > 0 {
                let idle_at = state.last_demand + READY_IDLE;
                if idle_at <= now {
                    state.wanted = 0;
                    let ready = std::mem::take(&mut state.ready);
                    state.dirty[BLOCK_ORDER as usize].extend(ready);
                    state.late_at.get_or_insert(now + LATE);
                    self.returns.notify_one();
                } else {
                    let until = state.late_at.map_or(idle_at, |at| at.min(idle_at));
                    self.prepares.wait_until(&mut state, until);
                }
            } else {
                let until = state.late_at;
                wait(&self.prepares, &mut state, until);
            }
        }
    }

    /// Returns what was put back, splits huge pages of which a part was, makes huge pages of full blocks, until the pool ends.
    pub(super) fn return_memory(&self) {
        if step_aside().is_err() {
            let _ = step_back();
        }
        let mut state = self.state.lock();
        while !state.stopping {
            let now = Instant::now();
            let next = state.blocks.next_collapse(now);
            if let Some(run) = state.oldest_idle(now) {
                self.return_run(&mut state, run);
            } else if self.split_next(&mut state) {
            } else if let Some((_, due)) = next.filter(|(at, _)| *at <= now) {
                self.collapse(&mut state, due);
            } else {
                if state.dozes_until.is_none() && state.is_dirty() {
                    state.begin_to_doze();
                }
                let until = [state.dozes_until, next.map(|(at, _)| at)].into_iter().flatten().min();
                wait(&self.returns, &mut state, until);
            }
        }
    }

    /// Returns a run to the system, without the lock while that works.
    fn return_run(&self, state: &mut MutexGuard<'_, State>, (start, order): (u32, u8)) {
        let run = Run {
            start,
            order,
            clean: false,
        };
        MutexGuard::unlocked(state, || {
            // Failure: see `release`. The run goes back to the free ones all the same; it costs resident memory until it is used
            // and freed again.
            let _ = self.arena.release(run.offset(), run.bytes());
        });
        self.resident_free_units.fetch_sub(run.units(), Ordering::Relaxed);
        state.buddy.put(start, order);
        state.blocks.note_released(start, order);
        // There may be room for what is wanted now.
        if state.ready.len() < state.wanted {
            self.prepares.notify_one();
        }
    }

    /// Splits a block that was a huge page. Whether there was one.
    fn split_next(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let next = state.blocks.next_split();
        if let Some(block) = next {
            MutexGuard::unlocked(state, || self.arena.split(block_offset(block)));
        }
        next.is_some()
    }

    /// Makes a huge page of a block, if it was touched; without the lock while the system works.
    fn collapse(&self, state: &mut MutexGuard<'_, State>, due: Due) {
        let (offset, begun) = (block_offset(due.1), Instant::now());
        let is_collapsed = MutexGuard::unlocked(state, || {
            let is_touched = self.arena.resident_bytes(offset) >= BLOCK_BYTES - UNTOUCHED_MAX;
            is_touched && self.arena.collapse(offset).is_ok()
        });
        state.blocks.note_collapsed(due, (begun, Instant::now()), is_collapsed);
    }

    /// Makes one more block ready, without the lock while the system works.
    fn prepare_ahead(&self, state: &mut MutexGuard<'_, State>) {
        let Some(start) = state.buddy.take_high_block() else {
            state.wanted = state.ready.len();
            return;
        };
        state.blocks.note_huge(start);
        let backed = MutexGuard::unlocked(state, || self.back_with_memory(start));
        if backed {
            self.resident_free_units
                .fetch_add(u64::from(BLOCK_UNITS), Ordering::Relaxed);
            state.ready.push(start);
            // The budget may have been lowered or used up meanwhile.
            self.make_way(state);
        } else {
            state.buddy.put(start, BLOCK_ORDER);
            state.wanted = state.ready.len();
        }
    }
}

impl State {
    /// Nothing that is late can be returned now: looks again when it can, if there is any.
    fn look_later(&mut self, now: Instant) {
        if self.is_dirty() && self.dozes_until.is_none() {
            self.begin_to_doze();
        }
        self.late_at = self.is_dirty().then(|| now + LATE);
    }
}

/// Waits until the condition is told to have changed, at most until then.
fn wait(condition: &Condvar, state: &mut MutexGuard<'_, State>, until: Option<Instant>) {
    match until {
        Some(until) => drop(condition.wait_until(state, until)),
        None => condition.wait(state),
    }
}
