//! Visits whose commands are recorded, for saying what of a tenant's load costs most.
//!
//! One visit in [`ONE_IN`] is sampled, by chance, so that no pattern of connections is met again and again. Others cost one
//! subtraction for a group and one comparison for a command.

use tidemark_protocol::{memcached as mc, resp};
use tidemark_types::{SampledCommand, TenantId, VisitSamples};

use super::{Executor, Member, Turn};
use crate::connection::Connection;
use crate::counts::VERBS;
use crate::ready::command_work_ns;
use crate::step::{Step, StepCommand};
use crate::{memcached, redis};

/// Visits for one that is sampled, in the mean.
const ONE_IN: u64 = 1024;
/// No member of a group.
const NOBODY: usize = usize::MAX;

/// Chooses visits, and holds what is recorded of the one that goes on.
#[derive(Debug)]
pub(super) struct Sampler {
    /// Visits before the next one that is sampled.
    left: usize,
    random: u64,
    /// The member of the group that is.
    member: usize,
    /// The tenant whose commands are recorded. A connection may log in as another tenant in the middle of a visit.
    of: Option<TenantId>,
    recorded: VisitSamples,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            left: ONE_IN as usize,
            random: 0,
            member: NOBODY,
            of: None,
            recorded: VisitSamples::default(),
        }
    }
}

impl Sampler {
    /// Passes over a group of so many visits, of which one may be sampled.
    #[inline]
    pub(super) fn pass(&mut self, visits: usize) {
        match self.left.checked_sub(visits) {
            Some(left) => (self.left, self.member) = (left, NOBODY),
            None => self.choose(visits),
        }
    }

    #[cold]
    fn choose(&mut self, visits: usize) {
        self.member = self.left;
        // Evenly distributed from the visit behind this one to twice the mean; at most one of a group is sampled.
        let distance = 1 + next(&mut self.random) % (2 * ONE_IN - 1);
        self.left = (self.left + distance as usize).saturating_sub(visits);
        self.of = None;
        self.recorded.clear();
    }

    /// Whether this member's visit is sampled.
    #[inline]
    pub(super) fn takes(&self, member: usize) -> bool {
        self.member == member
    }

    fn record<'k>(&mut self, tenant: TenantId, command: SampledCommand, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
        if self.of.replace(tenant).is_some_and(|before| before != tenant) {
            self.recorded.clear();
        }
        self.recorded.push(command, keys);
    }
}

/// The next number of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Turn {
    /// Hands what was recorded to the tenant, at the end of the visit that is sampled.
    #[cold]
    pub(super) fn hand_samples_over(&mut self, connection: &Connection) {
        if let Some(tenant) = &connection.session.tenant
            && self.sampler.of.take() == Some(tenant.id)
            && !self.sampler.recorded.is_empty()
        {
            tenant.add_samples(&mut self.sampler.recorded);
        }
    }
}

impl Executor<'_, '_> {
    /// A command that has a size and was answered behind `replied` bytes of replies.
    fn sampled(&self, protocol: &'static str, command: &'static str, bytes: usize, replied: usize) -> SampledCommand {
        let reply_bytes = self.output.len() - replied;
        SampledCommand {
            request_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            reply_bytes: u32::try_from(reply_bytes).unwrap_or(u32::MAX),
            work_ns: command_work_ns(bytes + reply_bytes),
            ..SampledCommand::new(protocol, command)
        }
    }

    /// Records a command of a window.
    #[cold]
    pub(super) fn record_step(&mut self, group: &[Member], step: &Step<'_>, replied: usize) {
        let Some(tenant) = &group[step.member].1.session.tenant else {
            return;
        };
        let (protocol, name) = match &step.command {
            StepCommand::Memcached(command) => ("memcached", VERBS[memcached::verb(command)]),
            StepCommand::Redis(command) => ("redis", command.name()),
        };
        let command = self.sampled(protocol, name, step.bytes, replied);
        self.sampler.record(tenant.id, command, std::iter::once(step.key()));
    }

    /// Records a command of memcached that was executed by itself.
    #[cold]
    pub(super) fn record_memcached(
        &mut self,
        group: &[Member],
        command: &mc::Command<'_>,
        (member, bytes): (usize, usize),
        replied: usize,
    ) {
        let Some(tenant) = &group[member].1.session.tenant else {
            return;
        };
        let sampled = self.sampled("memcached", VERBS[memcached::verb(command)], bytes, replied);
        match command {
            mc::Command::Get(get) => self.sampler.record(tenant.id, sampled, get.keys.into_iter()),
            command => {
                let mut buffer = mc::KeyBuffer::new();
                let key = memcached::single_key(command, &mut buffer);
                self.sampler.record(tenant.id, sampled, key.into_iter());
            }
        }
    }

    /// Records a command of RESP that was executed by itself.
    #[cold]
    pub(super) fn record_redis(
        &mut self,
        group: &[Member],
        args: resp::Args<'_>,
        (member, bytes): (usize, usize),
        replied: usize,
    ) {
        let Some(tenant) = &group[member].1.session.tenant else {
            return;
        };
        // Input that is no command is not counted as one.
        let Some(row) = redis::command_row(args) else { return };
        let sampled = self.sampled("redis", row.name, bytes, replied);
        let keys = row.key_places(args).map(|place| args.arg(place));
        self.sampler.record(tenant.id, sampled, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_visit_in_so_many_is_sampled_whatever_the_groups() {
        const VISITS: usize = 4_000_000;
        for group in [1, 3, 16] {
            let mut sampler = Sampler::default();
            let (mut sampled, mut by_place) = (0_usize, [0_usize; 16]);
            for place in (0..VISITS).step_by(group) {
                sampler.pass(group);
                for member in 0..group {
                    if sampler.takes(member) {
                        sampled += 1;
                        by_place[(place + member) % 16] += 1;
                    }
                }
            }
            let expected = VISITS / ONE_IN as usize;
            assert!(sampled.abs_diff(expected) < expected / 20, "{sampled} of {expected}");
            // Sixteen connections in turn are met alike.
            assert!(by_place.iter().all(|count| *count > expected / 16 / 2), "{by_place:?}");
        }
    }

    #[test]
    fn nothing_of_one_tenant_is_recorded_as_anothers() {
        let mut sampler = Sampler::default();
        let command = SampledCommand::new("redis", "get");
        for (tenant, key, expected) in [(1, "a", 1), (1, "b", 2), (2, "c", 1)] {
            sampler.record(TenantId(tenant), command, [key.as_bytes()].into_iter());
            assert_eq!(sampler.recorded.iter().count(), expected);
        }
    }
}
