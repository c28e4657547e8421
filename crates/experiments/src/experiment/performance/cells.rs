//! The measurements and their loads, and the findings that follow from the figures.

use std::collections::BTreeMap;

use super::super::chart::{Chart, Marks, Panel};
use super::super::measure::{Data, Measure, Sample};
use super::super::report::{Point, Series, Target};
use super::super::statistics::Spread;
use super::super::syscalls::Calls;

/// The pipelines.
pub(super) const PIPELINES: [usize; 3] = [1, 10, 50];
/// Bytes per key.
pub(super) const KEY_BYTES: usize = 16;
/// SET may cost at most this much of GET.
pub(super) const SET_LIMIT: f64 = 1.15;
/// The latency target: not above the other server's.
pub(super) const LATENCY_LIMIT: f64 = 1.0;

/// Values and keys, all measured with the same servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) value_bytes: usize,
    pub(super) keys: u64,
}

/// The groups of a full run, where there is memory for them; a quick one has those with as few keys as [`MAIN`].
pub(super) const GROUPS: [Group; 6] = [
    Group::new(8, 1),
    MAIN,
    Group::new(1024, 1),
    Group::new(8, 10),
    Group::new(64, 10),
    Group::new(1024, 10),
];
/// The load of the main table.
pub(super) const MAIN: Group = Group::new(64, 1);
/// About the memory of a server for an item beside key and value: Redis, the most of the three.
const ITEM_OVERHEAD_BYTES: u64 = 160;

impl Group {
    const fn new(value_bytes: usize, million_keys: u64) -> Self {
        Self {
            value_bytes,
            keys: million_keys * 1_000_000,
        }
    }

    /// About the memory of a server for it.
    pub(super) fn memory_bytes(self) -> u64 {
        self.keys * ((KEY_BYTES + self.value_bytes) as u64 + ITEM_OVERHEAD_BYTES)
    }

    pub(super) fn data(self) -> Data {
        Data {
            keys: self.keys,
            key_bytes: KEY_BYTES,
            value_bytes: self.value_bytes,
        }
    }

    pub(super) fn name(self) -> String {
        format!("{} bytes, {} million keys", self.value_bytes, self.keys / 1_000_000)
    }
}

/// Gets and sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mix {
    Get,
    Set,
    /// Nine gets to one set.
    NineToOne,
}

impl Mix {
    pub(super) const ALL: [Self; 3] = [Self::Get, Self::Set, Self::NineToOne];

    pub(super) fn reads_ratio(self) -> f64 {
        match self {
            Self::Get => 1.0,
            Self::Set => 0.0,
            Self::NineToOne => 0.9,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::NineToOne => "9:1",
        }
    }
}

/// The server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    TidemarkMemcached,
    Memcached,
    TidemarkResp,
    Redis,
    FloorMemcached,
    FloorResp,
}

impl Who {
    pub(super) const ALL: [Self; 6] = [
        Self::TidemarkMemcached,
        Self::Memcached,
        Self::TidemarkResp,
        Self::Redis,
        Self::FloorMemcached,
        Self::FloorResp,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TidemarkMemcached => "Tidemark, memcached protocol",
            Self::Memcached => "memcached",
            Self::TidemarkResp => "Tidemark, RESP",
            Self::Redis => "Redis",
            Self::FloorMemcached => "floor, memcached protocol",
            Self::FloorResp => "floor, RESP",
        }
    }
}

/// Tidemark, the server that it is compared with over the same protocol, and the floor of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) own: Who,
    pub(super) other: Who,
    pub(super) floor: Who,
    /// The most that Tidemark's CPU time may be of the other's, at each of [`PIPELINES`].
    pub(super) limits: [f64; 3],
}

pub(super) const PAIRS: [Pair; 2] = [
    Pair {
        own: Who::TidemarkMemcached,
        other: Who::Memcached,
        floor: Who::FloorMemcached,
        limits: [0.85, 0.75, 0.65],
    },
    Pair {
        own: Who::TidemarkResp,
        other: Who::Redis,
        floor: Who::FloorResp,
        limits: [0.85, 0.6, 0.65],
    },
];

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loop {
    /// The next one when a reply came.
    Closed,
    /// An open loop at a rate that is the same for all servers.
    Open,
    /// An open loop at half of the peak of the pair's other server, for the latency.
    Half,
}

/// One place of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) group: Group,
    pub(super) mix: Mix,
    pub(super) pipeline: usize,
    pub(super) how: Loop,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) scale: String,
    /// The samples, in the order of the rounds.
    pub(super) samples: BTreeMap<(Cell, Who), Vec<Sample>>,
    /// The rates of open loops.
    pub(super) rates: BTreeMap<(Cell, Who), f64>,
    /// System calls per operation, where they could be counted.
    pub(super) calls: BTreeMap<(Cell, Who), Calls>,
}

