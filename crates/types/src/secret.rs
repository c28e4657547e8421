//! The hash that a tenant's secret is known by, and the permissions that it gives.

use std::fmt;
use std::str::FromStr;

/// The SHA-256 of a secret's text. Secrets are random (256 bits), so a fast hash is enough and a worker can check a
/// login without leaving its turn. Compare in constant time (`subtle`), never with `==`: this type offers none.
#[derive(Clone, Copy)]
pub struct SecretHash(pub [u8; 32]);

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(..)")
    }
}

/// A secret as the data plane knows it.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    /// SHA-256 of the text that the client sends.
    pub hash: SecretHash,
    /// The permissions of a connection that logged in with it.
    pub permissions: Permissions,
}

/// A set of things that a connection may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Commands that read keys.
    pub const READ: Self = Self(1);
    /// Commands that change keys.
    pub const WRITE: Self = Self(2);
    /// FLUSHDB, FLUSHALL, flush_all.
    pub const FLUSH: Self = Self(4);
    /// Commands about other connections and the tenant's settings: CLIENT LIST, CLIENT KILL.
    pub const ADMIN: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(15);

    const NAMES: [(Self, &'static str); 4] = [
        (Self::READ, "read"),
        (Self::WRITE, "write"),
        (Self::FLUSH, "flush"),
        (Self::ADMIN, "admin"),
    ];

    /// Whether everything in `needed` is in this set.
    pub fn allows(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The permissions as a number for storage: bit 0 read, 1 write, 2 flush, 3 admin.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// From a stored number; `None` if it has a bit that no permission has.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }
}

impl fmt::Display for Permissions {
    /// `read,write`; `none` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        let mut separator = "";
        for (permission, name) in Self::NAMES {
            if self.allows(permission) {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({self})")
    }
}

/// A text that names no permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a permission: allowed are read, write, flush, admin, separated by commas")]
pub struct PermissionError {
    given: String,
}

impl FromStr for Permissions {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        text.split(',').try_fold(Self::NONE, |set, word| {
            let known = Self::NAMES.into_iter().find(|(_, name)| *name == word.trim());
            let (permission, _) = known.ok_or_else(|| PermissionError {
                given: word.chars().take(80).collect(),
            })?;
            Ok(set.with(permission))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_read_back_from_its_text_and_its_bits() {
        for bits in 0..=Permissions::ALL.bits() {
            let set = Permissions::from_bits(bits).unwrap();
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert_eq!(Permissions::from_bits(16), None);
        assert_eq!("read, write".parse(), Ok(Permissions::READ.with(Permissions::WRITE)));
    }

    #[test]
    fn unknown_permissions_are_named() {
        for text in ["", "read,fly", "READ"] {
            let error = text.parse::<Permissions>().unwrap_err().to_string();
            assert!(error.contains("allowed are read, write, flush, admin"), "{error}");
        }
    }

    #[test]
    fn a_set_allows_its_parts_only() {
        let read_write = Permissions::READ.with(Permissions::WRITE);
        assert!(read_write.allows(Permissions::READ) && read_write.allows(Permissions::NONE));
        assert!(!read_write.allows(Permissions::FLUSH) && !read_write.allows(Permissions::ALL));
    }

    #[test]
    fn a_hash_is_never_printed() {
        assert_eq!(format!("{:?}", SecretHash([7; 32])), "SecretHash(..)");
    }
}
