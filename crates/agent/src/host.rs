//! One cachelet with everything around its core: it gives events to the core and carries out the core's actions.
//!
//! Invariant: the core is stepped under one lock, with the time read under it. Its actions are carried out after the
//! lock is free, in any order: the protocol does not depend on it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tidemark_cachelet::membership::Document;
use tidemark_cachelet::message::{Event, Message, Output, ReadOutcome, StoreReply, StoreRequest, WriteOutcome};
use tidemark_cachelet::protocol::{Cachelet, Settings};
use tidemark_cachelet::types::{CacheletId, CallId, Epoch, Key, OperationId, Value, Version, WriteId};
use tidemark_cachelet::view::View;
use tidemark_gateway::coherent::{Fence, ObjectStore, Stored};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::clock::now_us;
use crate::counters::{Counters, message_kind};
use crate::decider::LEASE_US;
use crate::peers::Peers;
use crate::tuning::StorePace;

/// Calls to the store that an agent has under way. Each holds one object.
pub const STORE_CALLS_MAX: usize = 256;
/// Reads and writes of functions that a cachelet has under way.
pub const OPERATIONS_MAX: usize = 4_096;

/// How a read ended, with the version that was read.
pub type ReadEnd = (ReadOutcome, Option<Version>);
/// How a write ended, with the version that was written.
pub type WriteEnd = (WriteOutcome, Option<Version>);

/// The notes of a cachelet to the keeper of memberships.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// It is drained for the change to this epoch.
    Drained {
        /// The application of the domain.
        app: Arc<str>,
        /// Which.
        id: CacheletId,
        /// The change's.
        epoch: Epoch,
    },
    /// It has finished the lost homes' writes.
    Recovered {
        /// The application of the domain.
        app: Arc<str>,
        /// Which.
        id: CacheletId,
        /// The change's.
        epoch: Epoch,
    },
    /// It is no member any more.
    Expelled {
        /// The application of the domain.
        app: Arc<str>,
        /// Which.
        id: CacheletId,
    },
    /// etcd does not know the lease.
    LeaseLost {
        /// Which.
        lease: u64,
    },
    /// Something is to be looked at.
    Look,
}

/// The parts that all cachelets of an agent use.
#[derive(Debug)]
pub struct Shell {
    /// The origin.
    pub store: ObjectStore,
    /// The other agents.
    pub peers: Peers,
    /// The addresses of cachelets of other agents.
    pub addresses: RwLock<HashMap<CacheletId, SocketAddr>>,
    /// The cachelets of this agent.
    pub hosts: RwLock<HashMap<CacheletId, Weak<Host>>>,
    /// The channel to the keeper of memberships.
    pub notes: mpsc::UnboundedSender<Note>,
    /// The runtime of all tasks.
    pub runtime: Handle,
    /// Places of calls to the store.
    pub calls: Arc<Semaphore>,
    /// How long they take.
    pub pace: StorePace,
}

impl Shell {
    /// A message came from another agent, or from another cachelet of this one.
    pub fn receive(&self, to: CacheletId, from: CacheletId, message: Message) {
        let host = self.hosts.read().get(&to).and_then(Weak::upgrade);
        // To an incarnation that is over: its sender asks again, elsewhere.
        if let Some(host) = host {
            host.counters.message(message_kind(&message.body), false);
            host.step_as(Some(to), Event::Message { from, message });
        }
    }
}

/// One cachelet.
#[derive(Debug)]
pub struct Host {
    /// Its application.
    pub app: Arc<str>,
    /// Which instances it serves.
    pub label: String,
    /// The counts of all incarnations.
    pub counters: Counters,
    shell: Arc<Shell>,
    running: Mutex<Running>,
    leased_until_us: Arc<AtomicU64>,
    itself: Weak<Self>,
}

#[derive(Debug)]
struct Running {
    cachelet: Cachelet,
    budget_bytes: u64,
    readers: HashMap<OperationId, oneshot::Sender<ReadEnd>>,
    writers: HashMap<OperationId, oneshot::Sender<WriteEnd>>,
    operations: u64,
}

