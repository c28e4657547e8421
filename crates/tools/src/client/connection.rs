//! One connection of a load client.
//!
//! Invariant: never blocks once it is open, and holds at most the requests that were not sent yet and one incomplete line
//! of replies.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::handshake::log_in;
use super::{Decoded, Decoder, Login, Protocol, Reply};
use crate::Error;

/// How long connecting and logging in may take each: long enough for a loaded machine, short enough for a person.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Sent bytes are dropped from the front of the buffer when they are this many.
const COMPACT_BYTES: usize = 256 << 10;
/// How much of a reply an error quotes.
const QUOTE_CHARS: usize = 80;

/// See the module.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    protocol: Protocol,
    /// Requests; those before `sent_bytes` are on their way.
    out: Vec<u8>,
    sent_bytes: usize,
    decoder: Decoder,
    /// The beginning of a reply's line, until the rest comes.
    carry: Vec<u8>,
}

/// The outcome of [`Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing new.
    Nothing,
    /// So many bytes at the beginning of the buffer are to be given to [`Connection::replies`].
    Bytes {
        /// How many.
        length: usize,
        /// Whether the buffer was filled, so that more may be waiting.
        more: bool,
    },
}

impl Connection {
    /// Connects and, given a login, logs in; waits for both.
    ///
    /// # Errors
    /// Nothing listens there, it does not answer, or it refuses the login or does not take it for one.
    pub fn open(address: SocketAddr, protocol: Protocol, login: Option<&Login>) -> Result<Self, Error> {
        let connect = |source| Error::Connect { address, source };
        let mut stream = std::net::TcpStream::connect_timeout(&address, OPEN_TIMEOUT).map_err(connect)?;
        if let Some(login) = login {
            stream.set_read_timeout(Some(OPEN_TIMEOUT)).map_err(connect)?;
            stream.set_write_timeout(Some(OPEN_TIMEOUT)).map_err(connect)?;
            log_in(&mut stream, address, protocol, login)?;
        }
        stream.set_nodelay(true).map_err(connect)?;
        stream.set_nonblocking(true).map_err(connect)?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            address,
            protocol,
            out: Vec::new(),
            sent_bytes: 0,
            decoder: Decoder::new(protocol),
            carry: Vec::new(),
        })
    }

    /// Lets a poll report under `token` when there is something to receive or room to send; edge-triggered.
    ///
    /// # Errors
    /// The system's.
    pub fn register(&mut self, registry: &Registry, token: Token) -> Result<(), Error> {
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut self.stream, token, both).map_err(Error::Poll)
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the server's end is on this machine.
    pub fn is_local(&self) -> bool {
        let own = self.stream.local_addr().ok().map(|own| own.ip());
        self.address.ip().is_loopback() || own == Some(self.address.ip())
    }

    /// Adds a request for a value; [`Self::send`] sends it.
    #[inline]
    pub fn get(&mut self, key: &[u8]) {
        self.protocol.write_get(key, &mut self.out);
    }

    /// Adds a request to store a value that `write` appends, for good or for a time.
    #[inline]
    pub fn set(&mut self, key: &[u8], size_bytes: usize, lifetime: Option<Duration>, write: impl FnOnce(&mut Vec<u8>)) {
        self.protocol.write_set(key, size_bytes, lifetime, &mut self.out, write);
    }

    /// Bytes of requests that were not sent yet.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.out.len() - self.sent_bytes
    }

    /// Sends as much as the system takes now.
    ///
    /// # Errors
    /// The connection failed or was closed.
    pub fn send(&mut self) -> Result<(), Error> {
        while self.unsent_bytes() > 0 {
            match self.stream.write(&self.out[self.sent_bytes..]) {
                Ok(0) => return Err(self.closed()),
                Ok(length) => self.sent_bytes += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        if self.unsent_bytes() == 0 {
            self.out.clear();
            self.sent_bytes = 0;
        } else if self.sent_bytes >= COMPACT_BYTES {
            self.out.drain(..self.sent_bytes);
            self.sent_bytes = 0;
        }
        Ok(())
    }

    /// Receives into `scratch`, behind the rest of the last time. The bytes belong to [`Self::replies`].
    ///
    /// # Errors
    /// The connection failed or was closed.
    #[inline]
    pub fn receive(&mut self, scratch: &mut [u8]) -> Result<Received, Error> {
        let kept = self.carry.len();
        loop {
            match self.stream.read(&mut scratch[kept..]) {
                Ok(0) => return Err(self.closed()),
                Ok(length) => {
                    scratch[..kept].copy_from_slice(&self.carry);
                    self.carry.clear();
                    return Ok(Received::Bytes {
                        length: kept + length,
                        more: kept + length == scratch.len(),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Hands each reply in `input`, as [`Self::receive`] left it, to `take`; keeps an incomplete line for the next time.
    ///
    /// # Errors
    /// The input is not the protocol, or `take` failed.
    #[inline]
    pub fn replies(&mut self, input: &[u8], mut take: impl FnMut(Reply<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut rest = input;
        while !rest.is_empty() {
            match self.decoder.next(rest) {
                Decoded::Reply(length, reply) => {
                    take(reply)?;
                    rest = &rest[length..];
                }
                Decoded::NeedMore => {
                    self.carry.extend_from_slice(rest);
                    return Ok(());
                }
                Decoded::Malformed => return Err(malformed(self.address, self.protocol, rest)),
            }
        }
        Ok(())
    }

    fn closed(&self) -> Error {
        Error::Closed { address: self.address }
    }

    fn failed(&self, source: io::Error) -> Error {
        let closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe].contains(&source.kind());
        if closed {
            return self.closed();
        }
        Error::Connection {
            address: self.address,
            source,
        }
    }
}

/// A reply, shortened and made printable, for errors.
pub fn quote(reply: &[u8]) -> String {
    let line = reply
        .split(|byte| *byte == b'\r' || *byte == b'\n')
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(line)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(QUOTE_CHARS)
        .collect()
}

pub(super) fn malformed(address: SocketAddr, protocol: Protocol, input: &[u8]) -> Error {
    Error::Protocol {
        address,
        protocol: protocol.name(),
        reply: quote(input),
    }
}
