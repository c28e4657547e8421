//! An instance: what the function's program does, as `tidemark_functions::program` does it.

use std::collections::VecDeque;

use tidemark_functions::backup::Sending;
use tidemark_functions::chunk::ChunkKey;
use tidemark_functions::event::Work;
use tidemark_functions::holding::Holding;
use tidemark_functions::lifetime::Lifetime;

use super::Purpose;
use super::world::{Event, World};

/// The cloud ends an invocation after so long.
const TIMEOUT_MS: u64 = 900_000;
/// From the beginning of an invocation to the HELLO: a connection is made, in hops.
const HELLO_HOPS: u64 = 3;
/// From the beginning of a destination's invocation to its list's arrival at the source, in hops: over the relay.
const LIST_HOPS: u64 = 5;
/// From one end of a relay to the other, in hops.
const RELAY_HOPS: u64 = 2;
/// A request without bytes to send takes the program so long, in us.
const HANDLE_US: u64 = 100;
/// A warm-up takes the program so long, in us.
const WARM_US: u64 = 2_000;
/// Bytes of a chunk that is announced.
pub(super) const ANNOUNCED_BYTES: u64 = ChunkKey::BYTES as u64 + 8;

/// The bytes of a chunk, of which only the number is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length(pub(super) u32);

/// No chunk is longer: a stripe.
static ZEROS: [u8; tidemark_functions::codec::STRIPE_BYTES as usize] =
    [0; tidemark_functions::codec::STRIPE_BYTES as usize];

impl AsRef<[u8]> for Length {
    fn as_ref(&self) -> &[u8] {
        &ZEROS[..ZEROS.len().min(self.0 as usize)]
    }
}

/// A request of the proxy's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Get(ChunkKey),
    Put(ChunkKey, u64, Length),
    Delete(ChunkKey),
    Ping,
    Backup,
}

/// An answer of the program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Value,
    Missing,
    Stored,
    Pong,
}

/// An invocation.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) epoch: u64,
    pub(super) work: Work,
    pub(super) purpose: Purpose,
    pub(super) began_us: u64,
    /// The time that a backup took of it.
    pub(super) backing_us: u64,
    /// Requests that wait, and whether one is answered.
    queue: VecDeque<(u32, Op)>,
    is_answering: bool,
    /// How many times as long as usual its transfers take.
    slowness: u64,
    /// Until when its bandwidth is used, each way.
    out_free_us: u64,
    in_free_us: u64,
    /// When it looks next whether it ends.
    wakes_us: Option<u64>,
}

impl Run {
    pub(super) fn new(epoch: u64, work: Work, purpose: Purpose, (began_us, slowness): (u64, u64)) -> Self {
        Self {
            epoch,
            work,
            purpose,
            began_us,
            backing_us: 0,
            queue: VecDeque::new(),
            is_answering: false,
            slowness,
            out_free_us: 0,
            in_free_us: 0,
            wakes_us: None,
        }
    }
}

/// An instance of a function.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: u64,
    pub(super) holding: Holding<Length>,
    lifetime: Lifetime,
    /// An invocation has it, or is on its way to it.
    pub(super) is_taken: bool,
    pub(super) run: Option<Run>,
    /// The chunks that another instance still lacks.
    pub(super) sending: Option<Sending>,
}

impl Instance {
    /// One that is taken.
    pub(super) fn new(id: u64, most_bytes: u64) -> Self {
        Self {
            id,
            holding: Holding::new(most_bytes),
            lifetime: Lifetime::default(),
            is_taken: true,
            run: None,
            sending: None,
        }
    }

    fn serves(&self, epoch: u64) -> bool {
        self.run
            .as_ref()
            .is_some_and(|run| run.epoch == epoch && run.work == Work::Serve)
    }
}

