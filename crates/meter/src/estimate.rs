//! The cost of a load: from the facts of a trace to the use in a month of it.

use crate::bill::Used;
use crate::usage::{Resource, Totals};

/// A month of 30 days, in seconds.
pub const MONTH_SECONDS: f64 = 30.0 * 86_400.0;
/// Bytes of a key and of the protocol's framing of a request.
const REQUEST_BYTES: f64 = 40.0;
/// Bytes that the protocol adds to a reply.
const REPLY_BYTES: f64 = 10.0;

/// A load, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Gets a second.
    pub gets_per_second: f64,
    /// The share of them that find their key; the others are followed by a write.
    pub hit_ratio: f64,
    /// The mean value, by gets.
    pub value_bytes: f64,
    /// Memory that gives that hit ratio.
    pub memory_bytes: u64,
    /// CPU time of a command.
    pub cpu_ns_per_operation: f64,
}

impl Load {
    /// The use in a month of it.
    pub fn month(&self) -> Used {
        let gets = self.gets_per_second * MONTH_SECONDS;
        let sets = gets * (1.0 - self.hit_ratio);
        let hits = gets - sets;
        let operations = gets + sets;
        let whole = |amount: f64| amount.round().max(0.0) as u128;
        let cpu_ns = whole(operations * self.cpu_ns_per_operation);
        let totals = Totals::default()
            .with(Resource::CpuNs, cpu_ns)
            .with(
                Resource::MemoryByteSeconds,
                whole(self.memory_bytes as f64 * MONTH_SECONDS),
            )
            .with(
                Resource::NetworkInBytes,
                whole(operations * REQUEST_BYTES + sets * self.value_bytes),
            )
            .with(
                Resource::NetworkOutBytes,
                whole(operations * REPLY_BYTES + hits * self.value_bytes),
            )
            .with(Resource::Operations, whole(operations))
            .with(Resource::Gets, whole(gets))
            .with(Resource::Hits, whole(hits))
            .with(Resource::Sets, whole(sets));
        Used {
            totals,
            billed_cpu_ns: cpu_ns,
            free_operations: 0,
        }
    }
}

/// The size at which a curve reaches a hit ratio, between its points by a straight line; `None` if it does not reach it. Points are
/// bytes and miss ratios, in ascending order of bytes.
pub fn size_for(points: &[(u64, f64)], hit_ratio: f64) -> Option<u64> {
    // A difference to a ratio by rounding alone does not matter.
    let wanted = 1.0 - hit_ratio + 1e-9;
    let mut before = (0_u64, 1.0);
    for &(bytes, miss_ratio) in points {
        if miss_ratio <= wanted {
            let fallen = before.1 - miss_ratio;
            let part = if fallen > 0.0 {
                (before.1 - wanted) / fallen
            } else {
                1.0
            };
            return Some(before.0 + ((bytes - before.0) as f64 * part.clamp(0.0, 1.0)).round() as u64);
        }
        before = (bytes, miss_ratio);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_follows_from_the_load() {
        let used = Load {
            gets_per_second: 1000.0,
            hit_ratio: 0.75,
            value_bytes: 100.0,
            memory_bytes: 1 << 30,
            cpu_ns_per_operation: 2000.0,
        }
        .month();
        let seconds = 2_592_000;
        assert_eq!(used.totals.get(Resource::Operations), 1250 * seconds);
        assert_eq!(used.billed_cpu_ns, 1250 * 2000 * seconds);
        assert_eq!(used.totals.get(Resource::MemoryByteSeconds), (1 << 30) * seconds);
        assert_eq!(used.totals.get(Resource::NetworkOutBytes), (12_500 + 75_000) * seconds);
        assert_eq!(used.totals.get(Resource::NetworkInBytes), (50_000 + 25_000) * seconds);
    }

    #[test]
    fn a_size_lies_between_the_curve_s_points() {
        let points = [(100, 0.8), (200, 0.4), (400, 0.4), (800, 0.1)];
        for (hit_ratio, expected) in [
            (0.1, Some(50)),
            (0.2, Some(100)),
            (0.4, Some(150)),
            (0.6, Some(200)),
            (0.75, Some(600)),
            (0.9, Some(800)),
            (0.95, None),
        ] {
            assert_eq!(size_for(&points, hit_ratio), expected, "{hit_ratio}");
        }
    }
}
