//! What became of a tenant's grant, why, what was expected of it, and what came.
//!
//! Invariants: a tenant whose grant never moved costs no allocation, and no list is longer than the caller allows. What
//! would flood a list is one move: steps of the same reason and direction, one after the other.

use std::collections::VecDeque;
use std::time::Duration;

use tidemark_types::{TenantCounters, UnixMs};

/// The most moves that are kept of a tenant: a day's, if it moves every minute and a half.
pub(crate) const MAX_MOVES: usize = 1000;
/// With many tenants fewer are kept of each, so that all moves together take at most 64 MiB.
const MAX_MOVES_OF_ALL: usize = 1 << 20;
/// Of however many tenants, each keeps the last ones.
const MIN_MOVES: usize = 16;
/// Steps of the same reason and direction that are nearer together are one move: a way that takes many rounds,
const STEPS_WITHIN: Duration = Duration::from_secs(2);
/// but no longer than this, so that a list shows how it went on.
const MERGED_WITHIN: Duration = Duration::from_secs(60);
/// What came of a move is measured for this long, or until the next one,
const MEASURED_FOR: Duration = Duration::from_secs(10);
/// and over so many gets at least: the hit ratio is then known to about a point. With fewer it is not known.
const MEASURED_GETS: u64 = 1000;

/// Why a grant moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The tenant's goal asks for it.
    Goal,
    /// The tenant's floor is given to it.
    Floor,
    /// What no goal and no floor asks for is shared anew.
    Surplus,
    /// Memory beyond need is lent.
    Lend,
    /// Lent memory is taken back.
    Recall,
    /// The tenant holds nothing any more, or was asked nothing for long and others want its memory.
    Idle,
    /// The first grant, of a new tenant or one that comes back.
    Join,
    /// The tenant is removed.
    Leave,
    /// The grant was above the tenant's cap, or all grants above the pool.
    Cap,
    /// An operator changed a setting.
    Operator,
}

impl Reason {
    /// The name in the API and the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::Floor => "floor",
            Self::Surplus => "surplus",
            Self::Lend => "lend",
            Self::Recall => "recall",
            Self::Idle => "idle",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Cap => "cap",
            Self::Operator => "operator",
        }
    }
}

/// A change of a grant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    /// When; of several that became one, the first.
    pub(crate) at: UnixMs,
    pub(crate) from_bytes: u64,
    pub(crate) to_bytes: u64,
    pub(crate) reason: Reason,
    /// The hit ratio that was expected of it; `None` where nothing was.
    pub(crate) predicted_hit_ratio: Option<f64>,
    /// The hit ratio of the gets behind it, as soon as it is known.
    pub(crate) measured_hit_ratio: Option<f64>,
}

impl Move {
    /// Whether it is one more step of a move whose last one was at `stepped_at`.
    fn continues(&self, before: &Self, stepped_at: UnixMs) -> bool {
        let is_growth = |change: &Self| change.to_bytes > change.from_bytes;
        before.reason == self.reason
            && is_growth(before) == is_growth(self)
            && before.to_bytes == self.from_bytes
            && self.at.since(stepped_at) < STEPS_WITHIN
            && self.at.since(before.at) < MERGED_WITHIN
    }
}

/// The moves of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Oldest first.
    kept: VecDeque<Move>,
    /// When the newest one's last step was.
    stepped_at: UnixMs,
    /// Where the counters stood at the newest one, while what came of it is not known.
    measured_from: Option<Mark>,
}

/// A moment, and the counters then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: UnixMs,
    gets: u64,
    hits: u64,
}

