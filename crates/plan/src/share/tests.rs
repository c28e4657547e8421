//! The rule against its promises, and against a slow solver that tries everything.

mod slow;

use tidemark_curve::{Curve, Point};

use super::*;
use crate::check::check;

const LOAD: Load = Load {
    gets_per_second: 1000.0,
    hit_cost_us: 1.0,
    miss_cost_us: 200.0,
};

fn anyone(most: u64) -> Claimant<'static> {
    Claimant {
        floor: 0,
        most,
        is_within_reach: true,
        priority: 0,
        goal: None,
        returns: None,
        load: LOAD,
        weight: 1.0,
        utility: Utility::Proportional,
        custom_worth: None,
        present: 1,
        credit: 0,
    }
}

/// Returns through corners of whole units, flat behind the last one for so long that nothing is guessed beyond it.
fn returns(corners: &[(u64, f64)]) -> Returns {
    let best = corners.iter().map(|(_, hit_ratio)| *hit_ratio).fold(0.0, f64::max);
    let end = corners.iter().map(|(bytes, _)| *bytes).max().unwrap_or(1) * 3;
    let points = corners
        .iter()
        .copied()
        .chain([(end, best)])
        .map(|(bytes, hit_ratio)| Point {
            bytes,
            miss_ratio: 1.0 - hit_ratio,
            standard_error: 0.0,
        });
    Returns::of(&Curve::through(points), 1.0).unwrap()
}

