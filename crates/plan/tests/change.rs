//! Whether other sizes of memory and flash are worth the way to them.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use tidemark_curve::{Curve, Point};
use tidemark_plan::tiers::{Change, Latencies, Prices, Sizes, Tenant, Verdict, least_cost};

/// Misses fall with the square root of the size.
fn tenant(scale: f64) -> Tenant {
    let points = (1..=40_u64).map(|step| Point {
        bytes: step * step * 1_000_000,
        miss_ratio: 1.0 - scale * step as f64 / 41.0,
        standard_error: 0.0,
    });
    let latencies = Latencies {
        memory_us: 50.0,
        flash_us: 100.0,
        origin_us: 900.0,
    };
    Tenant::new(Curve::through(points), latencies)
}

fn change<'a>(tenant: &'a Tenant, latency_us: f64, requests_per_hour: f64, now: Sizes) -> Change<'a> {
    let prices = Prices {
        memory: 38e-9,
        flash: 1e-9,
    };
    Change {
        tenant,
        prices,
        written: 1e-9,
        latency_us,
        requests_per_hour,
        object_bytes: 1000.0,
        budget: None,
        hours: 1.0,
        now,
        next: least_cost(tenant, prices, latency_us).unwrap(),
    }
}

#[test]
fn a_goal_that_is_missed_is_reason_enough_and_the_same_sizes_are_none() {
    let tenant = tenant(1.0);
    let missed = change(&tenant, 400.0, 1e9, Sizes::default());
    assert_eq!(missed.verdict(), Verdict::Missed);
    let same = Change {
        now: missed.next,
        ..missed
    };
    assert_eq!(
        same.verdict(),
        Verdict::Keep {
            saved: 0.0,
            charge: 0.0
        }
    );
}

#[test]
fn a_saving_is_weighed_against_the_bytes_that_move() {
    let tenant = tenant(1.0);
    let rich = Sizes {
        memory_bytes: 600e6,
        flash_bytes: 800e6,
    };
    let busy = change(&tenant, 400.0, 1e8, rich);
    let Verdict::Saves(saved) = busy.verdict() else {
        panic!("{:?}", busy.verdict());
    };
    assert!(saved > 0.0);
    // The worth of a microsecond is that of all requests together: few requests make each of them dearer.
    let idle = Change {
        requests_per_hour: 1e4,
        ..busy
    };
    let demoted_bytes = rich.memory_bytes - busy.next.memory_bytes;
    let waited = |change: &Change<'_>| change.charge() - demoted_bytes * 1e-9;
    assert!(waited(&busy) > 0.0);
    assert!(
        (waited(&idle) / waited(&busy) - 1e4).abs() < 1.0,
        "{} {}",
        idle.charge(),
        busy.charge()
    );
    assert!(!idle.verdict().is_change(), "{:?}", idle.verdict());
    // A byte that is written twice as dear, and nothing else.
    let dear = Change { written: 2e-9, ..busy };
    assert!((dear.charge() - busy.charge() - demoted_bytes * 1e-9).abs() < 1e-12);
}

#[test]
fn bytes_that_hold_nothing_cost_nothing_on_the_way() {
    let tenant = tenant(1.0);
    let all = Sizes {
        memory_bytes: 600e6,
        flash_bytes: tenant.reached_bytes() - 600e6,
    };
    let full = change(&tenant, 400.0, 1e6, all);
    for beyond in [1e9, 1e12] {
        let lent = Change {
            now: Sizes {
                flash_bytes: all.flash_bytes + beyond,
                ..all
            },
            ..full
        };
        assert!((lent.charge() - full.charge()).abs() < 1e-9, "{beyond}");
        let memory = Sizes {
            memory_bytes: tenant.reached_bytes(),
            flash_bytes: 0.0,
        };
        let (one, other) = (
            Change { now: memory, ..full },
            Change {
                now: Sizes {
                    memory_bytes: memory.memory_bytes + beyond,
                    ..memory
                },
                ..full
            },
        );
        assert!((one.charge() - other.charge()).abs() < 1e-9, "{beyond}");
    }
}

#[test]
fn sizes_beyond_the_money_are_not_kept() {
    let tenant = tenant(1.0);
    let best = change(&tenant, 400.0, 1e4, Sizes::default()).next;
    // So few requests that the way does not pay.
    let rich = Sizes {
        memory_bytes: best.memory_bytes + 200e6,
        ..best
    };
    let kept = change(&tenant, 400.0, 1e4, rich);
    assert!(!kept.verdict().is_change(), "{:?}", kept.verdict());
    let cost = tenant.cost(rich, kept.prices);
    for (budget, verdict) in [
        (cost, kept.verdict()),
        (cost / 1.02, kept.verdict()),
        (cost / 1.04, Verdict::TooDear),
        (cost / 2.0, Verdict::TooDear),
    ] {
        let limited = Change {
            budget: Some(budget),
            ..kept
        };
        assert_eq!(limited.verdict(), verdict, "{budget} of {cost}");
    }
    // Floors may cost more than there is: nothing is cheaper.
    let least = Change {
        next: rich,
        budget: Some(cost / 2.0),
        ..kept
    };
    assert!(!least.verdict().is_change(), "{:?}", least.verdict());
}

#[test]
fn curves_that_tremble_move_nothing() {
    let steady = tenant(1.0);
    let begin = change(&steady, 400.0, 1e8, Sizes::default()).next;
    let trembling: Vec<Tenant> = (0..50)
        .map(|step| tenant(1.0 + 0.004 * f64::from(step % 3 - 1)))
        .collect();
    let moved = trembling
        .iter()
        .filter(|tenant| change(tenant, 400.0, 1e8, begin).verdict().is_change());
    assert_eq!(moved.count(), 0);
    let other = tenant(0.9);
    assert!(change(&other, 450.0, 1e8, begin).verdict().is_change());
}
