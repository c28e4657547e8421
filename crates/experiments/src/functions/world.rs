//! The events in their order, and all that there is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidemark_functions::chunk::ChunkKey;
use tidemark_functions::event::Work;
use tidemark_functions::late::Late;
use tidemark_functions::pool::Pool;
use tidemark_functions::schedule::{LOOKS, turn};
use tidemark_tools::load::Rng;

use super::cloud::{RECLAIM_EVERY_US, Reclaiming};
use super::instance::{Instance, Length, Op, Reply, Run};
use super::member::Member;
use super::objects::Objects;
use super::{Asked, Found, Setup};

/// An event of a moment.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The next request of the load.
    Ask,
    /// A look within the period of warm-ups or of backups.
    Look { is_backup: bool, round: u64, look: u32 },
    /// The cloud takes instances back.
    Reclaim,
    /// An invocation begins.
    Begins { member: u16, id: u64, run: Run },
    /// A warm-up is done.
    Warmed { member: u16, id: u64 },
    /// An instance's HELLO is at the proxy.
    Hello { member: u16, epoch: u64, id: u64 },
    /// An instance's list is at the proxy.
    Listed { member: u16, epoch: u64, id: u64 },
    /// A request is at the instance.
    Arrives { member: u16, epoch: u64, id: u32, op: Op },
    /// All of it.
    Received { member: u16, epoch: u64, id: u32, op: Op },
    /// An instance has answered a request.
    Answered {
        member: u16,
        epoch: u64,
        id: u32,
        reply: Reply,
        lease_ms: u32,
        began_ms: u64,
    },
    /// The answer is at the proxy.
    Replied {
        member: u16,
        epoch: u64,
        id: u32,
        reply: Reply,
        lease_ms: u32,
    },
    /// An instance looks whether its time is over.
    Wakes { member: u16, epoch: u64 },
    /// An instance's BYE is at the proxy.
    Bye { member: u16, epoch: u64 },
    /// The cloud says that an invocation has returned.
    Returned {
        member: u16,
        id: u64,
        epoch: u64,
        work: Work,
    },
    /// The proxy's patience with a function may be over.
    Overdue { member: u16 },
    /// The destination's list is at the source.
    Compares { member: u16, epoch: u64, id: u64 },
    /// A chunk is at the destination.
    Copies {
        member: u16,
        epoch: u64,
        key: ChunkKey,
        chunk: Option<(Length, u64)>,
    },
    /// A backup is done.
    BackupEnds { member: u16, epoch: u64 },
    /// A read's chunks are late.
    Late { gather: u64 },
}

struct Scheduled {
    at_us: u64,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// Events of one moment come in the order in which they were scheduled.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.sequence).cmp(&(other.at_us, other.sequence))
    }
}