impl Moves {
    /// Notes a move. `counters` are the tenant's as they are last known; `most` is how many moves are kept.
    /// Returns whether it is one of its own, and not the last one going on.
    pub(crate) fn note(&mut self, change: Move, counters: &TenantCounters, most: usize) -> bool {
        self.finish_measuring(counters);
        self.measured_from = Some(Mark {
            at: change.at,
            gets: counters.gets,
            hits: counters.hits,
        });
        let stepped_at = std::mem::replace(&mut self.stepped_at, change.at);
        match self.kept.back_mut() {
            Some(last) if change.continues(last, stepped_at) => {
                last.to_bytes = change.to_bytes;
                last.predicted_hit_ratio = change.predicted_hit_ratio;
                // What was measured is of a part of the way.
                last.measured_hit_ratio = None;
                return false;
            }
            _ => {}
        }
        while self.kept.len() >= most.max(1) {
            self.kept.pop_front();
        }
        self.kept.push_back(change);
        true
    }

    /// Takes the tenant's counters at `now` into account: what came of the newest move may be known with them.
    pub(crate) fn observe(&mut self, now: UnixMs, counters: &TenantCounters) {
        let is_enough =
            |from: Mark| now.since(from.at) >= MEASURED_FOR && counters.gets.saturating_sub(from.gets) >= MEASURED_GETS;
        if self.measured_from.is_some_and(is_enough) {
            self.finish_measuring(counters);
        }
    }

    fn finish_measuring(&mut self, counters: &TenantCounters) {
        let (Some(from), Some(last)) = (self.measured_from.take(), self.kept.back_mut()) else {
            return;
        };
        let gets = counters.gets.saturating_sub(from.gets);
        if gets >= MEASURED_GETS {
            // Both counts are far below 2^53, where a float still tells neighbours apart.
            last.measured_hit_ratio = Some(counters.hits.saturating_sub(from.hits) as f64 / gets as f64);
        }
    }

    /// All that are kept, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Move> {
        self.kept.iter().rev()
    }
}

