//! Calibration on the command line: what was measured before is kept, what is missing is measured, and a server models CPU time by
//! what comes of it.

use std::collections::BTreeMap;

use serde_json::Value;
use tidemark_calibrate::{Design, LoadSpec, Point};

use super::*;

const LOADS: u32 = 90;
const SEED: u64 = 5;

/// Points as a load could have been measured: a command costs its bytes and a part of a system call.
fn points(spec: &LoadSpec) -> Vec<Point> {
    let point = |(rate_ratio, burst): (f64, f64)| {
        let rate = 300_000.0 * rate_ratio;
        let inputs: BTreeMap<String, f64> = [
            ("key_bytes", spec.key_bytes as f64),
            ("value_bytes", spec.value_bytes as f64),
            ("read_share", spec.reads),
            ("skew", spec.skew),
            ("rate", rate),
            ("pipeline", spec.pipeline as f64),
            ("burst", spec.pipeline as f64 * burst),
            ("hit_ratio", spec.hit_ratio),
            ("resp_share", f64::from(u8::from(spec.is_resp))),
            ("connections", spec.connections as f64),
            ("items", spec.keys as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let ns = 500.0 + 8_000.0 / spec.pipeline as f64 + spec.value_bytes as f64 / 4.0 + spec.key_bytes as f64;
        Point {
            spec: *spec,
            pass: 0,
            rate_ratio,
            seconds: 1.0,
            operations: rate as u64,
            cpu_ns: (ns * rate) as u64,
            inputs,
        }
    };
    [(0.1, 1.0), (0.35, 1.5), (0.7, 3.0), (0.9, 4.0)].map(point).to_vec()
}

/// Measurements of all loads but the last one.
fn measured_before() -> String {
    let design = Design::new(LOADS, SEED);
    let mut specs: Vec<LoadSpec> = design.all().copied().collect();
    specs.pop();
    let lines = specs
        .iter()
        .flat_map(points)
        .map(|point| serde_json::to_string(&point).unwrap() + "\n");
    lines.collect()
}

#[test]
fn what_is_missing_is_measured_and_a_server_models_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, svg, png) = (file("model.toml"), file("r.svg"), file("r.png"));
    std::fs::write(file("model.toml.points"), measured_before()).unwrap();
    let loads = LOADS.to_string();
    let arguments = [
        "calibrate",
        &model,
        "--loads",
        &loads,
        "--seed",
        "5",
        "--minutes",
        "0.5",
        "--passes",
        "1",
        "--machine",
        "A machine",
        "--svg",
        &svg,
        "--png",
        &png,
    ];
    let text = stdout(&run(&arguments));
    for part in [
        "90 loads, 30 of them held out",
        "perceptron",
        "nearest neighbours",
        "boosted trees",
        "Half a range beyond",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(std::fs::read_to_string(&svg).unwrap().contains("R squared"));
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    // The last load was measured: against a real server, its tenant did what it was asked.
    let journal = std::fs::read_to_string(file("model.toml.points")).unwrap();
    assert!(journal.starts_with(&measured_before()));
    let new: Vec<Point> = journal
        .lines()
        .skip(97 * 4)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(new.len(), 4);
    for point in &new {
        let input = |name: &str| point.inputs[name];
        assert!(point.operations > 0 && point.cpu_ns > 0, "{point:?}");
        assert_eq!(input("key_bytes"), point.spec.key_bytes as f64);
        assert!((input("read_share") - point.spec.reads).abs() < 0.2, "{point:?}");
        assert!(
            input("pipeline") >= 1.0 && input("burst") >= input("pipeline") * 0.99,
            "{point:?}"
        );
    }
    // The same measurements give the same model.
    let first = std::fs::read_to_string(&model).unwrap();
    let again: Value = serde_json::from_str(&stdout(&run(&[&arguments[..], &["--json"]].concat()))).unwrap();
    assert_eq!(again["models"][0]["model"], "perceptron");
    assert_eq!(std::fs::read_to_string(&model).unwrap(), first);

    let server = Server::start(&["--cpu-model", &model]);
    assert_eq!(server.json(&["server", "show"])["cpu_model"]["reference"], "A machine");
    server.stop();
    check_fails(
        &["calibrate", &model, "--loads", &loads, "--seed", "6"],
        FAILED,
        &["model.toml.points, line 1", "--seed"],
    );
}
