//! Choosing the configurations of applications: the agent of a domain's first cachelet asks all agents what they counted, lets
//! `cachelet::choose` decide, and writes the answer to etcd, from where it comes into force as any other change does.
//!
//! Invariant: what is chosen keeps the promise and the operator's pins; it is checked against the record that it replaces.

mod allowance;
mod counting;
mod led;
mod told;
mod tuned;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidemark_cachelet::choose::{Counters, Kind, Switch};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::change::change_app;
use crate::clock::now_us;
use crate::coordinator::{Node, Seen};
use crate::dimensions;
use crate::domains::{Domain, Domains};
use crate::error::AgentError;
use crate::etcd::Etcd;
use crate::host::Shell;
use crate::layout::{AppRecord, tuned_key};

pub use allowance::{Allowance, PERCENT};
pub use counting::{Counting, NodeFigures};
pub use told::{Ask, Counted, Pace, StorePace, Told};
pub use tuned::{Expected, RANKED_MAX, SWITCHES_MAX, Switched, Tuned};

use led::{InForce, Led};

/// Answers that wait. Beyond, they are lost, and the interval is given up.
pub const ANSWERS_MAX: usize = 1_024;
/// The gain is written anew after so long, if nothing else is to be written.
const WRITE_US: u64 = 10_000_000;

/// The state of one agent's choosing, and its report.
#[derive(Debug)]
pub struct Tuning {
    /// The time that it may take.
    pub allowance: Allowance,
    /// How it chooses; `None` leaves configurations alone.
    pub kind: Option<Kind>,
    node: Node,
    answers: mpsc::Sender<Counted>,
    heard: Mutex<Option<mpsc::Receiver<Counted>>>,
}

impl Tuning {
    /// With nothing taken yet of so many percent of the agent's processor time.
    #[must_use]
    pub fn new(kind: Option<Kind>, percent: u64, node: Node) -> Self {
        let (answers, heard) = mpsc::channel(ANSWERS_MAX);
        Self {
            allowance: Allowance::of(percent),
            kind,
            node,
            answers,
            heard: Mutex::new(Some(heard)),
        }
    }

    /// Another agent asks or answers.
    pub fn receive(&self, told: Told, domains: &Domains, shell: &Shell) {
        match told {
            Told::Ask(ask) => self.allowance.spend(|| {
                if let Some(counted) = self.count(&ask, domains, shell) {
                    let told = Told::Counted(Box::new(counted));
                    shell.peers.tell(ask.reply, &told);
                }
            }),
            // One that does not fit is missed, and its interval is given up.
            Told::Counted(counted) => drop(self.answers.try_send(*counted)),
        }
    }

    /// The counts of this agent.
    fn count(&self, ask: &Ask, domains: &Domains, shell: &Shell) -> Option<Counted> {
        let domain = domains.get(&ask.app)?;
        let from_us = now_us();
        let hosts = domain.hosts();
        let sums = hosts.iter().map(|host| (host.bytes().1, host.copies()));
        let (budget_bytes, copies) = sums.fold((0, 0), |(bytes, copies), (more, others)| {
            (bytes + more, copies + others)
        });
        let figures = NodeFigures {
            cluster: self.node.cluster,
            budget_bytes,
            copies,
        };
        let (report, is_complete) = domain.counting.take(from_us, figures, &self.allowance);
        Some(Counted {
            app: ask.app.clone(),
            from: self.node.address,
            asked_us: ask.asked_us,
            took_us: now_us().saturating_sub(from_us),
            is_complete,
            report,
            pace: shell.pace.get(),
        })
    }
}

/// The task that chooses.
pub struct Tuner {
    /// The agent's part of it.
    pub tuning: Arc<Tuning>,
    /// etcd.
    pub etcd: Etcd,
    /// The applications.
    pub domains: Arc<Domains>,
    /// The parts that cachelets use.
    pub shell: Arc<Shell>,
    /// The copy of etcd.
    pub seen: Arc<Seen>,
}

impl std::fmt::Debug for Tuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuner").finish_non_exhaustive()
    }
}

/// An application that this agent chooses for.
struct Leading {
    led: Led,
    cost_ns: u64,
    written_us: u64,
}

impl Tuner {
    /// Runs until the agent's runtime ends.
    pub async fn run(self) {
        let Some(kind) = self.tuning.kind else { return };
        let Some(heard) = self.tuning.heard.lock().take() else {
            return;
        };
        self.tuning.allowance.spend_waiting(self.choose(kind, heard)).await;
    }

    async fn choose(&self, kind: Kind, mut heard: mpsc::Receiver<Counted>) {
        let mut leading: BTreeMap<String, Leading> = BTreeMap::new();
        let mut look_at = Instant::now();
        loop {
            // Nobody else has the other end: it is closed with the agent.
            match tokio::time::timeout_at(look_at, heard.recv()).await {
                Ok(Some(counted)) => {
                    let Some(leads) = leading.get_mut(&counted.app) else {
                        continue;
                    };
                    let domain = self.domains.get(&counted.app);
                    leads.led.heard(now_us(), counted);
                    if let Some(domain) = domain {
                        self.try_turn(kind, &domain, &mut leading).await;
                    }
                }
                _ => {
                    for domain in self.domains.all() {
                        self.try_turn(kind, &domain, &mut leading).await;
                    }
                }
            }
            let rests = leading.values().map(|leads| leads.led.rest(now_us()));
            look_at = Instant::now() + rests.min().unwrap_or(led::REST_MAX);
        }
    }

