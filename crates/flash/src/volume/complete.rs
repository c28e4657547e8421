//! Requests to the device, and the steps when they end.

use std::sync::Arc;

use super::{SUPERBLOCKS, Slot, Staleness, State, Tenant, TenantNumber, Volume};
use crate::buffer::Buffer;
use crate::format::{BLOCK_BYTES, Entry, SEGMENT_BYTES, encode_footer};
use crate::volume::reclaim::Outcome;

/// Writes of a segment are of this size: large enough for any device, small enough that reads pass between them.
const WRITE_BYTES: usize = 256 << 10;
/// How long deaths wait for others to be committed with, for a strict tenant and for one that has no bound.
const STRICT_COMMIT_MS: u64 = 2;
const LAZY_COMMIT_MS: u64 = 1000;

/// Segments that are written and not flushed, at most, before that is done although nothing waits for it.
const UNFLUSHED_MAX: usize = 8;

/// A request to the device.
#[derive(Clone, Debug)]
pub struct Io {
    /// The number by which the end is reported.
    pub id: u64,
    /// The request.
    pub kind: IoKind,
}

/// Kinds of requests.
#[derive(Clone, Debug)]
pub enum IoKind {
    /// Write this part of the buffer there.
    Write {
        /// The offset on the device.
        offset: u64,
        /// The bytes to write.
        bytes: Arc<Buffer>,
        /// The part of it.
        part: std::ops::Range<usize>,
    },
    /// Read so many bytes from there.
    Read {
        /// The offset on the device.
        offset: u64,
        /// How many.
        bytes: usize,
    },
    /// Make durable all that was written before.
    Flush,
}

/// The purpose of a request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnderWay {
    Segment {
        slot: u32,
    },
    Journal,
    /// The end of a commit.
    Commit,
    /// A flush that nothing of the journal waits for.
    Flush,
    Reclaim {
        slot: u32,
    },
    Superblock,
}

impl Volume {
    /// The next request, if there is one.
    pub fn next_io(&mut self) -> Option<Io> {
        self.requests.pop_front()
    }

    /// Whether requests wait or are under way.
    pub fn is_busy(&self) -> bool {
        !self.requests.is_empty() || !self.under_way.is_empty()
    }

    /// Whether the device has something to do at once.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether something becomes due by itself: [`Self::tick`] is to be called every millisecond.
    pub fn is_ticking(&self) -> bool {
        self.journal.waiting_since_ms().is_some() || self.unflushed.len() > UNFLUSHED_MAX || self.is_sweeping()
    }

    /// Begins due requests. To be called whenever something was changed, and every millisecond while anything waits for
    /// the journal.
    pub fn tick(&mut self, now_ms: u64) {
        if self.superblock.is_clean {
            return;
        }
        self.relieve_journal();
        self.sweep_some();
        let is_due = self.journal.is_pressing()
            || match self.journal.waiting_since_ms() {
                Some(since_ms) => now_ms >= since_ms + self.commit_after_ms(),
                // Segments that were written are to be durable some time, too.
                None => self.unflushed.len() > UNFLUSHED_MAX,
            };
        if is_due {
            self.commit(now_ms);
        }
    }

    /// Makes durable all that is known, as soon as the device has done it.
    pub fn commit(&mut self, now_ms: u64) {
        if self.journal.is_committing() || self.is_given_up || self.superblock.is_clean {
            return;
        }
        let (slots, tenants) = (&self.slots, &self.tenants);
        let blocks = self.journal.begin(now_ms, |entry, has_all_ends| {
            is_of_use(entry, slots, tenants, has_all_ends)
        });
        let uuid = self.superblock.uuid;
        self.commit_writes = blocks.len();
        for (at, block) in blocks {
            let bytes = Buffer::copied(&block.encode(&uuid));
            self.write(
                (SUPERBLOCKS + at) * BLOCK_BYTES as u64,
                Arc::new(bytes),
                0..BLOCK_BYTES,
                UnderWay::Journal,
            );
        }
        if self.commit_writes == 0 {
            self.end_commit();
        }
    }

