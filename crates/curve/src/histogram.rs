//! Counts by reuse distance: bins of which sixteen make an octave, and exact counts at sizes that are known beforehand.
//!
//! Invariant: a distance counts as a hit at a size exactly if it is not above it. Distances and sizes are bytes; counts are
//! numbers of requests and need not be whole.

use crate::sample::{CLASSES, GROUPS};

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

/// How many requests miss in a cache of a size.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) bytes: u64,
    /// The misses of all requests.
    pub(crate) misses: f64,
    /// The misses of each group of keys.
    pub(crate) by_group: [f64; GROUPS],
    /// The hits of each size class, where classes are counted.
    pub(crate) by_class: [f64; CLASSES],
}

/// The counts.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// The bin in which all distances up to its end are.
    first: usize,
    /// For each bin from the first one on, its counts; as many as were needed so far.
    bins: Vec<Bin>,
    /// For each bin, the part of its hits that each size class has; empty unless that is counted.
    classes: Vec<ClassHits>,
    has_classes: bool,
    /// Sizes in ascending order.
    sizes: Vec<u64>,
    /// For each size, the counts of distances up to it and above the size before.
    at_sizes: Vec<Bin>,
    /// The largest distance or bound so far: behind it, nothing comes.
    largest: u64,
    /// A longer distance is a miss at any size.
    limit: u64,
}

/// A count that was scaled down to this is none.
const FADED: f64 = 1e-3;

/// As many as a sample makes, about: reckoned again and again, their list should not grow each time.
const STEPS: usize = 128;

/// Steps end if fewer than one of so many misses could still be seen to be a hit: further ones would be chance.
const SEEN_OF_MISSES: f64 = 16.0;

/// The hits of a bin by size class.
type ClassHits = [f32; CLASSES];

/// Requests whose distances lie in one range.
#[derive(Clone, Copy, Debug)]
struct Bin {
    /// Those whose distance is known.
    hits: Count,
    /// How many there are of whose distance only a lower bound is known, by the bound.
    above: f64,
}

impl Bin {
    const EMPTY: Self = Self {
        hits: Count::NONE,
        above: 0.0,
    };

    fn is_empty(&self) -> bool {
        self.hits.all == 0.0 && self.above == 0.0
    }

    fn scale(&mut self, factor: f64) {
        self.hits.scale(factor);
        self.above *= factor;
        if self.above < FADED {
            self.above = 0.0;
        }
    }
}

/// A number of requests, and each group's part of it.
#[derive(Clone, Copy, Debug)]
struct Count {
    all: f64,
    by_group: [f32; GROUPS],
}

impl Count {
    const NONE: Self = Self {
        all: 0.0,
        by_group: [0.0; GROUPS],
    };

    fn add(&mut self, group: usize, count: f64) {
        self.all += count;
        self.by_group[group] += count as f32;
    }

    fn scale(&mut self, factor: f64) {
        self.all *= factor;
        if self.all < FADED {
            *self = Self::NONE;
            return;
        }
        self.by_group.iter_mut().for_each(|part| *part *= factor as f32);
    }
}

