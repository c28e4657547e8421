//! A sizer against caches whose curve is known, second by second.

use tidemark_curve::{Curve, Point};
use tidemark_types::MIB;

use super::*;
use crate::slope::least_misses;

/// A cache that fills with its misses and has the hit ratio of its curve.
struct Cache {
    /// Hit ratio by item bytes.
    law: fn(f64) -> f64,
    /// The same as the curve says it.
    curve_law: fn(f64) -> f64,
    /// Whether upkeep leaves a twentieth free for half of the time.
    flickers: bool,
    gets_per_second: u64,
    item_bytes: u64,
    keys: u64,
    /// The bytes of the keys met so far, at which the curve ends.
    met_bytes: f64,
    usage_bytes: f64,
    grant_bytes: u64,
    most_bytes: u64,
    /// The memory that others leave to it.
    left_bytes: u64,
    /// Whether it gets memory only as fast as it fills it, a quarter ahead.
    claims: bool,
    /// The state of a generator by which each get hits or misses; 0 makes no chance of it.
    chance: u64,
    gets: u64,
    hits: f64,
    /// Memory of LRU over that of this cache.
    efficiency: f64,
    second: u64,
    sizer: Sizer,
    asked: Vec<u64>,
    grants: Vec<u64>,
    hit_ratios: Vec<f64>,
    /// How often the sizer took the load for another one.
    changes: u32,
}

const OVERHEAD: f64 = 1.1;

impl Cache {
    fn new(law: fn(f64) -> f64, gets_per_second: u64) -> Self {
        Self {
            law,
            curve_law: law,
            flickers: false,
            gets_per_second,
            item_bytes: 100,
            keys: 1_000_000,
            met_bytes: f64::INFINITY,
            usage_bytes: 0.0,
            grant_bytes: 20 * MIB,
            most_bytes: 1000 * MIB,
            left_bytes: u64::MAX,
            claims: false,
            chance: 0,
            gets: 0,
            hits: 0.0,
            efficiency: 1.0,
            second: 0,
            sizer: Sizer::default(),
            asked: Vec::new(),
            grants: Vec::new(),
            hit_ratios: Vec::new(),
            changes: 0,
        }
    }

    fn hit_ratio(&self) -> f64 {
        (self.law)(self.usage_bytes / OVERHEAD * self.efficiency)
    }

    fn curve(&self) -> Curve {
        let sizes = (0..400).map(|n| 1000.0 * 1.04_f64.powi(n));
        let met = sizes.take_while(|bytes| *bytes <= self.met_bytes);
        Curve::through(met.map(|bytes| Point {
            bytes: bytes as u64,
            miss_ratio: 1.0 - (self.curve_law)(bytes),
            standard_error: 0.003,
        }))
    }

    fn run(&mut self, seconds: u64, goal: f64) {
        for _ in 0..seconds {
            self.second += 1;
            let hit_ratio = self.hit_ratio();
            self.gets += self.gets_per_second;
            self.hits += self.hits_among(self.gets_per_second, hit_ratio);
            let written = (1.0 - hit_ratio) * (self.gets_per_second * self.item_bytes) as f64 * OVERHEAD;
            self.usage_bytes = (self.usage_bytes + written).min(self.grant_bytes as f64);
            if self.flickers && self.second % 7 < 3 {
                self.usage_bytes = self.usage_bytes.min(self.grant_bytes as f64 * 0.95);
            }
            let curve = self.curve();
            let sizing = self.sizer.step(&Reading {
                now: UnixMs(self.second * 1000),
                goal,
                gets: self.gets,
                hits: self.hits as u64,
                usage_bytes: self.usage_bytes as u64,
                grant_bytes: self.grant_bytes,
                most_bytes: self.most_bytes,
                reach_bytes: self.most_bytes,
                curve: &curve,
                curve_gets: self.gets,
                keys: self.keys,
                overhead: OVERHEAD,
            });
            self.changes += u32::from(sizing.load_changed);
            let claimed_bytes = (self.usage_bytes * 1.25) as u64 + 2 * MIB;
            let ahead_bytes = if self.claims { claimed_bytes } else { u64::MAX };
            self.grant_bytes = sizing.bytes.min(self.left_bytes).min(ahead_bytes);
            self.asked.push(sizing.bytes);
            self.usage_bytes = self.usage_bytes.min(self.grant_bytes as f64);
            self.grants.push(self.grant_bytes);
            self.hit_ratios.push(hit_ratio);
        }
    }

