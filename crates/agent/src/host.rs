//! One cachelet with everything around its core: it gives events to the core and carries out the core's actions.
//!
//! Invariant: the core is stepped under one lock, with the time read under it. Its actions are carried out after the
//! lock is free, those of a step in their order and those of two steps in any: the protocol does not depend on it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tidemark_cachelet::membership::Document;
use tidemark_cachelet::message::{Event, Message, Output, ReadOutcome, StoreRequest, WriteOutcome};
use tidemark_cachelet::protocol::{Cachelet, Settings};
use tidemark_cachelet::types::{BodyName, CacheletId, CallId, Epoch, Key, OperationId, Value, Version};
use tidemark_cachelet::view::View;
use tidemark_gateway::coherent::{Fence, ObjectStore};
use tidemark_gateway::copies::KeptCopy;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::asking::{answered_bytes, ask, bytes_of, sent_bytes};
use crate::bodies::{Bodies, Engine};
use crate::clock::now_us;
use crate::counters::{Counters, message_kind};
use crate::decider::LEASE_US;
use crate::peers::Peers;
use crate::tuning::StorePace;

/// Calls to the store that an agent has under way. Each holds one object.
pub const STORE_CALLS_MAX: usize = 256;
/// Reads and writes of functions that a cachelet has under way.
pub const OPERATIONS_MAX: usize = 4_096;

/// How often a read begins again because the bytes of the copy that it was to get were evicted. The first time after that it
/// finds no copy; more than one is for other reads that bring one meanwhile.
const EVICTED_TRIES: usize = 8;

/// How a read ended, with the version that was read.
type CoreEnd = (ReadOutcome, Option<Version>);
/// How a read ended.
#[derive(Clone, Debug)]
pub struct ReadEnd {
    /// The outcome.
    pub outcome: ReadOutcome,
    /// The version that was read.
    pub version: Option<Version>,
    /// The bytes of the outcome's value; none of another outcome.
    pub content: Bytes,
}

impl ReadEnd {
    fn unavailable() -> Self {
        Self {
            outcome: ReadOutcome::Unavailable,
            version: None,
            content: Bytes::new(),
        }
    }
}
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
    /// The memory that has the bytes of copies; without it cachelets have them themselves.
    pub engine: Option<Engine>,
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
    bodies: Bodies,
    running: Mutex<Running>,
    leased_until_us: Arc<AtomicU64>,
    itself: Weak<Self>,
}

