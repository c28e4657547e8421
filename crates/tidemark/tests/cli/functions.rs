//! `tidemark functions plan` and `probe`.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Instant;

use crate::{PATIENCE, USAGE, run, stderr, stdout, tidemark};

#[test]
fn the_papers_figures_are_the_defaults() {
    let table = run(&["functions", "plan"]);
    assert!(table.status.success(), "{}", stderr(&table));
    assert!(stdout(&table).contains("NODE IS CHEAPER FROM"), "{}", stdout(&table));
    let json = run(&["--json", "functions", "plan", "--reclaim", "poisson:7.1"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    let number = |place: &str| report.pointer(place).unwrap().as_f64().unwrap();
    assert_eq!((number("/cost/0/cross_over_requests") / 1000.0).round(), 312.0);
    assert!(number("/cost/1/total") < number("/cost/0/total"), "{report}");
    let loss = number("/loss_ratio_approximate");
    assert!(
        (0.001_05..0.001_15).contains(&loss) && number("/loss_ratio") > loss,
        "{report}"
    );
    assert!((0.93..0.94).contains(&number("/availability")), "{report}");
}

/// The golden values of the InfiniCache paper, to the digits printed there. It does not print its distributions' parameters;
/// these means give both ends of its range.
#[test]
fn the_golden_values_are_printed() {
    let shown = stdout(&run(&["functions", "plan"]));
    assert!(shown.contains("18.8 times as often"), "{shown}");
    for (mean, loss, availability) in [("2.28", "0.0039", "99.76"), ("7.203", "0.11", "93.36")] {
        let json = run(&["--json", "functions", "plan", "--reclaim", &format!("poisson:{mean}")]);
        let report: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
        let percent = |key: &str, digits: usize| format!("{:.digits$}", 100.0 * report[key].as_f64().unwrap());
        assert_eq!(percent("loss_ratio", loss.len() - 2), loss);
        assert_eq!(percent("availability", 2), availability);
        let cross_over = report["cost"][0]["cross_over_requests"].as_f64().unwrap();
        assert_eq!(format!("{:.0}", cross_over / 1000.0), "312", "{report}");
    }
}

#[test]
fn what_can_not_be_is_refused() {
    for (flag, value, says) in [
        ("--code", "0+2", "DATA+PARITY"),
        ("--functions", "5", "at least one function"),
        ("--reclaim", "often", "poisson:MEAN"),
        ("--warm-every", "0s", "1s to 24h"),
        ("--node-price", "NaN", "--node-price"),
    ] {
        let refused = run(&["functions", "plan", flag, value]);
        assert_eq!(
            refused.status.code(),
            Some(USAGE),
            "{flag} {value}: {}",
            stderr(&refused)
        );
        assert!(stderr(&refused).contains(says), "{flag} {value}: {}", stderr(&refused));
    }
}

#[test]
fn a_probe_counts_the_functions_that_are_taken_away() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let emulator = super::s3::emulator(&runtime);
    let names: Vec<String> = (0..3).map(|number| format!("probed-{number}")).collect();
    assert!(names.iter().all(|name| emulator.create(name, 128)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("functions.toml");
    let text = format!(
        "endpoint = \"http://{}\"\nname = \"probed\"\ncount = 3\ncodes = \"2+1\"\nmemory = \"128MiB\"\n",
        emulator.address()
    );
    std::fs::write(&file, text).unwrap();
    let mut child = tidemark()
        .args(["--json", "functions", "probe", &file.display().to_string()])
        .args(["--every", "200ms", "--intervals", "30"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let until_there = |invocations: u64| {
        while emulator.bill().invocations < invocations || emulator.instances() < names.len() {
            assert!(began.elapsed() < PATIENCE, "the functions are not asked");
            std::thread::yield_now();
        }
    };
    until_there(3);
    for taken in [&names[..1], &names[1..], &names[..]] {
        assert!(taken.iter().all(|name| emulator.reclaim(name) == 1));
        until_there(emulator.bill().invocations + 3);
    }
    let mut json = String::new();
    child.stdout.take().unwrap().read_to_string(&mut json).unwrap();
    assert!(child.wait().unwrap().success());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = report["intervals"].as_array().unwrap();
    let sum = |row: &serde_json::Value| row["reclaimed"].as_u64().unwrap() * row["intervals"].as_u64().unwrap();
    assert_eq!(rows.iter().map(sum).sum::<u64>(), 6, "{report}");
    assert_eq!(report["invocations"], 31 * 3, "{report}");
    assert!(report["best"]["availability"].as_f64().unwrap() < 1.0, "{report}");
}
