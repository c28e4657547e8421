//! One connection's part of a turn.

use tidemark_store::Reservation;

use super::refuse::Refusals;
use crate::session::Visit;
use crate::step::Done;

/// A place in the replies of a group.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// Bytes that were copied before it.
    pub(super) copied: usize,
    /// Bytes in all before it.
    pub(super) all: usize,
}

/// A connection's part of a turn.
pub(super) struct Part {
    /// Its limits, and the state of its next command.
    pub(super) visit: Visit,
    /// How far its input was executed.
    pub(super) done: Done,
    /// The end of its replies; they begin at the end of those of the connection before it.
    pub(super) end: Mark,
    /// If it stops before the end of its input, how far that was executed.
    pub(super) stop: Option<Done>,
    /// The room that its long value is copied to.
    pub(super) place: Option<Reservation>,
    /// Whether the value was copied in part, and goes on in the next turn. Room to which nothing was copied goes back.
    pub(super) is_begun: bool,
    /// Bytes that were moved in other visits than the one that executes the command, less those counted then.
    pub(super) moved_bytes: isize,
    pub(super) refused: Refusals,
}

impl Part {
    /// The part of a connection that may take so much memory.
    #[inline]
    pub(super) fn new(left: u64) -> Self {
        Self {
            visit: Visit::new(left),
            done: Done { bytes: 0, commands: 0 },
            end: Mark::default(),
            stop: None,
            place: None,
            is_begun: false,
            moved_bytes: 0,
            refused: Refusals::default(),
        }
    }
}
