//! The line of connections that wait for memory, and whose turn it is to be given some.
//!
//! Within a tenant the command that has waited longest is first, counted from when it first had to wait. A command that
//! is given its memory piece by piece is not overtaken by later ones. Tenants that are given no more than their shares
//! come first. Among them the one that wants least is next, since lent memory comes back to all of them. The others
//! borrow, in the order in which they came, and only while none within its share waits.
//!
//! Those of a tenant that hold all of its memory and wait for each other's are found once a second ([`Line::condemn`]). One is
//! closed then, and from there on the tenant's commands are given memory one after the other, until none waits.
//!
//! Memory is taken for the next one at the moment when there is room, before newcomers see it. Giving costs in
//! proportion to those who are given some, and the logarithm of the number of tenants that wait.
//!
//! Invariant: an account is in one of the orders by its oldest ticket. It is in none if that wants more than is ever
//! lent, or has to wait for a favoured one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Account, Class};

/// A connection of a worker: its place there, and the client's number, since places are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) worker: usize,
    pub(crate) place: usize,
    pub(crate) client: u64,
}

/// A connection's place in the line.
#[derive(Debug)]
pub(super) struct Ticket {
    account: u64,
    age: u64,
    bytes: u64,
    caller: Caller,
    /// The bytes that it was given; then it is not in the line any more.
    given: AtomicU64,
    is_condemned: AtomicBool,
}

impl Ticket {
    /// When its command first waited, in the line's time.
    pub(super) fn age(&self) -> u64 {
        self.age
    }

    /// The bytes that it waits for.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.is_condemned.load(Ordering::Relaxed) && self.given() == 0
    }
}

/// One that waits.
#[derive(Debug)]
struct Waiter {
    ticket: Arc<Ticket>,
    /// The bytes that it holds meanwhile.
    holds: u64,
}

/// Those of a tenant.
#[derive(Debug)]
struct Queue {
    account: Arc<Account>,
    /// The waiters by age.
    waiters: BTreeMap<u64, Waiter>,
    order: Order,
    /// The bytes that they hold together.
    holds: u64,
    /// The favoured command of commands that were found to wait for each other. It is given memory until it ends, and
    /// no other is.
    favoured: Option<Favoured>,
    /// The bytes of the account when it was looked at last, and the oldest ticket then; `None` before that.
    seen: Option<(u64, u64)>,
}

/// The order of an account in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nowhere,
    /// The order by the bytes that its oldest wants.
    Within(u64),
    /// The order by its oldest's age.
    Beyond(u64),
}

#[derive(Clone, Copy, Debug)]
struct Favoured {
    age: u64,
    /// It did not wait when it was looked at last.
    is_busy: bool,
}

impl Queue {
    /// The age of the next one and the bytes that it wants.
    fn next(&self) -> Option<(u64, u64)> {
        let (age, waiter) = self.waiters.first_key_value()?;
        let is_free = self.favoured.is_none_or(|favoured| *age <= favoured.age);
        is_free.then_some((*age, waiter.ticket.bytes))
    }

    fn order(&self) -> Order {
        let Some((age, bytes)) = self.next() else {
            return Order::Nowhere;
        };
        match self.account.standing(0).class(bytes) {
            Class::Within => Order::Within(bytes),
            Class::Beyond => Order::Beyond(age),
            Class::Never => Order::Nowhere,
        }
    }

    /// The connection that is closed for the others, if there are others. It holds most, but is not the oldest unless
    /// nobody else holds any.
    fn victim(&self) -> Option<&Waiter> {
        let holders = self.waiters.values().skip(1).filter(|waiter| waiter.holds > 0);
        let most = holders.max_by_key(|waiter| (waiter.holds, waiter.ticket.age));
        most.or_else(|| self.waiters.values().next().filter(|_| self.waiters.len() > 1))
    }
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    queues: HashMap<u64, Queue>,
    /// Accounts that are given no more than their shares, by the bytes that their oldest wants.
    within: BTreeSet<(u64, u64)>,
    /// Accounts that borrow, by the age of their oldest.
    beyond: BTreeSet<(u64, u64)>,
    waiting: u64,
    /// Commands that have waited.
    time: u64,
    /// The bytes that all held when the line was looked at last, and the number served by then.
    seen: Option<(u64, u64)>,
    served: u64,
}

impl Line {
    pub(super) fn len(&self) -> u64 {
        self.waiting
    }

    /// Adds a connection of an account that wants so much and holds so much; without an age it is the youngest.
    pub(super) fn join(
        &mut self,
        account: &Arc<Account>,
        (bytes, holds): (u64, u64),
        age: u64,
        caller: Caller,
    ) -> Arc<Ticket> {
        let age = if age == 0 {
            self.time += 1;
            self.time
        } else {
            age
        };
        let ticket = Arc::new(Ticket {
            account: account.number,
            age,
            bytes,
            caller,
            given: AtomicU64::new(0),
            is_condemned: AtomicBool::new(false),
        });
        let queue = self.queues.entry(account.number).or_insert_with(|| Queue {
            account: Arc::clone(account),
            waiters: BTreeMap::new(),
            order: Order::Nowhere,
            holds: 0,
            favoured: None,
            seen: None,
        });
        queue.holds += holds;
        let waiter = Waiter {
            ticket: Arc::clone(&ticket),
            holds,
        };
        queue.waiters.insert(age, waiter);
        account.waiting.fetch_add(1, Ordering::SeqCst);
        self.waiting += 1;
        self.sort(account.number);
        ticket
    }

