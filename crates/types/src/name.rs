//! The names of tenants: a number for machines, a name for people.

use std::fmt;
use std::str::FromStr;

/// A tenant's number. It is given once, when the tenant is created, and never used again for another one. A late
/// message about a removed tenant thus cannot reach a new one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tenant's name: 1 to 64 bytes of ASCII letters, digits, `-`, `_` and `.`, the first a letter or a digit.
///
/// The same text is the Redis user name and the memcached login name. It therefore holds nothing that either protocol,
/// a URL path or a shell would need to escape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantName(Box<str>);

impl TenantName {
    /// The longest name, in bytes. A metric label and a log field carry it, so it stays short.
    pub const MAX_BYTES: usize = 64;
    /// The tenant of connections that never logged in (loopback only).
    pub const DEFAULT: &'static str = "default";

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the open tenant that connections from loopback start in.
    pub fn is_default(&self) -> bool {
        &*self.0 == Self::DEFAULT
    }
}

/// A text that cannot be a tenant's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is not a tenant name: allowed are 1 to {} ASCII letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
    TenantName::MAX_BYTES
)]
pub struct NameError {
    given: String,
}

impl FromStr for TenantName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let first_is_plain = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let all_allowed = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if first_is_plain && all_allowed && text.len() <= Self::MAX_BYTES {
            return Ok(Self(text.into()));
        }
        // The error is shown to people: a name of a megabyte would not help them.
        Err(NameError {
            given: text.chars().take(Self::MAX_BYTES + 16).collect(),
        })
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for TenantName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let longest = "a".repeat(TenantName::MAX_BYTES);
        let too_long = "a".repeat(TenantName::MAX_BYTES + 1);
        for (text, allowed) in [
            ("shop", true),
            ("Team-7_eu.west", true),
            ("9lives", true),
            (longest.as_str(), true),
            ("", false),
            ("-shop", false),
            (".", false),
            ("a b", false),
            ("a/b", false),
            ("café", false),
            (too_long.as_str(), false),
        ] {
            assert_eq!(text.parse::<TenantName>().is_ok(), allowed, "{text:?}");
        }
    }

    #[test]
    fn a_refused_name_is_quoted_in_the_error() {
        let error = "a b".parse::<TenantName>().unwrap_err().to_string();
        assert!(error.contains("`a b`"), "{error}");
    }
}
