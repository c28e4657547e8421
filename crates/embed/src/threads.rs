//! The cache's own keeper thread, and the clock.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use tidemark_store::Keeper;
use tidemark_types::{Clock, UnixMs};

/// The wall clock as of the system's last tick, at most a few milliseconds ago, which is enough for expiry. Every
/// operation reads it, and the last tick's time needs no look at a counter.
pub(crate) struct CoarseClock;

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> UnixMs {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
        UnixMs(seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000)
    }
}

/// Says that there is something to do, or that it is over.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    said: Mutex<Said>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Said {
    is_woken: bool,
    is_over: bool,
}

impl Signal {
    pub(crate) fn wake(&self) {
        self.said.lock().is_woken = true;
        self.changed.notify_one();
    }

    fn end(&self) {
        self.said.lock().is_over = true;
        self.changed.notify_one();
    }

    /// Waits until there is something to do, at most so long. `false` if it is over.
    fn wait(&self, idle: Option<Duration>) -> bool {
        let mut said = self.said.lock();
        if !said.is_woken && !said.is_over {
            match idle {
                Some(Duration::ZERO) => {}
                Some(idle) => drop(self.changed.wait_for(&mut said, idle)),
                None => self.changed.wait(&mut said),
            }
        }
        said.is_woken = false;
        !said.is_over
    }
}

/// A thread that drives a keeper until this is dropped.
#[derive(Debug)]
pub(crate) struct KeeperThread {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl KeeperThread {
    pub(crate) fn start(
        mut keeper: Keeper,
        signal: Arc<Signal>,
        clock: Arc<dyn Clock>,
        slice: Duration,
    ) -> io::Result<Self> {
        let waiting = Arc::clone(&signal);
        let keep = move || {
            let mut idle = Some(Duration::ZERO);
            while waiting.wait(idle) {
                idle = keeper.run(clock.now(), slice);
            }
        };
        let thread = std::thread::Builder::new().name("tidemark-keeper".into()).spawn(keep)?;
        Ok(Self {
            signal,
            thread: Some(thread),
        })
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported.
            let _ = thread.join();
        }
    }
}
