//! How much memory a tenant wants, as decided by the program that embeds the cache.
//!
//! Invariant: the result of [`CustomSizing`] is a size between one unit and the tenant's most, or nothing. Whether it gets
//! that is decided where grants are made, as of every other tenant's want.

use tidemark_curve::Curve;
use tidemark_types::{Cause, Fault, Guest, HitRatio, Part, UNIT_BYTES, UnixMs};

/// Decides how much memory a tenant wants. It is a custom strategy in the place of the built-in one, which finds the
/// least memory for the tenant's hit-ratio goal.
///
/// # Where it is called, and what it may cost
/// It is called once in each round in which anything of the tenants that hold memory has changed. The call is on the
/// control plane's thread or in the driver's step. No lock of the data plane is held. A second is between two rounds,
/// unless something cannot wait, so it may take milliseconds. It **must not use the cache**: whatever it asks the
/// control plane, it would wait for itself.
///
/// # When it fails
/// After a panic, or a size that is not possible, the built-in one decides again, and the fault is reported.
pub trait ResizeStrategy: Send {
    /// The bytes that the tenant should hold, index and all: [`UNIT_BYTES`](tidemark_types::UNIT_BYTES) (64 KiB) to
    /// [`most_bytes`](SizeReading::most_bytes). They are granted as far as the memory is there and nobody else is owed
    /// it, and as the tenant fills it. [`grant_bytes`](SizeReading::grant_bytes) asks for no change.
    fn wanted_bytes(&mut self, reading: &SizeReading<'_>) -> u64;
}

/// The facts about a tenant in one round.
#[derive(Clone, Copy, Debug)]
pub struct SizeReading<'a> {
    /// The moment, of a clock that does not go back.
    pub now: UnixMs,
    /// The hit ratio that is the tenant's goal, if it has one.
    pub goal: Option<HitRatio>,
    /// Lookups so far; never falls.
    pub gets: u64,
    /// Those that found something.
    pub hits: u64,
    /// Memory that it holds, in bytes.
    pub usage_bytes: u64,
    /// Memory that it may hold, and could go on to hold.
    pub grant_bytes: u64,
    /// Memory that it could have at most, by its cap and the pool.
    pub most_bytes: u64,
    /// The answer of the built-in strategy; `None` without a goal.
    pub built_in_bytes: Option<u64>,
    /// The hit ratio at each size.
    pub curve: &'a HitCurve,
}

/// The hit ratio of a tenant's lookups at each size, as an LRU cache, estimated from a sample.
#[derive(Clone, Debug)]
pub struct HitCurve {
    /// The curve of bare items.
    curve: Curve,
    /// Memory held for each byte of them.
    overhead: f64,
    gets: u64,
}

impl HitCurve {
    pub(crate) fn new(curve: Curve, overhead: f64, gets: u64) -> Self {
        Self { curve, overhead, gets }
    }

    /// The lookups that it is made of: of fewer than a few thousand, it says little.
    pub fn gets(&self) -> u64 {
        self.gets
    }

    /// The hit ratio in so many bytes, index and all; `None` while nothing is known.
    pub fn hit_ratio_at(&self, bytes: u64) -> Option<f64> {
        let is_known = self.curve.points().len() > 1;
        is_known.then(|| 1.0 - self.curve.at((bytes as f64 / self.overhead) as u64).miss_ratio)
    }

    /// The least size for a hit ratio, in bytes, index and all; `None` if none is known to reach it.
    pub fn bytes_for(&self, hit_ratio: f64) -> Option<u64> {
        let bytes = self.curve.bytes_for(hit_ratio)?;
        Some((bytes as f64 * self.overhead) as u64)
    }
}

/// The program's strategy for one tenant, if it supplied one.
#[derive(Debug, Default)]
pub(crate) struct CustomSizing(Option<Guest<Box<dyn ResizeStrategy>>>);

impl CustomSizing {
    pub(crate) fn new(strategy: Option<Box<dyn ResizeStrategy>>) -> Self {
        Self(strategy.map(Guest::new))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// The size that it wants; `None` without a strategy.
    ///
    /// # Errors
    /// It failed, and is not there any more.
    pub(crate) fn wanted_bytes(&mut self, reading: &SizeReading<'_>) -> Result<Option<u64>, Fault> {
        let Some(strategy) = &mut self.0 else { return Ok(None) };
        let answer = strategy.call_mut(|strategy| strategy.wanted_bytes(reading));
        let checked = answer.and_then(|bytes| check(bytes, reading.most_bytes));
        checked.map(Some).map_err(|cause| {
            self.0 = None;
            Fault {
                part: Part::Sizing,
                cause,
            }
        })
    }
}

fn check(bytes: u64, most_bytes: u64) -> Result<u64, Cause> {
    if (UNIT_BYTES..=most_bytes).contains(&bytes) {
        return Ok(bytes);
    }
    Err(Cause::Nonsense(format!(
        "wanted {bytes} bytes: allowed are {UNIT_BYTES} to {most_bytes}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_curve::Point;
    use tidemark_types::MIB;

    struct Wants(Option<u64>);

    impl ResizeStrategy for Wants {
        fn wanted_bytes(&mut self, _: &SizeReading<'_>) -> u64 {
            self.0.unwrap_or_else(|| panic!("no idea"))
        }
    }

    #[test]
    fn what_is_not_possible_ends_it() {
        let curve = HitCurve::new(Curve::through([]), 1.0, 0);
        let reading = SizeReading {
            now: UnixMs(0),
            goal: None,
            gets: 0,
            hits: 0,
            usage_bytes: 0,
            grant_bytes: MIB,
            most_bytes: 4 * MIB,
            built_in_bytes: None,
            curve: &curve,
        };
        for (wanted, said) in [
            (Some(UNIT_BYTES), None),
            (Some(4 * MIB), None),
            (Some(4 * MIB + 1), Some("4194305")),
            (Some(u64::MAX), Some("allowed are 65536 to 4194304")),
            (Some(0), Some("wanted 0 bytes")),
            (None, Some("panicked: no idea")),
        ] {
            let mut sizing = CustomSizing::new(Some(Box::new(Wants(wanted))));
            match (sizing.wanted_bytes(&reading), said) {
                (Ok(bytes), None) => assert_eq!(bytes, wanted),
                (Err(fault), Some(said)) => assert!(fault.to_string().contains(said), "{fault}"),
                (answer, _) => panic!("{wanted:?}: {answer:?}"),
            }
            assert_eq!(sizing.is_some(), said.is_none(), "{wanted:?}");
        }
        assert_eq!(CustomSizing::default().wanted_bytes(&reading), Ok(None));
    }

    #[test]
    fn a_curve_counts_what_is_held() {
        let point = |mib: u64, miss_ratio| Point {
            bytes: mib * MIB,
            miss_ratio,
            standard_error: 0.0,
        };
        let curve = HitCurve::new(Curve::through([point(0, 1.0), point(10, 0.5), point(20, 0.25)]), 1.5, 7);
        assert_eq!(curve.gets(), 7);
        assert_eq!(curve.hit_ratio_at(15 * MIB), Some(0.5));
        assert_eq!(curve.bytes_for(0.75), Some(30 * MIB));
        assert_eq!(curve.bytes_for(0.9), None);
        let unknown = HitCurve::new(Curve::through([]), 1.0, 0);
        assert_eq!((unknown.hit_ratio_at(MIB), unknown.bytes_for(0.5)), (None, None));
    }
}
