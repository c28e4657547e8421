//! The worth of hits to a tenant, as decided by the program that embeds the cache.
//!
//! Invariant: the result of [`CustomUtility`] is a finite worth that never falls as hits become more, or nothing. How
//! memory is shared by it is decided where grants are made, as by every built-in utility.

use tidemark_plan::{HitWorth, Load};
use tidemark_types::{Cause, Fault, Guest, Part};

/// Says how much hits are worth to a tenant. It is a custom utility in the place of a
/// [`Utility`](tidemark_plan::Utility) that is chosen by name. Memory that no floor and no goal takes goes to the
/// tenants to which each next unit of it is worth most.
///
/// # Where it is called, and what it may cost
/// It is called for the hit ratios 0, 0.01 and so on to 1, in this order. That happens in each round in which anything
/// of the tenants that hold memory has changed and the tenant's miss-ratio curve is known. The call is on the control
/// plane's thread or in the driver's step, and no lock of the data plane is held. All calls together may take a
/// millisecond. It **must not use the cache**: whatever it asks the control plane, it would wait for itself.
///
/// # When it fails
/// After a panic, or an answer that is not possible, the utility that the tenant's settings name counts again, and the fault
/// is reported.
pub trait UtilityFunction: Send {
    /// The worth of a hit ratio to the tenant, -1e9 to 1e9 and no less than that of a lower one. Only differences
    /// count, and those below 1e-9 count as none. The measure is that of
    /// [`Utility::Proportional`](tidemark_plan::Utility::Proportional), so that tenants can be compared: 1 is the worth
    /// of being answered e times as fast on average. The tenant's weight multiplies them.
    fn worth(&mut self, load: &Load, hit_ratio: f64) -> f64;
}

/// The program's utility for one tenant, if it supplied one.
#[derive(Debug, Default)]
pub(crate) struct CustomUtility(Option<Guest<Box<dyn UtilityFunction>>>);

impl CustomUtility {
    pub(crate) fn new(utility: Option<Box<dyn UtilityFunction>>) -> Self {
        Self(utility.map(Guest::new))
    }

    /// The worth of each hit ratio under this load; `None` without a custom utility.
    ///
    /// # Errors
    /// It failed, and is not there any more.
    pub(crate) fn worth(&mut self, load: &Load) -> Result<Option<HitWorth>, Fault> {
        let Some(utility) = &mut self.0 else { return Ok(None) };
        let answer = utility.call_mut(|utility| HitWorth::of(|hit_ratio| utility.worth(load, hit_ratio)));
        let checked = answer.and_then(|worth| worth.map_err(|error| Cause::Nonsense(error.to_string())));
        checked.map(Some).map_err(|cause| {
            self.0 = None;
            Fault {
                part: Part::Utility,
                cause,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pays(f64);

    impl UtilityFunction for Pays {
        fn worth(&mut self, load: &Load, hit_ratio: f64) -> f64 {
            assert!(self.0 != 0.0, "out of money");
            self.0 * load.gets_per_second * hit_ratio
        }
    }

    #[test]
    fn what_is_not_possible_ends_it() {
        let load = Load {
            gets_per_second: 1000.0,
            hit_cost_us: 1.0,
            miss_cost_us: 200.0,
        };
        for (pays, said) in [
            (2.0, None),
            (
                -2.0,
                Some("utility function said that a hit ratio of 0.01 is worth -20"),
            ),
            (f64::NAN, Some("0 is worth NaN")),
            (0.0, Some("panicked: out of money")),
        ] {
            let mut custom = CustomUtility::new(Some(Box::new(Pays(pays))));
            match (custom.worth(&load), said) {
                (Ok(worth), None) => assert_eq!(worth, HitWorth::of(|hit_ratio| 2000.0 * hit_ratio).ok()),
                (Err(fault), Some(said)) => {
                    assert!(fault.to_string().contains(said), "{fault}");
                    assert_eq!(custom.worth(&load), Ok(None));
                }
                (answer, _) => panic!("{pays}: {answer:?}"),
            }
        }
        assert_eq!(CustomUtility::default().worth(&load), Ok(None));
    }
}
