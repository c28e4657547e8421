//! Commands that a limit of their tenant refuses.

use tidemark_plane::Throttled;

use super::Executor;
use crate::memory::Room;
use crate::session::{Exec, Session};
use crate::step::{Step, StepCommand};
use crate::{memcached, redis};

/// The commands of a connection that a limit refused: its tenant is not charged for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    pub(super) commands: u32,
    pub(super) request_bytes: usize,
    pub(super) reply_bytes: usize,
}

impl<'a> Executor<'_, 'a> {
    /// Answers a command of the window that is above a limit.
    #[cold]
    pub(super) fn refuse_step(&mut self, step: &Step<'a>, (session, room): (&Session, &Room), refused: &Throttled) {
        let replied = self.output.len();
        let mut exec = Exec {
            now: self.now,
            shared: self.shared,
            out: self.output,
            counts: self.counts,
            room,
            visit: &mut self.parts[step.member].visit,
        };
        match &step.command {
            StepCommand::Memcached(command) => memcached::refuse(command, refused, &mut exec),
            StepCommand::Redis(command) => redis::refuse_step(command, refused, session, &mut exec),
        }
        self.note_refusal(step.member, step.bytes, replied);
    }

    /// Notes that a command was refused, and that there were `replied` bytes of replies before it.
    pub(super) fn note_refusal(&mut self, member: usize, request_bytes: usize, replied: usize) {
        let refused = &mut self.parts[member].refused;
        refused.commands += 1;
        refused.request_bytes += request_bytes;
        refused.reply_bytes += self.output.len() - replied;
    }
}
