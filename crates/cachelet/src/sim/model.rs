//! The same core under stateright, for a few operations on one key. It tries every order of messages, store calls,
//! changes of the view and the loss of a node. Messages are unordered, may stay on their way for ever, and one may come
//! twice.

use std::collections::BTreeSet;

use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester};
use stateright::{Checker as _, Model, Property};

use super::store::Store;
use crate::config::{Coherence, Config, Domain, Promise, Replication};
use crate::membership::{Document, Known};
use crate::message::{Event, Message, Output, ReadOutcome, StoreReply, StoreRequest, WriteOutcome};
use crate::protocol::bug::Bug;
use crate::protocol::{Bodies, Cachelet, Settings};
use crate::types::{CacheletId, CallId, Epoch, Key, OperationId, Value};
use crate::view::{Member, View};

/// A node that is lost has this time; all others have zero. It is past every lease.
const AFTER_LEASE_US: u64 = 100;

const SETTINGS: Settings = Settings {
    lease_us: 50,
    retry_us: 1_000,
    patience_us: 1_000_000,
    flush_us: 1_000,
    bodies: Bodies::Here,
};

/// States that are looked at per model, at most: where there are more, the first ones in breadth are.
const STATES: usize = 60_000;

/// States until a mistake must show.
const BUG_STATES: usize = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Deed {
    Read,
    Write(u64),
}

/// The checked system.
#[derive(Clone, Debug)]
struct Small {
    /// The operations of each node's functions, in order.
    scripts: Vec<Vec<Deed>>,
    /// The node that is in a cluster of its own; all others are in another one.
    apart: Option<usize>,
    config: Config,
    /// The configuration that is switched to at any time.
    switch_to: Option<Config>,
    /// The node that may be lost at any time.
    may_lose: Option<usize>,
    doubles: bool,
    bug: Option<Bug>,
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct State {
    nodes: Vec<Cachelet>,
    next: Vec<usize>,
    busy: Vec<Option<OperationId>>,
    messages: BTreeSet<(CacheletId, usize, Message)>,
    calls: BTreeSet<(usize, CallId, Key, StoreRequest)>,
    replies: BTreeSet<(usize, CallId, StoreReply)>,
    store: Store,
    document: Document,
    learned: Vec<Option<Document>>,
    has_switched: bool,
    lost: Option<usize>,
    has_doubled: bool,
    tester: LinearizabilityTester<u64, Register<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Invoke(usize),
    Deliver(CacheletId, usize, Message),
    Double(CacheletId, usize, Message),
    Apply(usize, CallId, Key, StoreRequest),
    Reply(usize, CallId, StoreReply),
    Switch,
    Lose(usize),
    Advance,
    Learn(usize),
}

fn key() -> Key {
    Key::new("k")
}

fn id(node: usize) -> CacheletId {
    CacheletId(node as u64 + 1)
}

impl Small {
    fn known(&self, state: &State) -> Known {
        let live = (0..state.nodes.len()).filter(|node| state.lost != Some(*node));
        let member = |node| Member {
            id: id(node),
            cluster: u32::from(self.apart == Some(node)),
        };
        let wanted = self.switch_to.filter(|_| state.has_switched);
        Known {
            live: live.map(member).collect(),
            surely_gone: state.lost.map(id).into_iter().collect(),
            config: wanted.unwrap_or(self.config),
            trial: None,
            highest_seen: Epoch(0),
            revision: 0,
            now_us: 0,
            grace_us: 1,
        }
    }

    fn now_us(state: &State, node: usize) -> u64 {
        if state.lost == Some(node) { AFTER_LEASE_US } else { 0 }
    }

    fn step(state: &mut State, node: usize, event: Event) {
        let now_us = Self::now_us(state, node);
        let outputs = state.nodes[node].step(now_us, event);
        for output in outputs {
            Self::output(state, node, output);
        }
    }

