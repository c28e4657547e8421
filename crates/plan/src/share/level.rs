//! Water in vessels: how an amount is shared so that everyone stands equally high, by weight.

/// A vessel: always full up to its bottom, never fuller than its top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vessel {
    /// The amount that it has anyway.
    pub bottom: u64,
    /// The most that it takes; at least the bottom.
    pub top: u64,
    /// Its width: of two vessels that are neither at their bottom nor full, the one of twice the weight holds twice as much.
    /// Positive.
    pub weight: f64,
}

/// How often the height is halved: each takes a bit of a float's mantissa, and a few the exponent.
const BISECTIONS: u32 = 80;

/// The amount that each vessel holds when all of it is poured: `amount` together, or the vessels' capacity if that is
/// less. A remainder goes where it raises the level least. If `amount` is below the bottoms' sum, the result is the
/// bottoms.
pub fn level(amount: u64, vessels: &[Vessel]) -> Vec<u64> {
    let at = |height: f64, vessel: &Vessel| ((height * vessel.weight) as u64).clamp(vessel.bottom, vessel.top);
    let filled = |height: f64| {
        vessels
            .iter()
            .fold(0_u64, |sum, vessel| sum.saturating_add(at(height, vessel)))
    };
    let full = |vessel: &Vessel| vessel.top as f64 / vessel.weight;
    // The greatest height that `amount` fills, by bisection: up to `low` it always does.
    let (mut low, mut high) = (0.0, vessels.iter().map(full).fold(0.0, f64::max) + 1.0);
    let all = filled(high);
    if all <= amount {
        low = high;
    }
    let mut low_filled = filled(low);
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2.0;
        // Once all of it is poured, or all vessels are full, no other height changes anything.
        if low_filled >= amount || low_filled == all {
            break;
        }
        let middle_filled = filled(middle);
        if middle_filled <= amount {
            (low, low_filled) = (middle, middle_filled);
        } else {
            high = middle;
        }
    }
    let mut holds: Vec<u64> = vessels.iter().map(|vessel| at(low, vessel)).collect();
    let mut rest = amount.saturating_sub(holds.iter().sum());
    if rest > 0 {
        let raised = |index: usize| (holds[index] + 1) as f64 / vessels[index].weight;
        let mut open: Vec<(f64, usize)> = (0..vessels.len())
            .filter(|index| holds[*index] < vessels[*index].top)
            .map(|index| (raised(index), index))
            .collect();
        open.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, index) in open {
            if rest == 0 {
                break;
            }
            holds[index] += 1;
            rest -= 1;
        }
    }
    holds
}

/// `amount` shared evenly, to each at most its limit.
pub fn even(amount: u64, limits: &[u64]) -> Vec<u64> {
    let vessels: Vec<Vessel> = limits
        .iter()
        .map(|limit| Vessel {
            bottom: 0,
            top: *limit,
            weight: 1.0,
        })
        .collect();
    level(amount, &vessels)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Water filled unit by unit where it raises the level least: slow, and plainly right.
    fn level_by_unit(amount: u64, vessels: &[Vessel]) -> Vec<u64> {
        let mut holds: Vec<u64> = vessels.iter().map(|vessel| vessel.bottom).collect();
        for _ in holds.iter().sum::<u64>()..amount {
            let open = (0..holds.len()).filter(|index| holds[*index] < vessels[*index].top);
            let raised = |index: &usize| (holds[*index] + 1) as f64 / vessels[*index].weight;
            match open.min_by(|a, b| raised(a).total_cmp(&raised(b))) {
                Some(lowest) => holds[lowest] += 1,
                None => break,
            }
        }
        holds
    }

    proptest! {
        #[test]
        fn levels_are_those_of_the_slow_oracle(
            amount in 0_u64..200,
            vessels in prop::collection::vec((0_u64..30, 0_u64..30, 1_u64..4), 0..12),
        ) {
            let vessels: Vec<Vessel> = vessels
                .iter()
                .map(|(a, b, weight)| Vessel { bottom: *a.min(b), top: *a.max(b), weight: *weight as f64 })
                .collect();
            let (fast, slow) = (level(amount, &vessels), level_by_unit(amount, &vessels));
            prop_assert_eq!(fast.iter().sum::<u64>(), slow.iter().sum::<u64>());
            // The receiver of a unit that several could have is left open: their heights are equal then.
            let heights = |holds: &[u64]| {
                let mut heights: Vec<u64> = holds
                    .iter()
                    .zip(&vessels)
                    .map(|(hold, vessel)| (*hold as f64 / vessel.weight * 12.0) as u64)
                    .collect();
                heights.sort_unstable();
                heights
            };
            if vessels.iter().all(|vessel| vessel.weight == vessels[0].weight) {
                prop_assert_eq!(heights(&fast), heights(&slow));
            }
            for (vessel, (fast, slow)) in vessels.iter().zip(fast.iter().zip(&slow)) {
                prop_assert!(fast.abs_diff(*slow) <= 1, "{vessel:?} {fast} {slow}");
            }
        }
    }

    #[test]
    fn sizes_beyond_every_machine_do_not_overflow() {
        let huge = Vessel {
            bottom: 0,
            top: u64::MAX,
            weight: 1.0,
        };
        assert_eq!(level(u64::MAX, &[huge]), [u64::MAX]);
        let shared = level(1 << 50, &[huge, huge]);
        assert_eq!(shared, [1 << 49, 1 << 49]);
        assert_eq!(even(10, &[]), [0; 0]);
    }
}
