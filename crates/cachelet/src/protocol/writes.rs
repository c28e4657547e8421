//! Writes: each goes through the key's home, whatever the protocol. Two writers of a key thus never race at the store.

use super::{Cachelet, Copy, Flaw, State, Turn};
use crate::config::Admission;
use crate::message::{Body, Content, Outcome, WriteOutcome};
use crate::types::{Epoch, Key, OperationId, RequestId, Stamp, Value, Version};

/// A write that is not finished yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingWrite {
    key: Key,
    value: Option<Value>,
    /// Empty when the function has its answer already.
    operation: Option<OperationId>,
    floor: Stamp,
    stage: Stage,
    /// The epoch in which a home may have taken it last.
    sent_in: Option<Epoch>,
    /// The version of the copy that the writer had: the home's guess where it knows of none.
    known: Option<Version>,
    started_at_us: u64,
    retry_at_us: u64,
    give_up_at_us: u64,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Waiting,
    AtHome,
}

impl PendingWrite {
    pub(super) fn deadline_us(&self) -> u64 {
        let give_up_at_us = self.operation.map_or(u64::MAX, |_| self.give_up_at_us);
        self.retry_at_us.min(give_up_at_us)
    }

    pub(super) fn raise_floor(&mut self, key: &Key, stamp: Stamp) {
        if self.key == *key {
            self.floor = self.floor.max(stamp);
        }
    }

    fn is_under_way(&self) -> bool {
        self.stage != Stage::Waiting
    }

    /// Whether a change of the view waits for it. A home that does not answer drains by itself, and requests to it are
    /// over with the view.
    pub(super) fn keeps_from_draining(&self) -> bool {
        self.stage == Stage::AtHome && self.operation.is_some()
    }

    fn is_abandoned(&self) -> bool {
        self.stage == Stage::AtHome && self.operation.is_none()
    }
}

impl Cachelet {
    pub(super) fn start_write(&mut self, turn: &mut Turn, operation: OperationId, key: Key, value: Option<Value>) {
        if self.is_expelled {
            return turn.write_ended(operation, WriteOutcome::Unavailable, None);
        }
        let request = self.request_id();
        let now_us = turn.now_us;
        // The own copy ends now: nobody beside the writer sees the new value before the write holds.
        let copy = self.shelf.remove(&key);
        if self.has_bug(Flaw::EarlyCopy) {
            self.keep_early(turn, &key, copy.as_ref(), value.as_ref());
        }
        let pending = PendingWrite {
            key,
            value,
            operation: Some(operation),
            floor: Stamp::default(),
            stage: Stage::Waiting,
            sent_in: None,
            known: copy.and_then(|copy| copy.version),
            started_at_us: now_us,
            retry_at_us: now_us + self.settings.retry_us,
            give_up_at_us: now_us + self.settings.patience_us,
        };
        self.writes.insert(request, pending);
        self.route_write(turn, request);
    }

    fn keep_early(&mut self, turn: &Turn, key: &Key, copy: Option<&Copy>, value: Option<&Value>) {
        let copy = Copy {
            content: Content::of(value.cloned()),
            stamp: copy.map_or_else(Stamp::default, |copy| copy.stamp),
            version: None,
            state: State::Valid,
            validated_at_us: turn.now_us,
        };
        self.keep(turn, key, copy);
    }

    pub(super) fn route_write(&mut self, turn: &mut Turn, request: RequestId) {
        let is_active = self.is_active(turn.now_us);
        let Some(pending) = self.writes.get(&request) else {
            return;
        };
        // A write that a home may have taken is asked for again at the same home until its end is known.
        let is_asked_again = pending.stage == Stage::AtHome && pending.sent_in == Some(self.view.epoch);
        if !is_active && !is_asked_again {
            return self.wait_with_write(turn, request);
        }
        let keep = self.view.config_for(&pending.key).admission == Admission::Keep;
        self.ask_to_write(turn, request, keep);
    }

    fn wait_with_write(&mut self, turn: &Turn, request: RequestId) {
        let retry_at_us = turn.now_us + self.settings.retry_us;
        if let Some(pending) = self.writes.get_mut(&request) {
            pending.retry_at_us = retry_at_us;
        }
    }

    fn ask_to_write(&mut self, turn: &mut Turn, request: RequestId, keep: bool) {
        let lowest = self.writes.keys().next().copied().unwrap_or(request);
        let (epoch, retry_at_us) = (self.view.epoch, turn.now_us + self.settings.retry_us);
        let Some(pending) = self.writes.get_mut(&request) else {
            return;
        };
        pending.stage = Stage::AtHome;
        pending.sent_in = Some(epoch);
        pending.retry_at_us = retry_at_us;
        let body = Body::Write {
            request,
            lowest,
            key: pending.key.clone(),
            value: pending.value.clone(),
            known: pending.known.clone(),
            keep,
        };
        let home = self.view.home(&pending.key);
        self.send(turn, home, body);
    }

    fn keep_written(&mut self, turn: &Turn, pending: &PendingWrite, copy: Copy) {
        let admits = self.view.config_for(&pending.key).admission == Admission::Keep;
        if admits && self.is_active(turn.now_us) {
            self.keep(turn, &pending.key, copy);
        }
    }

