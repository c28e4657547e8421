//! How flash is shared: each tenant has what it is guaranteed, and of the rest a part by its weight, up to what it may have or
//! make use of. Values in, values out.
//!
//! Units: bytes. Invariants: no share is above what its tenant may have; shares come to no more than there is, but for what
//! rounding floors up to whole segments takes.

use tidemark_types::MIB;

/// A segment: what flash is granted in.
const SEGMENT_BYTES: u64 = MIB;
/// Steps in which the level is found: beyond, shares change by less than a segment.
const STEPS: u32 = 48;

/// A tenant that has a part in flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlashHolder {
    /// The operator's promise to it.
    pub(crate) promised_bytes: u64,
    /// Its guarantee: that, or what is planned for it.
    pub(crate) floor_bytes: u64,
    /// The most that it may have, or can make use of.
    pub(crate) most_bytes: u64,
    /// Its part beside others'.
    pub(crate) weight: f64,
}

impl FlashHolder {
    fn floor(&self) -> u64 {
        whole(self.floor_bytes).min(self.most_bytes)
    }

    /// The part of that which does not yield to what is planned for others.
    fn promised(&self) -> u64 {
        whole(self.promised_bytes).min(self.floor())
    }

    /// Its part where a weight of one has so much.
    fn at(&self, level: f64) -> u64 {
        ((level * self.weight) as u64).clamp(self.floor(), self.most_bytes.max(self.floor()))
    }
}

/// So much in whole segments.
fn whole(bytes: u64) -> u64 {
    bytes.div_ceil(SEGMENT_BYTES).saturating_mul(SEGMENT_BYTES)
}

/// The part of each of these tenants in so much flash, in whole segments.
pub(crate) fn shares(total_bytes: u64, holders: &[FlashHolder]) -> Vec<u64> {
    let sum = |level: f64| {
        holders
            .iter()
            .fold(0_u64, |sum, holder| sum.saturating_add(holder.at(level)))
    };
    let (mut low, mut high) = (0.0, total_bytes as f64);
    if sum(high) <= total_bytes {
        low = high;
    }
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if sum(middle) <= total_bytes {
            low = middle;
        } else {
            high = middle;
        }
    }
    // Floors alone may be too much: where more is planned than there is, and where flash became smaller than it was when
    // they were promised.
    let floors = sum(0.0);
    let promised = holders
        .iter()
        .fold(0_u64, |sum, holder| sum.saturating_add(holder.promised()));
    let part = |bytes: u64, of: u64, all: u64| (u128::from(bytes) * u128::from(of) / u128::from(all.max(1))) as u64;
    let share = |holder: &FlashHolder| {
        if floors <= total_bytes {
            holder.at(low)
        } else if promised <= total_bytes {
            let planned = holder.floor() - holder.promised();
            holder.promised() + part(planned, total_bytes - promised, floors - promised)
        } else {
            part(holder.promised(), total_bytes, promised)
        }
    };
    holders
        .iter()
        .map(|holder| share(holder) / SEGMENT_BYTES * SEGMENT_BYTES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_is_shared_by_weight_between_floor_and_cap() {
        let holder = |floor, most, weight| FlashHolder {
            promised_bytes: floor * MIB,
            floor_bytes: floor * MIB,
            most_bytes: most * MIB,
            weight,
        };
        for (total, holders, expected) in [
            (100, vec![], vec![]),
            (100, vec![holder(0, 100, 1.0)], vec![100]),
            (100, vec![holder(0, 100, 1.0); 4], vec![25; 4]),
            (100, vec![holder(0, 100, 1.0), holder(0, 100, 3.0)], vec![25, 75]),
            // The others share a part that one cannot have.
            (100, vec![holder(0, 10, 1.0), holder(0, 100, 1.0)], vec![10, 90]),
            (100, vec![holder(80, 100, 1.0), holder(0, 100, 1.0)], vec![80, 20]),
            (100, vec![holder(0, 30, 1.0), holder(0, 30, 1.0)], vec![30, 30]),
            // Floors that are too much come down together.
            (100, vec![holder(150, 200, 1.0), holder(50, 200, 9.0)], vec![75, 25]),
            (3, vec![holder(0, 3, 1.0); 4], vec![0; 4]),
        ] {
            let shares = shares(total * MIB, &holders);
            let shares: Vec<u64> = shares.into_iter().map(|bytes| bytes / MIB).collect();
            assert!(
                shares
                    .iter()
                    .zip(&expected)
                    .all(|(share, expected)| share.abs_diff(*expected) <= 1),
                "{holders:?}: {shares:?}"
            );
            assert!(shares.iter().sum::<u64>() <= total, "{shares:?}");
        }
    }

    #[test]
    fn what_is_planned_yields_and_what_is_promised_does_not() {
        let holder = |promised, planned| FlashHolder {
            promised_bytes: promised * MIB,
            floor_bytes: planned * MIB,
            most_bytes: 200 * MIB,
            weight: 1.0,
        };
        for (holders, expected) in [
            (vec![holder(0, 80), holder(0, 46), holder(20, 20)], vec![50, 29, 20]),
            (vec![holder(30, 90), holder(40, 40)], vec![60, 40]),
            (vec![holder(90, 90), holder(60, 60), holder(0, 50)], vec![60, 40, 0]),
        ] {
            let shares: Vec<u64> = shares(100 * MIB, &holders)
                .into_iter()
                .map(|bytes| bytes / MIB)
                .collect();
            let is_near = |(share, expected): (&u64, &u64)| share.abs_diff(*expected) <= 1;
            assert!(shares.iter().zip(&expected).all(is_near), "{holders:?}: {shares:?}");
            assert!(shares.iter().sum::<u64>() <= 100, "{shares:?}");
        }
    }
}
