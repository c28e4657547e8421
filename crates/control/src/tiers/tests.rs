//! The program's input, what is learnt of flash, and what goals are weighed by.

use tidemark_curve::{Amount, CLASSES, Point};
use tidemark_plan::tiers::{Target, solve};

use super::*;

const BOUNDS: Bounds = Bounds {
    memory_least: MIB,
    memory_most: 256 * MIB,
    flash_least: 0,
    flash_most: 1024 * MIB,
};

/// Misses fall by half with each doubling, from half of them at 64 MiB on.
fn curve() -> Curve {
    let points = (0..6_u32).map(|step| Point {
        bytes: (16 * MIB) << step,
        miss_ratio: 0.8 * 0.6_f64.powi(step as i32),
        standard_error: 0.001,
    });
    Curve::through(points)
}

/// The same by size class, of which one has all: items of a KiB.
fn depths(curve: &Curve) -> Vec<Depth> {
    let depth = |point: &Point| {
        let mut depth = Depth {
            bytes: point.bytes,
            ..Depth::default()
        };
        depth.hits[1] = 1.0 - point.miss_ratio;
        depth.held[1] = Amount {
            bytes: point.bytes as f64,
            items: point.bytes as f64 / 1024.0,
        };
        depth
    };
    curve.points().iter().map(depth).collect()
}

fn measured(curve: &Curve) -> Measured {
    Measured {
        curve: Arc::new(curve.clone()),
        memory_per_byte: 1.2,
        in_force_bytes: 48 * MIB,
        usage_bytes: 48 * MIB,
        index_bytes: MIB,
        items: 48 * 1024,
        flash: FlashUse {
            grant_bytes: 128 * MIB,
            usage_bytes: 126 * MIB,
            items: 120 * 1024,
            shadow_bytes: 12 * MIB,
            ..FlashUse::default()
        },
        hits: None,
        hits_error: 0.0,
        load: Load {
            gets_per_second: 1000.0,
            hit_cost_us: 50.0,
            miss_cost_us: 1050.0,
        },
        flash_wait_us: Some(120.0),
    }
}

#[test]
fn times_and_index_are_what_was_measured() {
    let curve = curve();
    let depths = depths(&curve);
    let tenant = |measured: &Measured| measured.tenant(&measured.composed(&depths), Learnt::default(), BOUNDS);
    let here = measured(&curve);
    let fast = Measured {
        flash_wait_us: Some(1000.0),
        ..here.clone()
    };
    // A miss that is as fast as flash makes flash useless.
    assert!(tenant(&fast).is_none());
    let tenant = tenant(&here).unwrap();
    assert_eq!(
        tenant.latencies,
        Latencies {
            memory_us: 50.0,
            flash_us: 120.0,
            origin_us: 880.0,
        }
    );
    let per_byte = 10.4 * 120.0 / (126.0 * 1024.0);
    assert!((tenant.index_ratio - per_byte).abs() < 1e-9, "{}", tenant.index_ratio);
}

#[test]
fn what_items_take_follows_from_what_all_take_and_from_their_class() {
    let curve = curve();
    let depths = depths(&curve);
    let here = measured(&curve);
    // 1.2 bytes for each of 48 MiB's items' own, a 48th of them by item: all together take what is in use.
    let composed = here.composed(&depths);
    let own = 48.0 * MIB as f64 / 1.2;
    let hit_ratio = 1.0 - curve.at(own as u64).miss_ratio;
    let (in_memory, in_both) = composed.hit_ratios(48.0 * MIB as f64, 0.0);
    assert!(
        (in_memory - hit_ratio).abs() < 1e-3 && in_memory == in_both,
        "{in_memory} {hit_ratio}"
    );
    // An item of 1,024 bytes takes 89 more on flash.
    let (_, with_flash) = composed.hit_ratios(48.0 * MIB as f64, 64.0 * MIB as f64);
    let reached = own + 64.0 * MIB as f64 * 1024.0 / 1113.0;
    assert!(
        (with_flash - (1.0 - curve.at(reached as u64).miss_ratio)).abs() < 1e-3,
        "{with_flash}"
    );
    // No item that flash does not take hits there.
    let mut large = depths.clone();
    for depth in &mut large {
        depth.hits.rotate_right(2);
        depth.held.rotate_right(2);
    }
    assert_eq!(large[3].held[CLASSES - 1].items, depths[3].held[1].items);
    let composed = here.composed(&large);
    let (in_memory, in_both) = composed.hit_ratios(48.0 * MIB as f64, 64.0 * MIB as f64);
    assert!(in_memory > 0.5 && in_memory == in_both, "{in_memory} {in_both}");
    assert!(here.tenant(&composed, Learnt::default(), BOUNDS).is_none());
}

