//! One script from its beginning to its end, as one step for everybody else.
//!
//! A script reads its tenant's keys and writes into copies of them ([`super::data`]). When it has ended, the shards of
//! the keys that it read are locked. If all of them are unchanged, its writes are done. If not, none is, and it is run
//! again. After [`TRIES`] times it is run once more while the shards of its keys are locked, for a few steps and a short time only.

use std::rc::Rc;

use tidemark_scripts::{Broken, Engine, Script, Stopped, Watchman};
use tidemark_store::thread_cpu_time;

use super::Job;
use super::data::{Committed, Data, Scratch};
use super::thread::error_reply;
use crate::limits::{LOCKED_SCRIPT_STEPS, LOCKED_SCRIPT_TIME};
use crate::shared::Shared;

/// Times that a script is run without a lock.
pub(super) const TRIES: usize = 3;

/// The limits of a script.
#[derive(Clone)]
pub(super) struct Bounds {
    pub(super) steps_max: u64,
    pub(super) watchman: Watchman,
}

impl Bounds {
    /// Those from now on, while shards are locked: others wait meanwhile.
    pub(super) fn locked(&self) -> Self {
        let (watchman, until) = (self.watchman.clone(), thread_cpu_time() + LOCKED_SCRIPT_TIME);
        Self {
            steps_max: LOCKED_SCRIPT_STEPS,
            watchman: Rc::new(move || watchman().or((thread_cpu_time() >= until).then_some(Stopped::Time))),
        }
    }
}

/// The outcome of a script.
pub(super) enum Outcome {
    Reply(Vec<u8>),
    /// It came to the end of its time or steps: what is replied if it gets no more.
    TooLong(Vec<u8>),
}

/// The answer to a script whose keys others write all the time, and that is too long to be run under their locks.
pub(super) const TRY_AGAIN: &str = "TRYAGAIN others changed the script's keys each time while it ran";

/// Runs a script.
///
/// # Errors
/// The engine is of no use any more.
pub(super) fn run(
    script: &Script<'_>,
    job: &Job,
    engine: &mut Engine,
    scratch: &mut Scratch,
    bounds: &Bounds,
    shared: &Shared,
) -> Result<Outcome, Broken> {
    let is_read_only = job.is_read_only || engine.is_read_only(script.name, script.text);
    for attempt in 0..=TRIES {
        let is_last = attempt == TRIES;
        let mut data = Data::new(job, script.keys, is_read_only, scratch, shared);
        let bounds = if is_last {
            data.lock(None);
            bounds.locked()
        } else {
            bounds.clone()
        };
        let run = engine.run(script, job.version, &mut data, bounds.steps_max, bounds.watchman)?;
        match run.stopped {
            Some(Stopped::Killed) => return Ok(Outcome::Reply(run.reply)),
            Some(_) if is_last => return Ok(Outcome::Reply(error_reply(TRY_AGAIN))),
            Some(Stopped::Steps | Stopped::Time) => return Ok(Outcome::TooLong(run.reply)),
            None => {}
        }
        if let Some(reply) = data.fault() {
            return Ok(Outcome::Reply(error_reply(reply)));
        }
        if run.has_failed {
            data.forget_writes();
        }
        if data.commit(None) == Committed::Done {
            // A refused write was not done at all.
            let refused = data.fault().map(error_reply);
            return Ok(Outcome::Reply(refused.unwrap_or(run.reply)));
        }
    }
    Ok(Outcome::Reply(error_reply(TRY_AGAIN)))
}
