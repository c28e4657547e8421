//! The accountant of connections' memory: incomplete commands, requests that wait, replies that are not sent.
//!
//! Each connection has a part of its own ([`OWN_BYTES`]) that is never refused, so that small commands and logins
//! always go through. The rest is one sum for the server. A tenant has a share of it by its weight among the tenants
//! that have connections. The free part is lent, except for a quarter, which is kept for those within their shares.
//!
//! Memory is taken from an [`Account`] before it is used. An exception is the memory that a worker has in hand while it
//! serves a group of connections. It holds their short commands and replies, up to [`crate::limits::REPLY_BYTES`] each.
//! It is stated as the workers' overhead and not part of the sum. The rest of it after the visit is charged even if
//! that exceeds the sum; nothing more is granted until that has gone.
//!
//! A connection without enough memory stands in the [`Line`], and is given its memory there. While its tenant has
//! anybody in the line, no newcomer of that tenant takes any. While anybody is in it, nobody takes more than its
//! tenant's share.
//!
//! Invariant: grants of [`Account::take`] and the line never make the sum exceed its maximum, on any number of threads.

mod line;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_types::UnixMs;

use crate::limits::{
    KEPT_FOR_SHARES_DIVISOR, LOGIN_BYTES, OWN_BYTES, OWN_INPUT_BYTES, OWN_REPLY_BYTES, RECEIVE_BYTES, REPLY_BYTES,
    SWEEP_EVERY,
};
use line::{Line, Ticket};

pub(crate) use line::Caller;

// The own part has room for a login, for small replies, and for the last of them.
const _: () = assert!(OWN_BYTES == OWN_INPUT_BYTES + 2 * OWN_REPLY_BYTES && OWN_INPUT_BYTES == LOGIN_BYTES);

/// For how long after a connection within its tenant's share was found waiting lent memory is taken back.
const RECALLED_FOR: Duration = Duration::from_secs(3);

/// The input of a decision, in bytes; weights are plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// The sum's maximum.
    most: u64,
    /// The bytes that all hold.
    held: u64,
    /// The bytes that this tenant holds.
    own: u64,
    weight: u64,
    /// The weights of all tenants that have connections.
    weights: u64,
}

impl Standing {
    /// The bytes that the tenant may hold whatever others want.
    fn share(self) -> u64 {
        let weights = u128::from(self.weights.max(self.weight).max(1));
        let share = u128::from(self.most) * u128::from(self.weight) / weights;
        // A part of `most`, which fits.
        share as u64
    }

    /// The bytes of its share that the tenant may take now.
    fn room_within(self) -> u64 {
        let free = self.most.saturating_sub(self.held);
        self.share().saturating_sub(self.own).min(free)
    }

    /// The bytes that anybody may borrow now.
    fn room_to_borrow(self) -> u64 {
        lendable(self.most).saturating_sub(self.held)
    }

    /// The bytes that the tenant may take now if nobody waits.
    fn room(self) -> u64 {
        self.room_within().max(self.room_to_borrow())
    }

    /// How who wants so much more stands to the tenant's share.
    fn class(self, bytes: u64) -> Class {
        if self.own.saturating_add(bytes) <= self.share() {
            Class::Within
        } else if bytes <= lendable(self.most) {
            Class::Beyond
        } else {
            Class::Never
        }
    }
}

/// The class of an account that wants more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The tenant's share has room for it.
    Within,
    /// It has to be lent.
    Beyond,
    /// It is more than is ever lent.
    Never,
}

/// The part of so much that may be lent.
fn lendable(most: u64) -> u64 {
    most - most / KEPT_FOR_SHARES_DIVISOR
}

