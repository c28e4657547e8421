//! A histogram of the text, whose buckets each hold those before them, as a data point of OTLP, whose buckets do not.

use serde_json::{Value, json};

/// The samples of one histogram: a time series of each bucket, of the sum and of the count.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    attributes: Vec<Value>,
    /// The limits but for the last, which is infinite, and how many are up to each limit.
    bounds: Vec<f64>,
    up_to: Vec<u64>,
    sum: f64,
    count: u64,
}

/// A sample's part of its histogram's name.
pub(super) const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

impl Histogram {
    /// Enters a sample of those with these attributes, in the histogram that there is of them, or a new one.
    pub(super) fn enter(all: &mut Vec<Self>, suffix: &str, mut attributes: Vec<Value>, value: &str) {
        let limit = attributes.iter().position(|attribute| attribute["key"] == "le");
        let limit = limit.map(|place| attributes.remove(place));
        let place = all.iter().position(|one| one.attributes == attributes);
        let place = place.unwrap_or_else(|| {
            all.push(Self {
                attributes,
                ..Self::default()
            });
            all.len() - 1
        });
        let one = &mut all[place];
        match suffix {
            "_sum" => one.sum = value.parse().unwrap_or_default(),
            "_count" => one.count = value.parse().unwrap_or_default(),
            _ => {
                let limit = limit.as_ref().and_then(|limit| limit["value"]["stringValue"].as_str());
                if let Some(limit) = limit
                    .and_then(|limit| limit.parse::<f64>().ok())
                    .filter(|limit| limit.is_finite())
                {
                    one.bounds.push(limit);
                    one.up_to.push(value.parse().unwrap_or_default());
                }
            }
        }
    }

    /// The data point.
    pub(super) fn point(self, began_ns: u64, now_ns: u64) -> Value {
        let mut before = 0;
        let all = self.up_to.into_iter().chain([self.count]);
        let counts = all.map(|up_to| (up_to - std::mem::replace(&mut before, up_to).min(up_to)).to_string());
        json!({
            "timeUnixNano": now_ns.to_string(),
            "startTimeUnixNano": began_ns.to_string(),
            "attributes": self.attributes,
            "count": self.count.to_string(),
            "sum": self.sum,
            "bucketCounts": counts.collect::<Vec<_>>(),
            "explicitBounds": self.bounds,
        })
    }
}
