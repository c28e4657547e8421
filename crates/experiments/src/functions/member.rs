//! One function as the proxy uses it: what `tidemark_functions::proxy`'s member does, event by event.

use std::collections::{BTreeMap, VecDeque};

use tidemark_functions::chunk::{Announced, ChunkKey};
use tidemark_functions::event::Work;
use tidemark_functions::link::{Link, Run, Step};
use tidemark_functions::proxy::{ATTEMPTS, REFILLS_MAX, SENT_MAX, TRASH_AT_ONCE};
use tidemark_functions::schedule::is_cold;

use super::Purpose;
use super::instance::{ANNOUNCED_BYTES, Length, Op, Reply};
use super::world::{Event, World};

/// From the proxy's question for a list to its arrival, in hops.
const LIST_HOPS: u64 = 2;

/// A request to a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// A chunk for a read.
    Get(ChunkKey, u64),
    /// A chunk of a write.
    Put(ChunkKey, u64, Length, u64),
    /// A backup.
    Backup,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    job: Job,
    attempts: u8,
}

/// A backup under way.
#[derive(Clone, Copy, Debug)]
struct Backing {
    id: u32,
    epoch: u64,
    began_us: u64,
    destination: u64,
}

/// A function, as the proxy knows it.
#[derive(Debug)]
pub(super) struct Member {
    link: Link,
    waiting: VecDeque<Pending>,
    sent: BTreeMap<u32, Pending>,
    next_id: u32,
    is_connected: bool,
    is_listing: bool,
    is_warming: bool,
    returned_ms: Option<u64>,
    timer_us: Option<u64>,
    backing: Option<Backing>,
}

impl Member {
    pub(super) fn new() -> Self {
        Self {
            link: Link::new(0),
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            next_id: 0,
            is_connected: false,
            is_listing: false,
            is_warming: false,
            returned_ms: None,
            timer_us: None,
            backing: None,
        }
    }

    fn hears(&self, epoch: u64) -> bool {
        self.is_connected && self.link.epoch() == epoch
    }

    /// The destination of a backup of that epoch.
    pub(super) fn destination(&self, epoch: u64) -> Option<u64> {
        self.backing
            .filter(|backing| backing.epoch == epoch)
            .map(|backing| backing.destination)
    }

    /// The backup of that epoch is no more: the request, its beginning, the destination.
    pub(super) fn take_backing(&mut self, epoch: u64) -> Option<(u32, u64, u64)> {
        let backing = self.backing.take_if(|backing| backing.epoch == epoch)?;
        Some((backing.id, backing.began_us, backing.destination))
    }

    /// When something is to be looked at, in ms.
    fn wakes_ms(&self) -> Option<u64> {
        let wants = !self.waiting.is_empty();
        let returning = self.link.return_patience_ends_ms().filter(|_| wants);
        self.link.patience_ends_ms().into_iter().chain(returning).min()
    }
}

