//! Givers and takers when grants move together: pure values in, pure values out.

use tidemark_types::TenantId;

/// A change of a grant among others of the same round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) id: TenantId,
    pub(super) from_bytes: u64,
    pub(super) to_bytes: u64,
}

/// For each change, in their order, the tenant on its other side: from which most of it came, or to which most of it went. `None`
/// where that is free memory, or where nothing changes. Those that give most give to those that gain most.
pub(super) fn other_sides(changes: &[Change]) -> Vec<Option<TenantId>> {
    let moved = |change: &Change| change.from_bytes.abs_diff(change.to_bytes);
    let sorted = |is_side: fn(&Change) -> bool| {
        let mut side: Vec<(usize, u64)> = changes
            .iter()
            .enumerate()
            .filter(|(_, change)| is_side(change))
            .map(|(place, change)| (place, moved(change)))
            .collect();
        side.sort_by_key(|(place, bytes)| (std::cmp::Reverse(*bytes), *place));
        side
    };
    let mut givers = sorted(|change| change.to_bytes < change.from_bytes);
    let mut gainers = sorted(|change| change.to_bytes > change.from_bytes);
    // The most that any one other tenant has given to it or taken from it, and who that was.
    let mut most: Vec<(u64, Option<TenantId>)> = changes.iter().map(|_| (0, None)).collect();
    let (mut giver, mut gainer) = (0, 0);
    while let (Some(from), Some(to)) = (givers.get_mut(giver), gainers.get_mut(gainer)) {
        let bytes = from.1.min(to.1);
        (from.1, to.1) = (from.1 - bytes, to.1 - bytes);
        for (one, other) in [(from.0, to.0), (to.0, from.0)] {
            if let Some(most) = most.get_mut(one).filter(|most| bytes > most.0) {
                *most = (bytes, changes.get(other).map(|change| change.id));
            }
        }
        giver += usize::from(from.1 == 0);
        gainer += usize::from(to.1 == 0);
    }
    // The rest is free memory's.
    for (place, rest) in givers.into_iter().chain(gainers) {
        if let Some(most) = most.get_mut(place).filter(|most| rest > most.0) {
            most.1 = None;
        }
    }
    most.into_iter().map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_move_names_where_most_of_it_came_from_or_went() {
        for (what, changes, expected) in [
            ("nothing", vec![], vec![]),
            ("nothing moves", vec![(5, 5), (0, 0)], vec![None, None]),
            ("one to another", vec![(10, 4), (0, 6)], vec![Some(1), Some(0)]),
            ("from free memory", vec![(0, 6), (5, 5)], vec![None, None]),
            ("mostly from free memory", vec![(10, 8), (0, 6)], vec![Some(1), None]),
            ("mostly from another", vec![(10, 6), (0, 6)], vec![Some(1), Some(0)]),
            ("to free memory", vec![(10, 4), (0, 1)], vec![None, Some(0)]),
            (
                "the largest find each other",
                vec![(10, 9), (20, 10), (0, 10), (3, 4)],
                vec![Some(3), Some(2), Some(1), Some(0)],
            ),
            (
                "one to two",
                vec![(10, 0), (0, 4), (0, 6)],
                vec![Some(2), Some(0), Some(0)],
            ),
            (
                "two to one",
                vec![(10, 6), (9, 3), (0, 10)],
                vec![Some(2), Some(2), Some(1)],
            ),
        ] {
            let changes: Vec<Change> = (0..)
                .zip(&changes)
                .map(|(id, (from_bytes, to_bytes))| Change {
                    id: TenantId(id),
                    from_bytes: *from_bytes,
                    to_bytes: *to_bytes,
                })
                .collect();
            let expected: Vec<Option<TenantId>> =
                expected.into_iter().map(|id: Option<u32>| id.map(TenantId)).collect();
            assert_eq!(other_sides(&changes), expected, "{what}");
        }
    }
}
