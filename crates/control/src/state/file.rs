//! The state file, `DIR/state.sqlite`: the data that outlives the process.
//!
//! Its tables are `tenants` (settings, and what is remembered of an idle one), `secrets` (hashes), `server` (settings)
//! and `checksum` (of all rows and of the schema); `open.rs` has their columns.
//!
//! Invariants: each change is one transaction and durable when its call returns (write-ahead log, `synchronous = FULL`,
//! the log emptied after each). One process at a time works on a folder. A file that is not exactly what this version
//! or an earlier one writes is refused, never replaced. An earlier version's file becomes this one's in one transaction
//! when it is opened.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, params};
use tidemark_types::{TenantId, TenantName, UnixMs};

use super::{ServerSettings, State, StoredSecret, TenantRecord, checksum, open, rows};
use crate::error::ControlError;
use crate::settings::TenantSettings;

/// An open state file. The folder is locked until it is dropped.
#[derive(Debug)]
pub struct StateFile {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) _lock: open::Lock,
}

impl StateFile {
    /// Opens the state file in `folder`, or makes both where there is nothing yet: then with the one tenant `default`.
    ///
    /// # Errors
    /// [`ControlError::InUse`], [`Damaged`](ControlError::Damaged), [`Foreign`](ControlError::Foreign),
    /// [`Newer`](ControlError::Newer) or [`File`](ControlError::File), each naming the file.
    pub fn open(folder: &Path, now: UnixMs) -> Result<Self, ControlError> {
        open::open(folder, now)
    }

    /// The server's settings in the state file of `folder`, which a server may run on; `None` where there is no such file.
    /// Nothing is changed.
    ///
    /// # Errors
    /// As [`Self::open`]'s, but that the file may be in use.
    pub fn peek_server(folder: &Path) -> Result<Option<ServerSettings>, ControlError> {
        let path = folder.join(open::FILE_NAME);
        if !path.exists() {
            return Ok(None);
        }
        let connection = open::connect_to_read(&path)?;
        rows::server(&connection, &path).map(Some)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One transaction of these tenants' rows and the server's: all of it or, after an error or a crash, nothing. `work`
    /// says which tenant it added.
    fn change<T>(
        &mut self,
        tenants: &[TenantId],
        work: impl FnOnce(&Transaction<'_>) -> Result<(T, Option<TenantId>), rusqlite::Error>,
    ) -> Result<T, ControlError> {
        let attempt = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            let before = checksum::of_change(&transaction, tenants)?;
            let (result, added) = work(&transaction)?;
            let touched: Vec<TenantId> = tenants.iter().copied().chain(added).collect();
            let after = checksum::of_change(&transaction, &touched)?;
            checksum::note_change(&transaction, before, after)?;
            transaction.commit()?;
            Ok(result)
        };
        let result = attempt(&mut self.connection).map_err(|error| open::explain("write", &self.path, &error))?;
        self.settle();
        Ok(result)
    }

    /// Brings the change from the log into the file. SQLite takes a damaged end of the log for one that was never written,
    /// so nothing that was acknowledged is left in it.
    fn settle(&self) {
        let settled = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = settled {
            // It is durable where it is, and the next change tries again.
            tracing::warn!(path = %self.path.display(), "a change stays in the log of the state file: {error}");
        }
    }
}

impl State for StateFile {
    fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError> {
        rows::tenants(self)
    }

    fn server(&self) -> Result<ServerSettings, ControlError> {
        rows::server(&self.connection, &self.path)
    }

    fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError> {
        let id = self.change(&[], |transaction| {
            let id = rows::insert_tenant(transaction, name, settings, secret.created_at)?;
            rows::replace_secrets(transaction, id, std::slice::from_ref(&secret))?;
            Ok((id, Some(id)))
        })?;
        Ok(TenantRecord::new(id, name, settings, secret))
    }

    fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError> {
        self.change(&[tenant.id], |transaction| {
            rows::update_tenant(transaction, tenant)?;
            rows::replace_secrets(transaction, tenant.id, &tenant.secrets)?;
            Ok(((), None))
        })
    }

    fn remember(&mut self, grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError> {
        let mut tenants: Vec<TenantId> = grants.iter().map(|(id, _)| *id).collect();
        tenants.sort_unstable();
        tenants.dedup();
        self.change(&tenants, |transaction| {
            rows::remember(transaction, grants)?;
            Ok(((), None))
        })
    }

    fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError> {
        self.change(&[id], |transaction| {
            transaction.execute("DELETE FROM tenants WHERE id = ?1", params![id.0])?;
            Ok(((), None))
        })
    }

    fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError> {
        self.change(&[], |transaction| {
            rows::replace_server(transaction, settings)?;
            Ok(((), None))
        })
    }

    #[cfg(test)]
    fn refuse_writes(&mut self) {
        // A test that cannot go on finds writes accepted.
        let _ = self.connection.pragma_update(None, "query_only", true);
    }
}
