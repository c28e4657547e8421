//! `tidemark curve`.

use std::path::Path;

use crate::{FAILED, NOT_FOUND, USAGE, check_fails, run, stderr, stdout};

/// Ten rounds of a hundred keys as a trace: LRU misses all unless all fit.
fn rounds(folder: &Path) -> String {
    let path = folder.join("rounds.decimal");
    let lines: String = (0..1000).map(|n| format!("{}\n", n % 100)).collect();
    std::fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn curves_are_tables_json_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let trace = rounds(folder.path());
    let table = run(&["curve", &trace, "--sizes", "50B,100B", "--policy", "lru"]);
    assert!(table.status.success(), "{}", stderr(&table));
    let words: Vec<Vec<String>> = stdout(&table)
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert_eq!(words[0], ["BYTES", "SIZE", "MISS", "RATIO", "HIT", "RATIO"]);
    assert_eq!(words[1], ["50", "50", "B", "100.00", "%", "0.00", "%"]);
    assert_eq!(words[2], ["100", "100", "B", "10.00", "%", "90.00", "%"]);
    assert!(stderr(&table).contains("1000 requests for 100 objects of 100 B in all; lru, exact"));

    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (svg, png) = (file("c.svg"), file("c.png"));
    for policy in ["fifo", "clock", "s3fifo", "approx-lru:0.5"] {
        let json = run(&[
            "curve",
            &trace,
            "--policy",
            policy,
            "--value-size",
            "1KiB",
            "--json",
            "--svg",
            &svg,
            "--png",
            &png,
        ]);
        assert!(json.status.success(), "{}", stderr(&json));
        let report: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
        assert_eq!((&report["requests"], &report["policy"]), (&1000.into(), &policy.into()));
        let points = report["points"].as_array().unwrap();
        assert_eq!((points.len(), &points[7]["bytes"]), (8, &(80 * 1024).into()));
        assert!(
            points
                .iter()
                .all(|point| point["miss_ratio"].is_f64() && point["standard_error"].is_null())
        );
        assert!(std::fs::read_to_string(&svg).unwrap().contains(policy));
        assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    }

    let sampled = run(&["curve", &trace, "--samples", "20", "--seed", "3"]);
    assert!(stdout(&sampled).lines().next().unwrap().ends_with("STANDARD ERROR"));
    assert!(
        stderr(&sampled).contains("from a sample of 20 objects"),
        "{}",
        stderr(&sampled)
    );
    let exact = run(&["curve", &trace, "--exact", "--sizes", "100"]);
    assert!(stdout(&exact).contains("10.00 %") && stderr(&exact).contains("exact"));
}

#[test]
fn what_curve_can_not_do_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = rounds(folder.path());
    check_fails(&["curve", "missing.decimal"], NOT_FOUND, &["missing.decimal"]);
    check_fails(&["curve", "no.such"], USAGE, &["--format", "oracleGeneral"]);
    check_fails(
        &["curve", &trace, "--samples", "0"],
        USAGE,
        &["--samples 0", "1 to 1073741824"],
    );
    check_fails(&["curve", &trace, "--sizes", "0"], USAGE, &["1 byte to 256TiB"]);
    check_fails(
        &["curve", &trace, "--svg", "/nowhere/at.svg"],
        FAILED,
        &["/nowhere/at.svg"],
    );
    for (arguments, parts) in [
        (&["--policy", "arc"][..], ["`arc`", "approx-lru:0.5"]),
        (&["--exact", "--samples", "5"], ["--exact", "--samples"]),
        (&["--sizes", "ten"], ["`ten`", "64MiB"]),
    ] {
        let output = run(&[&["curve", &trace], arguments].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(USAGE), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let broken = folder.path().join("broken.decimal");
    std::fs::write(&broken, "1\n2\nthree\n").unwrap();
    check_fails(
        &["curve", broken.to_str().unwrap()],
        FAILED,
        &["line 3", "expected a decimal key", "`three`"],
    );
    let short = folder.path().join("short.oracleGeneral.bin");
    std::fs::write(&short, [0; 30]).unwrap();
    check_fails(
        &["curve", short.to_str().unwrap()],
        FAILED,
        &["byte 24", "6 of the 24 bytes"],
    );
}
