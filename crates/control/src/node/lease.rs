//! The statement of an instance in its lease file: the memory that it holds, and its demand.
//!
//! Lines of a word and numbers, in bytes unless a name says otherwise. The last one is a checksum of all before it. A
//! file that was read while it was being written, or was written by somebody else, is thus told from a lease:
//!
//! ```text
//! tidemark lease 1
//! sequence 12
//! process 4242
//! period_ms 1000
//! lease 67108864
//! resident 66060288
//! floors_set 0
//! floor 0
//! wanted 134217728
//! most 8589934592
//! goal 0 16777216
//! worth 1048576 12.5
//! end 0123456789abcdef
//! ```
//!
//! Invariant: a lease that is read was written whole by one instance; its pieces of worth descend.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use tidemark_plan::node::{Demand, GoalDemand, Worth};

use crate::book::WORTH_PIECES_MAX;

const HEAD: &str = "tidemark lease 1";
/// The last line's first word.
const END: &str = "end ";
/// A longer file is no lease: the longest that is written has about 3 KiB.
pub(crate) const LEASE_FILE_BYTES_MAX: usize = 16 << 10;
/// Classes of goals in a lease; those beyond are stated with the last one.
pub(crate) const GOAL_CLASSES_MAX: usize = 32;

/// A lease as it is stated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lease {
    /// Grows with each statement, so that others see that the instance lives.
    pub(crate) sequence: u64,
    /// The process, for people.
    pub(crate) process: u32,
    /// How often it states something, in milliseconds.
    pub(crate) period_ms: u64,
    /// The memory that the pool may hold or still holds.
    pub(crate) lease_bytes: u64,
    /// The memory that it held when this was written, for people.
    pub(crate) resident_bytes: u64,
    /// All floors as they are set, needed now or not.
    pub(crate) floors_set_bytes: u64,
    pub(crate) demand: Demand,
}

impl Lease {
    /// The file's content.
    pub(crate) fn text(&self) -> String {
        let demand = &self.demand;
        let mut text = format!("{HEAD}\n");
        let numbers = [
            ("sequence", self.sequence),
            ("process", u64::from(self.process)),
            ("period_ms", self.period_ms),
            ("lease", self.lease_bytes),
            ("resident", self.resident_bytes),
            ("floors_set", self.floors_set_bytes),
            ("floor", demand.floor_bytes),
            ("wanted", demand.wanted_bytes),
            ("most", demand.most_bytes),
        ];
        // Writing to a string does not fail.
        for (name, number) in numbers {
            let _ = writeln!(text, "{name} {number}");
        }
        for goal in &demand.goals {
            let _ = writeln!(text, "goal {} {}", goal.class, goal.bytes);
        }
        for piece in &demand.worth {
            let _ = writeln!(text, "worth {} {}", piece.bytes, piece.value_per_mib);
        }
        let _ = writeln!(text, "{END}{}", checksum(&text));
        text
    }

    /// Reads a file's content; text behind the last line is of an earlier, longer one. `None` if it is no lease.
    pub(crate) fn read(content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content.get(..length(content)?)?).ok()?;
        let (body, end) = text.split_at(text.rfind(END)?);
        if end.trim_end().strip_prefix(END)? != checksum(body) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let mut lease = Self::default();
        lines.try_for_each(|line| lease.take(line))?;
        let worth = &lease.demand.worth;
        let descends = worth
            .windows(2)
            .all(|pair| pair[0].value_per_mib >= pair[1].value_per_mib);
        let is_short = worth.len() <= WORTH_PIECES_MAX && lease.demand.goals.len() <= GOAL_CLASSES_MAX;
        (descends && is_short).then_some(lease)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (name, values) = line.split_once(' ')?;
        let pair = || values.split_once(' ');
        let demand = &mut self.demand;
        let place = match name {
            "sequence" => &mut self.sequence,
            "period_ms" => &mut self.period_ms,
            "lease" => &mut self.lease_bytes,
            "resident" => &mut self.resident_bytes,
            "floors_set" => &mut self.floors_set_bytes,
            "floor" => &mut demand.floor_bytes,
            "wanted" => &mut demand.wanted_bytes,
            "most" => &mut demand.most_bytes,
            "process" => {
                self.process = values.parse().ok()?;
                return Some(());
            }
            "goal" => {
                let (class, bytes) = pair()?;
                let (class, bytes) = (class.parse().ok()?, bytes.parse().ok()?);
                demand.goals.push(GoalDemand { class, bytes });
                return Some(());
            }
            "worth" => {
                let (bytes, value) = pair()?;
                let (bytes, value_per_mib): (u64, f64) = (bytes.parse().ok()?, value.parse().ok()?);
                demand.worth.push(Worth { bytes, value_per_mib });
                return (value_per_mib.is_finite() && value_per_mib >= 0.0).then_some(());
            }
            _ => return None,
        };
        *place = values.parse().ok()?;
        Some(())
    }
}

