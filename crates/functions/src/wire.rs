//! Frames between the proxy and an instance. Pure: bytes in, frames out.
//!
//! A frame is its length (4 bytes, big-endian, of all that follows), its kind (1 byte) and its fields. Numbers are
//! big-endian. A body (the bytes of a chunk) is always last, so that it is sent from where it lies.
//!
//! ```text
//! proxy -> function          function -> proxy
//! 1 Get    id key            65 Hello     epoch instance term hash chunks bytes ends_ms token name
//! 2 Put    id key hash body  66 Value     id lease_ms hash body
//! 3 Delete id key            67 Missing   id lease_ms
//! 4 Ping   id                68 Stored    id lease_ms
//! 5 List   id                69 Pong      id lease_ms
//! 6 End                      70 Listed    id has_more chunks
//! 7 Backup id                71 Bye       term hash
//!                            72 Join      epoch ends_ms token is_source name
//! ```
//!
//! Two instances that are brought in step speak through a relay in the proxy, each after a Join. The destination says Listed,
//! the source Put, Delete and in the end End; the destination answers as an instance does ([`crate::backup`]).

use crate::chunk::{Announced, ChunkKey};
use crate::token::{TOKEN_BYTES, Token};

/// Longest frame: a chunk of a stripe of 8 MiB that is not split, and its fields.
pub const FRAME_BYTES_MAX: usize = (8 << 20) + 256;
/// Chunks that one announcement lists; more come in further ones.
pub const LISTED_CHUNKS_MAX: usize = 16_384;
/// Longest name of a function, as AWS allows.
pub const NAME_BYTES_MAX: usize = 140;
/// Bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;

/// A frame without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Asks for a chunk.
    Get {
        /// Repeated in the reply.
        id: u32,
        /// Which one.
        key: ChunkKey,
    },
    /// Brings a chunk; the body is its bytes.
    Put {
        /// Repeated in the reply.
        id: u32,
        /// Which one.
        key: ChunkKey,
        /// Its bytes' hash.
        hash: u64,
    },
    /// Ends a chunk.
    Delete {
        /// Repeated in the reply.
        id: u32,
        /// Which one.
        key: ChunkKey,
    },
    /// Asks whether the instance still runs, and to run on for a while.
    Ping {
        /// Repeated in the reply.
        id: u32,
    },
    /// Asks for the instance's chunks.
    List {
        /// Repeated in the reply.
        id: u32,
    },
    /// Asks the instance to return as soon as it has nothing to do.
    End,
    /// Asks the instance to bring another one in step with it, while it serves. The reply is `Stored` or `Missing`.
    Backup {
        /// Repeated in the reply.
        id: u32,
    },
    /// The first frame of an instance.
    Hello(Box<Hello>),
    /// A chunk; the body is its bytes.
    Value {
        /// The number of the request.
        id: u32,
        /// How long the instance still runs for certain.
        lease_ms: u32,
        /// The bytes' hash.
        hash: u64,
    },
    /// The instance does not have the chunk.
    Missing {
        /// The number of the request.
        id: u32,
        /// How long the instance still runs for certain.
        lease_ms: u32,
    },
    /// The chunk is stored, or deleted.
    Stored {
        /// The number of the request.
        id: u32,
        /// How long the instance still runs for certain.
        lease_ms: u32,
    },
    /// It still runs.
    Pong {
        /// The number of the request.
        id: u32,
        /// How long it still runs for certain.
        lease_ms: u32,
    },
    /// Chunks that the instance holds.
    Listed {
        /// The number of the request.
        id: u32,
        /// Whether more come.
        has_more: bool,
        /// Some of them.
        chunks: Vec<Announced>,
    },
    /// The instance returns now, and answers nothing more.
    Bye {
        /// Counts changes of its chunks.
        term: u64,
        /// The hash of its chunks.
        hash: u64,
    },
    /// The first frame of a connection to the relay.
    Join(Box<Join>),
}

/// Which end of a relay a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The epoch of the invocation.
    pub epoch: u64,
    /// The end of the token.
    pub ends_ms: u64,
    /// The token from the event.
    pub token: Token,
    /// The source of a backup, or its destination.
    pub is_source: bool,
    /// The function's name.
    pub name: String,
}

/// The identity of an instance, and a summary of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The epoch of the invocation.
    pub epoch: u64,
    /// Drawn at its cold start.
    pub instance: u64,
    /// Counts changes of its chunks.
    pub term: u64,
    /// The hash of its chunks.
    pub hash: u64,
    /// How many chunks that is.
    pub chunks: u32,
    /// How many bytes.
    pub bytes: u64,
    /// The end of the token.
    pub ends_ms: u64,
    /// The token from the event.
    pub token: Token,
    /// The function's name.
    pub name: String,
}

