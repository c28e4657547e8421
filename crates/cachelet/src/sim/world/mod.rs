//! The world: nodes, network, store and coordination engine, in virtual time.

mod agenda;
mod bodies;
mod carry;
mod tally;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::coordinator::Coordinator;
use super::history::{Deed, Record};
use super::network::Costs;
use super::rng::Rng;
use super::store::Store;
use crate::config::{Config, Promise};
use crate::membership::Document;
use crate::message::Event;
use crate::protocol::{Bodies, Cachelet, Settings};
use crate::types::{CacheletId, Epoch, Key, OperationId, Value};
use crate::view::{Trial, View};
use agenda::{Due, Fate, Occurrence};
pub use tally::{Ended, Tally};

/// How often nodes ask for their leases, and the engine looks at them.
const KEEPALIVE_US: u64 = 300_000;
const LOOK_US: u64 = 50_000;

/// The time from a node to the coordination engine, one way.
const COORDINATION_US: u64 = 1_500;

/// Faults, in millionths of the messages or calls that they may befall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Messages that are lost.
    pub lost: u32,
    /// Messages that come twice.
    pub doubled: u32,
    /// Messages that are late, by up to `late_us`.
    pub late: u32,
    /// How late.
    pub late_us: u64,
    /// Store calls that are refused (503).
    pub throttled: u32,
    /// Store calls without an answer. Half of the writes among them are applied, at any time within `zombie_us`.
    pub unanswered: u32,
    /// How long a write without an answer may be on its way.
    pub zombie_us: u64,
    /// How long a call without an answer is waited for.
    pub timeout_us: u64,
    /// Bytes of copies that are gone when they are asked for.
    pub evicted: u32,
}

#[derive(Debug)]
struct Node {
    cachelet: Cachelet,
    cluster: u32,
    /// Nodes of one machine reach each other without the network.
    machine: usize,
    is_alive: bool,
    paused_until_us: u64,
    clock_offset_us: u64,
    /// How fast its clock is, in millionths of the true rate.
    clock_rate: u64,
    tick_at_us: Option<u64>,
    highest_seen: Epoch,
    cut_off_until_us: u64,
    sends_free_at_us: u64,
    store_free_at_us: u64,
    started: BTreeSet<OperationId>,
}

impl Node {
    fn local_us(&self, now_us: u64) -> u64 {
        self.clock_offset_us + (u128::from(now_us) * u128::from(self.clock_rate) / 1_000_000) as u64
    }

    fn true_us(&self, local_us: u64) -> u64 {
        let since = u128::from(local_us.saturating_sub(self.clock_offset_us));
        (since * 1_000_000 / u128::from(self.clock_rate)) as u64 + 1
    }
}

#[derive(Debug)]
struct Started {
    record: usize,
    from_us: u64,
    size_bytes: u64,
}

/// A world.
#[derive(Debug)]
pub struct World {
    now_us: u64,
    rng: Rng,
    due: BinaryHeap<Reverse<Due>>,
    order: u64,
    nodes: Vec<Node>,
    places: BTreeMap<CacheletId, usize>,
    incarnations: u64,
    store: Store,
    coordinator: Coordinator,
    partitions: BTreeMap<(usize, usize), u64>,
    /// The last bytes of each copy, with their number.
    bodies: BTreeMap<(CacheletId, Key), (u64, Value)>,
    /// Faults of network and store.
    pub faults: Faults,
    costs: Costs,
    settings: Settings,
    budget_bytes: u64,
    operations: u64,
    started: BTreeMap<OperationId, Started>,
    records: Vec<Record>,
    /// Which records are of operations that were answered, or never will be.
    is_counted: Vec<bool>,
    tally: Tally,
    finished: Vec<Ended>,
    #[cfg(test)]
    bug: Option<crate::protocol::bug::Bug>,
}

impl World {
    /// A world with one node per cluster number given, all of which have joined.
    #[must_use]
    pub fn new(
        seed: u64,
        clusters: &[u32],
        (config, promise): (Config, Promise),
        budget_bytes: u64,
        costs: Costs,
    ) -> Self {
        let grace_us = 4_000_000;
        let mut world = Self {
            now_us: 0,
            rng: Rng::new(seed),
            due: BinaryHeap::new(),
            order: 0,
            nodes: Vec::new(),
            places: BTreeMap::new(),
            incarnations: 0,
            store: Store::default(),
            coordinator: Coordinator::new(Document::new(config, promise), grace_us),
            partitions: BTreeMap::new(),
            bodies: BTreeMap::new(),
            faults: Faults::default(),
            costs,
            settings: Settings {
                lease_us: 900_000,
                bodies: Bodies::Outside,
                ..Settings::default()
            },
            budget_bytes,
            operations: 0,
            started: BTreeMap::new(),
            records: Vec::new(),
            is_counted: Vec::new(),
            tally: Tally::default(),
            finished: Vec::new(),
            #[cfg(test)]
            bug: None,
        };
        for cluster in clusters {
            world.add_node(*cluster);
        }
        world.schedule(LOOK_US, Occurrence::Look);
        world
    }