    fn output(state: &mut State, node: usize, output: Output) {
        let noted = |document: Option<Document>, state: &mut State| {
            if let Some(document) = document {
                state.document = document;
            }
        };
        match output {
            Output::Send { to, message } => {
                state.messages.insert((id(node), to.0 as usize - 1, message));
            }
            Output::Store { call, key, request } => {
                state.calls.insert((node, call, key, request));
            }
            Output::ReadDone { operation, outcome, .. } => {
                state.busy[node] = None;
                if let ReadOutcome::Is(value, _) = outcome {
                    let value = value.map_or(0, |value| value.identity());
                    state.tester.on_return(operation.0, RegisterRet::ReadOk(value)).unwrap();
                }
            }
            Output::WriteDone { operation, outcome, .. } => {
                state.busy[node] = None;
                if outcome == WriteOutcome::Applied {
                    state.tester.on_return(operation.0, RegisterRet::WriteOk).unwrap();
                }
            }
            // A node that is lost does not reach the coordination engine.
            Output::Drained(epoch) if state.lost != Some(node) => noted(state.document.drained(id(node), epoch), state),
            Output::Recovered(epoch) if state.lost != Some(node) => {
                noted(state.document.recovered(id(node), epoch), state);
            }
            // It keeps the bytes of its copies itself.
            Output::Keep { .. } | Output::Drop(_) => {}
            Output::Drained(_) | Output::Recovered(_) | Output::Expelled => {}
        }
    }

