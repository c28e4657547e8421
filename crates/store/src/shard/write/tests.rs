use tidemark_types::{LogShare, MIB, Policy};

use super::*;
use crate::segment::Segment;
use crate::{Pool, undriven};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const VALUE: [u8; 1000] = [7; 1000];

/// Between the small segments of others no two neighbours are free.
#[test]
fn a_grant_is_filled_whatever_pieces_the_free_memory_is_in() {
    const PIECE_ORDER: u8 = 2;
    let pool = Pool::without_thread(64 * MIB, Some(64 * MIB)).unwrap();
    let core = pool.core();
    let pieces: Vec<Run> = std::iter::from_fn(|| core.take(PIECE_ORDER)).collect();
    let (theirs, free): (Vec<Run>, Vec<Run>) = pieces.into_iter().partition(|run| run.start >> PIECE_ORDER & 1 == 0);
    free.into_iter().for_each(|run| core.put(run));
    assert_eq!(core.take(PIECE_ORDER + 1), None);
    let free_bytes = 64 * MIB - theirs.iter().map(|run| run.units()).sum::<u64>() * UNIT_BYTES;

    let store = undriven::tenant(&pool, 1, Policy::S3Fifo, 1, free_bytes);
    assert!(store.lock(0).segment_order(0) > PIECE_ORDER);
    for number in 0..50_000 {
        let name = format!("{number:08}");
        let key = store.key(0, name.as_bytes());
        store.put(&key, &VALUE, Attributes::default(), NOW).unwrap();
        if store.usage_bytes() < free_bytes - MIB {
            assert_eq!(
                store.lock(0).counters().evicted,
                0,
                "with {} bytes",
                store.usage_bytes()
            );
        }
    }
    assert!(store.usage_bytes() >= free_bytes - MIB, "{} bytes", store.usage_bytes());
}

/// Segments are of four units here.
#[test]
fn what_is_left_of_a_grant_is_used_and_does_not_cut_all_of_it_up() {
    let pool = Pool::without_thread(64 * MIB, Some(64 * MIB)).unwrap();
    let store = undriven::tenant(&pool, 1, Policy::S3Fifo, 1, 20 * MIB);
    let mut number = 0;
    // Returns how much of the grant was never used.
    let mut fill = |grant_bytes: u64| {
        store.set_grant(grant_bytes, 0);
        while store.upkeep(0, NOW) == crate::shard::Upkeep::More {}
        let mut most_bytes = 0;
        for _ in 0..60_000 {
            number += 1;
            let name = format!("{number:08}");
            let key = store.key(0, name.as_bytes());
            store.put(&key, &VALUE, Attributes::default(), NOW).unwrap();
            most_bytes = store.usage_bytes().max(most_bytes);
        }
        grant_bytes - most_bytes
    };
    for round in 0..8 {
        for left_units in [2, 3] {
            let unused_bytes = fill(20 * MIB + left_units * UNIT_BYTES);
            assert!(
                unused_bytes <= UNIT_BYTES,
                "{unused_bytes} with {left_units} units more in round {round}"
            );
            let shard = store.lock(0);
            let small = shard.log.iter().filter(|(_, segment)| segment.run.order < 2).count();
            assert!(small <= LEFTOVERS_MAX, "{small} in round {round}");
        }
    }
}

/// A unit is left, which is too little for them: else each would find a whole segment to be emptied first.
#[test]
fn evictions_run_ahead_also_of_values_that_what_is_left_has_no_room_for() {
    let pool = Pool::without_thread(64 * MIB, Some(64 * MIB)).unwrap();
    let grant_bytes = 40 * MIB + UNIT_BYTES;
    let store = undriven::tenant(&pool, 1, Policy::S3Fifo, 1, grant_bytes);
    let value = vec![7; 100 << 10];
    let mut were_left = false;
    for number in 0..2_000 {
        let name = format!("{number:08}");
        let key = store.key(0, name.as_bytes());
        store.put(&key, &value, Attributes::default(), NOW).unwrap();
        let shard = store.lock(0);
        if shard.counters().evicted > 0 && shard.spare.is_none() {
            assert!(shard.is_tight(), "after {number}");
            were_left |= shard.shared.room() > 0;
        }
    }
    assert!(were_left);
}

