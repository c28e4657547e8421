//! Receiving: what a connection has sent, and what is kept of it until more comes.

use std::io::Read;
use std::ops::Range;

use tidemark_types::UnixMs;

use crate::connection::Connection;
use crate::limits::{LOGIN_BYTES, RECEIVE_BYTES, SPARE_BYTES};
use crate::output::ignore_would_block;
use crate::shared::Shared;

/// Received at least of a command that is too long to be received with others.
const RECEIVE_LONG_BYTES_MIN: usize = 4 << 10;
/// The beginning of a command is received on behind a copy of it, together with what follows, if it is not longer.
const COPIED_BEGINNING_BYTES: usize = 16 << 10;
/// Received at most at a time of a command whose length is known.
const RECEIVE_LONG_BYTES: usize = 128 << 10;
/// A buffer of so many bytes is worth keeping for the next long command: to get one from the system and to give it back takes
/// tenths of a millisecond when it is busy with the process's memory.
const SPARE_BYTES_MIN: usize = 128 << 10;

/// What was received from a connection and where it is.
pub(crate) enum Input {
    /// In the worker's scratch buffer: the usual case.
    Scratch(Range<usize>),
    /// In the connection's own buffer, behind the beginning of a command that came earlier.
    Own(Vec<u8>),
}

impl Input {
    pub(crate) fn bytes<'a>(&'a self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Scratch(range) => &scratch[range.clone()],
            Self::Own(bytes) => bytes,
        }
    }

    /// What is behind the first `done` bytes, in a buffer of its own; none if there is nothing.
    fn into_rest(self, scratch: &[u8], done: usize, spares: &mut Spares) -> Vec<u8> {
        match self {
            Self::Own(bytes) if done == 0 => bytes,
            Self::Own(bytes) => {
                let rest = bytes[done..].to_vec();
                spares.give(bytes);
                rest
            }
            Self::Scratch(range) => scratch[range][done..].to_vec(),
        }
    }
}

/// A worker's buffers for long commands that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// So many were never in use since the last [`Self::tidy`].
    idle: usize,
}

impl Spares {
    /// A buffer for so many bytes that begins with what `held` holds.
    fn grow(&mut self, mut held: Vec<u8>, bytes: usize) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| bytes >= SPARE_BYTES_MIN && buffer.capacity() >= bytes;
        let Some(at) = self.buffers.iter().position(fits) else {
            held.reserve_exact(bytes - held.len());
            return held;
        };
        let mut buffer = self.buffers.swap_remove(at);
        self.bytes -= buffer.capacity();
        self.idle = self.idle.min(self.buffers.len());
        buffer.extend_from_slice(&held);
        self.give(held);
        buffer
    }

    /// Keeps a buffer that is not needed any more, if it is long and not too many are kept.
    fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() >= SPARE_BYTES_MIN && self.bytes + buffer.capacity() <= SPARE_BYTES {
            buffer.clear();
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }

    /// Gives as many back to the system as were not needed since the last time. Whether there are others.
    pub(crate) fn tidy(&mut self) -> bool {
        let kept = self.buffers.len() - self.idle;
        let idle = self.buffers.drain(kept..);
        self.bytes -= idle.map(|buffer| buffer.capacity()).sum::<usize>();
        self.idle = self.buffers.len();
        !self.buffers.is_empty()
    }
}

/// Reads what a connection has sent.
pub(crate) fn receive(
    connection: &mut Connection,
    scratch: &mut [u8],
    used: &mut usize,
    spares: &mut Spares,
    shared: &Shared,
) -> Input {
    let held = connection.input.len();
    let is_long = held > COPIED_BEGINNING_BYTES || connection.needed > RECEIVE_BYTES;
    if connection.has_leftover || is_long {
        return receive_more(connection, spares, shared);
    }
    // Only where there is room for as much as is received at most: to cut what has arrived costs more than to come back.
    if !connection.is_readable || connection.is_finished || scratch.len() - *used < RECEIVE_BYTES {
        return Input::Own(std::mem::take(&mut connection.input));
    }
    let begin = *used;
    let buffer = &mut scratch[begin..begin + RECEIVE_BYTES];
    buffer[..held].copy_from_slice(&connection.input);
    connection.input = Vec::new();
    let received = held + read(connection, &mut buffer[held..]);
    *used += received;
    Input::Scratch(begin..begin + received)
}

/// The same behind the beginning of a command.
fn receive_more(connection: &mut Connection, spares: &mut Spares, shared: &Shared) -> Input {
    let mut input = std::mem::take(&mut connection.input);
    let held = input.len();
    // Complete commands that wait come first; reading more would only make the buffer grow.
    if connection.is_readable && !connection.is_finished && !connection.has_leftover {
        let missing = connection
            .needed
            .saturating_sub(held)
            .clamp(RECEIVE_LONG_BYTES_MIN, RECEIVE_LONG_BYTES);
        let growth = (held + missing).saturating_sub(input.capacity());
        if growth > 0 && !connection.may_hold(growth, shared) {
            connection.is_starved = true;
        } else {
            let bytes = connection.needed.max(held + missing);
            if input.capacity() < bytes {
                input = spares.grow(input, bytes);
            }
            input.resize(held + missing, 0);
            let received = read(connection, &mut input[held..]);
            input.truncate(held + received);
        }
    }
    Input::Own(input)
}

fn read(connection: &mut Connection, buffer: &mut [u8]) -> usize {
    match connection.socket.read(buffer) {
        Ok(0) => {
            connection.is_finished = true;
            0
        }
        Ok(received) => {
            // A short read means that the socket is empty (epoll(7), "Questions and answers", 9), unless the end came along.
            connection.is_readable = received == buffer.len() || connection.is_closing;
            received
        }
        // The system says that there is something to read only once.
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
        result => {
            connection.is_readable = false;
            connection.is_broken = ignore_would_block(result).is_err();
            0
        }
    }
}

/// Keeps what was not executed for the next turn.
pub(crate) fn keep_rest(
    connection: &mut Connection,
    input: Input,
    (scratch, spares): (&[u8], &mut Spares),
    done: usize,
    now: UnixMs,
) {
    let rest_bytes = input.bytes(scratch).len() - done;
    if rest_bytes == 0 || connection.session.is_ending {
        connection.needed = 0;
        connection.incomplete_since = None;
        if let Input::Own(buffer) = input {
            spares.give(buffer);
        }
        return;
    }
    if connection.session.needs_login() && rest_bytes > LOGIN_BYTES {
        connection.session.is_ending = true;
        return;
    }
    connection.input = input.into_rest(scratch, done, spares);
    if connection.has_leftover {
        connection.incomplete_since = None;
    } else if done > 0 || connection.incomplete_since.is_none() {
        connection.incomplete_since = Some(now);
    }
}
