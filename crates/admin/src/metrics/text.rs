//! Metrics with their samples, as OpenMetrics writes them.

use std::fmt;

use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use tidemark_control::DurationsView;

/// A metric's name and its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metric(pub(super) &'static str, pub(super) &'static str);

/// A sample's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl EncodeGaugeValue for Number {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => EncodeGaugeValue::encode(number, encoder),
            Self::Real(number) => EncodeGaugeValue::encode(number, encoder),
        }
    }
}

impl EncodeCounterValue for Number {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => EncodeCounterValue::encode(number, encoder),
            Self::Real(number) => EncodeCounterValue::encode(number, encoder),
        }
    }
}

/// The labels of a value: pairs of a label's name and its text.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One metric with all its samples; nothing of one without any.
pub(super) fn write<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    Metric(name, help): Metric,
    kind: MetricType,
    samples: impl Iterator<Item = (Labels<'a>, Number)>,
) -> fmt::Result {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        let write = |encoder: &mut MetricEncoder<'_>| match kind {
            MetricType::Counter => encoder.encode_counter::<Labels<'_>, _, u64>(&value, None),
            _ => encoder.encode_gauge(&value),
        };
        // Else there would be braces without anything in them.
        if labels.is_empty() {
            write(&mut family)?;
        } else {
            write(&mut family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// A metric without labels; nothing of a value that is not known.
pub(super) fn write_one(
    encoder: &mut DescriptorEncoder<'_>,
    metric: Metric,
    kind: MetricType,
    value: Option<Number>,
) -> fmt::Result {
    let samples = value.map(|value| (Labels::new(), value)).into_iter();
    write(encoder, metric, kind, samples)
}

/// Times as a histogram, in seconds.
pub(super) fn write_durations(
    encoder: &mut DescriptorEncoder<'_>,
    Metric(name, help): Metric,
    times: &DurationsView,
) -> fmt::Result {
    // The encoder writes the greatest number as `+Inf`.
    let seconds = |us: Option<u64>| us.map_or(f64::MAX, |us| us as f64 / 1e6);
    let buckets = times
        .buckets
        .iter()
        .map(|bucket| (seconds(bucket.below_us), bucket.count));
    let buckets: Vec<(f64, u64)> = buckets.collect();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(times.sum_us as f64 / 1e6, times.count, &buckets, None)
}

/// Facts that do not change, as labels of a one.
pub(super) fn write_info(
    encoder: &mut DescriptorEncoder<'_>,
    Metric(name, help): Metric,
    labels: &Labels<'_>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Info)?;
    metric.encode_info(labels)
}