    fn invoke(&self, state: &mut State, node: usize) {
        let index = state.next[node];
        let deed = self.scripts[node][index];
        let operation = OperationId(node as u64 * 10 + index as u64);
        state.next[node] += 1;
        state.busy[node] = Some(operation);
        let event = match deed {
            Deed::Read => {
                state.tester.on_invoke(operation.0, RegisterOp::Read).unwrap();
                Event::Read { operation, key: key() }
            }
            Deed::Write(value) => {
                state.tester.on_invoke(operation.0, RegisterOp::Write(value)).unwrap();
                Event::Write {
                    operation,
                    key: key(),
                    value: Some(Value::simulated(value, 1)),
                }
            }
        };
        Self::step(state, node, event);
    }
}

impl Model for Small {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let count = self.scripts.len();
        let view = View::empty(self.config, Promise::default());
        let node = |node| Cachelet::new(id(node), view.clone(), SETTINGS, 1 << 20).with_bug(self.bug);
        let mut state = State {
            nodes: (0..count).map(node).collect(),
            next: vec![0; count],
            busy: vec![None; count],
            messages: BTreeSet::new(),
            calls: BTreeSet::new(),
            replies: BTreeSet::new(),
            store: Store::default(),
            document: Document::new(self.config, Promise::default()),
            learned: vec![None; count],
            has_switched: false,
            lost: None,
            has_doubled: !self.doubles,
            tester: LinearizabilityTester::new(Register(0)),
        };
        while let Some(next) = state.document.advance(&self.known(&state)) {
            state.document = next;
        }
        for node in 0..count {
            let document = state.document.clone();
            state.learned[node] = Some(document.clone());
            Self::step(&mut state, node, Event::Leased { sent_at_us: 0 });
            Self::step(&mut state, node, Event::Domain(Box::new(document)));
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in 0..state.nodes.len() {
            if state.busy[node].is_none() && state.next[node] < self.scripts[node].len() {
                actions.push(Action::Invoke(node));
            }
            if state.lost != Some(node) && state.learned[node].as_ref() != Some(&state.document) {
                actions.push(Action::Learn(node));
            }
        }
        for (from, to, message) in &state.messages {
            actions.push(Action::Deliver(*from, *to, message.clone()));
            if !state.has_doubled {
                actions.push(Action::Double(*from, *to, message.clone()));
            }
        }
        for (node, call, key, request) in &state.calls {
            actions.push(Action::Apply(*node, *call, key.clone(), request.clone()));
        }
        for (node, call, reply) in &state.replies {
            actions.push(Action::Reply(*node, *call, reply.clone()));
        }
        if self.switch_to.is_some() && !state.has_switched {
            actions.push(Action::Switch);
        }
        if let Some(node) = self.may_lose.filter(|_| state.lost.is_none()) {
            actions.push(Action::Lose(node));
        }
        if state.document.advance(&self.known(state)).is_some() {
            actions.push(Action::Advance);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Invoke(node) => self.invoke(&mut state, node),
            Action::Deliver(from, to, message) => {
                state.messages.remove(&(from, to, message.clone()));
                Self::step(&mut state, to, Event::Message { from, message });
            }
            Action::Double(from, to, message) => {
                state.has_doubled = true;
                Self::step(&mut state, to, Event::Message { from, message });
            }
            Action::Apply(node, call, key, request) => {
                state.calls.remove(&(node, call, key.clone(), request.clone()));
                let reply = state.store.apply(&key, request);
                state.replies.insert((node, call, reply));
            }
            Action::Reply(node, call, reply) => {
                state.replies.remove(&(node, call, reply.clone()));
                Self::step(&mut state, node, Event::Store { call, reply });
            }
            Action::Switch => state.has_switched = true,
            Action::Lose(node) => state.lost = Some(node),
            Action::Advance => state.document = state.document.advance(&self.known(&state))?,
            Action::Learn(node) => {
                let document = state.document.clone();
                state.learned[node] = Some(document.clone());
                Self::step(&mut state, node, Event::Domain(Box::new(document)));
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("linearizable", |_, state: &State| {
            state.tester.is_consistent()
        })]
    }
}

/// Whether a counterexample is found.
fn is_broken(model: Small) -> bool {
    let states = if model.bug.is_some() { BUG_STATES } else { STATES };
    let checked = model.checker().target_state_count(states).spawn_bfs().join();
    println!(
        "{} states of at most {states}, depth {}",
        checked.unique_state_count(),
        checked.max_depth()
    );
    checked.discovery("linearizable").is_some()
}

fn small(coherence: Coherence) -> Small {
    Small {
        scripts: vec![vec![Deed::Read, Deed::Read], vec![Deed::Write(1), Deed::Read]],
        apart: None,
        config: Config {
            coherence,
            ..Config::CONCORD
        },
        switch_to: None,
        may_lose: None,
        doubles: true,
        bug: None,
    }
}

#[test]
fn every_protocol_is_linearizable() {
    for coherence in Coherence::LINEARIZABLE {
        assert!(!is_broken(small(coherence)), "{coherence:?}");
    }
}

#[test]
fn every_protocol_with_three_nodes_is_linearizable() {
    for coherence in Coherence::LINEARIZABLE {
        let model = Small {
            scripts: vec![
                vec![Deed::Read, Deed::Read],
                vec![Deed::Write(1)],
                vec![Deed::Read, Deed::Write(2)],
            ],
            doubles: false,
            ..small(coherence)
        };
        assert!(!is_broken(model), "{coherence:?}");
    }
}

/// Three nodes, one of which is in a cluster of its own: the home, or not.
#[test]
fn leaders_keep_reads_linearizable() {
    for coherence in [Coherence::Invalidate, Coherence::Update] {
        for apart in 0..3 {
            let model = Small {
                scripts: vec![vec![Deed::Read, Deed::Read], vec![Deed::Read], vec![Deed::Write(1)]],
                apart: Some(apart),
                config: Config {
                    domain: Domain::Hierarchical,
                    ..small(coherence).config
                },
                doubles: false,
                ..small(coherence)
            };
            assert!(!is_broken(model), "{coherence:?}, {apart} apart");
        }
    }
}

#[test]
fn every_switch_keeps_reads_linearizable() {
    for from in Coherence::LINEARIZABLE {
        for to in Coherence::LINEARIZABLE {
            let config = small(to).config;
            let model = Small {
                switch_to: Some(config).filter(|_| from != to),
                doubles: false,
                ..small(from)
            };
            assert!(!is_broken(model), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn losing_a_node_keeps_reads_linearizable() {
    for coherence in Coherence::LINEARIZABLE {
        for replication in [Replication::None, Replication::Coherence] {
            for lost in [0, 1] {
                let config = Config {
                    replication,
                    ..small(coherence).config
                };
                let model = Small {
                    config,
                    may_lose: Some(lost),
                    doubles: false,
                    ..small(coherence)
                };
                assert!(!is_broken(model), "{coherence:?} {replication:?} without {lost}");
            }
        }
    }
}

/// Whether the model finds a mistake, with the second node writing once.
fn finds(bug: Bug, model: &Small) -> bool {
    is_broken(Small {
        scripts: vec![vec![Deed::Read, Deed::Read], vec![Deed::Write(1)]],
        doubles: false,
        bug: Some(bug),
        ..model.clone()
    })
}

#[test]
fn the_model_finds_mistakes() {
    // Whichever node is the home, one of the two roles is remote.
    let swapped = |model: Small| Small {
        scripts: vec![vec![Deed::Write(1), Deed::Read], vec![Deed::Read, Deed::Read]],
        doubles: false,
        ..model
    };
    let late = Small {
        bug: Some(Bug::R1),
        ..small(Coherence::Invalidate)
    };
    assert!(is_broken(swapped(late.clone())) || finds(Bug::R1, &late), "R1");
    let switch = Small {
        switch_to: Some(small(Coherence::Invalidate).config),
        ..small(Coherence::SequenceAtHome)
    };
    assert!(finds(Bug::R10, &switch), "R10");
}
