//! A write at its home: first the copies end and the successor holds the intent, then the store changes, then the writer
//! is told. A leader passes invalidations on to its cluster.

use super::holder::Order;
use super::home::{AskedWrite, Work};
use super::store_write::{Circumstances, Next, StoreWrite, Written};
use super::{Cachelet, Flaw, Purpose, Turn, Waiting};
use crate::config::coherence::{Protocol as _, Spread};
use crate::config::write::Acknowledges as _;
use crate::config::{Config, Domain, Level, Replicates as _};
use crate::message::{Body, Content, Intent, Outcome, StoreReply, Update};
use crate::organization::Organization as _;
use crate::types::{CacheletId, Epoch, Key, RequestId, Stamp, Value, Version, WriteId};

/// A write that its home works on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transaction {
    id: u64,
    from: CacheletId,
    epoch: Epoch,
    request: RequestId,
    value: Option<Value>,
    keep: bool,
    stamp: Stamp,
    spread: Spread,
    /// Whether the store changes while copies still end.
    is_parallel: bool,
    waiting: Waiting,
    hold_at: Option<CacheletId>,
    /// Whether a successor was asked to hold it: from then on, it may be done after this home is lost.
    may_be_held: bool,
    replaces: Version,
    put: Option<StoreWrite>,
    /// The applied version. If `is_parallel`, the store may have it before all holders have answered.
    applied: Option<Version>,
    resend_at_us: u64,
}

impl Transaction {
    pub(super) fn is_of(&self, from: CacheletId, request: RequestId) -> bool {
        (self.from, self.request) == (from, request)
    }

    pub(super) fn deadline_us(&self) -> Option<u64> {
        let waits = !self.waiting.is_empty() || self.hold_at.is_some();
        let put = self.put.as_ref().and_then(StoreWrite::retry_at_us);
        waits.then_some(self.resend_at_us).into_iter().chain(put).min()
    }

    /// Whether a request of it may be on its way to the store.
    pub(super) fn is_at_store(&self) -> bool {
        self.put.is_some()
    }

    fn waits_for(&self, lost: &Waiting) -> bool {
        let holder = self.hold_at.filter(|id| lost.contains(id));
        holder.is_some() || !self.waiting.is_disjoint(lost)
    }

    fn write(&self) -> WriteId {
        WriteId {
            writer: self.from,
            request: self.request,
        }
    }

    fn intent(&self, is_dirty: bool) -> Intent {
        Intent {
            stamp: self.stamp,
            replaces: self.replaces.clone(),
            value: self.value.clone(),
            write: self.write(),
            is_dirty,
        }
    }

    fn update(&self) -> Option<Update> {
        let at_once = match self.spread {
            Spread::None | Spread::Invalidate => return None,
            Spread::Stage => false,
            Spread::Apply => true,
        };
        let content = Content::of(self.value.clone());
        Some(Update { content, at_once })
    }
}

/// An invalidation that a leader passes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Relay {
    home: CacheletId,
    transaction: u64,
    key: Key,
    epoch: Epoch,
    stamp: Stamp,
    update: Option<Update>,
    waiting: Waiting,
    holds: bool,
    resend_at_us: u64,
}

impl Relay {
    pub(super) fn deadline_us(&self) -> u64 {
        self.resend_at_us
    }
}

impl Cachelet {
    pub(super) fn start_transaction(&mut self, turn: &mut Turn, key: &Key, asked: AskedWrite) {
        let AskedWrite {
            from,
            epoch,
            request,
            value,
            known: theirs,
            keep,
        } = asked;
        let config = self.view.config_for(key);
        let spread = config.coherence.spread();
        let (id, stamp) = (self.transaction_id(), self.next_stamp());
        let has_followers = |id: &CacheletId| !config.domain.followers(&self.view, *id).is_empty();
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let is_told = |id: &&CacheletId| **id != from || has_followers(id);
        let waiting: Waiting = if spread == Spread::None {
            Waiting::new()
        } else {
            entry.noted.iter().filter(is_told).copied().collect()
        };
        let known = entry.version.clone().filter(|_| entry.is_known);
        let dirty = entry.dirty.as_ref().map(|dirty| dirty.replaces.clone());
        let transaction = Transaction {
            id,
            from,
            epoch,
            request,
            value,
            keep,
            stamp,
            spread,
            is_parallel: spread == Spread::Apply || self.view.promise.level == Level::Eventual,
            waiting,
            hold_at: None,
            may_be_held: false,
            // An object whose version nobody knows is created; where it exists, the store says so.
            replaces: dirty.or(known).or(theirs).unwrap_or(Version::Absent),
            put: None,
            applied: None,
            resend_at_us: 0,
        };
        entry.work = Some(Work::Write(Box::new(transaction)));
        // The home's own copy ends, and values on their way from the home to itself must not be kept.
        self.shelf.remove(key);
        self.raise_floors(key, stamp);
        self.ask_to_hold(turn, key, &config);
        self.send_invalidations(turn, key);
        self.proceed(turn, key);
    }

