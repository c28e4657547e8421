//! Which capacity gives a cache so much of something that can only be measured: memory, or items held.

use anyhow::Result;

/// The goal of the search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The figure to be reached, never to be exceeded by more than the tolerance.
    pub(crate) target: u64,
    /// How far from it is near enough, as a part of it.
    pub(crate) tolerance: f64,
    /// Measurements at most.
    pub(crate) steps: u32,
}

/// A capacity with its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The capacity.
    pub(crate) capacity: u64,
    /// The figure.
    pub(crate) measured: u64,
}

/// Looks for the capacity at which `measure` gives the goal: in proportion first, between the nearest ones below and above
/// then. Returns the one with the highest figure that does not exceed it; if every one did, `None`.
///
/// `measure` need only grow roughly: tables that double make steps in a cache's memory.
pub(crate) fn capacity_for(
    goal: Goal,
    guess: u64,
    mut measure: impl FnMut(u64) -> Result<u64>,
) -> Result<Option<Found>> {
    let target = goal.target as f64;
    let (least, most) = (target * (1.0 - goal.tolerance), target * (1.0 + goal.tolerance));
    let (mut below, mut above): (Option<Found>, Option<Found>) = (None, None);
    let mut capacity = guess.max(1);
    for _ in 0..goal.steps {
        let found = Found {
            capacity,
            measured: measure(capacity)?,
        };
        let figure = found.measured as f64;
        if figure > most {
            above = above.filter(|above| above.capacity < capacity).or(Some(found));
        } else if below.is_none_or(|below| below.measured < found.measured) {
            below = Some(found);
        }
        if (least..=most).contains(&figure) {
            break;
        }
        let low = below.map_or(0, |below| below.capacity);
        let high = above.map_or(u64::MAX, |above| above.capacity);
        if high.saturating_sub(low) <= 1 {
            break;
        }
        let proportional = (capacity as f64 * target / figure.max(1.0)) as u64;
        capacity = if low < proportional && proportional < high {
            proportional
        } else if high == u64::MAX {
            low.saturating_mul(2)
        } else {
            low + (high - low) / 2
        };
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Goal = Goal {
        target: 10_000,
        tolerance: 0.01,
        steps: 12,
    };

    fn check(of: impl Fn(u64) -> u64, measured: Option<std::ops::RangeInclusive<u64>>) {
        let mut steps = 0;
        let found = capacity_for(GOAL, 10_000, |capacity| {
            steps += 1;
            Ok(of(capacity))
        });
        let found = found.unwrap();
        assert!(steps <= GOAL.steps);
        match measured {
            None => assert_eq!(found, None),
            Some(range) => {
                let found = found.unwrap();
                assert!(
                    range.contains(&found.measured) && of(found.capacity) == found.measured,
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn capacities_are_found() {
        check(|capacity| capacity, Some(10_000..=10_000));
        check(|capacity| capacity * 3 / 2 + 700, Some(9_900..=10_100));
        check(|capacity| capacity / 7, Some(9_900..=10_100));
        // A table that doubles: nothing between 8,192 and 16,384.
        check(|capacity| capacity.next_power_of_two(), Some(8_192..=8_192));
        // A table that doubles beside parts that grow evenly: the step at 6,000 leads past the goal.
        check(
            |capacity| capacity + if capacity > 6_000 { 8_000 } else { 1_000 },
            Some(6_900..=7_000),
        );
        // Even the least capacity is too much.
        check(|capacity| capacity + 20_000, None);
    }
}