impl Findings {
    /// The spread of one figure over the rounds.
    pub(super) fn spread(&self, cell: Cell, who: Who, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.get(&(cell, who))?.iter().map(of))
    }

    /// The ratio of two figures of the same rounds.
    pub(super) fn ratio(&self, above: (Cell, Who), below: (Cell, Who), of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        let (above, below) = (self.samples.get(&above)?, self.samples.get(&below)?);
        Spread::of_ratios(above.iter().zip(below).map(|(above, below)| (of(above), of(below))))
    }

    /// The groups that were measured.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> {
        GROUPS
            .into_iter()
            .filter(|group| self.samples.keys().any(|(cell, _)| cell.group == *group))
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut add = |name: String, ratio: Option<Spread>, limit| {
            if let Some(ratio) = ratio {
                targets.push(Target::at_most(name, ratio.median, limit));
            }
        };
        for pair in &PAIRS {
            for (cell, limit) in self.closed_cells(pair) {
                let ratio = self.ratio((cell, pair.own), (cell, pair.other), cpu);
                add(
                    format!(
                        "{}: CPU per operation, {} over {}",
                        cell.name(),
                        pair.own.name(),
                        pair.other.name()
                    ),
                    ratio,
                    limit,
                );
            }
        }
        for pair in &PAIRS {
            for (cell, _) in self.closed_cells(pair).filter(|(cell, _)| cell.mix == Mix::Set) {
                let get = Cell { mix: Mix::Get, ..cell };
                let name = format!("{}: CPU per operation, SET over GET, {}", cell.name(), pair.own.name());
                add(name, self.ratio((cell, pair.own), (get, pair.own), cpu), SET_LIMIT);
            }
        }
        for pair in &PAIRS {
            let ratio = self.ratio((LATENCY, pair.own), (LATENCY, pair.other), |sample| sample.p99_us);
            add(
                format!(
                    "{}: 99th percentile, {} over {}",
                    LATENCY.name(),
                    pair.own.name(),
                    pair.other.name()
                ),
                ratio,
                LATENCY_LIMIT,
            );
        }
        targets
    }

    /// The cells of closed loops, with the limit of the pair.
    fn closed_cells(&self, pair: &Pair) -> impl Iterator<Item = (Cell, f64)> {
        let limits = pair.limits;
        self.groups().flat_map(move |group| {
            Mix::ALL.into_iter().flat_map(move |mix| {
                PIPELINES.into_iter().zip(limits).map(move |(pipeline, limit)| {
                    let cell = Cell {
                        group,
                        mix,
                        pipeline,
                        how: Loop::Closed,
                    };
                    (cell, limit)
                })
            })
        })
    }

    pub(super) fn series(&self) -> Vec<Series> {
        let measures: [(&str, &str, Measure); 4] = [
            ("CPU per operation", "ns", cpu),
            ("throughput", "operations/s", |sample| sample.ops_per_second),
            ("receives per operation, of the load", "", |sample| sample.receives),
            ("latency, 99th percentile", "µs", |sample| sample.p99_us),
        ];
        let mut all: Vec<Series> = Vec::new();
        for (measure, unit, of) in measures {
            for (cell, who) in self.samples.keys() {
                let Some(spread) = self.spread(*cell, *who, of) else {
                    continue;
                };
                let point = Point::spread(cell.pipeline.to_string(), spread);
                let condition = cell.condition();
                // Pipelines of one condition follow each other in the order of the keys, each with all servers.
                let own = all.iter_mut().find(|series| {
                    (series.measure.as_str(), series.condition.as_str(), series.name.as_str())
                        == (measure, condition.as_str(), who.name())
                });
                match own {
                    Some(own) => own.points.push(point),
                    None => all.push(Series {
                        name: who.name().into(),
                        measure: measure.into(),
                        unit: unit.into(),
                        condition,
                        x: "pipeline".into(),
                        points: vec![point],
                    }),
                }
            }
        }
        all
    }

    /// The main load, closed and open.
    pub(super) fn chart(&self) -> Chart {
        let panel = |title: &str, how| {
            let value = |who, pipeline| {
                let cell = Cell {
                    group: MAIN,
                    mix: Mix::NineToOne,
                    pipeline,
                    how,
                };
                self.spread(cell, who, cpu)
            };
            let measured = Who::ALL
                .into_iter()
                .filter(|who| PIPELINES.iter().any(|pipeline| value(*who, *pipeline).is_some()));
            Panel {
                title: title.to_owned(),
                x_label: "requests in flight per connection".into(),
                y_label: "CPU per operation, ns".into(),
                places: PIPELINES.iter().map(ToString::to_string).collect(),
                marks: Marks::Bars,
                series: measured
                    .map(|who| {
                        (
                            who.name().to_owned(),
                            PIPELINES.map(|pipeline| value(who, pipeline)).into(),
                        )
                    })
                    .collect(),
            }
        };
        Chart {
            title: format!("CPU per operation, one thread: 9:1, {}, 64 connections", MAIN.name()),
            panels: vec![
                panel("Closed loop", Loop::Closed),
                panel("Open loop, equal rate", Loop::Open),
            ],
        }
    }
}

