//! The floor of the cost of a server's requests: a responder that stores nothing.
//!
//! The responder receives, finds the bounds of requests, answers and sends, as any server must. An event loop serves
//! all connections: it receives all that has arrived on one at once, and sends its replies at once. Gets are answered
//! with a constant value under their key, sets with success. The cost of a real server beyond it, at the same load, is
//! its work with keys and values, and the quality of the rest.
//!
//! Invariant: only the requests of this crate's load clients are understood; a connection that sends something else is
//! closed.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use tidemark_tools::client::Protocol;

const LISTENER: Token = Token(usize::MAX);
/// Readiness events taken from the system at a time.
const EVENTS: usize = 1024;
/// Received at once: more than a pipeline of 50 sets of 1 KiB.
const SCRATCH_BYTES: usize = 256 << 10;
/// The longest line of a request; memcached's keys have 250 bytes.
const MAX_LINE_BYTES: usize = 512;
/// The largest value of a set that is awaited.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Answers on a free port of 127.0.0.1 until it fails; `ready` is told where.
///
/// # Errors
/// The system's.
pub fn serve(
    protocol: Protocol,
    value_bytes: usize,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    ready(listener.local_addr()?)?;
    let mut floor = Floor {
        protocol,
        value: vec![b'v'; value_bytes],
        connections: Vec::new(),
        scratch: vec![0; SCRATCH_BYTES],
    };
    let mut events = Events::with_capacity(EVENTS);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            match event.token() {
                LISTENER => floor.accept(&listener, &poll)?,
                Token(place) => floor.serve(place),
            }
        }
    }
}

struct Floor {
    protocol: Protocol,
    value: Vec<u8>,
    connections: Vec<Option<Connection>>,
    scratch: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// The beginning of a request, until the rest comes.
    carry: Vec<u8>,
    /// Replies; those before `sent_bytes` are on their way.
    out: Vec<u8>,
    sent_bytes: usize,
}

impl Floor {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let (mut stream, _) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let free = self.connections.iter().position(Option::is_none);
            let place = free.unwrap_or(self.connections.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(place), both)?;
            let connection = Some(Connection {
                stream,
                carry: Vec::new(),
                out: Vec::new(),
                sent_bytes: 0,
            });
            match free {
                Some(place) => self.connections[place] = connection,
                None => self.connections.push(connection),
            }
        }
    }

    /// Answers the requests that have arrived on a connection; forgets it when it has ended.
    fn serve(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else {
            return;
        };
        if connection.serve(self.protocol, &self.value, &mut self.scratch).is_err() {
            // Closed with it, and with that no longer polled.
            self.connections[place] = None;
        }
    }
}

impl Connection {
    fn serve(&mut self, protocol: Protocol, value: &[u8], scratch: &mut [u8]) -> io::Result<()> {
        let mut more = true;
        loop {
            self.send()?;
            // Unsent bytes are sent when there is room for them. Nothing is received until then.
            if !self.out.is_empty() || !more {
                return Ok(());
            }
            let Some(length) = self.receive(scratch)? else {
                return Ok(());
            };
            more = length == scratch.len();
            if self.carry.is_empty() {
                let done = answer(protocol, &scratch[..length], value, &mut self.out)?;
                self.carry.extend_from_slice(&scratch[done..length]);
            } else {
                self.carry.extend_from_slice(&scratch[..length]);
                let done = answer(protocol, &self.carry, value, &mut self.out)?;
                self.carry.drain(..done);
            }
        }
    }

