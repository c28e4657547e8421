//! The home of a key: it serves reads, and orders writes one after the other.
//!
//! Requests of a key wait in one queue; the first is served when nothing else is under way for the key. So a read that
//! comes while a write is under way is answered after it.

use std::collections::VecDeque;

use super::dirty::Dirty;
use super::reads::value_of;
use super::transaction::Transaction;
use super::{
    Answered, Cachelet, Copy, DIRECTORY_ENTRIES, Flaw, Purpose, QUEUE_REQUESTS, REMEMBERED_ANSWERS, State, Turn,
    Waiting,
};
use crate::config::coherence::Check;
use crate::config::coherence::Protocol as _;
use crate::config::{Admission, Domain};
use crate::message::{Body, Content, Fill, Have, Outcome, StoreReply, StoreRequest};
use crate::organization::Organization as _;
use crate::types::{CacheletId, Epoch, Key, RequestId, Stamp, Value, Version};

/// The state of a key at its home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// The current value's place in the order.
    pub(super) stamp: Stamp,
    /// Its version; empty where the store does not have it.
    pub(super) version: Option<Version>,
    /// Whether stamp and version are those of the current value.
    pub(super) is_known: bool,
    /// Holders of copies, or the leaders that speak for them.
    pub(super) noted: Waiting,
    pub(super) work: Option<Work>,
    pub(super) queue: VecDeque<Asked>,
    pub(super) dirty: Option<Dirty>,
}

/// The work under way for a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// The store is asked for the value.
    Fill { transaction: u64, retry_at_us: Option<u64> },
    /// A holder is asked for its copy.
    Fetch { transaction: u64, until_us: u64 },
    /// A write.
    Write(Box<Transaction>),
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Read {
        from: CacheletId,
        epoch: Epoch,
        request: RequestId,
        have: Option<Have>,
        keep: bool,
    },
    Write(AskedWrite),
}

/// A write that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AskedWrite {
    pub(super) from: CacheletId,
    pub(super) epoch: Epoch,
    pub(super) request: RequestId,
    pub(super) value: Option<Value>,
    /// The version of the copy that the writer had.
    pub(super) known: Option<Version>,
    pub(super) keep: bool,
}

impl Asked {
    fn sender(&self) -> (CacheletId, Epoch, RequestId) {
        match self {
            Self::Read {
                from, epoch, request, ..
            }
            | Self::Write(AskedWrite {
                from, epoch, request, ..
            }) => (*from, *epoch, *request),
        }
    }
}

impl Entry {
    pub(super) fn deadline_us(&self) -> Option<u64> {
        let work = match &self.work {
            Some(Work::Fill { retry_at_us, .. }) => *retry_at_us,
            Some(Work::Fetch { until_us, .. }) => Some(*until_us),
            Some(Work::Write(transaction)) => transaction.deadline_us(),
            None => None,
        };
        let dirty = self.dirty.as_ref().and_then(Dirty::deadline_us);
        work.into_iter().chain(dirty).min()
    }

    /// Whether nothing is lost without it: nobody else has a copy, and nothing is under way.
    fn is_dispensable(&self) -> bool {
        self.noted.is_empty() && self.dirty.is_none() && self.work.is_none() && self.queue.is_empty()
    }

    fn is_current(&self, have: &Have) -> bool {
        let has_version = self.version.is_some() && self.version == have.version;
        self.is_known && (self.stamp == have.stamp || has_version)
    }

    fn has_write_of(&self, from: CacheletId, request: RequestId) -> bool {
        let is_of = |asked: &Asked| {
            let (sender, _, its) = asked.sender();
            matches!(asked, Asked::Write(_)) && (sender, its) == (from, request)
        };
        let is_done_now = matches!(&self.work, Some(Work::Write(transaction)) if transaction.is_of(from, request));
        is_done_now || self.queue.iter().any(is_of)
    }
}

impl Cachelet {
    pub(super) fn asked_to_read(&mut self, turn: &mut Turn, from: CacheletId, epoch: Epoch, body: Body) {
        let Body::Read {
            request,
            key,
            have,
            keep,
        } = body
        else {
            return;
        };
        if !self.is_active(turn.now_us) {
            return self.refuse(turn, from, request);
        }
        if self.view.home(&key) != self.me && !self.has_bug(Flaw::NoEpochs) {
            return self.lead_read(turn, from, request, &key);
        }
        let asked = Asked::Read {
            from,
            epoch,
            request,
            have,
            keep,
        };
        self.enqueue(turn, &key, asked);
    }

