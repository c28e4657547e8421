//! From the text that scrapers get to a request of OTLP: every metric once, whatever way it leaves the server.
//!
//! The text is OpenMetrics (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), the request
//! `ExportMetricsServiceRequest` in JSON (OTLP 1.5: integers of 64 bits are texts, enumerations are numbers, names are in
//! lowerCamelCase). Counters become sums that are cumulative and monotonic, histograms
//! histograms, all else gauges.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::histogram::{Histogram, SUFFIXES};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// The resource of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// `service.version`.
    pub(super) version: &'static str,
    /// `service.instance.id`: the instance's name.
    pub(super) instance: String,
    /// When counters began, in nanoseconds since 1970.
    pub(super) began_ns: u64,
}

/// A metric with all its samples.
#[derive(Debug, Default)]
struct Family<'t> {
    help: &'t str,
    is_counter: bool,
    is_histogram: bool,
    points: Vec<Value>,
    histograms: Vec<Histogram>,
}

/// The request of all metrics in a text, as they were at `now_ns`.
pub(super) fn request(text: &str, resource: &Resource, now_ns: u64) -> Value {
    let families = families(text, resource.began_ns, now_ns);
    let metrics: Vec<Value> = families
        .into_iter()
        .filter(|(_, family)| !family.points.is_empty() || !family.histograms.is_empty())
        .map(|(name, family)| metric(name, family, resource.began_ns, now_ns))
        .collect();
    let attributes = [
        ("service.name", "tidemark"),
        ("service.version", resource.version),
        ("service.instance.id", resource.instance.as_str()),
    ];
    json!({"resourceMetrics": [{
        "resource": {"attributes": attributes.map(|(key, value)| attribute(key, value))},
        "scopeMetrics": [{"scope": {"name": "tidemark", "version": resource.version}, "metrics": metrics}],
    }]})
}

fn metric(name: &str, family: Family<'_>, began_ns: u64, now_ns: u64) -> Value {
    let (help, points) = (unescaped(family.help), family.points);
    if family.is_histogram {
        let histograms = family.histograms.into_iter();
        let points: Vec<Value> = histograms.map(|one| one.point(began_ns, now_ns)).collect();
        let histogram = json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE});
        json!({"name": name, "description": help, "histogram": histogram})
    } else if family.is_counter {
        let sum = json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true});
        json!({"name": name, "description": help, "sum": sum})
    } else {
        json!({"name": name, "description": help, "gauge": {"dataPoints": points}})
    }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Families by their names, in the order of names.
fn families(text: &str, began_ns: u64, now_ns: u64) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let (what, name, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
            let Some(name) = name else { continue };
            // In Prometheus's own format a counter's name ends as its samples' do.
            let name = name.strip_suffix("_total").unwrap_or(name);
            match what {
                Some("HELP") => families.entry(name).or_default().help = rest,
                Some("TYPE") => {
                    let family = families.entry(name).or_default();
                    (family.is_counter, family.is_histogram) = (rest == "counter", rest == "histogram");
                }
                _ => {}
            }
        } else if let Some((name, labels, value)) = sample(line) {
            let of_histogram = SUFFIXES
                .iter()
                .find_map(|suffix| Some((name.strip_suffix(suffix)?, *suffix)));
            if let Some((name, suffix)) = of_histogram
                && let Some(family) = families.get_mut(name).filter(|family| family.is_histogram)
            {
                Histogram::enter(&mut family.histograms, suffix, labels, value);
                continue;
            }
            let family = name.strip_suffix("_total").unwrap_or(name);
            let family = families.entry(family).or_default();
            let mut point = json!({"timeUnixNano": now_ns.to_string(), "attributes": labels});
            if family.is_counter {
                point["startTimeUnixNano"] = began_ns.to_string().into();
            }
            let (field, value) = number(value);
            point[field] = value;
            family.points.push(point);
        }
    }
    families
}

/// A sample's name, attributes and value; `None` of what is none.
fn sample(line: &str) -> Option<(&str, Vec<Value>, &str)> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let mut attributes = Vec::new();
    let mut rest = rest;
    if let Some(mut labels) = rest.strip_prefix('{') {
        while !labels.starts_with('}') {
            let (key, behind) = labels.split_once("=\"")?;
            let end = end_of_text(behind)?;
            attributes.push(attribute(key.trim_start_matches(','), &unescaped(&behind[..end])));
            labels = &behind[end + 1..];
        }
        rest = &labels[1..];
    }
    // Behind the value there may be a time.
    Some((name, attributes, rest.split_ascii_whitespace().next()?))
}