    fn hits_among(&mut self, gets: u64, hit_ratio: f64) -> f64 {
        if self.chance == 0 {
            return hit_ratio * gets as f64;
        }
        let mut hits = 0.0;
        for _ in 0..gets {
            // Xorshift, of which the upper half is even enough.
            self.chance ^= self.chance << 13;
            self.chance ^= self.chance >> 7;
            self.chance ^= self.chance << 17;
            hits += f64::from(u8::from(((self.chance >> 32) as f64) < hit_ratio * 2.0_f64.powi(32)));
        }
        hits
    }

    /// The least memory with this hit ratio.
    fn needed(&self, goal: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1e12);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if (self.law)(middle) >= goal {
                high = middle;
            } else {
                low = middle;
            }
        }
        high * OVERHEAD / self.efficiency
    }

    fn assert_settled(&self, goal: f64) {
        let usage = self.usage_bytes / self.needed(goal);
        assert!((usage - 1.0).abs() < 0.05, "usage is {usage} of what is needed");
        let off = (self.hit_ratio() - goal).abs();
        assert!(off < 0.005, "{}", self.hit_ratio());
        let last = &self.grants[self.grants.len() - 30..];
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
        assert!(*most as f64 / *least as f64 <= 1.03, "{last:?}");
    }
}

/// A hundred megabytes of items that are all asked for alike.
fn uniform(bytes: f64) -> f64 {
    (bytes / 1e8).min(1.0)
}

/// As Zipf's law makes it: the same gain with every doubling.
fn skewed(bytes: f64) -> f64 {
    (0.5 + 0.1 * (bytes / 1e6).max(1e-9).ln()).clamp(0.0, 1.0)
}

/// Nothing is asked for twice.
fn once(_: f64) -> f64 {
    0.0
}

/// A fifth is asked for once, the rest is skewed.
fn often_once(bytes: f64) -> f64 {
    0.8 * skewed(bytes)
}

#[test]
fn it_settles_at_the_least_memory_for_the_goal() {
    for law in [uniform as fn(f64) -> f64, skewed] {
        for efficiency in [0.8, 1.0, 1.3] {
            for goal in [0.5, 0.9] {
                let mut cache = Cache::new(law, 100_000);
                cache.efficiency = efficiency;
                cache.run(240, goal);
                cache.assert_settled(goal);
                assert_eq!(cache.sizer.state(), GoalState::Met);
            }
        }
    }
}

#[test]
fn who_asks_seldom_settles_as_near() {
    let mut cache = Cache::new(skewed, 1500);
    cache.item_bytes = 50_000;
    cache.efficiency = 1.15;
    cache.run(3600, 0.8);
    let usage = cache.usage_bytes / cache.needed(0.8);
    assert!((usage - 1.0).abs() < 0.02, "usage is {usage} of what is needed");
}

/// Each get hits or misses by chance. Intervals are looked at every second, and some look like a miss of the goal.
#[test]
fn chance_moves_who_asks_seldom_little() {
    let mut cache = Cache::new(skewed, 1500);
    cache.item_bytes = 50_000;
    cache.efficiency = 1.15;
    cache.chance = 1;
    cache.run(3600, 0.8);
    let needed = cache.needed(0.8);
    let hour = &cache.grants[1800..];
    let furthest = hour
        .iter()
        .map(|grant| (*grant as f64 / needed - 1.0).abs())
        .fold(0.0, f64::max);
    let moves = hour.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(furthest < 0.05, "{furthest}");
    assert!(moves < 15, "{moves} moves in half an hour");
}