    pub(super) fn asked_to_write(&mut self, turn: &mut Turn, from: CacheletId, epoch: Epoch, body: Body) {
        let Body::Write {
            request,
            lowest,
            key,
            value,
            known,
            keep,
        } = body
        else {
            return;
        };
        let answered = self.answered.entry(from).or_default();
        answered.lowest = answered.lowest.max(lowest);
        let lowest = answered.lowest;
        answered.outcomes.retain(|request, _| *request >= lowest);
        if request < lowest {
            return;
        }
        if let Some(outcome) = answered.outcomes.get(&request).cloned() {
            return self.send(turn, from, Body::Wrote { request, outcome });
        }
        if self
            .entries
            .get(&key)
            .is_some_and(|entry| entry.has_write_of(from, request))
        {
            return;
        }
        if !self.is_active(turn.now_us) {
            return self.refuse_write(turn, from, request);
        }
        let asked = Asked::Write(AskedWrite {
            from,
            epoch,
            request,
            value,
            known,
            keep,
        });
        self.enqueue(turn, &key, asked);
    }

    fn refuse(&self, turn: &mut Turn, from: CacheletId, request: RequestId) {
        self.send(turn, from, Body::Refused { request });
    }

    /// Refuses a write for good: the same request may come again, and must not be done then. A home that cannot remember
    /// that does not answer.
    fn refuse_write(&mut self, turn: &mut Turn, from: CacheletId, request: RequestId) {
        let is_over = self.draining.is_some() || self.is_expelled;
        if is_over || self.remember(from, request, &Outcome::Refused) {
            self.refuse(turn, from, request);
        }
    }

    fn refuse_asked(&mut self, turn: &mut Turn, asked: &Asked) {
        let (from, _, request) = asked.sender();
        match asked {
            Asked::Read { .. } => self.refuse(turn, from, request),
            Asked::Write(_) => self.refuse_write(turn, from, request),
        }
    }

    /// Remembers how a writer's request ended, so that the same one is never done again; whether there was room.
    pub(super) fn remember(&mut self, from: CacheletId, request: RequestId, outcome: &Outcome) -> bool {
        let answered: &mut Answered = self.answered.entry(from).or_default();
        if request < answered.lowest {
            return true;
        }
        let has_room = answered.outcomes.len() < REMEMBERED_ANSWERS;
        if has_room {
            answered.outcomes.insert(request, outcome.clone());
        }
        has_room
    }

    fn enqueue(&mut self, turn: &mut Turn, key: &Key, asked: Asked) {
        if self.entries.len() >= DIRECTORY_ENTRIES && !self.entries.contains(key) {
            self.entries.retain(|_, entry| !entry.is_dispensable());
        }
        let is_full = self.entries.len() >= DIRECTORY_ENTRIES;
        let entry = self.entries.get_or_insert(key);
        if entry.queue.len() >= QUEUE_REQUESTS || (is_full && entry.is_dispensable()) {
            return self.refuse_asked(turn, &asked);
        }
        entry.queue.push_back(asked);
        self.work(turn, key);
    }

    /// Serves what waits for a key until something is under way for it.
    pub(super) fn work(&mut self, turn: &mut Turn, key: &Key) {
        while let Some(entry) = self.entries.get_mut(key) {
            if entry.work.is_some() {
                return;
            }
            let Some(first) = entry.queue.pop_front() else {
                return;
            };
            if !self.is_active(turn.now_us) {
                self.refuse_asked(turn, &first);
                continue;
            }
            match first {
                Asked::Write(write) => self.start_transaction(turn, key, write),
                read @ Asked::Read { .. } => {
                    if let Some(read) = self.serve(turn, key, read) {
                        self.find(turn, key, read);
                    }
                }
            }
        }
    }

