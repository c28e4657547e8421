//! `tidemark plan`.

use std::path::Path;

use crate::{DENIED, NOT_FOUND, USAGE, check_fails, run, stderr, stdout};

/// Ten hot keys and ninety cold ones by turns.
fn trace(folder: &Path) -> String {
    let path = folder.join("orders.decimal");
    let key = |n: u64| {
        if n.is_multiple_of(2) {
            n / 2 % 10
        } else {
            10 + n / 2 % 90
        }
    };
    let lines: String = (0..20_000).map(|n| format!("{}\n", key(n))).collect();
    std::fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn plans_are_tables_json_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let table = run(&["plan", "--trace", &trace, "--latency", "170us"]);
    assert!(table.status.success(), "{}", stderr(&table));
    let text = stdout(&table);
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("TENANT"), "{text}");
    assert!(lines.next().unwrap().starts_with("orders.decimal"), "{text}");
    assert!(lines.next().unwrap().starts_with("(1:4)"), "{text}");
    assert!(lines.next().unwrap().starts_with("saved against 1:4"), "{text}");
    assert!(
        stderr(&table).contains("profile hardware-2026") && stderr(&table).contains("(37.8 : 1)"),
        "{}",
        stderr(&table)
    );

    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (svg, png) = (file("plan.svg"), file("plan.png"));
    let json = run(&[
        "plan",
        "--trace",
        &format!("A={trace}"),
        "--trace",
        &format!("B={trace}"),
        "--latency",
        "170us",
        "--latency",
        "B=600us",
        "--price",
        "dram=4,flash=1",
        "--svg",
        &svg,
        "--png",
        &png,
        "--json",
    ]);
    assert!(json.status.success(), "{}", stderr(&json));
    let report: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    let number = |place: &str| report.pointer(place).unwrap().as_f64().unwrap();
    assert_eq!(report["tenants"][1]["tenant"], "B");
    assert!(number("/tenants/0/latency_us") <= 170.0 + 1e-6 && number("/tenants/1/latency_us") <= 600.0 + 1e-6);
    assert!(number("/tenants/0/cost") > number("/tenants/1/cost"));
    assert_eq!(report["tenants"][0]["shortfall_us"], 0.0);
    assert!(number("/proportional/cost") >= number("/total/cost"));
    assert_eq!(report["frontier"].as_array().unwrap().len(), 24);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("proportional 1:4"));
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));

    let amount = (number("/total/cost") / 2.0).to_string();
    let spent = run(&[
        "plan",
        "--trace",
        &trace,
        "--spending",
        &amount,
        "--price",
        "flash=1,dram=4",
        "--json",
    ]);
    let spent: serde_json::Value = serde_json::from_str(&stdout(&spent)).unwrap();
    let cost = spent["total"]["cost"].as_f64().unwrap();
    assert!(cost <= number("/total/cost") / 2.0 * 1.000_001 && cost > 0.0, "{spent}");
}

#[test]
fn curves_of_slab_classes_count_whole_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let reach = |more: &[&str]| {
        let mut arguments = vec!["plan", "--trace", &trace, "--latency", "60us", "--json"];
        arguments.extend(more);
        let output = run(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["by_class"], !more.is_empty());
        let bytes = |name: &str| report["total"][name].as_f64().unwrap();
        bytes("memory_bytes") + bytes("flash_bytes")
    };
    // 1,024 bytes and 40 beside them are in chunks of 1,184.
    let (whole, classes) = (reach(&[]), reach(&["--classes"]));
    let ratio = classes / whole;
    assert!((ratio - 1184.0 / 1064.0).abs() < 0.02, "{whole} {classes} {ratio}");
}

#[test]
fn a_latency_that_no_sizes_have_is_told_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    // First uses miss: 100 of 20,000 requests, 1.1 ms each.
    let output = run(&["plan", "--trace", &trace, "--latency", "40us", "--json"]);
    assert_eq!(output.status.code(), Some(DENIED));
    let message = stderr(&output);
    assert!(
        message.contains("no sizes reach 40.0 us: the best is 55.5 us, 15.5 us more"),
        "{message}"
    );
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(
        (report["tenants"][0]["shortfall_us"].as_f64().unwrap() - 15.5).abs() < 1e-6,
        "{report}"
    );
}

#[test]
fn what_plan_can_not_do_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    check_fails(
        &["plan", "--trace", "missing.decimal", "--latency", "1ms"],
        NOT_FOUND,
        &["missing.decimal"],
    );
    for (arguments, parts) in [
        (&["--latency", "7"][..], ["`7`", "700us"]),
        (&["--latency", "other=1ms"], ["no trace is named `other`", "--latency"]),
        (&["--latency", "1ms", "--spending", "3"], ["--latency", "--spending"]),
        (&[], ["--latency", "required"]),
        (
            &["--latency", "1ms", "--price", "dram=1"],
            ["dram=...,flash=...", "--price"],
        ),
        (&["--latency", "1ms", "--profile", "gold"], ["`gold`", "hardware-2026"]),
        (&["--spending", "NaN"], ["--spending NaN", "0 or more"]),
        (
            &["--latency", "1ms", "--trace", "orders.decimal=nothing"],
            ["orders.decimal", "NAME=FILE"],
        ),
    ] {
        let output = run(&[&["plan", "--trace", &trace], arguments].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(USAGE), "{arguments:?}: {message}");
        assert!(
            parts.iter().all(|part| message.contains(part)),
            "{arguments:?}: {message}"
        );
    }
}
