//! How much a run has taken, and whether it has to end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::Error;

use crate::fault::Stopped;
use crate::limits::{LOOKS_MIN, STEPS_PER_LOOK};

/// Looks at a run every few hundred steps, and says whether it has to end.
pub type Watchman = Rc<dyn Fn() -> Option<Stopped>>;

/// The bounds of the run that is under way.
#[derive(Default)]
pub(crate) struct Bounds {
    steps: Cell<u64>,
    looked_at: Cell<u64>,
    steps_max: Cell<u64>,
    steps_per_look: Cell<u32>,
    stopped: Cell<Option<Stopped>>,
    watchman: RefCell<Option<Watchman>>,
}

impl Bounds {
    /// Begins a run. A short one is looked at more often: it may be short because others wait for it.
    pub(crate) fn begin(&self, steps_max: u64, watchman: Watchman) {
        self.steps.set(0);
        self.looked_at.set(0);
        self.steps_max.set(steps_max);
        let part = u32::try_from(steps_max / LOOKS_MIN).unwrap_or(u32::MAX);
        self.steps_per_look.set(part.clamp(1, STEPS_PER_LOOK));
        self.stopped.set(None);
        *self.watchman.borrow_mut() = Some(watchman);
    }

    /// Ends it. Returns how many steps it took, and why it was ended from outside, if it was.
    pub(crate) fn end(&self) -> (u64, Option<Stopped>) {
        *self.watchman.borrow_mut() = None;
        (self.steps.get(), self.stopped.take())
    }

    /// Steps between two looks at the run.
    pub(crate) fn steps_per_look(&self) -> u32 {
        self.steps_per_look.get()
    }

    /// Whether the run has to end, and nothing may go on that catches an error.
    pub(crate) fn is_over(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Takes steps.
    ///
    /// # Errors
    /// The run has to end.
    pub(crate) fn take(&self, steps: u64) -> mlua::Result<()> {
        let over = || Err(Error::runtime("the script is stopped"));
        if self.stopped.get().is_some() {
            return over();
        }
        let taken = self.steps.get().saturating_add(steps);
        self.steps.set(taken);
        if taken - self.looked_at.get() < u64::from(self.steps_per_look.get()) {
            return Ok(());
        }
        self.looked_at.set(taken);
        let watchman = self.watchman.borrow().clone();
        // Without a watchman no run is under way: an engine is being made.
        let stopped = match &watchman {
            Some(_) if taken > self.steps_max.get() => Some(Stopped::Steps),
            Some(watchman) => watchman(),
            None => None,
        };
        self.stopped.set(stopped);
        if stopped.is_some() { over() } else { Ok(()) }
    }
}
