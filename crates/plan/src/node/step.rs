//! What one instance is to do now about its lease.

use super::share::{LEASE_UNIT_BYTES, Node, shares};

/// A lease that is within a 16th of what it should be stays: others have no use for so little, and giving it back would have
/// to be undone as often as not.
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
    let shares = shares(node);
    let lease = node.members[me].lease_bytes;
    let target = shares.target[me].max(node.least_bytes);
    let leased: u64 = node
        .members
        .iter()
        .fold(0, |sum, member| sum.saturating_add(member.lease_bytes));
    let free = node.bytes.saturating_sub(leased);
    let missing = |index: usize| shares.promised[index].saturating_sub(node.members[index].lease_bytes);
    let all_missing: u64 = (0..node.members.len()).map(missing).sum();
    if target > lease {
        let for_others = all_missing - missing(me);
        let gain = (target - lease).min(free.saturating_sub(for_others).max(free.min(missing(me))));
        let gain = gain / LEASE_UNIT_BYTES * LEASE_UNIT_BYTES;
        return if gain > 0 { Step::Grow(lease + gain) } else { Step::Stay };
    }
    let excess = lease - target;
    let urgent = all_missing
        .saturating_sub(free)
        .saturating_add(leased.saturating_sub(node.bytes));
    if excess == 0 || (urgent == 0 && excess < (lease / TOLERANCE_DIVISOR).max(TOLERANCE_BYTES_MIN)) {
        return Step::Stay;
    }
    let excess_of = |index: usize| {
        let member = &node.members[index];
        let target = shares.target[index].max(node.least_bytes);
        if member.is_stalled {
            0
        } else {
            member.lease_bytes.saturating_sub(target)
        }
    };
    let all_excess: u128 = (0..node.members.len()).map(|index| u128::from(excess_of(index))).sum();
    let part = (u128::from(urgent) * u128::from(excess)).div_ceil(all_excess.max(1));
    let part = u64::try_from(part)
        .unwrap_or(u64::MAX)
        .div_ceil(LEASE_UNIT_BYTES)
        .saturating_mul(LEASE_UNIT_BYTES);
    Step::Shrink(target.max(lease.saturating_sub(part.max(pace_bytes))))
}
