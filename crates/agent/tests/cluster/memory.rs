//! A tenant's memory on a node: the real store with a keeper of its own. The test grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidemark_agent::bodies::Engine;
use tidemark_gateway::StoreMemory;
use tidemark_store::{Hasher, Keeper, KeeperInbox, Pool, TenantConfig, TenantStore};
use tidemark_types::{Clock, SystemClock, TenantId};

use crate::nodes::APP;

/// The most that can be granted.
const POOL_BYTES: u64 = 512 << 20;
/// How long the keeper works before it looks around, as a server's does.
const SLICE: Duration = Duration::from_micros(100);

pub(crate) struct Memory {
    pub(crate) store: Arc<TenantStore>,
    has_ended: Arc<AtomicBool>,
    wake: Sender<()>,
    keeper: Option<JoinHandle<()>>,
    _pool: Pool,
}

impl Memory {
    pub(crate) fn start(grant_bytes: u64) -> Self {
        let pool = Pool::without_thread(POOL_BYTES, None).unwrap();
        let (wake, woken) = channel();
        let waking = wake.clone();
        let inbox = KeeperInbox::new(Box::new(move || {
            // A keeper that has ended is not woken.
            let _ = waking.send(());
        }));
        let config = TenantConfig {
            shards: 4,
            ..TenantConfig::with_keeper(Arc::clone(&inbox), Hasher::with_seed(1))
        };
        let store = TenantStore::new(&pool, config);
        store.set_grant(grant_bytes, 0);
        let has_ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&has_ended);
        let mut keeper = Keeper::new(inbox);
        let keeper = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let idle = keeper.run(SystemClock.now(), SLICE);
                // It is woken when something comes in.
                let _ = woken.recv_timeout(idle.unwrap_or(Duration::from_secs(60)));
            }
        });
        Self {
            store,
            has_ended,
            wake,
            keeper: Some(keeper),
            _pool: pool,
        }
    }

    /// As an agent asks for it.
    pub(crate) fn engine(&self) -> Engine {
        let (engine, store) = (Engine::default(), Arc::clone(&self.store));
        let memory = move || {
            StoreMemory::new(
                (TenantId(1), APP),
                Arc::clone(&store),
                Arc::new(|()| {}),
                Arc::new(|_| {}),
                Arc::new(|_| {}),
                Arc::new(|_| {}),
            )
        };
        engine.starts(Arc::new(move |app: &str| (app == APP).then(&memory)));
        engine
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let _ = self.wake.send(());
        self.keeper.take().unwrap().join().unwrap();
    }
}
