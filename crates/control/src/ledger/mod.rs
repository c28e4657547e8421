//! The ledger, `DIR/ledger.sqlite`: the use of tenants, row after row, each with the hash of all before it.
//!
//! One thread writes, all that has come since the last time in one transaction; the control thread never waits for it. While
//! the file cannot be written, entries wait in memory, up to [`PENDING_MAX`]; beyond, the oldest are replaced by one that says
//! so. Whoever reads opens the file for itself, also while the server runs.
//!
//! Invariants: rows are only ever added behind the last one. Rows that are dropped after their time are added up by
//! tenant, month and prices. A row says which were dropped and what the sums are, so that the chain holds and no bill
//! changes.

mod file;
mod read;
mod schema;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidemark_meter::{Entry, Kind};
use tidemark_types::UnixMs;

use crate::error::ControlError;
use crate::metering::LedgerMessage;
use file::LedgerFile;

pub use read::{Carried, LedgerReader, Query, Verified};
pub use schema::LEDGER_FILE_NAME;

/// Batches that wait for the writer: it takes each within milliseconds, so more means that the disk hangs.
const BATCHES_MAX: usize = 64;
/// Entries kept in memory while the file cannot be written: an hour of a thousand tenants, some 20 MiB.
const PENDING_MAX: usize = 65_536;
/// How soon writing is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long rows are kept if nothing else is configured: a year's bills, and time to dispute the last one.
pub const DEFAULT_LEDGER_RETENTION: Duration = Duration::from_secs(400 * 86_400);
/// The current month and the one before must be there to be billed.
pub const MIN_LEDGER_RETENTION: Duration = Duration::from_secs(62 * 86_400);
/// Ten years: longer than books are kept.
pub const MAX_LEDGER_RETENTION: Duration = Duration::from_secs(3660 * 86_400);
/// Rows kept at most, whatever their age: about 2 GiB.
pub const LEDGER_ROWS_MAX: u64 = 8_000_000;

/// The running ledger.
#[derive(Debug)]
pub struct Ledger {
    sender: SyncSender<LedgerMessage>,
    thread: JoinHandle<()>,
    found: u64,
}

impl Ledger {
    /// Opens the ledger in `folder`, or makes it, and starts the thread that writes it. `now` is the present moment: where the
    /// last run did not end in order, a row says that nothing is known until then.
    ///
    /// # Errors
    /// [`Damaged`](ControlError::Damaged), [`Foreign`](ControlError::Foreign), [`Newer`](ControlError::Newer) or
    /// [`File`](ControlError::File), each naming the file; or there is no thread to be had.
    pub fn start(folder: &Path, retention: Duration, now: UnixMs) -> Result<Self, ControlError> {
        let file = LedgerFile::open(folder)?;
        let found = file.last_sequence();
        let gap = file.gap_until(now)?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let mut writer = Writer {
            file,
            retention,
            pending: gap.into_iter().collect(),
            has_failed: false,
        };
        let run = move || {
            if let Err(error) = crate::process::lower_priority() {
                tracing::debug!(%error, "the ledger's thread runs at the priority of the workers");
            }
            writer.run(&receiver);
        };
        let thread = std::thread::Builder::new().name("tidemark-ledger".into()).spawn(run);
        let thread = thread.map_err(|error| ControlError::System {
            what: "a thread",
            detail: error.to_string(),
        })?;
        Ok(Self { sender, thread, found })
    }

    /// The last row that was there at the start.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// The receiver of entries.
    pub fn sender(&self) -> SyncSender<LedgerMessage> {
        self.sender.clone()
    }

    /// The prices from a file, so that rows that name them can be priced from the ledger alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_prices(folder: &Path, version: &str, text: &str) -> Result<(), ControlError> {
        file::note_prices(folder, version, text)
    }

    /// Writes the entries that have come until now, and ends.
    pub fn stop(self) {
        // An error means that the thread is gone, which the join notices.
        let _ = self.sender.send(LedgerMessage::End);
        let _ = self.thread.join();
    }
}

/// The writing thread.
struct Writer {
    file: LedgerFile,
    retention: Duration,
    pending: VecDeque<Entry>,
    has_failed: bool,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<LedgerMessage>) {
        self.write();
        loop {
            let message = if self.pending.is_empty() {
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                receiver.recv_timeout(RETRY)
            };
            let is_end = match message {
                Ok(LedgerMessage::Entries(entries)) => {
                    self.pending.extend(entries);
                    bound(&mut self.pending, PENDING_MAX);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Ok(LedgerMessage::End) | Err(RecvTimeoutError::Disconnected) => true,
            };
            self.write();
            if is_end {
                return;
            }
        }
    }

    fn write(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let newest = self.pending.iter().map(|entry| entry.to).max().unwrap_or_default();
        let entries = self.pending.make_contiguous();
        match self.file.append(entries) {
            Ok(()) => {
                if std::mem::take(&mut self.has_failed) {
                    tracing::info!(rows = self.pending.len(), "the ledger is written again");
                }
                self.pending.clear();
                if let Err(error) = self.file.trim(newest, self.retention, LEDGER_ROWS_MAX) {
                    tracing::warn!("old rows of the ledger can not be dropped: {error}");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::error!(
                        waiting = self.pending.len(),
                        "the ledger can not be written, its entries wait: {error}"
                    );
                }
            }
        }
    }
}

/// Replaces the oldest entries by a gap if there are too many.
fn bound(pending: &mut VecDeque<Entry>, most: usize) {
    if pending.len() <= most {
        return;
    }
    let dropped: Vec<Entry> = pending.drain(..pending.len() - most / 2).collect();
    let from = dropped.iter().map(|entry| entry.from).min().unwrap_or_default();
    let to = dropped.iter().map(|entry| entry.to).max().unwrap_or_default();
    let note = format!("{} entries were lost: the ledger could not be written", dropped.len());
    pending.push_front(Entry::event(Kind::Gap, from, to, note));
}

#[cfg(test)]
mod tests;
