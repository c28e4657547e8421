//! Tests of the index against a map.

use super::*;
use crate::pool::Pool;
use proptest::prelude::*;
use std::collections::HashMap;

mod uneven;

/// An index beside a map from places to positions and tags, which stands for the items' keys.
struct Fixture {
    pool: Pool,
    index: Index,
    view: IndexView,
    keys: HashMap<u64, (u64, u16)>,
    next_place: u64,
    stride: Stride,
    /// Entries that found no room in a resize.
    lost: u64,
}

impl Fixture {
    fn new() -> Self {
        let pool = Pool::without_thread(64 << 20, Some(64 << 20)).unwrap();
        Self {
            pool,
            index: Index::default(),
            view: IndexView::default(),
            keys: HashMap::new(),
            next_place: 1,
            stride: Stride::Wide,
            lost: 0,
        }
    }

    fn arena(&self) -> &Arena {
        &self.pool.core().arena
    }

    fn insert(&mut self, position: u64, tag: u16) -> u64 {
        if self.index.wants_growth() {
            self.grow();
        }
        let place = self.next_place;
        self.next_place += 1;
        let position = position & !1;
        while self
            .index
            .insert(&self.pool.core().arena, position, tag, place, 0)
            .is_err()
        {
            if self.index.is_resizing() {
                self.step(u32::MAX);
            } else {
                self.grow();
            }
        }
        self.keys.insert(place, (position, tag));
        place
    }

    fn grow(&mut self) {
        while self.index.chunks_to_grow(self.stride) > 0 {
            let run = self.pool.core().take(0).unwrap();
            self.index.add_run(run, &self.view);
        }
        self.index.start_growing(self.stride, &self.view);
    }

    fn slot(&self, place: u64) -> Option<Slot> {
        let (position, tag) = self.keys[&place];
        let is_it = |found| {
            assert_ne!(found, 0, "an empty slot is no place");
            found == place
        };
        self.index
            .find(self.arena(), position, tag, is_it)
            .map(|(slot, _)| slot)
    }

    fn remove(&mut self, place: u64) {
        let slot = self.slot(place).unwrap();
        self.index.remove(&self.pool.core().arena, slot);
        self.keys.remove(&place);
        if self.index.wants_shrinking(self.stride) {
            self.index
                .start_shrinking(&self.pool.core().arena, self.stride, &self.view);
        }
    }

    /// Gives the number of runs that are not needed any more.
    fn step(&mut self, buckets: u32) -> usize {
        let (keys, mut lost) = (&self.keys, Vec::new());
        let runs = self
            .index
            .step(&self.pool.core().arena, &self.view, buckets, &mut lost, |place| {
                keys[&place].0
            });
        let surplus = runs.len();
        runs.into_iter().for_each(|run| self.pool.core().put(run));
        for place in lost {
            assert!(self.keys.remove(&place).is_some(), "{place} is lost twice");
            self.lost += 1;
        }
        surplus
    }

    /// Every key is found, and the invariants of the module's head hold.
    fn check(&self) {
        assert_eq!(self.index.len(), self.keys.len() as u64);
        for &place in self.keys.keys() {
            assert!(self.slot(place).is_some(), "place {place} is lost");
        }
        let mut filled = 0;
        for bucket in 0..self.index.buckets {
            let entries = self.index.bucket(self.arena(), bucket);
            let count = entries.iter().filter(|&&entry| entry != 0).count();
            assert!(
                entries[..count].iter().all(|&entry| entry != 0),
                "bucket {bucket} has a gap"
            );
            filled += count as u64;
            for &entry in &entries[..count] {
                let (position, tag) = self.keys[&(entry & PLACE_MASK)];
                let home = self.index.home(position);
                assert_eq!((bucket - home, (entry >> TAG_SHIFT) as u16), (displacement(entry), tag));
                for before in home..bucket {
                    assert_ne!(
                        self.index.bucket(self.arena(), before)[SLOTS - 1],
                        0,
                        "a gap before bucket {bucket}"
                    );
                }
            }
        }
        assert_eq!(filled, self.index.len());
    }