fn sizes(available: u64, claimants: &[Claimant<'_>]) -> Vec<u64> {
    shares(available, claimants).iter().map(|share| share.size).collect()
}

#[test]
fn of_strangers_each_gets_as_much_by_weight() {
    let weighs = |weight: f64| Claimant { weight, ..anyone(1000) };
    for (claimants, expected) in [
        (vec![anyone(1000), anyone(1000)], vec![450, 450]),
        (vec![weighs(2.0), anyone(1000)], vec![600, 300]),
        (vec![anyone(100), weighs(3.0), anyone(1000)], vec![100, 600, 200]),
        (vec![anyone(100), anyone(200)], vec![100, 200]),
        (vec![], vec![]),
    ] {
        for (size, expected) in sizes(900, &claimants).iter().zip(&expected) {
            assert!(size.abs_diff(*expected) <= 1, "{claimants:?} {size} {expected}");
        }
        let all: u64 = sizes(900, &claimants).iter().sum();
        assert_eq!(all, expected.iter().sum(), "{claimants:?}");
    }
}

#[test]
fn floors_come_first_then_goals_by_priority() {
    let linear = returns(&[(1000, 1.0)]);
    let goal = |need: u64, priority: u8| Claimant {
        goal: Some(need),
        most: need,
        priority,
        returns: Some(&linear),
        ..anyone(1000)
    };
    let floor = |floor: u64| Claimant { floor, ..anyone(1000) };
    for (what, claimants, expected) in [
        ("both are met", vec![goal(300, 0), goal(400, 0)], vec![300, 400]),
        (
            "both miss the same part",
            vec![goal(600, 0), goal(900, 0)],
            vec![360, 540],
        ),
        (
            "the higher one is met",
            vec![goal(600, 0), goal(700, 1)],
            vec![200, 700],
        ),
        ("floors hold", vec![floor(500), goal(600, 9)], vec![500, 400]),
        (
            "what a class lacks, lower ones do not get",
            vec![
                goal(1000, 5),
                Claimant {
                    floor: 50,
                    ..goal(100, 4)
                },
            ],
            vec![850, 50],
        ),
    ] {
        let decided = shares(900, &claimants);
        for (share, expected) in decided.iter().zip(expected) {
            assert!(share.size.abs_diff(expected) <= 1, "{what}: {decided:?}");
        }
    }
}

#[test]
fn floors_above_what_is_there_are_cut_to_one_height() {
    let floor = |floor: u64| Claimant { floor, ..anyone(1000) };
    assert_eq!(sizes(100, &[floor(200), floor(60), floor(10)]), [45, 45, 10]);
}

#[test]
fn the_surplus_goes_by_the_utility_and_the_rest_is_lent() {
    // One is steep and soon satisfied, the other flat and never.
    let (steep, flat) = (returns(&[(100, 0.9)]), returns(&[(1000, 0.5)]));
    let with = |returns, utility| Claimant {
        returns: Some(returns),
        utility,
        ..anyone(1000)
    };
    for (utility, own) in [
        // A hit of the first counts ten times as much for the throughput, once it has most of them.
        (Utility::Throughput, [100, 500]),
        (Utility::Proportional, [100, 500]),
        (Utility::Cost, [100, 500]),
        // The second is the slower one at any size.
        (Utility::MaxMin, [32, 568]),
    ] {
        let decided = shares(600, &[with(&steep, utility), with(&flat, utility)]);
        for (share, own) in decided.iter().zip(own) {
            assert!(share.own.abs_diff(own) <= 20, "{utility}: {decided:?}");
            assert_eq!(share.size, share.own, "{utility}: {decided:?}");
        }
    }
    let decided = shares(1500, &[with(&steep, Utility::Cost), with(&flat, Utility::Cost)]);
    assert_eq!((decided[0].own, decided[0].size), (100, 500));
    assert_eq!((decided[1].own, decided[1].size), (1000, 1000));
}

#[test]
fn a_tenant_that_reckons_for_itself_is_judged_by_that() {
    let returns = returns(&[(1000, 0.8)]);
    fn with<'a>(returns: &'a Returns, custom_worth: Option<&'a HitWorth>) -> Claimant<'a> {
        Claimant {
            returns: Some(returns),
            custom_worth,
            ..anyone(1000)
        }
    }
    let reckoned = |worth: fn(f64) -> f64| HitWorth::of(worth).unwrap();
    for (what, worth, expected) in [
        // The other one's next unit is worth ln(200 / 40.8) / 1000 all the way; this one's falls to that at 0.57.
        ("less and less", reckoned(|hit_ratio| 3.0 * hit_ratio.sqrt()), 712),
        ("a hundred times as much", reckoned(|hit_ratio| 100.0 * hit_ratio), 1000),
        ("nothing", reckoned(|_| 7.0), 0),
        // The way up to there is worth it as a whole, the part behind is not.
        (
            "half of the hits",
            reckoned(|hit_ratio| if hit_ratio < 0.4 { 0.0 } else { 9.0 }),
            500,
        ),
        (
            "the second half",
            reckoned(|hit_ratio| 9.0 * (hit_ratio - 0.4).max(0.0)),
            1000,
        ),
    ] {
        let decided = shares(1000, &[with(&returns, Some(&worth)), with(&returns, None)]);
        assert!(decided[0].own.abs_diff(expected) <= 13, "{what}: {decided:?}");
    }
    // A tenant whose custom worth says nothing is a stranger like all others.
    let stranger = |custom_worth| Claimant {
        custom_worth,
        ..anyone(1000)
    };
    let nothing = reckoned(|_| 7.0);
    let sizes = sizes(900, &[stranger(Some(&nothing)), stranger(None)]);
    assert!(sizes.iter().all(|size| size.abs_diff(450) <= 1), "{sizes:?}");
    // The way there is judged alike, too.
    let claimants = [with(&returns, Some(&nothing)), with(&returns, None)];
    let worths = worths(&claimants, &[500, 500]);
    assert!(worths[0].unit == 0.0 && worths[1].unit > 0.0, "{worths:?}");
}

#[test]
fn what_hit_ratios_can_not_be_worth_is_refused() {
    for (worth, said) in [
        ((|hit_ratio| hit_ratio.ln()) as fn(f64) -> f64, "0 is worth -inf"),
        (|hit_ratio| 0.0 / (hit_ratio - 0.5), "0.5 is worth NaN"),
        (
            |hit_ratio| 1e10 * hit_ratio,
            "0.11 is worth 1100000000: allowed are -1e9 to 1e9",
        ),
        (|hit_ratio| if hit_ratio < 0.3 { 1.0 } else { 0.9 }, "0.3 is worth 0.9"),
    ] {
        let error = HitWorth::of(worth).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    // Straight between hundredths, and flat where only rounding rises.
    let square = HitWorth::of(|hit_ratio| hit_ratio * hit_ratio).unwrap();
    let scale = Scale::of(std::iter::empty());
    let at = |worth: &HitWorth, hit_ratio| {
        let custom_worth = Some(worth);
        scale.worth(
            &Claimant {
                custom_worth,
                ..anyone(1)
            },
            hit_ratio,
        )
    };
    assert!((at(&square, 0.505) - (0.25 + 0.2601) / 2.0).abs() < 1e-12);
    assert_eq!((at(&square, 1.0), at(&square, 7.0), at(&square, -1.0)), (1.0, 1.0, 0.0));
    for flat in [(|hit_ratio| 1.0 + hit_ratio * 1e-12) as fn(f64) -> f64, |hit_ratio| {
        hit_ratio * 1e8 + (1.0 - hit_ratio) * 1e8
    }] {
        let flat = HitWorth::of(flat).unwrap();
        assert_eq!(at(&flat, 0.0), at(&flat, 1.0));
    }
}

#[test]
fn whoever_lent_comes_first_where_memory_is_worth_the_same() {
    let idle = returns(&[(10, 0.9)]);
    let lends = |credit: u64| Claimant {
        credit,
        returns: Some(&idle),
        ..anyone(1000)
    };
    assert_eq!(sizes(120, &[lends(0), lends(0)]), [60, 60]);
    assert_eq!(sizes(120, &[lends(0), lends(40)]), [40, 80]);
    assert_eq!(sizes(120, &[lends(500), lends(0)]), [110, 10]);
}

#[test]
fn memory_must_be_worth_clearly_and_surely_more() {
    let of = |error: f64| {
        let points = [(100, 0.5), (200, 0.4), (600, 0.4)].map(|(bytes, miss_ratio)| Point {
            bytes,
            miss_ratio,
            standard_error: error,
        });
        Returns::of(&Curve::through(points), 1.0).unwrap()
    };
    let (sure, unsure) = (of(0.001), of(0.2));
    let (slight, as_steep) = (
        returns(&[(100, 0.5), (1000, 0.52)]),
        returns(&[(100, 0.1), (1000, 1.0)]),
    );
    for (what, own, other, sizes, expected) in [
        ("from one without use for it", &sure, &slight, [200, 400], true),
        ("and the curve is a guess", &unsure, &slight, [200, 400], false),
        ("the other way", &slight, &sure, [500, 100], false),
        ("to where it is worth little more", &sure, &as_steep, [200, 400], false),
        ("nowhere", &sure, &slight, [150, 450], false),
    ] {
        let with = |present: u64, returns| Claimant {
            returns: Some(returns),
            present,
            utility: Utility::Cost,
            ..anyone(1000)
        };
        let present = if sizes[0] == 500 { [450, 150] } else { [150, 450] };
        let claimants = [with(present[0], own), with(present[1], other)];
        let worths = worths(&claimants, &sizes);
        assert_eq!(worths[0].exceeds(&worths[1]), expected, "{what}: {worths:?}");
    }
}

#[test]
fn a_cliff_is_worth_what_its_whole_way_is() {
    // Nothing for the first steps, and all behind them.
    let cliff = returns(&[(100, 0.1), (1000, 0.95)]);
    let with = |present: u64, returns| Claimant {
        returns,
        present,
        ..anyone(1000)
    };
    let claimants = [with(100, Some(&cliff)), with(1000, None)];
    let [all, step] = [[1000, 100], [120, 980]].map(|sizes| worths(&claimants, &sizes)[0].unit);
    assert!(all > 2.0 * step && step > 0.0, "{all} {step}");
    // Nothing is known of strangers that could be wrong: the one with less gains more.
    let strangers = [with(300, None), with(500, None)];
    let [less, more] = worths(&strangers, &[400, 400])[..] else {
        unreachable!()
    };
    assert!(less.exceeds(&more) && !more.exceeds(&less));
    assert_eq!(worths(&strangers, &[300, 500]), [Worth::default(); 2]);
}
