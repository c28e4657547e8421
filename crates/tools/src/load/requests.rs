//! The requests of a client: gets and sets of a number of keys, drawn independently of each other.
//!
//! A part of the gets can be for keys that are never asked for again (the compulsory misses of real applications).
//! Stored values can have lifetimes, drawn anew for every set.

use std::time::Duration;

use super::{Distribution, KeyText, Keys, Order, Rng, ValueSize, WorkloadError};

/// The requests that a client makes.
#[derive(Clone, Debug)]
pub struct Workload {
    /// How many keys there are, per tenant.
    pub keys: u64,
    /// How often each is asked for.
    pub distribution: Distribution,
    /// Which are the popular ones.
    pub order: Order,
    /// Bytes per key.
    pub key_size_bytes: usize,
    /// Bytes per value.
    pub value_size: ValueSize,
    /// The share of gets, 0 to 1; the rest are sets.
    pub reads_ratio: f64,
    /// The share of gets for a key beyond `keys` that is never asked for again, 0 to 1.
    pub fresh_ratio: f64,
    /// The lifetimes of stored values.
    pub lifetimes: Lifetimes,
    /// The seed of all randomness.
    pub seed: u64,
}

impl Workload {
    /// Gets only, with keys and values of one size each, in bytes. Popular keys are spread among the others, no key is
    /// fresh, and values do not expire.
    pub fn gets(keys: u64, distribution: Distribution, key_size_bytes: usize, value_size_bytes: usize) -> Self {
        Self {
            keys,
            distribution,
            order: Order::Scrambled,
            key_size_bytes,
            value_size: ValueSize::Fixed(value_size_bytes),
            reads_ratio: 1.0,
            fresh_ratio: 0.0,
            lifetimes: Lifetimes::default(),
            seed: 1,
        }
    }

    /// Writes the keys, those beyond `keys` included.
    ///
    /// # Errors
    /// So many keys have no different texts of that length.
    pub fn key_text(&self) -> Result<KeyText, WorkloadError> {
        let count = if self.fresh_ratio > 0.0 { KEY_NUMBERS } else { self.keys };
        KeyText::new(self.key_size_bytes, count)
    }

    /// The bytes of key and value together.
    pub fn payload_bytes(&self, key: u64) -> u64 {
        (self.key_size_bytes + self.value_size.of(key)) as u64
    }
}

/// Keys that are asked for once have numbers below this: enough for a million of them a second for a week.
const KEY_NUMBERS: u64 = 1 << 40;

/// The lifetimes of stored values: shares of all sets with their lifetimes. Other sets do not expire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lifetimes(Vec<(f64, Duration)>);

impl Lifetimes {
    /// Shares of all sets, 0 to 1, with their lifetimes.
    ///
    /// # Errors
    /// A share is negative or no number, or all together are more than 1.
    pub fn new(shares: impl IntoIterator<Item = (f64, Duration)>) -> Result<Self, WorkloadError> {
        /// Shares that were written with two digits may come to this much more.
        const ROUNDED: f64 = 1e-9;
        let shares: Vec<_> = shares.into_iter().collect();
        let total: f64 = shares.iter().map(|(share, _)| share).sum();
        let wrong = shares
            .iter()
            .map(|(share, _)| *share)
            .find(|share| !(0.0..=1.0).contains(share));
        match wrong.or_else(|| (total > 1.0 + ROUNDED).then_some(total)) {
            Some(given) => Err(WorkloadError::Parameter {
                flag: "a lifetime's share of the sets",
                given,
                allowed: "0 to 1, all together at most 1",
            }),
            None => Ok(Self(shares)),
        }
    }

    /// The remaining lifetimes at a moment long after the first set. Long lifetimes are met more often, in proportion
    /// to their length. Any part of a lifetime is left with equal probability.
    #[must_use]
    pub fn remaining(&self) -> Self {
        /// As many different ones of each.
        const PARTS: u32 = 32;
        let length = |(share, lifetime): &(f64, Duration)| share * lifetime.as_secs_f64();
        let total: f64 = self.0.iter().map(|(share, _)| share).sum();
        let mean = self.0.iter().map(length).sum::<f64>() / total;
        let parts = |each: &(f64, Duration)| {
            let (share, lifetime) = (length(each) / mean / f64::from(PARTS), each.1);
            (1..=PARTS).map(move |part| (share, lifetime * part / PARTS))
        };
        Self(self.0.iter().flat_map(parts).collect())
    }

    /// Whether everything is stored for good.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next set's; `None` is for good.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> Option<Duration> {
        if self.0.is_empty() {
            return None;
        }
        let mut left = rng.unit();
        for (share, lifetime) in &self.0 {
            if left < *share {
                return Some(*lifetime);
            }
            left -= share;
        }
        None
    }
}

/// The operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Ask for it.
    Get(u64),
    /// Store it.
    Set(u64),
}

impl Operation {
    /// The same on the key that is so many behind.
    #[inline]
    #[must_use]
    pub fn behind(self, keys: u64) -> Self {
        match self {
            Self::Get(key) => Self::Get(key + keys),
            Self::Set(key) => Self::Set(key + keys),
        }
    }
}

/// An endless source of operations.
#[derive(Clone, Debug)]
pub struct Requests {
    keys: Keys,
    reads_ratio: f64,
    fresh_ratio: f64,
    next_fresh: u64,
    fresh_step: u64,
    rng: Rng,
}

