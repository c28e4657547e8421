//! Commands and their tenant's limits: admission and charges.

use std::sync::Arc;

use tidemark_plane::Throttled;

use super::{Executor, Member};
use crate::session::{Exec, Session};
use crate::step::admit_data;
use crate::tenant::Tenant;

/// How much a command asks of its tenant's limits.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) operations: u64,
    pub(super) adds_data: bool,
}

impl<'a> Executor<'_, 'a> {
    /// Runs an action that is `bytes` of the connection's input and asks so much, if its tenant's limits allow it.
    /// `act` is told the limit that refuses it, if one does.
    pub(super) fn within_limits<R>(
        &mut self,
        group: &mut [Member],
        (member, bytes): (usize, usize),
        asked: impl FnOnce(&Session) -> Asked,
        act: impl FnOnce(Option<&Throttled>, &mut Session, &mut Exec<'_>) -> R,
    ) -> R {
        let session = &group[member].1.session;
        let is_limited = |tenant: &&Arc<Tenant>| tenant.throttle.is_limited();
        let Some(tenant) = session.tenant.as_ref().filter(is_limited).cloned() else {
            let (session, mut exec) = self.alone(group, member);
            return act(None, session, &mut exec);
        };
        let Asked { operations, adds_data } = if self.parts[member].visit.is_resumed() {
            Asked::default()
        } else {
            asked(session)
        };
        let (moment, replied) = (self.moment(), self.output.len());
        // A request that is no operation is not refused, and is not charged again.
        let request_bytes = if operations == 0 { 0 } else { bytes };
        let admitted = match operations {
            0 => Ok(()),
            _ => admit_data(&tenant.throttle, adds_data)
                .and_then(|()| tenant.throttle.admit(operations, request_bytes as u64, moment)),
        };
        let (session, mut exec) = self.alone(group, member);
        let done = act(admitted.as_ref().err(), session, &mut exec);
        if admitted.is_ok() {
            let moved_bytes = request_bytes + self.output.len() - replied;
            tenant.throttle.charge(moved_bytes as u64, moment);
        } else {
            self.note_refusal(member, bytes, replied);
        }
        done
    }
}