    /// The home answered.
    pub(super) fn wrote(&mut self, turn: &mut Turn, epoch: Epoch, request: RequestId, outcome: Outcome) {
        match outcome {
            Outcome::Applied { stamp, version } => {
                let Some(pending) = self.writes.remove(&request) else {
                    return;
                };
                // The home did not invalidate the writer: older values still on their way to it must not be kept.
                self.raise_floors(&pending.key, stamp);
                let is_late = stamp < pending.floor && !self.has_bug(Flaw::LateFill);
                let is_last = !self.has_write_at_home(&pending.key);
                if epoch == self.view.epoch && !is_late && is_last {
                    let copy = Copy {
                        content: Content::of(pending.value.clone()),
                        stamp,
                        version: version.clone(),
                        state: State::Valid,
                        validated_at_us: pending.started_at_us,
                    };
                    self.keep_written(turn, &pending, copy);
                }
                finish(turn, &pending, WriteOutcome::Applied, version);
            }
            Outcome::Refused => self.refused(turn, epoch, request),
            Outcome::Denied(status) => self.end_write(turn, request, WriteOutcome::Denied(status)),
            Outcome::Unknown => {
                if let Some(key) = self.writes.get(&request).map(|pending| pending.key.clone()) {
                    // It may hold, with a stamp that only the home knows.
                    let sequence = u64::MAX;
                    self.raise_floors(&key, Stamp { epoch, sequence });
                }
                self.end_write(turn, request, WriteOutcome::Unknown);
            }
        }
    }

    /// A read or a write was refused.
    pub(super) fn refused(&mut self, turn: &mut Turn, epoch: Epoch, request: RequestId) {
        self.read_refused(turn, request);
        let Some(pending) = self.writes.get_mut(&request) else {
            return;
        };
        if pending.stage != Stage::AtHome || pending.sent_in != Some(epoch) {
            return;
        }
        if pending.is_abandoned() {
            self.writes.remove(&request);
            return;
        }
        // The home never does this request. The next attempt is another one, so that no copy of this one is taken for it.
        pending.stage = Stage::Waiting;
        pending.sent_in = None;
        pending.retry_at_us = turn.now_us + self.settings.retry_us;
        if let Some(pending) = self.writes.remove(&request) {
            let request = self.request_id();
            self.writes.insert(request, pending);
        }
    }

    fn end_write(&mut self, turn: &mut Turn, request: RequestId, outcome: WriteOutcome) {
        if let Some(pending) = self.writes.remove(&request) {
            finish(turn, &pending, outcome, None);
        }
    }

    pub(super) fn route_writes(&mut self, turn: &mut Turn) {
        let waiting = self.writes.iter().filter(|(_, pending)| !pending.is_under_way());
        let requests: Vec<_> = waiting.map(|(request, _)| *request).collect();
        for request in requests {
            self.route_write(turn, request);
        }
    }

    pub(super) fn tick_writes(&mut self, turn: &mut Turn) {
        let due = self
            .writes
            .iter()
            .filter(|(_, pending)| pending.deadline_us() <= turn.now_us);
        let requests: Vec<_> = due.map(|(request, _)| *request).collect();
        for request in requests {
            let Some(pending) = self.writes.get(&request) else {
                continue;
            };
            if pending.operation.is_some() && pending.give_up_at_us <= turn.now_us {
                self.give_up_write(turn, request);
            } else {
                self.route_write(turn, request);
            }
        }
    }

    /// The function gets an answer. A write that may be done goes on until it is known how it ended.
    fn give_up_write(&mut self, turn: &mut Turn, request: RequestId) {
        let Some(pending) = self.writes.get_mut(&request) else {
            return;
        };
        if pending.is_under_way() {
            finish(turn, pending, WriteOutcome::Unknown, None);
            pending.operation = None;
        } else {
            self.end_write(turn, request, WriteOutcome::Unavailable);
        }
    }

    /// Whether a home may be about to change a key for this cachelet. The home does not invalidate the writer's copy,
    /// so that there must be none.
    pub(super) fn has_write_at_home(&self, key: &Key) -> bool {
        self.writes
            .values()
            .any(|pending| pending.key == *key && pending.stage == Stage::AtHome)
    }

    /// The view is over, and with it the requests to its homes. A home that did not report the end never will.
    pub(super) fn end_asked_writes(&mut self, turn: &mut Turn) {
        let asked = self.writes.iter().filter(|(_, pending)| pending.stage == Stage::AtHome);
        let requests: Vec<_> = asked.map(|(request, _)| *request).collect();
        for request in requests {
            self.end_write(turn, request, WriteOutcome::Unknown);
        }
    }

    /// The cachelet is no member any more.
    pub(super) fn fail_writes(&mut self, turn: &mut Turn) {
        let requests: Vec<_> = self.writes.keys().copied().collect();
        for request in requests {
            let was_taken = self.writes.get(&request).is_some_and(PendingWrite::is_under_way);
            let outcome = if was_taken {
                WriteOutcome::Unknown
            } else {
                WriteOutcome::Unavailable
            };
            self.end_write(turn, request, outcome);
        }
    }
}

fn finish(turn: &mut Turn, pending: &PendingWrite, outcome: WriteOutcome, version: Option<Version>) {
    if let Some(operation) = pending.operation {
        turn.write_ended(operation, outcome, version);
    }
}
