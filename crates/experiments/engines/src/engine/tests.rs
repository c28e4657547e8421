//! Every cache behaves as the measurement assumes.

use super::*;

/// Enough for [`FEW`] keys in any of them, and far too little for [`MANY`].
const CAPACITY_BYTES: u64 = 4 << 20;
const FEW: u64 = 2_000;
const MANY: u64 = 200_000;

fn keys(count: u64) -> Vec<KeyBytes> {
    let text = |number: u64| format!("{number:016}").into_bytes();
    (0..count).map(|number| text(number).try_into().unwrap()).collect()
}

fn check(mut engine: impl Engine, name: &str) {
    let (few, many) = (keys(FEW), keys(MANY));
    let first = engine.pass(&few);
    assert_eq!(
        first,
        Tally::default(),
        "{name}: nothing is there at first, and nothing is refused"
    );
    let second = engine.pass(&few);
    assert_eq!((second.wrong, second.refused), (0, 0), "{name}");
    // Shards of unequal fill, and policies that admit late, may have dropped some.
    assert!(second.hits > FEW * 9 / 10, "{name}: {second:?}");
    let third = engine.pass(&many);
    assert_eq!(third.wrong, 0, "{name}");
    let held = many.iter().filter(|key| engine.holds(key)).count() as u64;
    assert!((FEW / 2..MANY / 2).contains(&held), "{name}: {held} keys held");
    assert!(!engine.holds(b"never set before"), "{name}");
    let other = engine.share();
    let also_held = many.iter().filter(|key| other.holds(key)).count() as u64;
    assert_eq!(also_held, held, "{name}: another handle is on the same cache");
}

#[test]
fn every_cache_returns_what_was_set_and_forgets_what_is_too_much() {
    for policy in Policy::PLAIN {
        for batch in [1, 16, 50] {
            let name = Kind::Tidemark(policy).name();
            check(Tidemark::new(CAPACITY_BYTES, policy, batch, 1).unwrap(), name);
        }
    }
    check(Segcache::new(CAPACITY_BYTES).unwrap(), "segcache");
    check(QuickCache::new(CAPACITY_BYTES, 1).unwrap(), "quick_cache");
    check(QuickCacheFixed::new(CAPACITY_BYTES, 1).unwrap(), "quick_cache-fixed");
    check(Foyer::new(CAPACITY_BYTES, 1).unwrap(), "foyer");
    check(Moka::new(CAPACITY_BYTES), "moka");
}

#[test]
fn a_value_that_is_another_keys_is_noticed() {
    let mut tally = Tally::default();
    tally.hit(b"0000000000000017", mark(b"0000000000000017"));
    tally.hit(b"0000000000000017", mark(b"0000000000000018"));
    assert_eq!((tally.hits, tally.wrong), (2, 1));
}

#[test]
fn names_are_read_back() {
    for kind in Kind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert!("lru".parse::<Kind>().unwrap_err().contains("quick_cache"));
}
