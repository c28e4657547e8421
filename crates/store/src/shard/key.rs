//! How a command names an item.

use crate::hash::KeyHash;

/// Databases of a tenant (RESP's SELECT); memcached uses the first.
pub const DATABASES: usize = 16;

/// A key of a tenant, with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The database, below [`DATABASES`].
    pub db: u8,
    /// The key itself.
    pub bytes: &'a [u8],
    /// The hash of both, by the tenant's hasher.
    pub hash: KeyHash,
}