#[test]
fn what_others_hold_is_asked_for_until_it_is_there() {
    let mut cache = Cache::new(skewed, 100_000);
    let needed = cache.needed(0.8) as u64;
    cache.run(240, 0.8);
    cache.assert_settled(0.8);
    // First others leave it three fifths, which they take bit by bit, then half, and at last they need it no more.
    for hundredths in (60..100).rev() {
        cache.left_bytes = needed * hundredths / 100;
        cache.run(1, 0.8);
    }
    for hundredths in [60, 50] {
        cache.left_bytes = needed * hundredths / 100;
        cache.run(60, 0.8);
        for (asked, second) in cache.asked.iter().rev().zip(0..50) {
            assert!(*asked > cache.left_bytes, "{asked}, {second} s before the end");
        }
        assert_eq!(cache.sizer.state(), GoalState::Converging);
    }
    assert_eq!(cache.changes, 0);
    cache.left_bytes = u64::MAX;
    cache.run(1, 0.8);
    assert!(cache.grant_bytes > needed * 6 / 10, "{} of {needed}", cache.grant_bytes);
    cache.run(180, 0.8);
    cache.assert_settled(0.8);
}

/// The requested memory comes as fast as it is filled, and less of it will do than the curve says at first.
#[test]
fn on_the_way_to_what_was_asked_for_it_is_measured() {
    let mut cache = Cache::new(skewed, 20_000);
    cache.claims = true;
    cache.efficiency = 1.5;
    cache.grant_bytes = 4 * MIB;
    let needed = cache.needed(0.9);
    cache.run(900, 0.9);
    let most = cache.grants.iter().max().copied().unwrap() as f64 / needed;
    assert!(most < 1.35, "{most} of what is needed");
    cache.assert_settled(0.9);
    // Another goal that is lower: the size that is waited for is not needed any more.
    let mut cache = Cache::new(skewed, 20_000);
    cache.left_bytes = (cache.needed(0.8) * 0.8) as u64;
    cache.run(120, 0.8);
    assert!(cache.asked.last() > Some(&cache.left_bytes));
    cache.run(1, 0.779);
    assert_eq!(cache.asked.last(), Some(&cache.left_bytes));
}

#[test]
fn what_was_remembered_is_waited_for() {
    let mut cache = Cache::new(skewed, 2000);
    cache.item_bytes = 1000;
    cache.sizer = Sizer::remembering(400 * MIB);
    cache.met_bytes = 17e6;
    cache.left_bytes = 16 * MIB;
    cache.run(60, 0.9);
    assert!(cache.usage_bytes as u64 == 16 * MIB);
    assert!(cache.asked.iter().all(|asked| *asked >= 400 * MIB), "{:?}", cache.asked);
}

#[test]
fn a_goal_that_moves_keeps_what_was_learnt() {
    let mut cache = Cache::new(skewed, 100_000);
    cache.efficiency = 0.8;
    cache.run(240, 0.8);
    let learnt = cache.sizer.efficiency();
    assert!((learnt - 0.8).abs() < 0.05, "{learnt}");
    // Much: the curve's size is asked for at once, with the policy as it is known.
    let before = cache.grant_bytes;
    cache.run(1, 0.9);
    let off = cache.grant_bytes as f64 / cache.needed(0.9);
    assert!(cache.grant_bytes > before && (off - 1.0).abs() < 0.1, "{off}");
    assert_eq!(cache.sizer.state(), GoalState::Converging);
    cache.run(120, 0.9);
    cache.assert_settled(0.9);
    // Little by little: it is followed, and is met all the time.
    for step in 1..=5 {
        let goal = 0.9 - 0.004 * f64::from(step);
        cache.run(60, goal);
        assert_eq!(cache.sizer.state(), GoalState::Met, "{goal}");
    }
    cache.run(120, 0.88);
    cache.assert_settled(0.88);
    assert_eq!(cache.changes, 0);
}

