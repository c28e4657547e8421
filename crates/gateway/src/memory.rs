//! The one door to tenants' memory. All else in this crate knows [`Tenants`] and [`TenantMemory`] only.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::access::Placing;
use bytes::Bytes;
use tidemark_store::{Attributes, Key, ShardGuard, TenantStore};
use tidemark_types::{Clock, Outcome, SystemClock, TenantId, UnixMs};

/// The database of a tenant that cached objects are in.
const DATABASE: u8 = 15;

/// All tenants by their names.
pub trait Tenants: Send + Sync + 'static {
    /// The tenant of that name, if there is one now.
    fn tenant(&self, name: &str) -> Option<Arc<dyn TenantMemory>>;
}

/// One tenant's memory: blocks by their keys.
pub trait TenantMemory: Send + Sync + 'static {
    /// A later tenant of the same name has another.
    fn id(&self) -> TenantId;

    /// Its name.
    fn name(&self) -> &str;

    /// A part of a block that is `block_bytes` long; `None` if it is not cached, or not as long. Counts as a get.
    fn read(&self, key: &[u8], block_bytes: usize, range: Range<usize>) -> Option<Bytes>;

    /// Whether a block is cached. Leaves no trace.
    fn has(&self, key: &[u8]) -> bool;

    /// Caches a block. Whether there was room for it.
    fn write(&self, key: &[u8], block: &[u8]) -> bool;

    /// Counts bytes of bodies that went to clients and came from them.
    fn count(&self, in_bytes: u64, out_bytes: u64);

    /// Counts a command of S3 that was answered.
    fn executed(&self, command: &'static str, outcome: Outcome);

    /// The place that the tenant's objects are to be kept in.
    fn place(&self) -> Placing {
        Placing::Auto
    }

    /// How the tenant is charged for cloud functions that ran for it. It does not hold the tenant.
    fn bill(&self) -> Bill;
}

/// Has something else know what happened.
pub type Tell<T> = Arc<dyn Fn(T) + Send + Sync>;

/// Charges invocations of cloud functions, and their MiB times ms.
pub type Bill = Tell<(u64, u64)>;

/// A tenant's memory of which something else is said than it says itself.
pub struct Altered {
    memory: Arc<dyn TenantMemory>,
    id: TenantId,
    place: Placing,
    is_counted: bool,
}

impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Altered")
            .field("id", &self.id)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Altered {
    /// The same for now.
    pub fn new(memory: Arc<dyn TenantMemory>) -> Self {
        Self {
            id: memory.id(),
            place: memory.place(),
            is_counted: true,
            memory,
        }
    }

    /// With another number.
    pub fn with_id(self, id: TenantId) -> Self {
        Self { id, ..self }
    }

    /// With a place that was chosen for its objects.
    pub fn with_place(self, place: Placing) -> Self {
        Self { place, ..self }
    }

    /// Commands and bytes of bodies are counted elsewhere.
    pub(crate) fn uncounted(self) -> Self {
        Self {
            is_counted: false,
            ..self
        }
    }
}

impl TenantMemory for Altered {
    fn id(&self) -> TenantId {
        self.id
    }

    fn name(&self) -> &str {
        self.memory.name()
    }

    fn read(&self, key: &[u8], block_bytes: usize, range: Range<usize>) -> Option<Bytes> {
        self.memory.read(key, block_bytes, range)
    }

    fn has(&self, key: &[u8]) -> bool {
        self.memory.has(key)
    }

    fn write(&self, key: &[u8], block: &[u8]) -> bool {
        self.memory.write(key, block)
    }

    fn count(&self, in_bytes: u64, out_bytes: u64) {
        if self.is_counted {
            self.memory.count(in_bytes, out_bytes);
        }
    }

    fn executed(&self, command: &'static str, outcome: Outcome) {
        if self.is_counted {
            self.memory.executed(command, outcome);
        }
    }

    fn place(&self) -> Placing {
        self.place
    }

    fn bill(&self) -> Bill {
        self.memory.bill()
    }
}

