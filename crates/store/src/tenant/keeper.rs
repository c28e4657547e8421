//! The keepers of shards, and the times of their visits.
//!
//! Every shard that holds memory has one keeper. It looks at the shard about once a second, and at once when the grant
//! of its tenant was lowered. A keeper is driven from outside, in slices of a few microseconds: by a worker between its
//! turns, or by a thread of its own. A shard that holds nothing costs it nothing.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemark_types::UnixMs;

use super::TenantStore;
use crate::shard::Upkeep;

/// How often a shard with nothing urgent is looked at.
const VISIT_EVERY: Duration = Duration::from_secs(1);

/// The messages of others to a keeper. Shared.
pub struct KeeperInbox {
    /// `None`: there is no keeper any more.
    messages: Mutex<Option<Vec<Visit>>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for KeeperInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.messages.lock().as_ref().map_or(0, Vec::len);
        write!(f, "KeeperInbox {{ {waiting} messages }}")
    }
}

impl KeeperInbox {
    /// An inbox; `wake` is called when something came in, from any thread, also under a shard's lock.
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Arc<Self> {
        Arc::new(Self {
            messages: Mutex::new(Some(Vec::new())),
            wake,
        })
    }

    pub(crate) fn push(&self, visit: Visit) {
        match &mut *self.messages.lock() {
            Some(messages) => messages.push(visit),
            // It would stay, and keep its tenant, which keeps this inbox.
            None => return,
        }
        (self.wake)();
    }
}

/// A shard to look at.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) tenant: Arc<TenantStore>,
    pub(crate) shard: usize,
    /// Whether this shard is to be looked at again and again from now on; else just until nothing is urgent.
    pub(crate) regular: bool,
}

/// Looks after shards.
#[derive(Debug)]
pub struct Keeper {
    inbox: Arc<KeeperInbox>,
    /// Those with work to do now.
    busy: VecDeque<Visit>,
    /// The others, with the time of the next visit, soonest first.
    waiting: VecDeque<(UnixMs, Visit)>,
}

impl Drop for Keeper {
    /// Closes the inbox: messages that nobody reads would keep their tenants alive.
    fn drop(&mut self) {
        let unread = self.inbox.messages.lock().take();
        // Not under the lock: tenants may end with it.
        drop(unread);
    }
}

impl Keeper {
    /// A keeper that is told what to do through `inbox`.
    pub fn new(inbox: Arc<KeeperInbox>) -> Self {
        Self {
            inbox,
            busy: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Does upkeep for about `slice` at most. Returns how long there is nothing to do: zero if there is more now, `None` if
    /// nothing will be to do until the inbox wakes.
    pub fn run(&mut self, now: UnixMs, slice: Duration) -> Option<Duration> {
        self.run_metered(now, slice, |_, _| {})
    }

    /// The same; `note` is told how long each piece took, and whose it was.
    pub fn run_metered(
        &mut self,
        now: UnixMs,
        slice: Duration,
        mut note: impl FnMut(&Arc<TenantStore>, Duration),
    ) -> Option<Duration> {
        let inbox = self.inbox.messages.lock().as_mut().map(std::mem::take);
        self.busy.extend(inbox.into_iter().flatten());
        // A visit that is further away than any is made is due as well: the clock was set back.
        while let Some((due, _)) = self.waiting.front()
            && (*due <= now || due.since(now) > VISIT_EVERY)
        {
            self.busy.extend(self.waiting.pop_front().map(|(_, visit)| visit));
        }
        let begin = Instant::now();
        let (mut elapsed, mut longest) = (Duration::ZERO, Duration::ZERO);
        while let Some(visit) = self.busy.pop_front() {
            let state = visit.tenant.upkeep(visit.shard, now);
            let before = std::mem::replace(&mut elapsed, begin.elapsed());
            let took = elapsed.saturating_sub(before);
            longest = longest.max(took);
            note(&visit.tenant, took);
            match state {
                Upkeep::More => self.busy.push_back(visit),
                Upkeep::Later if visit.regular => self.waiting.push_back((now.plus(VISIT_EVERY), visit)),
                // An empty shard announces itself again at its next write.
                Upkeep::Later | Upkeep::Empty => {}
            }
            // Another piece as long as the longest must fit, so that a slice does not end a piece late. A slice of zero is
            // one piece, however coarse the clock.
            if elapsed + longest >= slice {
                break;
            }
        }
        if !self.busy.is_empty() {
            return Some(Duration::ZERO);
        }
        self.waiting.front().map(|(due, _)| due.since(now))
    }
}
