//! The counts of each command of RESP, its errors, and how fast counts grow.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_protocol::resp::command::{CommandId, Row};
use tidemark_types::UnixMs;

use super::COMMANDS_MAX;

/// The counts of each RESP command (INFO's commandstats and errorstats).
#[derive(Debug)]
pub(crate) struct CommandCounts {
    /// The calls since the tenant last reset its statistics.
    pub(super) calls: [AtomicU64; COMMANDS_MAX],
    /// Those that did what they were asked, since it was created in this process: bills are not reset.
    pub(super) done: [AtomicU64; COMMANDS_MAX],
    errors: Mutex<Errors>,
    rates: Mutex<RateSample>,
}

impl Default for CommandCounts {
    fn default() -> Self {
        Self {
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            done: std::array::from_fn(|_| AtomicU64::new(0)),
            errors: Mutex::default(),
            rates: Mutex::default(),
        }
    }
}

/// Errors that were answered. Both lists are as long as there are codes and commands at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errors {
    /// The errors by their first word.
    pub(crate) by_code: Vec<(String, u64)>,
    pub(crate) by_command: Vec<(CommandId, Failures)>,
}

/// A command's errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Before it was executed: too few arguments, no permission.
    pub(crate) rejected: u64,
    /// While it was.
    pub(crate) failed: u64,
}

/// When an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    BeforeExecution,
    Execution,
}

impl CommandCounts {
    pub(crate) fn calls(&self, id: CommandId) -> u64 {
        self.calls[id as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> Errors {
        self.errors.lock().clone()
    }

    /// Counts an error whose text begins with `code`, of this command if it is known.
    pub(crate) fn note_error(&self, code: &str, row: Option<&Row>, stage: Stage) {
        let mut errors = self.errors.lock();
        match errors.by_code.iter_mut().find(|(known, _)| known == code) {
            Some((_, count)) => *count += 1,
            None => errors.by_code.push((code.to_owned(), 1)),
        }
        let Some(row) = row else { return };
        let at = errors
            .by_command
            .iter()
            .position(|(id, _)| *id == row.id)
            .unwrap_or_else(|| {
                errors.by_command.push((row.id, Failures::default()));
                errors.by_command.len() - 1
            });
        let failures = &mut errors.by_command[at].1;
        match stage {
            Stage::BeforeExecution => failures.rejected += 1,
            Stage::Execution => failures.failed += 1,
        }
    }

    /// Begins all anew but what bills are made from.
    pub(super) fn reset(&self) {
        self.calls.iter().for_each(|calls| calls.store(0, Ordering::Relaxed));
        *self.errors.lock() = Errors::default();
        *self.rates.lock() = RateSample::default();
    }

    /// How much each of some counts has grown per second since someone last asked, at least a second ago.
    pub(crate) fn rates(&self, totals: Totals, now: UnixMs) -> Totals {
        self.rates.lock().rates(totals, now)
    }
}

/// Counts whose growth is of interest: commands, bytes in, bytes out.
pub(crate) type Totals = [u64; 3];

/// The last time that someone asked how fast counts grow.
#[derive(Clone, Copy, Debug, Default)]
struct RateSample {
    at: UnixMs,
    totals: Totals,
    per_second: Totals,
}

impl RateSample {
    fn rates(&mut self, totals: Totals, now: UnixMs) -> Totals {
        let elapsed_ms = now.0.saturating_sub(self.at.0);
        if elapsed_ms >= 1000 {
            if self.at.0 > 0 {
                let growth = |i: usize| totals[i].saturating_sub(self.totals[i]).saturating_mul(1000) / elapsed_ms;
                self.per_second = std::array::from_fn(growth);
            }
            (self.at, self.totals) = (now, totals);
        }
        self.per_second
    }
}