    fn transaction(&mut self, key: &Key) -> Option<&mut Transaction> {
        match &mut self.entries.get_mut(key)?.work {
            Some(Work::Write(transaction)) => Some(transaction),
            _ => None,
        }
    }

    /// If a successor holds intents, it is asked to hold this one.
    fn ask_to_hold(&mut self, turn: &mut Turn, key: &Key, config: &Config) {
        let is_back = config.write.before_the_store();
        let is_held = config.replication.has_intents() || (is_back && config.replication.has_data());
        let successor = self.view.successor(key).filter(|_| is_held);
        let resend_at_us = turn.now_us + self.settings.retry_us;
        let Some(transaction) = self.transaction(key) else {
            return;
        };
        transaction.hold_at = successor;
        transaction.may_be_held |= successor.is_some();
        transaction.resend_at_us = resend_at_us;
        let (id, intent) = (transaction.id, transaction.intent(is_back));
        if let Some(successor) = successor {
            let body = Body::Hold {
                transaction: id,
                key: key.clone(),
                intent,
            };
            self.send(turn, successor, body);
        }
    }

    fn send_invalidations(&mut self, turn: &mut Turn, key: &Key) {
        let pass_on = self.view.config_for(key).domain == Domain::Hierarchical;
        let Some(transaction) = self.transaction(key) else {
            return;
        };
        let waiting: Vec<_> = transaction.waiting.iter().copied().collect();
        let (id, stamp, update) = (transaction.id, transaction.stamp, transaction.update());
        for holder in waiting {
            let body = Body::Invalidate {
                transaction: id,
                key: key.clone(),
                stamp,
                update: update.clone(),
                pass_on,
            };
            self.send(turn, holder, body);
        }
    }

    /// Goes on if nothing is waited for.
    fn proceed(&mut self, turn: &mut Turn, key: &Key) {
        let (is_active, config) = (self.is_active(turn.now_us), self.view.config_for(key));
        let is_draining = self.draining.is_some();
        let may_finish = self.is_leased(turn.now_us) && !self.is_expelled;
        let Some(transaction) = self.transaction(key) else {
            return;
        };
        let is_told = transaction.waiting.is_empty() || transaction.is_parallel;
        // A holder of a copy that was not reached will validate it in the next view.
        let is_reached = transaction.waiting.is_empty() || is_draining;
        if let Some(version) = transaction.applied.clone().filter(|_| is_reached) {
            return self.applied(turn, key, Some(version));
        }
        if transaction.put.is_some() || transaction.applied.is_some() || !is_told || transaction.hold_at.is_some() {
            return;
        }
        if !(is_active || (may_finish && transaction.may_be_held)) {
            return self.abort(turn, key);
        }
        if config.write.before_the_store() {
            if transaction.waiting.is_empty() {
                self.commit_dirty(turn, key);
            }
            return;
        }
        let (value, replaces) = (transaction.value.clone(), transaction.replaces.clone());
        transaction.put = Some(StoreWrite::new(value, transaction.write(), replaces));
        self.put(turn, key, |write, about| write.request(about));
    }

    fn put(&mut self, turn: &mut Turn, key: &Key, step: impl FnOnce(&mut StoreWrite, Circumstances) -> Next) {
        let about = self.circumstances(turn);
        let times_out_as_failure = self.has_bug(Flaw::TimeoutIsFailure);
        let Some(transaction) = self.transaction(key) else {
            return;
        };
        let id = transaction.id;
        let Some(write) = &mut transaction.put else {
            return;
        };
        let next = step(write, about);
        match next {
            Next::Call(request) => self.call(turn, key, request, Purpose::Put(key.clone(), id)),
            Next::Wait if times_out_as_failure => self.abort(turn, key),
            Next::Wait => {}
            Next::Ended(written) => self.put_ended(turn, key, written),
        }
    }

    pub(super) fn put_replied(&mut self, turn: &mut Turn, key: &Key, id: u64, reply: StoreReply) {
        if self.transaction(key).is_some_and(|transaction| transaction.id == id) {
            self.put(turn, key, |write, about| write.reply(reply, about));
            self.work(turn, key);
        }
    }