/// The sum of all connections' memory beyond their own parts.
pub(crate) struct Memory {
    most: u64,
    held: AtomicU64,
    weights: AtomicU64,
    /// Held while a tenant's weight begins or ends to count, or changes.
    weighing: Mutex<()>,
    /// Connections in the line.
    waiting: AtomicU64,
    line: Mutex<Line>,
    /// Accounts that there were, which number them.
    accounts: AtomicU64,
    /// Until when lent memory is taken back, in milliseconds since 1970.
    recalled_until: AtomicU64,
    /// When the line is looked at next for those that wait for each other, in milliseconds since 1970.
    next_look: AtomicU64,
    /// Called for a connection that was given the memory that it waited for.
    tell: Box<dyn Fn(Caller) + Send + Sync>,
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
    /// So many bytes in all; `tell` is called for each connection that was given the memory that it waited for.
    pub(crate) fn new(most: u64, tell: Box<dyn Fn(Caller) + Send + Sync>) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicU64::new(0),
            weights: AtomicU64::new(0),
            weighing: Mutex::default(),
            waiting: AtomicU64::new(0),
            line: Mutex::default(),
            accounts: AtomicU64::new(0),
            recalled_until: AtomicU64::new(0),
            next_look: AtomicU64::new(0),
            tell,
        })
    }

    /// The sum's maximum.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most
    }

    /// The bytes held beyond connections' own parts.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// A tenant's account.
    pub(crate) fn account(self: &Arc<Self>, weight: u64) -> Arc<Account> {
        Arc::new(Account {
            memory: Arc::clone(self),
            number: self.accounts.fetch_add(1, Ordering::Relaxed),
            weight: AtomicU64::new(weight.max(1)),
            connections: AtomicU64::new(0),
            held: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        })
    }

    fn is_recalling(&self, now: UnixMs) -> bool {
        now.0 < self.recalled_until.load(Ordering::Relaxed)
    }

    /// Asks for lent memory. Whether nobody had asked.
    fn recall(&self, now: UnixMs) -> bool {
        let until = now.plus(RECALLED_FOR).0;
        self.recalled_until.fetch_max(until, Ordering::Relaxed) <= now.0
    }

    /// Gives the free memory to those in the line. `changed` is the account that has given something back, if it is
    /// only one whose standing is better than before.
    #[inline]
    fn serve_line(&self, changed: Option<&Account>) {
        // Sequentially consistent with the count of those that begin to wait and are then served as far as there is
        // room.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.serve_those_waiting(changed);
        }
    }

    #[cold]
    fn serve_those_waiting(&self, changed: Option<&Account>) {
        self.in_line(|line| match changed {
            Some(account) => line.sort(account.number),
            None => line.sort_all(),
        });
    }

    /// Changes the line, gives the free memory to the next ones then, and tells them.
    fn in_line<R>(&self, change: impl FnOnce(&mut Line) -> R) -> R {
        let mut line = self.line.lock();
        let result = change(&mut line);
        let served = line.serve();
        self.waiting.store(line.len(), Ordering::SeqCst);
        drop(line);
        served.into_iter().for_each(|caller| (self.tell)(caller));
        result
    }

    /// Looks, at most once a second, for those that hold memory and wait for each other's: nothing moves until one of
    /// them is closed. Returns them.
    pub(crate) fn find_stuck(&self, now: UnixMs) -> Vec<Caller> {
        let next = self.next_look.load(Ordering::Relaxed);
        // The clock may have been set back.
        let is_early = now.0 < next && next - now.0 <= SWEEP_EVERY.as_millis() as u64;
        if self.waiting.load(Ordering::Relaxed) == 0 || is_early {
            return Vec::new();
        }
        let until = now.plus(SWEEP_EVERY).0;
        let is_first = self
            .next_look
            .compare_exchange(next, until, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if is_first {
            self.in_line(|line| line.condemn(self.held.load(Ordering::SeqCst)))
        } else {
            Vec::new()
        }
    }
}

/// The memory of one tenant's connections.
#[derive(Debug)]
pub(crate) struct Account {
    memory: Arc<Memory>,
    number: u64,
    weight: AtomicU64,
    connections: AtomicU64,
    held: AtomicU64,
    /// Its connections in the line.
    waiting: AtomicU64,
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
            memory.serve_line(None);
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
            memory.serve_line(None);
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

    /// The bytes that may be taken now.
    #[inline]
    fn room(&self) -> u64 {
        let memory = &*self.memory;
        let held = memory.held.load(Ordering::Relaxed);
        let to_borrow = lendable(memory.most).saturating_sub(held);
        // Nothing that a connection takes without asking is more.
        if to_borrow >= REPLY_BYTES as u64 && memory.waiting.load(Ordering::Relaxed) == 0 {
            return to_borrow;
        }
        self.room_of(held)
    }

    /// The same where all hold so much.
    #[cold]
    fn room_of(&self, held: u64) -> u64 {
        let standing = self.standing(held);
        if self.memory.waiting.load(Ordering::SeqCst) == 0 {
            standing.room()
        } else if self.waiting.load(Ordering::Relaxed) == 0 {
            standing.room_within()
        } else {
            0
        }
    }

    /// Takes memory if there is room. Whether it was taken.
    fn take(&self, bytes: u64) -> bool {
        self.take_if(bytes, |held| bytes <= self.room_of(held))
    }

    /// Takes memory if the sum of all allows it.
    fn take_if(&self, bytes: u64, may: impl Fn(u64) -> bool) -> bool {
        let fits = |held: u64| may(held).then_some(held + bytes);
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
        self.memory.serve_line(None);
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

    /// Whether connections of the tenant wait for memory.
    pub(crate) fn lacks_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The bytes that a connection asks for at a time if it can do with less: no more than the tenant's share.
    fn step(&self) -> u64 {
        self.share().clamp(OWN_INPUT_BYTES as u64, RECEIVE_BYTES as u64)
    }
}

/// One connection's hold on its tenant's account. A connection that has not logged in has none, and only its own part.
#[derive(Debug, Default)]
pub(crate) struct Room {
    account: Option<Arc<Account>>,
    /// Taken beyond the own part.
    taken: Cell<u64>,
    /// The part of it that was given in the line and is not used yet.
    given: Cell<u64>,
    /// Its place in the line, if it waits for memory.
    ticket: Option<Arc<Ticket>>,
    /// When its present command first waited, in the line's time; zero if it did not.
    age: Cell<u64>,
}

impl Room {
    /// The bytes that may be taken now.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.account
            .as_ref()
            .map_or(0, |account| account.room() + self.given.get())
    }

