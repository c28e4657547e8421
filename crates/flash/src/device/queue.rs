//! Many requests at once: a queue over threads, where nothing better is allowed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::Device;
use crate::buffer::Buffer;

/// Threads that wait for the device: more than eight gain little on the devices that were measured.
const THREADS: usize = 8;

/// A request to a device.
#[derive(Debug)]
pub enum Request {
    /// Fill the buffer from there.
    Read {
        /// The offset on the device.
        offset: u64,
        /// The buffer, as long as the wanted bytes.
        buffer: Buffer,
    },
    /// Write this part of the buffer there.
    Write {
        /// The offset on the device.
        offset: u64,
        /// The bytes to write.
        bytes: Arc<Buffer>,
        /// The part of it.
        part: std::ops::Range<usize>,
    },
    /// Make earlier writes durable.
    Flush,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// The token as it was given.
    pub token: u64,
    /// How it went.
    pub result: io::Result<()>,
    /// The bytes that a read brought.
    pub buffer: Option<Buffer>,
}

/// Requests that are under way at once, in no order.
pub trait Queue: Send {
    /// Begins a request.
    fn submit(&mut self, token: u64, request: Request);

    /// Hands the submitted requests to the device, if that is done for several at once.
    fn begin(&mut self) {}

    /// Waits until one has ended, if any is under way, and takes all that have.
    fn wait(&mut self, done: &mut Vec<Done>);

    /// Takes all that have ended, without waiting.
    fn take(&mut self, done: &mut Vec<Done>);

    /// How many are under way.
    fn under_way(&self) -> usize;

    /// The kind of the queue: `threads` or `io_uring`.
    fn name(&self) -> &'static str;
}

/// A queue to a device: its own, or one of threads.
///
/// # Errors
/// The system gives no threads.
pub fn queue(device: &Arc<dyn Device>, depth: u32) -> io::Result<Box<dyn Queue>> {
    match device.ring(depth, None) {
        Some(ring) => Ok(ring),
        None => Ok(Box::new(Threads::new(device)?)),
    }
}

/// A queue for an event loop, which never waits: the event is readable when requests have ended. Requests are begun by
/// [`Queue::begin`].
///
/// # Errors
/// The system gives no event or no threads.
pub fn evented(device: &Arc<dyn Device>, depth: u32) -> io::Result<(Box<dyn Queue>, Arc<OwnedFd>)> {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let queue: Box<dyn Queue> = match device.ring(depth, Some(event.as_fd())) {
        Some(ring) => ring,
        None => Box::new(Threads::with_event(device, Some(&event))?),
    };
    Ok((queue, event))
}

/// A queue whose requests are done by threads.
#[derive(Debug)]
pub struct Threads {
    requests: Option<Sender<(u64, Request)>>,
    done: Receiver<Done>,
    under_way: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// A queue to a device.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn new(device: &Arc<dyn Device>) -> io::Result<Self> {
        Self::with_event(device, None)
    }

    /// The same, which says at an event when something has ended.
    fn with_event(device: &Arc<dyn Device>, event: Option<&Arc<OwnedFd>>) -> io::Result<Self> {
        let (requests, taken) = channel();
        let (ended, done) = channel();
        let taken = Arc::new(Mutex::new(taken));
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let (device, taken, ended) = (Arc::clone(device), Arc::clone(&taken), ended.clone());
            let event = event.map(Arc::clone);
            let work = move || {
                loop {
                    let next = taken.lock().recv();
                    let Ok((token, request)) = next else {
                        return;
                    };
                    if ended.send(perform(&*device, token, request)).is_err() {
                        return;
                    }
                    if let Some(event) = &event {
                        // A counter that is full is readable.
                        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
                    }
                }
            };
            threads.push(
                std::thread::Builder::new()
                    .name(format!("tidemark-flash{number}"))
                    .spawn(work)?,
            );
        }
        Ok(Self {
            requests: Some(requests),
            done,
            under_way: 0,
            threads,
        })
    }
}

fn perform(device: &dyn Device, token: u64, request: Request) -> Done {
    let (result, buffer) = match request {
        Request::Read { offset, mut buffer } => (device.read(offset, buffer.as_mut()), Some(buffer)),
        Request::Write { offset, bytes, part } => (device.write(offset, &(*bytes).as_ref()[part]), None),
        Request::Flush => (device.flush(), None),
    };
    Done { token, result, buffer }
}

impl Queue for Threads {
    fn submit(&mut self, token: u64, request: Request) {
        // The threads live as long as this sender.
        if let Some(requests) = &self.requests
            && requests.send((token, request)).is_ok()
        {
            self.under_way += 1;
        }
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        let before = done.len();
        if self.under_way > 0 {
            done.extend(self.done.recv());
        }
        done.extend(self.done.try_iter());
        self.under_way -= done.len() - before;
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        let before = done.len();
        done.extend(self.done.try_iter());
        self.under_way -= done.len() - before;
    }

    fn under_way(&self) -> usize {
        self.under_way
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.threads.drain(..) {
            // One that panicked has nothing to say here.
            let _ = thread.join();
        }
    }
}
