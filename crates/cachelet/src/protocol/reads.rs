//! Reads: from the own copy, from the home or leader, or from the store.

use super::{Cachelet, Copy, Flaw, Purpose, State, Turn};
use crate::config::coherence::{Check, Protocol as _};
use crate::config::{Admission, Config, Durability, Level};
use crate::message::{Body, Content, Fill, Output, ReadOutcome, Source, StoreReply, StoreRequest};
use crate::organization::Organization as _;
use crate::types::{CacheletId, Epoch, Key, OperationId, RequestId, Stamp, Value, Version};

/// A read that is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingRead {
    key: Key,
    asker: Asker,
    /// An invalidation that came meanwhile: older values must not be kept. It is the tombstone of R1.
    floor: Stamp,
    /// The copy as it was when it was asked about.
    copy: Option<Copy>,
    way: Way,
    started_at_us: u64,
    retry_at_us: u64,
    /// When the home is given up for the store.
    home_until_us: u64,
    give_up_at_us: u64,
}

/// The requester of the read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asker {
    Function(OperationId),
    Follower(CacheletId, RequestId),
}

/// The way that the answer will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    Waiting,
    Home(CacheletId, Epoch),
    Store(Epoch),
}

/// A read is given up after so many times the patience with the home.
const GIVE_UP_PATIENCES: u64 = 4;

impl PendingRead {
    pub(super) fn deadline_us(&self) -> u64 {
        self.retry_at_us.min(self.give_up_at_us)
    }

    fn outcome(&self, content: &Content, source: Source) -> ReadOutcome {
        ReadOutcome::Is(value_of(content), source)
    }
}

/// The value of a content that is none of `Same`.
pub(super) fn value_of(content: &Content) -> Option<Value> {
    match content {
        Content::Is(value) => Some(value.clone()),
        Content::Nothing | Content::Same => None,
    }
}

impl Cachelet {
    pub(super) fn start_read(&mut self, turn: &mut Turn, operation: OperationId, key: Key) {
        if let Some(copy) = self.shelf.get(&key)
            && self.may_serve(copy, &key, turn.now_us)
        {
            let outcome = ReadOutcome::Is(value_of(&copy.content), Source::Copy);
            let version = copy.version.clone();
            self.shelf.touch(&key, turn.now_us);
            turn.outputs.push(Output::ReadDone {
                operation,
                outcome,
                version,
            });
            return;
        }
        if self.is_expelled {
            return turn.read_failed(operation, ReadOutcome::Unavailable);
        }
        self.pend_read(turn, key, Asker::Function(operation));
    }

    /// Whether a copy may be served without asking anybody.
    fn may_serve(&self, copy: &Copy, key: &Key, now_us: u64) -> bool {
        match self.view.promise.level {
            Level::Bounded(stale_us) if copy.validated_at_us + stale_us >= now_us => copy.state != State::Staged,
            Level::Eventual => copy.state != State::Staged,
            Level::Bounded(_) | Level::Linearizable => {
                let check = self.view.config_for(key).coherence.check();
                let is_current = check == Check::Copy && copy.state == State::Valid;
                self.is_active(now_us) && (is_current || self.has_bug(Flaw::NoValidation))
            }
        }
    }

    fn pend_read(&mut self, turn: &mut Turn, key: Key, asker: Asker) {
        let request = self.request_id();
        let now_us = turn.now_us;
        let pending = PendingRead {
            key,
            asker,
            floor: Stamp::default(),
            copy: None,
            way: Way::Waiting,
            started_at_us: now_us,
            retry_at_us: now_us + self.settings.retry_us,
            home_until_us: now_us + self.settings.patience_us,
            give_up_at_us: now_us + self.settings.patience_us * GIVE_UP_PATIENCES,
        };
        self.reads.insert(request, pending);
        self.route_read(turn, request);
    }

