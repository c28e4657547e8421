//! The changes of a tenant's grant: reasons, predictions and outcomes.
//!
//! Invariants: a tenant whose grant never moved costs no allocation, and no list is longer than the caller allows.
//! Steps of the same reason and direction, one after the other, are one move, so that they do not flood the list.

use std::collections::VecDeque;
use std::time::Duration;

use tidemark_types::{TenantCounters, TenantId, UnixMs};

/// The most moves that are kept of a tenant: a day's, if it moves every minute and a half.
pub(crate) const MAX_MOVES: usize = 1000;
/// With many tenants fewer are kept of each, so that all moves together take at most 64 MiB.
const MAX_MOVES_OF_ALL: usize = 1 << 20;
/// Each tenant keeps so many of its last moves, however many tenants there are.
const MIN_MOVES: usize = 16;
/// Steps are one move for no longer than this, so that a list shows how it went on.
const MERGED_WITHIN: Duration = Duration::from_secs(60);
/// The outcome of a move is measured for this long, or until the next one,
const MEASURED_FOR: Duration = Duration::from_secs(10);
/// and over so many gets at least: the hit ratio is then known to about a point. With fewer it is not known.
pub(crate) const MEASURED_GETS: u64 = 1000;

/// Why a grant moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The tenant's goal asks for it.
    Goal,
    /// The tenant's floor is given to it.
    Floor,
    /// Memory that no goal and no floor asks for is shared anew.
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
    /// Every reason, in the order of its numbers.
    pub(crate) const ALL: [Self; 10] = [
        Self::Goal,
        Self::Floor,
        Self::Surplus,
        Self::Lend,
        Self::Recall,
        Self::Idle,
        Self::Join,
        Self::Leave,
        Self::Cap,
        Self::Operator,
    ];

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
    /// The tenant that most of it came from or went to, of several steps in the first that had one; `None`: free memory.
    pub(crate) other: Option<TenantId>,
    /// The hit ratio that was expected of it; `None` where nothing was.
    pub(crate) predicted_hit_ratio: Option<f64>,
    /// The hit ratio of the gets behind it, as soon as it is known.
    pub(crate) measured_hit_ratio: Option<f64>,
}

/// A hit ratio to expect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// The hit ratio by the curve with the memory after the move.
    pub(crate) by_curve: f64,
    /// The measured hit ratio before the move, less the curve's with the memory then; `None` if that is in it already.
    pub(crate) offset: Option<f64>,
}

impl Prediction {
    /// A prediction of nothing but this hit ratio.
    pub(crate) fn plainly(hit_ratio: f64) -> Self {
        Self {
            by_curve: hit_ratio,
            offset: None,
        }
    }

    fn hit_ratio(self) -> f64 {
        (self.by_curve + self.offset.unwrap_or(0.0)).clamp(0.0, 1.0)
    }
}

/// The limits on kept moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// The most moves.
    pub(crate) most: usize,
    /// Steps of the same reason and direction that are nearer together are one move.
    pub(crate) steps_within: Duration,
}

impl Move {
    /// Whether it is one more step of a move whose last one was so long ago.
    fn continues(&self, before: &Self, stepped: Duration, keeping: Keeping) -> bool {
        let is_growth = |change: &Self| change.to_bytes > change.from_bytes;
        before.reason == self.reason
            && is_growth(before) == is_growth(self)
            && before.to_bytes == self.from_bytes
            && stepped <= keeping.steps_within
            && self.at.since(before.at) < MERGED_WITHIN
    }
}

/// The moves of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Oldest first.
    kept: VecDeque<Move>,
    /// How many there were, kept or not, by the number of their reason.
    counts: [u32; Reason::ALL.len()],
    /// When the newest one's last step was.
    stepped_at: UnixMs,
    /// The offset of the prediction for its first step.
    offset: Option<f64>,
    /// The counters at the newest step, while its outcome is not known.
    measured_from: Option<Mark>,
}

/// The outcome of [`Moves::note`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noted {
    /// The hit ratio that is expected of the move.
    pub(crate) predicted_hit_ratio: Option<f64>,
    /// The move before, if the new one ended its measurement.
    pub(crate) measured: Option<Move>,
}

/// A moment, and the counters then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: UnixMs,
    gets: u64,
    hits: u64,
}