/// An identity that no other incarnation has: 53 bits of chance, which every program that reads JSON keeps.
fn new_id() -> CacheletId {
    let mut bytes = [0; 8];
    // Without chance the clock is the next best.
    let random = getrandom::fill(&mut bytes).map_or_else(|_| now_us(), |()| u64::from_le_bytes(bytes));
    CacheletId((random >> 11).max(1))
}

impl Host {
    /// A cachelet that has not joined its domain yet. `view` is the last one that is known of the domain.
    #[must_use]
    pub fn new(shell: &Arc<Shell>, app: &Arc<str>, label: &str, view: View, budget_bytes: u64) -> Arc<Self> {
        let id = new_id();
        let cachelet = Cachelet::new(id, view, settings(), budget_bytes);
        let host = Arc::new_cyclic(|itself| Self {
            app: Arc::clone(app),
            label: label.to_owned(),
            counters: Counters::default(),
            shell: Arc::clone(shell),
            running: Mutex::new(Running {
                cachelet,
                budget_bytes,
                readers: HashMap::new(),
                writers: HashMap::new(),
                operations: 0,
            }),
            leased_until_us: Arc::default(),
            itself: itself.clone(),
        });
        shell.hosts.write().insert(id, host.itself.clone());
        host
    }

    /// Another incarnation takes the place of one that is over.
    pub fn reincarnate(&self, view: View) {
        let id = new_id();
        let old = {
            let mut running = self.running.lock();
            let view = std::cmp::max_by_key(view, running.cachelet.view().clone(), |view| view.epoch);
            let old = running.cachelet.id();
            running.cachelet = Cachelet::new(id, view, settings(), running.budget_bytes);
            self.leased_until_us.store(0, Ordering::SeqCst);
            old
        };
        let mut hosts = self.shell.hosts.write();
        hosts.remove(&old);
        hosts.insert(id, self.itself.clone());
    }

    /// Which incarnation it is.
    pub fn id(&self) -> CacheletId {
        self.running.lock().cachelet.id()
    }

    /// The view in force, as far as it knows.
    pub fn view(&self) -> View {
        self.running.lock().cachelet.view().clone()
    }

    /// The bytes of its copies, and their limit.
    pub fn bytes(&self) -> (u64, u64) {
        let running = self.running.lock();
        (running.cachelet.used_bytes(), running.budget_bytes)
    }

    /// How many copies it has.
    pub fn copies(&self) -> u64 {
        self.running.lock().cachelet.copies() as u64
    }

    /// Reads an object.
    pub async fn read(&self, key: Key) -> ReadEnd {
        let from_us = now_us();
        let (end, id, outputs) = {
            let mut running = self.running.lock();
            if running.readers.len() >= OPERATIONS_MAX {
                return (ReadOutcome::Unavailable, None);
            }
            let operation = running.operation();
            let mut outputs = running.cachelet.step(now_us(), Event::Read { operation, key });
            let is_end = |output: &Output| matches!(output, Output::ReadDone { operation: of, .. } if *of == operation);
            let end = match outputs.iter().position(is_end).map(|at| outputs.swap_remove(at)) {
                Some(Output::ReadDone { outcome, version, .. }) => Ok((outcome, version)),
                _ => {
                    let (sender, receiver) = oneshot::channel();
                    running.readers.insert(operation, sender);
                    Err(receiver)
                }
            };
            (end, running.cachelet.id(), outputs)
        };
        self.carry_out(id, outputs);
        let end = match end {
            Ok(end) => end,
            Err(receiver) => receiver.await.unwrap_or((ReadOutcome::Unavailable, None)),
        };
        self.counters.read(&end.0, now_us().saturating_sub(from_us));
        end
    }

    /// Writes an object, or deletes it.
    pub async fn write(&self, key: Key, value: Option<Value>) -> WriteEnd {
        let from_us = now_us();
        let (receiver, id, outputs) = {
            let mut running = self.running.lock();
            if running.writers.len() >= OPERATIONS_MAX {
                return (WriteOutcome::Unavailable, None);
            }
            let operation = running.operation();
            let (sender, receiver) = oneshot::channel();
            running.writers.insert(operation, sender);
            let event = Event::Write { operation, key, value };
            let outputs = running.cachelet.step(now_us(), event);
            (receiver, running.cachelet.id(), outputs)
        };
        self.carry_out(id, outputs);
        let end = receiver.await.unwrap_or((WriteOutcome::Unknown, None));
        self.counters.write(end.0, now_us().saturating_sub(from_us));
        end
    }

