//! What the pool's lock guards: free memory by the state that it is in.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::blocks::{Blocks, Due};
use super::opened::Opened;
use crate::arena::BLOCK_ORDER;
use crate::buddy::Buddy;

/// Lengths of runs: from a unit to a block, by powers of two.
const ORDERS: usize = BLOCK_ORDER as usize + 1;
/// The time for which returned memory is left lying. Memory that is taken again meanwhile need not be backed anew,
/// which is most of the cost of a large value. Waking the thread also costs the caller that puts back a system call. A
/// longer time saves more of that, but gives a large shrink back later.
pub(super) const DOZE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct State {
    pub(super) buddy: Buddy,
    pub(super) opened: Opened,
    /// Freed runs by order, still backed by memory, to be returned by a thread. A taking takes the newest.
    pub(super) dirty: [VecDeque<u32>; ORDERS],
    /// The number of the oldest of those that were not needed during a doze. During one, it is the number so far.
    pub(super) idle: [usize; ORDERS],
    /// Blocks that are one huge page each, backed and zeroed.
    pub(super) ready: Vec<u32>,
    pub(super) blocks: Blocks,
    /// Ready blocks that shards are expected to ask for soon.
    pub(super) wanted: usize,
    pub(super) last_demand: Instant,
    pub(super) has_thread: bool,
    /// The time until which returned runs are left lying.
    pub(super) dozes_until: Option<Instant>,
    /// So much was left to the other thread that it says when there may be more.
    pub(super) is_busy: bool,
    /// The errand that is to make a huge page.
    pub(super) collapsing: Option<Due>,
    /// The time from which on waiting runs are returned at the cost of others.
    pub(super) late_at: Option<Instant>,
    pub(super) stopping: bool,
}

impl State {
    /// A freed run that is to be used again.
    pub(super) fn newest_dirty(&mut self, order: u8) -> Option<u32> {
        let order = usize::from(order);
        let start = self.dirty[order].pop_back()?;
        self.idle[order] = self.idle[order].min(self.dirty[order].len());
        Some(start)
    }

    /// The next freed run to return where memory is needed at once, larger ones first.
    pub(super) fn oldest_dirty(&mut self) -> Option<(u32, u8)> {
        self.oldest(|state, order| state.dirty[order].len())
    }

    /// The next freed run that nobody needed during a doze, if that is over.
    pub(super) fn oldest_idle(&mut self, now: Instant) -> Option<(u32, u8)> {
        if self.dozes_until.is_some_and(|until| now < until) {
            return None;
        }
        self.dozes_until = None;
        self.oldest(|state, order| state.idle[order])
    }

    /// Memory that was backed ahead of need.
    pub(super) fn ready_or_opened(&mut self) -> Option<(u32, u8)> {
        let ready = self.ready.pop().map(|start| (start, BLOCK_ORDER));
        ready.or_else(|| self.close_opened())
    }

    /// A run of the rest of opened blocks, to give it back to the system.
    pub(super) fn close_opened(&mut self) -> Option<(u32, u8)> {
        let run = self.opened.take_any()?;
        if run.1 == BLOCK_ORDER {
            self.blocks.note_closed();
        }
        Some(run)
    }

    /// Whether memory waits to be returned.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.iter().any(|runs| !runs.is_empty())
    }

    fn oldest(&mut self, count: impl Fn(&Self, usize) -> usize) -> Option<(u32, u8)> {
        let order = (0..ORDERS).rev().find(|&order| count(self, order) > 0)?;
        self.idle[order] = self.idle[order].saturating_sub(1);
        Some((self.dirty[order].pop_front()?, order as u8))
    }

    /// Runs that are not taken until the doze ends are idle.
    pub(super) fn begin_to_doze(&mut self) {
        self.idle = self.dirty.each_ref().map(VecDeque::len);
        self.dozes_until = Some(Instant::now() + DOZE);
    }
}