    /// Whether the store has everything that was acknowledged, as far as this cachelet can know.
    fn store_is_current(&self) -> bool {
        self.view.epoch > Epoch::default() && self.view.promise.durability == Durability::Strict
    }

    pub(super) fn route_read(&mut self, turn: &mut Turn, request: RequestId) {
        let Some(pending) = self.reads.get(&request) else {
            return;
        };
        let key = pending.key.clone();
        let is_of_follower = matches!(pending.asker, Asker::Follower(..));
        let config = self.view.config_for(&key);
        let home_is_slow = turn.now_us >= pending.home_until_us;
        if self.is_active(turn.now_us) && !(home_is_slow && self.store_is_current()) {
            match config.coherence.check() {
                Check::Store => self.ask_store(turn, request, true),
                // Nobody keeps the value, and the store has every acknowledged one: a home would only be a detour.
                _ if config.reads_at_store() && !is_of_follower => self.ask_store(turn, request, true),
                Check::Home | Check::Copy if is_of_follower => {
                    self.ask_cachelet(turn, request, self.view.home(&key), &config);
                }
                Check::Home | Check::Copy => {
                    let asked = config.domain.asked(&self.view, self.me, &key);
                    self.ask_cachelet(turn, request, asked, &config);
                }
            }
        } else if self.store_is_current() && !is_of_follower {
            self.ask_store(turn, request, false);
        } else if let Some(pending) = self.reads.get_mut(&request) {
            pending.way = Way::Waiting;
            pending.retry_at_us = turn.now_us + self.settings.retry_us;
        }
    }

    fn ask_cachelet(&mut self, turn: &mut Turn, request: RequestId, asked: CacheletId, config: &Config) {
        let keep = config.admission == Admission::Keep;
        let (epoch, retry_us) = (self.view.epoch, self.settings.retry_us);
        let Some(pending) = self.reads.get_mut(&request) else {
            return;
        };
        let copy = self.shelf.get(&pending.key);
        pending.copy = copy.cloned();
        pending.way = Way::Home(asked, epoch);
        pending.retry_at_us = turn.now_us + retry_us;
        let body = Body::Read {
            request,
            key: pending.key.clone(),
            have: copy.map(Copy::have),
            keep,
        };
        self.send(turn, asked, body);
    }

    fn ask_store(&mut self, turn: &mut Turn, request: RequestId, validates: bool) {
        let epoch = self.view.epoch;
        let Some(pending) = self.reads.get_mut(&request) else {
            return;
        };
        let copy = self.shelf.get(&pending.key).filter(|copy| copy.version.is_some());
        pending.copy = copy.filter(|_| validates).cloned();
        pending.way = Way::Store(epoch);
        pending.retry_at_us = pending.give_up_at_us;
        let unless = pending.copy.as_ref().and_then(|copy| copy.version.clone());
        let key = pending.key.clone();
        self.call(turn, &key, StoreRequest::Get { unless }, Purpose::Read(request));
    }

    /// A home or leader answered.
    pub(super) fn filled(&mut self, turn: &mut Turn, request: RequestId, fill: Fill) {
        let is_awaited = |pending: &PendingRead| matches!(pending.way, Way::Home(..));
        if !self.reads.get(&request).is_some_and(is_awaited) {
            return;
        }
        let Some(pending) = self.reads.remove(&request) else {
            return;
        };
        let (content, source) = match (&fill.content, &pending.copy) {
            (Content::Same, Some(copy)) if copy.is_meant_by(&fill) => (copy.content.clone(), Source::Validated),
            // It is about a copy that another one has replaced meanwhile.
            (Content::Same, _) => return self.pend_again(turn, pending),
            (content, _) => (content.clone(), Source::Home),
        };
        let is_late = fill.stamp < pending.floor && !self.has_bug(Flaw::LateFill);
        let is_writing = self.has_write_at_home(&pending.key);
        if fill.keep && !is_late && !is_writing && self.is_active(turn.now_us) {
            let copy = Copy {
                content: content.clone(),
                stamp: fill.stamp,
                version: fill.version.clone(),
                state: State::Valid,
                validated_at_us: pending.started_at_us,
            };
            self.keep(turn, &pending.key, copy);
        }
        self.answer_read(turn, &pending, &content, (source, fill.version.clone()), Some(fill));
    }

