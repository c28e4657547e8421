//! Tables that are emptied in the order of positions, so that a part stays as full as it was.

use super::*;

/// The order in which entries go.
#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    Descending,
    /// From the middle on, around.
    Middle,
    /// From both ends to the middle.
    Ends,
    Inserted,
}

impl Order {
    const ALL: [Self; 5] = [
        Self::Ascending,
        Self::Descending,
        Self::Middle,
        Self::Ends,
        Self::Inserted,
    ];

    fn key(self, position: u64, place: u64) -> u64 {
        match self {
            Self::Ascending => position,
            Self::Descending => !position,
            Self::Middle => position.wrapping_sub(1 << 63),
            Self::Ends => position.min(!position),
            Self::Inserted => place,
        }
    }
}

impl Fixture {
    fn insert_some(&mut self, count: u64, random: &mut u64) {
        for _ in 0..count {
            *random += 1;
            self.step(4);
            self.insert(mixed(*random), mixed(*random) as u16);
        }
    }

    /// Removes a part of the entries, one in so many of those that are passed, with the steps of the index that come with it.
    fn remove_some(&mut self, order: Order, passed: usize, one_in: usize) {
        let mut places: Vec<u64> = self.keys.keys().copied().collect();
        places.sort_by_key(|place| order.key(self.keys[place].0, *place));
        for place in places.into_iter().take(passed).step_by(one_in) {
            self.remove(place);
            self.step(4);
        }
    }

    /// Shrinks it as far as it can, as visits do.
    fn settle(&mut self) {
        self.index.look_again();
        while self.index.has_work() || self.index.wants_shrinking(self.stride) {
            if !self.index.has_work() {
                self.index
                    .start_shrinking(&self.pool.core().arena, self.stride, &self.view);
            }
            self.step(64);
        }
    }

    fn fill(&self) -> f64 {
        self.index.len() as f64 / (self.index.above * SLOTS as u64) as f64
    }
}

#[test]
fn no_entry_is_lost_when_a_part_is_emptied_and_the_rest_is_full() {
    let mut turned = 0;
    for stride in [Stride::Wide, Stride::Fine, Stride::Coarse, Stride::Deep] {
        for order in Order::ALL {
            for one_in in [1, 2, 5] {
                let mut f = Fixture::new();
                f.stride = stride;
                f.insert_some(24_000, &mut (one_in as u64 * 1_000_000));
                f.step(u32::MAX);
                for _ in 0..8 {
                    f.remove_some(order, f.keys.len() / 3, one_in);
                    turned += u64::from(matches!(f.index.dense, Some(dense) if dense.was_tried()));
                    assert_eq!(f.index.len(), f.keys.len() as u64);
                }
                f.check();
                assert_eq!(f.lost, 0, "{stride:?} {order:?} one in {one_in}");
            }
        }
    }
    // The case that all of this is about has come.
    assert!(turned > 10, "{turned} shrinks turned around");
}

/// A part that is dense for a while does not keep the table large for ever.
#[test]
fn a_table_that_is_even_again_shrinks() {
    let mut f = Fixture::new();
    f.insert_some(60_000, &mut 0);
    f.step(u32::MAX);
    let before = f.index.above;
    // As a sweep does where every other item expires.
    f.remove_some(Order::Ascending, usize::MAX, 2);
    f.settle();
    f.check();
    assert!((0.60..0.88).contains(&f.fill()), "{}", f.fill());
    assert!(f.index.above * 3 < before * 2, "{} of {before}", f.index.above);
    assert_eq!(f.lost, 0);
}

#[test]
fn a_part_that_stays_dense_is_not_tried_again_and_again() {
    let mut f = Fixture::new();
    f.insert_some(60_000, &mut 0);
    f.step(u32::MAX);
    // Both ends go, and what the end looks like says nothing of the middle.
    f.remove_some(Order::Ends, 35_000, 1);
    f.settle();
    let changes = f.index.changes();
    for _ in 0..100 {
        f.settle();
    }
    assert_eq!((f.index.changes(), f.lost), (changes, 0));
    f.check();
    // Growing needs the buckets that a shrink left in use behind its last one.
    f.insert_some(60_000, &mut 1_000_000);
    f.check();
}

/// Whatever comes in whatever order: all entries are found, and the index holds as many as were put in.
#[test]
fn equals_a_map_over_phases_of_every_kind() {
    for seed in 0..8 {
        let mut f = Fixture::new();
        let mut random = seed << 40;
        for phase in 0..30 {
            random += 1;
            let dice = mixed(random);
            let order = Order::ALL[(dice >> 8) as usize % Order::ALL.len()];
            f.stride = [Stride::Wide, Stride::Fine, Stride::Coarse, Stride::Deep][(dice >> 16) as usize % 4];
            let part = 1 + (dice >> 24) as usize % 4;
            match dice % 4 {
                0 | 1 => f.insert_some(1 + (dice >> 32) % 9_000, &mut random),
                2 => f.remove_some(order, f.keys.len() / part, 1 + (dice >> 40) as usize % 3),
                _ => f.settle(),
            }
            f.step((dice >> 48) as u32 % 40);
            f.check();
            assert_eq!(f.lost, 0, "seed {seed}, phase {phase}");
        }
    }
}

/// As many as the buckets hold go in, in whatever order their own buckets come.
#[test]
fn an_entry_finds_room_as_long_as_there_is_any_for_its_neighbours() {
    for seed in 0..50 {
        let mut f = Fixture::new();
        f.insert_some(2_000, &mut 0);
        f.step(u32::MAX);
        f.remove_some(Order::Ascending, usize::MAX, 1);
        f.step(u32::MAX);
        let buckets = f.index.above;
        let first = buckets / 2;
        // The own buckets are these, and to the last of them there are so many slots with those behind it.
        let own = 20.min(buckets - first - 1);
        let slots = (own + DISPLACEMENT_MAX).min(f.index.buckets - first) * SLOTS as u64;
        let mut refused_at = None;
        for n in 0..slots + 8 {
            // The later ones first, so that those before find their way full.
            let bucket = first + own - 1 - (n * own / (slots + 8)).min(own - 1);
            let position = first_position(bucket, buckets).unwrap().next_multiple_of(2);
            let place = f.next_place;
            f.next_place += 1;
            match f
                .index
                .place(&f.pool.core().arena, position, mixed(seed + n) as u16, place, 0)
            {
                Ok(()) => drop(f.keys.insert(place, (position, mixed(seed + n) as u16))),
                Err(_) => {
                    refused_at.get_or_insert(n);
                }
            }
        }
        f.check();
        assert_eq!(f.keys.len() as u64, slots, "refused at {refused_at:?}");
    }
}