/// If one get in a hundred may miss, a thousandth of them is a third of the memory.
#[test]
fn a_high_goal_is_met_precisely() {
    fn steep(bytes: f64) -> f64 {
        1.0 - 0.1 * (bytes / 1e6).max(1.0).powf(-0.4)
    }
    let mut cache = Cache::new(steep, 200_000);
    cache.run(900, 0.99);
    let usage = cache.usage_bytes / cache.needed(0.99);
    assert!((usage - 1.0).abs() < 0.15, "{usage}, {}", cache.hit_ratio());
}

#[test]
fn a_cache_that_fills_slowly_has_no_other_load() {
    let mut cache = Cache::new(uniform, 20_000);
    cache.keys = 10_000;
    // The first hundred megabytes take longer than any interval.
    cache.run(300, 0.9);
    assert_eq!(cache.changes, 0);
    cache.assert_settled(0.9);
}

#[test]
fn a_change_of_load_is_answered_within_five_seconds() {
    let mut cache = Cache::new(skewed, 100_000);
    cache.run(200, 0.7);
    cache.assert_settled(0.7);
    let settled = cache.grant_bytes;
    (cache.law, cache.curve_law) = (uniform, uniform);
    cache.run(5, 0.7);
    assert!(cache.grant_bytes > 2 * settled, "{:?}", &cache.grants[195..]);
    cache.run(200, 0.7);
    cache.assert_settled(0.7);
}

/// A policy that needs more than LRU, and a size at which LRU's curve is flat: believed of LRU, anything less would do.
#[test]
fn it_learns_where_the_cache_is_also_on_a_flat_piece_of_the_curve() {
    let mut cache = Cache::new(uniform, 100_000);
    cache.efficiency = 0.7;
    (cache.grant_bytes, cache.usage_bytes) = (148 * MIB, 148.0 * MIB as f64);
    let began_at = cache.hit_ratio();
    assert!((0.93..0.99).contains(&began_at), "{began_at}");
    cache.run(200, 0.9);
    let lowest = cache.hit_ratios.iter().copied().fold(1.0, f64::min);
    // The first fit still believes the policy to be LRU; the efficiency that it learns then keeps the next one from the
    // same mistake.
    assert!(lowest > 0.8, "{lowest}");
    cache.assert_settled(0.9);
}

#[test]
fn what_upkeep_leaves_free_does_not_keep_it_large() {
    let mut cache = Cache::new(skewed, 200_000);
    cache.flickers = true;
    (cache.grant_bytes, cache.usage_bytes) = (200 * MIB, 200.0 * MIB as f64);
    cache.run(300, 0.7);
    let held = cache.grant_bytes as f64 / cache.needed(0.7);
    assert!((0.9..1.15).contains(&held), "{held}");
}

#[test]
fn what_another_policy_gains_is_given_up_at_once() {
    let mut cache = Cache::new(uniform, 100_000);
    cache.run(200, 0.7);
    let (settled, before) = (cache.grant_bytes, cache.hit_ratio());
    cache.efficiency = 1.05;
    let gained = cache.hit_ratio() - before;
    assert!(gained > 0.02, "{gained}");
    cache.sizer.gain(gained);
    let from = cache.hit_ratios.len();
    cache.run(200, 0.7);
    let needed = cache.grant_bytes as f64 / settled as f64;
    assert!((0.94..0.97).contains(&needed), "{needed}");
    // It is less at once, and once.
    let grants = &cache.grants[from..];
    assert!(
        grants[1..]
            .iter()
            .all(|grant| grant.abs_diff(cache.grant_bytes) < settled / 100),
        "{grants:?}"
    );
    let furthest = cache.hit_ratios[from + 2..]
        .iter()
        .map(|ratio| (ratio - 0.7).abs())
        .fold(0.0, f64::max);
    assert!(furthest < 0.008, "{furthest}");
}

