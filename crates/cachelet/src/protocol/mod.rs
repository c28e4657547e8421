//! The protocol of one cachelet in one domain: `step(state, event) -> outputs`, without I/O, clock or chance.
//!
//! The same code runs in the agent, in the simulator and in the model checker. docs/design/coherence.md draws the
//! messages and states. The invariants that make reads linearizable:
//!
//! 1. The store's current version is the truth, but for writes that a home acknowledged ahead of it (write-back).
//! 2. While the store changes a key, no valid copy of it is served anywhere. A home starts a write at the store only
//!    when every noted holder has said that its copy ended.
//! 3. A cachelet serves copies, and acts as a home, only while its lease holds, in the view in force, and before it
//!    began to drain. A view is in force only when every member of the one before is drained, or its lease has ended.
//! 4. A write that may be on its way from a lost member is finished by the holder of its intent, or the key is
//!    suspected.

mod change;
mod directory;
mod dirty;
mod holder;
mod home;
mod reads;
mod shelf;
mod store_write;
mod transaction;
mod writes;

#[cfg(test)]
pub(crate) mod bug;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::message::{
    Body, Event, Intent, Message, Outcome, Output, ReadOutcome, StoreReply, StoreRequest, WriteOutcome,
};
use crate::types::{CacheletId, CallId, Epoch, Key, OperationId, RequestId, Stamp, Version};
use crate::view::View;

pub use shelf::{Bodies, COPY_OVERHEAD_BYTES, Copy, State};
pub use store_write::{Circumstances, Next, StoreWrite, Written};

use change::Draining;
use directory::Directory;
use reads::PendingRead;
use shelf::Shelf;
use transaction::Relay;
use writes::PendingWrite;

/// Times of a cachelet, in microseconds of its own clock, and the keeper of its copies' bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long a lease holds from when its request was sent, the drift of clocks taken off.
    pub lease_us: u64,
    /// After how long an unanswered message is sent again.
    pub retry_us: u64,
    /// After how long a function gets an answer, whatever it is.
    pub patience_us: u64,
    /// How long a write that was acknowledged may wait for the store.
    pub flush_us: u64,
    /// The keeper of copies' bytes. Values that are not copies, such as writes under way, are always here.
    pub bodies: Bodies,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_us: 2_700_000,
            retry_us: 200_000,
            patience_us: 5_000_000,
            flush_us: 1_000_000,
            bodies: Bodies::Here,
        }
    }
}

/// Requests that a key's home keeps waiting: beyond, they are refused and their senders go to the store.
pub const QUEUE_REQUESTS: usize = 1_024;

/// Keys that a home keeps a directory of, about 100 bytes each. Beyond, keys that nobody holds are forgotten, and if there
/// are none, requests for further keys are refused.
pub const DIRECTORY_ENTRIES: usize = 262_144;

/// Intents that a successor holds. Beyond, it does not answer, and the home does not write.
pub const HELD_INTENTS: usize = 65_536;

/// Answers that a home remembers of one writer. A writer has fewer requests under way.
pub const REMEMBERED_ANSWERS: usize = 4_096;

/// One incarnation of a cachelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cachelet {
    me: CacheletId,
    settings: Settings,
    view: View,
    draining: Option<Draining>,
    is_expelled: bool,
    leased_until_us: u64,
    shelf: Shelf,
    reads: BTreeMap<RequestId, PendingRead>,
    writes: BTreeMap<RequestId, PendingWrite>,
    next_request: u64,
    entries: Directory,
    answered: BTreeMap<CacheletId, Answered>,
    sequence: u64,
    next_transaction: u64,
    held: BTreeMap<Key, Intent>,
    recovering: BTreeMap<Key, StoreWrite>,
    relays: BTreeMap<u64, Relay>,
    calls: BTreeMap<CallId, Purpose>,
    next_call: u64,
    #[cfg(test)]
    bug: Option<bug::Bug>,
}

/// The home's answer to a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Answered {
    lowest: RequestId,
    outcomes: BTreeMap<RequestId, Outcome>,
}

/// The purpose of a call to the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Purpose {
    Read(RequestId),
    Fill(Key, u64),
    Put(Key, u64),
    Flush(Key),
    Recover(Key),
}

/// The results of one step.
#[derive(Debug)]
struct Turn {
    now_us: u64,
    outputs: Vec<Output>,
    to_self: VecDeque<Message>,
}

