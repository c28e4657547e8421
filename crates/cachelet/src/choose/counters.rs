//! The counts: per sampled key and node, and for all operations together.
//!
//! Keys are sampled by their hash, so that all nodes sample the same ones. A node keeps at most [`SAMPLED_KEYS`] and
//! halves its share when there are more. Rows of nodes are joined by key. Figures are of one interval.

use std::collections::{BTreeMap, BTreeSet};

use super::ghost::Ghost;
use crate::config::Replacement;
use crate::message::Source;
use crate::types::{Key, Version, key_hash, mix};
use crate::view::{PARTITIONS, partition};

/// Keys that a node counts by themselves, about 1 KiB each with ghosts.
pub const SAMPLED_KEYS: usize = 512;

/// Groups of instances that a node keeps apart for each scope; further ones share the last place.
const GROUPS: usize = 64;

/// Replacement policies, each of which has its ghosts.
const POLICIES: usize = Replacement::ALL.len();

/// Keys that were not used for so many intervals are forgotten.
const IDLE_INTERVALS: u32 = 8;

/// An operation that ended.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// The key.
    pub key: &'a Key,
    /// The value's size; zero where there is no object.
    pub size_bytes: u64,
    /// Whether it was a write.
    pub is_write: bool,
    /// The version that was read or written, if the store has it.
    pub version: Option<&'a Version>,
    /// The source of a read's answer.
    pub source: Source,
    /// The function, as a number of the node's own.
    pub function: u64,
    /// The instance, as a number of the node's own.
    pub instance: u64,
    /// How long it took.
    pub took_us: u64,
}

/// Reads of a key by the instances of one scope, by the worth of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reuse {
    /// Reads of values that the group had read or written last: a copy would be current.
    pub repeated: u32,
    /// Those among them for which the copy would still be there, per replacement policy.
    pub resident: [u32; POLICIES],
    /// Reads of values that somebody else had written meanwhile.
    pub changed: u32,
    /// First reads of the group.
    pub first: u32,
}

/// The counts of a key at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KeyRow {
    /// The key's hash.
    pub hash: u64,
    /// The value's size.
    pub size_bytes: u64,
    /// Reads.
    pub reads: u32,
    /// Writes.
    pub writes: u32,
    /// Whether the node saw the key for the first time in this interval.
    pub is_new: bool,
    /// Cachelets of the node that would have used it, by scope: instance, function, application.
    pub cachelets: [u32; 3],
    /// Reads, by scope.
    pub reuse: [Reuse; 3],
}

/// Operations and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Microseconds of all.
    pub us: u64,
}

/// The counts of a node in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The node's cluster.
    pub cluster: u32,
    /// One key in `1 << sampled_shift` is sampled.
    pub sampled_shift: u32,
    /// Sampled keys.
    pub rows: Vec<KeyRow>,
    /// Operations of all keys, by partition.
    pub times: [Times; PARTITIONS as usize],
    /// Reads of all keys.
    pub reads: u64,
    /// Writes of all keys.
    pub writes: u64,
    /// Reads that the own copies answered.
    pub hits: u64,
    /// Copies that were there at the end.
    pub copies: u64,
    /// Cachelets of the node that would have been used, by scope.
    pub cachelets: [u32; 3],
}

/// The counts of a domain in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// How long the interval was.
    pub interval_us: u64,
    /// Per node.
    pub reports: Vec<Report>,
}

/// A sampled key of a domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyCounters {
    /// The rows of the nodes that used it, with their clusters.
    pub rows: Vec<(u32, KeyRow)>,
}

impl Counters {
    /// Sampled keys, each with the rows of all nodes that sampled it, and how many keys each one stands for.
    #[must_use]
    pub fn keys(&self) -> (Vec<KeyCounters>, f64) {
        let shift = self
            .reports
            .iter()
            .map(|report| report.sampled_shift)
            .max()
            .unwrap_or(0);
        let mut keys: BTreeMap<u64, KeyCounters> = BTreeMap::new();
        for report in &self.reports {
            for row in report.rows.iter().filter(|row| is_sampled(row.hash, shift)) {
                keys.entry(row.hash).or_default().rows.push((report.cluster, *row));
            }
        }
        (keys.into_values().collect(), 2_f64.powi(shift.cast_signed()))
    }

    /// Operations of all nodes in some partitions.
    #[must_use]
    pub fn times(&self, is_of: impl Fn(u8) -> bool) -> Times {
        let mut sum = Times::default();
        for report in &self.reports {
            for (_, times) in (0_u8..).zip(&report.times).filter(|(number, _)| is_of(*number)) {
                sum.count += times.count;
                sum.us += times.us;
            }
        }
        sum
    }

    /// The mean time of an operation, in microseconds; zero without operations.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        let times = self.times(|_| true);
        times.us as f64 / times.count.max(1) as f64
    }
}

fn is_sampled(hash: u64, shift: u32) -> bool {
    mix(hash).trailing_zeros() >= shift
}

/// The memory of one scope about a key.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The last version of each group, as a hash.
    marks: BTreeMap<u64, u64>,
    /// The groups that used the key since the last report.
    users: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
struct Tracked {
    row: KeyRow,
    seen: [Seen; 3],
    last_mark: u64,
    own_writes: u64,
    idle: u32,
}

