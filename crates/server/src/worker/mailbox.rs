//! How other threads reach a worker: a waker, and the messages that they leave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::net::TcpStream;
use mio::{Poll, Token, Waker};
use parking_lot::Mutex;

use crate::entrance::Entrance;

/// The token by which the event loop knows its mailbox.
pub(super) const WAKER: Token = Token(usize::MAX);

/// How others reach a worker.
#[derive(Debug)]
pub(crate) struct Mailbox {
    waker: Waker,
    pub(super) arrivals: Mutex<Vec<(TcpStream, Entrance)>>,
    /// Some connections may have to be closed.
    pub(super) wants_sweep: AtomicBool,
    /// Connections of the worker, by place and client, that were given the memory that they waited for.
    pub(super) given: Mutex<Vec<(usize, u64)>>,
    pub(super) has_given: AtomicBool,
    /// Connections of the worker, by place, client and parking, whose scripts have ended.
    pub(super) scripted: Mutex<Vec<(usize, u64, u64)>>,
    pub(super) has_scripted: AtomicBool,
    /// A connection of the worker waits for something to survive a crash.
    pub(super) awaits_flash: AtomicBool,
}

impl Mailbox {
    /// Makes the worker look at everything again.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            // The eventfd's counter is full: the worker is about to wake anyway.
            tracing::debug!(%error, "waking a worker");
        }
    }

    /// Makes the worker look for connections that were killed or whose tenant was removed.
    pub(crate) fn ask_for_sweep(&self) {
        self.wants_sweep.store(true, Ordering::Release);
        self.wake();
    }

    /// Tells the worker that a connection of its has the memory that it waited for.
    pub(crate) fn tell_of_memory(&self, place: usize, client: u64) {
        self.given.lock().push((place, client));
        if !self.has_given.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Tells the worker that the script has ended that a connection of its waits for.
    pub(crate) fn tell_of_script(&self, place: usize, client: u64, parking: u64) {
        self.scripted.lock().push((place, client, parking));
        if !self.has_scripted.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Tells the worker that more may survive a crash than before.
    pub(crate) fn tell_of_flash(&self) {
        if self.awaits_flash.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Gives the worker a new connection.
    pub(crate) fn send(&self, socket: TcpStream, entrance: Entrance) {
        self.arrivals.lock().push((socket, entrance));
        self.wake();
    }
}

/// The parts of a worker before it runs: its end of the mailbox.
pub(crate) struct Station {
    pub(super) poll: Poll,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Station {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok(Self {
            poll,
            mailbox: Arc::new(Mailbox {
                waker,
                arrivals: Mutex::default(),
                wants_sweep: AtomicBool::new(false),
                given: Mutex::default(),
                has_given: AtomicBool::new(false),
                scripted: Mutex::default(),
                has_scripted: AtomicBool::new(false),
                awaits_flash: AtomicBool::new(false),
            }),
        })
    }
}
