//! Receiving: the input of a connection, and the part that is kept until more comes.

use std::io::Read;
use std::ops::Range;
use std::sync::atomic::Ordering;

use tidemark_types::UnixMs;

use crate::connection::Connection;
use crate::kept::Kept;
use crate::limits::{LOGIN_BYTES, OWN_INPUT_BYTES, RECEIVE_BYTES, SPARE_BYTES};
use crate::output::ignore_would_block;
use crate::shared::Shared;

/// Received at least of a command that is too long to be received with others.
const RECEIVE_LONG_BYTES_MIN: usize = 4 << 10;
/// The beginning of a command is received on behind a copy of it, together with the bytes that follow, if it is not
/// longer.
const COPIED_BEGINNING_BYTES: usize = 16 << 10;
/// Received at most at a time of a command whose length is known.
const RECEIVE_LONG_BYTES: usize = 128 << 10;
/// A buffer of so many bytes is worth keeping for the next long command. Getting one from the system and giving it back
/// takes tenths of a millisecond when the system is busy with the process's memory.
const SPARE_BYTES_MIN: usize = 128 << 10;

/// A buffer may be longer than needed by this part of it.
const SLACK_DIVISOR: usize = 8;

/// The longest buffer that is used for so many bytes, and for which memory is taken.
fn with_slack(bytes: usize) -> usize {
    bytes + bytes / SLACK_DIVISOR
}

/// The bytes received from a connection, and their place.
pub(crate) enum Input {
    /// The input is in the worker's scratch buffer: the usual case.
    Scratch(Range<usize>),
    /// The input is in the connection's own buffer, behind the beginning of a command that came earlier.
    Own(Kept),
}

impl Input {
    pub(crate) fn bytes<'a>(&'a self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Scratch(range) => &scratch[range.clone()],
            Self::Own(kept) => kept.as_slice(),
        }
    }

    /// The bytes behind the first `done` ones, in a buffer of its own. The buffer that they were in before comes with
    /// them, if it is not needed any more.
    fn into_rest(self, scratch: &[u8], done: usize) -> (Kept, Option<Vec<u8>>) {
        match self {
            Self::Own(mut kept) => {
                let spare = kept.advance(done);
                (kept, spare)
            }
            Self::Scratch(range) => (scratch[range][done..].to_vec().into(), None),
        }
    }
}

/// A worker's buffers for long commands that are not in use, the one that was used last at the end.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// So many, the first ones, were not in use since the last [`Self::tidy`].
    idle: usize,
}

impl Spares {
    /// A buffer for so many bytes that begins with the content of `held`: a kept one that is not too long, else one of
    /// the system's.
    fn grow(&mut self, mut held: Vec<u8>, bytes: usize, shared: &Shared) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| (bytes.max(SPARE_BYTES_MIN)..=with_slack(bytes)).contains(&buffer.capacity());
        let Some(at) = self.buffers.iter().rposition(fits) else {
            held.reserve_exact(bytes - held.len());
            return held;
        };
        let mut buffer = self.buffers.remove(at);
        self.count_out(buffer.capacity(), shared);
        self.idle = self.idle.min(at);
        buffer.extend_from_slice(&held);
        self.give(held, shared);
        buffer
    }

    /// Keeps a buffer that is not needed any more, if it is long and not too many are kept.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>, shared: &Shared) {
        if buffer.capacity() >= SPARE_BYTES_MIN && self.bytes + buffer.capacity() <= SPARE_BYTES {
            buffer.clear();
            self.bytes += buffer.capacity();
            let all = &shared.tenants.sockets().buffer_bytes;
            all.fetch_add(buffer.capacity() as u64, Ordering::Relaxed);
            self.buffers.push(buffer);
        }
    }

    /// Gives those back to the system that were not needed since the last time. Whether there are others.
    pub(crate) fn tidy(&mut self, shared: &Shared) -> bool {
        let idle_bytes = self.buffers.drain(..self.idle).map(|buffer| buffer.capacity()).sum();
        self.count_out(idle_bytes, shared);
        self.idle = self.buffers.len();
        !self.buffers.is_empty()
    }

    fn count_out(&mut self, bytes: usize, shared: &Shared) {
        self.bytes -= bytes;
        shared
            .tenants
            .sockets()
            .buffer_bytes
            .fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Reads the input of a connection that may take so much memory.
pub(crate) fn receive(
    (connection, left): (&mut Connection, u64),
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
    // This needs room for as much as is received at most: cutting the input costs more than coming back.
    if !connection.is_readable || connection.is_finished || scratch.len() - *used < RECEIVE_BYTES {
        return Input::Own(std::mem::take(&mut connection.input));
    }
    // The rest of it is kept, which needs room.
    let most = if connection.session.needs_login() {
        RECEIVE_BYTES
    } else {
        usize::try_from(left).map_or(RECEIVE_BYTES, |left| left.clamp(OWN_INPUT_BYTES, RECEIVE_BYTES))
    };
    if held >= most {
        // For the rest of the command, memory is taken.
        return receive_more(connection, spares, shared);
    }
    let begin = *used;
    let buffer = &mut scratch[begin..begin + most];
    buffer[..held].copy_from_slice(connection.input.as_slice());
    connection.input = Kept::default();
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
        if input.growth(missing) > 0 {
            // All that is known to come, before any of it is received.
            let bytes = connection.needed.max(held + missing);
            let growth = with_slack(bytes).saturating_sub(input.memory_bytes()) as u64;
            if !connection.room.take(growth) {
                connection.wait_bytes = growth;
                return Input::Own(input);
            }
            input = spares.grow(input.into_bytes(), bytes, shared).into();
        }
        input.fill(missing, |buffer| read(connection, buffer));
    }
    Input::Own(input)
}

/// Receives from the socket.
pub(crate) fn read(connection: &mut Connection, buffer: &mut [u8]) -> usize {
    match connection.socket.read(buffer) {
        Ok(0) => {
            connection.is_finished = true;
            0
        }
        Ok(received) => {
            // A short read means that the socket is empty (epoll(7), "Questions and answers", 9), unless the end came along.
            connection.is_readable = received == buffer.len() || connection.is_closing;
            connection.has_received |= received > 0;
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

/// Keeps the unexecuted input for the next turn. Returns a buffer that is not needed any more.
pub(crate) fn keep_rest(
    connection: &mut Connection,
    input: Input,
    scratch: &[u8],
    done: usize,
    now: UnixMs,
) -> Option<Vec<u8>> {
    let rest_bytes = input.bytes(scratch).len() - done;
    if rest_bytes == 0 || connection.session.is_ending {
        connection.needed = 0;
        connection.incomplete_since = None;
        return match input {
            Input::Own(kept) => Some(kept.into_bytes()),
            Input::Scratch(_) => None,
        };
    }
    if connection.session.needs_login() && rest_bytes > LOGIN_BYTES {
        connection.session.is_ending = true;
        return None;
    }
    let (rest, spare) = input.into_rest(scratch, done);
    connection.input = rest;
    if connection.has_leftover {
        connection.incomplete_since = None;
    } else if done > 0 || connection.incomplete_since.is_none() {
        connection.incomplete_since = Some(now);
    }
    spare
}