/// Up to the end of the first last line.
fn length(content: &[u8]) -> Option<usize> {
    let mut end = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        end += line.len();
        if line.starts_with(END.as_bytes()) {
            return Some(end);
        }
    }
    None
}

/// Tells a lease from half of one; it is no protection against anybody.
fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        Lease {
            sequence: 12,
            process: 4242,
            period_ms: 1000,
            lease_bytes: 64 << 20,
            resident_bytes: 60 << 20,
            floors_set_bytes: 5,
            demand: Demand {
                floor_bytes: 1,
                goals: vec![
                    GoalDemand { class: 0, bytes: 7 },
                    GoalDemand {
                        class: 3,
                        bytes: u64::MAX,
                    },
                ],
                worth: [(9, 12.5), (8, 0.1 + 0.2), (7, 0.0)]
                    .map(|(bytes, value_per_mib)| Worth { bytes, value_per_mib })
                    .to_vec(),
                wanted_bytes: 3,
                most_bytes: u64::MAX,
            },
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for lease in [Lease::default(), lease()] {
            assert_eq!(Lease::read(lease.text().as_bytes()), Some(lease));
        }
        // Over a longer one.
        let behind = format!("{}{}", Lease::default().text(), &lease().text()[100..]);
        assert_eq!(Lease::read(behind.as_bytes()), Some(Lease::default()));
    }

    #[test]
    fn the_longest_lease_is_read_in_one_piece() {
        let longest = Lease {
            demand: Demand {
                goals: vec![
                    GoalDemand {
                        class: u32::MAX,
                        bytes: u64::MAX
                    };
                    GOAL_CLASSES_MAX
                ],
                worth: vec![
                    Worth {
                        bytes: u64::MAX,
                        value_per_mib: 1.0 / 3.0
                    };
                    WORTH_PIECES_MAX
                ],
                ..Demand::default()
            },
            ..lease()
        };
        let text = longest.text();
        assert!(text.len() <= LEASE_FILE_BYTES_MAX, "{}", text.len());
        assert_eq!(Lease::read(text.as_bytes()), Some(longest));
    }

    #[test]
    fn garbage_is_no_lease() {
        let good = lease().text();
        let sealed = |body: &str| format!("{body}{END}{}\n", checksum(body));
        // The other cases rely on correct sealing.
        assert!(Lease::read(sealed(&format!("{HEAD}\nlease 5\n")).as_bytes()).is_some());
        for (what, text) in [
            ("nothing", String::new()),
            ("a number", "123".into()),
            ("another file", "hello\nworld\n".into()),
            ("no end", good.split(END).next().unwrap().into()),
            ("a changed digit", good.replace("lease 67108864", "lease 67108865")),
            ("another version", sealed("tidemark lease 2\nlease 5\n")),
            ("an unknown word", sealed(&format!("{HEAD}\nlent 5\n"))),
            ("a negative number", sealed(&format!("{HEAD}\nlease -5\n"))),
            ("half a pair", sealed(&format!("{HEAD}\nworth 5\n"))),
            ("no number", sealed(&format!("{HEAD}\nworth 5 NaN\n"))),
            ("a rising hull", sealed(&format!("{HEAD}\nworth 5 1\nworth 5 2\n"))),
            (
                "too many goals",
                sealed(&format!("{HEAD}\n{}", "goal 1 1\n".repeat(33))),
            ),
        ] {
            assert_eq!(Lease::read(text.as_bytes()), None, "{what}");
        }
        for cut in 0..good.len() {
            assert_eq!(
                Lease::read(&good.as_bytes()[..cut]).is_some(),
                cut == good.len() - 1,
                "{cut}"
            );
        }
        assert_eq!(Lease::read(&[0xff; 100]), None);
    }
}
