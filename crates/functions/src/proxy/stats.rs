//! The counts, and the cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::{Functions, Inner};
use crate::availability::{Pool, Reclaim, availability};
use crate::cost::{Prices, billed_ms};
use crate::event::Work;
use crate::link::{Check, Run};

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters since the start.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: AtomicU64,)+
            /// When a chunk counts as late.
            pub(crate) latency: super::read::Latency,
        }

        /// Totals since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl std::iter::Sum for Totals {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| Self {
                    $($name: sum.$name + one.$name,)+
                })
            }
        }

        impl Counts {
            fn totals(&self) -> Totals {
                Totals {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                }
            }
        }
    };
}

counts! {
    /// Reads of stripes that functions answered.
    hits,
    /// Reads of stripes that were not there.
    misses,
    /// Bytes that reads returned.
    read_bytes,
    /// Stripes that were written.
    written_stripes,
    /// Bytes that were written, before they were coded.
    written_bytes,
    /// Stripes that had too few chunks left to be read.
    resets,
    /// Reads for which lost or late chunks were computed.
    decoded,
    /// Reads that asked for more chunks because one was late.
    hedged,
    /// Chunks that functions had lost.
    lost_chunks,
    /// Lost chunks that were computed and stored again.
    repaired_chunks,
    /// Chunks that were moved out of functions that are not needed.
    moved_chunks,
    /// Chunks with other bytes than were stored.
    corrupt_chunks,
    /// Objects that were evicted.
    evicted,
    /// Instances that were seen to be other ones than before.
    reclaimed,
    /// Invocations that served requests.
    serving_invocations,
    /// Their durations in ms, in whole units.
    serving_ms,
    /// Invocations that kept functions warm.
    warm_invocations,
    /// Their durations in ms, in whole units.
    warm_ms,
    /// Invocations that began or ended a backup.
    backup_invocations,
    /// Their durations in ms, in whole units, and what backups took of invocations that served requests.
    backup_ms,
    /// Invocations that failed.
    failed_invocations,
    /// Backups after which two instances held the same.
    backups,
    /// Backups that were not finished.
    failed_backups,
    /// Bytes between the instances that were brought in step.
    backup_bytes,
}

impl Counts {
    /// Counts an invocation that took so long. The cloud measures a little less: the way there and back is in it.
    ///
    /// `backing_ms` of it went into a backup beside what it was invoked for.
    pub(crate) fn invoked(&self, work: Work, took: Duration, backing_ms: u64, unit_ms: u32) {
        let billed_ms = billed_ms(took, unit_ms.into());
        let (invocations, ms) = match work {
            Work::Serve => (&self.serving_invocations, &self.serving_ms),
            Work::Warm => (&self.warm_invocations, &self.warm_ms),
            Work::Backup => (&self.backup_invocations, &self.backup_ms),
        };
        let backing_ms = backing_ms.min(billed_ms);
        add(invocations, 1);
        add(ms, billed_ms - backing_ms);
        add(&self.backup_ms, backing_ms);
    }
}

impl Totals {
    /// The amounts paid for functions with so much memory: serving, keeping warm, backups.
    pub fn spent(&self, memory_bytes: u64) -> [Spent; 3] {
        let gb = memory_bytes as f64 / f64::from(1 << 30);
        let of = |invocations, ms: u64| Spent {
            invocations,
            gb_seconds: ms as f64 / 1000.0 * gb,
        };
        [
            of(self.serving_invocations, self.serving_ms),
            of(self.warm_invocations, self.warm_ms),
            of(self.backup_invocations, self.backup_ms),
        ]
    }

    /// The share of reads that functions answered, of those of stripes that they should have had.
    pub fn availability(&self) -> f64 {
        let asked = self.hits + self.resets;
        if asked == 0 {
            1.0
        } else {
            self.hits as f64 / asked as f64
        }
    }
}