/// The idle memory is half of the open segment, and the part that is emptied ahead of need: late, that is a fifth of
/// one. No write empties much at once for that.
#[test]
fn where_one_queue_is_written_to_little_lies_empty_ahead_of_need() {
    const GRANT_BYTES: u64 = 64 * UNIT_BYTES;
    let copying = Policy::ApproxLru(LogShare::HALF);
    for (policy, idle_segments) in [(Policy::Fifo, 0.6..0.8), (Policy::Clock, 0.6..0.8), (copying, 1.2..1.6)] {
        let pool = Pool::without_thread(8 * MIB, Some(8 * MIB)).unwrap();
        let store = undriven::tenant(&pool, 1, policy, 1, GRANT_BYTES);
        let (mut idle_bytes, mut evicted) = (Vec::new(), 0);
        for number in 0..20_000 {
            let name = format!("{number:08}");
            let key = store.key(0, name.as_bytes());
            store.put(&key, &VALUE, Attributes::default(), NOW).unwrap();
            let shard = store.lock(0);
            let evicted_before = std::mem::replace(&mut evicted, shard.counters().evicted);
            assert!(
                evicted - evicted_before <= 16,
                "{policy}: {} at once",
                evicted - evicted_before
            );
            if number >= 10_000 {
                let snapshot = shard.snapshot(NOW);
                // The end of a full segment is too short for an item.
                let used_bytes = |segment: &Segment| match segment.state {
                    State::Sealed => segment.run.bytes(),
                    _ => segment.live_bytes as usize,
                };
                let used_bytes: usize = shard.log.iter().map(|(_, segment)| used_bytes(segment)).sum();
                idle_bytes.push((GRANT_BYTES - snapshot.index_bytes - used_bytes as u64) as f64);
            }
        }
        let mean = idle_bytes.iter().sum::<f64>() / idle_bytes.len() as f64 / UNIT_BYTES as f64;
        assert!(idle_segments.contains(&mean), "{policy}: {mean} segments");
    }
}

/// However much survives.
#[test]
fn no_write_walks_a_whole_segment() {
    for policy in [Policy::Fifo, Policy::Clock, Policy::S3Fifo] {
        let pool = Pool::without_thread(8 * MIB, Some(8 * MIB)).unwrap();
        let store = undriven::tenant(&pool, 1, policy, 1, 4 * MIB);
        // The victim under way, if any, and how far it is walked.
        let under_way = |shard: &Shard| {
            let (id, segment) = shard.log.iter().find(|(_, segment)| segment.state == State::Victim)?;
            let (_, cursor) = shard.evictions.walked(id)?;
            Some((segment.sequence, segment.used_bytes, cursor))
        };
        let (mut walks, mut state) = (Vec::new(), 1_u64);
        for _ in 0..60_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Twice as many items as there is room for, some oftener than others.
            let number = ((state >> 40) as f64 / (1 << 24) as f64).powi(2) * 8_000.0;
            let name = format!("{number:08.0}");
            let key = store.key(0, name.as_bytes());
            let before = {
                let mut shard = store.lock(0);
                if shard.get(&key, NOW).is_some() {
                    continue;
                }
                under_way(&shard)
            };
            store.put(&key, &VALUE, Attributes::default(), NOW).unwrap();
            let after = under_way(&store.lock(0));
            walks.push(match (before, after) {
                (Some((victim, _, from)), Some((same, _, to))) if victim == same => to - from,
                (Some((_, end, from)), _) => end - from,
                (None, Some((_, _, to))) => to,
                (None, None) => 0,
            });
        }
        let longest = walks.iter().max().copied().unwrap();
        let waits = walks
            .iter()
            .filter(|walked| u64::from(**walked) > UNIT_BYTES / 2)
            .count();
        assert!(
            longest > 0 && waits * 100 < walks.len(),
            "{policy}: {longest} bytes, {waits} of {}",
            walks.len()
        );
    }
}
