//! The values stored under keys: their sizes and their bytes.

use std::str::FromStr;

use tidemark_types::Size;

use super::rng::{mix, scale, unit};
use super::{Rng, WorkloadError};

/// The largest value: a server's default limit.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Values begin with as much of their key's hash as fits.
const HASH_BYTES: usize = 8;
/// The bytes behind the hash are cut from a ring of this many random bytes. The ring is larger than the usual value,
/// and fits a core's second-level cache.
const RING_BYTES: usize = 64 << 10;

/// How large values are. The size depends on the key alone, so that a reader knows what to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSize {
    /// All the same, in bytes.
    Fixed(usize),
    /// Sizes from one to another, both included, all equally likely, in bytes.
    Range(usize, usize),
    /// All values have one size, but one key in so many has a value of another size; in bytes.
    Outliers {
        /// The usual size.
        bytes: usize,
        /// The other one.
        outlier_bytes: usize,
        /// One key in so many.
        one_in: u64,
    },
    /// The values of Facebook's general-purpose pool ETC. Two in five have fewer than 15 bytes; the others follow a
    /// generalized Pareto law with a mean of 344 (Atikoglu et al., SIGMETRICS 2012).
    Etc,
}

/// Sizes of 0 to 14 bytes have shares of their own in ETC: B. Atikoglu, Y. Xu, E. Frachtenberg, S. Jiang, M. Paleczny,
/// "Workload analysis of a large-scale key-value store", SIGMETRICS 2012, section 5, as used by the load generator
/// mutilate (<https://github.com/leverich/mutilate>, `Generator.cc`).
const ETC_SMALL_SHARES: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837, 0.08989,
    0.00092, 0.00326, 0.01980,
];
/// The other sizes follow a generalized Pareto law with this location, scale and shape (same source).
const ETC_LOCATION_BYTES: f64 = 15.0;
const ETC_SCALE_BYTES: f64 = 214.476;
const ETC_SHAPE: f64 = 0.348_238;
/// The law has no end, ETC does: the paper's values reach one megabyte.
const ETC_MAX_BYTES: f64 = 1e6;

impl ValueSize {
    /// The size of the value of `key`, in bytes.
    #[inline]
    pub fn of(self, key: u64) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Range(least, most) => {
                let extra = scale(mix(key ^ SIZE_SALT), (most - least) as u64 + 1);
                // Below `most`, which is a `usize`.
                least + extra as usize
            }
            Self::Outliers {
                bytes,
                outlier_bytes,
                one_in,
            } => {
                if scale(mix(key ^ SIZE_SALT), one_in) == 0 {
                    outlier_bytes
                } else {
                    bytes
                }
            }
            Self::Etc => etc_bytes(unit(mix(key ^ SIZE_SALT))),
        }
    }

    /// The largest size that [`Self::of`] gives.
    pub fn largest(self) -> usize {
        match self {
            Self::Fixed(bytes) | Self::Range(_, bytes) => bytes,
            Self::Outliers {
                bytes, outlier_bytes, ..
            } => bytes.max(outlier_bytes),
            Self::Etc => ETC_MAX_BYTES as usize,
        }
    }
}

/// Keeps a value's size independent of its bytes.
const SIZE_SALT: u64 = 0x51_7E5A_17ED;

/// The size at a point of the distribution: small ones first, by their shares.
fn etc_bytes(point: f64) -> usize {
    let mut left = point;
    for (bytes, share) in ETC_SMALL_SHARES.into_iter().enumerate() {
        if left < share {
            return bytes;
        }
        left -= share;
    }
    let above = 1.0 - left / (1.0 - ETC_SMALL_SHARES.iter().sum::<f64>());
    let bytes = ETC_LOCATION_BYTES + ETC_SCALE_BYTES * (above.powf(-ETC_SHAPE) - 1.0) / ETC_SHAPE;
    bytes.min(ETC_MAX_BYTES) as usize
}

impl FromStr for ValueSize {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let error = || WorkloadError::ValueSize {
            given: text.chars().take(80).collect(),
        };
        let bytes = |text: &str| {
            let size: Size = text.parse().map_err(|_| error())?;
            let bytes = usize::try_from(size.0).ok().filter(|bytes| *bytes <= MAX_VALUE_BYTES);
            bytes.ok_or_else(error)
        };
        if text == "etc" {
            return Ok(Self::Etc);
        }
        let Some((least, most)) = text.split_once('-') else {
            return bytes(text).map(Self::Fixed);
        };
        let (least, most) = (bytes(least)?, bytes(most)?);
        if least > most {
            return Err(error());
        }
        Ok(Self::Range(least, most))
    }
}

/// Writes values and recognises them: the key's hash, then bytes that follow from it. Binary on purpose: line ends and
/// zeros occur.
#[derive(Clone, Debug)]
pub struct Values {
    ring: Box<[u8]>,
}

impl Default for Values {
    fn default() -> Self {
        let mut rng = Rng::new(0);
        let ring = (0..RING_BYTES / 8).flat_map(|_| rng.bits().to_le_bytes()).collect();
        Self { ring }
    }
}

impl Values {
    /// Appends the value of `key`, `size_bytes` long.
    #[inline]
    pub fn write(&self, key: u64, size_bytes: usize, out: &mut Vec<u8>) {
        let hash = mix(key).to_le_bytes();
        out.extend_from_slice(&hash[..size_bytes.min(HASH_BYTES)]);
        let mut written = HASH_BYTES;
        while written < size_bytes {
            let part = self.part(key, written, size_bytes - written);
            out.extend_from_slice(part);
            written += part.len();
        }
    }

