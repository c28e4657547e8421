//! The memory that is taken from idle tenants when others want more than is free: pure functions over plain values.
//!
//! Invariant: nothing is taken from a tenant before everything was taken from all that were idle for longer. No more is
//! taken than is wanted, except for a rest that nobody could work with.

use tidemark_types::{MIB, UnixMs};

use crate::grant::Holder;
use crate::settings::round_up;

/// Less than this is not left to a tenant: a first write needs more.
const LEAST_REST_BYTES: u64 = MIB;
/// The least memory that a full tenant asks for: one large segment.
const LEAST_WISH_BYTES: u64 = 2 * MIB;
/// A full tenant asks for this multiple of its recent writes, as it does when equal shares are restored.
const WISH_PER_INFLOW: u64 = 4;

/// An idle tenant that holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleeper {
    /// The memory that it holds.
    pub(crate) usage_bytes: u64,
    /// When it was last asked something.
    pub(crate) active_at: UnixMs,
}

/// The memory that the others want and that is not free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shortage {
    /// The memory for their floors: at once.
    floor_bytes: u64,
    /// Beyond: as fast as memory may move.
    surplus_bytes: u64,
}

/// Lowers the caps of idle tenants if others want their memory; in `asleep` are those of the holders that are idle.
/// `step_bytes` is the most that may move beyond floors.
pub(crate) fn make_room(holders: &mut [Holder<'_>], asleep: &[Option<Sleeper>], available_bytes: u64, step_bytes: u64) {
    let idle: Vec<Sleeper> = asleep.iter().flatten().copied().collect();
    if idle.is_empty() {
        return;
    }
    let awake = holders.iter().zip(asleep).filter(|(_, asleep)| asleep.is_none());
    let active: Vec<Holder<'_>> = awake.map(|(holder, _)| *holder).collect();
    let shortage = shortage(&active, &idle, available_bytes);
    let surplus_bytes = shortage.surplus_bytes.min(step_bytes);
    let kept = left(&idle, shortage.floor_bytes.saturating_add(surplus_bytes));
    let sleeping = holders.iter_mut().zip(asleep).filter(|(_, asleep)| asleep.is_some());
    for ((holder, _), left) in sleeping.zip(kept) {
        if let Some(left) = left {
            holder.cap_bytes = Some(left.min(holder.cap_bytes.unwrap_or(u64::MAX)));
        }
    }
}

/// The memory that active tenants want beyond the free memory and the part that idle ones do not use, in a pool of
/// which `available_bytes` can be granted.
fn shortage(active: &[Holder<'_>], idle: &[Sleeper], available_bytes: u64) -> Shortage {
    let (mut shortage, mut granted_bytes) = (Shortage::default(), 0_u64);
    for holder in active {
        granted_bytes = granted_bytes.saturating_add(holder.grant_bytes);
        if !(holder.wants_more && holder.is_full) {
            continue;
        }
        let cap = holder.cap_bytes.unwrap_or(available_bytes).min(available_bytes);
        // A goal gets no more than it needs, so that more would be taken for nobody.
        let limit = holder.goal.map_or(cap, |goal| cap.min(round_up(goal.bytes)));
        let missing = |bytes: u64| bytes.min(limit).saturating_sub(holder.grant_bytes);
        let to_floor = missing(holder.floor_bytes);
        let wanted = holder
            .inflow_bytes
            .saturating_mul(WISH_PER_INFLOW)
            .max(LEAST_WISH_BYTES);
        shortage.floor_bytes = shortage.floor_bytes.saturating_add(to_floor);
        shortage.surplus_bytes = shortage
            .surplus_bytes
            .saturating_add(missing(limit).saturating_sub(to_floor).min(wanted));
    }
    let held_bytes: u64 = idle.iter().map(|sleeper| round_up(sleeper.usage_bytes)).sum();
    let free_bytes = available_bytes.saturating_sub(granted_bytes).saturating_sub(held_bytes);
    let free_for_surplus = free_bytes.saturating_sub(shortage.floor_bytes);
    Shortage {
        floor_bytes: shortage.floor_bytes.saturating_sub(free_bytes),
        surplus_bytes: shortage.surplus_bytes.saturating_sub(free_for_surplus),
    }
}

/// The memory that each idle tenant may keep when so much is taken from all of them; in their order, `None` if nothing
/// is taken.
fn left(idle: &[Sleeper], wanted_bytes: u64) -> Vec<Option<u64>> {
    let mut oldest_first: Vec<usize> = (0..idle.len()).collect();
    oldest_first.sort_by_key(|index| idle[*index].active_at);
    let mut left = vec![None; idle.len()];
    let mut missing_bytes = round_up(wanted_bytes);
    for index in oldest_first {
        if missing_bytes == 0 {
            break;
        }
        let held_bytes = round_up(idle[index].usage_bytes);
        let rest_bytes = held_bytes.saturating_sub(missing_bytes);
        left[index] = Some(if rest_bytes < LEAST_REST_BYTES { 0 } else { rest_bytes });
        missing_bytes = missing_bytes.saturating_sub(held_bytes);
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grant::GoalNeed;
    use tidemark_plan::Reach;

    fn sleeper(usage_mib: u64, active_at: u64) -> Sleeper {
        Sleeper {
            usage_bytes: usage_mib * MIB,
            active_at: UnixMs(active_at),
        }
    }

    /// One that is full and wants more.
    fn full(grant_mib: u64, inflow_mib: u64) -> Holder<'static> {
        Holder {
            grant_bytes: grant_mib * MIB,
            usage_bytes: grant_mib * MIB,
            inflow_bytes: inflow_mib * MIB,
            wants_more: true,
            is_full: true,
            shards: 1,
            ..Holder::default()
        }
    }

    #[test]
    fn the_longest_idle_gives_first() {
        let idle = [sleeper(50, 30), sleeper(20, 10), sleeper(10, 20)];
        for (wanted_mib, left_mib) in [
            (0, [None, None, None]),
            (5, [None, Some(15), None]),
            (19, [None, Some(1), None]),
            (20, [None, Some(0), None]),
            (25, [None, Some(0), Some(5)]),
            (70, [Some(10), Some(0), Some(0)]),
            (500, [Some(0), Some(0), Some(0)]),
        ] {
            let expected = left_mib.map(|left| left.map(|mib: u64| mib * MIB));
            assert_eq!(left(&idle, wanted_mib * MIB), expected, "{wanted_mib}");
        }
        // Nobody could work with so little.
        assert_eq!(left(&idle, 19 * MIB + 1), [None, Some(0), None]);
        assert_eq!(left(&[], MIB), []);
    }

    #[test]
    fn only_full_tenants_are_short_and_only_of_what_is_not_free() {
        let floor = |floor_mib: u64, holder: Holder<'static>| Holder {
            floor_bytes: floor_mib * MIB,
            ..holder
        };
        let cap = |cap_mib: u64, holder: Holder<'static>| Holder {
            cap_bytes: Some(cap_mib * MIB),
            ..holder
        };
        let goal = |goal_mib: u64, holder: Holder<'static>| Holder {
            goal: Some(GoalNeed {
                bytes: goal_mib * MIB,
                reach: Reach::Within,
            }),
            ..holder
        };
        let content = Holder {
            is_full: false,
            ..full(50, 10)
        };
        for (what, active, floor_mib, surplus_mib) in [
            ("nobody is there", vec![], 0, 0),
            ("somebody is content", vec![content], 0, 0),
            ("enough is free", vec![full(40, 2)], 0, 0),
            ("a little is wanted", vec![full(60, 0)], 0, 2),
            ("four times what was written", vec![full(60, 3)], 0, 12),
            ("up to the cap", vec![cap(65, full(60, 3))], 0, 5),
            ("up to the pool", vec![full(60, 30)], 0, 40),
            ("up to the goal", vec![goal(63, full(60, 3))], 0, 3),
            ("a goal that has what it needs", vec![goal(50, full(60, 3))], 0, 0),
            ("the floor at once", vec![floor(75, full(60, 1))], 15, 4),
            ("a floor that is kept", vec![floor(10, full(60, 0))], 0, 2),
            ("what is free goes to floors first", vec![floor(45, full(40, 5))], 0, 5),
            ("two", vec![full(30, 1), full(30, 2)], 0, 12),
        ] {
            let expected = Shortage {
                floor_bytes: floor_mib * MIB,
                surplus_bytes: surplus_mib * MIB,
            };
            // 100 MiB can be granted, of which the idle one holds 40.
            assert_eq!(shortage(&active, &[sleeper(40, 0)], 100 * MIB), expected, "{what}");
        }
    }

    #[test]
    fn the_idle_make_room_within_the_step() {
        let asleep = [None, Some(sleeper(40, 7)), Some(sleeper(30, 5)), None];
        let quiet = |mib: u64| Holder {
            wants_more: false,
            is_full: false,
            ..full(mib, 0)
        };
        for (step_mib, floor_mib, caps_mib) in [
            (0, 0, [None, None, None, None]),
            (10, 0, [None, None, Some(20), None]),
            (35, 0, [None, Some(35), Some(0), None]),
            (100, 0, [None, Some(0), Some(0), None]),
            (100, 80, [None, Some(0), Some(0), None]),
            (0, 30, [None, None, Some(24), None]),
        ] {
            let wanting = Holder {
                floor_bytes: floor_mib * MIB,
                ..full(20, 100)
            };
            // 4 of 100 MiB are free.
            let mut holders = [wanting, quiet(40), quiet(30), quiet(6)];
            make_room(&mut holders, &asleep, 100 * MIB, step_mib * MIB);
            let caps = holders.map(|holder| holder.cap_bytes.map(|cap| cap / MIB));
            assert_eq!(caps, caps_mib, "{step_mib} {floor_mib}");
        }
    }

    proptest! {
        #[test]
        fn as_much_is_taken_as_is_wanted(
            held in prop::collection::vec((0_u64..100 * MIB, 0_u64..5), 0..8),
            wanted_bytes in 0_u64..500 * MIB,
        ) {
            let idle: Vec<Sleeper> = held
                .iter()
                .map(|(usage_bytes, at)| Sleeper { usage_bytes: *usage_bytes, active_at: UnixMs(*at) })
                .collect();
            let left = left(&idle, wanted_bytes);
            let mut taken_bytes = 0;
            for (sleeper, left) in idle.iter().zip(&left) {
                let held_bytes = round_up(sleeper.usage_bytes);
                prop_assert!(left.unwrap_or(0) <= held_bytes);
                prop_assert!(left.is_none_or(|left| left == 0 || left >= LEAST_REST_BYTES));
                taken_bytes += left.map_or(0, |left| held_bytes - left);
            }
            let all_bytes: u64 = idle.iter().map(|sleeper| round_up(sleeper.usage_bytes)).sum();
            prop_assert!(taken_bytes >= round_up(wanted_bytes).min(all_bytes));
            prop_assert!(taken_bytes < round_up(wanted_bytes) + LEAST_REST_BYTES);
            for (a, of_a) in idle.iter().zip(&left) {
                for (b, of_b) in idle.iter().zip(&left) {
                    let gives_first = a.active_at < b.active_at && of_b.is_some() && a.usage_bytes > 0;
                    prop_assert!(!gives_first || *of_a == Some(0));
                }
            }
        }
    }
}