/// A tenant's memory in the store.
pub struct StoreMemory {
    id: TenantId,
    name: Box<str>,
    pub(crate) store: Arc<TenantStore>,
    pub(crate) touched: Tell<()>,
    moved: Tell<(u64, u64)>,
    executed: Tell<(&'static str, Outcome)>,
    bill: Bill,
}

impl fmt::Debug for StoreMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreMemory")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl StoreMemory {
    /// Over a tenant's store. `touched` is called after each use, `moved` with bytes that came in and went out, `executed` with
    /// each command that was answered, `bill` with what functions cost.
    pub fn new(
        (id, name): (TenantId, &str),
        store: Arc<TenantStore>,
        touched: Tell<()>,
        moved: Tell<(u64, u64)>,
        executed: Tell<(&'static str, Outcome)>,
        bill: Bill,
    ) -> Self {
        Self {
            id,
            name: name.into(),
            store,
            touched,
            moved,
            executed,
            bill,
        }
    }
}

impl TenantMemory for StoreMemory {
    fn id(&self) -> TenantId {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, key: &[u8], block_bytes: usize, range: Range<usize>) -> Option<Bytes> {
        let (key, now) = (self.store.key(DATABASE, key), SystemClock.now());
        let mut guard = self.store.lock(self.store.shard_of(key.hash));
        let found = guard.get(&key, now).map(|found| found.value().len());
        let as_long = found.filter(|found_bytes| *found_bytes == block_bytes);
        let read = as_long.and_then(|_| read_found(guard, &key, block_bytes, range, now));
        (self.touched)(());
        read
    }

    fn has(&self, key: &[u8]) -> bool {
        let key = self.store.key(DATABASE, key);
        let mut guard = self.store.lock(self.store.shard_of(key.hash));
        guard.peek(&key, SystemClock.now()).is_some()
    }

    fn write(&self, key: &[u8], block: &[u8]) -> bool {
        let key = self.store.key(DATABASE, key);
        let written = self.store.put(&key, block, Attributes::default(), SystemClock.now());
        (self.touched)(());
        written.is_ok()
    }

    fn count(&self, in_bytes: u64, out_bytes: u64) {
        (self.moved)((in_bytes, out_bytes));
    }

    fn executed(&self, command: &'static str, outcome: Outcome) {
        (self.executed)((command, outcome));
    }

    fn bill(&self) -> Bill {
        Arc::clone(&self.bill)
    }
}

/// A range of the value of a key that was just found, which has so many bytes. The lock is released before they are copied, where
/// [`ShardGuard::pin`] allows that.
pub(crate) fn read_found(
    mut guard: ShardGuard<'_>,
    key: &Key<'_>,
    value_bytes: usize,
    range: Range<usize>,
    now: UnixMs,
) -> Option<Bytes> {
    let pinned = guard.pin(key, value_bytes);
    match pinned {
        Some(pinned) => {
            drop(guard);
            Some(part(pinned.parts(), range))
        }
        None => guard.peek(key, now).map(|found| part(found.value().parts(), range)),
    }
}

/// A range of a value that lies in parts.
fn part<'a>(parts: impl Iterator<Item = &'a [u8]>, range: Range<usize>) -> Bytes {
    let mut copy = Vec::with_capacity(range.len());
    let mut at = 0;
    for part in parts {
        let (from, to) = (range.start.max(at), range.end.min(at + part.len()));
        if from < to {
            copy.extend_from_slice(&part[from - at..to - at]);
        }
        at += part.len();
    }
    copy.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_out_of_parts() {
        let parts: [&[u8]; 3] = [b"abc", b"", b"defgh"];
        for (range, bytes) in [
            (0..8, "abcdefgh"),
            (0..3, "abc"),
            (2..5, "cde"),
            (3..4, "d"),
            (7..8, "h"),
            (8..8, ""),
        ] {
            assert_eq!(part(parts.into_iter(), range.clone()), bytes, "{range:?}");
        }
    }
}