    /// Runs until all nodes are members of one view.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            if self.is_settled() {
                return;
            }
            self.run_for(LOOK_US);
        }
    }

    /// Whether all nodes that are alive are in the view in force, and know it.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let view = &self.coordinator.document.view;
        let knows = |node: &Node| node.cachelet.view() == view && view.has(node.cachelet.id());
        let alive = self.nodes.iter().filter(|node| node.is_alive);
        let count = alive.clone().count();
        self.coordinator.document.change.is_none() && view.members.len() == count && alive.clone().all(knows)
    }

    /// Other times than the usual ones; for nodes that are not there yet.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The time.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The counts.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts from now on.
    pub fn reset_tally(&mut self) {
        self.tally = Tally::default();
    }

    /// The node's cachelet.
    #[must_use]
    pub fn cachelet(&self, node: usize) -> &Cachelet {
        &self.nodes[node].cachelet
    }

    /// The view in force.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.coordinator.document.view
    }

    /// Operations that ended since the last call.
    pub fn take_finished(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.finished)
    }

    /// The observations of functions: answered reads, and writes but those that were surely not done.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let counted = self.records.iter().zip(&self.is_counted);
        counted
            .filter(|(_, counts)| **counts)
            .map(|(record, _)| record.clone())
            .collect()
    }

    /// Forgets what functions saw so far: nobody will check it.
    pub fn forget_records(&mut self) {
        if self.started.is_empty() {
            self.records.clear();
            self.is_counted.clear();
        }
    }

    /// Operations that were never answered.
    #[must_use]
    pub fn open_operations(&self) -> usize {
        self.started.len()
    }

    /// Adds a node.
    pub fn add_node(&mut self, cluster: u32) -> usize {
        let place = self.nodes.len();
        let cachelet = self.incarnate(place);
        self.nodes.push(Node {
            cachelet,
            cluster,
            machine: place,
            is_alive: true,
            paused_until_us: 0,
            clock_offset_us: self.rng.below(1_000_000),
            clock_rate: 1_000_000,
            tick_at_us: None,
            highest_seen: Epoch(0),
            cut_off_until_us: 0,
            sends_free_at_us: 0,
            store_free_at_us: 0,
            started: BTreeSet::new(),
        });
        self.schedule(0, Occurrence::Keepalive(place));
        place
    }

    /// Nodes of one machine reach each other without the network. A node is on a machine of its own unless it is said otherwise.
    #[cfg(test)]
    pub fn move_to_machine(&mut self, node: usize, machine: usize) {
        self.nodes[node].machine = machine;
    }

    fn incarnate(&mut self, place: usize) -> Cachelet {
        self.incarnations += 1;
        let id = CacheletId(self.incarnations);
        self.places.insert(id, place);
        let document = &self.coordinator.document;
        let view = View::empty(document.view.config, document.view.promise);
        let cachelet = Cachelet::new(id, view, self.settings, self.budget_bytes);
        #[cfg(test)]
        let cachelet = cachelet.with_bug(self.bug);
        cachelet
    }

    /// Switches a mistake on, in all nodes.
    #[cfg(test)]
    pub(super) fn set_bug(&mut self, bug: Option<crate::protocol::bug::Bug>) {
        self.bug = bug;
        for node in &mut self.nodes {
            node.cachelet = node.cachelet.clone().with_bug(bug);
        }
    }

    /// A node's clock runs at this rate from now on, in millionths of the true one.
    pub fn set_clock_rate(&mut self, node: usize, rate: u64) {
        let now_us = self.now_us;
        let node = &mut self.nodes[node];
        let local_us = node.local_us(now_us);
        let at_rate = (u128::from(now_us) * u128::from(rate) / 1_000_000) as u64;
        // A clock never goes back.
        node.clock_offset_us = local_us.saturating_sub(at_rate);
        node.clock_rate = rate;
    }

    /// A node does nothing until then; messages that come meanwhile wait.
    pub fn pause(&mut self, node: usize, for_us: u64) {
        self.nodes[node].paused_until_us = self.now_us + for_us;
    }

    /// A node's process ends. Its calls to the store are on their way.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].is_alive = false;
        self.forget_operations(node);
    }

    /// A node's process starts again, as another incarnation.
    pub fn restart(&mut self, node: usize) {
        if !self.nodes[node].is_alive {
            self.nodes[node].is_alive = true;
            self.nodes[node].paused_until_us = 0;
            self.nodes[node].highest_seen = Epoch(0);
            self.reincarnate(node);
            self.schedule(0, Occurrence::Keepalive(node));
        }
    }

    fn reincarnate(&mut self, node: usize) {
        let over = self.nodes[node].cachelet.id();
        self.bodies.retain(|(id, _), _| *id != over);
        let cachelet = self.incarnate(node);
        self.nodes[node].cachelet = cachelet;
        self.nodes[node].tick_at_us = None;
    }

    /// Two nodes do not hear each other.
    pub fn partition(&mut self, one: usize, other: usize, for_us: u64) {
        let pair = (one.min(other), one.max(other));
        self.partitions.insert(pair, self.now_us + for_us);
    }

    /// A node does not hear the coordination engine.
    pub fn cut_off(&mut self, node: usize, for_us: u64) {
        self.nodes[node].cut_off_until_us = self.now_us + for_us;
    }

    /// The coordination engine keeps a backup of itself.
    pub fn back_up(&mut self) {
        self.coordinator.back_up();
    }

    /// The coordination engine comes back as it was at the backup.
    pub fn restore(&mut self) {
        self.coordinator.restore(self.now_us);
    }

    /// Wants another configuration.
    pub fn want(&mut self, config: Config, trial: Option<Trial>) {
        self.coordinator.wanted = config;
        self.coordinator.trial = trial;
    }

    /// A node's copies may take so much.
    pub fn set_budget(&mut self, node: usize, bytes: u64) {
        self.deliver(node, Event::Budget(bytes));
    }

    /// Somebody outside of the domain writes.
    pub fn write_outside(&mut self, key: &Key, value: Value) {
        self.records.push(Record {
            key: key.clone(),
            deed: Deed::Write(value.identity()),
            from_us: self.now_us,
            to_us: Some(self.now_us),
        });
        self.is_counted.push(true);
        self.store.write(key, Some(value), None);
    }

    /// An object is there from the beginning, and in no history.
    pub fn put_object(&mut self, key: &Key, value: Value) {
        self.store.write(key, Some(value), None);
    }

    /// A function of a node reads.
    pub fn read(&mut self, node: usize, key: &Key) -> OperationId {
        let operation = self.start(node, key, Deed::Read(0), 0);
        let key = key.clone();
        self.invoke(node, Event::Read { operation, key }, operation);
        operation
    }

    /// A function of a node writes.
    pub fn write(&mut self, node: usize, key: &Key, value: Value) -> OperationId {
        let operation = self.start(node, key, Deed::Write(value.identity()), value.size_bytes);
        let event = Event::Write {
            operation,
            key: key.clone(),
            value: Some(value),
        };
        self.invoke(node, event, operation);
        operation
    }

    /// A process that is not there answers nobody, and does nothing.
    fn invoke(&mut self, node: usize, event: Event, operation: OperationId) {
        if self.nodes[node].is_alive {
            return self.deliver(node, event);
        }
        if let Some(started) = self.end(node, operation) {
            self.tally.failed += 1;
            self.is_counted[started.record] = false;
        }
    }

    fn start(&mut self, node: usize, key: &Key, deed: Deed, size_bytes: u64) -> OperationId {
        self.operations += 1;
        let operation = OperationId(self.operations);
        let started = Started {
            record: self.records.len(),
            from_us: self.now_us,
            size_bytes,
        };
        self.records.push(Record {
            key: key.clone(),
            deed,
            from_us: self.now_us,
            to_us: None,
        });
        // A write that is never answered may have been done; a read was of no use.
        self.is_counted.push(matches!(deed, Deed::Write(_)));
        self.started.insert(operation, started);
        self.nodes[node].started.insert(operation);
        operation
    }

    fn forget_operations(&mut self, node: usize) {
        for operation in std::mem::take(&mut self.nodes[node].started) {
            self.started.remove(&operation);
        }
    }

    fn schedule(&mut self, in_us: u64, what: Occurrence) {
        self.order += 1;
        let due = Due {
            at_us: self.now_us + in_us,
            order: self.order,
            what,
        };
        self.due.push(Reverse(due));
    }

    /// Runs for a while.
    pub fn run_for(&mut self, us: u64) {
        self.run_until(self.now_us + us);
    }

    /// Runs until then.
    pub fn run_until(&mut self, until_us: u64) {
        while self.due.peek().is_some_and(|Reverse(due)| due.at_us <= until_us) {
            self.run_one();
        }
        self.now_us = self.now_us.max(until_us);
    }

    /// Runs until an operation has ended.
    pub fn run_to_next(&mut self) {
        while self.finished.is_empty() && self.run_one() {}
    }

    fn run_one(&mut self) -> bool {
        let Some(Reverse(due)) = self.due.pop() else {
            return false;
        };
        self.now_us = self.now_us.max(due.at_us);
        self.occur(due.what);
        true
    }

    fn occur(&mut self, what: Occurrence) {
        match what {
            Occurrence::Deliver(place, id, event) => {
                // The next incarnation answers requests that a function made while its node was paused.
                let is_asked = matches!(event, Event::Read { .. } | Event::Write { .. });
                if self.nodes[place].cachelet.id() == id || is_asked {
                    self.deliver(place, event);
                }
            }
            Occurrence::Tick(place, id) => {
                let node = &mut self.nodes[place];
                if node.cachelet.id() == id && node.tick_at_us.is_some_and(|at_us| at_us <= self.now_us) {
                    node.tick_at_us = None;
                    self.deliver(place, Event::Tick);
                }
            }
            Occurrence::Apply(place, id, call, key, request, fate) => self.apply(place, id, call, &key, request, fate),
            Occurrence::Keepalive(place) => self.keep_alive(place),
            Occurrence::Renew(place, id, sent_at_us, seen) => self.renew(place, id, sent_at_us, seen),
            Occurrence::Report(id, epoch, is_recovered) => {
                let document = &self.coordinator.document;
                let next = if is_recovered {
                    document.recovered(id, epoch)
                } else {
                    document.drained(id, epoch)
                };
                if let Some(next) = next {
                    self.coordinator.document = next;
                    self.look();
                }
            }
            Occurrence::Look => {
                self.look();
                self.schedule(LOOK_US, Occurrence::Look);
            }
            Occurrence::Expelled(place) => {
                if self.nodes[place].is_alive {
                    self.reincarnate(place);
                }
            }
        }
    }

    fn look(&mut self) {
        if self.coordinator.look(self.now_us) {
            for place in 0..self.nodes.len() {
                self.tell_document(place);
            }
        }
    }

    fn tell_document(&mut self, place: usize) {
        let node = &self.nodes[place];
        if node.cut_off_until_us > self.now_us || !node.is_alive {
            return;
        }
        let id = node.cachelet.id();
        let late_us = if self.rng.happens(self.faults.late) {
            self.rng.below(self.faults.late_us)
        } else {
            0
        };
        let event = Event::Domain(Box::new(self.coordinator.document.clone()));
        self.schedule(COORDINATION_US + late_us, Occurrence::Deliver(place, id, event));
    }

    fn keep_alive(&mut self, place: usize) {
        let node = &self.nodes[place];
        if !node.is_alive {
            return;
        }
        if node.paused_until_us > self.now_us {
            let wait_us = node.paused_until_us - self.now_us;
            return self.schedule(wait_us, Occurrence::Keepalive(place));
        }
        if node.cut_off_until_us <= self.now_us {
            let seen = node.cachelet.view().epoch.max(node.highest_seen);
            let renew = Occurrence::Renew(place, node.cachelet.id(), node.local_us(self.now_us), seen);
            self.nodes[place].highest_seen = seen;
            self.schedule(COORDINATION_US, renew);
        }
        self.schedule(KEEPALIVE_US, Occurrence::Keepalive(place));
    }

    fn renew(&mut self, place: usize, id: CacheletId, sent_at_us: u64, seen: Epoch) {
        let cluster = self.nodes[place].cluster;
        let is_granted = self.coordinator.renew(id, cluster, seen, self.now_us);
        if self.nodes[place].cut_off_until_us > self.now_us {
            return;
        }
        let event = if is_granted {
            Event::Leased { sent_at_us }
        } else {
            Event::LeaseLost
        };
        self.schedule(COORDINATION_US, Occurrence::Deliver(place, id, event));
        self.tell_document(place);
    }
}