    /// How much more is received at a time when little memory is left: the room in the tenant's share.
    pub(crate) fn step(&self) -> u64 {
        self.account
            .as_ref()
            .map_or(OWN_INPUT_BYTES as u64, |account| account.step())
    }

    /// Takes memory before it is used. Whether there was room for it.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let given = self.given.get();
        let missing = bytes.saturating_sub(given);
        let taken = missing == 0 || self.account.as_ref().is_some_and(|account| account.take(missing));
        if taken {
            self.given.set(given - (bytes - missing));
            self.taken.set(self.taken.get() + missing);
        }
        taken && self.account.is_some()
    }

    /// The bytes taken beyond the own part.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Makes the taken bytes the same as the held ones, the own part included.
    #[inline]
    pub(crate) fn settle(&self, held: u64) {
        self.given.set(0);
        self.settle_taken(held.saturating_sub(OWN_BYTES as u64));
    }

    #[inline]
    fn settle_taken(&self, needed: u64) {
        if needed != self.taken.get() {
            self.change_to(needed);
        }
    }

    #[cold]
    fn change_to(&self, needed: u64) {
        let Some(account) = &self.account else { return };
        let taken = self.taken.replace(needed);
        if needed > taken {
            return account.charge(needed - taken);
        }
        account.give(taken - needed);
        if needed == 0 {
            self.end_command(account);
        }
    }

    /// Notes that the command is over that waited, if one did.
    fn end_command(&self, account: &Account) {
        let age = self.age.replace(0);
        if age != 0 {
            account.memory.in_line(|line| line.end(account.number, age));
        }
    }

    /// Gives back unused memory that was given in the line.
    pub(crate) fn return_given(&self) {
        self.settle_taken(self.taken.get() - self.given.replace(0));
    }

    /// Moves the hold to another account, if it is another one.
    #[inline]
    pub(crate) fn follow(&mut self, account: Option<&Arc<Account>>) {
        if self.account.as_ref().map(Arc::as_ptr) != account.map(Arc::as_ptr) {
            self.move_to(account.cloned());
        }
    }

    #[cold]
    fn move_to(&mut self, account: Option<Arc<Account>>) {
        self.end_wait();
        self.given.set(0);
        let taken = self.taken.replace(0);
        if let Some(old) = self.account.take() {
            old.give(taken);
            self.end_command(&old);
            old.leave();
        }
        if let Some(new) = &account {
            new.join();
        }
        // The held bytes are charged to the new one when the visit ends.
        self.account = account;
    }

    /// Stands in the line until so much memory is given; the caller is told then. `is_new` says that it waits with
    /// another command than before.
    pub(crate) fn begin_wait(&mut self, bytes: u64, is_new: bool, caller: Caller) {
        let Some(account) = &self.account else { return };
        if is_new {
            self.end_command(account);
        }
        let (holds, age, before) = (self.taken.get(), self.age.get(), self.ticket.take());
        let ticket = account.memory.in_line(|line| {
            if let Some(before) = &before {
                line.leave(before);
            }
            line.join(account, (bytes.max(1), holds), age, caller)
        });
        self.age.set(ticket.age());
        // Bytes that were given in between are not used by a connection that waits anew.
        let given_before = before.map_or(0, |before| before.given());
        self.ticket = Some(ticket);
        if given_before > 0 {
            account.give(given_before);
        }
    }

    /// Leaves the line. The bytes that were given there may be used now.
    pub(crate) fn end_wait(&mut self) {
        let (Some(ticket), Some(account)) = (self.ticket.take(), &self.account) else {
            return;
        };
        if ticket.given() == 0 {
            account.memory.in_line(|line| line.leave(&ticket));
        }
        let given = ticket.given();
        self.taken.set(self.taken.get() + given);
        self.given.set(self.given.get() + given);
    }

    /// Whether it waits for memory.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether it was given the memory that it waits for.
    pub(crate) fn is_given(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.given() > 0)
    }

    /// Whether it must go, so that others that wait as it does can go on.
    pub(crate) fn is_condemned(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.is_condemned())
    }

    /// Asks for lent memory if the connection waits for some within its tenant's share. Whether nobody had asked for it.
    pub(crate) fn recall(&self, now: UnixMs) -> bool {
        let (Some(account), Some(ticket)) = (&self.account, &self.ticket) else {
            return false;
        };
        let is_within = ticket.given() == 0 && account.standing(0).class(ticket.bytes()) == Class::Within;
        is_within && account.memory.recall(now)
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
