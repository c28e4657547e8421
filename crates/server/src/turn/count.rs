//! The counts of a visit: its connection's work, and its tenant's commands and bytes.

use tidemark_types::UnixMs;

use super::Turn;
use crate::connection::Connection;
use crate::counts::Count;
use crate::limits::SEND_BYTES;
use crate::ready::{is_small, work_ns};

impl Turn {
    /// Counts a connection's turn.
    pub(super) fn count(
        &mut self,
        connection: &mut Connection,
        member: usize,
        reply_bytes: usize,
        nanos_each: u64,
        now: UnixMs,
    ) {
        let part = &self.parts[member];
        let (done, refused) = (part.done, part.refused);
        let bytes = done.bytes.saturating_add_signed(part.moved_bytes) + reply_bytes.min(SEND_BYTES);
        connection.work_ns = work_ns(done.commands, bytes);
        connection.is_small = is_small(done.commands, bytes);
        connection.executed = done.commands;
        if done.bytes == 0 {
            if let (Some(tenant), true) = (
                &connection.session.tenant,
                connection.place.is_some() || reply_bytes > 0,
            ) {
                // A piece of a value was copied, or of a reply made.
                self.counts.add(Count::BusyNanos, nanos_each as u32);
                self.counts.add(Count::NetworkOut, reply_bytes as u32);
                self.counts.hand_over(&tenant.counts);
                tenant.touch();
            }
            return;
        }
        connection.client().note_active(now);
        connection.is_new = false;
        if let Some(tenant) = &connection.session.tenant {
            let commands = done.commands.saturating_sub(refused.commands);
            self.counts.add(Count::Commands, commands);
            self.counts.add(
                Count::NetworkIn,
                done.bytes.saturating_sub(refused.request_bytes) as u32,
            );
            self.counts.add(
                Count::NetworkOut,
                reply_bytes.saturating_sub(refused.reply_bytes) as u32,
            );
            self.counts
                .add(Count::BusyNanos, (nanos_each * u64::from(commands)) as u32);
            self.counts.hand_over(&tenant.counts);
            tenant.touch();
        }
    }
}