    fn scan_all(&mut self, steps_between: u32) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut position = Some(0);
        while let Some(from) = position {
            position = self
                .index
                .scan(self.arena(), from, |place, _| seen.push(place), || true);
            self.step(steps_between);
        }
        seen
    }
}

/// A different, well mixed number for each `n` (splitmix64).
fn mixed(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn grows_from_nothing_and_shrinks_back_without_losing_an_entry() {
    let mut f = Fixture::new();
    let places: Vec<u64> = (0..60_000)
        .map(|n| {
            f.step(1);
            f.insert(mixed(n), mixed(n) as u16)
        })
        .collect();
    f.check();
    let grown = f.index.units();
    assert!(grown >= 8, "{grown} units");
    for (i, place) in places.iter().enumerate().skip(100) {
        f.remove(*place);
        f.step(8);
        if i % 7_000 == 0 {
            f.check();
        }
    }
    while f.index.has_work() || f.index.wants_shrinking(f.stride) {
        if !f.index.has_work() {
            f.index.start_shrinking(&f.pool.core().arena, f.stride, &f.view);
        }
        f.step(64);
    }
    f.check();
    assert_eq!((f.index.units(), f.lost), (1, 0));
    assert_eq!(f.pool.stats().usage_bytes, 64 << 10);
}

/// Each run takes the pool's lock: an eviction or a delete must not wait for hundreds of them.
#[test]
fn what_a_large_table_does_not_need_any_more_comes_back_in_pieces() {
    let mut f = Fixture::new();
    f.stride = Stride::Coarse;
    let places: Vec<u64> = (0..400_000)
        .map(|n| {
            f.step(4);
            f.insert(mixed(n), mixed(n) as u16)
        })
        .collect();
    f.step(u32::MAX);
    let grown = f.index.units();
    for place in &places[..300_000] {
        f.remove(*place);
    }
    assert!(f.index.is_resizing());
    let mut pieces = Vec::new();
    while f.index.has_work() {
        pieces.push(f.step(1_000));
    }
    assert!(pieces.iter().all(|runs| *runs <= SURPLUS_RUNS), "{pieces:?}");
    assert!(f.index.units() * 10 <= grown * 6, "{} of {grown}", f.index.units());
    // A table that grows again before all of it came back uses the rest.
    for place in &places[300_000..380_000] {
        f.remove(*place);
    }
    assert!(f.index.is_resizing());
    while f.index.is_resizing() {
        f.step(1_000);
    }
    assert!(f.index.has_work());
    let left = f.index.units();
    f.grow();
    assert_eq!(f.index.units(), left);
    f.step(u32::MAX);
    f.check();
    while f.index.has_work() {
        f.step(1);
    }
    assert!(f.index.units() < left);
    assert_eq!(f.pool.stats().usage_bytes, f.index.units() << UNIT_SHIFT);
}

#[test]
fn fill_stays_between_the_bounds() {
    for (stride, least) in [
        (Stride::Wide, 0.60),
        (Stride::Fine, 0.75),
        (Stride::Coarse, 0.35),
        (Stride::Deep, 0.15),
    ] {
        let mut f = Fixture::new();
        f.stride = stride;
        let check = |f: &Fixture, n: u64| {
            if !f.index.is_resizing() {
                let fill = f.index.len() as f64 / (f.index.above * SLOTS as u64) as f64;
                assert!((least..0.88).contains(&fill), "{stride:?} {n}: {fill}");
            }
        };
        let mut places = Vec::new();
        for n in 0..200_000_u64 {
            places.push(f.insert(mixed(n), mixed(n) as u16));
            f.step(4);
            // The first few are inserted while the index doubles.
            if n > 1_000 {
                check(&f, n);
            }
        }
        for (n, place) in (0..).zip(places).take(190_000) {
            f.remove(place);
            f.step(4);
            check(&f, n);
        }
    }
}

#[test]
fn uses_saturate_and_relocation_sets_them() {
    let mut f = Fixture::new();
    let place = f.insert(mixed(1), 7);
    let arena = &f.pool.core().arena;
    let slot = f.slot(place).unwrap();
    for expected in [1, 2, 3, 3] {
        f.index.count_use(arena, slot);
        assert_eq!(f.index.uses(arena, slot), expected);
    }
    f.index.relocate(arena, slot, 77, 1);
    assert_eq!(f.index.find(arena, mixed(1) & !1, 7, |p| p == 77), Some((slot, 77)));
    assert_eq!(f.index.uses(arena, slot), 1);
}

/// An index, in a neighbourhood of which nearly all keys have one position. Their places.
fn crowd(f: &mut Fixture) -> Vec<u64> {
    let places: Vec<u64> = (0..4_000)
        .map(|n| {
            f.step(4);
            f.insert(mixed(n), n as u16)
        })
        .collect();
    f.step(u32::MAX);
    let position = f.keys[&places[1]].0;
    let home = f.index.home(position);
    for place in places {
        let own = f.index.home(f.keys[&place].0);
        if (home..home + DISPLACEMENT_MAX).contains(&own) {
            let slot = f.slot(place).unwrap();
            f.index.remove(&f.pool.core().arena, slot);
            f.keys.remove(&place);
        }
    }
    let mut crowd = Vec::new();
    loop {
        let place = f.next_place;
        if let Err(full) = f.index.insert(&f.pool.core().arena, position, 7, place, 0) {
            assert_eq!(full, Full::Neighbourhood);
            f.check();
            assert!((400..=512).contains(&crowd.len()), "{} in 64 buckets", crowd.len());
            return crowd;
        }
        f.next_place += 1;
        f.keys.insert(place, (position, 7));
        crowd.push(place);
    }
}

#[test]
fn in_a_crowd_the_least_used_of_a_bucket_makes_way() {
    let mut f = Fixture::new();
    let crowd = crowd(&mut f);
    let position = f.keys[&crowd[0]].0;
    let bucket = f.index.home(position);
    // All of the bucket are used but one.
    for slot in (0..SLOTS).filter(|&slot| slot != 5) {
        f.index.count_use(&f.pool.core().arena, Slot { bucket, slot });
    }
    let (slot, old) = f.index.least_used_at(f.arena(), position).unwrap();
    assert_eq!(slot, Slot { bucket, slot: 5 });
    f.index.replace(&f.pool.core().arena, slot, 9, 1 << 30);
    f.keys.remove(&old);
    f.keys.insert(1 << 30, (position, 9));
    f.check();
}

#[test]
fn a_growth_over_crowds_loses_nobody() {
    let mut f = Fixture::new();
    let crowd = crowd(&mut f);
    let home = f.index.home(f.keys[&crowd[0]].0);
    // These belong into the crowd's buckets and lie behind them; a growth moves them first, and they go where they belong.
    let position = first_position(home + 20, f.index.above).unwrap().next_multiple_of(2);
    let mut others = 1 << 30..;
    while let Some(place) = others.next()
        && f.index.insert(&f.pool.core().arena, position, 3, place, 0) == Ok(())
    {
        f.keys.insert(place, (position, 3));
    }
    f.grow();
    f.step(u32::MAX);
    f.check();
    assert_eq!(f.lost, 0, "of {}", crowd.len());
}

#[test]
fn whatever_moves_an_entry_counts_as_a_change() {
    let mut f = Fixture::new();
    let mut before = f.index.changes();
    let mut has_changed = |f: &Fixture| std::mem::replace(&mut before, f.index.changes()) != f.index.changes();
    let place = f.insert(mixed(1), 7);
    assert!(has_changed(&f), "an insertion");
    let slot = f.slot(place).unwrap();
    f.index.count_use(&f.pool.core().arena, slot);
    assert!(!has_changed(&f), "a use moves nothing");
    f.index.relocate(&f.pool.core().arena, slot, place, 0);
    assert!(has_changed(&f), "another place");
    f.remove(place);
    assert!(has_changed(&f), "a removal");
    while !f.index.is_resizing() {
        let n = f.next_place;
        f.insert(mixed(n), n as u16);
    }
    has_changed(&f);
    f.step(u32::MAX);
    assert!(has_changed(&f), "a resize");
    f.index.clear(&f.view);
    assert!(has_changed(&f), "all are gone");
}

#[test]
fn a_picked_entry_exists() {
    let mut f = Fixture::new();
    assert_eq!(f.index.pick(f.arena(), 1), None);
    (0..50).for_each(|n| {
        f.insert(mixed(n), 1);
    });
    let picked: std::collections::HashSet<u64> =
        (0..1000).map(|n| f.index.pick(f.arena(), mixed(n)).unwrap()).collect();
    assert!(picked.iter().all(|place| f.keys.contains_key(place)));
    assert!(picked.len() > 30, "{} of 50 were picked", picked.len());
}

#[test]
fn a_cleared_index_is_empty_and_can_be_used_again() {
    let mut f = Fixture::new();
    (0..500).for_each(|n| {
        f.insert(mixed(n), 1);
        f.step(4);
    });
    let runs = f.index.clear(&f.view);
    assert_eq!(runs.len(), 1);
    f.keys.clear();
    runs.into_iter().for_each(|run| f.pool.core().put(run));
    f.check();
    f.insert(mixed(1), 1);
    f.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Clustered positions (few different high bits) make buckets spill far; growth and shrinking stop at every stage.
    #[test]
    fn equals_a_map_at_every_step(
        ops in prop::collection::vec((0_u8..10, any::<u64>(), 0_u32..4), 1..600),
        spread in 4_u32..40,
    ) {
        let mut f = Fixture::new();
        for (op, random, steps) in ops {
            match op {
                0..=6 => {
                    for n in 0..3 {
                        f.insert(mixed(random ^ n) << (64 - spread) | mixed(random) >> spread, mixed(random ^ n) as u16 & 3);
                    }
                }
                _ => {
                    if let Some(&place) = f.keys.keys().min_by_key(|place| *place ^ (random & 63)) {
                        f.remove(place);
                    }
                }
            }
            f.step(steps);
        }
        f.check();
        prop_assert_eq!(f.lost, 0);
    }

    /// Few tags and displacements, with the ends of both ranges.
    #[test]
    fn matching_entries_are_those_of_the_same_upper_bits(
        filled in prop::collection::vec((0_usize..4, 0_usize..4, 1..PLACE_MASK), 0..=SLOTS),
        (tag, displacement) in (0_usize..4, 0_usize..4),
    ) {
        let upper = |tag: usize, displacement: usize| {
            [0, 1, 0x8000, 0xFFFF][tag] << 6 | [0, 1, 32, DISPLACEMENT_MAX][displacement]
        };
        let mut entries = [0; SLOTS];
        for (entry, (tag, displacement, place)) in entries.iter_mut().zip(&filled) {
            *entry = upper(*tag, *displacement) << DISPLACEMENT_SHIFT | 3 << USES_SHIFT | place;
        }
        let wanted = upper(tag, displacement);
        let expected = which(&entries, |entry| entry >> DISPLACEMENT_SHIFT == wanted);
        prop_assert_eq!(matching(&entries, wanted as u32), expected);
        prop_assert_eq!(count(&entries), filled.len());
    }

    #[test]
    fn a_scan_sees_all_that_was_there_throughout(count in 1_u64..4000, removed in 0_u64..4000, steps in 0_u32..6) {
        let mut f = Fixture::new();
        let places: Vec<u64> = (0..count).map(|n| f.insert(mixed(n), 0)).collect();
        f.step(1_000_000);
        let gone = (removed % count) as usize;
        for place in &places[..gone] {
            f.remove(*place);
        }
        let mut seen = f.scan_all(steps);
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen, &places[gone..]);
    }
}
