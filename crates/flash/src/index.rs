//! The places of records: 8 bytes for each, in buckets of 64.
//!
//! A key has two buckets. The second one follows from the first and the tag alone, so that entries are moved between
//! theirs without their keys (cuckoo filters: Fan et al., CoNEXT 2014). An entry is a hint: only the record says whose
//! it is. Invariant: an entry that is not found is not there. One that cannot be kept is handed back, so that its
//! record can be declared dead.

/// Entries in a bucket.
pub(crate) const BUCKET_ENTRIES: usize = 8;
/// The part of all entries that is in use at most, in percent: beyond, inserts move others ever longer.
const FILL_PERCENT: u64 = 92;
/// Moves for an insert at most, before an entry is given up.
const MOVES_MAX: usize = 128;

/// An entry: place 34 bits (in units of 64 bytes), tag 16, size class 7, uses 2, shadow 1, database 4; all zero is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry(u64);

/// How often a record was used, as far as is counted.
pub(crate) const USES_MAX: u8 = 3;
/// Databases of a tenant: as many as four bits tell apart.
pub(crate) const DATABASES: usize = 16;
/// Records below so many units have a size class of their own.
const EXACT_UNITS: usize = 64;
/// Size classes for each doubling from there on.
const DOUBLING_CLASSES: usize = 8;

impl IndexEntry {
    /// An entry of a record at this unit of the device.
    pub(crate) fn new(place: u64, hash: u64, units: usize, db: u8) -> Self {
        debug_assert!(place > 0 && place < 1 << 34, "1 TiB in units of 64 bytes");
        // There are no others; a device's bytes could say so.
        let db = usize::from(db).min(DATABASES - 1) as u64;
        Self(place | u64::from(tag(hash)) << 34 | u64::from(class(units)) << 50 | db << 60)
    }

    /// Its record's database.
    pub(crate) fn db(self) -> usize {
        (self.0 >> 60) as usize
    }

    /// The record's place, in units of 64 bytes from the device's beginning.
    pub(crate) fn place(self) -> u64 {
        self.0 & ((1 << 34) - 1)
    }

    /// Units that hold the record: as many as it has below 4 KiB, from there on at most an eighth more.
    pub(crate) fn units(self) -> usize {
        class_units((self.0 >> 50) as u8 & 0x7F)
    }

    pub(crate) fn uses(self) -> u8 {
        (self.0 >> 57) as u8 & USES_MAX
    }

    /// Whether memory holds the record, too.
    pub(crate) fn is_shadow(self) -> bool {
        self.0 >> 59 & 1 == 1
    }

    fn tag(self) -> u16 {
        (self.0 >> 34) as u16
    }

    fn with_uses(self, uses: u8) -> Self {
        Self(self.0 & !(u64::from(USES_MAX) << 57) | u64::from(uses.min(USES_MAX)) << 57)
    }

    fn with_shadow(self, is_shadow: bool) -> Self {
        Self(self.0 & !(1 << 59) | u64::from(is_shadow) << 59)
    }
}

/// The bits of the hash that an entry keeps.
fn tag(hash: u64) -> u16 {
    hash as u16
}

/// The size class of so many units, below 128.
fn class(units: usize) -> u8 {
    if units < EXACT_UNITS {
        return units as u8;
    }
    let mut doublings = (units / EXACT_UNITS).ilog2() as usize;
    let mut steps = units.div_ceil(step_units(doublings)) - DOUBLING_CLASSES;
    if steps == DOUBLING_CLASSES {
        (doublings, steps) = (doublings + 1, 0);
    }
    (EXACT_UNITS + doublings * DOUBLING_CLASSES + steps).min(127) as u8
}

fn class_units(class: u8) -> usize {
    match usize::from(class).checked_sub(EXACT_UNITS) {
        None => usize::from(class),
        Some(above) => (DOUBLING_CLASSES + above % DOUBLING_CLASSES) * step_units(above / DOUBLING_CLASSES),
    }
}

/// How far apart classes are after so many doublings, in units.
fn step_units(doublings: usize) -> usize {
    (EXACT_UNITS / DOUBLING_CLASSES) << doublings
}

/// A table of entries.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Vec<[u64; BUCKET_ENTRIES]>,
    entries: u64,
    /// Chooses which entry is moved.
    turn: u64,
    /// Entries that were moved to their other bucket.
    moves: u64,
}

