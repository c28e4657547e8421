//! Receiving: what a connection has sent, and what is kept of it until more comes.

use std::io::Read;
use std::ops::Range;

use tidemark_types::UnixMs;

use crate::connection::Connection;
use crate::limits::{LOGIN_BYTES, RECEIVE_BYTES};
use crate::output::ignore_would_block;
use crate::shared::Shared;

/// Received at least of a command that is too long to be received with others.
const RECEIVE_LONG_BYTES_MIN: usize = 4 << 10;
/// The beginning of a command is received on behind a copy of it, together with what follows, if it is not longer.
const COPIED_BEGINNING_BYTES: usize = 16 << 10;
/// Received at most at a time of a command whose length is known.
const RECEIVE_LONG_BYTES: usize = 256 << 10;

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
    fn into_rest(self, scratch: &[u8], done: usize) -> Vec<u8> {
        match self {
            Self::Own(bytes) if done == 0 => bytes,
            Self::Own(bytes) => bytes[done..].to_vec(),
            Self::Scratch(range) => scratch[range][done..].to_vec(),
        }
    }
}

/// Reads what a connection has sent.
pub(crate) fn receive(connection: &mut Connection, scratch: &mut [u8], used: &mut usize, shared: &Shared) -> Input {
    let held = connection.input.len();
    let is_long = held > COPIED_BEGINNING_BYTES || connection.needed > RECEIVE_BYTES;
    if connection.has_leftover || is_long {
        return receive_more(connection, shared);
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
fn receive_more(connection: &mut Connection, shared: &Shared) -> Input {
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
            input.reserve_exact(connection.needed.saturating_sub(held).max(missing));
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
pub(crate) fn keep_rest(connection: &mut Connection, input: Input, scratch: &[u8], done: usize, now: UnixMs) {
    let rest_bytes = input.bytes(scratch).len() - done;
    if rest_bytes == 0 || connection.session.is_ending {
        connection.needed = 0;
        connection.incomplete_since = None;
        return;
    }
    if connection.session.needs_login() && rest_bytes > LOGIN_BYTES {
        connection.session.is_ending = true;
        return;
    }
    connection.input = input.into_rest(scratch, done);
    if connection.has_leftover {
        connection.incomplete_since = None;
    } else if done > 0 || connection.incomplete_since.is_none() {
        connection.incomplete_since = Some(now);
    }
}