/// A frame that cannot be read. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame is broken, too long or of an unknown kind")]
pub struct WireError;

impl Frame {
    /// The frame's head: length, kind and fields. The body, if it has one, comes after it.
    pub fn head(&self, body_bytes: usize) -> Vec<u8> {
        let mut out = vec![0; LENGTH_BYTES];
        self.write(&mut out);
        let length = (out.len() - LENGTH_BYTES + body_bytes) as u32;
        out[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { id, key } => keyed(out, 1, *id, key),
            Self::Put { id, key, hash } => {
                keyed(out, 2, *id, key);
                out.extend(hash.to_be_bytes());
            }
            Self::Delete { id, key } => keyed(out, 3, *id, key),
            Self::Ping { id } => leased(out, 4, *id, None),
            Self::List { id } => leased(out, 5, *id, None),
            Self::End => out.push(6),
            Self::Backup { id } => leased(out, 7, *id, None),
            Self::Hello(hello) => hello.write(out),
            Self::Value { id, lease_ms, hash } => {
                leased(out, 66, *id, Some(*lease_ms));
                out.extend(hash.to_be_bytes());
            }
            Self::Missing { id, lease_ms } => leased(out, 67, *id, Some(*lease_ms)),
            Self::Stored { id, lease_ms } => leased(out, 68, *id, Some(*lease_ms)),
            Self::Pong { id, lease_ms } => leased(out, 69, *id, Some(*lease_ms)),
            Self::Listed { id, has_more, chunks } => {
                leased(out, 70, *id, None);
                out.push(u8::from(*has_more));
                for chunk in chunks {
                    out.extend(chunk.key.to_bytes());
                    out.extend(chunk.hash.to_be_bytes());
                }
            }
            Self::Bye { term, hash } => {
                out.push(71);
                out.extend(term.to_be_bytes());
                out.extend(hash.to_be_bytes());
            }
            Self::Join(join) => join.write(out),
        }
    }

    /// Reads a frame without its length. Returns where its body begins, which is its end for those without.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let mut fields = Fields { bytes, at: 0 };
        let kind = fields.byte()?;
        let frame = match kind {
            1..=5 => fields.of_proxy(kind)?,
            6 => Self::End,
            7 => Self::Backup { id: fields.int()? },
            65 => Self::Hello(Box::new(fields.hello()?)),
            66..=69 => fields.of_function(kind)?,
            70 => fields.listed()?,
            71 => Self::Bye {
                term: fields.long()?,
                hash: fields.long()?,
            },
            72 => Self::Join(Box::new(fields.join()?)),
            _ => return Err(WireError),
        };
        let has_body = matches!(frame, Self::Put { .. } | Self::Value { .. });
        if !has_body && fields.at != bytes.len() {
            return Err(WireError);
        }
        Ok((frame, fields.at))
    }
}

impl Hello {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(65);
        for number in [self.epoch, self.instance, self.term, self.hash] {
            out.extend(number.to_be_bytes());
        }
        out.extend(self.chunks.to_be_bytes());
        out.extend(self.bytes.to_be_bytes());
        out.extend(self.ends_ms.to_be_bytes());
        out.extend(self.token);
        out.extend(self.name.as_bytes());
    }
}

impl Join {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(72);
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.ends_ms.to_be_bytes());
        out.extend(self.token);
        out.push(u8::from(self.is_source));
        out.extend(self.name.as_bytes());
    }
}

fn keyed(out: &mut Vec<u8>, kind: u8, id: u32, key: &ChunkKey) {
    leased(out, kind, id, None);
    out.extend(key.to_bytes());
}

fn leased(out: &mut Vec<u8>, kind: u8, id: u32, lease_ms: Option<u32>) {
    out.push(kind);
    out.extend(id.to_be_bytes());
    if let Some(lease_ms) = lease_ms {
        out.extend(lease_ms.to_be_bytes());
    }
}

