//! Which of several gateways has an object: consistent hashing (Karger et al., 1997), as InfiniCache's clients do. Pure.
//!
//! Each gateway has points on a ring of 64 bits; an object's *home* is the gateway of the first point at or after the object's
//! own. When one comes or goes, the objects between its points and the ones before move, and no others.

use sha2::{Digest as _, Sha256};

/// Points of a gateway: the busiest of ten then has a tenth to a quarter more objects than the mean.
const POINTS: u32 = 128;
/// Gateways of a ring: its points then take half a megabyte.
const GATEWAYS_MAX: usize = 256;

/// Gateways, by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// In order.
    gateways: Vec<String>,
    /// In order; the gateway by its place in the list.
    points: Vec<(u64, usize)>,
}

/// Too many gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at most {GATEWAYS_MAX} gateways")]
pub struct TooMany;

impl Ring {
    /// A ring of gateways (`HOST:PORT`), in any order.
    ///
    /// # Errors
    /// They are too many.
    pub fn new(gateways: impl IntoIterator<Item = String>) -> Result<Self, TooMany> {
        let mut gateways: Vec<String> = gateways.into_iter().take(GATEWAYS_MAX + 1).collect();
        if gateways.len() > GATEWAYS_MAX {
            return Err(TooMany);
        }
        gateways.sort_unstable();
        gateways.dedup();
        let mut points = Vec::with_capacity(gateways.len() * POINTS as usize);
        for (number, name) in gateways.iter().enumerate() {
            points.extend((0..POINTS).map(|point| (hash(&[name.as_str(), &point.to_string()]), number)));
        }
        points.sort_unstable();
        Ok(Self { gateways, points })
    }

    /// All gateways, in order.
    pub fn gateways(&self) -> &[String] {
        &self.gateways
    }

    /// The home of `BUCKET/KEY`; `None` if there is no gateway.
    pub fn home(&self, place: &str) -> Option<&str> {
        self.order(place).next()
    }

    /// All gateways, the home of `BUCKET/KEY` first, then those that come after it on the ring.
    pub fn order(&self, place: &str) -> impl Iterator<Item = &str> {
        let at = hash(&[place]);
        let first = self.points.partition_point(|(point, _)| *point < at);
        let mut seen = vec![false; self.gateways.len()];
        let numbers = self.points[first..].iter().chain(&self.points[..first]);
        let new = numbers.filter(move |(_, number)| !std::mem::replace(&mut seen[*number], true));
        new.map(move |(_, number)| self.gateways[*number].as_str())
    }
}

/// The first 64 bits of the SHA-256 of texts with zeros between them.
fn hash(texts: &[&str]) -> u64 {
    let mut sha = Sha256::new();
    for text in texts {
        sha.update(text);
        sha.update([0]);
    }
    sha.finalize()
        .iter()
        .take(8)
        .fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: u32 = 20_000;

    fn ring(gateways: u32) -> Ring {
        Ring::new((0..gateways).map(|number| format!("10.0.0.{number}:9000"))).unwrap()
    }

    fn places() -> impl Iterator<Item = String> {
        (0..OBJECTS).map(|number| format!("photos/{number}.jpg"))
    }

    #[test]
    fn gateways_have_about_as_many_objects_each() {
        for gateways in [2, 3, 10] {
            let ring = ring(gateways);
            let mut counts = std::collections::BTreeMap::<String, u32>::new();
            places().for_each(|place| *counts.entry(ring.home(&place).unwrap().to_owned()).or_default() += 1);
            let mean = OBJECTS / gateways;
            for (name, count) in &counts {
                assert!(
                    (mean * 2 / 3..mean * 3 / 2).contains(count),
                    "{name} of {gateways}: {count}"
                );
            }
            assert_eq!(counts.len(), gateways as usize);
        }
    }

    #[test]
    fn only_what_a_gateway_has_moves_with_it() {
        let (few, more) = (ring(4), ring(5));
        let mut moved = 0;
        for place in places() {
            let (before, after) = (few.home(&place).unwrap(), more.home(&place).unwrap());
            if before != after {
                assert_eq!(after, "10.0.0.4:9000", "{place} moves to the new one only");
                moved += 1;
            }
            // The one after the home is what the home is when the first has gone.
            let second = more.order(&place).find(|name| *name != "10.0.0.4:9000");
            assert_eq!(second, Some(before));
        }
        assert!((OBJECTS / 8..OBJECTS * 3 / 10).contains(&moved), "{moved}");
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let names = ["b:1", "a:1", "b:1", "c:1"].map(str::to_owned);
        let one = Ring::new(names.clone()).unwrap();
        assert_eq!(one, Ring::new(names.into_iter().rev()).unwrap());
        assert_eq!(one.gateways(), ["a:1", "b:1", "c:1"]);
        let mut all: Vec<&str> = one.order("b/k").collect();
        assert_eq!(Some(all[0]), one.home("b/k"));
        all.sort_unstable();
        assert_eq!(all, ["a:1", "b:1", "c:1"]);
        assert_eq!(Ring::default().home("b/k"), None);
        let many = (0..=GATEWAYS_MAX).map(|number| number.to_string());
        assert_eq!(Ring::new(many), Err(TooMany));
    }
}
