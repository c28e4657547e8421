//! The part that pools of a proxy share: address, secrets, limits, and the catalogue.
//!
//! The same object may be in several pools. Each has its own chunks of it.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use super::catalogue::Catalogue;
use super::{Config, READS_MAX, REPAIRS_MAX, StartError, WRITES_MAX};
use crate::chunk::ContentId;
use crate::codec::{Rs, StripeCodec};
use crate::engine::FunctionEngine;
use crate::pool::Pool;
use crate::tls::Identity;

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) codec: Arc<dyn StripeCodec>,
    pub(crate) engine: Arc<dyn FunctionEngine>,
    pub(crate) catalogue: Catalogue,
    pub(crate) secret: [u8; 32],
    /// The key pair, if it encrypts.
    pub(crate) identity: Option<Identity>,
    /// The address on which functions connect.
    pub(crate) listen: SocketAddr,
    /// The same as they see it.
    pub(crate) address: String,
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) writes: Arc<Semaphore>,
    pub(crate) repairs: Arc<Semaphore>,
    pools: Vec<Mutex<Pool>>,
    started: Instant,
}

impl Shared {
    /// With what was remembered of its pools.
    pub(crate) fn new(config: Config, engine: Arc<dyn FunctionEngine>, listen: SocketAddr) -> Result<Self, StartError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| StartError::Random)?;
        let identity = config.encrypts.then(|| Identity::draw().ok_or(StartError::Random));
        let pools = config.pools.iter().map(|pool| {
            let empty = Pool::new(pool.names.len(), pool.room_bytes, pool.least_functions);
            (Arc::clone(&pool.name), empty)
        });
        let mut pools: Vec<_> = pools.collect();
        let catalogue = Catalogue::open(config.folder.as_deref(), &mut pools)?;
        Ok(Self {
            codec: Arc::new(Rs::default()),
            engine,
            catalogue,
            secret,
            identity: identity.transpose()?,
            listen,
            address: config.advertise.clone().unwrap_or_else(|| listen.to_string()),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            repairs: Arc::new(Semaphore::new(REPAIRS_MAX)),
            pools: pools.into_iter().map(|(_, pool)| Mutex::new(pool)).collect(),
            started: Instant::now(),
            config,
        })
    }

    /// A pool, locked.
    pub(crate) fn pool(&self, number: usize) -> Held<'_> {
        Held {
            pool: self.pools[number].lock(),
            shared: self,
            number,
        }
    }

    /// Now, in ms since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Nothing is left of an object in one pool.
    fn gone(&self, number: usize, content: ContentId) {
        let is_held = self.pools.iter().any(|pool| pool.lock().has_object(&content));
        self.catalogue.forget(number, content, is_held);
    }
}

/// A pool, locked. Objects that it loses meanwhile, in whichever way, are forgotten for the next start, too.
pub(crate) struct Held<'a> {
    pool: MutexGuard<'a, Pool>,
    shared: &'a Shared,
    number: usize,
}

impl Deref for Held<'_> {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let gone = self.pool.take_gone();
        if gone.is_empty() {
            return;
        }
        let (shared, number) = (self.shared, self.number);
        // The others are looked at one at a time: no two pools are locked at once.
        MutexGuard::unlocked(&mut self.pool, || {
            gone.into_iter().for_each(|content| shared.gone(number, content));
        });
    }
}
