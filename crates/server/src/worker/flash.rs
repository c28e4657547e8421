//! The reads of flash that commands wait for: a queue for each worker, in its own event loop.
//!
//! Invariant: each wait of a parked connection is in exactly one place, waiting to be read, being read, or waiting to be
//! durable. A connection that is gone, or parked anew, is told apart by its client's and its parking's number.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use tidemark_flash::device::{Done, Queue, Request, evented};
use tidemark_flash::{Barrier, Buffer, Read};
use tidemark_plane::{Flash, Purpose};
use tidemark_types::UnixMs;

use super::{Member, Worker};
use crate::suspend::{FLASH_DEADLINE, Parked, READ_BYTES_MAX, READS_MAX, Segment, Share, Wait};
use crate::tenant::Tenant;

/// A worker's reads.
pub(super) struct Reads {
    flash: Arc<Flash>,
    queue: Box<dyn Queue>,
    event: Arc<OwnedFd>,
    under_way: HashMap<u64, (Waiter, Reading)>,
    under_way_bytes: usize,
    waiting: VecDeque<(Waiter, Reading)>,
    durable: Vec<(Waiter, Barrier)>,
    next: u64,
    done: Vec<Done>,
    /// The event was told.
    has_ended: bool,
}

/// The bytes that a command waits for.
enum Reading {
    /// The bytes that decide about a key.
    Item(Read, Purpose),
    /// A segment of a walk over all keys.
    Segment(Arc<Segment>),
}

impl Reading {
    fn bytes(&self) -> usize {
        match self {
            Self::Item(read, _) => read.bytes,
            Self::Segment(segment) => segment.read.bytes(),
        }
    }

    fn offset(&self) -> u64 {
        match self {
            Self::Item(read, _) => read.offset,
            Self::Segment(segment) => segment.read.offset,
        }
    }

    /// Takes what was read, or the failure. Something else may have to be read then.
    fn end(self, tenant: &Tenant, bytes: Option<Buffer>, now: UnixMs) -> Option<Self> {
        let tier = tenant.tier.as_ref()?;
        match self {
            Self::Item(read, purpose) => {
                let bytes = bytes.as_ref().map(Buffer::as_ref).ok_or(());
                let again = tier.land(&tenant.store, (read, purpose), bytes, now)?;
                Some(Self::Item(again, purpose))
            }
            Self::Segment(segment) => {
                if !segment.end(bytes) {
                    tier.flash().store().lose(&segment.read);
                }
                None
            }
        }
    }
}

/// The command that waits.
struct Waiter {
    place: usize,
    client: u64,
    parking: u64,
    share: Share,
}

impl Reads {
    /// Reads whose ends a poll tells by this token.
    pub(super) fn new(flash: &Arc<Flash>, registry: &Registry, token: Token) -> io::Result<Self> {
        let (queue, event) = evented(flash.store().device(), READS_MAX as u32)?;
        registry.register(&mut SourceFd(&event.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self {
            flash: Arc::clone(flash),
            queue,
            event,
            under_way: HashMap::new(),
            under_way_bytes: 0,
            waiting: VecDeque::new(),
            durable: Vec::new(),
            next: 0,
            done: Vec::new(),
            has_ended: false,
        })
    }

    /// Notes that requests have ended.
    pub(super) fn note_event(&mut self) {
        self.has_ended = true;
    }

    /// Whether somebody waits for something to survive a crash.
    pub(super) fn awaits_durable(&self) -> bool {
        !self.durable.is_empty()
    }

    /// Begins as many reads as may be under way.
    fn begin(&mut self) {
        let mut has_begun = false;
        while let Some((_, read)) = self.waiting.front()
            && self.under_way.len() < READS_MAX
            && (self.under_way.is_empty() || self.under_way_bytes + read.bytes() <= READ_BYTES_MAX)
            && let Some((waiter, read)) = self.waiting.pop_front()
        {
            let request = Request::Read {
                offset: read.offset(),
                buffer: Buffer::zeroed(read.bytes()),
            };
            self.queue.submit(self.next, request);
            self.under_way_bytes += read.bytes();
            self.under_way.insert(self.next, (waiter, read));
            self.next += 1;
            has_begun = true;
        }
        if has_begun {
            self.queue.begin();
        }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        tracing::trace!(event = self.event.as_raw_fd(), "a worker's reads end");
    }
}

impl Worker {
    /// Parks the connections of a group whose first commands wait.
    #[cold]
    pub(super) fn park(&mut self, group: &mut [Member], now: UnixMs) {
        let mut waits = std::mem::take(&mut self.turn.waits);
        for (member, wait) in waits.drain(..) {
            let (place, connection) = &mut group[member];
            let Some(tenant) = &connection.session.tenant else {
                continue;
            };
            let parked = connection.parked.get_or_insert_with(|| {
                self.parkings += 1;
                Parked {
                    number: self.parkings,
                    left: 0,
                    since: now,
                    reading_since: None,
                    share: None,
                }
            });
            parked.left += 1;
            if matches!(wait, Wait::Read(..)) {
                parked.reading_since.get_or_insert_with(Instant::now);
            }
            let read_bytes = wait.read_bytes();
            if read_bytes > 0 {
                parked.share.get_or_insert_with(|| Share::of_command(tenant));
            }
            let waiter = Waiter {
                place: *place,
                client: connection.session.client.id,
                parking: parked.number,
                share: Share::of_read(tenant, read_bytes),
            };
            match (wait, &mut self.reads) {
                (Wait::Script(job), _) => job.wait(&self.mailbox, waiter.place, waiter.client, waiter.parking),
                (Wait::Read(read, purpose), Some(reads)) => {
                    reads.waiting.push_back((waiter, Reading::Item(read, purpose)));
                }
                (Wait::Segment(segment), Some(reads)) => reads.waiting.push_back((waiter, Reading::Segment(segment))),
                (Wait::Durable(barrier), Some(reads)) => reads.durable.push((waiter, barrier)),
                // There is no flash to wait for.
                (_, None) => parked.left -= 1,
            }
        }
        self.turn.waits = waits;
        let Some(reads) = &mut self.reads else { return };
        if reads.awaits_durable() {
            self.mailbox.awaits_flash.store(true, Ordering::SeqCst);
            // It may be durable since it was looked for.
            self.mailbox.wake();
        }
        reads.begin();
    }

