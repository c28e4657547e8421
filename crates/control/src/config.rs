//! How the control plane is set up.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::metering::Metering;
use crate::process;
use crate::settings::{DEFAULT_HIT_COST, Idling};
use crate::view::TenantAddress;
use crate::watch::Watch;

/// How the control plane is set up.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// The configured memory.
    pub pool_bytes: u64,
    /// The largest pool that this machine can back.
    pub pool_limit_bytes: u64,
    /// The flash below the memory of all tenants; zero: there is none.
    pub flash_bytes: u64,
    /// How many workers the data plane has.
    pub workers: usize,
    /// How tenants come and go.
    pub idling: Idling,
    /// The least time of a hit from the client's side. Beside it, the time of misses says how much a hit is worth.
    pub hit_cost: Duration,
    /// The addresses on which the server listens, for the API.
    pub listeners: Listeners,
    /// The receivers of events.
    pub watch: Watch,
    /// The call that makes the control thread yield to those that serve clients: planning can wait, a client cannot.
    /// The default lowers its priority. A client on the same core may still wait for a slice of some milliseconds then,
    /// if the thread's work is in one piece.
    pub step_back: fn() -> io::Result<()>,
    /// The first lease, if the pool follows a lease on the node's memory; `pool_bytes` is then the limit. `None`: the
    /// pool is the server's own.
    pub lease: Option<FirstLease>,
    /// How use is metered; `None`: it is not, and its fields in the API are null.
    pub metering: Option<Metering>,
}

/// The first lease of a pool that follows one. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstLease {
    /// The lease.
    pub bytes: u64,
    /// The size that it could reach.
    pub reach_bytes: u64,
}

impl ControlConfig {
    /// A pool of so many bytes, which may be made as large as `pool_limit_bytes`, for so many workers; nothing listens.
    pub fn new(pool_bytes: u64, pool_limit_bytes: u64, workers: usize) -> Self {
        Self {
            pool_bytes,
            pool_limit_bytes,
            flash_bytes: 0,
            workers,
            idling: Idling::default(),
            hit_cost: DEFAULT_HIT_COST,
            listeners: Listeners::default(),
            watch: Watch::default(),
            step_back: process::lower_priority,
            lease: None,
            metering: None,
        }
    }
}

/// The addresses on which the server listens; `None` is off.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    /// The memcached protocol.
    pub memcached: Option<SocketAddr>,
    /// The Redis protocol.
    pub redis: Option<SocketAddr>,
    /// The addresses for clients of single tenants.
    pub of_tenants: Vec<TenantAddress>,
    /// The admin API.
    pub admin: Option<SocketAddr>,
}
