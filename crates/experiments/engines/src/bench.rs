//! Measurements in processes of their own, and rounds of them.
//!
//! Invariant: at most one runs at a time, and none while somebody else holds the lock.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::engine::Kind;
use crate::load::Load;
use crate::measure::{Outcome, Spec};
use crate::search::{Found, Goal, capacity_for};

/// Asks glibc for memory on huge pages where a library allocates much.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Starts measurements.
pub(crate) struct Bench {
    program: PathBuf,
    lock: Option<File>,
    began: Instant,
}

/// A cache, and how it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// The cache.
    pub(crate) kind: Kind,
    /// Keys at once.
    pub(crate) batch: usize,
}

impl Who {
    /// The name in tables.
    pub(crate) fn name(self) -> String {
        match self.batch {
            1 => self.kind.name().to_owned(),
            batch => format!("{}, {batch} keys at once", self.kind.name()),
        }
    }
}

/// The circumstances that all measurements of a comparison share.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// The keys.
    pub(crate) load: Load,
    /// Threads that share the timed operations.
    pub(crate) threads: usize,
    /// Whether libraries get their memory on huge pages, too.
    pub(crate) huge_pages: bool,
}

impl Bench {
    /// `lock`: a file to be locked during each round.
    pub(crate) fn new(lock: Option<&Path>) -> Result<Self> {
        let lock = lock.map(|path| {
            let opened = File::options().create(true).append(true).open(path);
            opened.with_context(|| format!("{}: the lock can not be opened", path.display()))
        });
        Ok(Self {
            program: std::env::current_exe().context("this program can not be found")?,
            lock: lock.transpose()?,
            began: Instant::now(),
        })
    }

    /// Tells the present step on standard error.
    pub(crate) fn tell(&self, what: &str) {
        let seconds = self.began.elapsed().as_secs();
        // Nothing depends on it: where standard error is closed, it is not said.
        let _ = writeln!(io::stderr(), "{:>3}:{:02}  {what}", seconds / 60, seconds % 60);
    }

    /// Measures each in turn, so often; in every other round from the last to the first. The outcomes of a round are in the
    /// order of `whom`.
    pub(crate) fn rounds(&self, stage: &Stage, whom: &[(Who, u64)], rounds: u32) -> Result<Vec<Vec<Outcome>>> {
        let one_round = |round: u32| {
            let measure = |&(who, capacity): &(Who, u64)| self.measure(stage, who, capacity, stage.load.timed);
            self.undisturbed(|| {
                if round.is_multiple_of(2) {
                    return whom.iter().map(measure).collect();
                }
                let mut outcomes: Vec<_> = whom.iter().rev().map(measure).collect::<Result<_>>()?;
                outcomes.reverse();
                Ok(outcomes)
            })
        };
        (0..rounds).map(one_round).collect()
    }

    /// The capacity at which a cache that was filled comes to `goal` by `figure`, if there is one.
    pub(crate) fn capacity(
        &self,
        stage: &Stage,
        kind: Kind,
        goal: Goal,
        guess: u64,
        figure: impl Fn(&Outcome) -> u64,
    ) -> Result<Option<Found>> {
        let who = Who { kind, batch: 1 };
        capacity_for(goal, guess, |capacity| {
            Ok(figure(&self.undisturbed(|| self.measure(stage, who, capacity, 0))?))
        })
    }

    fn undisturbed<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(lock) = &self.lock else { return action() };
        lock.lock().context("the lock can not be taken")?;
        let done = action();
        lock.unlock().context("the lock can not be released")?;
        done
    }

    fn measure(&self, stage: &Stage, who: Who, capacity: u64, timed: usize) -> Result<Outcome> {
        let load = &stage.load;
        let spec = Spec {
            cache: who.kind,
            capacity,
            batch: who.batch,
            threads: stage.threads,
            keys: load.keys.clone(),
            distinct: load.distinct.clone(),
            fill: load.fill,
            timed,
        };
        let mut command = Command::new(&self.program);
        command.arg("measure").args(spec.arguments()).stderr(Stdio::inherit());
        if stage.huge_pages {
            command.env(HUGE_PAGES.0, HUGE_PAGES.1);
        }
        let what = || format!("{} with {} at capacity {capacity}", who.name(), load.name);
        let output = command
            .output()
            .with_context(|| format!("{} can not be started", what()))?;
        ensure!(output.status.success(), "{}: {}", what(), output.status);
        serde_json::from_slice(&output.stdout).with_context(|| format!("{}: no figures came", what()))
    }
}