impl Cachelet {
    /// A cachelet that knows of no view yet.
    #[must_use]
    pub fn new(me: CacheletId, view: View, settings: Settings, budget_bytes: u64) -> Self {
        Self {
            me,
            settings,
            shelf: Shelf::new(view.config.replacement, budget_bytes, settings.bodies),
            view,
            draining: None,
            is_expelled: false,
            leased_until_us: 0,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            next_request: 1,
            entries: Directory::default(),
            answered: BTreeMap::new(),
            sequence: 0,
            next_transaction: 1,
            held: BTreeMap::new(),
            recovering: BTreeMap::new(),
            relays: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 1,
            #[cfg(test)]
            bug: None,
        }
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> CacheletId {
        self.me
    }

    /// The view in force, as far as it knows.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The bytes of its copies.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.shelf.used_bytes()
    }

    /// How many copies it has.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.shelf.count()
    }

    /// Takes an event and says what is to be done. Time is the cachelet's own clock and never goes back.
    pub fn step(&mut self, now_us: u64, event: Event) -> Vec<Output> {
        let mut turn = Turn {
            now_us,
            outputs: Vec::new(),
            to_self: VecDeque::new(),
        };
        self.take(&mut turn, event);
        while let Some(message) = turn.to_self.pop_front() {
            self.receive(&mut turn, self.me, message);
        }
        self.report_change(&mut turn);
        self.entries.settle();
        self.shelf.ask_shell(turn.outputs)
    }

    /// When it wants a tick, if nothing comes before.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let reads = self.reads.values().map(PendingRead::deadline_us);
        let writes = self.writes.values().map(PendingWrite::deadline_us);
        let entries = self.entries.deadline_us().into_iter();
        let recovering = self.recovering.values().filter_map(StoreWrite::retry_at_us);
        let relays = self.relays.values().map(Relay::deadline_us);
        reads.chain(writes).chain(entries).chain(recovering).chain(relays).min()
    }

    fn take(&mut self, turn: &mut Turn, event: Event) {
        match event {
            Event::Read { operation, key } => self.start_read(turn, operation, key),
            Event::Write { operation, key, value } => self.start_write(turn, operation, key, value),
            Event::Message { from, message } => self.receive(turn, from, message),
            Event::Store { call, reply } => self.store_replied(turn, call, reply),
            Event::Leased { sent_at_us } => {
                let until_us = sent_at_us + self.settings.lease_us;
                self.leased_until_us = self.leased_until_us.max(until_us);
                self.route_waiting(turn);
            }
            Event::Domain(document) => self.learn(turn, &document),
            Event::Budget(bytes) => self.set_budget(turn, bytes),
            Event::Gone(name) => self.shelf.lose(&name),
            Event::LeaseLost if !self.is_expelled => self.leave(turn),
            Event::LeaseLost => {}
            Event::Tick => self.tick(turn),
        }
    }

    fn tick(&mut self, turn: &mut Turn) {
        self.tick_reads(turn);
        self.tick_writes(turn);
        self.tick_entries(turn);
        self.tick_relays(turn);
        self.tick_recovery(turn);
    }

    fn set_budget(&mut self, turn: &mut Turn, bytes: u64) {
        self.shelf.set_budget(bytes);
        if self.has_bug(Flaw::ShrinkDropsDirty) {
            self.drop_dirty();
        }
        if self.dirty_bytes() > bytes {
            self.flush_all(turn);
        }
    }

    fn receive(&mut self, turn: &mut Turn, from: CacheletId, message: Message) {
        let Message { epoch, body } = message;
        let is_current = epoch == self.view.epoch;
        match body {
            Body::Wrote { request, outcome } => self.wrote(turn, epoch, request, outcome),
            Body::Refused { request } => self.refused(turn, epoch, request),
            Body::Invalidate {
                transaction,
                key,
                stamp,
                update,
                pass_on,
            } if is_current || (epoch > self.view.epoch && !pass_on) => {
                // It only ends copies: one of a view that is in force elsewhere already is obeyed, too.
                let order = holder::Order {
                    from,
                    epoch,
                    transaction,
                    stamp,
                    update,
                };
                self.invalidate(turn, &key, order, pass_on);
            }
            Body::Invalidate { .. } => {}
            Body::Read { request, .. } if !is_current && !self.has_bug(Flaw::NoEpochs) => {
                turn.send(self.me, from, self.view.epoch, Body::Refused { request });
            }
            // Refusing a write says that it will never be done. A home of another epoch cannot say so.
            Body::Write { .. } if !is_current && !self.has_bug(Flaw::NoEpochs) => {}
            body if is_current || self.has_bug(Flaw::NoEpochs) => self.receive_current(turn, from, epoch, body),
            _ => {}
        }
    }

    fn receive_current(&mut self, turn: &mut Turn, from: CacheletId, epoch: Epoch, body: Body) {
        match body {
            Body::Read { .. } => self.asked_to_read(turn, from, epoch, body),
            Body::Write { .. } => self.asked_to_write(turn, from, epoch, body),
            Body::Filled { request, fill } => self.filled(turn, request, fill),
            Body::Invalidated {
                transaction,
                key,
                holds,
            } => self.invalidated(turn, from, transaction, &key, holds),
            Body::Validate {
                key,
                stamp,
                version,
                pass_on,
            } => self.validate(turn, &key, stamp, version.as_ref(), pass_on),
            Body::Fetch {
                transaction,
                key,
                stamp,
            } => self.asked_for_copy(turn, from, transaction, key, stamp),
            Body::Fetched {
                transaction,
                key,
                content,
                may_come,
            } => self.fetched(turn, (from, transaction), &key, content, may_come),
            Body::Hold {
                transaction,
                key,
                intent,
            } => self.hold(turn, from, transaction, key, intent),
            Body::Held { transaction, key } => self.is_held(turn, transaction, &key),
            Body::Release { key, stamp } => self.release(&key, stamp),
            Body::Wrote { .. } | Body::Refused { .. } | Body::Invalidate { .. } => {}
        }
    }

    fn store_replied(&mut self, turn: &mut Turn, call: CallId, reply: StoreReply) {
        match self.calls.remove(&call) {
            Some(Purpose::Read(request)) => self.store_read(turn, request, reply),
            Some(Purpose::Fill(key, transaction)) => self.fill_replied(turn, &key, transaction, reply),
            Some(Purpose::Put(key, transaction)) => self.put_replied(turn, &key, transaction, reply),
            Some(Purpose::Flush(key)) => self.flush_replied(turn, &key, reply),
            Some(Purpose::Recover(key)) => self.recover_replied(turn, &key, reply),
            None => {}
        }
    }

    fn call(&mut self, turn: &mut Turn, key: &Key, request: StoreRequest, purpose: Purpose) {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, purpose);
        let key = key.clone();
        turn.outputs.push(Output::Store { call, key, request });
    }

    fn send(&self, turn: &mut Turn, to: CacheletId, body: Body) {
        turn.send(self.me, to, self.view.epoch, body);
    }

    fn request_id(&mut self) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        request
    }

    fn transaction_id(&mut self) -> u64 {
        self.next_transaction += 1;
        self.next_transaction
    }

    fn next_stamp(&mut self) -> Stamp {
        self.sequence += 1;
        Stamp {
            epoch: self.view.epoch,
            sequence: self.sequence,
        }
    }

    fn is_leased(&self, now_us: u64) -> bool {
        now_us < self.leased_until_us || self.has_bug(Flaw::NoLease)
    }

    /// Whether it may serve copies and act as a home.
    fn is_active(&self, now_us: u64) -> bool {
        self.is_leased(now_us) && self.draining.is_none() && !self.is_expelled && self.view.has(self.me)
    }

    fn circumstances(&self, turn: &Turn) -> Circumstances {
        Circumstances {
            now_us: turn.now_us,
            retry_us: self.settings.retry_us,
            may_write: self.is_leased(turn.now_us) && !self.is_expelled,
        }
    }
}