impl Histogram {
    /// No counts yet; exact at these sizes. Distances below `grain` are counted together, as just above it.
    pub(crate) fn new(sizes: &[u64], grain: u64) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            first: bin_of(grain),
            bins: Vec::new(),
            classes: Vec::new(),
            has_classes: false,
            at_sizes: vec![Bin::EMPTY; sizes.len()],
            sizes,
            largest: 0,
            limit: u64::MAX,
        }
    }

    /// The same by size class, too, and exact at no size.
    pub(crate) fn of_classes(grain: u64) -> Self {
        Self {
            has_classes: true,
            ..Self::new(&[], grain)
        }
    }

    /// The memory of the bins of distances up to `reach`, in bytes, with size classes or without.
    pub(crate) fn bytes(grain: u64, reach: u64, has_classes: bool) -> u64 {
        let bins = bin_of(reach).saturating_sub(bin_of(grain)) + 1;
        let each = size_of::<Bin>() + if has_classes { size_of::<ClassHits>() } else { 0 };
        (bins * each) as u64
    }

    /// From now on longer distances are misses at any size, and take no memory.
    pub(crate) fn limit(&mut self, distance: u64) {
        self.limit = distance;
        self.largest = self.largest.min(distance);
        let bins = bin_of(distance).saturating_sub(self.first) + 1;
        if bins < self.bins.len() {
            self.bins.truncate(bins);
            self.bins.shrink_to_fit();
            self.classes.truncate(bins);
            self.classes.shrink_to_fit();
        }
    }

    /// Counts requests of a distance, for items of a class.
    #[inline]
    pub(crate) fn add(&mut self, distance: u64, group: usize, class: usize, count: f64) {
        if distance > self.limit {
            return;
        }
        self.at(distance, |bin| bin.hits.add(group, count));
        if self.has_classes {
            let place = bin_of(distance).saturating_sub(self.first);
            if place >= self.classes.len() {
                self.classes.reserve_exact(place + 1 - self.classes.len());
                self.classes.resize(place + 1, [0.0; CLASSES]);
            }
            self.classes[place][class] += count as f32;
        }
    }

    /// Counts requests of whose distance is only known that it is larger.
    pub(crate) fn add_above(&mut self, bound: u64, count: f64) {
        self.at(bound.min(self.limit), |bin| bin.above += count);
    }

    #[inline]
    fn at(&mut self, distance: u64, add: impl Fn(&mut Bin)) {
        self.largest = self.largest.max(distance);
        let place = bin_of(distance).saturating_sub(self.first);
        if place >= self.bins.len() {
            // The size is no more than is needed: an estimator's memory is budgeted.
            self.bins.reserve_exact(place + 1 - self.bins.len());
            self.bins.resize(place + 1, Bin::EMPTY);
        }
        add(&mut self.bins[place]);
        let size = self.sizes.partition_point(|size| *size < distance);
        if let Some(at_size) = self.at_sizes.get_mut(size) {
            add(at_size);
        }
    }

    /// Makes all counts smaller, so that later ones weigh more; with 0 there are none any more.
    pub(crate) fn scale(&mut self, factor: f64) {
        let mut last_used = None;
        // Most bins of a small sample are empty.
        for (place, bin) in self.bins.iter_mut().enumerate().filter(|(_, bin)| !bin.is_empty()) {
            bin.scale(factor);
            if !bin.is_empty() {
                last_used = Some(place);
            }
        }
        self.at_sizes.iter_mut().for_each(|bin| bin.scale(factor));
        for part in self.classes.iter_mut().flatten() {
            *part *= factor as f32;
        }
        self.largest = last_used.map_or(0, |place| self.largest.min(last_of(self.first + place)));
    }

    /// Misses in ascending order of size: at the last distance of each bin, at the largest of all, and at the sizes.
    /// `requests` counts the requests of each group; those that were not counted here miss at any size.
    ///
    /// A request of which only a bound is known says what it can: that it misses up to there. Beyond, it is taken to be like
    /// those whose distances are larger than the bound, too. (E. L. Kaplan, P. Meier, "Nonparametric estimation from
    /// incomplete observations", Journal of the American Statistical Association 53, 1958.) Where there are no bounds,
    /// counts are exact.
    pub(crate) fn steps(&self, requests: &[f64; GROUPS]) -> Vec<Step> {
        let used = self
            .bins
            .iter()
            .rposition(|bin| !bin.is_empty())
            .map_or(0, |last| last + 1);
        let bins = (self.first..).zip(&self.bins[..used]);
        let classes = self.classes.iter().chain(std::iter::repeat(&[0.0; CLASSES]));
        let mut steps = cumulate(
            requests,
            bins.zip(classes)
                .map(|((bin, counts), classes)| (last_of(bin).min(self.largest), counts, classes)),
        );
        let sizes = self.sizes.iter().zip(&self.at_sizes);
        steps.extend(cumulate(
            requests,
            sizes.map(|(size, counts)| (*size, counts, &[0.0; CLASSES])),
        ));
        steps.sort_by_key(|step| step.bytes);
        steps.dedup_by_key(|step| step.bytes);
        steps
    }
}