    /// Answers a read from the home's own state, or gives it back.
    fn serve(&mut self, turn: &mut Turn, key: &Key, read: Asked) -> Option<Asked> {
        let Asked::Read { have, .. } = &read else {
            return Some(read);
        };
        let entry = self.entries.get(key)?;
        if !entry.is_known {
            return Some(read);
        }
        let content = if have.as_ref().is_some_and(|have| entry.is_current(have)) {
            Content::Same
        } else if let Some(dirty) = &entry.dirty {
            Content::of(dirty.value.clone())
        } else {
            let is_current = |copy: &&Copy| copy.state != State::Staged && copy.stamp == entry.stamp;
            let Some(copy) = self.shelf.get(key).filter(is_current) else {
                return Some(read);
            };
            copy.content.clone()
        };
        self.shelf.touch(key, turn.now_us);
        self.fill(turn, key, &read, content);
        None
    }

    /// Sends a value to a reader and notes it as a holder.
    fn fill(&mut self, turn: &mut Turn, key: &Key, read: &Asked, content: Content) {
        let Asked::Read {
            from,
            epoch,
            request,
            keep,
            ..
        } = *read
        else {
            return;
        };
        let config = self.view.config_for(key);
        let has_directory = config.coherence.has_directory();
        let noted = config.domain.noted(&self.view, from, key);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        // The home's own copy ends with the write itself.
        if keep && has_directory && from != self.me {
            entry.noted.insert(noted);
        }
        let fill = Fill {
            stamp: entry.stamp,
            version: entry.version.clone(),
            content,
            keep,
        };
        turn.send(self.me, from, epoch, Body::Filled { request, fill });
    }

    /// Gets a value that is not here: from a holder, or from the store.
    fn find(&mut self, turn: &mut Turn, key: &Key, read: Asked) {
        let Asked::Read { from, .. } = &read else {
            return;
        };
        let from = *from;
        let transaction = self.transaction_id();
        let is_flat = self.view.config_for(key).domain == Domain::Flat;
        let until_us = turn.now_us + self.settings.retry_us;
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.queue.push_front(read);
        let holder = entry.noted.iter().find(|id| **id != from).copied();
        if let Some(holder) = holder.filter(|_| entry.is_known && is_flat) {
            entry.work = Some(Work::Fetch { transaction, until_us });
            let body = Body::Fetch {
                transaction,
                key: key.clone(),
                stamp: entry.stamp,
            };
            return self.send(turn, holder, body);
        }
        self.ask_store_to_fill(turn, key, transaction);
    }

    /// A holder answered.
    pub(super) fn fetched(
        &mut self,
        turn: &mut Turn,
        (from, asked): (CacheletId, u64),
        key: &Key,
        content: Option<Content>,
        may_come: bool,
    ) {
        let is_taken_for_absence = self.has_bug(Flaw::AbsentCopyIsAbsence);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let is_awaited = matches!(&entry.work, Some(Work::Fetch { transaction, .. }) if *transaction == asked);
        if !is_awaited {
            return;
        }
        entry.work = None;
        match content {
            Some(content) => self.found(turn, key, &content),
            None if is_taken_for_absence => self.found(turn, key, &Content::Nothing),
            // A fill on its way there would bring a copy that nobody invalidates: the holder stays noted.
            None if may_come => {
                let transaction = self.transaction_id();
                self.ask_store_to_fill(turn, key, transaction);
            }
            None => {
                entry.noted.remove(&from);
            }
        }
        self.work(turn, key);
    }

    /// The store answered.
    pub(super) fn fill_replied(&mut self, turn: &mut Turn, key: &Key, asked: u64, reply: StoreReply) {
        let retry_at = turn.now_us + self.settings.retry_us;
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let Some(Work::Fill {
            transaction,
            retry_at_us,
        }) = &mut entry.work
        else {
            return;
        };
        if *transaction != asked {
            return;
        }
        match reply {
            StoreReply::Object { value, version } => {
                entry.work = None;
                self.know(turn, key, version);
                self.found(turn, key, &Content::of(value));
            }
            StoreReply::NotModified => {
                entry.work = None;
                // The first reader has that version; it is the one that was asked for.
                let version = match entry.queue.front() {
                    Some(Asked::Read { have: Some(have), .. }) => have.version.clone(),
                    _ => None,
                };
                if let Some(version) = version {
                    self.know(turn, key, version);
                }
            }
            // The readers ask the store themselves, and hear it there.
            StoreReply::Denied(_) => {
                entry.work = None;
                while matches!(entry.queue.front(), Some(Asked::Read { .. })) {
                    if let Some((from, epoch, request)) = entry.queue.pop_front().map(|read| read.sender()) {
                        turn.send(self.me, from, epoch, Body::Refused { request });
                    }
                }
            }
            _ => *retry_at_us = Some(retry_at),
        }
        self.work(turn, key);
    }

