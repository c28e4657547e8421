//! One function, as the proxy uses it: a task that does what [`Link`] decides.
//!
//! Requests wait in order until the function runs and its chunks are known to be the right ones. Those that were sent
//! when it ends are sent again, once; then those that wait hear that the function cannot be reached.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::backup::{Backup, Instances};
use super::connect::{self, Arrival, Incoming, Outgoing};
use super::stats::{Counts, add};
use super::{Got, Inner, Job, unix_ms};
use crate::chunk::Announced;
use crate::engine::EngineError;
use crate::event::{Invocation, Returned, Work, token_text};
use crate::holding::held_bytes;
use crate::link::{Link, Run, Step};
use crate::schedule::is_cold;
use crate::token::{Claim, sign};
use crate::wire::{Frame, Hello};

/// Requests under way on a connection: their bodies may all be in memory.
pub const SENT_MAX: usize = 16;
/// Frames that wait to be sent.
const OUTGOING: usize = 64;
/// How often a request is sent.
pub const ATTEMPTS: u8 = 2;
/// How long a token is good: as long as a function may run.
const TOKEN_MS: u64 = 15 * 60 * 1000;
/// Deletions that are sent together.
pub const TRASH_AT_ONCE: usize = 32;
/// Chunks that a function may announce: more than fit its memory.
const ANNOUNCED_MAX: usize = 4 << 20;
/// Stripes of a function whose lost chunks are computed at once when the loss is found.
pub const REFILLS_MAX: usize = 4096;

/// A request, and how often it was sent.
pub(super) struct Pending {
    pub(super) job: Job,
    pub(super) attempts: u8,
}

/// The events of a member's tasks.
pub(super) enum Event {
    Returned(u64, Result<Returned, EngineError>),
    Warmed(Result<Returned, EngineError>),
    Copied(Result<Returned, EngineError>),
}

/// The frames of connections, each with the number of its connection: the sending and the receiving end.
type Frames = (mpsc::Sender<(u64, Incoming)>, mpsc::Receiver<(u64, Incoming)>);

/// See the module.
pub(crate) struct Member {
    pub(super) index: u16,
    pub(super) inner: Arc<Inner>,
    pub(super) link: Link,
    pub(super) waiting: VecDeque<Pending>,
    pub(super) sent: HashMap<u32, Pending>,
    next_id: u32,
    writer: Option<mpsc::Sender<Outgoing>>,
    /// The chunks that it announced so far, until it has announced all.
    listing: Option<Vec<Announced>>,
    is_warming: bool,
    /// When an invocation returned last.
    returned_ms: Option<u64>,
    pub(super) instances: Instances,
    pub(super) backup: Backup,
    /// The time that backups took of the running invocation.
    pub(super) backing_ms: Arc<AtomicU64>,
    frames: Frames,
    pub(super) events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
}

impl Member {
    pub(crate) fn new(index: u16, epoch: u64, inner: Arc<Inner>) -> Self {
        Self {
            index,
            inner,
            link: Link::new(epoch),
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            next_id: 0,
            writer: None,
            listing: None,
            is_warming: false,
            returned_ms: None,
            instances: Instances::default(),
            backup: Backup::default(),
            backing_ms: Arc::default(),
            frames: mpsc::channel(OUTGOING),
            events: mpsc::channel(8),
        }
    }

