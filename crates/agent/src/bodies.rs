//! The bytes of copies: items of the tenant's memory on this node, so that its grant, goals, curve and bill are of them as well.
//!
//! The core decides which copies a cachelet has, memory has their bytes and may evict them at any time. Invariant: bytes lie
//! behind the incarnation and the number of their copy, and are given out for that copy only. The core is told of a copy
//! whose bytes are gone ([`Event::Gone`]), and has the read go elsewhere.
//!
//! [`Event::Gone`]: tidemark_cachelet::message::Event::Gone

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidemark_cachelet::protocol;
use tidemark_cachelet::types::{BodyName, CacheletId, Key, Value};
use tidemark_gateway::StoreMemory;
use tidemark_gateway::copies::{HEAD_BYTES, Head, KeptCopy};

/// The part of a cachelet's budget that is left to memory, for its index and for what is not filled. The core evicts before
/// memory must.
const SPARE_DIVISOR: u64 = 8;

/// The memory of an application on this node, by its name.
pub type MemoryOf = Arc<dyn Fn(&str) -> Option<StoreMemory> + Send + Sync>;

/// The memory engine of this node, once it runs. Clones are the same.
#[derive(Clone, Default)]
pub struct Engine(Arc<OnceLock<MemoryOf>>);

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine(runs: {})", self.0.get().is_some())
    }
}

impl Engine {
    /// It runs from now on. Until then nothing is kept.
    pub fn starts(&self, memory: MemoryOf) {
        // It starts once; a second one would not be asked.
        let _ = self.0.set(memory);
    }

    /// The memory of an application, if it is a tenant of this node.
    #[must_use]
    pub fn memory(&self, app: &str) -> Option<StoreMemory> {
        self.0.get()?(app)
    }
}

/// The bytes of one cachelet's copies.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    /// `None`: the core has them itself.
    engine: Option<Engine>,
    app: Arc<str>,
    label: String,
}

impl Bodies {
    /// Those of a cachelet. Without an engine its core keeps them.
    pub(crate) fn new(engine: Option<Engine>, app: &Arc<str>, label: &str) -> Self {
        Self {
            engine,
            app: Arc::clone(app),
            label: label.to_owned(),
        }
    }

    /// The keeper that the core is to know.
    pub(crate) fn keeper(&self) -> protocol::Bodies {
        match self.engine {
            Some(_) => protocol::Bodies::Outside,
            None => protocol::Bodies::Here,
        }
    }

    /// The part of a budget that copies may take.
    pub(crate) fn share_of(&self, budget_bytes: u64) -> u64 {
        match self.engine {
            Some(_) => budget_bytes - budget_bytes / SPARE_DIVISOR,
            None => budget_bytes,
        }
    }

    fn memory(&self) -> Option<StoreMemory> {
        self.engine.as_ref()?.memory(&self.app)
    }

    /// The name in memory: cachelets of one application do not share copies.
    fn name(&self, key: &Key) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.label.len() + 1 + key.0.len());
        name.extend_from_slice(self.label.as_bytes());
        name.push(0);
        name.extend_from_slice(key.0.as_bytes());
        name
    }

    /// Whatever is kept for a key. It counts as a read of the tenant, so that what is missed is on its curve as well.
    pub(crate) fn look_up(&self, key: &Key) -> Option<KeptCopy> {
        self.memory()?.look_up(&self.name(key))
    }

    /// The bytes of a copy; `found` is what was there when the read began.
    pub(crate) fn bytes(&self, id: CacheletId, name: &BodyName, found: Option<&KeptCopy>) -> Option<Bytes> {
        let head = head(id, name.number);
        let is_it = |copy: &&KeptCopy| copy.head == head;
        if let Some(copy) = found.filter(is_it) {
            return Some(copy.body.clone());
        }
        let copy = self.memory()?.peek(&self.name(&name.key))?;
        Some(copy).filter(|copy| copy.head == head).map(|copy| copy.body)
    }

    /// Keeps the bytes of a copy; whether there was room.
    pub(crate) fn keep(&self, id: CacheletId, name: &BodyName, value: &Value) -> bool {
        let (Some(memory), Some(body)) = (self.memory(), value.body()) else {
            return false;
        };
        memory.keep(&self.name(&name.key), &head(id, name.number), body)
    }

    /// Gives up the bytes of a copy.
    pub(crate) fn forget(&self, id: CacheletId, name: &BodyName) {
        if let Some(memory) = self.memory() {
            memory.forget(&self.name(&name.key), &head(id, name.number));
        }
    }
}

fn head(id: CacheletId, number: u64) -> Head {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&id.0.to_be_bytes());
    head[8..].copy_from_slice(&number.to_be_bytes());
    head
}
