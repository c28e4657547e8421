//! The error of an agent.

use std::io;
use std::net::SocketAddr;

use crate::domains::APPS_MAX;
use crate::etcd::EtcdError;
use crate::instances::LifeError;

/// Why an agent does not start, or refuses a request.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The address cannot be had.
    #[error("peer: can not listen on {address}: {source}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A secret is too short, or cannot be read.
    #[error("the agents' secret: {0}")]
    Secret(String),
    /// There is no such application.
    #[error("there is no application {0}")]
    NoApp(String),
    /// The agent serves too many.
    #[error("this agent serves {} applications already", APPS_MAX)]
    TooManyApps,
    /// An event cannot be taken.
    #[error(transparent)]
    Life(#[from] LifeError),
    /// It cannot be done so.
    #[error("{0}")]
    Refused(String),
    /// Threads, or the certificates that the system trusts.
    #[error("starting the agent: {0}")]
    System(#[from] io::Error),
}