    /// Takes completed reads, and has connections go on that wait for nothing any more.
    pub(super) fn land(&mut self, now: UnixMs) {
        let Some(reads) = &mut self.reads else { return };
        let mut landed = Vec::new();
        if std::mem::take(&mut reads.has_ended) {
            let mut done = std::mem::take(&mut reads.done);
            reads.queue.take(&mut done);
            for Done { token, result, buffer } in done.drain(..) {
                let Some((waiter, read)) = reads.under_way.remove(&token) else {
                    continue;
                };
                reads.under_way_bytes -= read.bytes();
                let began = Instant::now();
                let tenant = &waiter.share.tenant;
                let again = read.end(tenant, buffer.filter(|_| result.is_ok()), now);
                self.cpu.keep(&tenant.store, began.elapsed());
                match again {
                    Some(read) => reads.waiting.push_back((waiter, read)),
                    None => landed.push(waiter),
                }
            }
            reads.done = done;
        }
        if reads.awaits_durable() {
            let store = reads.flash.store();
            landed.extend(
                reads
                    .durable
                    .extract_if(.., |(_, barrier)| store.is_settled(*barrier))
                    .map(|(waiter, _)| waiter),
            );
            self.mailbox
                .awaits_flash
                .store(reads.awaits_durable(), Ordering::SeqCst);
        }
        reads.begin();
        for waiter in landed {
            waiter.share.tenant.touch();
            self.unpark(waiter.place, waiter.client, waiter.parking);
        }
    }

    /// Has connections go on whose scripts have ended.
    #[inline]
    pub(super) fn take_scripted(&mut self) {
        if self.mailbox.has_scripted.load(Ordering::Acquire) {
            self.mailbox.has_scripted.store(false, Ordering::Release);
            let ended = std::mem::take(&mut *self.mailbox.scripted.lock());
            for (place, client, parking) in ended {
                self.unpark(place, client, parking);
            }
        }
    }

    /// One of the waits of a connection is over.
    fn unpark(&mut self, place: usize, client: u64, parking: u64) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let is_its = |parked: &Parked| parked.number == parking;
        let is_waiting = connection.session.client.id == client && connection.parked.as_ref().is_some_and(is_its);
        if !is_waiting {
            return;
        }
        if let Some(parked) = &mut connection.parked {
            parked.left -= 1;
            if parked.left > 0 {
                return;
            }
        }
        let reading_since = connection.parked.take().and_then(|parked| parked.reading_since);
        let tenant = connection.session.tenant.as_ref();
        if let Some((since, tier)) = reading_since.zip(tenant.and_then(|tenant| tenant.tier.as_ref())) {
            tier.note_wait(since.elapsed().as_micros() as u64);
        }
        connection.has_leftover = true;
        // Whether the system takes them is not known: it was not asked.
        connection.is_writable |= std::mem::take(&mut connection.is_withheld);
        self.queue(place, false);
    }

    /// Has a connection go on for which flash takes too long: items that did not come are misses. Whether it was parked
    /// at all.
    pub(super) fn end_parking(&mut self, place: usize, now: UnixMs) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let is_late = |parked: &Parked| now.since(parked.since) >= FLASH_DEADLINE;
        // A write that is not durable is not acknowledged, however long that takes.
        if connection.parked.as_ref().is_some_and(is_late) && !connection.is_withheld {
            connection.parked = None;
            connection.has_leftover = true;
        }
    }
}
