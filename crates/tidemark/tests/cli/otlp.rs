//! Metrics to an OpenTelemetry collector, which here is a receiver that decodes what comes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::deploy::{Client, limited_server_with, scrape};
use super::spending::{ACCEPTED, BROKEN, Receive};
use super::*;

/// The value of each data point by its metric and labels, in the form that scrapers get.
fn points(export: &Value) -> BTreeMap<String, f64> {
    let mut points = BTreeMap::new();
    let of_resource = export["resourceMetrics"].as_array().unwrap();
    let scopes = of_resource.iter().flat_map(|of| of["scopeMetrics"].as_array().unwrap());
    for metric in scopes.flat_map(|scope| scope["metrics"].as_array().unwrap()) {
        let name = metric["name"].as_str().unwrap();
        if let Some(histogram) = metric.get("histogram") {
            points.extend(of_histogram(name, histogram));
            continue;
        }
        let (kind, suffix) = match metric.get("sum") {
            Some(sum) => {
                assert_eq!(
                    (&sum["isMonotonic"], &sum["aggregationTemporality"]),
                    (&true.into(), &2.into())
                );
                (sum, "_total")
            }
            None => (&metric["gauge"], ""),
        };
        for point in kind["dataPoints"].as_array().unwrap() {
            let nanos = |field: &str| point[field].as_str().unwrap().parse::<u64>().unwrap();
            assert!(
                suffix.is_empty() || nanos("startTimeUnixNano") <= nanos("timeUnixNano"),
                "{point}"
            );
            let label = |label: &Value| {
                let (key, value) = (
                    label["key"].as_str().unwrap(),
                    label["value"]["stringValue"].as_str().unwrap(),
                );
                format!("{key}=\"{value}\"")
            };
            let labels: Vec<String> = point["attributes"].as_array().unwrap().iter().map(label).collect();
            let labels = if labels.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", labels.join(","))
            };
            let value = match point.get("asInt") {
                Some(whole) => whole.as_str().unwrap().parse().unwrap(),
                None => point["asDouble"].as_f64().unwrap(),
            };
            points.insert(format!("{name}{suffix}{labels}"), value);
        }
    }
    points
}

/// A histogram without labels, as scrapers get it: each bucket with all before it.
fn of_histogram(name: &str, histogram: &Value) -> Vec<(String, f64)> {
    assert_eq!(histogram["aggregationTemporality"], 2);
    let point = &histogram["dataPoints"][0];
    let whole = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
    let bounds = point["explicitBounds"].as_array().unwrap().iter();
    let bounds = bounds.map(|bound| bound.as_f64().unwrap().to_string());
    let mut up_to = 0.0;
    let buckets = bounds
        .chain(["+Inf".to_owned()])
        .zip(point["bucketCounts"].as_array().unwrap());
    let buckets = buckets.map(|(bound, count)| {
        up_to += whole(count);
        (format!("{name}_bucket{{le=\"{bound}\"}}"), up_to)
    });
    let mut points: Vec<(String, f64)> = buckets.collect();
    assert_eq!(points.len(), point["explicitBounds"].as_array().unwrap().len() + 1);
    points.push((format!("{name}_count"), whole(&point["count"])));
    points.push((format!("{name}_sum"), point["sum"].as_f64().unwrap()));
    points
}

#[test]
fn a_collector_gets_every_metric_that_scrapers_get() {
    // It is down at first, and then closes without an answer.
    let collector = Receive::start(|number| match number {
        0 => BROKEN,
        1 => "closed",
        _ => ACCEPTED,
    });
    let url = format!("http://{}", collector.address);
    let server = limited_server_with(&["--otlp", &url, "--otlp-period", "1s"]);
    Client::new(&server).ask();
    let deadline = Instant::now() + PATIENCE;
    for number in 0.. {
        let received = collector.next();
        assert!(
            received.head.starts_with("POST /v1/metrics HTTP/1.1"),
            "{}",
            received.head
        );
        assert_eq!(received.header("content-type"), "application/json");
        let export = received.json();
        let name = &export["resourceMetrics"][0]["resource"]["attributes"][0];
        assert_eq!(
            (&name["key"], &name["value"]["stringValue"]),
            (&"service.name".into(), &"tidemark".into())
        );
        let exported = points(&export);
        let answer = scrape(&server);
        let of_metrics = |line: &&str| ["tidemark_", "process_"].iter().any(|prefix| line.starts_with(prefix));
        let samples = answer.lines().filter(of_metrics);
        let scraped: BTreeMap<&str, f64> = samples
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        let is_same = scraped.len() > 30 && scraped.keys().all(|name| exported.contains_key(*name));
        let sets = "tidemark_tenant_operations_total{tenant=\"default\",command=\"set\",protocol=\"memcached\",outcome=\"ok\"}";
        // Behind the first one that was accepted, what the log says of it is written.
        if number >= 3 && is_same && exported.get(sets) == Some(&1.0) {
            assert_eq!(exported.len(), scraped.len(), "{exported:?}");
            assert_eq!(exported["tidemark_pool_bytes"], scraped["tidemark_pool_bytes"]);
            break;
        }
        assert!(Instant::now() < deadline, "{exported:?}\n{scraped:?}");
    }
    let (_, log, _) = server.stop();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("does not take metrics"), 1, "{log}");
    assert_eq!(lines("takes metrics again"), 1, "{log}");
}

#[test]
fn a_collector_that_hangs_delays_nobody() {
    let collector = Receive::start(|_| "");
    let url = format!("http://{}/custom", collector.address);
    let server = Server::start(&["--otlp", &url, "--otlp-period", "1s"]);
    let received = collector.next();
    assert!(received.head.starts_with("POST /custom HTTP/1.1"), "{}", received.head);
    // While it waits for the collector, clients and operators are served, and the server ends.
    Client::new(&server).ask();
    let deadline = Instant::now() + PATIENCE;
    // A client is answered before its command is counted.
    while server.json(&["tenant", "show", "default"])["sets_total"] != 1 {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(server.stop().0, Some(0));
    check_fails(
        &["serve", "--otlp", "collector:4318"],
        USAGE,
        &["--otlp collector:4318", "http"],
    );
    check_fails(
        &["serve", "--otlp-period", "0s"],
        USAGE,
        &["--otlp-period 0s", "1s to 1h"],
    );
}
