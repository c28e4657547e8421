//! The counts of one connection's turn, which one worker makes without anybody else.

use std::sync::atomic::Ordering;

use tidemark_protocol::resp::command::CommandId;
use tidemark_types::Outcome;

use super::{COMMANDS_MAX, COUNTS, Count, TenantCounts, VERBS_MAX, zeros};

/// How often a command had another outcome than that it did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Others {
    /// The command's number in RESP, or behind [`COMMANDS_MAX`] its place in [`super::VERBS`].
    place: usize,
    missed: u64,
    failed: u64,
}

impl Others {
    /// Adds to the command's counts in a list, which is as long as there are commands at most.
    fn add_to(self, list: &mut Vec<Self>) {
        match list.iter_mut().find(|known| known.place == self.place) {
            Some(known) => {
                known.missed += self.missed;
                known.failed += self.failed;
            }
            None => list.push(self),
        }
    }
}

/// Counts of keys found, keys missed and errors before a command, to tell its outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    found: u32,
    missed: u32,
    failed: u32,
}

/// Counts of one connection's turn.
#[derive(Debug)]
pub(crate) struct TurnCounts {
    counts: [u32; COUNTS],
    /// Which of them are not zero.
    touched: u64,
    commands: [u32; COMMANDS_MAX],
    commands_touched: u128,
    verbs: [u32; VERBS_MAX],
    verbs_touched: u32,
    others: Vec<Others>,
    /// Lookups of commands; they only grow, and begin anew after the last number.
    found: u32,
    missed: u32,
}

impl Default for TurnCounts {
    fn default() -> Self {
        Self {
            counts: [0; COUNTS],
            touched: 0,
            commands: [0; COMMANDS_MAX],
            commands_touched: 0,
            verbs: [0; VERBS_MAX],
            verbs_touched: 0,
            others: Vec::new(),
            found: 0,
            missed: 0,
        }
    }
}

const _: () = assert!(COUNTS <= 64 && COMMANDS_MAX <= 128, "one bit for each count");

impl TurnCounts {
    #[inline]
    pub(crate) fn add(&mut self, count: Count, by: u32) {
        self.counts[count as usize] += by;
        self.touched |= 1 << count as u32;
    }

    /// A command begins.
    #[inline]
    pub(crate) fn before(&self) -> Before {
        let count = |count: Count| self.counts[count as usize];
        Before {
            found: self.found,
            missed: self.missed,
            failed: count(Count::Errors) + count(Count::NoMemory) + count(Count::TooLarge),
        }
    }

    /// A command that is done in pieces was left unfinished: the counts of its pieces so far, for [`Self::goes_on`].
    pub(crate) fn so_far(&self, before: Before) -> Before {
        let now = self.before();
        Before {
            found: now.found.wrapping_sub(before.found),
            missed: now.missed.wrapping_sub(before.missed),
            failed: now.failed.wrapping_sub(before.failed),
        }
    }

    /// A command's next piece begins; `so_far` are the counts of those before, none for its first. The outcome is that of all.
    #[inline]
    pub(crate) fn goes_on(&self, so_far: Before) -> Before {
        let now = self.before();
        Before {
            found: now.found.wrapping_sub(so_far.found),
            missed: now.missed.wrapping_sub(so_far.missed),
            failed: now.failed.wrapping_sub(so_far.failed),
        }
    }

    /// Counts a RESP command that was executed since `before`.
    #[inline]
    pub(crate) fn command(&mut self, id: CommandId, before: Before) {
        self.note(id, self.outcome(before));
    }

    /// Counts a RESP command whose outcome is known.
    #[inline]
    pub(crate) fn note(&mut self, id: CommandId, outcome: Outcome) {
        match outcome {
            Outcome::Ok => {
                self.commands[id as usize] += 1;
                self.commands_touched |= 1 << id as u32;
            }
            other => self.note_other(id as usize, other),
        }
    }

    /// Counts a command of memcached that was executed since `before`, by its place in [`super::VERBS`].
    #[inline]
    pub(crate) fn verb(&mut self, verb: usize, before: Before) {
        match self.outcome(before) {
            Outcome::Ok => {
                self.verbs[verb] += 1;
                self.verbs_touched |= 1 << verb;
            }
            other => self.note_other(COMMANDS_MAX + verb, other),
        }
    }

    #[inline]
    fn outcome(&self, before: Before) -> Outcome {
        let now = self.before();
        if now.failed != before.failed {
            Outcome::Error
        } else if now.missed != before.missed && now.found == before.found {
            Outcome::Miss
        } else {
            Outcome::Ok
        }
    }

    fn note_other(&mut self, place: usize, outcome: Outcome) {
        let others = Others {
            place,
            missed: u64::from(outcome == Outcome::Miss),
            failed: u64::from(outcome == Outcome::Error),
        };
        others.add_to(&mut self.others);
    }

    /// Counts a lookup.
    #[inline]
    pub(crate) fn hit_or_miss(&mut self, hit: bool, hits: Count, misses: Count) {
        let sum = if hit { &mut self.found } else { &mut self.missed };
        *sum = sum.wrapping_add(1);
        self.add(if hit { hits } else { misses }, 1);
    }

    /// Forgets everything.
    pub(crate) fn discard(&mut self) {
        let is_clean = self.touched == 0 && self.commands_touched == 0 && self.verbs_touched == 0;
        if !is_clean || !self.others.is_empty() {
            *self = Self::default();
        }
    }

    /// Adds everything to a tenant's counts and begins anew.
    pub(crate) fn hand_over(&mut self, tenant: &TenantCounts) {
        while self.touched != 0 {
            let count = self.touched.trailing_zeros() as usize;
            self.touched &= self.touched - 1;
            tenant.counts[count].fetch_add(u64::from(std::mem::take(&mut self.counts[count])), Ordering::Relaxed);
        }
        while self.commands_touched != 0 {
            let command = self.commands_touched.trailing_zeros() as usize;
            self.commands_touched &= self.commands_touched - 1;
            let calls = u64::from(std::mem::take(&mut self.commands[command]));
            let commands = tenant.commands();
            commands.calls[command].fetch_add(calls, Ordering::Relaxed);
            commands.done[command].fetch_add(calls, Ordering::Relaxed);
        }
        while self.verbs_touched != 0 {
            let verb = self.verbs_touched.trailing_zeros() as usize;
            self.verbs_touched &= self.verbs_touched - 1;
            zeros(&tenant.verbs)[verb].fetch_add(u64::from(std::mem::take(&mut self.verbs[verb])), Ordering::Relaxed);
        }
        for others in self.others.drain(..) {
            if others.place < COMMANDS_MAX {
                let calls = &tenant.commands().calls[others.place];
                calls.fetch_add(others.missed + others.failed, Ordering::Relaxed);
            }
            for (counts, by) in [(&tenant.missed, others.missed), (&tenant.failed, others.failed)] {
                if by > 0 {
                    counts.add(others.place, by);
                }
            }
        }
    }
}