    /// Whether `part` is the part of the value of `key` from byte `offset` on.
    #[inline]
    pub fn matches(&self, key: u64, offset: usize, part: &[u8]) -> bool {
        let hash = mix(key).to_le_bytes();
        let head_bytes = HASH_BYTES.saturating_sub(offset).min(part.len());
        let (head, mut rest) = part.split_at(head_bytes);
        if !head.is_empty() && head != &hash[offset..offset + head_bytes] {
            return false;
        }
        let mut offset = offset + head_bytes;
        while !rest.is_empty() {
            let expected = self.part(key, offset, rest.len());
            let (now, later) = rest.split_at(expected.len());
            if now != expected {
                return false;
            }
            offset += now.len();
            rest = later;
        }
        true
    }

    /// At least one and at most `most` bytes of the value of `key` from `offset` (behind the hash) on.
    #[inline]
    fn part(&self, key: u64, offset: usize, most: usize) -> &[u8] {
        // Another place of the ring for each key: a value that is another's but for the hash is recognised too.
        let at = ((mix(key) >> 32) as usize + offset) % RING_BYTES;
        let rest = &self.ring[at..];
        &rest[..rest.len().min(most)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("64", Some(ValueSize::Fixed(64))),
            ("1KiB", Some(ValueSize::Fixed(1024))),
            ("0", Some(ValueSize::Fixed(0))),
            ("100-1000", Some(ValueSize::Range(100, 1000))),
            ("1kB-1MiB", Some(ValueSize::Range(1000, 1 << 20))),
            ("5-5", Some(ValueSize::Range(5, 5))),
            ("etc", Some(ValueSize::Etc)),
            ("1048576", Some(ValueSize::Fixed(1 << 20))),
            ("1048577", None),
            ("1-2000000", None),
            ("9-8", None),
            ("-8", None),
            ("8-", None),
            ("many", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<ValueSize>().ok(), size, "{text:?}");
        }
    }

    #[test]
    fn ranges_are_even_and_reach_both_ends() {
        let mut counts = [0_u32; 5];
        for key in 0..50_000 {
            counts[ValueSize::Range(3, 7).of(key) - 3] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 450), "{counts:?}");
    }

    #[test]
    fn outliers_are_as_rare_as_said() {
        let size = ValueSize::Outliers {
            bytes: 3,
            outlier_bytes: 70,
            one_in: 100,
        };
        let sizes: Vec<usize> = (0..100_000).map(|key| size.of(key)).collect();
        let outliers = sizes.iter().filter(|bytes| **bytes == 70).count();
        // Five standard deviations.
        assert!(outliers.abs_diff(1000) < 160, "{outliers}");
        assert!(sizes.iter().all(|bytes| [3, 70].contains(bytes)));
        assert_eq!(size.largest(), 70);
    }

    #[test]
    fn etc_follows_its_source() {
        let keys = 400_000_u32;
        let sizes: Vec<usize> = (0..u64::from(keys)).map(|key| ValueSize::Etc.of(key)).collect();
        for (bytes, share) in ETC_SMALL_SHARES.into_iter().enumerate() {
            let count = sizes.iter().filter(|size| **size == bytes).count() as f64;
            let expected = share * f64::from(keys);
            assert!(
                (count - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                "{bytes}: {count}, expected {expected}"
            );
        }
        // Above: mean = location + scale / (1 - shape), half a byte less by cutting; the tail at 1,000 bytes by the law.
        let large: Vec<f64> = sizes
            .iter()
            .filter(|size| **size >= 15)
            .map(|size| *size as f64)
            .collect();
        let mean = large.iter().sum::<f64>() / large.len() as f64;
        let expected = ETC_LOCATION_BYTES + ETC_SCALE_BYTES / (1.0 - ETC_SHAPE) - 0.5;
        assert!((mean / expected - 1.0).abs() < 0.02, "{mean}, expected {expected}");
        let tail = large.iter().filter(|size| **size >= 1000.0).count() as f64 / large.len() as f64;
        let expected = (1.0 + ETC_SHAPE * (1000.0 - ETC_LOCATION_BYTES) / ETC_SCALE_BYTES).powf(-1.0 / ETC_SHAPE);
        assert!((tail / expected - 1.0).abs() < 0.05, "{tail}, expected {expected}");
        assert_eq!(etc_bytes(1.0 - f64::EPSILON), 1_000_000);
        assert!(sizes.iter().all(|size| *size <= ValueSize::Etc.largest()));
    }

    #[test]
    fn values_are_recognised_in_any_parts_and_others_are_not() {
        let values = Values::default();
        for size_bytes in [0, 1, 7, 8, 9, 64, 1000, RING_BYTES, 3 * RING_BYTES + 5] {
            for key in [0, 1, 77, u64::MAX] {
                let mut value = Vec::new();
                values.write(key, size_bytes, &mut value);
                assert_eq!(value.len(), size_bytes);
                for cut in [0, size_bytes.min(3), size_bytes.min(8), size_bytes / 2, size_bytes] {
                    assert!(values.matches(key, 0, &value[..cut]) && values.matches(key, cut, &value[cut..]));
                }
                assert!(
                    size_bytes == 0 || !values.matches(key ^ 2, 0, &value),
                    "{size_bytes} bytes of {key}"
                );
                for flipped in [0, size_bytes / 2, size_bytes.saturating_sub(1)] {
                    if let Some(byte) = value.get_mut(flipped) {
                        *byte ^= 1;
                        assert!(
                            !values.matches(key, 0, &value),
                            "{size_bytes} bytes of {key}, byte {flipped}"
                        );
                        value[flipped] ^= 1;
                    }
                }
            }
        }
    }
}