/// The end of a text: the first quotation mark that is not escaped.
fn end_of_text(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => plain.push('\n'),
            Some(escaped) => plain.push(escaped),
            None => plain.push('\\'),
        }
    }
    plain
}

/// The field of a data point, and what is in it.
fn number(text: &str) -> (&'static str, Value) {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => ("asInt", whole.to_string().into()),
        // A value that JSON has no number for is a text (protobuf's JSON mapping).
        (_, Ok(real)) if real.is_finite() => ("asDouble", real.into()),
        (_, Ok(real)) if real.is_nan() => ("asDouble", "NaN".into()),
        (_, Ok(real)) => ("asDouble", if real > 0.0 { "Infinity" } else { "-Infinity" }.into()),
        _ => ("asDouble", "NaN".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> Resource {
        Resource {
            version: "1.2.3",
            instance: "node-1".into(),
            began_ns: 5,
        }
    }

    #[test]
    fn a_text_becomes_a_request() {
        let text = "# HELP tidemark_gets Keys looked \\\\ up.\n# TYPE tidemark_gets counter\n\
                    tidemark_gets_total{tenant=\"a\\\"}\\n\",direction=\"in\"} 7\n\
                    # TYPE tidemark_pool gauge\ntidemark_pool 0.5\n\
                    # TYPE tidemark_empty gauge\n\
                    # TYPE times histogram\ntimes_sum{of=\"a\"} 1.5\ntimes_count{of=\"a\"} 6\n\
                    times_bucket{of=\"a\",le=\"6.4e-5\"} 2\ntimes_bucket{of=\"a\",le=\"1.0\"} 5\n\
                    times_bucket{of=\"a\",le=\"+Inf\"} 6\n\
                    # TYPE other_total counter\nother_total 18446744073709551615 123\n# EOF\n";
        let request = request(text, &resource(), 9);
        let of_resource = &request["resourceMetrics"][0];
        let instance = &of_resource["resource"]["attributes"][2];
        assert_eq!(
            instance,
            &json!({"key": "service.instance.id", "value": {"stringValue": "node-1"}})
        );
        let metrics = &of_resource["scopeMetrics"][0]["metrics"];
        let expected = json!([
            {"name": "other", "description": "", "sum": {"aggregationTemporality": 2, "isMonotonic": true,
                "dataPoints": [{"timeUnixNano": "9", "startTimeUnixNano": "5", "attributes": [],
                    "asDouble": 18_446_744_073_709_551_615.0}]}},
            {"name": "tidemark_gets", "description": "Keys looked \\ up.",
                "sum": {"aggregationTemporality": 2, "isMonotonic": true,
                    "dataPoints": [{"timeUnixNano": "9", "startTimeUnixNano": "5", "asInt": "7", "attributes": [
                        {"key": "tenant", "value": {"stringValue": "a\"}\n"}},
                        {"key": "direction", "value": {"stringValue": "in"}}]}]}},
            {"name": "tidemark_pool", "description": "",
                "gauge": {"dataPoints": [{"timeUnixNano": "9", "attributes": [], "asDouble": 0.5}]}},
            {"name": "times", "description": "", "histogram": {"aggregationTemporality": 2, "dataPoints": [
                {"timeUnixNano": "9", "startTimeUnixNano": "5", "count": "6", "sum": 1.5, "bucketCounts": ["2", "3", "1"],
                    "explicitBounds": [6.4e-5, 1.0],
                    "attributes": [{"key": "of", "value": {"stringValue": "a"}}]}]}},
        ]);
        assert_eq!(metrics, &expected);
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        for line in [
            "",
            "name",
            "name{",
            "name{a}",
            "name{a=\"b} 1",
            "name{a=\"b\\\"} 1",
            "{a=\"b\"}",
        ] {
            assert_eq!(sample(line), None, "{line}");
        }
    }

    #[test]
    fn numbers_are_what_the_format_has_for_them() {
        for (text, field, value) in [
            ("-3", "asInt", json!("-3")),
            ("1e3", "asDouble", json!(1000.0)),
            ("NaN", "asDouble", json!("NaN")),
            ("+Inf", "asDouble", json!("Infinity")),
            ("-Inf", "asDouble", json!("-Infinity")),
        ] {
            assert_eq!(number(text), (field, value), "{text}");
        }
    }
}
