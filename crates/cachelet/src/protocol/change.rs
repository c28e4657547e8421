//! Changes of the view: draining, finishing the writes of lost homes, and taking the new view up.

use std::collections::BTreeSet;

use super::home::Entry;
use super::home::Work;
use super::store_write::{Circumstances, Next, StoreWrite, Written};
use super::{Cachelet, Flaw, PendingWrite, Purpose, State, Turn};
use crate::config::Domain;
use crate::membership::{Change, Document, Phase};
use crate::message::{Output, StoreReply};
use crate::types::{CacheletId, Epoch, Key};
use crate::view::View;

/// A change that this cachelet takes part in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Draining {
    pub(super) epoch: Epoch,
    pub(super) phase: Phase,
    pub(super) lost: BTreeSet<CacheletId>,
    /// Whether the document says that this cachelet is drained, or recovered in its second phase.
    is_noted: bool,
    has_said: bool,
}

/// Whether the home knows, in this view, the holders of a key's copies by their own names. Only such copies outlive a
/// change.
fn is_tracked(view: &View, key: &Key) -> bool {
    let config = view.config_for(key);
    config.coherence.has_directory() && config.domain == Domain::Flat
}

impl Cachelet {
    /// The coordination engine's document came.
    pub(super) fn learn(&mut self, turn: &mut Turn, document: &Document) {
        if document.view.epoch > self.view.epoch {
            self.take_up(turn, &document.view);
        }
        // A document with older epochs is of a backup: this cachelet knows better, and its lease will end.
        if document.view.epoch < self.view.epoch || self.is_expelled {
            return;
        }
        match &document.change {
            Some(change) if self.view.has(self.me) => self.join_change(turn, change),
            _ => {}
        }
    }

    fn join_change(&mut self, turn: &mut Turn, change: &Change) {
        let is_noted = match change.phase {
            Phase::Prepare => change.drained.contains(&self.me),
            Phase::Recover => change.recovered.contains(&self.me),
        };
        let was_draining = self.draining.is_some();
        let old = self.draining.as_ref().map(|draining| draining.epoch);
        if old.is_some_and(|epoch| epoch > change.view.epoch) {
            return;
        }
        self.draining = Some(Draining {
            epoch: change.view.epoch,
            phase: change.phase,
            lost: change.lost.clone(),
            is_noted,
            has_said: false,
        });
        if !was_draining {
            self.drain(turn);
        }
        if change.phase == Phase::Recover {
            self.recover(turn, &change.lost);
        }
    }

    /// Stops serving, and finishes writes that may be on their way.
    fn drain(&mut self, turn: &mut Turn) {
        self.abort_transactions(turn);
        self.refuse_queues(turn);
        self.flush_all(turn);
        self.route_reads(turn, true);
    }

    fn is_drained(&self) -> bool {
        let is_writing = |entry: &Entry| matches!(entry.work, Some(Work::Write(_)));
        !self.writes.values().any(PendingWrite::keeps_from_draining)
            && !self.entries.iter().any(|(_, entry)| is_writing(entry))
            && !self.has_dirty()
    }

    /// Says how far this cachelet is, once per document.
    pub(super) fn report_change(&mut self, turn: &mut Turn) {
        // Whether it is drained takes a look at every entry, which is for changes only.
        if self.draining.is_none() {
            return;
        }
        let (is_drained, is_recovered) = (self.is_drained(), self.recovering.is_empty());
        let Some(draining) = &mut self.draining else {
            return;
        };
        let (is_done, output) = match draining.phase {
            Phase::Prepare => (is_drained, Output::Drained(draining.epoch)),
            Phase::Recover => (is_recovered, Output::Recovered(draining.epoch)),
        };
        if is_done && !draining.is_noted && !draining.has_said {
            draining.has_said = true;
            turn.outputs.push(output);
        }
    }

