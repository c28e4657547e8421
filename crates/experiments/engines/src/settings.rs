//! The settings of comparisons: loads, sizes, and the caches that take part.
//!
//! Invariant: figures that are compared come from the same rounds.

use std::thread::available_parallelism;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tidemark_experiments::experiment::Spread;
use tidemark_types::{LogShare, MIB, Policy};

use crate::bench::{Bench, Stage, Who};
use crate::engine::{ITEM_BYTES_SEGCACHE, Kind, PAYLOAD_BYTES};
use crate::load::{self, Load, Name};
use crate::measure::Outcome;
use crate::search::Goal;

/// Payload of the caches that the generated load is put on.
const PAYLOAD: u64 = 128 * MIB;
/// Keys that Tidemark is asked for at once: as many as a worker's window has.
const BATCH: usize = 16;
/// Threads of the comparison with several of them.
const THREADS: usize = 2;
/// Rounds of settings that are not about small differences in speed.
const ROUNDS_BESIDE: u32 = 3;
/// The rough size of an item of Tidemark, at which a search begins.
const ITEM_BYTES_TIDEMARK: u64 = 140;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// In words.
    pub(crate) name: &'static str,
    /// Rounds.
    pub(crate) rounds: u32,
    /// Part of the loads and of the memory for the generated one.
    pub(crate) part: f64,
    /// Memory for traces, as parts of the payload of all their objects.
    pub(crate) sizes: &'static [f64],
}

/// Everything.
pub(crate) const FULL: Scale = Scale {
    name: "full",
    rounds: 7,
    part: 1.0,
    sizes: &[0.1, 0.25, 0.5],
};
/// Enough to see that it works.
pub(crate) const QUICK: Scale = Scale {
    name: "quick: a twentieth of the loads",
    rounds: 2,
    part: 0.05,
    sizes: &[0.25],
};

/// The quantity that is equal for all caches of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equal {
    /// The payload held, with one thread.
    Payload,
    /// The same, with several threads.
    PayloadThreads,
    /// The memory taken, as measured.
    Memory,
}

/// A comparison, with its measurements.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Which keys.
    pub(crate) load: Name,
    /// The equal quantity.
    pub(crate) equal: Equal,
    /// How much of it, in bytes.
    pub(crate) bytes: u64,
    /// The caches that took part.
    pub(crate) whom: Vec<Who>,
    /// The outcomes of each round, in the order of `whom`.
    pub(crate) rounds: Vec<Vec<Outcome>>,
}

impl Setting {
    /// The name in tables and files.
    pub(crate) fn label(&self) -> String {
        format!("{}, {:.1} MiB", self.load, self.bytes as f64 / MIB as f64)
    }

    /// A figure of somebody in each round; of nobody, none.
    pub(crate) fn figures(&self, who: Who, figure: fn(&Outcome) -> f64) -> impl Iterator<Item = f64> {
        let place = self.whom.iter().position(|&one| one == who);
        let outcomes = self.rounds.iter().filter_map(move |round| round.get(place?));
        outcomes.map(figure)
    }

    /// The median with quartiles.
    pub(crate) fn spread(&self, who: Who, figure: fn(&Outcome) -> f64) -> Option<Spread> {
        Spread::of(self.figures(who, figure))
    }

    /// How many operations the fastest of the others did while somebody did one.
    pub(crate) fn over_fastest_other(&self, who: Who) -> Option<Spread> {
        let of_round = |round: &Vec<Outcome>| {
            let speed = |one: Who| Some(round.get(self.whom.iter().position(|&who| who == one)?)?.mops());
            let others = Kind::OTHERS.into_iter().filter_map(|kind| speed(one(kind)));
            Some(others.fold(0.0, f64::max) / speed(who)?)
        };
        Spread::of(self.rounds.iter().filter_map(of_round))
    }
}

/// A cache that is asked for one key at a time.
pub(crate) fn one(kind: Kind) -> Who {
    Who { kind, batch: 1 }
}

/// Tidemark, asked for several.
pub(crate) fn batched() -> Who {
    Who {
        kind: Kind::TIDEMARK,
        batch: BATCH,
    }
}

/// Measures everything for which the loads are there.
pub(crate) fn run(bench: &Bench, scale: &Scale, seed: u64) -> Result<Vec<Setting>> {
    let folder = tempfile::tempdir().context("there is no folder for the keys")?;
    let mut all = Vec::new();
    for name in Name::ALL {
        if !name.is_there() {
            bench.tell(&format!("{name} is left out: the trace is not there"));
            continue;
        }
        let load = prepare(bench, name, scale, seed, &folder)?;
        if name == Name::Zipf {
            generated(bench, scale, load, &mut all)?;
        } else {
            traced(bench, scale, load, &mut all)?;
        }
    }
    Ok(all)
}

