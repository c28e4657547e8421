//! Secrets: made here, shown once, kept only as a hash.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tidemark_types::SecretHash;

use crate::error::ControlError;

/// 256 bits: no slow hash is needed and nobody guesses it.
const SECRET_BYTES: usize = 32;

/// A secret as its owner sends it: 43 characters of base64url. It can be read out once on purpose; it has no `Display`
/// and its `Debug` is blank, so that no log gets it by accident.
pub struct SecretText(String);

impl SecretText {
    /// A new one from the system's generator.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<Self, ControlError> {
        let mut bytes = [0_u8; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| ControlError::System {
            what: "random numbers",
            detail: error.to_string(),
        })?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The text itself, for its one showing.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is stored in its place.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_fit_every_protocol() {
        let (one, other) = (SecretText::generate().unwrap(), SecretText::generate().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert_eq!(one.expose().len(), 43);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        assert!(one.expose().bytes().all(plain));
    }

    #[test]
    fn the_hash_is_sha256_of_the_text() {
        // "abc" from FIPS 180-2, appendix B.1.
        let hash = SecretText("abc".into()).hash();
        assert_eq!(hash.0[..4], [0xba, 0x78, 0x16, 0xbf]);
    }

    #[test]
    fn a_secret_is_never_printed() {
        assert_eq!(format!("{:?}", SecretText("abc".into())), "SecretText(..)");
    }
}
