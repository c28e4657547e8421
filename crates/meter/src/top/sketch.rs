//! The heaviest of many keys in bounded memory: Space-Saving (Metwally, Agrawal and El Abbadi, ICDT 2005), weighted.
//!
//! Invariants: a key whose weight is above a `capacity`-th of all weight is there. The stated weight of a key is at
//! most its true one. It falls short of it by at most the key's `error`, which is at most a `capacity`-th of all
//! weight.

use super::Amounts;

/// The weight of keys.
pub(super) type Weigh = fn(&Amounts) -> u64;

/// A key that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) key: Box<[u8]>,
    /// The amounts seen since it is followed.
    pub(super) seen: Amounts,
    /// The most that it may have weighed before.
    pub(super) error: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    weigh: Weigh,
    capacity: usize,
    followed: Vec<Followed>,
}

impl Sketch {
    /// Follows so many keys at most. It takes memory as they come.
    pub(super) fn new(capacity: usize, weigh: Weigh) -> Self {
        Self {
            weigh,
            capacity,
            followed: Vec::new(),
        }
    }

    /// Adds what was used for a key.
    pub(super) fn add(&mut self, key: &[u8], amounts: &Amounts) {
        if let Some(known) = self.followed.iter_mut().find(|one| *one.key == *key) {
            known.seen += *amounts;
            return;
        }
        let new = |error| Followed {
            key: key.into(),
            seen: *amounts,
            error,
        };
        if self.followed.len() < self.capacity {
            self.followed.push(new(0));
            return;
        }
        let weigh = self.weigh;
        // The lightest one makes room: so much the new one may have weighed unseen.
        if let Some(lightest) = self.followed.iter_mut().min_by_key(|one| weigh(&one.seen) + one.error) {
            let error = weigh(&lightest.seen) + lightest.error;
            *lightest = new(error);
        }
    }

    /// The most that a key weighs which is not followed.
    pub(super) fn unseen_max(&self) -> u64 {
        if self.followed.len() < self.capacity {
            return 0;
        }
        let weights = self.followed.iter().map(|one| (self.weigh)(&one.seen) + one.error);
        weights.min().unwrap_or(0)
    }

    /// All that are followed, in no order.
    pub(super) fn followed(&self) -> &[Followed] {
        &self.followed
    }

    /// The one that is followed under this key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Followed> {
        self.followed.iter().find(|one| *one.key == *key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn operations(amounts: &Amounts) -> u64 {
        amounts.milli_operations
    }

    fn of(milli_operations: u64) -> Amounts {
        Amounts {
            milli_operations,
            ..Amounts::default()
        }
    }

    #[test]
    fn the_lightest_makes_room_and_its_weight_becomes_the_error() {
        let mut sketch = Sketch::new(2, operations);
        for (key, weight) in [("a", 5), ("b", 3), ("a", 1), ("c", 2)] {
            sketch.add(key.as_bytes(), &of(weight));
        }
        assert_eq!((sketch.get(b"a").unwrap().seen, sketch.get(b"b")), (of(6), None));
        let new = sketch.get(b"c").unwrap();
        assert_eq!((new.seen, new.error, sketch.unseen_max()), (of(2), 3, 5));
    }

    proptest! {
        #[test]
        fn what_is_stated_is_off_by_the_error_at_most(
            added in proptest::collection::vec((0_u8..40, 1_u64..1000), 1..400),
            capacity in 1_usize..20,
        ) {
            let mut sketch = Sketch::new(capacity, operations);
            let mut truth: HashMap<u8, u64> = HashMap::new();
            for (key, weight) in &added {
                sketch.add(&[*key], &of(*weight));
                *truth.entry(*key).or_default() += weight;
            }
            let all: u64 = truth.values().sum();
            let bound = all / capacity as u64;
            prop_assert!(sketch.followed().len() <= capacity);
            prop_assert!(sketch.unseen_max() <= bound);
            for (key, weight) in truth {
                match sketch.get(&[key]) {
                    Some(found) => {
                        let seen = found.seen.milli_operations;
                        prop_assert!(seen <= weight && weight <= seen + found.error, "{found:?} {weight}");
                        prop_assert!(found.error <= bound);
                    }
                    None => prop_assert!(weight <= sketch.unseen_max()),
                }
            }
        }
    }
}
