//! Backups of a data folder: one file, taken while the server runs or not, and put back in one step.
//!
//! A backup is a tar archive (POSIX.1-1988 ustar). Its first member lists the others:
//!
//! ```text
//! MANIFEST        tidemark-backup 1 2026-11-27T07:00:00Z
//!                 SHA-256 in hexadecimal, length in bytes, name; a line for each member
//! state.sqlite    tenants, settings, hashes of secrets
//! ledger.sqlite   what was used
//! ...             the keys and tokens that the caller names
//! ```
//!
//! Invariants: each database is one moment of itself, the ledger's not before the state's. A backup appears under its
//! name when it is complete. A restore replaces all files or, after a crash, is completed by the next start. The folder
//! [`READY_NAME`](crate::state::READY_NAME) exists exactly while that is to be done.

mod manifest;
mod restore;
mod take;
#[cfg(test)]
mod tests;

pub use restore::restore;
pub use take::take;

pub use crate::state::FLASH_IDENTITY_NAME;

use tidemark_types::UnixMs;

use crate::ledger::LEDGER_FILE_NAME;
use crate::state::STATE_FILE_NAME;

/// The databases of a data folder, in the order in which they are copied.
const DATABASES: [&str; 2] = [STATE_FILE_NAME, LEDGER_FILE_NAME];

/// A backup that was taken or put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// When it was taken.
    pub taken_at: UnixMs,
    /// Its members, without the manifest.
    pub files: Vec<BackupFile>,
}

/// A member of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its name in the data folder.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// SHA-256 of its content.
    pub hash: [u8; 32],
}
