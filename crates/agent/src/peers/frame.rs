//! Frames between agents, and how two agents prove to each other that they know the shared secret. Pure.
//!
//! ```text
//! accepting side  "tmpeer3\n", nonce (32 bytes)
//! calling side    nonce (32), HMAC(secret, "call", both nonces) (32)
//! accepting side  HMAC(secret, "accept", both nonces) (32)
//! then frames     length (4, big endian), tag (16), body
//! ```
//!
//! The tag is the HMAC of a counter and the body with a key of this connection, so that a frame cannot be changed, repeated
//! or left out without notice. Frames are not encrypted. A body is a [`Packet`] in postcard's format.

use bytes::{BufMut as _, Bytes, BytesMut};
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tidemark_cachelet::message::Message;
use tidemark_cachelet::types::CacheletId;

use crate::tuning::Told;

/// Said first; another version of the format has another one.
pub(super) const GREETING: &[u8; 8] = b"tmpeer3\n";
pub(super) const NONCE_BYTES: usize = 32;
pub(super) const PROOF_BYTES: usize = 32;
pub(super) const TAG_BYTES: usize = 16;
/// Length and tag.
pub(super) const HEAD_BYTES: usize = 4 + TAG_BYTES;
/// A value of the largest size that is kept whole, with its headers and the message around it.
pub(super) const BODY_BYTES_MAX: usize = tidemark_gateway::coherent::WHOLE_BYTES_MAX as usize + (64 << 10);

pub(super) type Nonce = [u8; NONCE_BYTES];

/// The secret that all agents of a cluster share.
#[derive(Clone)]
pub struct Secret(pub(crate) std::sync::Arc<[u8]>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A secret that is shorter could be guessed.
const SECRET_BYTES_MIN: usize = 16;

impl Secret {
    /// The secret of these bytes; `None` if they are too few.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= SECRET_BYTES_MIN).then(|| Self(bytes.into()))
    }

    fn mac(&self, purpose: &[u8], called: &Nonce, accepted: &Nonce) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(purpose);
        mac.update(called);
        mac.update(accepted);
        Some(mac)
    }

    /// The proof of the calling (`"call"`) or the accepting (`"accept"`) side.
    pub(super) fn proof(&self, side: &[u8], called: &Nonce, accepted: &Nonce) -> [u8; PROOF_BYTES] {
        let mac = self.mac(side, called, accepted);
        mac.map_or([0; PROOF_BYTES], |mac| mac.finalize().into_bytes().into())
    }

    /// Whether a proof is right.
    pub(super) fn is_right(&self, proof: &[u8], side: &[u8], called: &Nonce, accepted: &Nonce) -> bool {
        let mac = self.mac(side, called, accepted);
        mac.is_some_and(|mac| mac.verify_slice(proof).is_ok())
    }

    /// The frames of a connection.
    pub(super) fn seal(&self, called: &Nonce, accepted: &Nonce) -> Seal {
        Seal {
            key: self.proof(b"frames", called, accepted),
            count: 0,
        }
    }
}

/// Tags the frames of one connection in one direction, in their order.
pub(super) struct Seal {
    key: [u8; PROOF_BYTES],
    count: u64,
}

impl Seal {
    fn mac(&mut self, body: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(&self.count.to_be_bytes());
        mac.update(body);
        self.count += 1;
        Some(mac)
    }

    /// Length and tag of a body.
    pub(super) fn head(&mut self, body: &[u8]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
        if let Some(mac) = self.mac(body) {
            head[4..].copy_from_slice(&mac.finalize().into_bytes()[..TAG_BYTES]);
        }
        head
    }

    /// Whether a body is the next one of the connection.
    pub(super) fn is_next(&mut self, tag: &[u8], body: &[u8]) -> bool {
        let mac = self.mac(body);
        mac.is_some_and(|mac| mac.verify_truncated_left(tag).is_ok())
    }
}