fn prepare(bench: &Bench, name: Name, scale: &Scale, seed: u64, folder: &TempDir) -> Result<Load> {
    bench.tell(&format!("{name}: writing its keys"));
    load::prepare(name, seed, scale.part, folder.path())
}

fn generated(bench: &Bench, scale: &Scale, load: Load, all: &mut Vec<Setting>) -> Result<()> {
    let name = load.name;
    let payload = (PAYLOAD as f64 * scale.part) as u64;
    let stage = Stage {
        load,
        threads: 1,
        huge_pages: true,
    };
    let mut whom = Vec::new();
    for kind in contestants() {
        whom.push((one(kind), capacity_for_payload(bench, &stage, kind, payload)?));
        if kind == Kind::TIDEMARK {
            whom.push((batched(), whom[0].1));
        }
    }
    let setting = |equal, bytes, whom: &[(Who, u64)], rounds| Setting {
        load: name,
        equal,
        bytes,
        whom: whom.iter().map(|&(who, _)| who).collect(),
        rounds,
    };
    bench.tell(&format!("{name}: equal payload, {} rounds", scale.rounds));
    let rounds = bench.rounds(&stage, &whom, scale.rounds)?;
    let equal_payload = setting(Equal::Payload, payload, &whom, rounds);

    if available_parallelism().is_ok_and(|cores| cores.get() >= THREADS) {
        let rounds = scale.rounds.min(ROUNDS_BESIDE);
        bench.tell(&format!("{name}: {THREADS} threads, {rounds} rounds"));
        let stage = Stage {
            threads: THREADS,
            ..stage.clone()
        };
        let rounds = bench.rounds(&stage, &whom, rounds)?;
        all.push(setting(Equal::PayloadThreads, payload, &whom, rounds));
    }

    let memory = |who| equal_payload.spread(who, |outcome| outcome.rss_bytes as f64);
    let own = memory(one(Kind::TIDEMARK)).map_or(0.0, |spread| spread.median);
    let guess = |kind: Kind| {
        let like = if matches!(kind, Kind::Tidemark(_)) {
            Kind::TIDEMARK
        } else {
            kind
        };
        let known = whom.iter().find(|&&(who, _)| who == one(like));
        let rss = memory(one(like)).map_or(own, |spread| spread.median);
        known.map_or(payload, |&(_, capacity)| (capacity as f64 * own / rss) as u64)
    };
    let kinds = [Policy::Clock, Policy::Fifo, Policy::ApproxLru(LogShare::HALF)].map(Kind::Tidemark);
    let kinds = contestants().chain(kinds);
    let found = with_memory(bench, &stage, kinds, own as u64, guess, 0.01)?;
    let count = scale.rounds.min(ROUNDS_BESIDE);
    bench.tell(&format!("{name}: equal memory, {count} rounds"));
    let rounds = bench.rounds(&stage, &found, count)?;
    let equal_memory = setting(Equal::Memory, own as u64, &found, rounds);
    all.extend([equal_payload, equal_memory]);
    Ok(())
}

fn traced(bench: &Bench, scale: &Scale, load: Load, all: &mut Vec<Setting>) -> Result<()> {
    let (name, payload) = (load.name, load.payload_bytes());
    // A huge page is as large as some of these caches, so nobody uses them here.
    let stage = Stage {
        load,
        threads: 1,
        huge_pages: false,
    };
    for size in scale.sizes {
        let bytes = (payload as f64 * size) as u64;
        let mut whom = with_memory(bench, &stage, contestants(), bytes, |kind| guess(kind, bytes), 0.02)?;
        if let Some(at) = whom.iter().position(|&(who, _)| who == one(Kind::TIDEMARK)) {
            whom.insert(at + 1, (batched(), whom[at].1));
        }
        bench.tell(&format!(
            "{name}: {:.1} MiB, {} rounds",
            bytes as f64 / MIB as f64,
            scale.rounds
        ));
        let rounds = bench.rounds(&stage, &whom, scale.rounds)?;
        all.push(Setting {
            load: name,
            equal: Equal::Memory,
            bytes,
            whom: whom.into_iter().map(|(who, _)| who).collect(),
            rounds,
        });
    }
    Ok(())
}

/// The caches that take part everywhere: Tidemark, and all libraries.
pub(crate) fn contestants() -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.into_iter();
    all.filter(|kind| !matches!(kind, Kind::Tidemark(_)) || *kind == Kind::TIDEMARK)
}

