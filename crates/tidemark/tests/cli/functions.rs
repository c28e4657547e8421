//! `tidemark functions plan`.

use crate::{USAGE, run, stderr, stdout};

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
