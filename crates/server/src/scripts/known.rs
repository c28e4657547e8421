//! The scripts that a tenant can call by their names: those that it has run or loaded, the last used ones.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limits::{SCRIPT_BYTES_KNOWN, SCRIPTS_KNOWN};

/// A tenant's scripts, by the SHA-1 of their texts in lower-case hexadecimal digits.
#[derive(Default)]
pub(crate) struct Known {
    scripts: HashMap<Box<[u8]>, Entry>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    text: Arc<[u8]>,
    used: u64,
}

impl Known {
    /// The text of a script, which counts as used.
    pub(crate) fn find(&mut self, name: &[u8]) -> Option<Arc<[u8]>> {
        self.uses += 1;
        let entry = self.scripts.get_mut(&*name.to_ascii_lowercase())?;
        entry.used = self.uses;
        Some(Arc::clone(&entry.text))
    }

    /// Whether a script is known.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.scripts.contains_key(&*name.to_ascii_lowercase())
    }

    /// Makes a script known. Those that were not used for longest go where there are too many.
    pub(crate) fn insert(&mut self, name: &str, text: &Arc<[u8]>) {
        if self.find(name.as_bytes()).is_some() {
            return;
        }
        while !self.scripts.is_empty()
            && (self.scripts.len() >= SCRIPTS_KNOWN || self.bytes + text.len() > SCRIPT_BYTES_KNOWN)
        {
            let oldest = self.scripts.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            self.bytes -= self.scripts.remove(&oldest).map_or(0, |entry| entry.text.len());
        }
        self.bytes += text.len();
        let entry = Entry {
            text: Arc::clone(text),
            used: self.uses,
        };
        self.scripts.insert(name.as_bytes().into(), entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_scripts_are_known_up_to_the_limits() {
        let mut known = Known::default();
        let text = |bytes: usize| -> Arc<[u8]> { vec![b' '; bytes].into() };
        for number in 0..SCRIPTS_KNOWN {
            known.insert(&format!("{number:040x}"), &text(10));
        }
        assert!(known.find(format!("{:040x}", 0).as_bytes()).is_some());
        known.insert("new", &text(10));
        assert_eq!(known.scripts.len(), SCRIPTS_KNOWN);
        assert!(known.has(format!("{:040x}", 0).as_bytes()) && known.has(b"NEW"));
        assert!(!known.has(format!("{:040x}", 1).as_bytes()));
        known.insert("long", &text(SCRIPT_BYTES_KNOWN));
        assert_eq!((known.scripts.len(), known.bytes), (1, SCRIPT_BYTES_KNOWN));
        known.insert("long", &text(SCRIPT_BYTES_KNOWN));
        assert_eq!(known.bytes, SCRIPT_BYTES_KNOWN);
        known = Known::default();
        assert_eq!((known.has(b"long"), known.bytes), (false, 0));
    }
}
