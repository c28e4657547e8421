//! What one instance is to do now about its lease.

use super::share::{LEASE_UNIT_BYTES, Member, Node, shares};

/// Leases that are within a 16th of what they should be stay: nobody has much use for so little, and giving it back would
/// have to be undone as often as not.
const TOLERANCE_DIVISOR: u64 = 16;
/// And within so much in any case: two large segments.
const TOLERANCE_BYTES_MIN: u64 = 4 * LEASE_UNIT_BYTES;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// Hold no more than so many bytes, then state it.
    Shrink(u64),
    /// State so many bytes, then hold them if all leases fit.
    Grow(u64),
}

/// What the member with this index is to do. What others are promised is given back at once, each that has too much by its
/// part of it; beyond that at most `pace_bytes` at a time. What is free goes to promises first.
pub fn step(node: &Node<'_>, me: usize, pace_bytes: u64) -> Step {
    let gaps = Gaps::of(node);
    let lease = node.members[me].lease_bytes;
    let gain = gaps.lacking[me];
    if gain > 0 {
        let for_others = gaps.promised.iter().sum::<u64>() - gaps.promised[me];
        let free = gaps
            .free
            .saturating_sub(for_others)
            .max(gaps.free.min(gaps.promised[me]));
        let gain = gain.min(free) / LEASE_UNIT_BYTES * LEASE_UNIT_BYTES;
        return if gain > 0 { Step::Grow(lease + gain) } else { Step::Stay };
    }
    let excess = gaps.excess[me];
    let urgent = gaps.urgent();
    if excess == 0 || (urgent == 0 && excess < tolerance(lease) && !gaps.is_felt(node)) {
        return Step::Stay;
    }
    let all_excess: u128 = gaps.excess.iter().map(|bytes| u128::from(*bytes)).sum();
    let part = (u128::from(urgent) * u128::from(excess)).div_ceil(all_excess.max(1));
    let part = u64::try_from(part)
        .unwrap_or(u64::MAX)
        .div_ceil(LEASE_UNIT_BYTES)
        .saturating_mul(LEASE_UNIT_BYTES);
    Step::Shrink(lease - excess.min(part.max(pace_bytes)))
}

fn tolerance(lease_bytes: u64) -> u64 {
    (lease_bytes / TOLERANCE_DIVISOR).max(TOLERANCE_BYTES_MIN)
}

/// Where leases differ from what they should be, in bytes and in the members' order.
struct Gaps {
    /// Of what they are promised.
    promised: Vec<u64>,
    lacking: Vec<u64>,
    /// Who stands still has none, because it can give none back.
    excess: Vec<u64>,
    free: u64,
    /// What leases come to beyond the node's memory.
    over: u64,
}

impl Gaps {
    fn of(node: &Node<'_>) -> Self {
        let shares = shares(node);
        let leased = node
            .members
            .iter()
            .fold(0_u64, |sum, member| sum.saturating_add(member.lease_bytes));
        let targets = || {
            shares
                .target
                .iter()
                .map(|target| *target.max(&node.least_bytes))
                .zip(node.members)
        };
        let excess = |(target, member): (u64, &Member)| {
            if member.is_stalled {
                0
            } else {
                member.lease_bytes.saturating_sub(target)
            }
        };
        let lacking = |(target, member): (u64, &Member)| {
            if member.is_stalled {
                0
            } else {
                target.saturating_sub(member.lease_bytes)
            }
        };
        let promised = shares.promised.iter().zip(node.members);
        Self {
            promised: promised
                .map(|(promised, member)| promised.saturating_sub(member.lease_bytes))
                .collect(),
            lacking: targets().map(lacking).collect(),
            excess: targets().map(excess).collect(),
            free: node.bytes.saturating_sub(leased),
            over: leased.saturating_sub(node.bytes),
        }
    }

    /// What is to be given back at once.
    fn urgent(&self) -> u64 {
        let missing: u64 = self.promised.iter().sum();
        missing.saturating_sub(self.free).saturating_add(self.over)
    }

    /// Whether somebody lacks more than it would tolerate, and more than is free: what is a trifle to a large instance may
    /// be much to a small one.
    fn is_felt(&self, node: &Node<'_>) -> bool {
        let mut lacking = self.lacking.iter().zip(node.members);
        self.lacking.iter().sum::<u64>() > self.free
            && lacking.any(|(bytes, member)| *bytes >= tolerance(member.lease_bytes))
    }
}
