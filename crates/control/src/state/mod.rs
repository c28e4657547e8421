//! The state file: what outlives the process. `DIR/state.sqlite` holds the tenants, their settings and secrets' hashes,
//! and what was set for the server while it ran; nothing of the cache's content.
//!
//! ```text
//! tenants   id (never used twice), name, version, floor_bytes, cap_bytes, policy, created_at_ms,
//!           hit_ratio_millionths, remembered_grant_bytes
//! secrets   tenant_id, slot (0 the older, 1 the newer), hash (32 bytes), permissions (bits), created_at_ms
//! server    name, value
//! ```
//!
//! Invariants: each change is one transaction and durable when its call returns (write-ahead log, `synchronous =
//! FULL`); one process at a time works on a folder; a file that is not exactly what this version or an earlier one
//! writes is refused, never replaced. An earlier version's file becomes this one's in one transaction when it is opened.

mod migrate;
mod open;
mod rows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, Transaction, params};
use tidemark_types::{Permissions, SecretHash, TenantId, TenantName, UnixMs};

use crate::error::ControlError;
use crate::settings::TenantSettings;

/// At most two, so that secrets can be rotated without a gap.
pub(crate) const MAX_SECRETS: usize = 2;

/// An open state file. The folder is locked until it is dropped.
#[derive(Debug)]
pub struct StateFile {
    connection: Connection,
    path: PathBuf,
    /// None in memory, where nobody else is.
    _lock: Option<open::Lock>,
}

/// A tenant as it is stored.
#[derive(Clone, Debug)]
pub struct TenantRecord {
    /// Given once, never used again for another tenant.
    pub id: TenantId,
    /// What clients log in as.
    pub name: TenantName,
    /// Grows with every stored change.
    pub version: u64,
    /// What is set.
    pub settings: TenantSettings,
    /// At most two, the older first.
    pub secrets: Vec<StoredSecret>,
    /// When it was created.
    pub created_at: UnixMs,
    /// What it may take at once when it comes back after its memory was reclaimed; `None`: as a new one.
    pub remembered_grant_bytes: Option<u64>,
}

/// A secret as it is stored: not the secret.
#[derive(Clone, Copy, Debug)]
pub struct StoredSecret {
    /// SHA-256 of its text.
    pub hash: SecretHash,
    /// What it allows.
    pub permissions: Permissions,
    /// When it was made.
    pub created_at: UnixMs,
}

/// What was set for the server while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// The pool's size.
    pub pool: Option<PoolSetting>,
    /// Time between rounds.
    pub round_period: Option<Duration>,
}

/// A size for the pool that was set while the server ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSetting {
    /// The size.
    pub bytes: u64,
    /// What the server was configured with at that time. A later start with another configuration means that the
    /// operator decided anew; then this setting has had its day.
    pub configured_bytes: u64,
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

    /// One that is nowhere but in this process and ends with it, with the one tenant `default`: for programs that keep their
    /// tenants' settings themselves, and for virtual time.
    ///
    /// # Errors
    /// [`ControlError::File`]: there is no memory for it.
    pub fn in_memory(now: UnixMs) -> Result<Self, ControlError> {
        open::in_memory(now)
    }

    /// Where it is; `:memory:` where it is no file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every tenant, in the order of creation.
    ///
    /// # Errors
    /// A row is not what any version wrote, or the file can not be read.
    pub fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError> {
        rows::tenants(self)
    }

    /// What was set for the server.
    ///
    /// # Errors
    /// As [`Self::tenants`].
    pub fn server(&self) -> Result<ServerSettings, ControlError> {
        rows::server(self)
    }

    /// Adds a tenant with its first secret.
    ///
    /// # Errors
    /// The file can not be written; then there is no such tenant.
    pub fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError> {
        let created_at = secret.created_at;
        let id = self.change(|transaction| {
            let id = rows::insert_tenant(transaction, name, settings, created_at)?;
            rows::replace_secrets(transaction, id, &[secret])?;
            Ok(id)
        })?;
        Ok(TenantRecord {
            id,
            name: name.clone(),
            version: 1,
            settings,
            secrets: vec![secret],
            created_at,
            remembered_grant_bytes: None,
        })
    }

    /// Replaces a tenant's settings and secrets with those of `tenant`.
    ///
    /// # Errors
    /// The file can not be written; then nothing is changed.
    pub fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError> {
        self.change(|transaction| {
            rows::update_tenant(transaction, tenant)?;
            rows::replace_secrets(transaction, tenant.id, &tenant.secrets)
        })
    }

    /// Replaces what tenants may take at once when they come back, in bytes; a tenant that is not there is passed by.
    ///
    /// # Errors
    /// The file can not be written; then nothing is changed.
    pub fn remember(&mut self, grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError> {
        self.change(|transaction| rows::remember(transaction, grants))
    }

    /// Removes a tenant and its secrets.
    ///
    /// # Errors
    /// The file can not be written; then the tenant is still there.
    pub fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError> {
        self.change(|transaction| {
            transaction.execute("DELETE FROM tenants WHERE id = ?1", params![id.0])?;
            Ok(())
        })
    }

    /// Replaces what is set for the server.
    ///
    /// # Errors
    /// The file can not be written; then nothing is changed.
    pub fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError> {
        self.change(|transaction| rows::replace_server(transaction, settings))
    }

    /// From now on SQLite answers to every change as it would on a file that may not be written.
    #[cfg(test)]
    pub(crate) fn refuse_writes(&self) {
        // A test that can not go on finds writes accepted.
        let _ = self.connection.pragma_update(None, "query_only", true);
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

#[cfg(test)]
#[path = "../state_tests.rs"]
mod tests;