    /// Nothing if nothing waits.
    fn receive(&mut self, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent_bytes < self.out.len() {
            match self.stream.write(&self.out[self.sent_bytes..]) {
                Ok(length) => self.sent_bytes += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent_bytes = 0;
        Ok(())
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request<'a> {
    Get { key: &'a [u8] },
    Set,
}

/// Answers all requests that the input holds completely; returns how much of it they were.
fn answer(protocol: Protocol, input: &[u8], value: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
    let parse = match protocol {
        Protocol::Memcached => memcached,
        Protocol::Redis => resp,
    };
    let mut done = 0;
    while let Some((length, request)) = parse(&input[done..])? {
        match (request, protocol) {
            (Request::Get { key }, Protocol::Memcached) => {
                out.extend_from_slice(b"VALUE ");
                out.extend_from_slice(key);
                out.extend_from_slice(b" 0 ");
                write_value(value, out);
                out.extend_from_slice(b"END\r\n");
            }
            (Request::Get { .. }, Protocol::Redis) => {
                out.push(b'$');
                write_value(value, out);
            }
            (Request::Set, Protocol::Memcached) => out.extend_from_slice(b"STORED\r\n"),
            (Request::Set, Protocol::Redis) => out.extend_from_slice(b"+OK\r\n"),
        }
        done += length;
    }
    Ok(done)
}

fn write_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

type Parsed<'a> = io::Result<Option<(usize, Request<'a>)>>;

/// `get KEY` or `set KEY FLAGS EXPTIME BYTES` and the value.
fn memcached(input: &[u8]) -> Parsed<'_> {
    let Some((line, begins)) = line(input)? else {
        return Ok(None);
    };
    match line.get(..4) {
        Some(b"get ") => Ok(Some((begins, Request::Get { key: &line[4..] }))),
        Some(b"set ") => {
            let length = line
                .rsplit(|byte| *byte == b' ')
                .next()
                .and_then(number)
                .ok_or_else(malformed)?;
            let ends = begins + length + 2;
            Ok((input.len() >= ends).then_some((ends, Request::Set)))
        }
        _ => Err(malformed()),
    }
}

/// An array of two strings is a get, one of three a set.
fn resp(input: &[u8]) -> Parsed<'_> {
    let Some((head, mut at)) = line(input)? else {
        return Ok(None);
    };
    let count = head.strip_prefix(b"*").and_then(number).ok_or_else(malformed)?;
    let mut key = &input[..0];
    for argument in 0..count {
        let Some((length, begins)) = line(&input[at..])? else {
            return Ok(None);
        };
        let length = length.strip_prefix(b"$").and_then(number).ok_or_else(malformed)?;
        let begins = at + begins;
        at = begins + length + 2;
        if input.len() < at {
            return Ok(None);
        }
        if argument == 1 {
            key = &input[begins..begins + length];
        }
    }
    match count {
        2 => Ok(Some((at, Request::Get { key }))),
        3 => Ok(Some((at, Request::Set))),
        _ => Err(malformed()),
    }
}

/// The first line, without its end, and where the next one begins.
#[inline]
fn line(input: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    let window = &input[..input.len().min(MAX_LINE_BYTES)];
    match memchr::memchr(b'\n', window) {
        Some(end) => Ok(Some((
            input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]),
            end + 1,
        ))),
        None if window.len() == MAX_LINE_BYTES => Err(malformed()),
        None => Ok(None),
    }
}

#[inline]
fn number(digits: &[u8]) -> Option<usize> {
    let mut value = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 || value > MAX_BODY_BYTES {
            return None;
        }
        value = value * 10 + usize::from(digit);
    }
    (!digits.is_empty() && value <= MAX_BODY_BYTES).then_some(value)
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(protocol: Protocol, input: &str, expected: Option<(&str, usize)>) {
        let mut out = Vec::new();
        let answered = answer(protocol, input.as_bytes(), b"vv", &mut out);
        let found = answered.ok().map(|done| (String::from_utf8(out).unwrap(), done));
        assert_eq!(found, expected.map(|(out, done)| (out.to_owned(), done)), "{input:?}");
    }

    #[test]
    fn requests_are_answered_as_far_as_they_are_whole() {
        use Protocol::{Memcached, Redis};
        let value = "VALUE k 0 2\r\nvv\r\nEND\r\n";
        for (input, expected) in [
            ("", Some(("", 0))),
            ("get k\r\n", Some((value, 7))),
            ("get k\r\nget ", Some((value, 7))),
            ("set k 0 0 3\r\nabc\r\n", Some(("STORED\r\n", 18))),
            ("set k 0 0 3\r\nabc\r", Some(("", 0))),
            ("set k 0 0 0\r\n\r\nget k", Some(("STORED\r\n", 15))),
            ("set k 0 0 -1\r\n", None),
            ("set k 0 0 99999999999\r\n", None),
            ("delete k\r\n", None),
        ] {
            check(Memcached, input, expected);
        }
        check(Memcached, &"x".repeat(MAX_LINE_BYTES), None);
        for (input, expected) in [
            ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", Some(("$2\r\nvv\r\n", 20))),
            ("*2\r\n$3\r\nGET\r\n$1\r\nk\r", Some(("", 0))),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n", Some(("+OK\r\n", 27))),
            ("*1\r\n$4\r\nPING\r\n", None),
            ("GET k\r\n", None),
        ] {
            check(Redis, input, expected);
        }
    }
}