#[test]
fn what_another_policy_gains_is_not_taken_from_who_misses_its_goal() {
    let mut cache = Cache::new(uniform, 100_000);
    cache.run(200, 0.7);
    cache.most_bytes = cache.grant_bytes * 9 / 10;
    cache.run(200, 0.7);
    let (held, missed) = (cache.grant_bytes, 0.7 - cache.hit_ratio());
    assert!(missed > 0.05, "{missed}");
    cache.efficiency = 1.03;
    cache.sizer.gain(0.02);
    cache.run(100, 0.7);
    assert!(cache.grant_bytes >= held, "{} of {held}", cache.grant_bytes);
}

#[test]
fn shrinking_does_not_dip() {
    let mut cache = Cache::new(uniform, 100_000);
    cache.run(200, 0.9);
    (cache.law, cache.curve_law) = (skewed, skewed);
    let from = cache.hit_ratios.len();
    cache.run(300, 0.7);
    cache.assert_settled(0.7);
    let lowest = cache.hit_ratios[from..].iter().copied().fold(1.0, f64::min);
    assert!(lowest > 0.67, "{lowest}");
}

/// All items of the beginning expire by and by. Until the tenant's memory holds only its present items, its hit ratio
/// says nothing of less memory.
#[test]
fn what_is_not_used_is_given_up_alone() {
    let mut cache = Cache::new(skewed, 100_000);
    cache.grant_bytes = 1000 * MIB;
    cache.usage_bytes = 1.2 * cache.needed(0.8);
    // Nothing is missed that could be stored: the cache does not grow.
    cache.item_bytes = 0;
    let held = cache.usage_bytes as u64;
    while cache.grant_bytes == 1000 * MIB {
        cache.run(1, 0.8);
        assert!(cache.second < 60);
    }
    assert!(
        (held + held / 20..held + held / 10).contains(&cache.grant_bytes),
        "{}",
        cache.grant_bytes
    );
    // The next interval shows that less will do.
    cache.run(300, 0.8);
    cache.assert_settled(0.8);
}

/// All that is asked for again just fits, of which the curve of another policy says nothing.
#[test]
fn where_a_step_down_was_too_much_it_goes_back_and_not_beyond() {
    let cliff = |bytes: f64| 0.716 - 0.33 * (1.0 - bytes / 6e7).max(0.0);
    let mut cache = Cache::new(cliff, 50_000);
    cache.curve_law = |bytes| (0.716 + 0.01 * (bytes / 6e7).ln()).clamp(0.0, 1.0);
    cache.grant_bytes = 100 * MIB;
    cache.run(300, 0.7);
    let first_missed = cache.hit_ratios.iter().skip(60).position(|ratio| *ratio < 0.699);
    let from = 60 + first_missed.expect("a step was too much");
    let most = cache.grants[from..].iter().max().unwrap();
    let least_that_met = (0..from)
        .filter(|second| cache.hit_ratios[*second] >= 0.7)
        .map(|second| cache.grants[second - 1]);
    assert!(*most <= least_that_met.min().unwrap(), "{:?}", &cache.grants[from..]);
    assert_eq!(cache.changes, 0);
}

#[test]
fn what_can_not_be_reached_is_said_and_takes_no_more() {
    for (law, most_bytes, most_taken, best) in [
        (once as fn(f64) -> f64, 1000 * MIB, 21 * MIB, 0.0),
        (often_once, 1000 * MIB, 400 * MIB, 0.8),
        (uniform, 50 * MIB, 50 * MIB, 0.477),
    ] {
        let mut cache = Cache::new(law, 100_000);
        cache.most_bytes = most_bytes;
        cache.run(300, 0.9);
        assert_eq!(cache.sizer.state(), GoalState::Infeasible, "{best}");
        assert!(cache.grant_bytes <= most_taken, "{} for {best}", cache.grant_bytes);
        let said = cache.sizer.best_hit_ratio().unwrap();
        assert!((said - best).abs() < 0.01, "{said} instead of {best}");
    }
}

