//! Tokens with which an instance shows that the proxy invoked it: HMAC-SHA256 over name, epoch and end. Pure.
//!
//! The proxy sends a token in the event of an invocation, whose way the cloud protects; the instance sends it back in its
//! first frame. A token is good for one name and epoch, until it ends; a later epoch of the name makes it void.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;

/// A token.
pub type Token = [u8; TOKEN_BYTES];

/// The content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The function's name.
    pub name: &'a str,
    /// Which invocation of it: higher ones are later.
    pub epoch: u64,
    /// When it ends, in ms since 1970.
    pub ends_ms: u64,
}

/// Signs a claim with the proxy's secret.
pub fn sign(secret: &[u8], claim: Claim<'_>) -> Token {
    let mut token = [0; TOKEN_BYTES];
    if let Some(mac) = mac(secret, claim) {
        token.copy_from_slice(&mac.finalize().into_bytes());
    }
    token
}

/// Whether the token is this claim's and has not ended. Takes the same time whatever is wrong with the token.
pub fn is_good(secret: &[u8], claim: Claim<'_>, token: &Token, now_ms: u64) -> bool {
    let is_signed = mac(secret, claim).is_some_and(|mac| mac.verify_slice(token).is_ok());
    is_signed && now_ms < claim.ends_ms
}

fn mac(secret: &[u8], claim: Claim<'_>) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(secret).ok()?;
    mac.update(b"tidemark function\0");
    mac.update(&claim.epoch.to_be_bytes());
    mac.update(&claim.ends_ms.to_be_bytes());
    mac.update(claim.name.as_bytes());
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_claim_only() {
        let claim = Claim {
            name: "f-1",
            epoch: 3,
            ends_ms: 100,
        };
        let token = sign(b"secret", claim);
        assert!(is_good(b"secret", claim, &token, 99));
        assert!(!is_good(b"secret", claim, &token, 100), "it has ended");
        assert!(!is_good(b"other", claim, &token, 0));
        for other in [
            Claim { name: "f-2", ..claim },
            Claim { epoch: 4, ..claim },
            Claim { ends_ms: 101, ..claim },
        ] {
            assert!(!is_good(b"secret", other, &token, 0), "{other:?}");
        }
        let mut broken = token;
        broken[0] ^= 1;
        assert!(!is_good(b"secret", claim, &broken, 0));
    }
}
