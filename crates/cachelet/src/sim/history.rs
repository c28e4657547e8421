//! The observations of functions, and whether a register may have behaved so.
//!
//! Every written value occurs once, so that a read names the write that it saw. A write with the reads that saw it is a
//! *cluster*. Its *zone* lies between the first end and the last start of its operations. A history is linearizable
//! under three conditions, and only then. No read ends before its write starts, no two forward zones overlap, and no
//! backward zone lies within a forward one. (Gibbons and Korach, "Testing Shared Memories", SIAM J. Comput. 26(4),
//! 1997, section 3.1.)

use std::collections::BTreeMap;

use crate::config::Level;
use crate::types::Key;

/// One operation of a function on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The operation.
    pub deed: Deed,
    /// When it began.
    pub from_us: u64,
    /// When it ended; empty for a write of which nobody knows how it ended.
    pub to_us: Option<u64>,
}

/// The operation. Values are named by their identities; zero is that there is no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A read that returned this value.
    Read(u64),
    /// A write of this value.
    Write(u64),
}

/// The reason why a history breaks the promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The key of the fault.
    pub key: Key,
    /// A description of the fault.
    pub what: String,
}

/// The extent of a write and the reads that saw it.
#[derive(Clone, Copy, Debug)]
struct Zone {
    first_end_us: u64,
    last_start_us: u64,
    value: u64,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_end_us < self.last_start_us
    }

    fn low(&self) -> u64 {
        self.first_end_us.min(self.last_start_us)
    }

    fn high(&self) -> u64 {
        self.first_end_us.max(self.last_start_us)
    }
}

/// Checks every key of a history for a level. The value zero is there from the beginning.
///
/// # Errors
/// The first violation.
pub fn check(records: &[Record], level: Level) -> Result<(), Violation> {
    let mut keys: BTreeMap<&Key, Vec<&Record>> = BTreeMap::new();
    for record in records {
        keys.entry(&record.key).or_default().push(record);
    }
    for (key, records) in keys {
        check_key(&records, level).map_err(|what| Violation { key: key.clone(), what })?;
    }
    Ok(())
}

fn check_key(records: &[&Record], level: Level) -> Result<(), String> {
    let zones = zones(records, level)?;
    if level == Level::Eventual {
        return Ok(());
    }
    let mut forward: Vec<_> = zones.iter().filter(|zone| zone.is_forward()).collect();
    forward.sort_by_key(|zone| zone.low());
    for pair in forward.windows(2) {
        if pair[1].low() < pair[0].high() {
            return Err(format!(
                "values {} and {} both hold: {pair:?}",
                pair[0].value, pair[1].value
            ));
        }
    }
    for zone in zones.iter().filter(|zone| !zone.is_forward()) {
        // Forward zones do not overlap, so that the last one that begins before is the only one to look at.
        let before = forward.partition_point(|other| other.low() < zone.low());
        let around = before.checked_sub(1).map(|index| forward[index]);
        if let Some(around) = around.filter(|around| zone.high() < around.high()) {
            return Err(format!(
                "value {} within value {}: {zone:?} in {around:?}",
                zone.value, around.value
            ));
        }
    }
    Ok(())
}

fn zones(records: &[&Record], level: Level) -> Result<Vec<Zone>, String> {
    // Times are made distinct and ends come after starts of the same moment: operations that touch may be concurrent.
    // Nothing begins with the first value.
    let start = |at_us: u64| at_us.saturating_mul(2).saturating_add(2);
    let end = |at_us: Option<u64>| at_us.map_or(u64::MAX, |at_us| at_us.saturating_mul(2).saturating_add(3));
    let stale_us = match level {
        Level::Bounded(stale_us) => stale_us,
        Level::Linearizable | Level::Eventual => 0,
    };
    let mut zones: BTreeMap<u64, (u64, Zone)> = BTreeMap::new();
    let initial = Zone {
        first_end_us: 0,
        last_start_us: 0,
        value: 0,
    };
    zones.insert(0, (0, initial));
    for record in records {
        if let Deed::Write(value) = record.deed {
            let from_us = start(record.from_us);
            let zone = Zone {
                first_end_us: end(record.to_us),
                last_start_us: from_us,
                value,
            };
            if zones.insert(value, (from_us, zone)).is_some() {
                return Err(format!(
                    "value {value} was written twice: the history can not be checked"
                ));
            }
        }
    }
    let mut was_read = vec![0];
    for record in records {
        if let Deed::Read(value) = record.deed {
            let Some((written_us, zone)) = zones.get_mut(&value) else {
                return Err(format!("value {value} was read and never written"));
            };
            if end(record.to_us) < *written_us {
                return Err(format!("value {value} was read before it was written"));
            }
            zone.first_end_us = zone.first_end_us.min(end(record.to_us));
            zone.last_start_us = zone.last_start_us.max(start(record.from_us.saturating_sub(stale_us)));
            was_read.push(value);
        }
    }
    // A write of which nobody knows, and whose value nobody saw, may not have been.
    zones.retain(|value, (_, zone)| zone.first_end_us != u64::MAX || was_read.contains(value));
    Ok(zones.into_values().map(|(_, zone)| zone).collect())
}

