//! The state file, `DIR/state.sqlite`: what outlives the process.
//!
//! ```text
//! tenants   id (never used twice), name, version, floor_bytes, cap_bytes, policy, created_at_ms,
//!           hit_ratio_millionths, remembered_grant_bytes, weight, ops_per_second, bytes_per_second, connections
//! secrets   tenant_id, slot (0 the older, 1 the newer), hash (32 bytes), permissions (bits), created_at_ms
//! server    name, value
//! ```
//!
//! Invariants: each change is one transaction and durable when its call returns (write-ahead log, `synchronous =
//! FULL`); one process at a time works on a folder; a file that is not exactly what this version or an earlier one
//! writes is refused, never replaced. An earlier version's file becomes this one's in one transaction when it is opened.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, params};
use tidemark_types::{TenantId, TenantName, UnixMs};

use super::{ServerSettings, State, StoredSecret, TenantRecord, open, rows};
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One transaction: all of it or, after an error or a crash, nothing.
    fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, ControlError> {
        let attempt = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            let result = work(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        attempt(&mut self.connection).map_err(|error| open::explain("write", &self.path, &error))
    }
}

impl State for StateFile {
    fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError> {
        rows::tenants(self)
    }

    fn server(&self) -> Result<ServerSettings, ControlError> {
        rows::server(self)
    }

    fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError> {
        let id = self.change(|transaction| {
            let id = rows::insert_tenant(transaction, name, settings, secret.created_at)?;
            rows::replace_secrets(transaction, id, &[secret])?;
            Ok(id)
        })?;
        Ok(TenantRecord::new(id, name, settings, secret))
    }

    fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError> {
        self.change(|transaction| {
            rows::update_tenant(transaction, tenant)?;
            rows::replace_secrets(transaction, tenant.id, &tenant.secrets)
        })
    }

    fn remember(&mut self, grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError> {
        self.change(|transaction| rows::remember(transaction, grants))
    }

    fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError> {
        self.change(|transaction| {
            transaction.execute("DELETE FROM tenants WHERE id = ?1", params![id.0])?;
            Ok(())
        })
    }

    fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError> {
        self.change(|transaction| rows::replace_server(transaction, settings))
    }

    #[cfg(test)]
    fn refuse_writes(&mut self) {
        // A test that can not go on finds writes accepted.
        let _ = self.connection.pragma_update(None, "query_only", true);
    }
}
