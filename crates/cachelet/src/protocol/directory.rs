//! A home's entries of its keys, with the keys that are waited for in the order of their deadlines. A tick looks at
//! those that are due, and not at the whole directory.
//!
//! Invariant: after [`Directory::settle`], `due` has every entry's deadline, and nothing else. Whoever may change an entry
//! notes its key here by that.

use std::collections::{BTreeMap, BTreeSet};

use super::home::Entry;
use crate::types::Key;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Directory {
    entries: BTreeMap<Key, Entry>,
    due: BTreeSet<(u64, Key)>,
    /// The deadline of each entry in `due`.
    deadlines: BTreeMap<Key, u64>,
    /// Keys whose entries may have changed since the last time.
    touched: Vec<Key>,
}

impl Directory {
    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.note(key);
        self.entries.get_mut(key)
    }

    /// The entry of a key, a new one if there is none.
    pub(super) fn get_or_insert(&mut self, key: &Key) -> &mut Entry {
        self.note(key);
        self.entries.entry(key.clone()).or_default()
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Every entry, to change it.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.touched = self.entries.keys().cloned().collect();
        self.entries.values_mut()
    }

    pub(super) fn retain(&mut self, is_kept: impl FnMut(&Key, &mut Entry) -> bool) {
        self.touched = self.entries.keys().cloned().collect();
        self.entries.retain(is_kept);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes over the deadlines of what has changed.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.touched) {
            let deadline_us = self.entries.get(&key).and_then(Entry::deadline_us);
            let known_us = self.deadlines.get(&key).copied();
            if deadline_us == known_us {
                continue;
            }
            if let Some(known_us) = known_us {
                self.deadlines.remove(&key);
                self.due.remove(&(known_us, key.clone()));
            }
            if let Some(deadline_us) = deadline_us {
                self.deadlines.insert(key.clone(), deadline_us);
                self.due.insert((deadline_us, key));
            }
        }
    }

    /// The earliest deadline.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        self.due.first().map(|(deadline_us, _)| *deadline_us)
    }

    /// The keys whose deadlines have come.
    pub(super) fn due(&self, now_us: u64) -> Vec<Key> {
        let due = self.due.iter().take_while(|(deadline_us, _)| *deadline_us <= now_us);
        due.map(|(_, key)| key.clone()).collect()
    }

    fn note(&mut self, key: &Key) {
        if self.touched.last() != Some(key) {
            self.touched.push(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::home::Work;
    use super::*;

    fn wait(directory: &mut Directory, key: &str, until_us: u64) {
        let work = Work::Fetch {
            transaction: 1,
            until_us,
        };
        directory.get_or_insert(&Key::new(key)).work = Some(work);
    }

    #[test]
    fn deadlines_follow_what_entries_wait_for() {
        let mut directory = Directory::default();
        for (key, until_us) in [("a", 30), ("b", 10), ("c", 20)] {
            wait(&mut directory, key, until_us);
        }
        directory.settle();
        assert_eq!(directory.deadline_us(), Some(10));
        assert_eq!(directory.due(20), [Key::new("b"), Key::new("c")]);
        directory.get_mut(&Key::new("b")).unwrap().work = None;
        wait(&mut directory, "c", 40);
        directory.settle();
        assert_eq!(directory.deadline_us(), Some(30));
        directory.retain(|key, _| *key == Key::new("c"));
        directory.settle();
        assert_eq!((directory.deadline_us(), directory.due(39).len()), (Some(40), 0));
        directory.iter_mut().for_each(|entry| entry.work = None);
        directory.settle();
        assert_eq!(directory.deadline_us(), None);
    }
}