    /// Gives an event to the core.
    pub fn step(&self, event: Event) {
        self.step_as(None, event);
    }

    /// Gives an event to the core if it is this incarnation. An event of one that is over concerns nobody.
    fn step_as(&self, id: Option<CacheletId>, event: Event) {
        let (id, outputs) = {
            let mut running = self.running.lock();
            let now_id = running.cachelet.id();
            if id.is_some_and(|id| id != now_id) {
                return;
            }
            if let Event::Budget(bytes) = event {
                running.budget_bytes = bytes;
            }
            (now_id, running.cachelet.step(now_us(), event))
        };
        self.carry_out(id, outputs);
    }

    /// etcd confirmed the lease by an answer to a request of that time, while the cachelet was this incarnation.
    pub fn leased(&self, id: CacheletId, sent_at_us: u64) {
        let is_current = {
            let running = self.running.lock();
            let is_current = running.cachelet.id() == id;
            if is_current {
                self.leased_until_us.fetch_max(sent_at_us + LEASE_US, Ordering::SeqCst);
            }
            is_current
        };
        if is_current {
            self.step_as(Some(id), Event::Leased { sent_at_us });
        }
    }

    /// Whether its lease holds.
    pub fn is_leased(&self) -> bool {
        now_us() < self.leased_until_us.load(Ordering::SeqCst)
    }

    /// The domain's document came.
    pub fn learn(&self, document: &Document) {
        self.step(Event::Domain(Box::new(document.clone())));
    }

    /// Wakes the core if it wants that.
    pub fn tick(&self) {
        let (id, outputs) = {
            let mut running = self.running.lock();
            let now_us = now_us();
            if running
                .cachelet
                .deadline_us()
                .is_none_or(|deadline_us| deadline_us > now_us)
            {
                return;
            }
            (running.cachelet.id(), running.cachelet.step(now_us, Event::Tick))
        };
        self.carry_out(id, outputs);
    }

    fn carry_out(&self, id: CacheletId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send(id, to, message),
                Output::Store { call, key, request } => self.call(id, call, key, request),
                Output::ReadDone {
                    operation,
                    outcome,
                    version,
                } => {
                    let reader = self.running.lock().readers.remove(&operation);
                    // A client that has gone does not wait.
                    let _ = reader.map(|reader| reader.send((outcome, version)));
                }
                Output::WriteDone {
                    operation,
                    outcome,
                    version,
                } => {
                    let writer = self.running.lock().writers.remove(&operation);
                    let _ = writer.map(|writer| writer.send((outcome, version)));
                }
                Output::Drained(epoch) => self.note(|app| Note::Drained { app, id, epoch }),
                Output::Recovered(epoch) => self.note(|app| Note::Recovered { app, id, epoch }),
                Output::Expelled => self.note(|app| Note::Expelled { app, id }),
            }
        }
    }

    fn note(&self, of: impl FnOnce(Arc<str>) -> Note) {
        // Whoever keeps memberships ends last.
        let _ = self.shell.notes.send(of(Arc::clone(&self.app)));
    }

    fn send(&self, from: CacheletId, to: CacheletId, message: Message) {
        self.counters.message(message_kind(&message.body), true);
        if self.shell.hosts.read().contains_key(&to) {
            let shell = Arc::clone(&self.shell);
            self.shell
                .runtime
                .spawn(async move { shell.receive(to, from, message) });
            return;
        }
        let address = self.shell.addresses.read().get(&to).copied();
        if let Some(address) = address {
            self.shell.peers.send(address, to, from, &message);
        }
    }

    fn call(&self, id: CacheletId, call: CallId, key: Key, request: StoreRequest) {
        self.counters.call(&request);
        let Some(host) = self.itself.upgrade() else { return };
        let leased_until_us = Arc::clone(&self.leased_until_us);
        let fence: Fence = Arc::new(move || now_us() < leased_until_us.load(Ordering::SeqCst));
        self.shell.runtime.spawn(async move {
            let place = Arc::clone(&host.shell.calls).acquire_owned().await;
            let (from_us, sent_bytes) = (now_us(), sent_bytes(&request));
            let reply = ask(&host.shell.store, &key.0, request, fence).await;
            drop(place);
            if let Some(bytes) = answered_bytes(&reply) {
                host.shell
                    .pace
                    .note(sent_bytes + bytes, now_us().saturating_sub(from_us));
            }
            host.step_as(Some(id), Event::Store { call, reply });
        });
    }
}

