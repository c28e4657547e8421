//! A load client: memcached's text protocol and RESP2, as much of them as a load needs (get, set, login).
//!
//! The client costs little beside the server that it measures. Requests are written into one buffer per connection and
//! sent at once. Replies are parsed where they were received, and nothing is allocated per operation. Invariant: a
//! reply is taken exactly as the protocol says, or the connection is given up. The client never guesses where the next
//! reply begins.

mod connection;
mod decode;
mod handshake;
mod login;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use crate::Error;

pub use connection::quote;
pub use connection::{Connection, Received};
pub use decode::{Decoded, Decoder, Part, Reply};
pub use login::{Login, Secrets};

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached's text protocol (`doc/protocol.txt` of memcached 1.6).
    #[default]
    Memcached,
    /// RESP2 (<https://redis.io/docs/latest/develop/reference/protocol-spec/>).
    Redis,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 2] = [Self::Memcached, Self::Redis];

    /// The name in flags and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// The address on which a server of this protocol listens by default.
    pub fn default_address(self) -> &'static str {
        match self {
            Self::Memcached => "127.0.0.1:11211",
            Self::Redis => "127.0.0.1:6379",
        }
    }

    /// Appends a request for the value of `key`.
    #[inline]
    pub fn write_get(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Memcached => {
                out.extend_from_slice(b"get ");
                out.extend_from_slice(key);
                out.extend_from_slice(b"\r\n");
            }
            Self::Redis => {
                out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$");
                write_number(key.len(), out);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(key);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Appends a request to store a value of `size_bytes` under `key`, for good or for a time; `write` appends the value
    /// itself. RESP takes whole milliseconds and memcached whole seconds up to 30 days: a time is rounded up, and ends
    /// there.
    #[inline]
    pub fn write_set(
        self,
        key: &[u8],
        size_bytes: usize,
        lifetime: Option<Duration>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        match self {
            Self::Memcached => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                out.extend_from_slice(b" 0 ");
                write_number(lifetime.map_or(0, memcached_seconds), out);
                out.push(b' ');
            }
            Self::Redis => {
                let words: &[u8] = if lifetime.is_some() { b"*5" } else { b"*3" };
                out.extend_from_slice(words);
                out.extend_from_slice(b"\r\n$3\r\nSET\r\n$");
                write_number(key.len(), out);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(key);
                out.extend_from_slice(b"\r\n$");
            }
        }
        write_number(size_bytes, out);
        out.extend_from_slice(b"\r\n");
        let before = out.len();
        write(out);
        debug_assert_eq!(out.len() - before, size_bytes);
        out.extend_from_slice(b"\r\n");
        if let (Self::Redis, Some(lifetime)) = (self, lifetime) {
            let milliseconds = lifetime.as_nanos().div_ceil(1_000_000).max(1);
            let mut buffer = itoa::Buffer::new();
            let text = buffer.format(milliseconds).as_bytes();
            out.extend_from_slice(b"$2\r\nPX\r\n$");
            write_number(text.len(), out);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// memcached takes whole seconds; more than 30 days are a date to it (`doc/protocol.txt`, "Expiration times").
fn memcached_seconds(lifetime: Duration) -> usize {
    const MOST: u128 = 30 * 24 * 60 * 60;
    lifetime.as_millis().div_ceil(1000).clamp(1, MOST) as usize
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|protocol| protocol.name() == text);
        known.ok_or_else(|| Error::Usage(format!("`{text}` is not a protocol: allowed are memcached, redis")))
    }
}

/// The address that `HOST:PORT` stands for: the first if there are several.
///
/// # Errors
/// It is not of that form, or the host is not known.
pub fn resolve(text: &str) -> Result<SocketAddr, Error> {
    let found = text.to_socket_addrs().and_then(|mut all| {
        let none = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
        all.next().ok_or_else(none)
    });
    found.map_err(|source| Error::Address {
        given: text.to_owned(),
        source,
    })
}

#[inline]
fn write_number(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests;
