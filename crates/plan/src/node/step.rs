//! The next step of one instance about its lease.

use super::share::{LEASE_UNIT_BYTES, Member, Node, shares};

/// Leases within a 16th of their target stay. Nobody has much use for so little, and giving it back would have to be
/// undone as often as not.
const TOLERANCE_DIVISOR: u64 = 16;
/// Leases within so much of their target stay in any case: two large segments.
const TOLERANCE_BYTES_MIN: u64 = 4 * LEASE_UNIT_BYTES;

/// The step to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// Hold no more than so many bytes, then state it.
    Shrink(u64),
    /// State so many bytes, then hold them if all leases fit.
    Grow(u64),
}

/// The step of the member with this index. Memory promised to others is given back at once, by each that has too much,
/// in proportion. Beyond that at most `pace_bytes` move at a time. Free memory goes to promises first.
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

/// The differences between leases and their targets, in bytes and in the members' order.
struct Gaps {
    /// The promised bytes that each lacks.
    promised: Vec<u64>,
    lacking: Vec<u64>,
    /// The bytes above the target. A stalled member has none, because it can give none back.
    excess: Vec<u64>,
    free: u64,
    /// The bytes of all leases beyond the node's memory.
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

    /// The bytes that have to be given back at once.
    fn urgent(&self) -> u64 {
        let missing: u64 = self.promised.iter().sum();
        missing.saturating_sub(self.free).saturating_add(self.over)
    }

    /// Whether some member lacks more than it would tolerate, and more than is free. A trifle to a large instance may
    /// be much to a small one.
    fn is_felt(&self, node: &Node<'_>) -> bool {
        let mut lacking = self.lacking.iter().zip(node.members);
        self.lacking.iter().sum::<u64>() > self.free
            && lacking.any(|(bytes, member)| *bytes >= tolerance(member.lease_bytes))
    }
}