/// Counts the operations of a node in one domain.
#[derive(Clone, Debug)]
pub struct Meter {
    cluster: u32,
    shift: u32,
    keys: BTreeMap<Key, Tracked>,
    /// Per scope and group, one ghost per policy.
    ghosts: [BTreeMap<u64, [Ghost; POLICIES]>; 3],
    /// Per scope, the groups that used a sampled key since the last report.
    users: [BTreeSet<u64>; 3],
    budget_bytes: u64,
    report: Report,
}

impl Meter {
    /// One of a node in a cluster, whose copies may take so much.
    #[must_use]
    pub fn new(cluster: u32, budget_bytes: u64) -> Self {
        Self {
            cluster,
            shift: 0,
            keys: BTreeMap::new(),
            ghosts: [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()],
            users: [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()],
            budget_bytes,
            report: Report::default(),
        }
    }

    /// The memory that copies may take.
    pub fn set_budget(&mut self, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
    }

    /// An operation ended.
    pub fn note(&mut self, now_us: u64, access: &Access<'_>) {
        let times = &mut self.report.times[usize::from(partition(access.key))];
        times.count += 1;
        times.us += access.took_us;
        if access.is_write {
            self.report.writes += 1;
        } else {
            self.report.reads += 1;
            self.report.hits += u64::from(access.source == Source::Copy);
        }
        let hash = key_hash(access.key);
        if is_sampled(hash, self.shift) {
            self.note_sampled(now_us, hash, access);
            if self.keys.len() > SAMPLED_KEYS {
                self.sample_less();
            }
        }
    }

    /// The counts since the last report; `copies` is the cachelet's number of copies.
    pub fn take(&mut self, copies: u64) -> Report {
        let mut report = std::mem::take(&mut self.report);
        report.cluster = self.cluster;
        report.sampled_shift = self.shift;
        report.copies = copies;
        report.cachelets = self.users.each_mut().map(take_count);
        self.keys.retain(|_, tracked| {
            tracked.idle = if tracked.row.reads + tracked.row.writes > 0 {
                0
            } else {
                tracked.idle + 1
            };
            tracked.idle < IDLE_INTERVALS
        });
        for tracked in self.keys.values_mut().filter(|tracked| tracked.idle == 0) {
            tracked.row.cachelets = tracked.seen.each_mut().map(|seen| take_count(&mut seen.users));
            report.rows.push(tracked.row);
            let (hash, size_bytes) = (tracked.row.hash, tracked.row.size_bytes);
            tracked.row = KeyRow {
                hash,
                size_bytes,
                ..KeyRow::default()
            };
        }
        report
    }

    fn sample_less(&mut self) {
        self.shift += 1;
        let shift = self.shift;
        self.keys.retain(|_, tracked| is_sampled(tracked.row.hash, shift));
        // Ghosts begin again with the smaller share.
        self.ghosts = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
    }

    fn note_sampled(&mut self, now_us: u64, hash: u64, access: &Access<'_>) {
        let is_new = !self.keys.contains_key(access.key);
        let tracked = self.keys.entry(access.key.clone()).or_default();
        let row = &mut tracked.row;
        row.hash = hash;
        row.is_new |= is_new;
        row.size_bytes = access.size_bytes;
        let mark = mark(tracked, access, is_new);
        let groups = [access.instance, access.function, 0];
        if access.is_write {
            tracked.row.writes += 1;
        } else {
            tracked.row.reads += 1;
        }
        tracked.last_mark = mark;
        let places = (self.budget_bytes >> self.shift).max(1);
        for (scope, group) in groups.into_iter().enumerate() {
            let group = group % GROUPS as u64;
            self.users[scope].insert(group);
            tracked.seen[scope].users.insert(group);
            let ghosts = &mut self.ghosts[scope];
            let count = (ghosts.len() + usize::from(!ghosts.contains_key(&group))).max(1);
            let budget_bytes = places / count as u64;
            let ghosts = ghosts.entry(group).or_insert_with(|| Replacement::ALL.map(Ghost::new));
            let bytes = access.size_bytes + crate::protocol::COPY_OVERHEAD_BYTES;
            let mut was_there = [false; POLICIES];
            for (there, ghost) in was_there.iter_mut().zip(ghosts) {
                *there = ghost.touch(access.key, bytes, budget_bytes, now_us);
            }
            let old = tracked.seen[scope].marks.insert(group, mark);
            if !access.is_write {
                count_read(&mut tracked.row.reuse[scope], old.map(|old| old == mark), was_there);
            }
        }
    }
}

/// How many groups there are; the next ones are counted from now on.
fn take_count(users: &mut BTreeSet<u64>) -> u32 {
    std::mem::take(users).len() as u32
}

/// A number that changes when the value does. If the store does not have the value, only the source tells.
fn mark(tracked: &mut Tracked, access: &Access<'_>, is_new: bool) -> u64 {
    match access.version {
        Some(Version::Absent) => 1,
        Some(Version::Tag(tag)) => key_hash(&Key(tag.clone())) | 2,
        None if access.is_write => {
            tracked.own_writes += 1;
            mix(tracked.own_writes) | 2
        }
        None if matches!(access.source, Source::Copy | Source::Validated) && !is_new => tracked.last_mark,
        None => mix(tracked.last_mark) | 2,
    }
}

fn count_read(reuse: &mut Reuse, is_same: Option<bool>, was_there: [bool; POLICIES]) {
    match is_same {
        None => reuse.first += 1,
        Some(false) => reuse.changed += 1,
        Some(true) => {
            reuse.repeated += 1;
            for (count, there) in reuse.resident.iter_mut().zip(was_there) {
                *count += u32::from(there);
            }
        }
    }
}