impl Moves {
    /// Notes a step of a move or a whole one, of which this is predicted. `counters` are the tenant's as they are last
    /// known.
    pub(crate) fn note(
        &mut self,
        change: Move,
        prediction: Option<Prediction>,
        counters: &TenantCounters,
        keeping: Keeping,
    ) -> Noted {
        let measured = self.finish_measuring(counters);
        self.measured_from = Some(Mark {
            at: change.at,
            gets: counters.gets,
            hits: counters.hits,
        });
        let stepped_at = std::mem::replace(&mut self.stepped_at, change.at);
        // It starts from the measurement before the first step: else it would only say that a small step changes
        // little.
        let first = self.offset;
        let predicted_as_from = |first: Option<f64>| {
            let prediction = prediction?;
            let offset = prediction.offset.map(|own| first.unwrap_or(own));
            Some(Prediction { offset, ..prediction }.hit_ratio())
        };
        match self.kept.back_mut() {
            Some(last) if change.continues(last, change.at.since(stepped_at), keeping) => {
                last.to_bytes = change.to_bytes;
                last.other = last.other.or(change.other);
                last.predicted_hit_ratio = predicted_as_from(first);
                self.offset = first.or(prediction.and_then(|prediction| prediction.offset));
                // The measurement is of a part of the way.
                last.measured_hit_ratio = None;
                return Noted {
                    predicted_hit_ratio: last.predicted_hit_ratio,
                    measured: None,
                };
            }
            _ => {}
        }
        while self.kept.len() >= keeping.most.max(1) {
            self.kept.pop_front();
        }
        self.offset = prediction.and_then(|prediction| prediction.offset);
        let predicted_hit_ratio = predicted_as_from(None);
        let count = &mut self.counts[change.reason as usize];
        *count = count.saturating_add(1);
        self.kept.push_back(Move {
            predicted_hit_ratio,
            ..change
        });
        Noted {
            predicted_hit_ratio,
            measured,
        }
    }

    /// Takes the tenant's counters at `now` into account. The newest move, if its outcome is known with them.
    pub(crate) fn observe(&mut self, now: UnixMs, counters: &TenantCounters) -> Option<Move> {
        let is_enough =
            |from: Mark| now.since(from.at) >= MEASURED_FOR && counters.gets.saturating_sub(from.gets) >= MEASURED_GETS;
        if !self.measured_from.is_some_and(is_enough) {
            return None;
        }
        self.finish_measuring(counters)
    }

    /// The newest move, if its outcome is known now.
    fn finish_measuring(&mut self, counters: &TenantCounters) -> Option<Move> {
        let (from, last) = (self.measured_from.take()?, self.kept.back_mut()?);
        let gets = counters.gets.saturating_sub(from.gets);
        if gets < MEASURED_GETS {
            return None;
        }
        // Both counts are far below 2^53, where a float still tells neighbours apart.
        last.measured_hit_ratio = Some(counters.hits.saturating_sub(from.hits) as f64 / gets as f64);
        Some(*last)
    }

    /// How many there were since the server began, of each reason that there were any of.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Reason, u32)> {
        let all = Reason::ALL.into_iter().zip(self.counts);
        all.filter(|(_, count)| *count > 0)
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
            other: None,
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

    const KEEPING: Keeping = Keeping {
        most: MAX_MOVES,
        steps_within: Duration::from_secs(2),
    };

    fn note(moves: &mut Moves, change: Move, counters: &TenantCounters) {
        moves.note(change, None, counters, KEEPING);
    }

    fn newest(moves: &Moves) -> Move {
        *moves.newest_first().next().unwrap()
    }

    #[test]
    fn who_never_moved_costs_no_allocation() {
        let mut moves = Moves::default();
        assert_eq!(moves.observe(UnixMs(5), &counters(10, 5)), None);
        assert_eq!((moves.kept.capacity(), moves.newest_first().count()), (0, 0));
        assert_eq!(moves.counts().count(), 0);
    }

    #[test]
    fn steps_of_one_kind_are_one_move() {
        let first = change(1000, MIB, 2 * MIB, Reason::Surplus);
        for (next, is_own) in [
            (change(3000, 2 * MIB, 3 * MIB, Reason::Surplus), false),
            (change(3001, 2 * MIB, 3 * MIB, Reason::Surplus), true),
            (change(1001, 2 * MIB, MIB, Reason::Surplus), true),
            (change(1001, 2 * MIB, 3 * MIB, Reason::Floor), true),
            // The data plane made a grant between them.
            (change(1001, 0, 3 * MIB, Reason::Surplus), true),
        ] {
            let mut moves = Moves::default();
            note(&mut moves, first, &counters(0, 0));
            note(&mut moves, next, &counters(0, 0));
            let expected = if is_own {
                next
            } else {
                change(1000, MIB, 3 * MIB, Reason::Surplus)
            };
            assert_eq!(newest(&moves), expected, "{next:?}");
            assert_eq!(moves.newest_first().count(), if is_own { 2 } else { 1 });
            let counted: u32 = moves.counts().map(|(_, count)| count).sum();
            assert_eq!(counted, if is_own { 2 } else { 1 });
        }
        // The other side is that of the first step that had one.
        let mut moves = Moves::default();
        for (at, other) in [(0, None), (1, Some(TenantId(7))), (2, Some(TenantId(8)))] {
            let step = change(at * 1000, at * MIB, (at + 1) * MIB, Reason::Surplus);
            note(&mut moves, Move { other, ..step }, &counters(0, 0));
        }
        assert_eq!(newest(&moves).other, Some(TenantId(7)));
        // However many there are: each minute has one.
        let mut moves = Moves::default();
        for step in 0..600 {
            note(
                &mut moves,
                change(step * 1000, step * MIB, (step + 1) * MIB, Reason::Surplus),
                &counters(0, 0),
            );
        }
        assert_eq!(moves.newest_first().count(), 10);
    }

