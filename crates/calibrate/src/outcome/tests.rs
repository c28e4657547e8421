use std::collections::BTreeMap;

use tidemark_meter::model::{parse, write};

use super::*;
use crate::LoadSpec;

/// The cost of a command on a machine that is easily understood: system calls shared by what comes together, bytes, and
/// a rate at which the machine no longer sleeps.
fn cost_ns(inputs: &BTreeMap<String, f64>) -> f64 {
    let value = |name: &str| inputs[name];
    let calls = 4_000.0 / value("pipeline") + 6_000.0 / value("burst");
    let bytes =
        2.0 * value("key_bytes") + 0.4 * value("value_bytes") * (1.3 - value("read_share") * value("hit_ratio"));
    let resp = 1.0 + 0.15 * value("resp_share");
    (calls + 350.0 * resp + bytes) * (1.0 + 0.3 / (1.0 + value("rate") / 20_000.0))
}

fn points_of(spec: &LoadSpec, noise: f64, rng: &mut Rng) -> Vec<Point> {
    let ratios = [1.0, 0.5, 0.2, 0.05];
    let point = |rate_ratio: f64| {
        let rate = 400_000.0 * rate_ratio;
        let pipeline = spec.pipeline as f64;
        let inputs: BTreeMap<String, f64> = [
            ("key_bytes", spec.key_bytes as f64),
            ("value_bytes", spec.value_bytes as f64),
            ("read_share", spec.reads),
            ("skew", spec.skew),
            ("rate", rate),
            ("pipeline", pipeline),
            ("burst", pipeline * (1.0 + spec.connections as f64 * rate_ratio / 4.0)),
            ("hit_ratio", spec.hit_ratio),
            ("resp_share", f64::from(u8::from(spec.is_resp))),
            ("connections", spec.connections as f64),
            ("items", spec.keys as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let operations = rate as u64;
        let off = 1.0 + noise * (rng.unit() * 2.0 - 1.0);
        Point {
            spec: *spec,
            pass: 0,
            rate_ratio,
            seconds: 1.0,
            operations,
            cpu_ns: (cost_ns(&inputs) * off * operations as f64) as u64,
            inputs,
        }
    };
    ratios.map(point).to_vec()
}

fn points(design: &Design, noise: f64) -> Vec<Point> {
    let mut rng = Rng::stream(9, 0);
    design.all().flat_map(|spec| points_of(spec, noise, &mut rng)).collect()
}

#[test]
fn a_machine_that_is_understood_is_learned_and_the_same_points_give_the_same_model() {
    let design = Design::new(120, 4);
    let points = points(&design, 0.05);
    let outcome = evaluate(&points, &design, "machine", 4).unwrap();
    let of = |model: &str| outcome.models.iter().find(|row| row.model == model).unwrap().score;
    let own = of("perceptron");
    assert!(
        own.r_squared > 0.95 && own.r_squared_per_operation > 0.95,
        "{:#?}",
        outcome.models
    );
    assert!(
        own.mean_error < 0.08 && own.mean_error < of("linear").mean_error,
        "{:#?}",
        outcome.models
    );
    assert_eq!(outcome.models.len(), 6);
    assert_eq!(
        (outcome.loads, outcome.held_out, outcome.residuals.len()),
        (120, 30, 30 * 4)
    );
    // The deciding input helps most, and one that decides nothing does not.
    assert!(
        ["burst", "pipeline"].contains(&outcome.helps[0].input),
        "{:?}",
        outcome.helps
    );
    assert!(
        outcome.beyond.iter().all(|one| one.mean_error < 0.2),
        "{:?}",
        outcome.beyond
    );
    assert_eq!(outcome.beyond.len(), BEYOND.len());
    let again = evaluate(&points, &design, "machine", 4).unwrap();
    assert_eq!(again.model, outcome.model);
    // The file's model says what the network was judged by.
    let model = parse(&write(&outcome.model, "")).unwrap();
    let point = &points[17];
    let off = model.ns_per_operation(&point.load()) / point.ns_per_operation() - 1.0;
    assert!(off.abs() < 0.3, "{off}");
}

#[test]
fn a_neighbour_in_one_pass_changes_nothing() {
    let design = Design::new(90, 4);
    let once = points(&design, 0.0);
    // In each pass something else slowed some measurements down, and had the commands of others arrive together.
    let pass = |number: u32| {
        let changed = once.iter().enumerate().map(move |(place, point)| {
            let cpu_ns = match (place as u32 + number) % 3 {
                0 => point.cpu_ns * 2,
                1 => point.cpu_ns / 2,
                _ => point.cpu_ns,
            };
            Point {
                pass: number,
                cpu_ns,
                ..point.clone()
            }
        });
        changed.collect::<Vec<_>>()
    };
    let thrice = [pass(0), pass(1), pass(2)].concat();
    assert_eq!(median(&thrice).len(), once.len());
    let outcome = |points: &[Point]| evaluate(points, &design, "machine", 4).unwrap();
    assert_eq!(outcome(&thrice).model, outcome(&once).model);
    assert_ne!(outcome(&pass(0)).model, outcome(&once).model);
}

#[test]
fn too_few_loads_are_refused() {
    let design = Design::new(20, 1);
    let error = evaluate(&points(&design, 0.0), &design, "machine", 1).unwrap_err();
    assert!(error.to_string().contains("20 loads: at least 60"), "{error}");
}

#[test]
fn scores_are_what_they_are_called() {
    let example = |log_ns: f64, rate: f64| Example {
        inputs: Vec::new(),
        log_ns,
        rate,
    };
    let examples = [example(1000.0_f64.ln(), 1e5), example(2000.0_f64.ln(), 2e5)];
    let right: Vec<f64> = examples.iter().map(|example| example.log_ns).collect();
    let score = score(&examples, &right);
    assert!(score.r_squared > 1.0 - 1e-12 && score.worst_error < 1e-12, "{score:?}");
    let mean = [(0.1_f64 + 0.4) / 2.0; 2];
    let pairs = [(0.1, mean[0]), (0.4, mean[1])];
    assert!(r_squared(&pairs).abs() < 1e-12, "the mean explains nothing");
}
