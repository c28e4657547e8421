//! The memory of a shard's ghosts, and their answer about a key that is about to be written.

use tidemark_types::UnixMs;

use super::{Key, Shard};
use crate::ghost::Ghosts;

/// Ghosts kept per item in the cache, in tenths (libCacheSim: 0.9).
const GHOST_TENTHS: u64 = 9;

/// The state of a key that is about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// It has an item already.
    pub is_stored: bool,
    /// Memory is used up: others have to go for it.
    pub is_full: bool,
    /// It was refused not long ago, or went to the ghosts. A hint: one key in some two thousand is taken for another one.
    pub was_seen: bool,
}

impl Shard {
    /// The state of a key that is about to be written.
    pub fn prospect(&mut self, key: &Key<'_>, now: UnixMs) -> Prospect {
        let ghosts = self.ghosts.as_ref();
        let was_seen = ghosts.is_some_and(|ghosts| ghosts.contains(self.arena(), key.hash));
        Prospect {
            is_stored: self.lookup(key, now).is_some(),
            // Without a grant, a first one is made with the first write.
            is_full: self.shared.grant() > 0 && self.is_used_up(),
            was_seen,
        }
    }

    /// Remembers a key that was not let in. `false` if there is no memory for that yet: the next write frees some.
    pub fn remember(&mut self, key: &Key<'_>) -> bool {
        if self.ghosts.is_none() {
            self.fit_ghosts();
        }
        let Some(ghosts) = &mut self.ghosts else { return false };
        ghosts.insert(&self.shared.pool.arena, key.hash);
        true
    }

    /// Gives the ghosts about as much room as the policy wants, if memory is free for it. Otherwise it notes how much
    /// is missing, so that evictions make room for it.
    pub(super) fn fit_ghosts(&mut self) {
        self.ghost_units_missing = 0;
        if !self.wants_ghosts() {
            self.drop_ghosts();
            return;
        }
        let wanted = (self.items() * GHOST_TENTHS / 10).max(1);
        let has = self.ghosts.as_ref().map_or(0, |ghosts| ghosts.capacity());
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
            match self.take_run(memory.order) {
                Some(run) => runs.push(run),
                None => break,
            }
        }
        if runs.len() == memory.runs {
            self.ghosts = Some(Box::new(Ghosts::new(runs, wanted)));
        } else {
            self.ghost_units_missing = (memory.runs as u64) << memory.order;
            runs.into_iter().for_each(|run| self.put_run(run));
        }
    }

    pub(super) fn drop_ghosts(&mut self) {
        let runs = self.ghosts.take().map(|ghosts| ghosts.into_runs());
        runs.into_iter().flatten().for_each(|run| self.put_run(run));
    }
}