impl Requests {
    /// Part `index` of `parts` that together make the load; no two of them ask for the same key beyond the workload's.
    ///
    /// # Errors
    /// The workload makes no sense.
    pub fn new(workload: &Workload, (index, parts): (usize, usize)) -> Result<Self, WorkloadError> {
        for (flag, given) in [("--reads", workload.reads_ratio), ("fresh keys", workload.fresh_ratio)] {
            if !(0.0..=1.0).contains(&given) {
                let allowed = "0 to 1";
                return Err(WorkloadError::Parameter { flag, given, allowed });
            }
        }
        Ok(Self {
            keys: Keys::new(workload.keys, workload.distribution, workload.order)?,
            reads_ratio: workload.reads_ratio,
            fresh_ratio: workload.fresh_ratio,
            next_fresh: workload.keys + index as u64,
            fresh_step: parts as u64,
            rng: Rng::stream(workload.seed, index as u64),
        })
    }

    /// The next one.
    #[inline]
    pub fn draw(&mut self) -> Operation {
        let key = self.keys.draw(&mut self.rng);
        if self.rng.unit() >= self.reads_ratio {
            return Operation::Set(key);
        }
        if self.fresh_ratio > 0.0 && self.rng.unit() < self.fresh_ratio {
            let fresh = self.next_fresh;
            self.next_fresh += self.fresh_step;
            return Operation::Get(fresh);
        }
        Operation::Get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload::gets(1000, Distribution::Uniform, 16, 64)
    }

    #[test]
    fn what_is_left_of_lifetimes_is_evenly_spread() {
        // The short one is hardly ever met.
        let lifetimes = Lifetimes::new([(0.25, Duration::from_secs(64)), (0.25, Duration::from_millis(1))]).unwrap();
        let (mut rng, left) = (Rng::new(1), lifetimes.remaining());
        let drawn: Vec<Option<Duration>> = (0..10_000).map(|_| left.draw(&mut rng)).collect();
        let shorter = |seconds| drawn.iter().flatten().filter(|left| left.as_secs() <= seconds).count();
        // Half of all have one; of these, half are over after half of the time.
        for (seconds, expected) in [(0, 0), (16, 1250), (32, 2500), (64, 5000)] {
            assert!(
                shorter(seconds).abs_diff(expected) < 300,
                "{seconds}: {}",
                shorter(seconds)
            );
        }
    }

    #[test]
    fn the_mix_is_that_of_the_workload() {
        const DRAWS: u32 = 100_000;
        for (reads_ratio, fresh_ratio) in [(1.0, 0.0), (0.0, 0.5), (0.65, 0.284), (0.99, 0.0074), (1.0, 1.0)] {
            let workload = Workload {
                reads_ratio,
                fresh_ratio,
                ..workload()
            };
            let mut requests = Requests::new(&workload, (0, 1)).unwrap();
            let (mut gets, mut fresh) = (0_u32, std::collections::HashSet::new());
            for _ in 0..DRAWS {
                if let Operation::Get(key) = requests.draw() {
                    gets += 1;
                    assert!(key < workload.keys || fresh.insert(key), "{key} twice");
                }
            }
            // Six standard deviations of a binomial of so many draws are 950 at most.
            let near = |count: f64, share: f64| (count - share * f64::from(DRAWS)).abs() < 950.0;
            assert!(near(f64::from(gets), reads_ratio), "{gets}");
            assert!(near(fresh.len() as f64, reads_ratio * fresh_ratio), "{}", fresh.len());
        }
    }

    #[test]
    fn parts_ask_for_different_fresh_keys() {
        let workload = Workload {
            fresh_ratio: 1.0,
            ..workload()
        };
        let mut seen = std::collections::HashSet::new();
        for part in 0..3 {
            let mut requests = Requests::new(&workload, (part, 3)).unwrap();
            for _ in 0..100 {
                let Operation::Get(key) = requests.draw() else {
                    panic!("a set");
                };
                assert!(seen.insert(key), "{key} twice");
            }
        }
        assert!(workload.key_text().unwrap().of(1 << 39).len() == 16);
    }

    #[test]
    fn lifetimes_have_their_shares() {
        let seconds = Duration::from_secs;
        let lifetimes = Lifetimes::new([(0.7, seconds(9)), (0.2, seconds(1))]).unwrap();
        let mut rng = Rng::new(5);
        let mut counts = [0_u32; 3];
        for _ in 0..100_000 {
            counts[match lifetimes.draw(&mut rng) {
                Some(lifetime) if lifetime == seconds(9) => 0,
                Some(_) => 1,
                None => 2,
            }] += 1;
        }
        for (count, expected) in counts.into_iter().zip([70_000_u32, 20_000, 10_000]) {
            assert!(count.abs_diff(expected) < 950, "{counts:?}");
        }
        assert_eq!(Lifetimes::default().draw(&mut rng), None);
    }

    #[test]
    fn impossible_mixes_are_refused() {
        let second = Duration::from_secs(1);
        for shares in [
            &[(-0.1, second)][..],
            &[(f64::NAN, second)],
            &[(0.6, second), (0.6, second)],
        ] {
            assert!(Lifetimes::new(shares.iter().copied()).is_err(), "{shares:?}");
        }
        for (reads_ratio, fresh_ratio) in [(1.1, 0.0), (-0.1, 0.0), (1.0, 2.0), (f64::NAN, 0.0)] {
            let workload = Workload {
                reads_ratio,
                fresh_ratio,
                ..workload()
            };
            assert!(Requests::new(&workload, (0, 1)).is_err(), "{reads_ratio} {fresh_ratio}");
        }
    }
}
