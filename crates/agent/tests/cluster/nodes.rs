//! Agents in the test's own process, and their functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tidemark_agent::relay::Relay;
use tidemark_agent::{Agent, AgentConfig, Kind};
use tidemark_gateway::Origins;
use tidemark_gateway::coherent::{Caller, Coherent, Reading, Writing, Written};
use tidemark_gateway::config::DEFAULT_FRESHNESS;
use tokio::runtime::Runtime;

use crate::etcd::EtcdServer;
use crate::memory::Memory;
use crate::origin::Origin;

/// Far longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const APP: &str = "shop";

/// Agents of one application.
pub(crate) struct Nodes {
    pub(crate) etcd: EtcdServer,
    pub(crate) origin: Origin,
    pub(crate) agents: Vec<Option<Arc<Agent>>>,
    pub(crate) runtime: Runtime,
    /// The hierarchy of control groups of all nodes.
    pub(crate) cgroups: TempDir,
    hop: Duration,
    chooser: Option<Kind>,
    /// The tenant's memory at each node, where it has the bytes of copies, and how much is granted.
    pub(crate) memories: Vec<Memory>,
    grant_bytes: Option<u64>,
}

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        Self::far_apart(count, Duration::ZERO, Duration::ZERO, None)
    }

    /// Agents whose copies are in their tenant's memory, of which so much is granted at each.
    pub(crate) fn with_memory(count: usize, grant_bytes: u64) -> Self {
        Self::start_with(count, (Duration::ZERO, Duration::ZERO), None, Some(grant_bytes))
    }

    /// Agents with so much time between each other, and between them and the origin.
    pub(crate) fn far_apart(count: usize, hop: Duration, store: Duration, chooser: Option<Kind>) -> Self {
        Self::start_with(count, (hop, store), chooser, None)
    }

    fn start_with(
        count: usize,
        (hop, store): (Duration, Duration),
        chooser: Option<Kind>,
        grant_bytes: Option<u64>,
    ) -> Self {
        let mut nodes = Self {
            etcd: EtcdServer::start(),
            origin: Origin::start(),
            agents: Vec::new(),
            runtime: Runtime::new().unwrap(),
            cgroups: tempfile::tempdir().unwrap(),
            hop,
            chooser,
            memories: Vec::new(),
            grant_bytes,
        };
        nodes.origin.slow_down(store);
        for _ in 0..count {
            nodes.add();
        }
        nodes.settle(count);
        nodes
    }

    pub(crate) fn add(&mut self) -> usize {
        let place = self.agents.len();
        // The way to this agent, where ways are long.
        let relay = (!self.hop.is_zero()).then(|| self.runtime.block_on(Relay::start(self.hop)).unwrap());
        let memory = self.grant_bytes.map(Memory::start);
        let config = AgentConfig {
            node: format!("n{place}"),
            etcd: self.etcd.address(),
            peer: "127.0.0.1:0".parse().unwrap(),
            advertise: relay.as_ref().map(Relay::address),
            secret_file: None,
            cluster: 0,
            apps: vec![APP.into()],
            origins: Origins::parse(&self.origin.option(), DEFAULT_FRESHNESS).unwrap(),
            credentials: None,
            workers: 1,
            budget_bytes: 64 << 20,
            chooser: self.chooser,
            // How soon something is chosen must not follow from how busy this machine is.
            choosing_percent: 100,
            cgroup_root: self.cgroups.path().to_owned(),
            engine: memory.as_ref().map(Memory::engine),
        };
        let agent = Agent::start(&config).unwrap();
        if let Some(relay) = relay {
            relay.lead_to(agent.listens_at());
        }
        self.agents.push(Some(Arc::new(agent)));
        self.memories.extend(memory);
        place
    }

    pub(crate) fn agent(&self, place: usize) -> &Arc<Agent> {
        self.agents[place].as_ref().unwrap()
    }

    /// Leaves in order.
    pub(crate) fn leave(&mut self, place: usize) {
        let agent = self.agents[place].take().unwrap();
        agent.leave(Duration::from_secs(20));
        agent.end();
    }

    /// The operator's view of the application at a node.
    pub(crate) fn shown(&self, place: usize) -> serde_json::Value {
        tidemark_agent::show::app(self.agent(place), APP).unwrap()
    }

    pub(crate) fn is_settled(&self, count: usize) -> bool {
        let live = self.agents.iter().enumerate().filter(|(_, agent)| agent.is_some());
        live.map(|(place, _)| self.shown(place)).all(|shown| {
            let members = shown["members"].as_array().map_or(0, Vec::len);
            let cachelets = shown["cachelets"].as_array().cloned().unwrap_or_default();
            let knows = |cachelet: &serde_json::Value| {
                cachelet["epoch"] == shown["epoch"] && cachelet["is_member"] == true && cachelet["is_leased"] == true
            };
            members == count && shown["change"].is_null() && cachelets.iter().all(knows)
        })
    }

    /// Waits until all agents are members of one view, and know it.
    pub(crate) fn settle(&self, count: usize) {
        wait_for("all to be members", || self.is_settled(count));
    }

    pub(crate) fn read(&self, place: usize, key: &str) -> Result<Option<String>, Reading> {
        let objects = self.agent(place).objects();
        match self.runtime.block_on(objects.read(&caller(), &format!("b/{key}"))) {
            Reading::Object { content, .. } => Ok(Some(text_of(&content))),
            Reading::Nothing => Ok(None),
            other => Err(other),
        }
    }

    pub(crate) fn write(&self, place: usize, key: &str, text: &str) -> Writing {
        let objects = self.agent(place).objects();
        self.runtime.block_on(write(objects, key, Some(text)))
    }

    pub(crate) fn delete(&self, place: usize, key: &str) -> Writing {
        let objects = self.agent(place).objects();
        self.runtime.block_on(write(objects, key, None))
    }
}

pub(crate) fn caller() -> Caller {
    Caller {
        tenant: APP.into(),
        address: None,
    }
}

/// A content as the S3 address makes it of a text without headers.
pub(crate) fn content_of(text: &str) -> Bytes {
    [&[1, 0, 0, 0, 0, 0], text.as_bytes()].concat().into()
}

pub(crate) fn text_of(content: &Bytes) -> String {
    let header_bytes = u32::from_be_bytes(content[2..6].try_into().unwrap()) as usize;
    String::from_utf8_lossy(&content[6 + header_bytes..]).into_owned()
}

pub(crate) async fn write(objects: Arc<dyn Coherent>, key: &str, text: Option<&str>) -> Writing {
    let written = Written {
        content: text.map(content_of),
        is_conditional: false,
    };
    objects.write(&caller(), &format!("b/{key}"), written).await
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn is_applied(writing: &Writing) -> bool {
    matches!(writing, Writing::Applied(_))
}