    /// Works until the proxy ends.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>, mut arrivals: mpsc::Receiver<Arrival>) {
        loop {
            self.pump();
            let until = self.wakes();
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(Job::Warm) => self.warm(),
                    Some(Job::Backup) => self.want_backup(),
                    Some(job) => self.waiting.push_back(Pending { job, attempts: 0 }),
                    None => return,
                },
                Some(arrival) = arrivals.recv() => self.arrive(arrival),
                Some((epoch, incoming)) = self.frames.1.recv() => self.hear(epoch, incoming),
                Some(event) = self.events.1.recv() => self.note(event),
                () = sleep_ms(until), if until.is_some() => self.overdue(),
            }
            self.publish();
        }
    }

    /// In how many ms something is to be looked at.
    fn wakes(&self) -> Option<u64> {
        let now = self.inner.shared.now_ms();
        let wants = !self.waiting.is_empty();
        let patience = self.link.patience_ends_ms();
        let returning = self.link.return_patience_ends_ms().filter(|_| wants);
        patience
            .into_iter()
            .chain(returning)
            .min()
            .map(|at| at.saturating_sub(now).max(1))
    }

    /// Sends the requests that can be sent, or takes the steps for it.
    fn pump(&mut self) {
        while !self.waiting.is_empty() && !self.is_warming && self.sent.len() < SENT_MAX {
            let is_serving = !self.sent.is_empty();
            match self.link.wanted(self.inner.shared.now_ms(), is_serving) {
                Step::Invoke(epoch) => return self.invoke(epoch),
                Step::Ping => return self.out(Frame::Ping { id: 0 }, Bytes::new()),
                Step::Send if self.listing.is_none() => self.send_next(),
                Step::Send | Step::Wait => return,
            }
        }
    }

    fn send_next(&mut self) {
        let Some(mut pending) = self.waiting.pop_front() else {
            return;
        };
        pending.attempts += 1;
        let is_wanted = match &pending.job {
            Job::Get { reply, .. } => !reply.is_closed(),
            Job::Put { .. } | Job::Warm | Job::Backup => true,
        };
        if !is_wanted {
            return;
        }
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let id = self.next_id;
        let (frame, body) = match &pending.job {
            Job::Get { key, .. } => (Frame::Get { id, key: *key }, Bytes::new()),
            Job::Put { key, hash, bytes, .. } => {
                let hash = *hash;
                (Frame::Put { id, key: *key, hash }, bytes.clone())
            }
            Job::Backup => (self.begin_backup(id), Bytes::new()),
            Job::Warm => return,
        };
        self.sent.insert(id, pending);
        self.link.sent();
        self.out(frame, body);
    }

    /// Hands a frame to the connection's task.
    fn out(&mut self, frame: Frame, body: Bytes) {
        let is_taken = self
            .writer
            .as_ref()
            .is_some_and(|writer| writer.try_send((frame, body)).is_ok());
        if !is_taken {
            self.disconnected();
        }
    }

    pub(super) fn invocation(&self, work: Work, epoch: u64) -> Option<(String, Vec<u8>)> {
        let name = self.inner.config.names[usize::from(self.index)].clone();
        let ends_ms = unix_ms() + TOKEN_MS;
        let claim = Claim {
            name: &name,
            epoch,
            ends_ms,
        };
        let token = token_text(&sign(&self.inner.shared.secret, claim));
        let event = Invocation {
            work,
            name: name.clone(),
            epoch,
            proxy: self.inner.shared.address.clone(),
            key: self
                .inner
                .shared
                .identity
                .as_ref()
                .map(|identity| identity.key().to_owned()),
            token,
            ends_ms,
            unit_ms: self.inner.shared.config.unit_ms,
            memory_bytes: held_bytes(self.inner.config.room_bytes, self.inner.config.memory_bytes),
        };
        Some((name, serde_json::to_vec(&event).ok()?))
    }

    fn invoke(&mut self, epoch: u64) {
        let Some((name, event)) = self.invocation(Work::Serve, epoch) else {
            return;
        };
        let is_backup = |pending: &Pending| matches!(pending.job, Job::Backup);
        let work = if self.waiting.iter().all(is_backup) {
            Work::Backup
        } else {
            Work::Serve
        };
        self.backing_ms = Arc::default();
        let (inner, to, backing_ms) = (
            Arc::clone(&self.inner),
            self.events.0.clone(),
            Arc::clone(&self.backing_ms),
        );
        tokio::spawn(async move {
            let returned = call(&inner, &name, event, work, backing_ms).await;
            let _ = to.send(Event::Returned(epoch, returned)).await;
        });
    }

    /// Invokes it for a moment, unless it runs or ran lately.
    fn warm(&mut self) {
        let idle_ms = self.returned_ms.map(|at| self.inner.shared.now_ms().saturating_sub(at));
        let every = self.inner.shared.config.warm_every.unwrap_or_default();
        if self.is_warming
            || !is_cold(idle_ms, u64::try_from(every.as_millis()).unwrap_or(u64::MAX))
            || self.link.state().0 != Run::Sleeping
            || self.link.is_in_flight()
            || self.link.has_peer()
            || !self.waiting.is_empty()
        {
            return;
        }
        let Some((name, event)) = self.invocation(Work::Warm, self.link.epoch()) else {
            return;
        };
        self.is_warming = true;
        let (inner, to) = (Arc::clone(&self.inner), self.events.0.clone());
        tokio::spawn(async move {
            let warmed = call(&inner, &name, event, Work::Warm, Arc::default()).await;
            let _ = to.send(Event::Warmed(warmed)).await;
        });
    }

    fn arrive(&mut self, arrival: Arrival) {
        let (hello, stream) = match arrival {
            Arrival::Instance(hello, stream) => (hello, stream),
            Arrival::Relay(join, stream) => return self.join(&join, stream),
        };
        if !self.link.connected(self.inner.shared.now_ms(), hello.epoch) {
            tracing::debug!(name = %hello.name, epoch = hello.epoch, "an instance of an old invocation is refused");
            return;
        }
        let (from, to) = tokio::io::split(stream);
        let (writer, outgoing) = mpsc::channel(OUTGOING);
        tokio::spawn(connect::send(to, outgoing));
        tokio::spawn(connect::receive(from, hello.epoch, self.frames.0.clone()));
        self.writer = Some(writer);
        self.compare(&hello);
    }

    /// Compares its chunks with those that it should hold, before it is asked for anything.
    fn compare(&mut self, hello: &Hello) {
        self.listing = None;
        self.seen(hello.instance);
        if hello.hash == self.inner.pool().hash(self.index) {
            return self.send_trash();
        }
        if hello.chunks == 0 {
            self.reconcile(&[]);
            return self.send_trash();
        }
        self.listing = Some(Vec::new());
        self.out(Frame::List { id: 0 }, Bytes::new());
    }

    /// Another instance than the last one was reclaimed.
    fn seen(&mut self, instance: u64) {
        if self.instances.invoked(instance) {
            add(&self.inner.counts.reclaimed, 1);
        }
    }

    fn reconcile(&mut self, held: &[Announced]) {
        let (result, homeless) = {
            let mut pool = self.inner.pool();
            let result = pool.reconcile(self.index, held);
            let most = if self.inner.shared.config.refill_at_once && result.lost > 0 {
                REFILLS_MAX
            } else {
                0
            };
            (result, pool.homeless(self.index, most))
        };
        let counts: &Counts = &self.inner.counts;
        add(&counts.lost_chunks, result.lost as u64);
        add(&counts.resets, result.reset as u64);
        if result.lost > 0 {
            tracing::info!(
                function = self.index,
                lost = result.lost,
                unreadable = result.reset,
                "chunks were lost"
            );
        }
        for (content, stripe) in homeless {
            Inner::repair_later(&self.inner, content, stripe);
        }
    }

    fn send_trash(&mut self) {
        let trash = self.inner.pool().take_trash(self.index, TRASH_AT_ONCE);
        for key in trash {
            self.out(Frame::Delete { id: 0, key }, Bytes::new());
            self.inner.pool().deleted(self.index, &key);
        }
    }

    fn hear(&mut self, epoch: u64, incoming: Incoming) {
        if epoch != self.link.epoch() || self.writer.is_none() {
            return;
        }
        let now = self.inner.shared.now_ms();
        match incoming {
            Incoming::Ended => self.disconnected(),
            Incoming::Frame(frame, body) => match frame {
                Frame::Value { id, lease_ms, .. } => self.reply(now, id, lease_ms, Reply::Value(body)),
                Frame::Missing { id, lease_ms } => self.reply(now, id, lease_ms, Reply::Missing),
                Frame::Stored { id, lease_ms } => self.reply(now, id, lease_ms, Reply::Stored),
                Frame::Pong { lease_ms, .. } => self.link.pong(now, lease_ms),
                Frame::Listed { has_more, chunks, .. } => self.listed(has_more, &chunks),
                Frame::Bye { .. } => {
                    self.link.bye(now);
                    self.disconnected();
                }
                // Frames of proxies.
                _ => self.disconnected(),
            },
        }
    }

    fn listed(&mut self, has_more: bool, chunks: &[Announced]) {
        let Some(mut all) = self.listing.take() else {
            return self.disconnected();
        };
        all.extend_from_slice(chunks);
        if all.len() > ANNOUNCED_MAX {
            return self.disconnected();
        }
        if has_more {
            self.listing = Some(all);
        } else {
            self.reconcile(&all);
            self.send_trash();
        }
    }

    fn reply(&mut self, now: u64, id: u32, lease_ms: u32, reply: Reply) {
        self.link.replied(now, lease_ms);
        let Some(pending) = self.sent.remove(&id) else {
            return;
        };
        match (pending.job, reply) {
            (Job::Get { reply, .. }, Reply::Value(bytes)) => {
                let _ = reply.send(Got::Value(bytes));
            }
            (Job::Get { key, reply }, _) => {
                add(&self.inner.counts.lost_chunks, 1);
                if self.inner.pool().lose(&key) {
                    Inner::repair_later(&self.inner, key.content, key.stripe);
                } else {
                    add(&self.inner.counts.resets, 1);
                }
                let _ = reply.send(Got::Missing);
            }
            (Job::Put { key, hash, reply, .. }, Reply::Stored) => {
                self.inner.pool().stored(self.index, &key, hash);
                let _ = reply.send(true);
            }
            (Job::Put { reply, .. }, _) => {
                let _ = reply.send(false);
            }
            (Job::Backup, reply) => self.end_backup(matches!(reply, Reply::Stored)),
            (Job::Warm, _) => {}
        }
        if self.sent.is_empty() {
            self.send_trash();
        }
    }

    /// The connection is no more: sent requests are sent again.
    fn disconnected(&mut self) {
        if self.writer.take().is_none() {
            return;
        }
        self.link.broken(self.inner.shared.now_ms());
        self.listing = None;
        let mut again: Vec<(u32, Pending)> = self.sent.drain().collect();
        again.sort_by_key(|(id, _)| *id);
        for (_, pending) in again.into_iter().rev() {
            if matches!(pending.job, Job::Backup) {
                self.end_backup(false);
            } else if pending.attempts < ATTEMPTS {
                self.waiting.push_front(pending);
            } else {
                refuse(pending.job);
            }
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Returned(epoch, Ok(_)) => {
                self.returned_ms = Some(self.inner.shared.now_ms());
                self.link.returned(epoch);
            }
            Event::Returned(epoch, Err(error)) => {
                if self.link.returned(epoch) {
                    self.failed(&error);
                }
            }
            Event::Copied(copied) => self.copied(copied.ok()),
            Event::Warmed(warmed) => {
                self.is_warming = false;
                match warmed {
                    Ok(returned) => self.warmed(returned),
                    Err(error) => self.failed(&error),
                }
            }
        }
    }

    /// A warm-up found the function's chunks.
    fn warmed(&mut self, returned: Returned) {
        self.seen(returned.instance);
        let is_right = returned.hash == self.inner.pool().hash(self.index);
        if !is_right && returned.chunks == 0 {
            self.reconcile(&[]);
        }
    }

    /// It cannot be invoked: nobody waits for that.
    fn failed(&mut self, error: &EngineError) {
        add(&self.inner.counts.failed_invocations, 1);
        tracing::warn!(function = self.index, "invoking a function failed: {error}");
        self.writer = None;
        let sent: Vec<Pending> = self.sent.drain().map(|(_, pending)| pending).collect();
        if sent.iter().any(|pending| matches!(pending.job, Job::Backup)) {
            self.end_backup(false);
        }
        let all = sent.into_iter().chain(self.waiting.drain(..));
        all.for_each(|pending| refuse(pending.job));
    }

    fn overdue(&mut self) {
        let is_running = self.link.state().0 != Run::Sleeping;
        if !self.link.overdue(self.inner.shared.now_ms()) {
            return;
        }
        if is_running {
            tracing::info!(function = self.index, "a function does not answer");
            self.disconnected();
        } else {
            // It was invoked and did not come: others are asked.
            self.waiting.drain(..).for_each(|pending| refuse(pending.job));
        }
    }

    fn publish(&self) {
        let mut state = self.inner.members[usize::from(self.index)].state.lock();
        (state.run, state.check) = self.link.state();
        state.instance = self.instances.last();
    }
}