/// Capacity with which a cache that has room for the payload of `bytes` begins to be looked for.
fn guess(kind: Kind, bytes: u64) -> u64 {
    let capacity_per_item = match kind {
        Kind::Tidemark(_) => ITEM_BYTES_TIDEMARK,
        Kind::Segcache => ITEM_BYTES_SEGCACHE,
        _ => PAYLOAD_BYTES,
    };
    bytes / PAYLOAD_BYTES * capacity_per_item
}

/// The capacity at which a cache holds so much payload. Most count in it.
fn capacity_for_payload(bench: &Bench, stage: &Stage, kind: Kind, payload: u64) -> Result<u64> {
    if !matches!(kind, Kind::Tidemark(_) | Kind::Segcache) {
        return Ok(payload);
    }
    let goal = Goal {
        target: payload,
        tolerance: 0.005,
        steps: 10,
    };
    bench.tell(&format!(
        "{}: {kind}: capacity for {:.1} MiB of payload",
        stage.load.name,
        payload as f64 / MIB as f64
    ));
    let held = |outcome: &Outcome| outcome.items * PAYLOAD_BYTES;
    let found = bench.capacity(stage, kind, goal, guess(kind, payload), held)?;
    let found = found.with_context(|| format!("{kind} holds more payload than wanted at any capacity"))?;
    Ok(found.capacity)
}

/// The capacities at which caches take so much memory; those that cannot do with it are left out.
fn with_memory(
    bench: &Bench,
    stage: &Stage,
    kinds: impl Iterator<Item = Kind>,
    bytes: u64,
    guess: impl Fn(Kind) -> u64,
    tolerance: f64,
) -> Result<Vec<(Who, u64)>> {
    let mut all = Vec::new();
    for kind in kinds {
        let (name, mib) = (stage.load.name, bytes as f64 / MIB as f64);
        bench.tell(&format!("{name}: {kind}: capacity for {mib:.1} MiB of memory"));
        let goal = Goal {
            target: bytes,
            tolerance,
            steps: 12,
        };
        match bench.capacity(stage, kind, goal, guess(kind), |outcome| outcome.fill_rss_bytes)? {
            Some(found) => all.push((one(kind), found.capacity)),
            None => bench.tell(&format!("{name}: {kind} needs more than {mib:.1} MiB in any case")),
        }
    }
    Ok(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two rounds of three caches.
    pub(crate) fn setting() -> Setting {
        let outcome = |operations: u64, items: u64| Outcome {
            fill_hit_ratio: 0.5,
            fill_rss_bytes: 1000,
            hit_ratio: 0.75,
            rss_bytes: 14_000,
            items,
            refused: 0,
            operations,
            seconds: 1.0,
            others_cores: 0.25,
        };
        Setting {
            load: Name::Zipf,
            equal: Equal::Payload,
            bytes: 3 * MIB,
            whom: vec![
                one(Kind::TIDEMARK),
                batched(),
                one(Kind::Segcache),
                one(Kind::QuickCacheFixed),
            ],
            rounds: vec![
                vec![
                    outcome(3_000_000, 100),
                    outcome(8_000_000, 100),
                    outcome(2_000_000, 70),
                    outcome(9_000_000, 50),
                ],
                vec![
                    outcome(6_000_000, 100),
                    outcome(8_000_000, 100),
                    outcome(3_000_000, 70),
                    outcome(9_000_000, 50),
                ],
            ],
        }
    }

    #[test]
    fn ratios_are_of_one_round_each_and_of_libraries_that_do_the_same() {
        let setting = setting();
        let ratio = |who| setting.over_fastest_other(who).map(|spread| (spread.low, spread.high));
        let (low, high) = ratio(one(Kind::TIDEMARK)).unwrap();
        assert!(
            (0.54..0.55).contains(&low) && (0.62..0.63).contains(&high),
            "{low} to {high}"
        );
        assert!(ratio(batched()).is_some());
        assert_eq!(ratio(one(Kind::Moka)), None, "it did not take part");
        let items = setting.spread(one(Kind::Segcache), |outcome| outcome.items as f64);
        assert_eq!(items.map(|spread| spread.median), Some(70.0));
    }

    #[test]
    fn one_of_tidemarks_policies_takes_part_everywhere() {
        let names: Vec<_> = contestants().map(Kind::name).collect();
        let expected = [
            "tidemark",
            "segcache",
            "quick_cache",
            "quick_cache-fixed",
            "foyer",
            "moka",
        ];
        assert_eq!(names, expected);
    }
}
