//! Facts that follow from a curve beside its points.

use std::f64::consts::E;

use tidemark_curve::Curve;

/// A slope is from this much below to this much above: far enough apart for one that sampling does not hide.
pub(crate) const SLOPE_SPAN: f64 = 1.15;
/// How much more a policy may need than LRU, or less.
pub(crate) const EFFICIENCY: (f64, f64) = (0.6, 1.6);

/// The efficiency of a policy, from a hit ratio with so many bytes in use. It is the memory of an LRU cache over the
/// policy's own for the same hit ratio. The slope of the LRU curve there, by e-folds of memory, comes with it. `None`
/// if the curve is no steeper than `least_slope`.
///
/// The cache's place on the curve is found by its hit ratio, not by an efficiency that was believed before. The
/// believed place may lie where the curve is flat, and would then never be corrected.
pub fn efficiency_seen(
    curve: &Curve,
    overhead: f64,
    hit_ratio: f64,
    usage_bytes: u64,
    least_slope: f64,
) -> Option<(f64, f64)> {
    let lru_bytes = curve.bytes_for(hit_ratio).filter(|bytes| *bytes > 0)?;
    let slope = slope_at(curve, lru_bytes as f64);
    let efficiency = lru_bytes as f64 * overhead / usage_bytes.max(1) as f64;
    (slope > least_slope).then(|| (efficiency.clamp(EFFICIENCY.0, EFFICIENCY.1), slope))
}

/// The least misses of a cache of so many bytes, while new keys are still being met. The curve ends where nothing was
/// met yet. Each byte beyond is taken to gain at most the average of the last e-fold of memory, since most curves are
/// convex there. Keys that do not come again flatten that end as it moves on.
pub(crate) fn least_misses(curve: &Curve, bytes: u64) -> f64 {
    let end_bytes = curve.end().bytes;
    let gain_per_byte = curve.last_gain() / (end_bytes as f64 * (1.0 - 1.0 / E)).max(1.0);
    let beyond_bytes = bytes.saturating_sub(end_bytes) as f64;
    (curve.at(bytes).miss_ratio - gain_per_byte * beyond_bytes).max(0.0)
}

/// The slope of a curve of hits, by e-folds of memory.
pub(crate) fn slope_at(curve: &Curve, bytes: f64) -> f64 {
    let miss_ratio = |bytes: f64| curve.at(bytes as u64).miss_ratio;
    (miss_ratio(bytes / SLOPE_SPAN) - miss_ratio(bytes * SLOPE_SPAN)) / (2.0 * SLOPE_SPAN.ln())
}
