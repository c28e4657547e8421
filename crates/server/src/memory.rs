//! The accountant of connections' memory: incomplete commands, requests that wait, replies that are not sent.
//!
//! Each connection has a part of its own ([`OWN_BYTES`]) that is never refused, so that small commands and logins always go
//! through. The rest is one sum for the server. A tenant has a share of it by its weight among the tenants that have
//! connections. What of it is free is lent, except for a quarter, which is kept for those within their shares.
//!
//! Memory is taken from an [`Account`] before it is used. An exception is what a worker has in hand while it serves a group of
//! connections: their short commands and replies, up to [`crate::limits::REPLY_BYTES`] each. It is stated as the workers'
//! overhead and not part of the sum. What is left of it after the visit is charged even if the sum is exceeded by it; nothing
//! more is granted until that has gone.
//!
//! Invariant: what [`Account::take`] grants never makes the sum exceed its maximum, on any number of threads.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_types::UnixMs;

use crate::limits::{KEPT_FOR_SHARES_DIVISOR, LOGIN_BYTES, OWN_BYTES, OWN_INPUT_BYTES, OWN_REPLY_BYTES};

// The own part has room for a login, for small replies, and for the last of them.
const _: () = assert!(OWN_BYTES == OWN_INPUT_BYTES + 2 * OWN_REPLY_BYTES && OWN_INPUT_BYTES == LOGIN_BYTES);

/// For how long after a connection within its tenant's share was found waiting lent memory is taken back.
const RECALLED_FOR: Duration = Duration::from_secs(3);

/// What a decision is made of, in bytes; weights are plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// The sum's maximum.
    most: u64,
    /// What all hold.
    held: u64,
    /// What this tenant holds.
    own: u64,
    weight: u64,
    /// The weights of all tenants that have connections.
    weights: u64,
}

impl Standing {
    /// What the tenant may hold whatever others want.
    fn share(self) -> u64 {
        let weights = u128::from(self.weights.max(self.weight).max(1));
        let share = u128::from(self.most) * u128::from(self.weight) / weights;
        // A part of `most`, which fits.
        share as u64
    }

    /// What the tenant may take now.
    fn room(self) -> u64 {
        let free = self.most.saturating_sub(self.held);
        let within = self.share().saturating_sub(self.own).min(free);
        let lendable = self.most - self.most / KEPT_FOR_SHARES_DIVISOR;
        within.max(lendable.saturating_sub(self.held))
    }
}

/// The sum of all connections' memory beyond their own parts.
pub(crate) struct Memory {
    most: u64,
    held: AtomicU64,
    weights: AtomicU64,
    /// Held while a tenant's weight begins or ends to count, or changes.
    weighing: Mutex<()>,
    /// Connections that wait for memory.
    waiting: AtomicU64,
    /// Until when lent memory is taken back, in milliseconds since 1970.
    recalled_until: AtomicU64,
    /// Called when there is room and somebody waits.
    alarm: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Memory({} of {} bytes)",
            self.held.load(Ordering::Relaxed),
            self.most
        )
    }
}

impl Memory {
    /// So many bytes in all; `alarm` is called when memory is given back while a connection waits for some.
    pub(crate) fn new(most: u64, alarm: Box<dyn Fn() + Send + Sync>) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicU64::new(0),
            weights: AtomicU64::new(0),
            weighing: Mutex::default(),
            waiting: AtomicU64::new(0),
            recalled_until: AtomicU64::new(0),
            alarm,
        })
    }

    /// The sum's maximum.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most
    }

    /// What is held beyond connections' own parts.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// A tenant's account.
    pub(crate) fn account(self: &Arc<Self>, weight: u64) -> Arc<Account> {
        Arc::new(Account {
            memory: Arc::clone(self),
            weight: AtomicU64::new(weight.max(1)),
            connections: AtomicU64::new(0),
            held: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
        })
    }

    fn is_recalling(&self, now: UnixMs) -> bool {
        now.0 < self.recalled_until.load(Ordering::Relaxed)
    }

    /// Asks for what is lent. Whether nobody had asked.
    fn recall(&self, now: UnixMs) -> bool {
        let until = now.plus(RECALLED_FOR).0;
        self.recalled_until.fetch_max(until, Ordering::Relaxed) <= now.0
    }

    fn tell_waiting(&self) {
        // Sequentially consistent with the count of who begins to wait and then looks once more.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            (self.alarm)();
        }
    }
}

/// What one tenant's connections hold.
#[derive(Debug)]
pub(crate) struct Account {
    memory: Arc<Memory>,
    weight: AtomicU64,
    connections: AtomicU64,
    held: AtomicU64,
    /// What its waiting connections wait for, together; zero if none waits.
    wanted: AtomicU64,
}

impl Account {
    /// Changes the tenant's weight.
    pub(crate) fn set_weight(&self, weight: u64) {
        let memory = &self.memory;
        let weighing = memory.weighing.lock();
        let before = self.weight.swap(weight.max(1), Ordering::Relaxed);
        if self.connections.load(Ordering::Relaxed) > 0 {
            memory.weights.fetch_add(weight.max(1), Ordering::Relaxed);
            memory.weights.fetch_sub(before, Ordering::Relaxed);
            drop(weighing);
            // Some shares are larger now.
            memory.tell_waiting();
        }
    }