    #[test]
    fn the_oldest_go_first() {
        let mut moves = Moves::default();
        for step in 0..2500 {
            note(
                &mut moves,
                change(step * 5000, step, step + 1, Reason::Surplus),
                &counters(0, 0),
            );
        }
        assert_eq!(
            moves.counts().collect::<Vec<_>>(),
            [(Reason::Surplus, 2500)],
            "kept or not"
        );
        let kept: Vec<u64> = moves.newest_first().map(|change| change.from_bytes).collect();
        assert_eq!((kept.len(), kept[0], kept[MAX_MOVES - 1]), (MAX_MOVES, 2499, 1500));
        let keeping = Keeping { most: 16, ..KEEPING };
        moves.note(
            change(99_000_000, 0, 1, Reason::Surplus),
            None,
            &counters(0, 0),
            keeping,
        );
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
            note(&mut moves, change(0, 0, MIB, Reason::Join), &counters(100, 90));
            let told: Vec<Move> = looks
                .iter()
                .filter_map(|(at_ms, gets, hits)| moves.observe(UnixMs(*at_ms), &counters(*gets, *hits)))
                .collect();
            assert_eq!(newest(&moves).measured_hit_ratio, measured, "{what}");
            let told: Vec<f64> = told.iter().filter_map(|change| change.measured_hit_ratio).collect();
            assert_eq!(told, Vec::from_iter(measured), "{what}: told once");
        }
    }

    #[test]
    fn the_next_move_ends_the_measurement() {
        let mut moves = Moves::default();
        note(&mut moves, change(0, 0, MIB, Reason::Join), &counters(0, 0));
        note(
            &mut moves,
            change(3000, MIB, 2 * MIB, Reason::Surplus),
            &counters(1000, 400),
        );
        note(&mut moves, change(9000, 2 * MIB, 0, Reason::Idle), &counters(1999, 400));
        let measured: Vec<_> = moves.newest_first().map(|change| change.measured_hit_ratio).collect();
        assert_eq!(measured, [None, None, Some(0.4)], "999 gets say nothing");
        // One that goes on is measured from its end.
        note(&mut moves, change(20_000, 0, MIB, Reason::Join), &counters(2000, 400));
        note(
            &mut moves,
            change(20_500, MIB, 2 * MIB, Reason::Join),
            &counters(4000, 400),
        );
        assert_eq!(newest(&moves).measured_hit_ratio, None);
        let told = moves.observe(UnixMs(30_500), &counters(5000, 1400));
        assert_eq!(told, Some(newest(&moves)));
        assert_eq!(newest(&moves).measured_hit_ratio, Some(1.0));
    }

    #[test]
    fn a_way_of_many_steps_is_predicted_from_where_it_began() {
        let mut moves = Moves::default();
        // The curve says 0.1 more than there is, and 0.02 more with each step.
        for step in 0..10_u32 {
            let prediction = Prediction {
                by_curve: 0.6 + 0.02 * f64::from(step),
                offset: Some(if step == 0 { -0.1 } else { 0.05 }),
            };
            let (from, to) = (u64::from(step) * MIB, u64::from(step + 1) * MIB);
            let change = change(u64::from(step) * 1000, from, to, Reason::Surplus);
            moves.note(change, Some(prediction), &counters(0, 0), KEEPING);
            let predicted = newest(&moves).predicted_hit_ratio.unwrap();
            assert!((predicted - (0.5 + 0.02 * f64::from(step))).abs() < 1e-9, "{predicted}");
        }
        assert_eq!((moves.newest_first().count(), newest(&moves).to_bytes), (1, 10 * MIB));
        // A prediction that contains the measurement already is not corrected by it again.
        let last = change(10_000, 10 * MIB, 11 * MIB, Reason::Surplus);
        moves.note(last, Some(Prediction::plainly(0.9)), &counters(0, 0), KEEPING);
        assert_eq!(newest(&moves).predicted_hit_ratio, Some(0.9));
        let certain = Prediction {
            by_curve: 0.95,
            offset: Some(0.1),
        };
        assert_eq!((certain.hit_ratio(), Prediction::plainly(0.7).hit_ratio()), (1.0, 0.7));
    }

    #[test]
    fn reasons_have_the_names_of_the_api() {
        assert_eq!(
            Reason::ALL.map(Reason::name).join(", "),
            "goal, floor, surplus, lend, recall, idle, join, leave, cap, operator"
        );
        let numbers = Reason::ALL.map(|reason| reason as usize);
        assert_eq!(numbers, std::array::from_fn(|number| number));
    }
}
