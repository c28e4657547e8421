//! The memory of a shard's ghosts.

use super::Shard;
use crate::ghost::Ghosts;

/// Ghosts kept per item in the cache, in tenths (libCacheSim: 0.9).
const GHOST_TENTHS: u64 = 9;

impl Shard {
    /// Gives the ghosts about as much room as the policy wants, if memory is free for it; else notes how much is missing, so
    /// that evictions make room for it.
    pub(super) fn fit_ghosts(&mut self) {
        self.ghost_units_missing = 0;
        if !self.rules().has_ghosts() {
            self.drop_ghosts();
            return;
        }
        let wanted = (self.items() * GHOST_TENTHS / 10).max(1);
        let has = self.ghosts.as_ref().map_or(0, Ghosts::capacity);
        if has * 10 >= wanted * 7 && has * 10 <= wanted * 15 {
            if let Some(ghosts) = &mut self.ghosts {
                ghosts.limit(wanted);
            }
            return;
        }
        self.drop_ghosts();
        let memory = Ghosts::memory_for(wanted);
        let mut runs = Vec::with_capacity(memory.runs);
        while runs.len() < memory.runs {
            match self.take_zeroed(memory.order) {
                Some(run) => runs.push(run),
                None => break,
            }
        }
        if runs.len() == memory.runs {
            self.ghosts = Some(Ghosts::new(runs, wanted));
        } else {
            self.ghost_units_missing = (memory.runs as u64) << memory.order;
            runs.into_iter().for_each(|run| self.put_run(run));
        }
    }

    pub(super) fn drop_ghosts(&mut self) {
        let runs = self.ghosts.take().map(Ghosts::into_runs);
        runs.into_iter().flatten().for_each(|run| self.put_run(run));
    }
}
