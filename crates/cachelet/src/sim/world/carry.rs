//! The actions of cachelets, carried out: messages, calls to the store, and answers to functions.

use super::{COORDINATION_US, Ended, Fate, Occurrence, Started, World};
use crate::message::{Event, Message, Output, ReadOutcome, Source, StoreReply, StoreRequest, WriteOutcome};
use crate::sim::history::Deed;
use crate::sim::network::{message_bytes, reply_bytes, request_bytes};
use crate::types::{CacheletId, CallId, Epoch, Key, OperationId, Version};

impl World {
    /// Gives an event to a node; while it is paused, it waits.
    pub(super) fn deliver(&mut self, place: usize, event: Event) {
        let node = &mut self.nodes[place];
        if !node.is_alive {
            return;
        }
        if node.paused_until_us > self.now_us {
            let (wait_us, id) = (node.paused_until_us - self.now_us, node.cachelet.id());
            if event == Event::Tick {
                node.tick_at_us = Some(node.paused_until_us);
                return self.schedule(wait_us, Occurrence::Tick(place, id));
            }
            return self.schedule(wait_us, Occurrence::Deliver(place, id, event));
        }
        let local_us = node.local_us(self.now_us);
        let outputs = node.cachelet.step(local_us, event);
        for output in outputs {
            self.output(place, output);
        }
        self.schedule_tick(place);
    }

    fn schedule_tick(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        let Some(deadline_us) = node.cachelet.deadline_us() else {
            return;
        };
        let at_us = node.true_us(deadline_us).max(self.now_us + 1);
        if node.tick_at_us.is_none_or(|tick_at_us| at_us < tick_at_us) {
            node.tick_at_us = Some(at_us);
            let (id, wait_us) = (node.cachelet.id(), at_us - self.now_us);
            self.schedule(wait_us, Occurrence::Tick(place, id));
        }
    }

    fn output(&mut self, place: usize, output: Output) {
        let id = self.nodes[place].cachelet.id();
        match output {
            Output::Keep { name, value } => self.keep_body(id, name, value),
            Output::Drop(name) => self.drop_body(id, name),
            Output::Send { to, message } => {
                let message = self.with_bytes(place, message);
                self.send(place, to, &message);
            }
            Output::Store { call, key, request } => self.call(place, call, key, request),
            Output::ReadDone {
                operation,
                outcome,
                version,
            } => {
                if let Some(outcome) = self.with_body(place, operation, outcome) {
                    self.read_done(place, operation, outcome, version);
                }
            }
            Output::WriteDone {
                operation,
                outcome,
                version,
            } => self.write_done(place, operation, outcome, version),
            Output::Drained(epoch) => self.report(place, id, epoch, false),
            Output::Recovered(epoch) => self.report(place, id, epoch, true),
            Output::Expelled => self.schedule(0, Occurrence::Expelled(place)),
        }
    }

    fn report(&mut self, place: usize, id: CacheletId, epoch: Epoch, is_recovered: bool) {
        if self.nodes[place].cut_off_until_us <= self.now_us {
            self.schedule(COORDINATION_US, Occurrence::Report(id, epoch, is_recovered));
        }
    }

    fn send(&mut self, place: usize, to: CacheletId, message: &Message) {
        let from = self.nodes[place].cachelet.id();
        let bytes = message_bytes(&message.body);
        self.tally.messages += 1;
        self.tally.message_bytes += bytes;
        let Some(target) = self.places.get(&to).copied() else {
            return;
        };
        let is_beside = self.nodes[place].machine == self.nodes[target].machine;
        let (bytes_us, way_us) = if is_beside {
            (0, 0)
        } else {
            (bytes / self.costs.node_bytes_per_us, self.costs.one_way_us)
        };
        let node = &mut self.nodes[place];
        node.sends_free_at_us = node.sends_free_at_us.max(self.now_us) + self.costs.message_us + bytes_us;
        let arrives_in_us = node.sends_free_at_us - self.now_us + way_us;
        let pair = (place.min(target), place.max(target));
        let is_cut = self
            .partitions
            .get(&pair)
            .is_some_and(|until_us| *until_us > self.now_us);
        if is_cut || self.rng.happens(self.faults.lost) {
            return;
        }
        let copies = 1 + u64::from(self.rng.happens(self.faults.doubled));
        for _ in 0..copies {
            let late_us = if self.rng.happens(self.faults.late) {
                self.rng.below(self.faults.late_us)
            } else {
                0
            };
            let event = Event::Message {
                from,
                message: message.clone(),
            };
            self.schedule(arrives_in_us + late_us, Occurrence::Deliver(target, to, event));
        }
    }

