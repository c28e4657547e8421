use std::io::Write as _;

use tempfile::NamedTempFile;

use super::*;
use crate::curve::DEFAULT_SAMPLES;

/// A hot part of ten keys and a cold part of ninety, both in rounds. The curve has two cliffs, at 10 and at 100
/// objects.
fn trace() -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".decimal").tempfile().unwrap();
    for n in 0..20_000_u64 {
        let key = if n.is_multiple_of(2) {
            n / 2 % 10
        } else {
            10 + n / 2 % 90
        };
        writeln!(file, "{key}").unwrap();
    }
    file
}

fn options(file: &NamedTempFile, goal: Goal) -> Options {
    Options {
        by_class: false,
        traces: vec![Source {
            tenant: "a".into(),
            path: file.path().to_owned(),
            latency_us: None,
        }],
        format: None,
        sampling: Sampling {
            keys: DEFAULT_SAMPLES,
            seed: 1,
        },
        value_size_bytes: 1000,
        overhead_bytes: 40,
        latencies: Latencies {
            memory_us: 50.0,
            flash_us: 100.0,
            origin_us: 1000.0,
        },
        price_per_gib: Prices {
            memory: 38.0,
            flash: 1.0,
        },
        index_bytes_per_object: INDEX_BYTES_PER_OBJECT,
        goal,
    }
}

fn made(options: &Options) -> Report {
    run(options, &mut |_, _| ()).unwrap()
}

#[test]
fn cliffs_are_bought_whole_and_flash_takes_what_is_cold() {
    let file = trace();
    // All must be somewhere: nothing less than 100 objects has hits of the cold ones.
    let report = made(&options(&file, Goal::LatencyUs(106.0)));
    let split = report.tenants[0].split;
    let reach = split.memory_bytes + split.flash_bytes;
    assert!((reach / 1040.0 - 100.0).abs() < 2.0, "{split:?}");
    // In memory the hot keys and those that are between two uses of one: 20 objects.
    assert!((split.memory_bytes / 1040.0 - 20.0).abs() < 2.0, "{split:?}");
    assert!((split.index_bytes - split.flash_bytes * 10.4 / 1040.0).abs() < 1e-6);
    assert!(split.latency_us <= 106.0 + 1e-6, "{split:?}");
    let tenant = &report.tenants[0];
    assert!(
        (tenant.memory_hit_ratio - 0.5).abs() < 0.02 && (tenant.flash_hit_ratio - 0.5).abs() < 0.02,
        "{tenant:?}"
    );
    assert_eq!(
        (tenant.requests, tenant.objects, tenant.shortfall_us),
        (20_000, 100, Some(0.0))
    );
    // 1:4 has to buy 20 objects of memory for 80 of flash, too: here both are the same.
    assert!(report.proportional.unwrap().cost >= report.total.cost - 1e-12);

    // With less memory than hot keys need, all is on flash, and 1:4 pays for memory that hits nothing.
    let report = made(&options(&file, Goal::LatencyUs(170.0)));
    let split = report.tenants[0].split;
    assert!(
        split.memory_bytes < 1040.0 * 12.0 && report.saved_ratio.unwrap() > 0.3,
        "{report:?}"
    );
}

#[test]
fn money_buys_the_least_latency_and_the_frontier_falls() {
    let file = trace();
    let cost = made(&options(&file, Goal::LatencyUs(120.0))).total.cost;
    let report = made(&options(&file, Goal::Spending(cost)));
    assert!(report.total.cost <= cost * (1.0 + 1e-9), "{report:?}");
    assert!(report.total.latency_us <= 120.0 + 1e-6, "{report:?}");
    assert_eq!((report.tenants[0].shortfall_us, report.saved_ratio), (None, None));
    assert!(report.frontier.len() > 10);
    for steps in report.frontier.windows(2) {
        assert!(steps[0].latency_us < steps[1].latency_us);
        assert!(steps[0].elastic.cost >= steps[1].elastic.cost - 1e-12, "{steps:?}");
    }
    for step in &report.frontier {
        assert!(step.elastic.latency_us <= step.latency_us * (1.0 + 1e-6), "{step:?}");
        assert!(
            step.elastic.cost <= step.proportional.unwrap().cost * (1.0 + 1e-9),
            "{step:?}"
        );
    }
}

#[test]
fn a_goal_out_of_reach_says_by_how_much() {
    let file = trace();
    let report = made(&options(&file, Goal::LatencyUs(40.0)));
    // The first use of each key misses: 100 of 20,000 requests.
    let best = 50.0 + 1100.0 * 100.0 / 20_000.0;
    assert!(
        (report.tenants[0].shortfall_us.unwrap() - (best - 40.0)).abs() < 1e-6,
        "{report:?}"
    );
    assert!((report.total.latency_us - best).abs() < 1e-6);
    assert_eq!((report.proportional, report.saved_ratio), (None, None));
}

#[test]
fn tenants_share_money_and_have_goals_of_their_own() {
    let file = trace();
    let mut two = options(&file, Goal::LatencyUs(120.0));
    two.traces.push(Source {
        tenant: "b".into(),
        path: file.path().to_owned(),
        latency_us: Some(600.0),
    });
    let report = made(&two);
    let latencies: Vec<f64> = report.tenants.iter().map(|tenant| tenant.split.latency_us).collect();
    assert!(
        latencies[0] <= 120.0 + 1e-6 && latencies[1] > 120.0 && latencies[1] <= 600.0 + 1e-6,
        "{latencies:?}"
    );
    assert!((report.total.cost - report.tenants.iter().map(|tenant| tenant.split.cost).sum::<f64>()).abs() < 1e-12);
    two.goal = Goal::Spending(report.total.cost);
    let shared = made(&two);
    assert!(shared.total.cost <= report.total.cost * (1.0 + 1e-9));
    assert!(Chart::new(&shared).picture().svg().contains("2 tenants"));
    two.traces[1].tenant = "a".into();
    let error = run(&two, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("`a`") && error.contains("NAME=FILE"), "{error}");
}
