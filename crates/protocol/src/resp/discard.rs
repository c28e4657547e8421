//! Drops the rest of a command that was refused as too large, without keeping it.

use super::error::{self, ErrorReply};
use super::parse::bulk_length;
use crate::may_end_line;

/// The part of a refused command that has still to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Bytes of the present argument and its line end.
    bytes: usize,
    /// Arguments behind that one.
    args: usize,
}

/// The outcome of [`Discard::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// The command has ended; the next one begins behind `consumed` bytes.
    Done {
        /// Bytes of the input that were dropped.
        consumed: usize,
    },
    /// More has to be dropped. The unconsumed bytes (the beginning of a length, at most [`super::INLINE_BYTES_MAX`]
    /// bytes) must be given again, with more behind them.
    More {
        /// Bytes of the input that were dropped.
        consumed: usize,
    },
    /// Not RESP: reply with the error and close.
    Failed(ErrorReply<'static>),
}

impl Discard {
    /// Drops this number of whole arguments.
    pub(super) fn args(args: usize) -> Self {
        Self { bytes: 0, args }
    }

    /// Drops the rest of an argument, its line end included, and this number of whole arguments behind it.
    pub(super) fn within(bytes: usize, args: usize) -> Self {
        Self { bytes, args }
    }

    /// Drops as much of `input` as it can.
    pub fn feed(&mut self, input: &[u8]) -> Discarded {
        let mut at = 0;
        loop {
            if !may_end_line(&input[at..], self.bytes) {
                return Discarded::Failed(error::NO_LINE_END);
            }
            let dropped = self.bytes.min(input.len() - at);
            self.bytes -= dropped;
            at += dropped;
            if self.bytes > 0 {
                return Discarded::More { consumed: at };
            }
            if self.args == 0 {
                return Discarded::Done { consumed: at };
            }
            match bulk_length(input, at) {
                Ok(Some((length, begin))) => {
                    self.args -= 1;
                    self.bytes = length + 2;
                    at = begin;
                }
                Ok(None) => return Discarded::More { consumed: at },
                Err(error) => return Discarded::Failed(error),
            }
        }
    }
}