#[test]
fn the_program_is_exact_at_the_memory_in_force() {
    let curve = curve();
    // The newest bytes are of small items, which take more of flash than of memory beside their own; the others are not.
    let mut depths = depths(&curve);
    for (depth, small_bytes) in depths.iter_mut().zip([16.0, 24.0, 30.0, 34.0, 36.0, 37.0]) {
        let small = small_bytes * MIB as f64;
        depth.held[0] = Amount {
            bytes: small,
            items: small / 64.0,
        };
        depth.held[1].bytes -= small;
        depth.held[1].items = depth.held[1].bytes / 1024.0;
        let hits = depth.hits[1];
        (depth.hits[0], depth.hits[1]) = (hits * 0.6, hits * 0.4);
    }
    for in_force in [24, 96, 192] {
        let here = Measured {
            in_force_bytes: in_force * MIB,
            ..measured(&curve)
        };
        let composed = here.composed(&depths);
        let tenant = here.tenant(&composed, Learnt::default(), BOUNDS).unwrap();
        let sizes = Sizes {
            memory_bytes: (in_force * MIB) as f64,
            flash_bytes: (200 * MIB) as f64,
        };
        let flash_yield = here.flash_yield(Learnt::default());
        let (in_memory, in_both) = composed.hit_ratios(sizes.memory_bytes, sizes.flash_bytes * flash_yield);
        let by_hits = here.load.mean_cost_us(in_both) + here.wait_us() * (in_both - in_memory);
        let by_program = tenant.latency_us(sizes);
        assert!(
            (by_program - by_hits).abs() < 0.5,
            "{in_force} MiB: {by_program} by the program, {by_hits} by hits"
        );
    }
}

#[test]
fn flash_is_learnt_by_the_hits_that_it_gives_while_it_is_full() {
    let curve = curve();
    let depths = depths(&curve);
    let measured = || measured(&curve);
    let note = |learnt: &mut Learnt, measured: &Measured| learnt.note(measured, &measured.composed(&depths), None);
    let seen = |used: u64, hits: f64| Measured {
        hits: Some((hits, 48 * MIB)),
        flash: FlashUse {
            usage_bytes: used * MIB,
            ..measured().flash
        },
        ..measured()
    };
    // Memory holds 40 MiB of items, and 114 MiB of flash that memory does not hold give 57 MiB of records more: half a byte each.
    let records = 57.0 * MIB as f64 * 1024.0 / 1113.0;
    let hits = 1.0 - curve.at(40 * MIB + records as u64).miss_ratio;
    let mut learnt = Learnt::default();
    for _ in 0..60 {
        note(&mut learnt, &seen(126, hits));
    }
    assert!((learnt.held - 0.5).abs() < 0.01, "{learnt:?}");
    let before = learnt;
    note(&mut learnt, &seen(60, hits));
    assert_eq!(learnt, before, "flash is being filled");
    let unasked = Measured {
        hits: None,
        ..seen(126, hits)
    };
    note(&mut learnt, &unasked);
    assert_eq!(learnt, before, "nobody asks");
    // Flash that holds less is worth less.
    let sizes = |learnt: Learnt| {
        let here = measured();
        let tenant = here.tenant(&here.composed(&depths), learnt, BOUNDS).unwrap();
        let goal = goal(&tenant, 400.0, TierPrices::default(), 0, Reach::Within);
        solve(
            &[tenant],
            TierPrices::default().held,
            Pools::ANY,
            Target::Each(&[Some(goal)]),
        )
        .sizes[0]
    };
    let (rich, poor) = (sizes(Learnt { held: 1.0 }), sizes(Learnt { held: 0.5 }));
    assert!(poor.flash_bytes > 1.5 * rich.flash_bytes, "{rich:?} {poor:?}");
}

#[test]
fn near_all_hits_a_fine_goal_learns_what_a_coarse_one_leaves() {
    // Few gets miss, so that the curve is flat; flash holds half of what it is taken to hold.
    let points = (0..6_u32).map(|step| Point {
        bytes: (16 * MIB) << step,
        miss_ratio: 0.016 * 0.5_f64.powi(step as i32),
        standard_error: 0.0,
    });
    let curve = Curve::through(points);
    let depths = depths(&curve);
    let records = 57.0 * MIB as f64 * 1024.0 / 1113.0;
    let hits = 1.0 - curve.at(40 * MIB + records as u64).miss_ratio;
    let after = |goal: Option<f64>, hits_error: f64| {
        let here = Measured {
            hits: Some((hits, 48 * MIB)),
            hits_error,
            ..measured(&curve)
        };
        let goal = goal.map(|goal| HitGoal { goal, within: 0.0002 });
        let mut learnt = Learnt::default();
        for _ in 0..60 {
            learnt.note(&here, &here.composed(&depths), goal);
        }
        learnt.held
    };
    assert_eq!(after(None, 0.0), Learnt::default().held);
    assert_eq!(after(Some(0.9), 0.0), Learnt::default().held, "a coarse goal");
    assert!((after(Some(0.998), 0.0) - 0.5).abs() < 0.01, "a fine one");
    assert!(after(Some(0.998), 1.0) > 0.8, "of a few gets");
}