impl World<'_> {
    pub(super) fn instance(&mut self, member: u16, id: u64) -> Option<&mut Instance> {
        self.instances[usize::from(member)]
            .iter_mut()
            .find(|instance| instance.id == id)
    }

    /// The instance that serves an epoch.
    fn serving(&mut self, member: u16, epoch: u64) -> Option<&mut Instance> {
        self.instances[usize::from(member)]
            .iter_mut()
            .find(|instance| instance.serves(epoch))
    }

    pub(super) fn transfer_us(&self, bytes: u64) -> u64 {
        (bytes * 1_000_000).div_ceil(self.setup.cloud.bytes_per_s)
    }

    pub(super) fn begins(&mut self, member: u16, id: u64, run: Run) {
        let (now_ms, unit_ms, hop_us) = (self.now_ms(), self.setup.unit_ms, self.setup.cloud.hop_us);
        let (work, epoch) = (run.work, run.epoch);
        let Some(instance) = self.instance(member, id) else {
            return;
        };
        instance.run = Some(run);
        match work {
            Work::Serve => {
                instance.lifetime.invoked(now_ms, unit_ms, now_ms + TIMEOUT_MS);
                self.after(HELLO_HOPS * hop_us, Event::Hello { member, epoch, id });
                self.look_later(member, epoch);
            }
            Work::Warm => self.after(WARM_US, Event::Warmed { member, id }),
            Work::Backup => {
                let bytes = instance.holding.chunks() as u64 * ANNOUNCED_BYTES;
                let listing_us = self.transfer_us(bytes);
                self.after(LIST_HOPS * hop_us + listing_us, Event::Compares { member, epoch, id });
            }
        }
    }

    /// A request arrives, but for the body of a PUT.
    pub(super) fn arrives(&mut self, member: u16, epoch: u64, id: u32, op: Op) {
        let Op::Put(_, _, length) = op else {
            return self.received(member, epoch, id, op);
        };
        let (now_us, took_us) = (self.now_us, self.transfer_us(length.0.into()));
        let Some(run) = self.serving(member, epoch).and_then(|instance| instance.run.as_mut()) else {
            return;
        };
        run.in_free_us = run.in_free_us.max(now_us) + took_us * run.slowness;
        let at_us = run.in_free_us;
        self.at(at_us, Event::Received { member, epoch, id, op });
    }

    pub(super) fn received(&mut self, member: u16, epoch: u64, id: u32, op: Op) {
        if let Some(run) = self.serving(member, epoch).and_then(|instance| instance.run.as_mut()) {
            run.queue.push_back((id, op));
            self.answer_next(member, epoch);
        }
    }

    /// Answers requests until one takes a while.
    pub(super) fn answer_next(&mut self, member: u16, epoch: u64) {
        loop {
            let now_ms = self.now_ms();
            let Some(instance) = self.serving(member, epoch) else {
                return;
            };
            let Some(run) = instance.run.as_mut().filter(|run| !run.is_answering) else {
                return;
            };
            let Some((id, op)) = run.queue.pop_front() else {
                return self.look_later(member, epoch);
            };
            match op {
                Op::Ping => {
                    instance.lifetime.ping(now_ms);
                    let lease_ms = instance.lifetime.lease_ms(now_ms);
                    self.replies(member, epoch, id, Reply::Pong, lease_ms);
                }
                // The source's side begins when the destination's list is there.
                Op::Backup => instance.lifetime.hold(),
                Op::Get(_) | Op::Put(..) | Op::Delete(_) => return self.answer(member, epoch, id, op),
            }
        }
    }

    fn answer(&mut self, member: u16, epoch: u64, id: u32, op: Op) {
        let (now_us, now_ms) = (self.now_us, self.now_ms());
        let bytes_per_s = self.setup.cloud.bytes_per_s;
        let Some(instance) = self.serving(member, epoch) else {
            return;
        };
        if let (Some(sending), Op::Get(key)) = (instance.sending.as_mut(), op) {
            sending.used(key);
        }
        let object = match op {
            Op::Get(key) | Op::Put(key, ..) => Some(key.content),
            _ => None,
        };
        instance.lifetime.begin(now_ms, object);
        let lease_ms = instance.lifetime.reply_lease_ms(now_ms);
        let mut took_us = HANDLE_US;
        let reply = match op {
            Op::Get(key) => match instance.holding.get(&key) {
                Some((Length(bytes), _)) => {
                    if let Some(run) = instance.run.as_mut() {
                        let sent_us = (u64::from(bytes) * 1_000_000).div_ceil(bytes_per_s);
                        run.out_free_us = run.out_free_us.max(now_us) + sent_us * run.slowness;
                        took_us += run.out_free_us - now_us;
                    }
                    Reply::Value
                }
                None => Reply::Missing,
            },
            Op::Put(key, hash, length) => {
                let is_stored = instance.holding.put(key, length, hash);
                Self::changed(instance, key);
                if is_stored { Reply::Stored } else { Reply::Missing }
            }
            Op::Delete(key) => {
                instance.holding.delete(&key);
                Self::changed(instance, key);
                Reply::Stored
            }
            Op::Ping | Op::Backup => return,
        };
        if let Some(run) = instance.run.as_mut() {
            run.is_answering = true;
        }
        let began_ms = now_ms;
        self.after(
            took_us,
            Event::Answered {
                member,
                epoch,
                id,
                reply,
                lease_ms,
                began_ms,
            },
        );
        self.send_chunks(member, epoch);
    }

    fn changed(instance: &mut Instance, key: ChunkKey) {
        if let Some(sending) = instance.sending.as_mut() {
            sending.changed(key);
        }
    }

    pub(super) fn answered(
        &mut self,
        member: u16,
        epoch: u64,
        (id, reply): (u32, Reply),
        (lease_ms, began_ms): (u32, u64),
    ) {
        let now_ms = self.now_ms();
        let Some(instance) = self.serving(member, epoch) else {
            return;
        };
        instance.lifetime.served(now_ms, now_ms - began_ms);
        instance.lifetime.promised(now_ms, lease_ms);
        if let Some(run) = instance.run.as_mut() {
            run.is_answering = false;
        }
        self.replies(member, epoch, id, reply, lease_ms);
        self.answer_next(member, epoch);
    }

    fn replies(&mut self, member: u16, epoch: u64, id: u32, reply: Reply, lease_ms: u32) {
        let hop_us = self.setup.cloud.hop_us;
        self.after(
            hop_us,
            Event::Replied {
                member,
                epoch,
                id,
                reply,
                lease_ms,
            },
        );
    }

    /// Looks again when its time may be over; one look is enough.
    fn look_later(&mut self, member: u16, epoch: u64) {
        let now_us = self.now_us;
        let Some(instance) = self.serving(member, epoch) else {
            return;
        };
        let wakes_us = (instance.lifetime.wakes_ms() * 1000).max(now_us);
        if let Some(run) = instance.run.as_mut()
            && run.wakes_us.is_none_or(|known| wakes_us < known)
        {
            run.wakes_us = Some(wakes_us);
            self.at(wakes_us, Event::Wakes { member, epoch });
        }
    }

    pub(super) fn wakes(&mut self, member: u16, epoch: u64) {
        let (now_us, now_ms) = (self.now_us, self.now_ms());
        let Some(instance) = self.serving(member, epoch) else {
            return;
        };
        let Some(run) = instance.run.as_mut() else { return };
        if run.wakes_us != Some(now_us) {
            return;
        }
        run.wakes_us = None;
        // The program looks when it has nothing to answer.
        if run.is_answering || !run.queue.is_empty() {
            return;
        }
        if instance.lifetime.ends(now_ms) {
            let id = instance.id;
            self.end_run(member, id);
        } else {
            self.look_later(member, epoch);
        }
    }

    /// The destination's list is at the source.
    pub(super) fn compares(&mut self, member: u16, epoch: u64, destination: u64) {
        let Some(source) = self.serving(member, epoch) else {
            return;
        };
        let (id, hash) = (source.id, source.holding.hash());
        let Some(there) = self.instance(member, destination).map(|instance| &instance.holding) else {
            return;
        };
        // Equal hashes are equal lists: nothing would be found to be sent.
        let is_equal = there.hash() == hash;
        let there = if is_equal { Vec::new() } else { there.list() };
        if let Some(source) = self.instance(member, id) {
            let here = if is_equal { Vec::new() } else { source.holding.list() };
            source.sending = Some(Sending::new(&here, &there));
        }
        self.send_chunks(member, epoch);
    }

    /// Sends what may go, and ends the backup when nothing is left.
    pub(super) fn send_chunks(&mut self, member: u16, epoch: u64) {
        let (now_us, hop_us, bytes_per_s) = (self.now_us, self.setup.cloud.hop_us, self.setup.cloud.bytes_per_s);
        let Some(source) = self.serving(member, epoch) else {
            return;
        };
        let (Some(sending), Some(run)) = (source.sending.as_mut(), source.run.as_mut()) else {
            return;
        };
        let mut sent = Vec::new();
        while let Some(key) = sending.next_chunk() {
            let chunk = source.holding.peek(&key);
            let bytes = chunk.map_or(0, |(length, _)| u64::from(length.0));
            run.out_free_us = run.out_free_us.max(now_us) + (bytes * 1_000_000).div_ceil(bytes_per_s);
            sent.push((run.out_free_us, key, chunk));
        }
        let is_done = sending.is_done();
        if is_done {
            source.sending = None;
        }
        for (sent_us, key, chunk) in sent {
            self.found.backup_bytes += chunk.map_or(0, |(length, _)| u64::from(length.0));
            self.at(
                sent_us + RELAY_HOPS * hop_us,
                Event::Copies {
                    member,
                    epoch,
                    key,
                    chunk,
                },
            );
        }
        if is_done {
            self.after(2 * RELAY_HOPS * hop_us, Event::BackupEnds { member, epoch });
        }
    }

    /// A chunk is at the destination.
    pub(super) fn copies(&mut self, member: u16, epoch: u64, key: ChunkKey, chunk: Option<(Length, u64)>) {
        let Some(destination) = self.members[usize::from(member)].destination(epoch) else {
            return;
        };
        let Some(instance) = self.instance(member, destination) else {
            return;
        };
        let is_done = match chunk {
            Some((length, hash)) => instance.holding.put(key, length, hash),
            None => {
                instance.holding.delete(&key);
                true
            }
        };
        if let Some(sending) = self.serving(member, epoch).and_then(|source| source.sending.as_mut()) {
            sending.answered(is_done);
            self.send_chunks(member, epoch);
        }
    }

    /// Both sides of a backup end.
    pub(super) fn ends_backup(&mut self, member: u16, epoch: u64, is_done: bool) {
        let (now_us, now_ms) = (self.now_us, self.now_ms());
        let Some((id, began_us, destination)) = self.members[usize::from(member)].take_backing(epoch) else {
            return;
        };
        if let Some(source) = self.serving(member, epoch) {
            source.lifetime.release(now_ms);
            let lease_ms = source.lifetime.lease_ms(now_ms);
            if let Some(run) = source.run.as_mut()
                && run.purpose == Purpose::Serving
            {
                run.backing_us += now_us - began_us;
            }
            let reply = if is_done { Reply::Stored } else { Reply::Missing };
            self.replies(member, epoch, id, reply, lease_ms);
            self.look_later(member, epoch);
        }
        self.found.backups[usize::from(!is_done)] += 1;
        self.end_run(member, destination);
    }
}