fn cumulate<'b>(requests: &[f64; GROUPS], bins: impl Iterator<Item = (u64, &'b Bin, &'b ClassHits)>) -> Vec<Step> {
    let mut misses: f64 = requests.iter().sum();
    let (mut by_group, mut by_class) = (*requests, [0.0; CLASSES]);
    // The misses whose distance is known, or known to be larger; the others' bounds were passed.
    let mut seen = misses;
    let mut steps: Vec<Step> = Vec::with_capacity(STEPS);
    let mut is_level = false;
    for (bytes, bin, classes) in bins {
        if seen * SEEN_OF_MISSES < misses {
            break;
        }
        if bin.hits.all > 0.0 {
            // The weight of each of those that are seen.
            let weight = if seen > 0.0 { misses / seen } else { 0.0 };
            misses = (misses - bin.hits.all * weight).max(0.0);
            for (part, hits) in by_group.iter_mut().zip(bin.hits.by_group) {
                *part -= f64::from(hits) * weight;
            }
            for (part, hits) in by_class.iter_mut().zip(classes) {
                *part += f64::from(*hits) * weight;
            }
        }
        seen = (seen - bin.hits.all - bin.above).max(0.0);
        // The ends of a level stretch are enough.
        if std::mem::replace(&mut is_level, bin.is_empty()) && is_level {
            steps.pop();
        }
        steps.push(Step {
            bytes,
            misses,
            by_group,
            by_class,
        });
    }
    steps
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

    /// So many requests of the first group.
    fn requests(count: f64) -> [f64; GROUPS] {
        let mut requests = [0.0; GROUPS];
        requests[0] = count;
        requests
    }

    #[test]
    fn scaled_counts_keep_their_shares_until_they_fade() {
        let mut histogram = Histogram::new(&[100], 0);
        histogram.add(50, 0, 0, 8.0);
        histogram.add(5000, 0, 0, 0.01);
        let hits = |histogram: &Histogram, bytes: u64| {
            let steps = histogram.steps(&requests(100.0));
            let step = steps.iter().rfind(|step| step.bytes <= bytes);
            step.map(|step| 100.0 - step.misses)
        };
        let is = |histogram: &Histogram, bytes: u64, count: f64| (hits(histogram, bytes).unwrap() - count).abs() < 1e-9;
        histogram.scale(0.5);
        assert!(is(&histogram, 100, 4.0) && is(&histogram, 5000, 4.005));
        histogram.scale(0.1);
        assert!(is(&histogram, 5000, 0.4));
        assert!(histogram.largest < 100, "what faded has no distance");
        histogram.scale(0.0);
        assert!(
            histogram
                .steps(&requests(100.0))
                .iter()
                .all(|step| step.misses == 100.0)
        );
    }

    #[test]
    fn counts_are_exact_at_sizes_and_at_the_ends_of_bins() {
        let mut histogram = Histogram::new(&[1000, 100_003, 5], 0);
        for distance in 1..=200_000 {
            histogram.add(distance, 0, 0, 1.0);
        }
        let steps = histogram.steps(&requests(300_000.0));
        assert!(steps.is_sorted_by(|a, b| a.bytes < b.bytes));
        assert!(steps.iter().any(|step| step.bytes == 200_000), "the largest distance");
        for step in &steps {
            assert_eq!(step.misses, 300_000.0 - step.bytes.min(200_000) as f64, "{step:?}");
            assert_eq!(step.by_group[0], step.misses);
        }
        assert!(
            [5, 1000, 100_003]
                .iter()
                .all(|size| steps.iter().any(|step| step.bytes == *size))
        );
    }

    #[test]
    fn small_distances_are_counted_together_and_take_no_memory() {
        let (grain, reach) = (1 << 14, 3 << 29);
        let mut histogram = Histogram::new(&[], grain);
        for distance in [1, 100, grain - 1, grain, grain << 1, reach] {
            histogram.add(distance, 0, 0, 1.0);
        }
        let steps = histogram.steps(&requests(6.0));
        // Up to the end of the first bin nothing is known to hit; from there on, all four that lie in it.
        assert!(
            steps[0].bytes >= grain && steps[0].bytes < grain + grain / 8,
            "{steps:?}"
        );
        assert_eq!(steps[0].misses, 2.0);
        assert_eq!(steps.last().map(|step| (step.bytes, step.misses)), Some((reach, 0.0)));
        let held = (histogram.bins.capacity() * size_of::<Bin>()) as u64;
        assert_eq!(Histogram::bytes(grain, reach, false), held);
        assert!(held * 3 < Histogram::bytes(0, reach, false) * 2);
        // A distance beyond a limit is a miss, whether it was added before the limit was set or after.
        histogram.limit(grain << 2);
        histogram.add(reach, 0, 0, 1.0);
        histogram.add_above(reach, 1.0);
        let held = (histogram.bins.capacity() * size_of::<Bin>()) as u64;
        assert_eq!(Histogram::bytes(grain, grain << 2, false), held);
        let last = histogram
            .steps(&requests(8.0))
            .pop()
            .map(|step| (step.bytes, step.misses));
        assert_eq!(last, Some((grain << 2, 3.0)));
    }

    #[test]
    fn beyond_its_bound_a_request_is_like_the_others_beyond_it() {
        // Two of the eight hit at 10 and two are above 20, whatever they are. Two of the remaining four hit at 40 and
        // two miss.
        let mut histogram = Histogram::new(&[10, 40], 0);
        for (hits, distance) in [(2.0, 10), (2.0, 40)] {
            histogram.add(distance, 0, 0, hits);
        }
        histogram.add_above(20, 2.0);
        let steps = histogram.steps(&requests(8.0));
        let misses = |bytes: u64| steps.iter().rfind(|step| step.bytes <= bytes).map(|step| step.misses);
        assert_eq!([10, 20, 40].map(misses), [Some(6.0), Some(6.0), Some(3.0)]);
    }

    #[test]
    fn steps_end_where_nearly_all_is_unknown() {
        let mut histogram = Histogram::new(&[], 0);
        histogram.add_above(20, 99.0);
        histogram.add(40, 0, 0, 1.0);
        let steps = histogram.steps(&requests(100.0));
        assert!(steps.iter().all(|step| step.misses == 100.0), "{steps:?}");
        assert!(steps.last().is_some_and(|step| step.bytes < 40), "{steps:?}");
    }
}