/// Fields that are still to be read.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.bytes.get(self.at..self.at + N).ok_or(WireError)?;
        self.at += N;
        taken.try_into().map_err(|_| WireError)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn int(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_be_bytes)
    }

    fn key(&mut self) -> Result<ChunkKey, WireError> {
        self.take().map(|bytes| ChunkKey::from_bytes(&bytes))
    }

    fn of_proxy(&mut self, kind: u8) -> Result<Frame, WireError> {
        let id = self.int()?;
        Ok(match kind {
            1 => Frame::Get { id, key: self.key()? },
            2 => Frame::Put {
                id,
                key: self.key()?,
                hash: self.long()?,
            },
            3 => Frame::Delete { id, key: self.key()? },
            4 => Frame::Ping { id },
            _ => Frame::List { id },
        })
    }

    fn of_function(&mut self, kind: u8) -> Result<Frame, WireError> {
        let (id, lease_ms) = (self.int()?, self.int()?);
        Ok(match kind {
            66 => Frame::Value {
                id,
                lease_ms,
                hash: self.long()?,
            },
            67 => Frame::Missing { id, lease_ms },
            68 => Frame::Stored { id, lease_ms },
            _ => Frame::Pong { id, lease_ms },
        })
    }

    fn listed(&mut self) -> Result<Frame, WireError> {
        let id = self.int()?;
        let has_more = self.byte()? != 0;
        let count = (self.bytes.len() - self.at) / (ChunkKey::BYTES + 8);
        if count > LISTED_CHUNKS_MAX {
            return Err(WireError);
        }
        let mut chunks = Vec::with_capacity(count);
        for _ in 0..count {
            chunks.push(Announced {
                key: self.key()?,
                hash: self.long()?,
            });
        }
        Ok(Frame::Listed { id, has_more, chunks })
    }

    fn hello(&mut self) -> Result<Hello, WireError> {
        let mut hello = Hello {
            epoch: self.long()?,
            instance: self.long()?,
            term: self.long()?,
            hash: self.long()?,
            chunks: self.int()?,
            bytes: self.long()?,
            ends_ms: self.long()?,
            token: self.take::<TOKEN_BYTES>()?,
            name: String::new(),
        };
        hello.name = self.name()?;
        Ok(hello)
    }

    fn join(&mut self) -> Result<Join, WireError> {
        Ok(Join {
            epoch: self.long()?,
            ends_ms: self.long()?,
            token: self.take::<TOKEN_BYTES>()?,
            is_source: self.byte()? != 0,
            name: self.name()?,
        })
    }

    /// A function's name, which is all that is left.
    fn name(&mut self) -> Result<String, WireError> {
        let name = self.bytes.get(self.at..).ok_or(WireError)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(WireError);
        }
        self.at = self.bytes.len();
        String::from_utf8(name.to_vec()).map_err(|_| WireError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> Vec<(Frame, &'static [u8])> {
        let key = ChunkKey::from_bytes(&[9; ChunkKey::BYTES]);
        let hello = Hello {
            epoch: 1,
            instance: 2,
            term: 3,
            hash: 4,
            chunks: 5,
            bytes: 6,
            ends_ms: 7,
            token: [8; TOKEN_BYTES],
            name: "f-1".into(),
        };
        let join = Join {
            epoch: 1,
            ends_ms: 2,
            token: [3; TOKEN_BYTES],
            is_source: true,
            name: "f-1".into(),
        };
        let chunks = vec![Announced { key, hash: 1 }; 3];
        vec![
            (Frame::Get { id: 1, key }, b""),
            (Frame::Put { id: 2, key, hash: 3 }, b"bytes"),
            (Frame::Delete { id: 4, key }, b""),
            (Frame::Ping { id: 5 }, b""),
            (Frame::List { id: 6 }, b""),
            (Frame::End, b""),
            (Frame::Hello(Box::new(hello)), b""),
            (
                Frame::Value {
                    id: 7,
                    lease_ms: 8,
                    hash: 9,
                },
                b"more bytes",
            ),
            (Frame::Missing { id: 1, lease_ms: 2 }, b""),
            (Frame::Stored { id: 1, lease_ms: 2 }, b""),
            (Frame::Pong { id: 1, lease_ms: 2 }, b""),
            (
                Frame::Listed {
                    id: 1,
                    has_more: true,
                    chunks,
                },
                b"",
            ),
            (Frame::Bye { term: 1, hash: 2 }, b""),
            (Frame::Backup { id: 9 }, b""),
            (Frame::Join(Box::new(join)), b""),
        ]
    }

    #[test]
    fn frames_survive_being_sent() {
        for (frame, body) in frames() {
            let mut sent = frame.head(body.len());
            sent.extend(body);
            let (length, rest) = sent.split_at(LENGTH_BYTES);
            assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, rest.len());
            let (read, at) = Frame::read(rest).unwrap();
            assert_eq!((read, &rest[at..]), (frame, body));
        }
    }

    #[test]
    fn a_frame_that_is_cut_is_refused() {
        for (frame, _) in frames() {
            let sent = frame.head(0);
            let variable = matches!(frame, Frame::Hello(_) | Frame::Join(_) | Frame::Listed { .. });
            let fields = &sent[LENGTH_BYTES..];
            for end in 0..fields.len().saturating_sub(if variable { 100 } else { 0 }) {
                assert_eq!(Frame::read(&fields[..end]), Err(WireError), "{frame:?} until {end}");
            }
        }
        let mut long = Frame::Ping { id: 1 }.head(0).split_off(LENGTH_BYTES);
        long.push(0);
        assert_eq!(Frame::read(&long), Err(WireError));
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Frame::read(&bytes);
        }
    }
}