    /// Finishes the writes of lost homes that this cachelet holds.
    fn recover(&mut self, turn: &mut Turn, lost: &BTreeSet<CacheletId>) {
        if self.has_bug(Flaw::NoRecovery) {
            return;
        }
        let is_lost = |key: &Key| lost.contains(&self.view.home(key));
        let open = self
            .held
            .iter()
            .filter(|(key, _)| is_lost(key) && !self.recovering.contains_key(*key));
        let writes: Vec<_> = open
            .map(|(key, intent)| {
                let write = StoreWrite::new(intent.value.clone(), intent.write, intent.replaces.clone());
                (key.clone(), write)
            })
            .collect();
        for (key, write) in writes {
            self.recovering.insert(key.clone(), write);
            self.go_on_recovering(turn, &key, |write, about| write.request(about));
        }
    }

    fn go_on_recovering(
        &mut self,
        turn: &mut Turn,
        key: &Key,
        step: impl FnOnce(&mut StoreWrite, Circumstances) -> Next,
    ) {
        let about = self.circumstances(turn);
        let is_dirty = self.held.get(key).is_some_and(|intent| intent.is_dirty);
        let Some(write) = self.recovering.get_mut(key) else {
            return;
        };
        let mut next = step(write, about);
        if let (Next::Ended(Written::Moved(version) | Written::Unknown(version)), true) = (&next, is_dirty) {
            // An acknowledged write comes after all that the home had flushed before.
            write.replace(version.clone());
            next = write.request(about);
        }
        match next {
            Next::Call(request) => self.call(turn, key, request, Purpose::Recover(key.clone())),
            Next::Wait => {}
            // Without a lease it stays open until the lease is back, or this cachelet is counted as lost, too.
            Next::Ended(Written::NotDone | Written::GivenUp) => write.retry_at(about.now_us + about.retry_us),
            Next::Ended(_) => {
                self.recovering.remove(key);
                self.held.remove(key);
            }
        }
    }

    pub(super) fn recover_replied(&mut self, turn: &mut Turn, key: &Key, reply: StoreReply) {
        self.go_on_recovering(turn, key, |write, about| write.reply(reply, about));
    }

    pub(super) fn tick_recovery(&mut self, turn: &mut Turn) {
        let is_due = |write: &StoreWrite| write.retry_at_us().is_some_and(|at_us| at_us <= turn.now_us);
        let due = self.recovering.iter().filter(|(_, write)| is_due(write));
        let keys: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.go_on_recovering(turn, &key, |write, about| write.request(about));
        }
    }

    /// A later view is in force.
    fn take_up(&mut self, turn: &mut Turn, view: &View) {
        let old = std::mem::replace(&mut self.view, view.clone());
        self.draining = None;
        self.answered.clear();
        self.held.clear();
        self.recovering.clear();
        self.relays.clear();
        self.shelf.set_policy(view.config.replacement);
        if old.has(self.me) && !view.has(self.me) {
            return self.leave(turn);
        }
        self.end_asked_writes(turn);
        self.drop_led_reads();
        self.keep_tracked(&old);
        self.route_waiting(turn);
        self.route_reads(turn, true);
    }

    /// Copies and entries that the same home has tracked stay as they are. All others must be validated first, which is
    /// right under every protocol.
    fn keep_tracked(&mut self, old: &View) {
        let (new, me) = (&self.view, self.me);
        let stays = |key: &Key| is_tracked(old, key) && is_tracked(new, key) && old.home(key) == new.home(key);
        let forgets = !self.has_bug(Flaw::SwitchKeepsCopies);
        // A staged copy may never have been written: nobody validates it any more.
        self.shelf.retain(|key, copy| stays(key) || copy.state != State::Staged);
        for (key, copy) in self.shelf.iter_mut() {
            if !stays(key) && forgets {
                copy.state = State::Must;
            }
        }
        self.entries.retain(|key, entry| {
            entry.work = None;
            entry.queue.clear();
            entry.noted.retain(|id| new.has(*id));
            stays(key) && new.home(key) == me
        });
    }

    /// This incarnation is over.
    pub(super) fn leave(&mut self, turn: &mut Turn) {
        self.is_expelled = true;
        self.shelf.clear();
        self.entries.clear();
        self.fail_reads(turn);
        self.fail_writes(turn);
        turn.outputs.push(Output::Expelled);
    }

    /// Requests that waited for a view or a lease are sent on their way.
    pub(super) fn route_waiting(&mut self, turn: &mut Turn) {
        self.route_reads(turn, false);
        self.route_writes(turn);
    }
}