impl Running {
    fn operation(&mut self) -> OperationId {
        self.operations += 1;
        OperationId(self.operations)
    }
}

fn settings() -> Settings {
    Settings {
        lease_us: LEASE_US,
        ..Settings::default()
    }
}

fn sent_bytes(request: &StoreRequest) -> u64 {
    match request {
        StoreRequest::Put { value: Some(value), .. } => value.size_bytes,
        _ => 0,
    }
}

/// The bytes of an answer that says how long a call takes.
fn answered_bytes(reply: &StoreReply) -> Option<u64> {
    match reply {
        StoreReply::Object { value: Some(value), .. } => Some(value.size_bytes),
        StoreReply::Lost | StoreReply::Throttled | StoreReply::Denied(_) => None,
        _ => Some(0),
    }
}

fn identity(write: WriteId) -> String {
    format!("{:x}-{:x}", write.writer.0, write.request.0)
}

fn parse_identity(text: &str) -> Option<WriteId> {
    let (writer, request) = text.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(WriteId {
        writer: CacheletId(number(writer)?),
        request: tidemark_cachelet::types::RequestId(number(request)?),
    })
}

fn version(etag: Option<String>) -> Version {
    etag.map_or(Version::Absent, |etag| Version::Tag(etag.into()))
}

fn etag(version: &Version) -> Option<&str> {
    match version {
        Version::Absent => None,
        Version::Tag(etag) => Some(etag),
    }
}

/// The bytes of a value, without copying them.
#[must_use]
pub fn bytes_of(value: &Value) -> Bytes {
    struct Body(Arc<[u8]>);
    impl AsRef<[u8]> for Body {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Body(Arc::clone(&value.body)))
}

async fn ask(store: &ObjectStore, place: &str, request: StoreRequest, fence: Fence) -> StoreReply {
    let stored = match &request {
        StoreRequest::Get { unless } => store.get(place, unless.as_ref().and_then(etag)).await,
        StoreRequest::Head => store.head(place).await,
        StoreRequest::Put { value, replaces, write } => {
            let content = value.as_ref().map(bytes_of);
            store
                .put(place, content, etag(replaces), &identity(*write), fence)
                .await
        }
    };
    match stored {
        Stored::Object { content, etag } => StoreReply::Object {
            value: content.map(|content| Value::new(&content)),
            version: version(etag),
        },
        Stored::NotModified => StoreReply::NotModified,
        Stored::Meta { etag, write } => StoreReply::Meta {
            version: version(etag),
            write: write.and_then(|write| parse_identity(&write)),
        },
        Stored::Written(etag) => StoreReply::Written(version(etag)),
        Stored::Mismatch => StoreReply::Mismatch,
        Stored::Throttled => StoreReply::Throttled,
        Stored::Lost => StoreReply::Lost,
        Stored::Denied(status) => StoreReply::Denied(status),
    }
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::types::RequestId;

    use super::*;

    #[test]
    fn identities_of_writes_are_read_as_they_are_written() {
        let write = WriteId {
            writer: CacheletId(0x1f_ffff_ffff_ffff),
            request: RequestId(17),
        };
        assert_eq!(parse_identity(&identity(write)), Some(write));
        for text in ["", "1", "1-", "x-1", "1-2-3"] {
            assert_eq!(parse_identity(text), None, "{text}");
        }
    }

    #[test]
    fn incarnations_have_their_own_identities() {
        let ids: std::collections::BTreeSet<_> = (0..1_000).map(|_| new_id().0).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| (1..1 << 53).contains(id)));
    }
}