    fn call(&mut self, place: usize, call: CallId, key: Key, request: StoreRequest) {
        self.tally.store_calls += 1;
        let id = self.nodes[place].cachelet.id();
        let busy_us = request_bytes(&request) / self.costs.store_bytes_per_us;
        let node = &mut self.nodes[place];
        node.store_free_at_us = node.store_free_at_us.max(self.now_us) + busy_us;
        let mut in_us = node.store_free_at_us - self.now_us + self.costs.store_us / 2;
        let mut fate = Fate::Answered;
        if self.rng.happens(self.faults.throttled) {
            fate = Fate::Throttled;
        } else if self.rng.happens(self.faults.unanswered) {
            fate = Fate::Unanswered;
            let timeout_us = self.faults.timeout_us;
            let event = Event::Store {
                call,
                reply: StoreReply::Lost,
            };
            self.schedule(timeout_us, Occurrence::Deliver(place, id, event));
            if self.rng.happens(500_000) {
                return;
            }
            in_us += self.rng.below(self.faults.zombie_us);
        }
        self.schedule(in_us, Occurrence::Apply(place, id, call, key, request, fate));
    }

    pub(super) fn apply(
        &mut self,
        place: usize,
        id: CacheletId,
        call: CallId,
        key: &Key,
        request: StoreRequest,
        fate: Fate,
    ) {
        let reply = match fate {
            Fate::Throttled => StoreReply::Throttled,
            Fate::Answered => self.store.apply(key, request),
            Fate::Unanswered => {
                self.store.apply(key, request);
                return;
            }
        };
        let bytes_us = reply_bytes(&reply) / self.costs.store_bytes_per_us;
        let node = &mut self.nodes[place];
        node.store_free_at_us = node.store_free_at_us.max(self.now_us) + bytes_us;
        let in_us = node.store_free_at_us - self.now_us + self.costs.store_us / 2;
        let event = Event::Store { call, reply };
        self.schedule(in_us, Occurrence::Deliver(place, id, event));
    }

    fn read_done(&mut self, place: usize, operation: OperationId, outcome: ReadOutcome, version: Option<Version>) {
        let Some(started) = self.end(place, operation) else {
            return;
        };
        let ReadOutcome::Is(value, source) = outcome else {
            self.tally.failed += 1;
            return;
        };
        let index = match source {
            Source::Copy => 0,
            Source::Validated => 1,
            Source::Home => 2,
            Source::Store => 3,
        };
        self.tally.reads[index] += 1;
        if let Some(ended) = self.finished.last_mut() {
            ended.source = Some(source);
            ended.version = version;
            ended.size_bytes = value.as_ref().map_or(0, |value| value.size_bytes);
        }
        let record = &mut self.records[started.record];
        record.deed = Deed::Read(value.map_or(0, |value| value.identity()));
        record.to_us = Some(self.now_us);
        self.is_counted[started.record] = true;
    }

    fn write_done(&mut self, place: usize, operation: OperationId, outcome: WriteOutcome, version: Option<Version>) {
        let Some(started) = self.end(place, operation) else {
            return;
        };
        match outcome {
            WriteOutcome::Applied => {
                self.tally.writes += 1;
                if let Some(ended) = self.finished.last_mut() {
                    ended.source = Some(Source::Store);
                    ended.version = version;
                    ended.size_bytes = started.size_bytes;
                }
                self.records[started.record].to_us = Some(self.now_us);
            }
            WriteOutcome::Unknown => self.tally.failed += 1,
            WriteOutcome::Unavailable | WriteOutcome::Denied(_) => {
                self.tally.failed += 1;
                self.is_counted[started.record] = false;
            }
        }
    }

    pub(super) fn end(&mut self, place: usize, operation: OperationId) -> Option<Started> {
        let started = self.started.remove(&operation)?;
        self.nodes[place].started.remove(&operation);
        let took_us = self.now_us - started.from_us;
        self.tally.operation_us += took_us;
        let record = &self.records[started.record];
        self.finished.push(Ended {
            operation,
            node: place,
            key: record.key.clone(),
            is_write: matches!(record.deed, Deed::Write(_)),
            size_bytes: 0,
            version: None,
            source: None,
            took_us,
        });
        Some(started)
    }
}