    fn join(&self) {
        let memory = &self.memory;
        let _weighing = memory.weighing.lock();
        if self.connections.fetch_add(1, Ordering::Relaxed) == 0 {
            let weight = self.weight.load(Ordering::Relaxed);
            memory.weights.fetch_add(weight, Ordering::Relaxed);
        }
    }

    fn leave(&self) {
        let memory = &self.memory;
        let weighing = memory.weighing.lock();
        if self.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            let weight = self.weight.load(Ordering::Relaxed);
            memory.weights.fetch_sub(weight, Ordering::Relaxed);
            drop(weighing);
            // The others' shares are larger now.
            memory.tell_waiting();
        }
    }

    fn standing(&self, held: u64) -> Standing {
        Standing {
            most: self.memory.most,
            held,
            own: self.held.load(Ordering::Relaxed),
            weight: self.weight.load(Ordering::Relaxed),
            weights: self.memory.weights.load(Ordering::Relaxed),
        }
    }

    /// What may be taken now.
    #[inline]
    fn room(&self) -> u64 {
        self.standing(self.memory.held.load(Ordering::SeqCst)).room()
    }

    /// Takes memory if there is room. Whether it was taken.
    fn take(&self, bytes: u64) -> bool {
        let fits = |held: u64| (bytes <= self.standing(held).room()).then_some(held + bytes);
        let taken = self
            .memory
            .held
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, fits)
            .is_ok();
        if taken {
            self.held.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Charges memory that is used already.
    fn charge(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.memory.held.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Gives memory back.
    fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.held.fetch_sub(bytes, Ordering::SeqCst);
        self.memory.tell_waiting();
    }

    fn share(&self) -> u64 {
        self.standing(0).share()
    }

    /// Whether others may want back what this tenant holds.
    pub(crate) fn is_above_share(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.share()
    }

    /// Whether who holds more than its tenant's share has to give it back.
    pub(crate) fn is_recalling(&self, now: UnixMs) -> bool {
        self.memory.is_recalling(now)
    }

    /// Whether connections of the tenant wait for more memory than there is room for.
    pub(crate) fn lacks_room(&self) -> bool {
        self.room() < self.wanted.load(Ordering::Relaxed)
    }
}

/// One connection's hold on its tenant's account. Who has not logged in has none, and only its own part.
#[derive(Debug, Default)]
pub(crate) struct Room {
    account: Option<Arc<Account>>,
    /// Taken beyond the own part.
    taken: Cell<u64>,
    /// Memory that it waits for; zero if it does not.
    waits_for: Cell<u64>,
}

impl Room {
    /// What may be taken now.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.account.as_ref().map_or(0, |account| account.room())
    }

    /// Takes memory before it is used. Whether there was room for it.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let taken = self.account.as_ref().is_some_and(|account| account.take(bytes));
        if taken {
            self.taken.set(self.taken.get() + bytes);
        }
        taken
    }

    /// What is taken beyond the own part.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Makes what is taken the same as what is held of it, the own part included.
    #[inline]
    pub(crate) fn settle(&self, held: u64) {
        let needed = held.saturating_sub(OWN_BYTES as u64);
        let taken = self.taken.get();
        if needed != taken
            && let Some(account) = &self.account
        {
            self.taken.set(needed);
            if needed > taken {
                account.charge(needed - taken);
            } else {
                account.give(taken - needed);
            }
        }
    }

    /// Moves the hold to another account, if it is another one.
    #[inline]
    pub(crate) fn follow(&mut self, account: Option<&Arc<Account>>) {
        let is_same = match (&self.account, account) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.move_to(account.cloned());
        }
    }

    #[cold]
    fn move_to(&mut self, account: Option<Arc<Account>>) {
        self.end_wait();
        let taken = self.taken.replace(0);
        if let Some(old) = self.account.take() {
            old.give(taken);
            old.leave();
        }
        if let Some(new) = &account {
            new.join();
        }
        // What is held is charged to the new one when the visit ends.
        self.account = account;
    }

    /// Notes that the connection waits until so much memory can be taken. Whether the lent memory of others must be asked
    /// for at once.
    pub(crate) fn begin_wait(&self, bytes: u64, now: UnixMs) -> bool {
        let Some(account) = &self.account else { return false };
        let before = self.waits_for.replace(bytes.max(1));
        account.wanted.fetch_add(bytes.max(1), Ordering::Relaxed);
        account.wanted.fetch_sub(before, Ordering::Relaxed);
        if before == 0 {
            account.memory.waiting.fetch_add(1, Ordering::SeqCst);
        }
        let is_within = account.held.load(Ordering::Relaxed) + bytes <= account.share();
        is_within && account.memory.recall(now)
    }

    /// Notes that it does not wait any more.
    pub(crate) fn end_wait(&self) {
        let before = self.waits_for.replace(0);
        if before > 0
            && let Some(account) = &self.account
        {
            account.wanted.fetch_sub(before, Ordering::Relaxed);
            account.memory.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether it waits for memory.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits_for.get() > 0
    }

    /// Whether there is what it waits for, beside so much that is promised to others of the same account.
    pub(crate) fn can_go_on(&self, promised: u64) -> bool {
        self.left() >= self.waits_for.get() + promised
    }

    /// What it waits for.
    pub(crate) fn waits_for(&self) -> u64 {
        self.waits_for.get()
    }

    /// The account, if it has one.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.move_to(None);
    }
}

#[cfg(test)]
mod tests;