#[test]
fn what_is_deleted_before_it_comes_again_is_out_of_reach() {
    fn deleted(bytes: f64) -> f64 {
        (bytes / 1e8).min(0.8)
    }
    let mut cache = Cache::new(deleted, 100_000);
    cache.met_bytes = 8e7;
    cache.run(300, 0.9);
    assert_eq!(cache.sizer.state(), GoalState::Infeasible);
    let said = cache.sizer.best_hit_ratio().unwrap();
    assert!((said - 0.8).abs() < 0.03, "{said}");
}

#[test]
fn what_another_load_left_behind_is_room_enough_until_it_is_filled() {
    fn large(bytes: f64) -> f64 {
        (bytes / 4e8).min(1.0)
    }
    let mut cache = Cache::new(uniform, 100_000);
    cache.run(240, 0.7);
    let before = cache.grant_bytes;
    (cache.law, cache.curve_law, cache.met_bytes) = (large, large, 3e7);
    cache.run(30, 0.7);
    assert!(cache.changes > 0);
    assert_eq!(cache.grant_bytes, before);
    cache.met_bytes = 1e8;
    cache.run(10, 0.7);
    assert!(cache.grant_bytes > before);
}

#[test]
fn beyond_what_was_met_a_curve_may_gain_as_much_as_before_its_end() {
    let known = |law: fn(f64) -> f64, end: u64| {
        Curve::through((0..=100).map(|n| Point {
            bytes: end * n / 100,
            miss_ratio: 1.0 - law((end * n / 100) as f64),
            standard_error: 0.0,
        }))
    };
    for (law, end, bytes, least) in [
        // A hundred megabytes that are all asked for alike, of which thirty were met.
        (uniform as fn(f64) -> f64, 30_000_000, 20_000_000, 0.8),
        (uniform, 30_000_000, 60_000_000, 0.4),
        (uniform, 30_000_000, 1_000_000_000, 0.0),
        (once, 30_000_000, 1_000_000_000, 1.0),
        // All was met, and more was kept of it than helps.
        (often_once, 1_000_000_000, 2_000_000_000, 0.2),
    ] {
        let found = least_misses(&known(law, end), bytes);
        assert!(
            (found - least).abs() < 0.01,
            "{found} instead of {least} at {bytes} of {end}"
        );
    }
}

#[test]
fn a_load_that_flips_does_not_make_the_size_swing() {
    let mut cache = Cache::new(uniform, 100_000);
    cache.run(200, 0.7);
    for flip in 0..60 {
        cache.law = if flip % 2 == 0 { skewed } else { uniform };
        cache.curve_law = cache.law;
        cache.run(10, 0.7);
    }
    let moves = cache.grants[200 + 300..]
        .windows(2)
        .filter(|pair| pair[0] != pair[1])
        .count();
    assert!(moves < 20, "{moves} moves in five minutes");
}

#[test]
fn few_gets_move_nothing() {
    let mut cache = Cache::new(uniform, 100_000);
    cache.run(600, 0.7);
    cache.assert_settled(0.7);
    let settled = cache.grant_bytes;
    // From now on three a minute: five minutes have ten or eleven hits in fifteen, which is 0.7 as far as anybody can tell.
    cache.gets_per_second = 0;
    for n in 0..180 {
        cache.gets += 1;
        cache.hits += if [3, 6, 9].contains(&(n % 10)) { 0.0 } else { 1.0 };
        cache.run(20, 0.7);
        assert_eq!(cache.grant_bytes, settled, "after {n} gets");
    }
}

#[test]
fn nothing_known_is_nothing_done() {
    let curve = Curve::through([]);
    let mut sizer = Sizer::default();
    for second in 0..1000 {
        let sizing = sizer.step(&Reading {
            now: UnixMs(second * 1000),
            goal: 0.9,
            gets: 0,
            hits: 0,
            usage_bytes: 0,
            grant_bytes: 0,
            most_bytes: 0,
            reach_bytes: 0,
            curve: &curve,
            curve_gets: 0,
            keys: 0,
            overhead: 1.0,
        });
        assert_eq!(sizing, Sizing::default());
        assert_eq!(sizer.state(), GoalState::Converging);
    }
}