impl Turn {
    fn send(&mut self, me: CacheletId, to: CacheletId, epoch: Epoch, body: Body) {
        let message = Message { epoch, body };
        if to == me {
            self.to_self.push_back(message);
        } else {
            self.outputs.push(Output::Send { to, message });
        }
    }

    fn read_failed(&mut self, operation: OperationId, outcome: ReadOutcome) {
        let version = None;
        self.outputs.push(Output::ReadDone {
            operation,
            outcome,
            version,
        });
    }

    fn write_ended(&mut self, operation: OperationId, outcome: WriteOutcome, version: Option<Version>) {
        self.outputs.push(Output::WriteDone {
            operation,
            outcome,
            version,
        });
    }
}

/// The mistakes that published protocols leave room for, R1 to R10 in docs/design/coherence.md. Only unit tests can
/// switch one on; elsewhere `has_bug` is constantly false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Flaw {
    LateFill,
    NoLease,
    NoRecovery,
    EarlyCopy,
    TimeoutIsFailure,
    NoEpochs,
    AbsentCopyIsAbsence,
    NoValidation,
    ShrinkDropsDirty,
    SwitchKeepsCopies,
}

#[cfg(not(test))]
impl Cachelet {
    #[expect(clippy::unused_self, reason = "unit tests have a body that uses it")]
    const fn has_bug(&self, _flaw: Flaw) -> bool {
        false
    }
}

type Waiting = BTreeSet<CacheletId>;