/// The answer that a frame carries.
enum Reply {
    Value(Bytes),
    Missing,
    Stored,
}

fn refuse(job: Job) {
    match job {
        Job::Get { reply, .. } => {
            let _ = reply.send(Got::Unreachable);
        }
        Job::Put { reply, .. } => {
            let _ = reply.send(false);
        }
        Job::Warm | Job::Backup => {}
    }
}

async fn sleep_ms(ms: Option<u64>) {
    tokio::time::sleep(Duration::from_millis(ms.unwrap_or(u64::MAX >> 20))).await;
}

/// Invokes, counts what it costs, and reads the reply. `backing_ms` is what of it a backup took, when it has returned.
pub(super) async fn call(
    inner: &Inner,
    name: &str,
    event: Vec<u8>,
    work: Work,
    backing_ms: Arc<AtomicU64>,
) -> Result<Returned, EngineError> {
    let began = Instant::now();
    let answer = inner.shared.engine.invoke(name, event).await;
    let took = began.elapsed();
    let backing_ms = backing_ms.load(Ordering::Relaxed);
    inner
        .counts
        .invoked(work, took, backing_ms, inner.shared.config.unit_ms);
    let answer = answer?;
    serde_json::from_slice(&answer).map_err(|error| EngineError::Function(error.to_string()))
}
