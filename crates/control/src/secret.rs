//! Secrets: made here, shown once, kept only as a hash.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tidemark_types::{Permissions, SecretHash};

use crate::error::{ControlError, Refusal, RefusalKind};

/// 256 bits: no slow hash is needed and nobody guesses it.
const SECRET_BYTES: usize = 32;

/// The longest secret that its owner has made, in characters.
const GIVEN_BYTES_MAX: usize = 256;
/// The fewest bits that it may have.
const GIVEN_BITS_MIN: u32 = 128;
/// The fewest different characters in it: random ones of 128 bits have fewer in less than one of a million cases.
const DIFFERENT_BYTES_MIN: usize = 8;

/// Which of a tenant's secrets one is: up to 32 lower-case letters, digits, `-` and `_`. Each name is rotated by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretName(Box<str>);

impl SecretName {
    /// The longest, in characters.
    pub const BYTES_MAX: usize = 32;

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is that of the secret that a tenant is made with.
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT_NAME
    }
}

/// The name of the secret that a tenant is made with.
const DEFAULT_NAME: &str = "default";

impl Default for SecretName {
    fn default() -> Self {
        Self(DEFAULT_NAME.into())
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no secret's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name has 1 to {} lower-case letters, digits, `-` and `_`",
    SecretName::BYTES_MAX
)]
pub struct SecretNameError;

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        let is_right = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        if (1..=Self::BYTES_MAX).contains(&text.len()) && text.bytes().all(is_right) {
            Ok(Self(text.into()))
        } else {
            Err(SecretNameError)
        }
    }
}

/// A secret as its owner sends it: 43 characters of base64url. It can be read out once on purpose; it has no `Display`
/// and its `Debug` is blank, so that no log gets it by accident.
#[derive(PartialEq, Eq)]
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

    /// One that its owner has made: a printable text without spaces, of so many characters that it has 128 bits if they are
    /// random: 22 of base64, 32 hexadecimal digits.
    ///
    /// # Errors
    /// It is none.
    pub fn given(text: &str) -> Result<Self, Refusal> {
        let wrong = |what: &str| Err(Refusal::new(RefusalKind::Invalid, what).field("secret"));
        if text.len() > GIVEN_BYTES_MAX {
            return wrong(&format!("a secret has at most {GIVEN_BYTES_MAX} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong("a secret has printable ASCII characters only, and no spaces");
        }
        let mut different: Vec<u8> = text.bytes().collect();
        different.sort_unstable();
        different.dedup();
        if different.len() < DIFFERENT_BYTES_MIN {
            return wrong("a secret must be random: this one repeats a few characters");
        }
        let bits = bits(text);
        if bits < GIVEN_BITS_MIN {
            return wrong(&format!(
                "a secret has at least {GIVEN_BITS_MIN} bits, and this one has {bits} at most: 22 random letters of both cases and \
                 digits are enough, or 32 hexadecimal digits"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The text itself, for its one showing.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The hash that is stored in its place.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

/// The bits of a text if its characters were drawn at random from the fewest kinds that it has. Not more than its length allows:
/// nobody can tell from a text how it was made.
fn bits(text: &str) -> u32 {
    let has = |is_of: fn(&u8) -> bool| text.as_bytes().iter().any(is_of);
    let all = |is_of: fn(&u8) -> bool| text.as_bytes().iter().all(is_of);
    let kinds: u32 = if all(u8::is_ascii_digit) {
        10
    } else if all(u8::is_ascii_hexdigit) && !(has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)) {
        16
    } else if has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) {
        64
    } else {
        // One case, digits, `-` and `_`.
        38
    };
    (text.len() as f64 * f64::from(kinds).log2()) as u32
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// The kinds of a rotation.
#[derive(Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Adds a secret.
    Add(NewSecret),
    /// Only the newest of the secrets of a name lives on.
    Finish(SecretName),
    /// All secrets of a name end.
    End(SecretName),
}

/// A secret that is added.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewSecret {
    /// Which one of the tenant's it is.
    pub name: SecretName,
    /// Its permissions; `None`: as the newest of its name. The name that a tenant is made with, and a new one, allow all.
    pub permissions: Option<Permissions>,
    /// Its text; `None`: one is made.
    pub text: Option<SecretText>,
    /// The older one of two secrets of the name ends, which may be in use.
    pub is_forced: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_ones_own_is_long_and_random_enough() {
        for (text, is_right) in [
            ("q0E8l5n1p2m3k4j5h6g7f8", true),
            ("0123456789abcdef0123456789abcdef", true),
            ("q0E8l5n1p2m3k4j5h6g7f", false),
            // 88 and 124 bits of hexadecimal digits; then digits, and letters of one case.
            ("0123456789abcdef012345", false),
            ("0123456789ABCDEF0123456789ABCDE", false),
            ("012345678901234567890123456789012345678", true),
            ("01234567890123456789012345678901234567", false),
            ("qwertzuiopasdfghjklyxcvb", false),
            ("qwertzuiopasdfghjklyxcvbn", true),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("q0E8l5n1p2m3k4j5h6g7f8 with spaces", false),
            ("q0E8l5n1p2m3k4j5h6g7f8\u{e9}", false),
        ] {
            assert_eq!(SecretText::given(text).is_ok(), is_right, "{text}");
        }
        assert!(SecretText::given(&"q0E8l5n1".repeat(32)).is_ok());
        assert!(SecretText::given(&"q0E8l5n1".repeat(33)).is_err());
    }

    #[test]
    fn names_of_secrets_are_plain_words() {
        for (text, is_right) in [
            ("reader", true),
            ("a-b_9", true),
            ("", false),
            ("Reader", false),
            ("a b", false),
        ] {
            assert_eq!(text.parse::<SecretName>().is_ok(), is_right, "{text}");
        }
        assert!("a".repeat(33).parse::<SecretName>().is_err());
        assert!("default".parse::<SecretName>().unwrap().is_default());
    }

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