    /// Says how a request ended; of a read, with its bytes.
    pub fn io_done(&mut self, id: u64, result: Result<Option<&[u8]>, ()>, now_ms: u64) {
        let Some(what) = self.under_way.remove(&id) else {
            return;
        };
        self.count_io(result.is_ok(), now_ms);
        match what {
            UnderWay::Segment { slot } => self.segment_written(slot, result.is_ok(), now_ms),
            UnderWay::Journal => {
                self.is_given_up |= result.is_err();
                self.commit_writes -= 1;
                if self.commit_writes == 0 && !self.is_given_up {
                    self.end_commit();
                }
            }
            UnderWay::Flush => self.is_given_up |= result.is_err(),
            UnderWay::Commit => {
                if result.is_err() {
                    self.is_given_up = true;
                } else {
                    self.flushed();
                }
            }
            UnderWay::Reclaim { slot } => self.reclaim_read(slot, result.ok().flatten(), now_ms),
            UnderWay::Superblock => self.is_given_up |= result.is_err(),
        }
        if self.is_given_up {
            self.requests.clear();
        }
    }

    /// Writes all that is in memory, as the first part of a clean end. When nothing is under way any more,
    /// [`Self::write_clean`] is the second one.
    pub fn seal_all(&mut self, now_ms: u64) {
        for number in 0..self.tenants.len() as u32 {
            self.seal(TenantNumber(number));
        }
        self.commit(now_ms);
    }

    /// Whether the journal has nothing to write and no commit under way.
    pub fn is_committed(&self) -> bool {
        !self.journal.is_committing() && self.journal.waiting_since_ms().is_none() && self.unflushed.is_empty()
    }

    /// Whether a segment is being filled.
    pub fn has_open(&self) -> bool {
        self.tenants.iter().flatten().any(|tenant| tenant.open.is_some())
    }

    /// Says on the device that it was left clean. Nothing is written after it.
    pub fn write_clean(&mut self) {
        self.superblock.is_clean = true;
        self.superblock.generation += 1;
        let bytes = Arc::new(Buffer::copied(&self.superblock.encode()));
        let at = self.superblock.generation % SUPERBLOCKS * BLOCK_BYTES as u64;
        self.write(at, bytes, 0..BLOCK_BYTES, UnderWay::Superblock);
        // Another one than a commit's: the journal's blocks may be under way.
        self.request(IoKind::Flush, UnderWay::Flush);
    }

    /// Superblocks, with their places, of another identity: the device's segments are nobody's under it.
    pub(crate) fn disown(&mut self) -> Vec<(u64, Buffer)> {
        for byte in &mut self.superblock.uuid {
            *byte = !*byte;
        }
        self.superblock.generation += SUPERBLOCKS;
        let copy = |copy| (copy * BLOCK_BYTES as u64, Buffer::copied(&self.superblock.encode()));
        (0..SUPERBLOCKS).map(copy).collect()
    }

    /// Ends a tenant's open segment and writes it.
    pub(crate) fn seal(&mut self, number: TenantNumber) {
        let uuid = self.superblock.uuid;
        let Some(tenant) = self.tenant_mut(number) else {
            return;
        };
        let Some(mut open) = tenant.open.take() else {
            return;
        };
        tenant.queue.push_back(open.slot);
        tenant.stats.written_bytes += SEGMENT_BYTES as u64;
        encode_footer(&open.header, &uuid, &open.entries, open.bytes.as_mut());
        let bytes = Arc::new(open.bytes);
        self.slots[open.slot as usize].state = State::Writing {
            left: (SEGMENT_BYTES / WRITE_BYTES) as u8,
            outcome: Outcome::Good,
            bytes: Arc::clone(&bytes),
        };
        let offset = self.slot_offset(open.slot);
        for at in (0..SEGMENT_BYTES).step_by(WRITE_BYTES) {
            let part = at..at + WRITE_BYTES;
            self.write(
                offset + at as u64,
                Arc::clone(&bytes),
                part,
                UnderWay::Segment { slot: open.slot },
            );
        }
    }