impl Table {
    /// A table for so many records.
    pub(crate) fn for_records(records: u64) -> Self {
        let buckets = (records * 100).div_ceil(FILL_PERCENT * BUCKET_ENTRIES as u64).max(4);
        Self {
            buckets: vec![[0; BUCKET_ENTRIES]; buckets as usize],
            entries: 0,
            turn: 0,
            moves: 0,
        }
    }

    /// A table of these buckets, without shadows: of what memory held nothing is left. `None` if one of its entries names no
    /// place among these, or if it has no buckets.
    pub(crate) fn restored(mut buckets: Vec<[u64; BUCKET_ENTRIES]>, places: std::ops::Range<u64>) -> Option<Self> {
        let mut entries = 0;
        for word in buckets.as_flattened_mut().iter_mut().filter(|word| **word != 0) {
            let entry = IndexEntry(*word);
            if !places.contains(&entry.place()) {
                return None;
            }
            *word = entry.with_shadow(false).0;
            entries += 1;
        }
        (!buckets.is_empty()).then_some(Self {
            buckets,
            entries,
            turn: 0,
            moves: 0,
        })
    }

    /// All of its buckets.
    pub(crate) fn content(&self) -> &[[u64; BUCKET_ENTRIES]] {
        &self.buckets
    }

    /// All entries.
    pub(crate) fn each(&self) -> impl Iterator<Item = IndexEntry> + '_ {
        self.buckets
            .as_flattened()
            .iter()
            .filter(|word| **word != 0)
            .map(|word| IndexEntry(*word))
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Records that it is made for.
    pub(crate) fn room(&self) -> u64 {
        (self.buckets.len() * BUCKET_ENTRIES) as u64 * FILL_PERCENT / 100
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.buckets.len() * BUCKET_ENTRIES * 8) as u64
    }

    /// Entries that may be this key's.
    pub(crate) fn matches(&self, hash: u64) -> impl Iterator<Item = IndexEntry> + '_ {
        let tag = tag(hash);
        self.both(hash)
            .into_iter()
            .flat_map(|bucket| self.buckets[bucket])
            .filter(|word| *word != 0)
            .map(IndexEntry)
            .filter(move |entry| entry.tag() == tag)
    }

    /// Puts an entry in; one that found no place is handed back, perhaps another one.
    pub(crate) fn insert(&mut self, hash: u64, entry: IndexEntry) -> Option<IndexEntry> {
        for bucket in self.both(hash) {
            if self.place(bucket, entry) {
                return None;
            }
        }
        let mut homeless = entry;
        let mut bucket = self.first(hash);
        for _ in 0..MOVES_MAX {
            self.turn = self
                .turn
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let place = (self.turn >> 61) as usize;
            self.moves += 1;
            homeless = IndexEntry(std::mem::replace(&mut self.buckets[bucket][place], homeless.0));
            bucket = self.other(bucket, homeless.tag());
            if self.place(bucket, homeless) {
                return None;
            }
        }
        Some(homeless)
    }

    /// Takes an entry out: the one of this place.
    pub(crate) fn remove(&mut self, hash: u64, place: u64) -> Option<IndexEntry> {
        let word = self.find(hash, place)?;
        let entry = IndexEntry(*word);
        *word = 0;
        self.entries -= 1;
        Some(entry)
    }

    /// Counts a use of the record at this place.
    pub(crate) fn note_use(&mut self, hash: u64, place: u64) {
        if let Some(word) = self.find(hash, place) {
            let entry = IndexEntry(*word);
            *word = entry.with_uses(entry.uses() + 1).0;
        }
    }

    /// Says whether memory holds the record at this place, too; `None` if the entry is gone, else whether that changed.
    pub(crate) fn set_shadow(&mut self, hash: u64, place: u64, is_shadow: bool) -> Option<bool> {
        let word = self.find(hash, place)?;
        let entry = IndexEntry(*word);
        *word = entry.with_shadow(is_shadow).0;
        Some(entry.is_shadow() != is_shadow)
    }

    /// Entries that were ever moved: a part of the table that was looked through may have got others since.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Buckets that it has.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Takes out every entry that is not to stay.
    pub(crate) fn retain(&mut self, stays: impl FnMut(IndexEntry) -> bool) {
        self.retain_in(0..self.buckets.len(), stays);
    }

    /// The same in some of the buckets.
    pub(crate) fn retain_in(&mut self, buckets: std::ops::Range<usize>, mut stays: impl FnMut(IndexEntry) -> bool) {
        for word in self.buckets[buckets].as_flattened_mut() {
            if *word != 0 && !stays(IndexEntry(*word)) {
                *word = 0;
                self.entries -= 1;
            }
        }
    }

    fn find(&mut self, hash: u64, place: u64) -> Option<&mut u64> {
        let tag = tag(hash);
        let is_it = |word: u64| word != 0 && IndexEntry(word).place() == place && IndexEntry(word).tag() == tag;
        let [first, second] = self.both(hash);
        let (bucket, slot) = [first, second].into_iter().find_map(|bucket| {
            self.buckets[bucket]
                .iter()
                .position(|word| is_it(*word))
                .map(|slot| (bucket, slot))
        })?;
        Some(&mut self.buckets[bucket][slot])
    }

    fn place(&mut self, bucket: usize, entry: IndexEntry) -> bool {
        let Some(word) = self.buckets[bucket].iter_mut().find(|word| **word == 0) else {
            return false;
        };
        *word = entry.0;
        self.entries += 1;
        true
    }

    /// Both buckets; the same one twice is told once.
    fn both(&self, hash: u64) -> [usize; 2] {
        let first = self.first(hash);
        [first, self.other(first, tag(hash))]
    }

    fn first(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// The bucket that together with this one makes the tag's sum. A bucket that would be its own other has the next one.
    fn other(&self, bucket: usize, tag: u16) -> usize {
        let count = self.buckets.len();
        // Odd sums of an even number of buckets never pair a bucket with itself.
        let sum = (u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize % count;
        (sum + count - bucket) % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        let mixed = u128::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        (mixed >> 64) as u64 ^ mixed as u64
    }

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        // The longest key and value have 5,121 units.
        for units in 1..=5200_usize {
            let held = class_units(class(units));
            let most = if units <= 64 { units } else { units * 9 / 8 };
            assert!((units..=most).contains(&held), "{units} {held}");
        }
    }

    #[test]
    fn parts_of_an_entry_do_not_touch_each_other() {
        for db in 0..DATABASES as u8 {
            let entry = IndexEntry::new((1 << 34) - 1, u64::MAX, 5200, db);
            for (uses, is_shadow) in [(0, true), (USES_MAX, false), (USES_MAX, true)] {
                let entry = entry.with_uses(uses).with_shadow(is_shadow);
                assert_eq!(
                    (entry.db(), entry.uses(), entry.is_shadow()),
                    (usize::from(db), uses, is_shadow)
                );
                assert_eq!(
                    (entry.place(), entry.tag(), entry.units()),
                    ((1 << 34) - 1, u16::MAX, 5632)
                );
            }
        }
    }

    #[test]
    fn a_full_table_finds_all_and_takes_at_most_ten_and_a_half_bytes_a_record() {
        let records = 50_000;
        let mut table = Table::for_records(records);
        for n in 0..records {
            assert_eq!(
                table.insert(hash(n), IndexEntry::new(n + 1, hash(n), 17, 0)),
                None,
                "{n}"
            );
        }
        assert!(table.bytes() as f64 / records as f64 <= 10.5, "{}", table.bytes());
        assert_eq!((table.entries(), table.room() >= records), (records, true));
        for n in 0..records {
            let found: Vec<u64> = table.matches(hash(n)).map(IndexEntry::place).collect();
            assert!(found.contains(&(n + 1)), "{n}");
        }
        let strangers = (records..2 * records)
            .filter(|n| table.matches(hash(*n)).next().is_some())
            .count();
        assert!(strangers < 60, "one in some 4,000 matches: {strangers}");
        for n in (0..records).step_by(2) {
            table.note_use(hash(n), n + 1);
            assert_eq!(table.set_shadow(hash(n), n + 1, true), Some(true));
            let entry = table.remove(hash(n), n + 1).unwrap();
            assert_eq!((entry.uses(), entry.is_shadow(), entry.units()), (1, true, 17));
            assert_eq!(table.remove(hash(n), n + 1), None);
        }
        table.retain(|entry| entry.place() % 4 != 0);
        assert_eq!(table.entries(), records / 4);
    }

    #[test]
    fn what_finds_no_place_is_handed_back() {
        let mut table = Table::for_records(1);
        let all = 4 * BUCKET_ENTRIES as u64;
        let handed = (0..all + 5).filter(|n| table.insert(hash(*n), IndexEntry::new(n + 1, hash(*n), 1, 0)).is_some());
        assert!(handed.count() >= 5);
        assert!(table.entries() <= all);
    }
}
