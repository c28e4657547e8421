//! The chain of hashes: each row's hash is made of the one before and of all fields of the row. A row that was changed,
//! removed, put in or moved is therefore found, unless everything behind it was written anew. A reader that keeps the
//! last hash elsewhere finds that, too.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::row::{Entry, Row};

/// SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

/// Before the first row.
pub const GENESIS: Hash = Hash([0; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Hash {
    /// The hash in 32 bytes; `None` if there are not as many.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The hash of any text.
    pub fn of_text(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    fn next(self, sequence: u64, entry: &Entry) -> Self {
        let mut bytes = self.0.to_vec();
        entry.encode(sequence, &mut bytes);
        Self(Sha256::digest(&bytes).into())
    }
}

/// The end of the chain, where rows are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The last row's number; zero before the first.
    pub sequence: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            sequence: 0,
            hash: GENESIS,
        }
    }
}

impl Chain {
    /// Adds an entry.
    pub fn push(&mut self, entry: Entry) -> Row {
        self.sequence += 1;
        self.hash = self.hash.next(self.sequence, &entry);
        Row {
            sequence: self.sequence,
            entry,
            hash: self.hash,
        }
    }
}

/// Why a chain is not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// Rows are missing, or in another order.
    #[error("row {expected} is missing: row {found} follows")]
    Missing {
        /// The number that is due.
        expected: u64,
        /// The number that was found.
        found: u64,
    },
    /// A row does not say what it said when it was written, or one before it was changed.
    #[error("row {0} was changed: its hash does not follow from the row before and what it says")]
    Changed(u64),
}

/// Follows a chain row by row.
#[derive(Clone, Copy, Debug)]
pub struct Verifier {
    chain: Chain,
}

impl Verifier {
    /// From the first row, or behind those that were dropped.
    pub fn new(behind: Chain) -> Self {
        Self { chain: behind }
    }

    /// The next row.
    ///
    /// # Errors
    /// The row is the first that is wrong.
    pub fn check(&mut self, row: &Row) -> Result<(), Break> {
        let expected = self.chain.sequence + 1;
        if row.sequence != expected {
            return Err(Break::Missing {
                expected,
                found: row.sequence,
            });
        }
        if self.chain.hash.next(row.sequence, &row.entry) != row.hash {
            return Err(Break::Changed(row.sequence));
        }
        self.chain = Chain {
            sequence: row.sequence,
            hash: row.hash,
        };
        Ok(())
    }

    /// How far it has come.
    pub fn chain(&self) -> Chain {
        self.chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Kind, Subject};
    use crate::usage::{Resource, Usage};
    use tidemark_types::{TenantId, UnixMs};

    fn rows() -> Vec<Row> {
        let mut chain = Chain::default();
        (0..5)
            .map(|number| {
                let mut entry = Entry::event(Kind::Use, UnixMs(number * 60_000), UnixMs((number + 1) * 60_000), "");
                entry.tenant = Some(Subject {
                    id: TenantId(7),
                    name: "shop".into(),
                });
                entry.usage = Usage::default().with(Resource::Gets, number);
                entry.commands = vec![("redis/get".into(), number), ("redis/set".into(), 2)];
                chain.push(entry)
            })
            .collect()
    }

    fn first_break(rows: &[Row]) -> Option<Break> {
        let mut verifier = Verifier::new(Chain::default());
        rows.iter().find_map(|row| verifier.check(row).err())
    }

    #[test]
    fn a_chain_that_was_not_touched_is_whole() {
        assert_eq!(first_break(&rows()), None);
        let mut behind = Verifier::new(Chain {
            sequence: 2,
            hash: rows()[1].hash,
        });
        assert!(rows()[2..].iter().all(|row| behind.check(row).is_ok()));
    }

    #[test]
    fn the_first_row_that_is_wrong_is_named() {
        type Change = fn(&mut Vec<Row>);
        let cases: [(Change, Break); 9] = [
            (|rows| rows[2].entry.usage.set(Resource::Gets, 9), Break::Changed(3)),
            (|rows| rows[1].entry.to = UnixMs(1), Break::Changed(2)),
            (|rows| rows[3].entry.commands[0].1 += 1, Break::Changed(4)),
            (|rows| rows[3].entry.commands[0].0.push('x'), Break::Changed(4)),
            (|rows| rows[0].entry.tenant = None, Break::Changed(1)),
            (|rows| rows[4].hash.0[31] ^= 1, Break::Changed(5)),
            (|rows| drop(rows.remove(1)), Break::Missing { expected: 2, found: 3 }),
            (|rows| rows.swap(1, 2), Break::Missing { expected: 2, found: 3 }),
            (
                |rows| {
                    // Renumbered, so that nothing seems to be missing.
                    rows.remove(2);
                    rows[2].sequence = 3;
                    rows[3].sequence = 4;
                },
                Break::Changed(3),
            ),
        ];
        for (change, expected) in cases {
            let mut rows = rows();
            change(&mut rows);
            assert_eq!(first_break(&rows), Some(expected));
        }
    }
}