    fn segment_written(&mut self, number: u32, is_ok: bool, now_ms: u64) {
        let slot = &mut self.slots[number as usize];
        let State::Writing { left, outcome, .. } = &mut slot.state else {
            return;
        };
        *left -= 1;
        if !is_ok {
            *outcome = Outcome::Failed;
        }
        if *left > 0 {
            return;
        }
        let outcome = *outcome;
        slot.state = State::Sealed;
        self.unflushed.push((number, slot.sequence));
        match outcome {
            Outcome::Good => self.retire_if_dead(number, now_ms),
            Outcome::Failed => self.quarantine(number, now_ms),
            Outcome::Unwanted => self.free_slot(number, now_ms),
        }
    }

    fn flushed(&mut self) {
        self.journal.end();
        for (number, sequence) in std::mem::take(&mut self.flushing) {
            let slot = &mut self.slots[number as usize];
            if slot.sequence == sequence {
                slot.previous = None;
            }
        }
        self.reuse_freed();
    }

    /// Slots are free of which the journal says so durably, and the index has nothing.
    pub(crate) fn reuse_freed(&mut self) {
        let is_free = |slot: &Slot| {
            !slot.is_unswept && matches!(slot.state, State::Freeing(barrier) if self.journal.is_durable(barrier))
        };
        let (free, freeing) = self
            .freeing
            .iter()
            .partition(|slot| is_free(&self.slots[**slot as usize]));
        self.freeing = freeing;
        for slot in Vec::<u32>::from_iter(free) {
            self.slots[slot as usize].state = State::Free;
            self.free.push_back(slot);
        }
    }

    pub(crate) fn request_read(&mut self, slot: u32) {
        let kind = IoKind::Read {
            offset: self.slot_offset(slot),
            bytes: SEGMENT_BYTES,
        };
        self.request(kind, UnderWay::Reclaim { slot });
    }

    /// Makes the commit durable whose blocks are written.
    fn end_commit(&mut self) {
        let written = std::mem::take(&mut self.unflushed);
        self.flushing.extend(written);
        self.request(IoKind::Flush, UnderWay::Commit);
    }

    fn write(&mut self, offset: u64, bytes: Arc<Buffer>, part: std::ops::Range<usize>, what: UnderWay) {
        self.request(IoKind::Write { offset, bytes, part }, what);
    }

    fn request(&mut self, kind: IoKind, what: UnderWay) {
        let id = self.next_io;
        self.next_io += 1;
        self.under_way.insert(id, what);
        self.requests.push_back(Io { id, kind });
    }

    /// How long a death may wait for its commit: half of the strictest tenant's bound, so that the commit ends within it.
    fn commit_after_ms(&self) -> u64 {
        let of_tenant = |tenant: &Tenant| match tenant.staleness {
            Staleness::Strict => STRICT_COMMIT_MS,
            Staleness::Bounded(ms) => u64::from(ms / 2),
            Staleness::None => LAZY_COMMIT_MS,
        };
        self.tenants
            .iter()
            .flatten()
            .map(of_tenant)
            .min()
            .unwrap_or(LAZY_COMMIT_MS)
    }
}

/// Whether an entry of the journal still says something that nothing else does. `has_all_ends`: whether the journal has, with
/// the commit that is being made, every segment's end.
pub(crate) fn is_of_use(entry: &Entry, slots: &[Slot], tenants: &[Option<Tenant>], has_all_ends: bool) -> bool {
    match *entry {
        Entry::Kill { slot, sequence, .. } => slots.get(slot as usize).is_some_and(|slot| {
            let is_ended = match slot.state {
                State::Free => true,
                State::Freeing(_) | State::Quarantined => has_all_ends,
                _ => false,
            };
            slot.sequence == sequence && !is_ended
        }),
        Entry::Free { slot, sequence } => {
            let is_there = |slot: &Slot| slot.sequence == sequence || slot.previous == Some(sequence);
            slots.get(slot as usize).is_some_and(is_there)
        }
        Entry::Flush { tenant, db, sequence } => tenants
            .iter()
            .flatten()
            .find(|other| other.uuid.short() == tenant)
            .is_none_or(|tenant| tenant.is_last_flush(db, sequence)),
    }
}