/// The amount paid for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Invocations.
    pub invocations: u64,
    /// Memory times the time for which it is paid.
    pub gb_seconds: f64,
}

impl Spent {
    /// Both together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            invocations: self.invocations + more.invocations,
            gb_seconds: self.gb_seconds + more.gb_seconds,
        }
    }

    /// In dollars.
    pub fn dollars(&self, prices: &Prices) -> f64 {
        self.invocations as f64 * prices.invocation + self.gb_seconds * prices.gb_second
    }
}

/// One function's state.
#[derive(Clone, Copy, Debug)]
pub struct FunctionState {
    /// Whether it runs.
    pub run: Run,
    /// How certain that is.
    pub check: Check,
    /// The instance that was seen last.
    pub instance: Option<u64>,
}

impl Default for FunctionState {
    fn default() -> Self {
        Self {
            run: Run::Sleeping,
            check: Check::Unvalidated,
            instance: None,
        }
    }
}

/// The state of a pool now.
#[derive(Clone, Debug)]
pub struct Status {
    /// Totals since the start.
    pub totals: Totals,
    /// Functions there are.
    pub functions: usize,
    /// Functions that take new chunks.
    pub functions_in_use: usize,
    /// Memory of each.
    pub memory_bytes: u64,
    /// Bytes of chunks.
    pub used_bytes: u64,
    /// Bytes of chunks that there is room for.
    pub room_bytes: u64,
    /// Objects of which something is held.
    pub objects: usize,
    /// The expected loss, once enough was seen.
    pub expected: Option<Expected>,
    /// Each function's name, state, chunks and bytes of chunks.
    pub states: Vec<(String, FunctionState, usize, u64)>,
}

/// The result of the paper's model for the functions that were seen to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// How many are reclaimed between two warm-ups.
    pub reclaim: Reclaim,
    /// The probability that an object is lost between two warm-ups (Equation 2).
    pub loss: f64,
    /// The same by Equation 3.
    pub loss_approximate: f64,
    /// That none is lost in an hour.
    pub availability: f64,
}

/// Seconds of the availability that is stated.
const HOUR_S: f64 = 3600.0;

impl Inner {
    /// From what was seen, for objects of the first code; backups are not in the model.
    fn expected(&self, functions: usize) -> Option<Expected> {
        let every = self.shared.config.warm_every?;
        let functions = u32::try_from(functions).ok()?;
        let (_, code) = *self.shared.config.codes.rows().first()?;
        let pool = Pool::new(functions.max(code.chunks()), code).ok()?;
        let reclaim = self.observed.lock().fit(functions)?.reclaim;
        let loss = pool.loss(reclaim);
        let intervals = (HOUR_S / every.as_secs_f64()).round().max(1.0) as u32;
        Some(Expected {
            reclaim,
            loss,
            loss_approximate: pool.loss_approximately(reclaim),
            availability: availability(loss, intervals),
        })
    }
}

impl Functions {
    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        self.inner.counts.totals()
    }

    /// The state of the pool now.
    pub fn status(&self) -> Status {
        let inner: &Inner = &self.inner;
        // Before the lock is taken for the rest: a fit takes a while.
        let in_use = inner.pool().in_use();
        let expected = inner.expected(in_use);
        let pool = inner.pool();
        let names = inner.config.names.iter().zip(&inner.members).enumerate();
        let states = names.map(|(index, (name, member))| {
            let index = index as u16;
            let state = *member.state.lock();
            (name.clone(), state, pool.chunks_of(index), pool.used_by(index))
        });
        Status {
            totals: inner.counts.totals(),
            functions: inner.members.len(),
            functions_in_use: pool.in_use(),
            memory_bytes: inner.config.memory_bytes,
            used_bytes: pool.used_bytes(),
            room_bytes: inner.config.room_bytes * inner.members.len() as u64,
            objects: pool.objects(),
            expected,
            states: states.collect(),
        }
    }
}