    fn pend_again(&mut self, turn: &mut Turn, pending: PendingRead) {
        let request = self.request_id();
        self.reads.insert(request, pending);
        self.route_read(turn, request);
    }

    /// Keeps a copy unless a newer one is there.
    pub(super) fn keep(&mut self, turn: &Turn, key: &Key, copy: Copy) {
        let is_newer = |old: &Copy| old.stamp > copy.stamp && old.state != State::Must;
        if !self.shelf.get(key).is_some_and(is_newer) {
            self.shelf.insert(key, copy, turn.now_us);
        }
    }

    fn answer_read(
        &mut self,
        turn: &mut Turn,
        read: &PendingRead,
        content: &Content,
        (source, version): (Source, Option<Version>),
        fill: Option<Fill>,
    ) {
        match (&read.asker, fill) {
            (Asker::Function(operation), _) => turn.outputs.push(Output::ReadDone {
                operation: *operation,
                outcome: read.outcome(content, source),
                version,
            }),
            (Asker::Follower(follower, request), Some(fill)) => {
                let fill = Fill {
                    content: content.clone(),
                    ..fill
                };
                let request = *request;
                self.send(turn, *follower, Body::Filled { request, fill });
            }
            (Asker::Follower(..), None) => {}
        }
    }

    /// The store answered a read.
    pub(super) fn store_read(&mut self, turn: &mut Turn, request: RequestId, reply: StoreReply) {
        let Some(pending) = self.reads.get_mut(&request) else {
            return;
        };
        let Way::Store(epoch) = pending.way else {
            return;
        };
        if let (StoreReply::Denied(status), Asker::Function(_)) = (&reply, &pending.asker) {
            return self.fail_read(turn, request, ReadOutcome::Denied(*status));
        }
        let (content, version, source) = match (reply, &pending.copy) {
            (StoreReply::Object { value, version }, _) => (Content::of(value), Some(version), Source::Store),
            (StoreReply::NotModified, Some(copy)) => (copy.content.clone(), copy.version.clone(), Source::Validated),
            _ => {
                pending.retry_at_us = turn.now_us + self.settings.retry_us;
                pending.way = Way::Waiting;
                return;
            }
        };
        let Some(pending) = self.reads.remove(&request) else {
            return;
        };
        let config = self.view.config_for(&pending.key);
        let is_kept = config.coherence.check() == Check::Store && config.admission == Admission::Keep;
        if is_kept && epoch == self.view.epoch && self.is_active(turn.now_us) {
            let copy = Copy {
                content: content.clone(),
                stamp: Stamp::default(),
                version: version.clone(),
                state: State::Must,
                validated_at_us: pending.started_at_us,
            };
            self.shelf.insert(&pending.key, copy, turn.now_us);
        }
        self.answer_read(turn, &pending, &content, (source, version), None);
    }

    /// A read was refused: the store is asked, or the home again later.
    pub(super) fn read_refused(&mut self, turn: &mut Turn, request: RequestId) {
        let store_is_current = self.store_is_current();
        let Some(pending) = self.reads.get_mut(&request) else {
            return;
        };
        match (&pending.asker, pending.way) {
            (Asker::Follower(follower, theirs), Way::Home(..)) => {
                let (follower, request_of_follower) = (*follower, *theirs);
                self.reads.remove(&request);
                let body = Body::Refused {
                    request: request_of_follower,
                };
                self.send(turn, follower, body);
            }
            (Asker::Function(_), Way::Home(..)) if store_is_current => self.ask_store(turn, request, false),
            (Asker::Function(_), Way::Home(..)) => {
                pending.way = Way::Waiting;
                pending.retry_at_us = turn.now_us + self.settings.retry_us;
            }
            _ => {}
        }
    }

