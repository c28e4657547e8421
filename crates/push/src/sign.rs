//! Signatures, by which a receiver knows who sent something: those of Standard Webhooks 1.0
//! (<https://github.com/standard-webhooks/standard-webhooks>), which libraries of many languages check.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// How a secret begins that is written in base64.
const PREFIX: &str = "whsec_";
/// A shorter secret could be guessed: the least that Standard Webhooks allows.
const SECRET_BYTES_MIN: usize = 24;
/// A longer one is no stronger: the most that Standard Webhooks allows.
const SECRET_BYTES_MAX: usize = 64;

/// The secret that a receiver shares.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// The key of a secret as it is in a file: `whsec_` and base64, or as it stands. Spaces and line ends around it do
    /// not count.
    ///
    /// # Errors
    /// It is no base64, or has fewer than 24 or more than 64 bytes.
    pub fn of_text(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bytes = match text.strip_prefix(PREFIX) {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| format!("the secret is not {PREFIX} and base64"))?,
            None => text.as_bytes().to_vec(),
        };
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        Err(format!(
            "the secret has {} bytes: {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are needed",
            bytes.len()
        ))
    }

    /// The value of `webhook-signature`.
    pub(crate) fn signature(&self, id: &str, timestamp_s: u64, body: &str) -> Option<String> {
        // A key of any length is one for HMAC.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in [id, ".", &timestamp_s.to_string(), ".", body] {
            mac.update(part.as_bytes());
        }
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn a_signature_is_that_of_the_reference_libraries() {
        let key = SigningKey::of_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = key.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(
            signature.as_deref(),
            Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
        );
    }

    #[test]
    fn secrets_have_bounds_and_are_not_shown() {
        for text in ["", "short", "whsec_!!", &"x".repeat(65)] {
            assert!(SigningKey::of_text(text).is_err(), "{text}");
        }
        let key = SigningKey::of_text(&"x".repeat(24)).unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey");
    }
}
