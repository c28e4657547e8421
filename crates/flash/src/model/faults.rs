//! Random runs on a device that fails, stalls, or has anything written in its segments.

use super::*;
use crate::format::{TAIL_BYTES, decode_tail, reseal};

/// The beginning of segments: faults that no checksum tells from a crash would hit the journal else.
fn data_at() -> u64 {
    crate::volume::data_offset(64)
}

#[test]
fn faults_are_misses() {
    for seed in seeds(200, 60) {
        let faults = Faults {
            read_errors: 5 + (seed % 3) as u32 * 20,
            write_errors: 20,
            flipped_reads: 5,
            flipped_writes: 30,
            misdirected_writes: 20,
            lost_writes: 20,
            from_offset: data_at(),
            for_bytes: None,
        };
        let run = run(
            seed,
            Plan {
                faults,
                crashes: seed % 2 == 0,
                stalls: seed % 3 == 0,
            },
        );
        assert!(run.hits > 0, "seed {seed}");
    }
}

#[test]
fn requests_that_stall_hold_up_nothing_else_and_bring_back_nothing() {
    for seed in seeds(260, 20) {
        let plan = Plan {
            crashes: seed % 2 == 0,
            stalls: true,
            ..Plan::default()
        };
        let mut run = run(seed, plan);
        assert!(
            run.hits > 100 && !run.volume.is_given_up(),
            "seed {seed}: {} hits",
            run.hits
        );
        // The last ones end, too.
        run.settle();
        assert!(run.stalled.is_empty(), "seed {seed}");
    }
}

#[test]
fn of_a_range_that_always_fails_nothing_else_is_touched() {
    for seed in 290..293 {
        // One of its segments.
        let faults = Faults {
            read_errors: 10_000,
            write_errors: 10_000,
            from_offset: data_at() + 3 * SEGMENT_BYTES as u64,
            for_bytes: Some(SEGMENT_BYTES as u64),
            ..Faults::default()
        };
        let run = run(
            seed,
            Plan {
                faults,
                ..Plan::default()
            },
        );
        let lost = run
            .volume
            .slots
            .iter()
            .filter(|slot| matches!(slot.state, State::Quarantined));
        assert_eq!(lost.count(), 1, "seed {seed}");
        assert!(
            run.hits > 100 && !run.volume.is_given_up(),
            "seed {seed}: {} hits",
            run.hits
        );
    }
}

#[test]
fn a_device_that_is_gone_or_full_is_given_up_and_misses() {
    for (seed, is_full) in [(400, false), (401, true)] {
        let mut run = run(seed, Plan::default());
        if is_full {
            run.device.set_full(true);
        } else {
            run.device.set_gone(true);
        }
        for _ in 0..20_000 {
            run.now_ms += 1;
            run.step();
        }
        assert!(run.volume.is_given_up(), "seed {seed}");
        assert!(run.look(0, 0, 1).is_none());
    }
}

/// Bytes that are changed in a segment's end, and how.
fn spoil(random: &mut Random, segment: &mut [u8], volume: &[u8; 16]) {
    let Some((_, count)) = decode_tail(segment, volume) else {
        return;
    };
    for _ in 0..=random.below(4) {
        // In its records, its footer or its tail.
        let footer_bytes = (count * crate::format::FOOTER_ENTRY_BYTES).max(1) as u64;
        let from_end = match random.below(4) {
            0 => segment.len() as u64 - 1 - random.below(segment.len() as u64 / 2),
            1 => random.below(TAIL_BYTES as u64),
            _ => TAIL_BYTES as u64 + random.below(footer_bytes),
        };
        let at = segment.len() - 1 - from_end as usize;
        segment[at] = match random.below(3) {
            0 => 0,
            1 => 0xFF,
            _ => random.next() as u8,
        };
    }
    // As if the checksums were right: what is behind them has to stand anything, too.
    if random.below(2) == 0 {
        reseal(segment, volume);
    }
}

#[test]
fn segments_of_any_bytes_are_opened_and_give_right_bytes_or_none() {
    for seed in seeds(700, 10) {
        let mut run = run(seed, Plan::default());
        run.settle();
        let volume = run.volume.superblock.uuid;
        let mut spoilt = 0;
        for slot in 0..run.volume.slots.len() as u32 {
            let offset = run.volume.slot_offset(slot);
            let mut segment = Buffer::zeroed(SEGMENT_BYTES);
            run.device.read(offset, segment.as_mut()).unwrap();
            let before = segment.as_ref().to_vec();
            spoil(&mut run.random, segment.as_mut(), &volume);
            spoilt += u64::from(before != segment.as_ref());
            run.device.write(offset, segment.as_ref()).unwrap();
        }
        assert!(spoilt > 4, "seed {seed}: {spoilt}");
        run.device.flush().unwrap();
        run.reopen();
        let mut found = 0;
        for tenant in 0..TENANTS {
            for id in 0..KEYS {
                if let Some(it) = run.look(tenant, 0, id) {
                    assert_eq!((it.item.db, it.item.key), (0, key(id)), "seed {seed}");
                    assert_eq!(it.item.value, value(id, it.item.token), "I1, seed {seed}: key {id}");
                    found += 1;
                }
            }
        }
        assert!(found > 0, "seed {seed}: nothing is left");
        // And it goes on.
        for _ in 0..500 {
            run.version += 1;
            run.put(0, 0, run.version % KEYS);
            run.volume.tick(run.now_ms);
            run.work(4);
        }
    }
}