    /// A leader is asked by its follower.
    pub(super) fn lead_read(&mut self, turn: &mut Turn, from: CacheletId, request: RequestId, key: &Key) {
        if let Some(copy) = self.shelf.get(key)
            && copy.state == State::Valid
            && self.view.config_for(key).coherence.check() == Check::Copy
        {
            let fill = Fill {
                stamp: copy.stamp,
                version: copy.version.clone(),
                content: copy.content.clone(),
                keep: true,
            };
            self.shelf.touch(key, turn.now_us);
            self.send(turn, from, Body::Filled { request, fill });
            return;
        }
        self.pend_read(turn, key.clone(), Asker::Follower(from, request));
    }

    /// An invalidation came: reads under way must not keep values older than its stamp.
    pub(super) fn raise_floors(&mut self, key: &Key, stamp: Stamp) {
        for pending in self.reads.values_mut().filter(|pending| pending.key == *key) {
            pending.floor = pending.floor.max(stamp);
        }
        for pending in self.writes.values_mut() {
            pending.raise_floor(key, stamp);
        }
    }

    /// Whether an answer that is under way may bring a copy of a key, or make a staged one valid.
    pub(super) fn may_get_copy(&self, key: &Key) -> bool {
        let is_staged = self.shelf.get(key).is_some_and(|copy| copy.state == State::Staged);
        is_staged || self.has_write_at_home(key) || self.reads.values().any(|pending| pending.key == *key)
    }

    /// Reads that wait for a view or a lease, or for a home of another view, are sent on their way.
    pub(super) fn route_reads(&mut self, turn: &mut Turn, all: bool) {
        let is_to_route = |pending: &PendingRead| match pending.way {
            Way::Waiting => true,
            Way::Home(..) => all,
            Way::Store(_) => false,
        };
        let waiting = self.reads.iter().filter(|(_, pending)| is_to_route(pending));
        let requests: Vec<_> = waiting.map(|(request, _)| *request).collect();
        for request in requests {
            self.route_read(turn, request);
        }
    }

    pub(super) fn tick_reads(&mut self, turn: &mut Turn) {
        let due = self
            .reads
            .iter()
            .filter(|(_, pending)| pending.deadline_us() <= turn.now_us);
        let requests: Vec<_> = due.map(|(request, _)| *request).collect();
        for request in requests {
            let is_given_up = |pending: &PendingRead| pending.give_up_at_us <= turn.now_us;
            if self.reads.get(&request).is_some_and(is_given_up) {
                self.fail_read(turn, request, ReadOutcome::Unavailable);
            } else {
                self.route_read(turn, request);
            }
        }
    }

    fn fail_read(&mut self, turn: &mut Turn, request: RequestId, outcome: ReadOutcome) {
        if let Some(PendingRead {
            asker: Asker::Function(operation),
            ..
        }) = self.reads.remove(&request)
        {
            turn.read_failed(operation, outcome);
        }
    }

    /// The view is over, and with it this cachelet's leadership: followers ask again. An answer that is passed on in
    /// another view would be a copy that no home knows of.
    pub(super) fn drop_led_reads(&mut self) {
        let is_own = |pending: &PendingRead| matches!(pending.asker, Asker::Function(_));
        self.reads.retain(|_, pending| is_own(pending));
    }

    /// The cachelet is no member any more: functions get an answer, the others will ask elsewhere.
    pub(super) fn fail_reads(&mut self, turn: &mut Turn) {
        let requests: Vec<_> = self.reads.keys().copied().collect();
        for request in requests {
            self.fail_read(turn, request, ReadOutcome::Unavailable);
        }
    }
}