/// Everything.
pub(super) struct World<'a> {
    pub(super) setup: &'a Setup,
    load: &'a [Asked],
    next_asked: usize,
    /// After this, the schedules end.
    ends_us: u64,
    pub(super) now_us: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    pub(super) dice: Rng,
    pub(super) pool: Pool,
    pub(super) members: Vec<Member>,
    /// The live instances of each function, oldest first.
    pub(super) instances: Vec<Vec<Instance>>,
    pub(super) next_instance: u64,
    pub(super) reclaiming: Option<Reclaiming>,
    /// Members that were given something to do.
    pub(super) touched: VecDeque<u16>,
    pub(super) objects: Objects,
    pub(super) late: Late,
    pub(super) found: Found,
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup, load: &'a [Asked], pool: Pool) -> Self {
        let ends_us = load.last().map_or(0, |asked| asked.at_us);
        let mut world = Self {
            setup,
            load,
            next_asked: 0,
            ends_us,
            now_us: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            dice: Rng::new(setup.seed),
            pool,
            members: (0..setup.functions).map(|_| Member::new()).collect(),
            instances: (0..setup.functions).map(|_| Vec::new()).collect(),
            next_instance: 0,
            reclaiming: setup.reclaim.map(|reclaim| Reclaiming::new(reclaim, setup.functions)),
            touched: VecDeque::new(),
            objects: Objects::default(),
            late: Late::default(),
            found: Found::default(),
        };
        world.at(load.first().map_or(0, |asked| asked.at_us), Event::Ask);
        world.at(RECLAIM_EVERY_US, Event::Reclaim);
        for (every_s, is_backup) in [(setup.warm_every_s, false), (setup.backup_every_s, true)] {
            if every_s.is_some() {
                let (round, look) = (0, 0);
                world.at(0, Event::Look { is_backup, round, look });
            }
        }
        world
    }

    /// Until nothing happens any more.
    pub(super) fn run(mut self) -> Found {
        while let Some(Reverse(next)) = self.queue.pop() {
            self.now_us = next.at_us;
            self.happens(next.event);
            while let Some(member) = self.touched.pop_front() {
                self.pump(member);
            }
        }
        self.found.took_us.sort_unstable();
        self.found
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    pub(super) fn at(&mut self, at_us: u64, event: Event) {
        let periodic = matches!(event, Event::Look { .. } | Event::Reclaim);
        if periodic && at_us > self.ends_us {
            return;
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.queue.push(Reverse(Scheduled { at_us, sequence, event }));
    }

    pub(super) fn after(&mut self, us: u64, event: Event) {
        self.at(self.now_us + us, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Ask => self.next_request(),
            Event::Look { is_backup, round, look } => self.look(is_backup, round, look),
            Event::Reclaim => self.reclaim(),
            Event::Begins { member, id, run } => self.begins(member, id, run),
            Event::Warmed { member, id } => self.end_run(member, id),
            Event::Arrives { member, epoch, id, op } => self.arrives(member, epoch, id, op),
            Event::Received { member, epoch, id, op } => self.received(member, epoch, id, op),
            Event::Answered {
                member,
                epoch,
                id,
                reply,
                lease_ms,
                began_ms,
            } => {
                self.answered(member, epoch, (id, reply), (lease_ms, began_ms));
            }
            Event::Wakes { member, epoch } => self.wakes(member, epoch),
            Event::Compares { member, epoch, id } => self.compares(member, epoch, id),
            Event::Copies {
                member,
                epoch,
                key,
                chunk,
            } => self.copies(member, epoch, key, chunk),
            Event::BackupEnds { member, epoch } => self.ends_backup(member, epoch, true),
            Event::Late { gather } => self.is_late(gather),
            ref of_member => self.happens_to_member(of_member),
        }
    }

    /// After each, the member looks what it can do, as the product's task does.
    fn happens_to_member(&mut self, event: &Event) {
        let member = match *event {
            Event::Hello { member, epoch, id } => {
                self.hello(member, epoch, id);
                member
            }
            Event::Listed { member, epoch, id } => {
                self.listed(member, epoch, id);
                member
            }
            Event::Replied {
                member,
                epoch,
                id,
                reply,
                lease_ms,
            } => {
                self.replied(member, epoch, (id, reply), lease_ms);
                member
            }
            Event::Bye { member, epoch } => {
                self.bye(member, epoch);
                member
            }
            Event::Returned {
                member,
                id,
                epoch,
                work,
            } => {
                self.returned(member, id, epoch, work);
                member
            }
            Event::Overdue { member } => {
                self.overdue(member);
                member
            }
            _ => return,
        };
        self.touched.push_back(member);
    }

    fn next_request(&mut self) {
        let Some(asked) = self.load.get(self.next_asked) else {
            return;
        };
        self.next_asked += 1;
        if let Some(next) = self.load.get(self.next_asked) {
            self.at(next.at_us, Event::Ask);
        }
        self.request(asked);
    }

    /// Warms or backs up the functions whose turn it is, as `tidemark_functions::proxy` does.
    fn look(&mut self, is_backup: bool, round: u64, look: u32) {
        let every_s = if is_backup {
            self.setup.backup_every_s
        } else {
            self.setup.warm_every_s
        };
        let Some(every_s) = every_s else { return };
        let in_use = self.pool.in_use() as u16;
        for member in (0..in_use).filter(|member| turn(*member, round) == look) {
            if is_backup {
                self.want_backup(member);
            } else {
                self.warm(member);
            }
        }
        let (next, round) = if look + 1 == LOOKS {
            (0, round + 1)
        } else {
            (look + 1, round)
        };
        if next == 0 {
            self.pool.shrink();
        }
        self.after(
            every_s * 1_000_000 / u64::from(LOOKS),
            Event::Look {
                is_backup,
                round,
                look: next,
            },
        );
    }
}