#[derive(Debug)]
struct Running {
    cachelet: Cachelet,
    budget_bytes: u64,
    readers: HashMap<OperationId, oneshot::Sender<CoreEnd>>,
    writers: HashMap<OperationId, oneshot::Sender<WriteEnd>>,
    operations: u64,
    /// Bytes of copies that memory is about to have: nobody who is told of such a copy finds it gone. Those that are dropped
    /// before memory has them are not here any more.
    keeping: HashMap<(CacheletId, BodyName), Value>,
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
        let bodies = Bodies::new(shell.engine.clone(), app, label);
        let cachelet = Cachelet::new(id, view, settings(&bodies), bodies.share_of(budget_bytes));
        let host = Arc::new_cyclic(|itself| Self {
            bodies,
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
                keeping: HashMap::new(),
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
            let budget_bytes = self.bodies.share_of(running.budget_bytes);
            running.cachelet = Cachelet::new(id, view, settings(&self.bodies), budget_bytes);
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
        // Once for a read and before anything else: what is missed is looked for, too.
        let found = self.bodies.look_up(&key);
        let mut end = ReadEnd::unavailable();
        for _ in 0..EVICTED_TRIES {
            let (id, (outcome, version)) = self.read_once(key.clone()).await;
            let content = match &outcome {
                ReadOutcome::Is(Some(value), _) => match value.outside() {
                    Some(name) => self.body(id, name, found.as_ref()),
                    None => bytes_of(value),
                },
                _ => Some(Bytes::new()),
            };
            if let Some(content) = content {
                end = ReadEnd {
                    outcome,
                    version,
                    content,
                };
                break;
            }
        }
        self.counters.read(&end.outcome, now_us().saturating_sub(from_us));
        end
    }

    /// Reads an object by the core alone; also which incarnation answered.
    async fn read_once(&self, key: Key) -> (CacheletId, CoreEnd) {
        let unavailable = (ReadOutcome::Unavailable, None);
        let (end, id, outputs) = {
            let mut running = self.running.lock();
            let id = running.cachelet.id();
            if running.readers.len() >= OPERATIONS_MAX {
                return (id, unavailable);
            }
            let operation = running.operation();
            let mut outputs = running.step(now_us(), Event::Read { operation, key });
            let is_end = |output: &Output| matches!(output, Output::ReadDone { operation: of, .. } if *of == operation);
            let end = match outputs.iter().position(is_end).map(|at| outputs.remove(at)) {
                Some(Output::ReadDone { outcome, version, .. }) => Ok((outcome, version)),
                _ => {
                    let (sender, receiver) = oneshot::channel();
                    running.readers.insert(operation, sender);
                    Err(receiver)
                }
            };
            (end, id, outputs)
        };
        self.carry_out(id, outputs);
        let end = match end {
            Ok(end) => end,
            Err(receiver) => receiver.await.unwrap_or(unavailable),
        };
        (id, end)
    }

    /// The bytes of a copy: those that memory has, or is about to have. If it has evicted them, the core is told.
    fn body(&self, id: CacheletId, name: &BodyName, found: Option<&KeptCopy>) -> Option<Bytes> {
        let about_to_be = || self.running.lock().keeping.get(&(id, name.clone())).and_then(bytes_of);
        let bytes = self.bodies.bytes(id, name, found).or_else(about_to_be);
        // It may have got them in between.
        let bytes = bytes.or_else(|| self.bodies.bytes(id, name, None));
        if bytes.is_none() {
            self.counters.evicted();
            self.step_as(Some(id), Event::Gone(name.clone()));
        }
        bytes
    }

    fn keep(&self, id: CacheletId, name: BodyName, value: &Value) {
        let is_kept = self.bodies.keep(id, &name, value);
        let is_wanted = self.running.lock().keeping.remove(&(id, name.clone())).is_some();
        if !is_kept {
            self.step_as(Some(id), Event::Gone(name));
        } else if !is_wanted {
            // A later step dropped them before memory had them: nobody else would remove them.
            self.bodies.forget(id, &name);
        }
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
            let outputs = running.step(now_us(), event);
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
            let event = match event {
                Event::Budget(bytes) => {
                    running.budget_bytes = bytes;
                    Event::Budget(self.bodies.share_of(bytes))
                }
                event => event,
            };
            (now_id, running.step(now_us(), event))
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
            (running.cachelet.id(), running.step(now_us, Event::Tick))
        };
        self.carry_out(id, outputs);
    }