    async fn try_turn(&self, kind: Kind, domain: &Arc<Domain>, leading: &mut BTreeMap<String, Leading>) {
        if let Err(error) = self.turn(kind, domain, leading).await {
            tracing::debug!(app = %domain.app, "choosing waits: {error}");
        }
    }

    async fn turn(
        &self,
        kind: Kind,
        domain: &Arc<Domain>,
        leading: &mut BTreeMap<String, Leading>,
    ) -> Result<(), AgentError> {
        let Some(agents) = self.agents_if_first(domain) else {
            leading.remove(&*domain.app);
            return Ok(());
        };
        let record = domain.record();
        let in_force = self.in_force(domain, &record);
        let leads = match leading.entry(domain.app.to_string()) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let Some(in_force) = in_force else { return Ok(()) };
                place.insert(Leading {
                    led: Led::new(kind, record.promise, in_force, self.known(&domain.app)),
                    cost_ns: 0,
                    written_us: now_us(),
                })
            }
        };
        leads.led.look(now_us(), in_force);
        if in_force.is_none() {
            return Ok(());
        }
        let may = self.tuning.allowance.covers(leads.cost_ns);
        if let Some(asked_us) = leads.led.ask(now_us(), &agents, may) {
            self.ask(domain, &agents, asked_us, leads);
        }
        match leads.led.counters(now_us()) {
            Some(counters) => self.decide(domain, leads, &counters).await,
            None => Ok(()),
        }
    }

    /// The addresses of all agents of a domain, if its first cachelet is here.
    fn agents_if_first(&self, domain: &Domain) -> Option<BTreeSet<SocketAddr>> {
        let mirror = self.seen.mirror.read();
        let state = mirror.domain(&domain.app)?;
        let mut staying = state.members.iter().filter(|(_, member)| !member.value.is_leaving);
        let (first, _) = staying.next()?;
        let is_here = domain.hosts().iter().any(|host| host.id() == *first);
        is_here.then(|| state.members.values().map(|member| member.value.address).collect())
    }

    /// The configuration of a domain, if it is the wanted one.
    fn in_force(&self, domain: &Domain, record: &AppRecord) -> Option<InForce> {
        let mirror = self.seen.mirror.read();
        let document = mirror.domain(&domain.app)?.document.as_ref()?;
        let view = &document.value.view;
        let is_wanted = view.config == record.config && view.trial == record.trial;
        (is_wanted && document.value.change.is_none()).then(|| InForce {
            config: view.config,
            trial: view.trial,
            pins: dimensions::pins(record),
        })
    }

    fn known(&self, app: &str) -> Tuned {
        let mirror = self.seen.mirror.read();
        let known = mirror.domain(app).and_then(|state| state.tuned.as_ref());
        known.map(|at| at.value.clone()).unwrap_or_default()
    }

    fn ask(&self, domain: &Domain, agents: &BTreeSet<SocketAddr>, asked_us: u64, leads: &mut Leading) {
        let own = self.tuning.node.address;
        let ask = Ask {
            app: domain.app.to_string(),
            reply: own,
            asked_us,
        };
        for agent in agents.iter().filter(|agent| **agent != own) {
            self.shell.peers.tell(*agent, &Told::Ask(ask.clone()));
        }
        if let Some(mut counted) = self.tuning.count(&ask, &self.domains, &self.shell) {
            // It went over no network.
            counted.took_us = now_us().saturating_sub(asked_us);
            leads.led.heard(asked_us + counted.took_us, counted);
        }
    }

    async fn decide(&self, domain: &Arc<Domain>, leads: &mut Leading, counters: &Counters) -> Result<(), AgentError> {
        let (allowance, from_ns) = (&self.tuning.allowance, allowance::thread_ns());
        let may = allowance.covers(leads.cost_ns);
        let switch = leads.led.decide(now_us(), counters, may);
        leads.cost_ns = allowance::thread_ns().saturating_sub(from_ns);
        let is_due = now_us() >= leads.written_us + WRITE_US;
        if let Some(switch) = &switch {
            self.switch(domain, leads, switch, counters).await?;
        }
        if switch.is_some() || is_due {
            leads.written_us = now_us();
            leads.led.tuned.node.clone_from(&self.tuning.node.name);
            leads.led.tuned.cpu_ratio = allowance.ratio();
            let value = serde_json::to_string(&leads.led.tuned).unwrap_or_default();
            self.etcd.put(&tuned_key(&domain.app), &value, 0).await?;
        }
        Ok(())
    }

    async fn switch(
        &self,
        domain: &Arc<Domain>,
        leads: &mut Leading,
        switch: &Switch,
        counters: &Counters,
    ) -> Result<(), AgentError> {
        let before = domain.record();
        let change = |record: &mut AppRecord| {
            let is_as_before = (record.config, record.trial) == (before.config, before.trial);
            if !is_as_before || record.pinned != before.pinned {
                return Err(AgentError::Refused("somebody else changed the configuration".into()));
            }
            record.config = switch.config;
            record.trial = switch.trial;
            record.reason = switch.why.to_string();
            dimensions::check(record).map_err(AgentError::Refused)
        };
        match change_app(&self.etcd, &domain.app, change).await {
            Ok(_) => {
                tracing::info!(app = %domain.app, why = %switch.why, "another configuration is chosen");
                leads.led.switched(unix_seconds(), switch, counters);
                Ok(())
            }
            Err(error) => {
                leads.led.refused(now_us());
                Err(error)
            }
        }
    }
}

fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
