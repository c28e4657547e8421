//! The promises of shares, so that every answer can be checked against them.

use std::cmp::Reverse;

use crate::share::{Claimant, Share};

/// A promise that shares break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// All together get more than there is.
    MoreThanThereIs,
    /// Memory is left that somebody could take.
    LeftOver,
    /// The tenant's parts are not in order: its claim, its size less the lent part, all of it, its most.
    Parts {
        /// Its place among the claimants.
        index: usize,
    },
    /// The tenant has less than its floor.
    BelowFloor {
        /// Its place among the claimants.
        index: usize,
    },
    /// A goal is given memory while one that comes before it is short: one within reach before one that is not, then the
    /// higher priority.
    OutOfOrder {
        /// The place of the one that is given memory.
        index: usize,
        /// The place of the one that is short.
        short: usize,
    },
}

/// Whether these shares of `available`, in the order of the claimants, keep what [`shares`](crate::shares) promises.
///
/// # Errors
/// The first promise that they break.
pub fn check(available: u64, claimants: &[Claimant<'_>], shares: &[Share]) -> Result<(), Broken> {
    let sum = |of: &dyn Fn(&Claimant<'_>) -> u64| claimants.iter().fold(0_u64, |sum, one| sum.saturating_add(of(one)));
    let given = shares.iter().fold(0_u64, |sum, share| sum.saturating_add(share.size));
    if given > available {
        return Err(Broken::MoreThanThereIs);
    }
    for (index, (claimant, share)) in claimants.iter().zip(shares).enumerate() {
        if share.claim > share.own || share.own > share.size || share.size > claimant.most {
            return Err(Broken::Parts { index });
        }
    }
    // If floors do not fit, they are cut, and nothing else is promised.
    if sum(&floor) > available {
        return Ok(());
    }
    if given < available.min(sum(&|claimant| claimant.most)) {
        return Err(Broken::LeftOver);
    }
    let below = |(claimant, share): (&Claimant<'_>, &Share)| share.claim < floor(claimant);
    if let Some(index) = claimants.iter().zip(shares).position(below) {
        return Err(Broken::BelowFloor { index });
    }
    check_order(claimants, shares)
}

/// Goals in the order in which they are served: behind the first class that is short, all have their floors alone.
fn check_order(claimants: &[Claimant<'_>], shares: &[Share]) -> Result<(), Broken> {
    let mut goals: Vec<usize> = (0..claimants.len())
        .filter(|index| claimants[*index].goal.is_some())
        .collect();
    goals.sort_by_key(|index| Reverse(claimants[*index].class()));
    let is_short = |index: &usize| {
        let claimant = &claimants[*index];
        claimant.need().is_some_and(|need| shares[*index].claim < need)
    };
    let Some(short) = goals.iter().copied().find(is_short) else {
        return Ok(());
    };
    let class = claimants[short].class();
    let behind = goals.into_iter().filter(|index| claimants[*index].class() < class);
    match behind
        .into_iter()
        .find(|index| shares[*index].claim > floor(&claimants[*index]))
    {
        Some(index) => Err(Broken::OutOfOrder { index, short }),
        None => Ok(()),
    }
}

fn floor(claimant: &Claimant<'_>) -> u64 {
    claimant.floor.min(claimant.most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::{Load, Utility};

    fn goal(need: u64, is_within_reach: bool, priority: u8) -> Claimant<'static> {
        Claimant {
            floor: 10,
            most: need,
            is_within_reach,
            priority,
            goal: Some(need),
            returns: None,
            load: Load {
                gets_per_second: 1.0,
                hit_cost_us: 1.0,
                miss_cost_us: 2.0,
            },
            weight: 1.0,
            utility: Utility::Proportional,
            custom_worth: None,
            present: 1,
            credit: 0,
        }
    }

    #[test]
    fn each_promise_can_be_broken() {
        let share = |claim, own, size| Share { size, own, claim };
        let all = |claim| share(claim, claim, claim);
        let out_of_order = Err(Broken::OutOfOrder { index: 1, short: 0 });
        for (first, second, shares, expected) in [
            (goal(60, true, 0), goal(90, false, 9), [all(60), all(40)], Ok(())),
            // A priority does not put a goal out of reach before one within it.
            (goal(60, true, 0), goal(90, false, 9), [all(50), all(50)], out_of_order),
            (goal(60, true, 0), goal(90, true, 9), [all(10), all(90)], Ok(())),
            (goal(60, true, 9), goal(90, true, 0), [all(50), all(50)], out_of_order),
            (goal(60, true, 0), goal(90, true, 0), [all(50), all(50)], Ok(())),
            (
                goal(60, true, 0),
                goal(90, true, 0),
                [all(51), all(50)],
                Err(Broken::MoreThanThereIs),
            ),
            (
                goal(60, true, 0),
                goal(90, true, 0),
                [all(30), all(40)],
                Err(Broken::LeftOver),
            ),
            (
                goal(60, true, 0),
                goal(90, true, 0),
                [share(61, 60, 60), all(40)],
                Err(Broken::Parts { index: 0 }),
            ),
            (
                goal(60, true, 0),
                goal(90, true, 0),
                [all(60), share(9, 40, 40)],
                Err(Broken::BelowFloor { index: 1 }),
            ),
        ] {
            assert_eq!(check(100, &[first, second], &shares), expected, "{shares:?}");
        }
    }
}
