//! The durable data of the control plane: the tenants with their settings and secrets' hashes, and the server's
//! settings made while it ran. It has nothing of the cache's content.
//!
//! Either in a file, which outlives the process ([`StateFile`], with the feature `sqlite`), or in memory ([`MemoryState`]).

#[cfg(feature = "sqlite")]
mod checksum;
#[cfg(feature = "sqlite")]
mod file;
mod memory;
#[cfg(feature = "sqlite")]
mod migrate;
#[cfg(feature = "sqlite")]
mod open;
#[cfg(feature = "sqlite")]
mod restored;
#[cfg(feature = "sqlite")]
mod rows;

use std::time::Duration;

use tidemark_types::{Permissions, SecretHash, TenantId, TenantName, UnixMs};

use crate::error::ControlError;
use crate::secret::SecretName;
use crate::settings::TenantSettings;
#[cfg(feature = "sqlite")]
pub use file::StateFile;
pub use memory::MemoryState;
#[cfg(feature = "sqlite")]
pub(crate) use open::{FILE_NAME as STATE_FILE_NAME, explain, lock};
#[cfg(feature = "sqlite")]
pub use restored::FLASH_IDENTITY_NAME;
#[cfg(feature = "sqlite")]
pub(crate) use restored::{READY_NAME, complete};

/// At most two of a name, so that secrets can be rotated without a gap.
pub(crate) const MAX_SECRETS: usize = 2;
/// Names of a tenant's secrets: a login compares with all of them.
pub(crate) const MAX_SECRET_NAMES: usize = 8;

/// A tenant as it is stored.
#[derive(Clone, Debug)]
pub struct TenantRecord {
    /// Given once, never used again for another tenant.
    pub id: TenantId,
    /// The name with which clients log in.
    pub name: TenantName,
    /// Grows with every stored change.
    pub version: u64,
    /// The settings.
    pub settings: TenantSettings,
    /// At most two of each name, in the order in which they were made.
    pub secrets: Vec<StoredSecret>,
    /// When it was created.
    pub created_at: UnixMs,
    /// The memory that it may take at once when it comes back after its memory was reclaimed; `None`: as a new one.
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
            created_at: secret.created_at,
            secrets: vec![secret],
            remembered_grant_bytes: None,
        }
    }
}

/// A secret as it is stored: not the secret.
#[derive(Clone, Debug)]
pub struct StoredSecret {
    /// Which one of the tenant's.
    pub name: SecretName,
    /// SHA-256 of its text.
    pub hash: SecretHash,
    /// The permissions that it gives.
    pub permissions: Permissions,
    /// When it was made.
    pub created_at: UnixMs,
}

/// The settings of the server that were made while it ran.
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
    /// The size that the server was configured with at that time. A later start with another configuration means that
    /// the operator decided anew. This setting is void then.
    pub configured_bytes: u64,
}

/// The store of the control plane's durable data. Each change is all done when its call returns, or not at all.
pub trait State: Send {
    /// Every tenant, in the order of creation.
    ///
    /// # Errors
    /// The stored data is not of any version, or cannot be read.
    fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError>;

    /// The settings of the server.
    ///
    /// # Errors
    /// The errors of [`Self::tenants`].
    fn server(&self) -> Result<ServerSettings, ControlError>;

    /// Adds a tenant with its first secret.
    ///
    /// # Errors
    /// It cannot be written; then there is no such tenant.
    fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError>;

    /// Replaces a tenant's settings and secrets with those of `tenant`.
    ///
    /// # Errors
    /// It cannot be written; then nothing is changed.
    fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError>;

    /// Replaces what tenants may take at once when they come back, in bytes; a tenant that is not there is passed by.
    ///
    /// # Errors
    /// It cannot be written; then nothing is changed.
    fn remember(&mut self, grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError>;

    /// Removes a tenant and its secrets.
    ///
    /// # Errors
    /// It cannot be written; then the tenant is still there.
    fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError>;

    /// Replaces the settings of the server.
    ///
    /// # Errors
    /// It cannot be written; then nothing is changed.
    fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError>;

    /// From now on every change is refused, as on a file that may not be written.
    #[cfg(test)]
    fn refuse_writes(&mut self) {}
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;