    fn put_ended(&mut self, turn: &mut Turn, key: &Key, written: Written) {
        let config = self.view.config_for(key);
        match written {
            Written::Applied(version) => {
                if let Some(transaction) = self.transaction(key) {
                    transaction.put = None;
                    transaction.applied = Some(version);
                }
                self.proceed(turn, key);
            }
            Written::Moved(version) => {
                if let Some(transaction) = self.transaction(key) {
                    transaction.put = None;
                    transaction.replaces = version;
                }
                // The intent names the version that is replaced.
                self.ask_to_hold(turn, key, &config);
                self.proceed(turn, key);
            }
            Written::NotDone => self.abort(turn, key),
            Written::Denied(status) => self.end_transaction(turn, key, Outcome::Denied(status)),
            Written::Unknown(_) | Written::GivenUp => {
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.is_known = false;
                    entry.version = None;
                }
                self.end_transaction(turn, key, Outcome::Unknown);
            }
        }
    }

    /// The write holds: in the store with a version, or at the home ahead of it.
    pub(super) fn applied(&mut self, turn: &mut Turn, key: &Key, version: Option<Version>) {
        let config = self.view.config_for(key);
        let Some(Finished {
            from,
            keep,
            stamp,
            value,
            spread,
        }) = self.transaction(key).map(|transaction| Finished::of(transaction))
        else {
            return;
        };
        let noted = config.domain.noted(&self.view, from, key);
        let me = self.me;
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.stamp = stamp;
        entry.version = version.clone();
        entry.is_known = true;
        if keep && config.coherence.has_directory() && from != me {
            entry.noted.insert(noted);
        }
        let holders: Vec<_> = entry
            .noted
            .iter()
            .copied()
            .filter(|id| spread == Spread::Stage && *id != from)
            .collect();
        for holder in holders {
            let body = Body::Validate {
                key: key.clone(),
                stamp,
                version: version.clone(),
                pass_on: config.domain == Domain::Hierarchical,
            };
            self.send(turn, holder, body);
        }
        if version.is_some() {
            self.send_release(turn, key, stamp, &config);
        }
        if self.is_active(turn.now_us) {
            self.keep_at_home(turn, key, &Content::of(value));
        }
        self.end_transaction(turn, key, Outcome::Applied { stamp, version });
    }

    pub(super) fn send_release(&self, turn: &mut Turn, key: &Key, stamp: Stamp, config: &Config) {
        let replicates = config.replication.has_intents() || config.replication.has_data();
        if let Some(successor) = self.view.successor(key).filter(|_| replicates) {
            let key = key.clone();
            self.send(turn, successor, Body::Release { key, stamp });
        }
    }

    pub(super) fn intent_of_transaction(&mut self, key: &Key) -> Option<Intent> {
        self.transaction(key).map(|transaction| transaction.intent(true))
    }

    /// Nothing was written: the writer may ask again, unless a successor may do it yet. Holders that have not answered stay
    /// noted.
    fn abort(&mut self, turn: &mut Turn, key: &Key) {
        let may_be_done = self.transaction(key).is_some_and(|transaction| transaction.may_be_held);
        let outcome = if may_be_done {
            Outcome::Unknown
        } else {
            Outcome::Refused
        };
        self.end_transaction(turn, key, outcome);
    }

    fn end_transaction(&mut self, turn: &mut Turn, key: &Key, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let Some(Work::Write(transaction)) = entry.work.take() else {
            return;
        };
        let (from, request) = (transaction.from, transaction.request);
        let epoch = transaction.epoch;
        let is_remembered = self.remember(from, request, &outcome);
        // A refusal that is forgotten is no refusal: the writer asks again.
        if outcome == Outcome::Refused && !is_remembered {
            return;
        }
        turn.send(self.me, from, epoch, Body::Wrote { request, outcome });
    }

    /// A holder's copy ended.
    pub(super) fn invalidated(&mut self, turn: &mut Turn, from: CacheletId, id: u64, key: &Key, holds: bool) {
        if let Some(relay) = self.relays.get_mut(&id) {
            relay.waiting.remove(&from);
            relay.holds |= holds;
            return self.finish_relay(turn, id);
        }
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let Some(Work::Write(transaction)) = &mut entry.work else {
            return;
        };
        if transaction.id != id || !transaction.waiting.remove(&from) {
            return;
        }
        if !holds {
            entry.noted.remove(&from);
        }
        self.proceed(turn, key);
        self.work(turn, key);
    }

    /// The successor holds the intent.
    pub(super) fn is_held(&mut self, turn: &mut Turn, id: u64, key: &Key) {
        let Some(transaction) = self.transaction(key) else {
            return;
        };
        if transaction.id == id {
            transaction.hold_at = None;
            self.proceed(turn, key);
            self.work(turn, key);
        }
    }

    pub(super) fn tick_transaction(&mut self, turn: &mut Turn, key: &Key) {
        let (now_us, resend_at_us) = (turn.now_us, turn.now_us + self.settings.retry_us);
        let config = self.view.config_for(key);
        let is_active = self.is_active(now_us);
        let Some(transaction) = self.transaction(key) else {
            return;
        };
        let put_is_due = transaction.put.as_ref().and_then(StoreWrite::retry_at_us);
        let resends = transaction.resend_at_us <= now_us && transaction.deadline_us().is_some();
        let is_held = transaction.hold_at.is_none();
        if put_is_due.is_some_and(|at_us| at_us <= now_us) {
            self.put(turn, key, |write, about| write.request(about));
        } else if !is_active && !transaction.is_at_store() && transaction.applied.is_none() {
            self.abort(turn, key);
        } else if resends {
            transaction.resend_at_us = resend_at_us;
            if !is_held {
                self.ask_to_hold(turn, key, &config);
            }
            self.send_invalidations(turn, key);
        }
        self.work(turn, key);
    }

    /// The home begins to drain: writes that are not at the store yet are not done, except for those that a successor
    /// may hold. That one is finished if nobody who is lost has to answer first.
    pub(super) fn abort_transactions(&mut self, turn: &mut Turn) {
        let lost = self.draining.as_ref().map(|draining| draining.lost.clone());
        let lost = lost.unwrap_or_default();
        let is_early = |work: &Option<Work>| match work {
            Some(Work::Write(transaction)) => {
                let is_begun = transaction.is_at_store() || transaction.applied.is_some();
                !is_begun && (!transaction.may_be_held || transaction.waits_for(&lost))
            }
            _ => false,
        };
        let early = self.entries.iter().filter(|(_, entry)| is_early(&entry.work));
        let keys: Vec<_> = early.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.abort(turn, &key);
        }
        let keys: Vec<_> = self.entries.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.proceed(turn, &key);
        }
    }

    /// A leader passes an invalidation on to its cluster.
    pub(super) fn pass_on(&mut self, turn: &mut Turn, key: &Key, order: Order, holds: bool) {
        let is_same = |relay: &Relay| {
            (relay.home, relay.transaction, relay.stamp) == (order.from, order.transaction, order.stamp)
        };
        if self.relays.values().any(is_same) {
            return;
        }
        let id = self.transaction_id();
        let relay = Relay {
            home: order.from,
            transaction: order.transaction,
            key: key.clone(),
            epoch: order.epoch,
            stamp: order.stamp,
            update: order.update,
            waiting: self
                .view
                .config_for(key)
                .domain
                .followers(&self.view, self.me)
                .into_iter()
                .collect(),
            holds,
            resend_at_us: 0,
        };
        self.relays.insert(id, relay);
        self.send_relay(turn, id);
        self.finish_relay(turn, id);
    }

    fn send_relay(&mut self, turn: &mut Turn, id: u64) {
        let resend_at_us = turn.now_us + self.settings.retry_us;
        let Some(relay) = self.relays.get_mut(&id) else {
            return;
        };
        relay.resend_at_us = resend_at_us;
        let relay = relay.clone();
        for follower in relay.waiting {
            let body = Body::Invalidate {
                transaction: id,
                key: relay.key.clone(),
                stamp: relay.stamp,
                update: relay.update.clone(),
                pass_on: false,
            };
            turn.send(self.me, follower, relay.epoch, body);
        }
    }

    fn finish_relay(&mut self, turn: &mut Turn, id: u64) {
        if !self.relays.get(&id).is_some_and(|relay| relay.waiting.is_empty()) {
            return;
        }
        if let Some(relay) = self.relays.remove(&id) {
            let body = Body::Invalidated {
                transaction: relay.transaction,
                key: relay.key,
                holds: relay.holds,
            };
            turn.send(self.me, relay.home, relay.epoch, body);
        }
    }

    pub(super) fn tick_relays(&mut self, turn: &mut Turn) {
        let due = self
            .relays
            .iter()
            .filter(|(_, relay)| relay.resend_at_us <= turn.now_us);
        let ids: Vec<_> = due.map(|(id, _)| *id).collect();
        for id in ids {
            self.send_relay(turn, id);
        }
    }
}

/// The parts of a transaction that are needed when it holds.
struct Finished {
    from: CacheletId,
    keep: bool,
    stamp: Stamp,
    value: Option<Value>,
    spread: Spread,
}

impl Finished {
    fn of(transaction: &Transaction) -> Self {
        Self {
            from: transaction.from,
            keep: transaction.keep,
            stamp: transaction.stamp,
            value: transaction.value.clone(),
            spread: transaction.spread,
        }
    }
}
