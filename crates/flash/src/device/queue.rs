//! Many requests at once: a queue over threads, where nothing better is allowed.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::Device;
use crate::buffer::Buffer;

/// Threads that wait for the device: more than eight gain little on the devices that were measured.
const THREADS: usize = 8;

/// A request to a device.
#[derive(Debug)]
pub enum Request {
    /// Fill the buffer from there.
    Read {
        /// Where on the device.
        offset: u64,
        /// As long as what is wanted.
        buffer: Buffer,
    },
    /// Write this part of the buffer there.
    Write {
        /// Where on the device.
        offset: u64,
        /// What.
        bytes: Arc<Buffer>,
        /// The part of it.
        part: std::ops::Range<usize>,
    },
    /// Make durable what was written before.
    Flush,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// As it was given.
    pub token: u64,
    /// How it went.
    pub result: io::Result<()>,
    /// Of a read, what was read.
    pub buffer: Option<Buffer>,
}

/// Requests that are under way at once, in no order.
pub trait Queue: Send {
    /// Begins a request.
    fn submit(&mut self, token: u64, request: Request);

    /// Waits until one has ended, if any is under way, and takes all that have.
    fn wait(&mut self, done: &mut Vec<Done>);

    /// How many are under way.
    fn under_way(&self) -> usize;

    /// What it is: `threads` or `io_uring`.
    fn name(&self) -> &'static str;
}

/// A queue to a device: its own, or one of threads.
///
/// # Errors
/// The system gives no threads.
pub fn queue(device: &Arc<dyn Device>, depth: u32) -> io::Result<Box<dyn Queue>> {
    match device.ring(depth) {
        Some(ring) => Ok(ring),
        None => Ok(Box::new(Threads::new(device)?)),
    }
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
        let (requests, taken) = channel();
        let (ended, done) = channel();
        let taken = Arc::new(Mutex::new(taken));
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let (device, taken, ended) = (Arc::clone(device), Arc::clone(&taken), ended.clone());
            let work = move || {
                loop {
                    let next = taken.lock().recv();
                    let Ok((token, request)) = next else {
                        return;
                    };
                    if ended.send(perform(&*device, token, request)).is_err() {
                        return;
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
