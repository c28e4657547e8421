//! The events that a program is told of, as they happen.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tidemark_control::MoveView;
use tidemark_types::{Fault, Guest, Part};

pub use tidemark_store::Left;

/// Is told what happens in a cache. Each of these does nothing unless it is written.
///
/// # Where it is called, and what it may cost
/// [`left`](Self::left), [`emptied`](Self::emptied) and, for an eviction policy, [`replaced`](Self::replaced) are
/// called under the lock of the item's shard. The thread is the one that reads or writes, or the keeper's. All users of
/// that shard wait meanwhile. [`moved`](Self::moved) is called on the control plane's thread or in the driver's step.
/// None of them may wait for anything, and none **may use the cache**, which would wait for itself for ever. To act on
/// an event, send it to a thread of your own. Several may be called at a time.
///
/// # When it fails
/// After a panic nothing is told any more, and [`Cache::events_fault`](crate::Cache::events_fault) says so.
pub trait Events: Send + Sync {
    /// An item leaves: evicted, expired or removed. A value that is overwritten has not left, its key is still there.
    /// Expired items leave when they are met or their place is needed, which may be later than they are seen last.
    fn left(&self, _tenant: &str, _item: &LeftItem<'_>) {}

    /// So many items leave at once, none of which is told of by itself. They are all of a shard's: the tenant was
    /// cleared or removed, gave all its memory to others, or everything in it had expired. A tenant has several shards.
    /// The items at the end of the cache itself are not told of.
    fn emptied(&self, _tenant: &str, _items: u64, _why: Left) {}

    /// A tenant has another grant, for this reason.
    fn moved(&self, _tenant: &str, _change: &MoveView) {}

    /// Code that the program supplied for a tenant was replaced by the built-in rule.
    fn replaced(&self, _tenant: &str, _fault: &Fault) {}

    /// Whether [`left`](Self::left) and [`emptied`](Self::emptied) are to be called. Asked once, when the cache is
    /// made. A program that wants only the other events says no, and evictions need not look at the items that go.
    fn wants_items(&self) -> bool {
        true
    }
}

/// An item that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftItem<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The length of its value, in bytes.
    pub value_bytes: usize,
    /// Why.
    pub why: Left,
}

/// A program's events, kept from doing harm.
pub(crate) struct Hook {
    events: Guest<Arc<dyn Events>>,
    wants_items: bool,
    /// Why nothing is told any more.
    fault: OnceLock<Fault>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Hook {
    /// These events.
    ///
    /// # Errors
    /// They panic when they are asked for their subscriptions.
    pub(crate) fn new(events: Arc<dyn Events>) -> Result<Self, Fault> {
        let events = Guest::new(events);
        let part = Part::Events;
        let wants_items = events
            .call(|events| events.wants_items())
            .map_err(|cause| Fault { part, cause })?;
        Ok(Self {
            events,
            wants_items,
            fault: OnceLock::new(),
        })
    }

    pub(crate) fn wants_items(&self) -> bool {
        self.wants_items
    }

    /// Tells something.
    pub(crate) fn tell(&self, tell: impl FnOnce(&dyn Events)) {
        if self.fault.get().is_some() {
            return;
        }
        if let Err(cause) = self.events.call(|events| tell(&**events)) {
            let part = Part::Events;
            // The first of several that fail at a time is reported.
            let _ = self.fault.set(Fault { part, cause });
        }
    }

    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }
}