#[cfg(test)]
mod tests {
    use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
    use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester};

    use super::*;
    use crate::sim::Rng;

    fn record(deed: Deed, from_us: u64, to_us: Option<u64>) -> Record {
        Record {
            key: Key::new("k"),
            deed,
            from_us,
            to_us,
        }
    }

    fn is_right(records: &[Record], level: Level, expected: bool) {
        let checked = check(records, level);
        assert_eq!(checked.is_ok(), expected, "{records:?} {checked:?}");
    }

    #[test]
    fn known_histories() {
        use Deed::{Read, Write};
        let write = record(Write(1), 10, Some(20));
        for (read, expected) in [
            (record(Read(0), 12, Some(15)), true),
            (record(Read(1), 12, Some(15)), true),
            (record(Read(0), 21, Some(25)), false),
            (record(Read(1), 1, Some(9)), false),
            (record(Read(7), 21, Some(25)), false),
        ] {
            is_right(&[write.clone(), read], Level::Linearizable, expected);
        }
        // One reader sees the new value, a later one the old value again.
        let slow = record(Write(1), 10, Some(90));
        let readers = [record(Read(1), 20, Some(30)), record(Read(0), 40, Some(50))];
        is_right(&[vec![slow], readers.to_vec()].concat(), Level::Linearizable, false);
        // A write of which nobody knows may be seen at any time, or never.
        let unknown = record(Write(1), 10, None);
        is_right(
            &[unknown.clone(), record(Read(0), 80, Some(90))],
            Level::Linearizable,
            true,
        );
        is_right(&[unknown, record(Read(1), 80, Some(90))], Level::Linearizable, true);
        // An old value is fine for as long as the bound says.
        let stale = [write.clone(), record(Read(0), 25, Some(26))];
        is_right(&stale, Level::Bounded(5), true);
        is_right(&stale, Level::Bounded(4), false);
        is_right(&stale, Level::Eventual, true);
    }

    /// The same history judged by stateright's tester, which tries every order.
    fn judged_by_stateright(records: &[Record]) -> bool {
        let mut moments: Vec<(u64, usize, bool)> = Vec::new();
        for (index, record) in records.iter().enumerate() {
            moments.push((record.from_us * 2, index, true));
            if let Some(to_us) = record.to_us {
                moments.push((to_us * 2 + 1, index, false));
            }
        }
        moments.sort_unstable();
        let mut tester = LinearizabilityTester::new(Register(0));
        for (_, index, is_start) in moments {
            let result = match (records[index].deed, is_start) {
                (Deed::Read(_), true) => tester.on_invoke(index, RegisterOp::Read).map(|_| ()),
                (Deed::Write(value), true) => tester.on_invoke(index, RegisterOp::Write(value)).map(|_| ()),
                (Deed::Read(value), false) => tester.on_return(index, RegisterRet::ReadOk(value)).map(|_| ()),
                (Deed::Write(_), false) => tester.on_return(index, RegisterRet::WriteOk).map(|_| ()),
            };
            result.unwrap();
        }
        tester.is_consistent()
    }

    #[test]
    fn agrees_with_another_implementation() {
        let (mut right, mut wrong) = (0, 0);
        for seed in 0..3_000 {
            let mut rng = Rng::new(seed);
            let mut records = Vec::new();
            let writes = rng.between(1, 4);
            for value in 1..=writes {
                let from = rng.below(40);
                let to = Some(from + 1 + rng.below(15)).filter(|_| !rng.happens(200_000));
                records.push(record(Deed::Write(value), from, to));
            }
            for _ in 0..rng.between(1, 5) {
                let from = rng.below(50);
                let value = rng.below(writes + 1);
                records.push(record(Deed::Read(value), from, Some(from + 1 + rng.below(10))));
            }
            let ours = check(&records, Level::Linearizable).is_ok();
            assert_eq!(ours, judged_by_stateright(&records), "seed {seed}: {records:?}");
            if ours { right += 1 } else { wrong += 1 }
        }
        assert!(
            right > 200 && wrong > 200,
            "{right} right, {wrong} wrong: both kinds must occur"
        );
    }
}
