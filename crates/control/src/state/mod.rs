//! What the control plane keeps: the tenants, their settings and secrets' hashes, and what was set for the server while it
//! ran; nothing of the cache's content.
//!
//! Either in a file, which outlives the process ([`StateFile`], with the feature `sqlite`), or in memory ([`MemoryState`]).

#[cfg(feature = "sqlite")]
mod file;
mod memory;
#[cfg(feature = "sqlite")]
mod migrate;
#[cfg(feature = "sqlite")]
mod open;
#[cfg(feature = "sqlite")]
mod rows;

use std::time::Duration;

use tidemark_types::{Permissions, SecretHash, TenantId, TenantName, UnixMs};

use crate::error::ControlError;
use crate::settings::TenantSettings;
#[cfg(feature = "sqlite")]
pub use file::StateFile;
pub use memory::MemoryState;

/// At most two, so that secrets can be rotated without a gap.
pub(crate) const MAX_SECRETS: usize = 2;

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

impl TenantRecord {
    /// One that was just created, with its first secret.
    fn new(id: TenantId, name: &TenantName, settings: TenantSettings, secret: StoredSecret) -> Self {
        Self {
            id,
            name: name.clone(),
            version: 1,
            settings,
            secrets: vec![secret],
            created_at: secret.created_at,
            remembered_grant_bytes: None,
        }
    }
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

/// Where the control plane keeps what it is told. Each change is all done when its call returns, or not at all.
pub trait State: Send {
    /// Every tenant, in the order of creation.
    ///
    /// # Errors
    /// What is stored is not what any version wrote, or can not be read.
    fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError>;

    /// What was set for the server.
    ///
    /// # Errors
    /// As [`Self::tenants`].
    fn server(&self) -> Result<ServerSettings, ControlError>;

    /// Adds a tenant with its first secret.
    ///
    /// # Errors
    /// It can not be written; then there is no such tenant.
    fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError>;

    /// Replaces a tenant's settings and secrets with those of `tenant`.
    ///
    /// # Errors
    /// It can not be written; then nothing is changed.
    fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError>;

    /// Replaces what tenants may take at once when they come back, in bytes; a tenant that is not there is passed by.
    ///
    /// # Errors
    /// It can not be written; then nothing is changed.
    fn remember(&mut self, grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError>;

    /// Removes a tenant and its secrets.
    ///
    /// # Errors
    /// It can not be written; then the tenant is still there.
    fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError>;

    /// Replaces what is set for the server.
    ///
    /// # Errors
    /// It can not be written; then nothing is changed.
    fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError>;

    /// From now on every change is refused, as on a file that may not be written.
    #[cfg(test)]
    fn refuse_writes(&mut self) {}
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
#[path = "../state_tests.rs"]
mod tests;
