//! A script that was called: what it is, whom to tell, and its reply.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidemark_protocol::resp::Version;
use tidemark_types::Permissions;

use crate::clients::Client;
use crate::tenant::Tenant;
use crate::transaction::Transaction;
use crate::worker::Mailbox;

/// A script that was called.
pub(crate) struct Job {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) client: Arc<Client>,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) permissions: Permissions,
    /// It may not write (EVAL_RO).
    pub(crate) is_read_only: bool,
    /// Its text; it is only made known if it has no keys and arguments because it is only loaded.
    pub(crate) text: Arc<[u8]>,
    pub(crate) kind: Kind,
    state: Mutex<State>,
    /// Nobody waits for it any more.
    pub(super) is_abandoned: AtomicBool,
    /// Somebody asked for its end.
    pub(super) is_killed: AtomicBool,
}

/// The action for a script.
#[derive(Debug)]
pub(crate) enum Kind {
    /// It is made known.
    Load,
    /// It is run.
    Run { keys: Vec<Box<[u8]>>, args: Vec<Box<[u8]>> },
    /// A transaction with scripts in it is run, of which the job has no text. Only the thread that runs it locks it.
    Transaction(Mutex<Box<Transaction>>),
}

/// How far a job is.
enum State {
    Pending(Option<Waiter>),
    Done(Vec<u8>),
}

/// Whom to tell.
struct Waiter {
    mailbox: Arc<Mailbox>,
    place: usize,
    client: u64,
    parking: u64,
}

impl Waiter {
    fn tell(&self) {
        self.mailbox.tell_of_script(self.place, self.client, self.parking);
    }
}

/// The caller of a script, and the arguments.
pub(crate) struct Caller {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) client: Arc<Client>,
    pub(crate) db: u8,
    pub(crate) version: Version,
    pub(crate) permissions: Permissions,
}

impl Job {
    pub(crate) fn new(caller: Caller, is_read_only: bool, text: Arc<[u8]>, kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            tenant: caller.tenant,
            client: caller.client,
            db: caller.db,
            version: caller.version,
            permissions: caller.permissions,
            is_read_only,
            text,
            kind,
            state: Mutex::new(State::Pending(None)),
            is_abandoned: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
        })
    }

    /// Has a parked connection told when the job is done.
    pub(crate) fn wait(&self, mailbox: &Arc<Mailbox>, place: usize, client: u64, parking: u64) {
        let waiter = Waiter {
            mailbox: Arc::clone(mailbox),
            place,
            client,
            parking,
        };
        match &mut *self.state.lock() {
            State::Pending(waiting) => *waiting = Some(waiter),
            State::Done(_) => waiter.tell(),
        }
    }

    /// The reply, once it is there.
    pub(crate) fn reply(&self) -> Option<Vec<u8>> {
        match &mut *self.state.lock() {
            State::Pending(_) => None,
            State::Done(reply) => Some(std::mem::take(reply)),
        }
    }

    pub(super) fn end(&self, reply: Vec<u8>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Done(reply));
        if let State::Pending(Some(waiter)) = before {
            waiter.tell();
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A connection's hold on its script: one that is let go before it began is not run.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) job: Arc<Job>,
    /// Memory that the job holds, as far as it is the connection's.
    pub(crate) bytes: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.job.is_abandoned.store(true, Ordering::Relaxed);
    }
}