    /// The store has this version. If it is not the one that was known, somebody outside of the domain wrote.
    fn know(&mut self, turn: &mut Turn, key: &Key, version: Version) {
        let stamp = self.next_stamp();
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let is_same = entry.is_known && entry.version.as_ref() == Some(&version);
        if is_same {
            return;
        }
        entry.stamp = stamp;
        entry.version = Some(version);
        entry.is_known = true;
        let holders: Vec<_> = entry.noted.iter().copied().collect();
        for holder in holders {
            let body = Body::Invalidate {
                transaction: 0,
                key: key.clone(),
                stamp,
                update: None,
                pass_on: self.view.config_for(key).domain == Domain::Hierarchical,
            };
            self.send(turn, holder, body);
        }
    }

    /// The current value is in hand: the home keeps it, and answers the reads that wait before the next write.
    fn found(&mut self, turn: &mut Turn, key: &Key, content: &Content) {
        if !self.is_active(turn.now_us) {
            return;
        }
        self.keep_at_home(turn, key, content);
        while let Some(entry) = self.entries.get_mut(key) {
            let Some(Asked::Read { have, .. }) = entry.queue.front() else {
                return;
            };
            let is_same = have.as_ref().is_some_and(|have| entry.is_current(have));
            let Some(read) = entry.queue.pop_front() else {
                return;
            };
            let content = if is_same { Content::Same } else { content.clone() };
            self.fill(turn, key, &read, content);
        }
    }

    pub(super) fn keep_at_home(&mut self, turn: &Turn, key: &Key, content: &Content) {
        let config = self.view.config_for(key);
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        if config.admission == Admission::Keep && config.coherence.check() != Check::Store {
            let copy = Copy {
                content: Content::of(value_of(content)),
                stamp: entry.stamp,
                version: entry.version.clone(),
                state: State::Valid,
                validated_at_us: turn.now_us,
            };
            self.keep(turn, key, copy);
        }
    }

    pub(super) fn tick_entries(&mut self, turn: &mut Turn) {
        for key in self.entries.due(turn.now_us) {
            self.tick_entry(turn, &key);
        }
    }

    fn tick_entry(&mut self, turn: &mut Turn, key: &Key) {
        self.tick_dirty(turn, key);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        match &entry.work {
            Some(Work::Fetch { until_us, .. }) if *until_us <= turn.now_us => {
                // It may hold a copy all the same, so that it stays noted; the store is asked instead.
                let transaction = self.transaction_id();
                self.ask_store_to_fill(turn, key, transaction);
            }
            Some(Work::Fill {
                transaction,
                retry_at_us: Some(at_us),
            }) if *at_us <= turn.now_us => {
                let transaction = *transaction;
                self.ask_store_to_fill(turn, key, transaction);
            }
            Some(Work::Write(_)) => self.tick_transaction(turn, key),
            _ => {}
        }
    }

    /// Asks the store for the value that the first read in the queue lacks.
    fn ask_store_to_fill(&mut self, turn: &mut Turn, key: &Key, transaction: u64) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let unless = match entry.queue.front() {
            Some(Asked::Read { have: Some(have), .. }) => have.version.clone(),
            _ => None,
        };
        entry.work = Some(Work::Fill {
            transaction,
            retry_at_us: None,
        });
        self.call(
            turn,
            key,
            StoreRequest::Get { unless },
            Purpose::Fill(key.clone(), transaction),
        );
    }

    /// The home begins to drain: waiting requests are refused, and a value that was asked for is not needed.
    pub(super) fn refuse_queues(&mut self, turn: &mut Turn) {
        let mut refused = Vec::new();
        for entry in self.entries.iter_mut() {
            if !matches!(entry.work, Some(Work::Write(_))) {
                entry.work = None;
            }
            refused.extend(entry.queue.drain(..).map(|asked| asked.sender()));
        }
        for (from, epoch, request) in refused {
            turn.send(self.me, from, epoch, Body::Refused { request });
        }
    }
}
