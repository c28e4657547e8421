//! Adapters: what else than the local API says which instances live on this node.
//!
//! Each adapter turns what its source says into the events of [`crate::instances`]. A source that fails is asked again, and
//! instances stay as they were last heard of meanwhile.

pub mod kubernetes;
pub mod trace;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::agent::Agent;
use crate::error::AgentError;
use crate::etcd::EtcdError;
use crate::instances::LifeEvent;

pub use kubernetes::{Kubernetes, KubernetesConfig, KubernetesError};
pub use trace::{Trace, TraceError};

/// Events that wait to be taken; beyond, their source waits.
pub const EVENTS_MAX: usize = 256;
/// An event of a new application waits so long for etcd, and again.
const ETCD_REST: Duration = Duration::from_secs(1);

/// The way of adapters' events to the agent. The agent takes them one after the other, as long as it is there.
#[must_use]
pub fn feed(agent: &Arc<Agent>) -> mpsc::Sender<LifeEvent> {
    let (feed, mut events) = mpsc::channel::<LifeEvent>(EVENTS_MAX);
    let handle = agent.handle().clone();
    let agent = Arc::downgrade(agent);
    handle.spawn(async move {
        while let Some(event) = events.recv().await {
            // Nobody is kept alive by a source that has more to say.
            while let Some(agent) = agent.upgrade() {
                match agent.take(event.clone()).await {
                    Ok(_) => break,
                    Err(AgentError::Etcd(EtcdError::Unreachable(_))) => {}
                    Err(error) => {
                        tracing::warn!(instance = event.instance, "an event is passed over: {error}");
                        break;
                    }
                }
                drop(agent);
                tokio::time::sleep(ETCD_REST).await;
            }
        }
    });
    feed
}