/// How many moves are kept of each tenant when there are so many of them.
pub(crate) fn kept_of_each(tenants: usize) -> usize {
    (MAX_MOVES_OF_ALL / tenants.max(1)).clamp(MIN_MOVES, MAX_MOVES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn change(at_ms: u64, from_bytes: u64, to_bytes: u64, reason: Reason) -> Move {
        Move {
            at: UnixMs(at_ms),
            from_bytes,
            to_bytes,
            reason,
            predicted_hit_ratio: None,
            measured_hit_ratio: None,
        }
    }

    fn counters(gets: u64, hits: u64) -> TenantCounters {
        TenantCounters {
            gets,
            hits,
            ..TenantCounters::default()
        }
    }

    fn newest(moves: &Moves) -> Move {
        *moves.newest_first().next().unwrap()
    }

    #[test]
    fn who_never_moved_costs_no_allocation() {
        let mut moves = Moves::default();
        moves.observe(UnixMs(5), &counters(10, 5));
        assert_eq!((moves.kept.capacity(), moves.newest_first().count()), (0, 0));
    }

    #[test]
    fn steps_of_one_kind_are_one_move() {
        let first = change(1000, MIB, 2 * MIB, Reason::Surplus);
        for (next, is_own) in [
            (change(2999, 2 * MIB, 3 * MIB, Reason::Surplus), false),
            (change(3000, 2 * MIB, 3 * MIB, Reason::Surplus), true),
            (change(1001, 2 * MIB, MIB, Reason::Surplus), true),
            (change(1001, 2 * MIB, 3 * MIB, Reason::Floor), true),
            // The data plane made a grant between them.
            (change(1001, 0, 3 * MIB, Reason::Surplus), true),
        ] {
            let mut moves = Moves::default();
            assert!(moves.note(first, &counters(0, 0), MAX_MOVES));
            assert_eq!(moves.note(next, &counters(0, 0), MAX_MOVES), is_own, "{next:?}");
            let expected = if is_own {
                next
            } else {
                change(1000, MIB, 3 * MIB, Reason::Surplus)
            };
            assert_eq!(newest(&moves), expected);
            assert_eq!(moves.newest_first().count(), if is_own { 2 } else { 1 });
        }
        // However many there are: each minute has one.
        let mut moves = Moves::default();
        for step in 0..600 {
            moves.note(
                change(step * 1000, step * MIB, (step + 1) * MIB, Reason::Surplus),
                &counters(0, 0),
                MAX_MOVES,
            );
        }
        assert_eq!(moves.newest_first().count(), 10);
    }

    #[test]
    fn the_oldest_go_first() {
        let mut moves = Moves::default();
        for step in 0..2500 {
            moves.note(
                change(step * 5000, step, step + 1, Reason::Surplus),
                &counters(0, 0),
                MAX_MOVES,
            );
        }
        let kept: Vec<u64> = moves.newest_first().map(|change| change.from_bytes).collect();
        assert_eq!((kept.len(), kept[0], kept[MAX_MOVES - 1]), (MAX_MOVES, 2499, 1500));
        moves.note(change(99_000_000, 0, 1, Reason::Surplus), &counters(0, 0), 16);
        assert_eq!(moves.newest_first().count(), 16, "tenants came meanwhile");
        for (tenants, most) in [(0, 1000), (1, 1000), (1048, 1000), (2097, 500), (65_536, 16)] {
            assert_eq!(kept_of_each(tenants), most, "{tenants}");
        }
    }

    #[test]
    fn what_came_of_a_move_is_measured() {
        for (what, looks, measured) in [
            ("nothing happened", vec![], None),
            ("too early", vec![(9_999, 5000, 4000)], None),
            ("too few gets", vec![(60_000, 1099, 900)], None),
            ("enough", vec![(10_000, 1100, 990)], Some(0.9)),
            (
                "later gets do not count",
                vec![(10_000, 1100, 990), (20_000, 9000, 990)],
                Some(0.9),
            ),
            (
                "as soon as both are so",
                vec![(30_000, 600, 590), (50_000, 2100, 1090)],
                Some(0.5),
            ),
        ] {
            let mut moves = Moves::default();
            moves.note(change(0, 0, MIB, Reason::Join), &counters(100, 90), MAX_MOVES);
            for (at_ms, gets, hits) in looks {
                moves.observe(UnixMs(at_ms), &counters(gets, hits));
            }
            assert_eq!(newest(&moves).measured_hit_ratio, measured, "{what}");
        }
    }

    #[test]
    fn the_next_move_ends_the_measurement() {
        let mut moves = Moves::default();
        moves.note(change(0, 0, MIB, Reason::Join), &counters(0, 0), MAX_MOVES);
        moves.note(
            change(3000, MIB, 2 * MIB, Reason::Surplus),
            &counters(1000, 400),
            MAX_MOVES,
        );
        moves.note(change(9000, 2 * MIB, 0, Reason::Idle), &counters(1999, 400), MAX_MOVES);
        let measured: Vec<_> = moves.newest_first().map(|change| change.measured_hit_ratio).collect();
        assert_eq!(measured, [None, None, Some(0.4)], "999 gets say nothing");
        // One that goes on is measured from its end.
        moves.note(change(20_000, 0, MIB, Reason::Join), &counters(2000, 400), MAX_MOVES);
        moves.note(
            change(20_500, MIB, 2 * MIB, Reason::Join),
            &counters(4000, 400),
            MAX_MOVES,
        );
        assert_eq!(newest(&moves).measured_hit_ratio, None);
        moves.observe(UnixMs(30_500), &counters(5000, 1400));
        assert_eq!(newest(&moves).measured_hit_ratio, Some(1.0));
    }

    #[test]
    fn reasons_have_the_names_of_the_api() {
        let all = [
            Reason::Goal,
            Reason::Floor,
            Reason::Surplus,
            Reason::Lend,
            Reason::Recall,
            Reason::Idle,
            Reason::Join,
            Reason::Leave,
            Reason::Cap,
            Reason::Operator,
        ];
        assert_eq!(
            all.map(Reason::name).join(", "),
            "goal, floor, surplus, lend, recall, idle, join, leave, cap, operator"
        );
    }
}