    fn carry_out(&self, id: CacheletId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Keep { name, value } => self.keep(id, name, &value),
                Output::Drop(name) => self.bodies.forget(id, &name),
                Output::Send { to, message } => {
                    let message = self.with_bytes(id, message);
                    self.send(id, to, message);
                }
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

    /// A message with the bytes of its value, or the one that is sent in its place where they were evicted.
    fn with_bytes(&self, id: CacheletId, mut message: Message) -> Message {
        let Some(value) = message.body.outside() else {
            return message;
        };
        let Some(name) = value.outside().cloned() else {
            return message;
        };
        if let Some(bytes) = self.body(id, &name, None) {
            *value = Value::new(&bytes);
            return message;
        }
        Message {
            body: message.body.without_bytes(),
            ..message
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
    fn step(&mut self, now_us: u64, event: Event) -> Vec<Output> {
        let id = self.cachelet.id();
        let outputs = self.cachelet.step(now_us, event);
        self.note(id, &outputs);
        outputs
    }

    /// Notes which bytes memory is about to have by the actions of a step.
    fn note(&mut self, id: CacheletId, outputs: &[Output]) {
        // From the end: bytes that a step both keeps and drops are there for what it asks for in between.
        for output in outputs.iter().rev() {
            match output {
                Output::Keep { name, value } => drop(self.keeping.insert((id, name.clone()), value.clone())),
                Output::Drop(name) => drop(self.keeping.remove(&(id, name.clone()))),
                _ => {}
            }
        }
    }

    fn operation(&mut self) -> OperationId {
        self.operations += 1;
        OperationId(self.operations)
    }
}

fn settings(bodies: &Bodies) -> Settings {
    Settings {
        lease_us: LEASE_US,
        bodies: bodies.keeper(),
        ..Settings::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tidemark_cachelet::config::{Config, Promise};
    use tidemark_gateway::StoreMemory;
    use tidemark_gateway::config::DEFAULT_FRESHNESS;
    use tidemark_store::{Hasher, KeeperInbox, Pool, TenantConfig, TenantStore};
    use tidemark_types::{MIB, TenantId};

    use super::*;
    use crate::peers::Secret;

    /// What cachelets of an agent use that reaches nobody.
    pub(crate) fn shell(runtime: &tokio::runtime::Runtime, engine: Option<Engine>) -> Arc<Shell> {
        let origins = tidemark_gateway::Origins::parse("s3://b?endpoint=http://127.0.0.1:1", DEFAULT_FRESHNESS);
        let (notes, _) = mpsc::unbounded_channel();
        Arc::new(Shell {
            store: ObjectStore::new(origins.unwrap(), None).unwrap(),
            peers: Peers::new(Secret::new(&[0; 32]).unwrap(), runtime.handle().clone()),
            addresses: RwLock::default(),
            hosts: RwLock::default(),
            notes,
            runtime: runtime.handle().clone(),
            calls: Arc::new(Semaphore::new(STORE_CALLS_MAX)),
            pace: StorePace::default(),
            engine,
        })
    }

    /// A tenant's memory, and an engine with it.
    fn memory(pool: &Pool) -> (Arc<TenantStore>, Engine) {
        let config = TenantConfig::with_keeper(KeeperInbox::new(Box::new(|| {})), Hasher::with_seed(1));
        let store = TenantStore::new(pool, config);
        store.set_grant(16 * MIB, 0);
        let (engine, of) = (Engine::default(), Arc::clone(&store));
        engine.starts(Arc::new(move |_: &str| {
            Some(StoreMemory::new(
                (TenantId(1), "shop"),
                Arc::clone(&of),
                Arc::new(|()| {}),
                Arc::new(|_| {}),
                Arc::new(|_| {}),
                Arc::new(|_| {}),
            ))
        }));
        (store, engine)
    }

    #[test]
    fn bytes_that_are_dropped_before_memory_has_them_are_given_back() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let pool = Pool::without_thread(32 * MIB, None).unwrap();
        let (store, engine) = memory(&pool);
        let view = View::empty(Config::CONCORD, Promise::default());
        let host = Host::new(&shell(&runtime, Some(engine)), &"shop".into(), "shop", view, 16 * MIB);
        let id = host.id();
        let name = |number| BodyName {
            key: Key::new("k"),
            number,
        };
        let keep = |number| Output::Keep {
            name: name(number),
            value: Value::new(&[7; 5_000]),
        };
        let items = || store.counters().items;
        // Two steps, whose actions are carried out in the other order.
        let (first, second) = ([keep(1)], [Output::Drop(name(1))]);
        host.running.lock().note(id, &first);
        host.running.lock().note(id, &second);
        host.carry_out(id, second.to_vec());
        host.carry_out(id, first.to_vec());
        assert_eq!((items(), host.running.lock().keeping.len()), (0, 0));
        // And in their order.
        let (first, second) = ([keep(2)], [Output::Drop(name(2))]);
        host.running.lock().note(id, &first);
        host.carry_out(id, first.to_vec());
        assert_eq!((items(), host.running.lock().keeping.len()), (1, 0));
        host.running.lock().note(id, &second);
        host.carry_out(id, second.to_vec());
        assert_eq!(items(), 0);
    }

    #[test]
    fn incarnations_have_their_own_identities() {
        let ids: std::collections::BTreeSet<_> = (0..1_000).map(|_| new_id().0).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| (1..1 << 53).contains(id)));
    }
}
