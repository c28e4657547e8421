//! The pods of this node, as an API server of Kubernetes has them: pods of Knative and of OpenWhisk are instances.
//!
//! ```text
//! list --> watch from the list's version --> changes ... --(the server ends it)--> watch from the last version seen
//!  ^          |                                 |
//!  +----------+---- 410: the version is too old +---- (it breaks) --> rest, watch from the last version seen
//! ```
//!
//! Invariant: after a list, exactly the listed pods are instances. Rests grow while nothing is heard.

mod api;
mod pods;
mod quantity;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::mpsc;

use crate::instances::LifeEvent;
use api::{Api, Change};
use pods::{Followed, Naming};

pub use api::{KubernetesConfig, KubernetesError};

/// The rest after a first failure.
const REST_FIRST: Duration = Duration::from_millis(100);
/// The longest rest: a server that comes back is found soon, and is not flooded by all nodes.
const REST_MAX: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub struct Kubernetes {
    api: Api,
    naming: Naming,
    followed: Followed,
    /// Failures since something was heard.
    failures: u32,
}

/// The end of a watch.
enum Ended {
    /// The server ended it, as it was asked to.
    InTime,
    /// It failed.
    Failed(KubernetesError),
    /// Nobody takes the events any more.
    Unwanted,
}

impl Kubernetes {
    /// Without a connection yet.
    ///
    /// # Errors
    /// The address is none, or a file cannot be read.
    pub fn new(config: &KubernetesConfig) -> Result<Self, KubernetesError> {
        Ok(Self {
            api: Api::new(config)?,
            naming: Naming::below(&config.cgroup_root),
            followed: Followed::default(),
            failures: 0,
        })
    }

    /// Follows the pods for as long as somebody takes the events.
    pub async fn run(mut self, feed: mpsc::Sender<LifeEvent>) {
        while !feed.is_closed() {
            let version = match self.api.list().await {
                Ok(listed) => {
                    for event in self.followed.are(&listed.pods, self.naming) {
                        if feed.send(event).await.is_err() {
                            return;
                        }
                    }
                    listed.version
                }
                Err(error) => {
                    self.rest(&error).await;
                    continue;
                }
            };
            self.follow(version, &feed).await;
        }
    }

    /// Watches from a version on, again and again, until that is not possible.
    async fn follow(&mut self, mut version: String, feed: &mpsc::Sender<LifeEvent>) {
        loop {
            match self.watch(&mut version, feed).await {
                Ended::Unwanted => return,
                Ended::InTime if self.failures == 0 => self.failures = 1,
                // A server that ends every watch at once is not asked without a rest.
                Ended::InTime => self.rest(&"the watch ended without a word").await,
                Ended::Failed(error) => {
                    self.rest(&error).await;
                    if matches!(error, KubernetesError::Expired) {
                        return;
                    }
                }
            }
        }
    }

    async fn watch(&mut self, version: &mut String, feed: &mpsc::Sender<LifeEvent>) -> Ended {
        let mut watch = match self.api.watch(version).await {
            Ok(watch) => watch,
            Err(error) => return Ended::Failed(error),
        };
        loop {
            let next = tokio::select! {
                next = watch.next() => next,
                () = feed.closed() => return Ended::Unwanted,
            };
            let change = match next {
                Ok(Some(change)) => change,
                Ok(None) => return Ended::InTime,
                Err(error) => return Ended::Failed(error),
            };
            self.failures = 0;
            change.version().clone_into(version);
            let event = match &change {
                Change::Is(pod) => self.followed.is(pod, self.naming),
                Change::Gone(pod) => self.followed.gone(pod),
                Change::Nothing(_) => None,
            };
            if let Some(event) = event
                && feed.send(event).await.is_err()
            {
                return Ended::Unwanted;
            }
        }
    }

    async fn rest(&mut self, why: &(dyn std::fmt::Display + Sync)) {
        let chance = getrandom::u32().unwrap_or(u32::MAX);
        let rest = rest(self.failures, chance);
        self.failures = self.failures.saturating_add(1);
        tracing::warn!("pods are looked at again in {} ms: {why}", rest.as_millis());
        tokio::time::sleep(rest).await;
    }
}

/// The rest after so many failures: the nodes of a cluster do not come back all at once.
fn rest(failures: u32, chance: u32) -> Duration {
    let longest = REST_FIRST.saturating_mul(1_u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX));
    let longest = longest.min(REST_MAX);
    longest / 2 + (longest / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
}