impl World<'_> {
    fn member(&mut self, member: u16) -> &mut Member {
        &mut self.members[usize::from(member)]
    }

    /// Gives a function something to do.
    pub(super) fn ask(&mut self, member: u16, job: Job) {
        self.member(member).waiting.push_back(Pending { job, attempts: 0 });
        self.touched.push_back(member);
    }

    /// Sends the requests that can be sent, or takes the steps for it.
    pub(super) fn pump(&mut self, index: u16) {
        let now_ms = self.now_ms();
        loop {
            let member = self.member(index);
            if member.waiting.is_empty() || member.is_warming || member.sent.len() >= SENT_MAX {
                break;
            }
            let is_serving = !member.sent.is_empty();
            match member.link.wanted(now_ms, is_serving) {
                Step::Invoke(epoch) => {
                    let is_backup = member.waiting.iter().all(|pending| matches!(pending.job, Job::Backup));
                    let purpose = if is_backup { Purpose::Backup } else { Purpose::Serving };
                    self.call(index, epoch, Work::Serve, purpose);
                    break;
                }
                Step::Ping => {
                    self.send(index, 0, Op::Ping);
                    break;
                }
                Step::Send if !member.is_listing => self.send_next(index),
                Step::Send | Step::Wait => break,
            }
        }
        let now_us = self.now_us;
        let member = self.member(index);
        let wakes_us = member.wakes_ms().map(|ms| (ms * 1000).max(now_us + 1000));
        if wakes_us != member.timer_us {
            member.timer_us = wakes_us;
            if let Some(at_us) = wakes_us {
                self.at(at_us, Event::Overdue { member: index });
            }
        }
    }

    fn send(&mut self, member: u16, id: u32, op: Op) {
        let (epoch, hop_us) = (self.member(member).link.epoch(), self.setup.cloud.hop_us);
        self.after(hop_us, Event::Arrives { member, epoch, id, op });
    }

    fn send_next(&mut self, index: u16) {
        let Some(mut pending) = self.member(index).waiting.pop_front() else {
            return;
        };
        pending.attempts += 1;
        if let Job::Get(_, gather) = pending.job
            && !self.is_gathering(gather)
        {
            return;
        }
        let member = self.member(index);
        member.next_id += 1;
        let id = member.next_id;
        let op = match pending.job {
            Job::Get(key, _) => Op::Get(key),
            Job::Put(key, hash, length, _) => Op::Put(key, hash, length),
            Job::Backup => {
                self.begin_backup(index, id);
                Op::Backup
            }
        };
        let member = self.member(index);
        member.sent.insert(id, pending);
        member.link.sent();
        self.send(index, id, op);
    }

    /// The source is asked: the destination is invoked beside it.
    fn begin_backup(&mut self, index: u16, id: u32) {
        let epoch = self.member(index).link.epoch();
        self.member(index).link.set_peer(true);
        let destination = self.call(index, epoch, Work::Backup, Purpose::Backup);
        let began_us = self.now_us;
        self.member(index).backing = Some(Backing {
            id,
            epoch,
            began_us,
            destination,
        });
    }

    /// A backup is wanted: unless one is under way, or there is nothing to back up.
    pub(super) fn want_backup(&mut self, index: u16) {
        let has_chunks = self.pool.chunks_of(index) > 0;
        let member = self.member(index);
        let is_backup = |pending: &Pending| matches!(pending.job, Job::Backup);
        let is_wanted = member.waiting.iter().chain(member.sent.values()).any(is_backup);
        if !is_wanted && !member.link.has_peer() && has_chunks {
            self.ask(index, Job::Backup);
        }
    }

    /// Invokes it for a moment, unless it runs or ran lately.
    pub(super) fn warm(&mut self, index: u16) {
        let (now_ms, every_ms) = (self.now_ms(), self.setup.warm_every_s.unwrap_or(0) * 1000);
        let member = self.member(index);
        let idle_ms = member.returned_ms.map(|at_ms| now_ms - at_ms);
        if member.is_warming
            || !is_cold(idle_ms, every_ms)
            || member.link.state().0 != Run::Sleeping
            || member.link.is_in_flight()
            || member.link.has_peer()
            || !member.waiting.is_empty()
        {
            return;
        }
        member.is_warming = true;
        let epoch = member.link.epoch();
        self.call(index, epoch, Work::Warm, Purpose::Warm);
    }

    /// An instance says hello: its chunks are compared with those that it should hold.
    pub(super) fn hello(&mut self, index: u16, epoch: u64, id: u64) {
        let now_ms = self.now_ms();
        if !self.member(index).link.connected(now_ms, epoch) {
            return self.end_run(index, id);
        }
        let Some((hash, chunks)) = self.held(index, id) else {
            return;
        };
        let is_right = hash == self.pool.hash(index);
        let member = self.member(index);
        (member.is_connected, member.is_listing) = (true, false);
        if is_right {
            return self.send_trash(index);
        }
        if chunks == 0 {
            self.reconcile(index, &[]);
            return self.send_trash(index);
        }
        self.member(index).is_listing = true;
        let listing_us = self.transfer_us(chunks as u64 * ANNOUNCED_BYTES);
        let hop_us = self.setup.cloud.hop_us;
        self.after(
            LIST_HOPS * hop_us + listing_us,
            Event::Listed {
                member: index,
                epoch,
                id,
            },
        );
    }

    /// The hash and the number of an instance's chunks.
    fn held(&mut self, member: u16, id: u64) -> Option<(u64, usize)> {
        let instance = self.instance(member, id)?;
        Some((instance.holding.hash(), instance.holding.chunks()))
    }

    pub(super) fn listed(&mut self, index: u16, epoch: u64, id: u64) {
        if !self.member(index).hears(epoch) {
            return;
        }
        let list = self.instance(index, id).map(|instance| instance.holding.list());
        self.member(index).is_listing = false;
        self.reconcile(index, &list.unwrap_or_default());
        self.send_trash(index);
    }

    fn reconcile(&mut self, index: u16, held: &[Announced]) {
        let result = self.pool.reconcile(index, held);
        if self.setup.refill_at_once && result.lost > 0 {
            for (content, stripe) in self.pool.homeless(index, REFILLS_MAX) {
                self.repair_later(content, stripe);
            }
        }
    }

    fn send_trash(&mut self, index: u16) {
        for key in self.pool.take_trash(index, TRASH_AT_ONCE) {
            self.send(index, 0, Op::Delete(key));
            self.pool.deleted(index, &key);
        }
    }

    pub(super) fn replied(&mut self, index: u16, epoch: u64, (id, reply): (u32, Reply), lease_ms: u32) {
        let now_ms = self.now_ms();
        let member = self.member(index);
        if !member.hears(epoch) {
            return;
        }
        if matches!(reply, Reply::Pong) {
            return member.link.pong(now_ms, lease_ms);
        }
        member.link.replied(now_ms, lease_ms);
        let Some(pending) = member.sent.remove(&id) else { return };
        let is_idle = member.sent.is_empty();
        match (pending.job, reply) {
            (Job::Get(key, gather), Reply::Value) => self.got(gather, key.index, true),
            (Job::Get(key, gather), _) => {
                if self.pool.lose(&key) {
                    self.repair_later(key.content, key.stripe);
                }
                self.got(gather, key.index, false);
            }
            (Job::Put(key, hash, _, write), reply) => {
                let is_stored = matches!(reply, Reply::Stored);
                if is_stored {
                    self.pool.stored(index, &key, hash);
                }
                self.put(write, key.index, is_stored);
            }
            (Job::Backup, _) => {}
        }
        if is_idle {
            self.send_trash(index);
        }
    }

    pub(super) fn bye(&mut self, index: u16, epoch: u64) {
        let now_ms = self.now_ms();
        if self.member(index).hears(epoch) {
            self.member(index).link.bye(now_ms);
            self.disconnected(index);
        }
    }

    /// The connection is no more: sent requests are sent again.
    fn disconnected(&mut self, index: u16) {
        let now_ms = self.now_ms();
        let member = self.member(index);
        member.is_connected = false;
        member.link.broken(now_ms);
        member.is_listing = false;
        let mut refused = Vec::new();
        for (_, pending) in std::mem::take(&mut member.sent).into_iter().rev() {
            match pending.job {
                Job::Backup => {}
                _ if pending.attempts < ATTEMPTS => member.waiting.push_front(pending),
                job => refused.push(job),
            }
        }
        refused.into_iter().for_each(|job| self.refuse(job));
    }

    pub(super) fn returned(&mut self, index: u16, id: u64, epoch: u64, work: Work) {
        let now_ms = self.now_ms();
        match work {
            Work::Serve => {
                self.member(index).returned_ms = Some(now_ms);
                self.member(index).link.returned(epoch);
            }
            Work::Backup => self.member(index).link.set_peer(false),
            Work::Warm => {
                self.member(index).is_warming = false;
                if let Some((hash, 0)) = self.held(index, id)
                    && hash != self.pool.hash(index)
                {
                    self.reconcile(index, &[]);
                }
            }
        }
    }

    pub(super) fn overdue(&mut self, index: u16) {
        let (now_us, now_ms) = (self.now_us, self.now_ms());
        let member = self.member(index);
        if member.timer_us.take_if(|at_us| *at_us == now_us).is_none() {
            return;
        }
        let is_running = member.link.state().0 != Run::Sleeping;
        if !member.link.overdue(now_ms) {
            return;
        }
        if is_running {
            self.disconnected(index);
        } else {
            let waiting = std::mem::take(&mut self.member(index).waiting);
            waiting.into_iter().for_each(|pending| self.refuse(pending.job));
        }
    }

    fn refuse(&mut self, job: Job) {
        match job {
            Job::Get(key, gather) => self.got(gather, key.index, false),
            Job::Put(key, _, _, write) => self.put(write, key.index, false),
            Job::Backup => {}
        }
    }
}