#[test]
fn goals_are_aimed_at_below_but_not_at_the_best() {
    for (goal_us, best_us, expected) in [(400.0, 100.0, 392.0), (400.0, 390.0, 393.9), (400.0, 500.0, 505.0)] {
        assert!(
            (aim_us(goal_us, best_us) - expected).abs() < 1e-9,
            "{goal_us} {best_us}"
        );
    }
}

#[test]
fn a_foretold_hit_ratio_is_the_measured_one_and_what_the_classes_add() {
    let curve = curve();
    let mut here = measured(&curve);
    here.hits = Some((0.6, 48 * MIB));
    let known = Known::of(here, &depths(&curve), Learnt::default(), None);
    let in_use = sizes_of(48 * MIB, 126 * MIB);
    assert!((known.hit_ratio_with(in_use) - 0.6).abs() < 1e-9);
    let more = sizes_of(48 * MIB, 300 * MIB);
    let added = known.hit_ratios(more).1 - known.hit_ratios(in_use).1;
    assert!(added > 0.01, "{added}");
    assert!((known.hit_ratio_with(more) - 0.6 - added).abs() < 1e-9);
}

#[test]
fn grants_have_room_for_segments_that_hold_nothing_yet() {
    for (sizes, expected) in [
        (Sizes::default(), (0, 0)),
        (
            Sizes {
                memory_bytes: 1.0,
                flash_bytes: 0.0,
            },
            (UNIT_BYTES, 0),
        ),
        (
            Sizes {
                memory_bytes: 3e6,
                flash_bytes: 1.5 * MIB as f64,
            },
            (46 * UNIT_BYTES, 5 * MIB),
        ),
    ] {
        assert_eq!(grants(sizes), expected, "{sizes:?}");
        let back = sizes_of(expected.0, expected.1);
        assert!(back.memory_bytes >= sizes.memory_bytes && back.flash_bytes >= sizes.flash_bytes);
    }
}

#[test]
fn a_first_plan_starts_from_what_is_used() {
    for (granted, used, expected) in [
        ((64, 1024), (32, 100), (34, 103)),
        ((33, 101), (32, 100), (33, 101)),
        ((64, 1024), (0, 0), (0, 3)),
        ((16, 0), (32, 0), (16, 0)),
    ] {
        let mib = |(memory, flash): (u64, u64)| (memory * MIB, flash * MIB);
        let (memory, flash) = begun(mib(granted), mib(used));
        assert_eq!((memory / MIB, flash / MIB), expected, "{granted:?} {used:?}");
    }
}

#[test]
fn sizes_that_are_kept_yield_where_all_together_are_more_than_there_is() {
    let sizes = |memory: u64, flash: u64| Sizes {
        memory_bytes: (memory * MIB) as f64,
        flash_bytes: (flash * MIB) as f64,
    };
    let pools = Pools {
        memory_bytes: (64 * MIB) as f64,
        flash_bytes: (100 * MIB) as f64,
        holds_index: false,
    };
    let found = vec![sizes(30, 54), sizes(30, 46)];
    for (kept, is_kept) in [
        (sizes(30, 54), true),
        // Rounded up.
        (sizes(31, 55), true),
        (sizes(30, 80), false),
        (sizes(50, 54), false),
    ] {
        let settled = vec![kept, found[1]];
        let expected = if is_kept { settled.clone() } else { found.clone() };
        assert_eq!(within(pools, settled, found.clone()), expected, "{kept:?}");
    }
}

#[test]
fn a_goal_out_of_reach_yields_and_a_higher_priority_comes_first() {
    let curve = curve();
    let depths = depths(&curve);
    let here = measured(&curve);
    let tenant = here.tenant(&here.composed(&depths), Learnt::default(), BOUNDS).unwrap();
    let penalty = |above, reach| goal(&tenant, 200.0, TierPrices::default(), above, reach).penalty;
    let plain = penalty(0, Reach::Within);
    assert!((penalty(1, Reach::Open) / plain - 8.0).abs() < 1e-9);
    assert!(penalty(3, Reach::Out) < plain, "whatever the priorities");
}

#[test]
fn hits_on_flash_count_for_what_they_are_worth() {
    let load = Load {
        gets_per_second: 1.0,
        hit_cost_us: 50.0,
        miss_cost_us: 1050.0,
    };
    // 40 % of 50 us, 40 % of 150 us and 20 % of 1,050 us.
    let ratio = 0.4 + 0.4 * worth(&load, 100.0);
    assert!((load.mean_cost_us(ratio) - 290.0).abs() < 1e-9);
    assert_eq!(worth(&load, 5000.0), 0.0);
}
