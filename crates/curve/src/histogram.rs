//! Counts by reuse distance: bins of which sixteen make an octave, and exact counts at sizes that are known beforehand.
//!
//! Invariant: a distance counts as a hit at a size exactly if it is not above it. Distances and sizes are bytes; counts are
//! numbers of requests and need not be whole.

use crate::sample::GROUPS;

/// Bins of an octave: a sixteenth of an octave is less than sampling can tell apart.
const OCTAVE_BINS: u64 = 1 << OCTAVE_BITS;
const OCTAVE_BITS: u32 = 4;
/// Distances of this many bits and more are counted together: 256 TiB, more than a machine has.
const DISTANCE_BITS: u32 = 48;
#[cfg(test)]
const BINS: usize = ((DISTANCE_BITS - OCTAVE_BITS + 1) as usize) << OCTAVE_BITS;

/// The bin of a distance.
fn bin_of(distance: u64) -> usize {
    let distance = distance.min((1 << DISTANCE_BITS) - 1);
    if distance < OCTAVE_BINS {
        return distance as usize;
    }
    let octave = u64::BITS - 1 - distance.leading_zeros() - OCTAVE_BITS;
    ((u64::from(octave) << OCTAVE_BITS) + (distance >> octave)) as usize
}

/// The largest distance of a bin.
fn last_of(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < OCTAVE_BINS {
        return bin;
    }
    let octave = (bin >> OCTAVE_BITS) - 1;
    (((bin % OCTAVE_BINS) + OCTAVE_BINS + 1) << octave) - 1
}

/// How many requests have distances up to a size.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) bytes: u64,
    /// Of all requests.
    pub(crate) count: f64,
    /// Of each group of keys.
    pub(crate) by_group: [f64; GROUPS],
}

/// The counts.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// For each bin, its count and the groups'; as many as were needed so far.
    bins: Vec<Bin>,
    /// Sizes in ascending order.
    sizes: Vec<u64>,
    /// For each size, the count of distances up to it and above the size before.
    at_sizes: Vec<Bin>,
    /// The largest distance so far: behind it, nothing comes.
    largest: u64,
}

/// A count that was scaled down to this is none.
const FADED: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
struct Bin {
    count: f64,
    by_group: [f32; GROUPS],
}

impl Bin {
    const EMPTY: Self = Self {
        count: 0.0,
        by_group: [0.0; GROUPS],
    };

    fn add(&mut self, group: usize, count: f64) {
        self.count += count;
        self.by_group[group] += count as f32;
    }

    fn scale(&mut self, factor: f64) {
        self.count *= factor;
        if self.count < FADED {
            *self = Self::EMPTY;
            return;
        }
        self.by_group.iter_mut().for_each(|part| *part *= factor as f32);
    }
}

impl Histogram {
    /// No counts yet; exact at these sizes.
    pub(crate) fn new(sizes: &[u64]) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            bins: Vec::new(),
            at_sizes: vec![Bin::EMPTY; sizes.len()],
            sizes,
            largest: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, distance: u64, group: usize, count: f64) {
        self.largest = self.largest.max(distance);
        let bin = bin_of(distance);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, Bin::EMPTY);
        }
        self.bins[bin].add(group, count);
        let size = self.sizes.partition_point(|size| *size < distance);
        if let Some(at_size) = self.at_sizes.get_mut(size) {
            at_size.add(group, count);
        }
    }

    /// Makes all counts smaller, so that what comes weighs more; with 0 there are none any more.
    pub(crate) fn scale(&mut self, factor: f64) {
        let mut largest_bin = None;
        for (place, bin) in self.bins.iter_mut().enumerate() {
            bin.scale(factor);
            if bin.count > 0.0 {
                largest_bin = Some(place);
            }
        }
        self.at_sizes.iter_mut().for_each(|bin| bin.scale(factor));
        self.largest = largest_bin.map_or(0, |bin| self.largest.min(last_of(bin)));
    }

    /// Cumulated counts in ascending order of size: at the last distance of each bin, at the largest of all, and at the sizes.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let used = self
            .bins
            .iter()
            .rposition(|bin| bin.count > 0.0)
            .map_or(0, |last| last + 1);
        let bins = self.bins[..used]
            .iter()
            .enumerate()
            .map(|(bin, counts)| (last_of(bin).min(self.largest), counts));
        let mut steps = cumulate(bins);
        steps.extend(cumulate(self.sizes.iter().copied().zip(&self.at_sizes)));
        steps.sort_by_key(|step| step.bytes);
        steps.dedup_by_key(|step| step.bytes);
        steps
    }
}

fn cumulate<'b>(bins: impl Iterator<Item = (u64, &'b Bin)>) -> Vec<Step> {
    let (mut count, mut by_group) = (0.0, [0.0; GROUPS]);
    bins.map(|(bytes, bin)| {
        count += bin.count;
        for (sum, part) in by_group.iter_mut().zip(bin.by_group) {
            *sum += f64::from(part);
        }
        Step { bytes, count, by_group }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_each_other_without_gaps() {
        for bin in 0..BINS - 1 {
            let last = last_of(bin);
            assert_eq!((bin_of(last), bin_of(last + 1)), (bin, bin + 1), "up to {last}");
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
        assert_eq!(last_of(BINS - 1), (1 << DISTANCE_BITS) - 1);
    }

    #[test]
    fn scaled_counts_keep_their_shares_until_they_fade() {
        let mut histogram = Histogram::new(&[100]);
        histogram.add(50, 0, 8.0);
        histogram.add(5000, 1, 0.01);
        let at = |histogram: &Histogram, bytes: u64| {
            let steps = histogram.steps();
            steps.iter().rfind(|step| step.bytes <= bytes).map(|step| step.count)
        };
        histogram.scale(0.5);
        assert_eq!(at(&histogram, 100), Some(4.0));
        assert_eq!(at(&histogram, 5000), Some(4.005));
        histogram.scale(0.1);
        assert!((at(&histogram, 5000).unwrap() - 0.4).abs() < 1e-9);
        assert!(histogram.largest < 100, "what faded has no distance");
        histogram.scale(0.0);
        assert!(histogram.steps().iter().all(|step| step.count == 0.0));
    }

    #[test]
    fn counts_are_exact_at_sizes_and_at_the_ends_of_bins() {
        let mut histogram = Histogram::new(&[1000, 100_003, 5]);
        for distance in 1..=200_000 {
            histogram.add(distance, 0, 1.0);
        }
        let steps = histogram.steps();
        assert!(steps.is_sorted_by(|a, b| a.bytes < b.bytes));
        assert!(steps.iter().any(|step| step.bytes == 200_000), "the largest distance");
        for step in &steps {
            assert_eq!(step.count, step.bytes.min(200_000) as f64, "{step:?}");
            assert_eq!(step.by_group[0], step.count);
        }
        assert!(
            [5, 1000, 100_003]
                .iter()
                .all(|size| steps.iter().any(|step| step.bytes == *size))
        );
    }
}
