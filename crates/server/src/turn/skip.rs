//! Dropping the rest of a refused command from the input.

use tidemark_protocol::{may_end_line, resp};

use super::{Executor, Member};
use crate::connection::Skip;
use crate::redis;

/// The part of the input that was dropped.
pub(super) enum Skipped {
    /// Nothing is to be dropped.
    Nothing,
    Bytes(usize),
    /// More must come to know how much.
    Incomplete,
}

impl Executor<'_, '_> {
    /// Drops the rest of a refused command from the input.
    pub(super) fn skip(&mut self, group: &mut [Member], member: usize, input: &[u8]) -> Skipped {
        let connection = &mut *group[member].1;
        let discarded = match &mut connection.skip {
            Skip::Nothing => return Skipped::Nothing,
            Skip::Bytes(left) => {
                if !may_end_line(input, *left) {
                    // The client counted wrongly: the following bytes may be the rest of its value.
                    connection.session.is_ending = true;
                    return Skipped::Bytes(input.len());
                }
                let dropped = input.len().min(*left);
                *left -= dropped;
                if *left == 0 {
                    connection.skip = Skip::Nothing;
                }
                return if dropped == 0 {
                    Skipped::Nothing
                } else {
                    Skipped::Bytes(dropped)
                };
            }
            Skip::Command(discard) => discard.feed(input),
        };
        match discarded {
            resp::Discarded::Done { consumed } => {
                connection.skip = Skip::Nothing;
                Skipped::Bytes(consumed)
            }
            // The unconsumed bytes are the beginning of a length, which must be whole to be read.
            resp::Discarded::More { consumed: 0 } => {
                connection.needed = input.len() + 1;
                Skipped::Incomplete
            }
            resp::Discarded::More { consumed } => Skipped::Bytes(consumed),
            resp::Discarded::Failed(error) => {
                if self.finish(group, member).is_none() {
                    return Skipped::Incomplete;
                }
                let (session, mut exec) = self.alone(group, member);
                redis::refuse(&error, session, &mut exec);
                session.is_ending = true;
                Skipped::Bytes(input.len())
            }
        }
    }
}