/// The length that a head states; `None` if it is too long.
pub(super) fn length(head: &[u8; HEAD_BYTES]) -> Option<usize> {
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    (length <= BODY_BYTES_MAX).then_some(length)
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum Packet {
    /// A message of one cachelet to another one.
    Message {
        /// To whom.
        to: CacheletId,
        /// From whom.
        from: CacheletId,
        /// Its text.
        message: Message,
    },
    /// A message from one agent to another one.
    Told(Told),
}

/// The same, to be sent: variants and fields are in the same order.
#[derive(Serialize)]
pub(super) enum Sent<'a> {
    Message {
        to: CacheletId,
        from: CacheletId,
        message: &'a Message,
    },
    Told(&'a Told),
}

/// A packet as a body.
pub(super) fn encode(packet: &Sent<'_>) -> Option<Bytes> {
    let writer = BytesMut::new().writer();
    let writer = postcard::to_io(packet, writer).ok()?;
    let body = writer.into_inner().freeze();
    (body.len() <= BODY_BYTES_MAX).then_some(body)
}

/// The content of a body; `None` if it is not of this format.
pub(super) fn decode(body: &[u8]) -> Option<Packet> {
    let (read, rest) = postcard::take_from_bytes(body).ok()?;
    rest.is_empty().then_some(read)
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::message::{Body, Content, Fill};
    use tidemark_cachelet::types::{Epoch, RequestId, Stamp, Value, Version};

    use super::*;

    fn filled(bytes: usize) -> Message {
        Message {
            epoch: Epoch(7),
            body: Body::Filled {
                request: RequestId(9),
                fill: Fill {
                    stamp: Stamp::default(),
                    version: Some(Version::Tag("\"etag\"".into())),
                    content: Content::Is(Value::new(&vec![5; bytes])),
                    keep: true,
                },
            },
        }
    }

    fn body_of(message: &Message) -> Option<Bytes> {
        encode(&Sent::Message {
            to: CacheletId(1),
            from: CacheletId(2),
            message,
        })
    }

    #[test]
    fn what_agents_tell_each_other_is_read_as_it_was_written() {
        let report = tidemark_cachelet::choose::Meter::new(3, 10).take(7);
        let counted = crate::tuning::Counted {
            app: "shop".into(),
            from: "127.0.0.1:7".parse().unwrap(),
            asked_us: 5,
            took_us: 2,
            is_complete: true,
            report,
            pace: crate::tuning::Pace::default(),
        };
        let told = Told::Counted(Box::new(counted));
        assert_eq!(decode(&encode(&Sent::Told(&told)).unwrap()), Some(Packet::Told(told)));
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for bytes in [0, 1, 100_000] {
            let body = body_of(&filled(bytes)).unwrap();
            let (to, from, message) = (CacheletId(1), CacheletId(2), filled(bytes));
            assert_eq!(decode(&body), Some(Packet::Message { to, from, message }));
            // A body that is cut off, or goes on, is no message; it never panics.
            for length in 0..body.len().min(60) {
                assert_eq!(decode(&body[..length]), None, "{length} of {}", body.len());
            }
            assert_eq!(decode(&[&body[..], b"x"].concat()), None);
        }
        assert!(body_of(&filled(BODY_BYTES_MAX)).is_none());
    }

    #[test]
    fn noise_is_refused_without_a_panic() {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = tidemark_cachelet::types::mix(state);
            let noise: Vec<u8> = (0..state % 64)
                .map(|at| (tidemark_cachelet::types::mix(state ^ at)) as u8)
                .collect();
            let _ = decode(&noise);
        }
    }

    #[test]
    fn frames_can_not_be_changed_repeated_or_left_out() {
        let secret = Secret::new(&[3; 32]).unwrap();
        let (one, other) = ([1; 32], [2; 32]);
        let (mut here, mut there) = (secret.seal(&one, &other), secret.seal(&one, &other));
        let first = here.head(b"first");
        let second = here.head(b"second");
        let third = here.head(b"third");
        assert_eq!(length(&first), Some(5));
        assert!(there.is_next(&first[4..], b"first"));
        assert!(
            !secret.seal(&other, &one).is_next(&first[4..], b"first"),
            "another connection"
        );
        assert!(!there.is_next(&third[4..], b"third"), "the second is missing");
        let mut there = secret.seal(&one, &other);
        assert!(there.is_next(&first[4..], b"first") && !there.is_next(&first[4..], b"first"));
        let mut there = secret.seal(&one, &other);
        assert!(there.is_next(&first[4..], b"first") && !there.is_next(&second[4..], b"sXcond"));
    }

    #[test]
    fn who_does_not_know_the_secret_proves_nothing() {
        let (secret, other) = (Secret::new(&[3; 32]).unwrap(), Secret::new(&[4; 32]).unwrap());
        let (called, accepted) = ([1; 32], [2; 32]);
        let proof = secret.proof(b"call", &called, &accepted);
        assert!(secret.is_right(&proof, b"call", &called, &accepted));
        assert!(!secret.is_right(&proof, b"accept", &called, &accepted));
        assert!(!other.is_right(&proof, b"call", &called, &accepted));
        assert!(Secret::new(b"short").is_none());
    }
}