    /// Takes a connection from the line, if it is in it still.
    pub(super) fn leave(&mut self, ticket: &Ticket) {
        if ticket.given() == 0 {
            self.remove(ticket.account, ticket.age);
        }
    }

    /// Notes that a command has ended that waited.
    pub(super) fn end(&mut self, account: u64, age: u64) {
        if let Some(queue) = self.queues.get_mut(&account)
            && queue.favoured.is_some_and(|favoured| favoured.age == age)
        {
            // They waited for each other: so might those that are left, if all were given some.
            queue.favoured = queue.waiters.keys().next().map(|age| Favoured {
                age: *age,
                is_busy: false,
            });
            self.sort(account);
        }
    }

    /// Puts all accounts where they belong now that shares have changed.
    pub(super) fn sort_all(&mut self) {
        let all: Vec<u64> = self.queues.keys().copied().collect();
        all.into_iter().for_each(|account| self.sort(account));
    }

    /// Takes memory for those that are next, as far as there is some, and takes them from the line. Returns who they are.
    pub(super) fn serve(&mut self) -> Vec<Caller> {
        let mut served = Vec::new();
        while let Some((_, account)) = self.within.first().or_else(|| self.beyond.first()).copied() {
            let Some(queue) = self.queues.get(&account) else { break };
            if queue.order() != queue.order {
                self.sort(account);
                continue;
            }
            let Some((age, bytes)) = queue.next() else { break };
            let is_within = matches!(queue.order, Order::Within(_));
            let may = |held: u64| {
                let standing = queue.account.standing(held);
                bytes <= standing.room_to_borrow() || (is_within && bytes <= standing.room_within())
            };
            if !queue.account.take_if(bytes, may) {
                break;
            }
            let Some(waiter) = self.remove(account, age) else { break };
            waiter.ticket.given.store(bytes, Ordering::Release);
            served.push(waiter.ticket.caller);
            self.served += 1;
        }
        served
    }

    fn remove(&mut self, account: u64, age: u64) -> Option<Waiter> {
        let queue = self.queues.get_mut(&account)?;
        let waiter = queue.waiters.remove(&age)?;
        queue.holds -= waiter.holds;
        queue.account.waiting.fetch_sub(1, Ordering::SeqCst);
        self.waiting -= 1;
        self.sort(account);
        Some(waiter)
    }

    /// Puts an account where it belongs.
    pub(super) fn sort(&mut self, account: u64) {
        let Some(queue) = self.queues.get_mut(&account) else {
            return;
        };
        let order = queue.order();
        let before = std::mem::replace(&mut queue.order, order);
        if queue.waiters.is_empty() {
            self.queues.remove(&account);
        }
        if order != before {
            match before {
                Order::Within(bytes) => self.within.remove(&(bytes, account)),
                Order::Beyond(age) => self.beyond.remove(&(age, account)),
                Order::Nowhere => false,
            };
            match order {
                Order::Within(bytes) => self.within.insert((bytes, account)),
                Order::Beyond(age) => self.beyond.insert((age, account)),
                Order::Nowhere => false,
            };
        }
    }

    /// Looks for accounts whose memory is all held by connections that wait for more, among which nothing has moved
    /// since the last look. One of each is condemned to be closed, and the oldest is favoured. The favoured one is
    /// given the other's memory, and the memory that it gives back goes to the next. An account with a single
    /// connection waits for others, unless everybody's memory is held so. `held` is the sum of all.
    pub(super) fn condemn(&mut self, held: u64) -> Vec<Caller> {
        let (mut condemned, mut alone) = (Vec::new(), None);
        let (mut all_holds, mut moves) = (0, false);
        for queue in self.queues.values_mut() {
            let own = queue.account.held.load(Ordering::SeqCst);
            let oldest = queue.waiters.values().next().map_or(0, |waiter| waiter.ticket.age);
            let seen = queue.seen.replace((own, oldest));
            all_holds += queue.holds;
            if let Some(favoured) = &mut queue.favoured {
                let was_busy = std::mem::replace(&mut favoured.is_busy, favoured.age < oldest);
                if was_busy && favoured.is_busy {
                    // It waits for nothing but its client.
                    queue.favoured = None;
                }
            }
            let waits_on = seen == queue.seen || queue.favoured.is_some_and(|favoured| favoured.age == oldest);
            let is_stuck = waits_on && queue.holds == own;
            moves |= !is_stuck;
            // Lent memory is asked for by an account within its share.
            if is_stuck && own > 0 && !matches!(queue.order, Order::Within(_)) {
                if let Some(victim) = queue.victim() {
                    condemned.push(Arc::clone(&victim.ticket));
                    queue.favoured = Some(Favoured {
                        age: oldest,
                        is_busy: false,
                    });
                } else if alone.as_ref().is_none_or(|(most, _)| *most < own) {
                    let only = queue.waiters.values().next();
                    alone = only.map(|only| (own, Arc::clone(&only.ticket)));
                }
            }
        }
        let seen = self.seen.replace((held, self.served));
        if condemned.is_empty() && !moves && all_holds == held && seen == self.seen {
            condemned.extend(alone.map(|(_, ticket)| ticket));
        }
        self.sort_all();
        let condemn = |ticket: Arc<Ticket>| {
            ticket.is_condemned.store(true, Ordering::Relaxed);
            ticket.caller
        };
        condemned.into_iter().map(condemn).collect()
    }
}