/// The load at which latencies are compared.
pub(super) const LATENCY: Cell = Cell {
    group: MAIN,
    mix: Mix::NineToOne,
    pipeline: 1,
    how: Loop::Half,
};

impl Cell {
    fn condition(&self) -> String {
        let how = match self.how {
            Loop::Closed => "closed loop",
            Loop::Open => "open loop",
            Loop::Half => "open loop at half the peak",
        };
        format!("{}, {}, {how}", self.mix.name(), self.group.name())
    }

    pub(super) fn name(&self) -> String {
        format!("{}, pipeline {}", self.condition(), self.pipeline)
    }
}

/// The figure that the targets are about.
pub(super) fn cpu(sample: &Sample) -> f64 {
    sample.cpu_ns
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn sample(cpu_ns: f64) -> Sample {
        Sample {
            cpu_ns,
            ops_per_second: 1e9 / cpu_ns,
            p50_us: 50.0,
            p75_us: cpu_ns / 100.0,
            p99_us: cpu_ns / 100.0,
            receives: 0.5,
            unsent_ratio: 0.0,
            requests: 1000,
            others_cores: 0.01,
        }
    }

    /// Two rounds of the main group: Tidemark at 700 and 770 ns (sets 840 and 924), the others at 1,000 and 1,100.
    pub(in super::super) fn findings() -> Findings {
        let mut findings = Findings {
            scale: "made up".into(),
            ..Findings::default()
        };
        for mix in Mix::ALL {
            for pipeline in PIPELINES {
                for who in Who::ALL {
                    let cell = Cell {
                        group: MAIN,
                        mix,
                        pipeline,
                        how: Loop::Closed,
                    };
                    let base = match who {
                        Who::TidemarkMemcached | Who::TidemarkResp => 700.0,
                        Who::FloorMemcached | Who::FloorResp => 400.0,
                        Who::Memcached | Who::Redis => 1000.0,
                    };
                    let base = if mix == Mix::Set { base * 1.2 } else { base };
                    findings
                        .samples
                        .insert((cell, who), vec![sample(base), sample(base * 1.1)]);
                }
            }
        }
        for pair in PAIRS {
            findings.samples.insert((LATENCY, pair.own), vec![sample(9000.0)]);
            findings.samples.insert((LATENCY, pair.other), vec![sample(8000.0)]);
            findings.rates.insert((LATENCY, pair.own), 50_000.0);
        }
        findings
    }

    #[test]
    fn targets_follow_from_the_rounds_ratios() {
        let targets = findings().targets();
        let find = |part: &str| -> Vec<(f64, bool)> {
            let own = targets.iter().filter(|target| target.name.contains(part));
            own.map(|target| ((target.value * 1000.0).round() / 1000.0, target.met))
                .collect()
        };
        // Two protocols, three mixes: 0.7 is within 0.85 and 0.75, above 0.65 and 0.6.
        assert_eq!(find("pipeline 1: CPU per operation, Tidemark"), [(0.7, true); 6]);
        assert_eq!(
            find("pipeline 10: CPU per operation, Tidemark, memcached"),
            [(0.7, true); 3]
        );
        assert_eq!(
            find("pipeline 10: CPU per operation, Tidemark, RESP"),
            [(0.7, false); 3]
        );
        assert_eq!(find("pipeline 50: CPU per operation, Tidemark"), [(0.7, false); 6]);
        assert_eq!(find("SET over GET"), [(1.2, false); 6]);
        assert_eq!(find("99th percentile"), [(1.125, false); 2]);
        assert_eq!(targets.len(), 18 + 6 + 2);
    }

    #[test]
    fn series_have_a_point_for_each_pipeline() {
        let series = findings().series();
        let main = series.iter().find(|series| {
            (series.measure.as_str(), series.name.as_str()) == ("CPU per operation", "memcached")
                && series.condition == "9:1, 64 bytes, 1 million keys, closed loop"
        });
        let points: Vec<(&str, f64)> = main
            .unwrap()
            .points
            .iter()
            .map(|point| (point.x.as_str(), point.y))
            .collect();
        assert_eq!(points, [("1", 1050.0), ("10", 1050.0), ("50", 1050.0)]);
    }
}
