//! The measurements themselves.

use super::super::Context;
use super::super::machine::available_memory_bytes;
use super::super::measure::{Endpoint, Load, Plan, Rounds, rounds};
use super::super::server::{Kind, Limits, Server};
use super::super::syscalls;
use super::cells::{Cell, Findings, GROUPS, Group, LATENCY, Loop, MAIN, Mix, PAIRS, PIPELINES, Who};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;

/// The rate of open loops, as a part of the slowest server's in closed loop.
const OPEN_SHARE: f64 = 0.7;
/// The rate at which latencies are compared, as a part of the other server's.
const HALF: f64 = 0.5;
/// The memory limit of a server over the expected use: nothing shall be evicted.
const ROOM: u64 = 2;
/// The part of the available memory that the three servers that store something may be expected to take.
const MEMORY_SHARE: f64 = 0.8;
/// Rare latencies need more requests than times do, and more rounds.
const LATENCY_SECONDS: f64 = 1.0;
const LATENCY_ROUNDS: usize = 2;
/// System calls are the same in every second: one measurement is enough.
const CALLS_SECONDS: f64 = 0.5;

/// How much is done.
#[derive(Clone, Copy)]
struct Scale {
    rounds: usize,
    seconds: f64,
}

pub(super) fn run(context: &Context, rounds: Option<usize>) -> Result<Findings, Error> {
    let mut scale = if context.quick {
        Scale {
            rounds: 5,
            seconds: 0.4,
        }
    } else {
        Scale {
            rounds: 10,
            seconds: 0.5,
        }
    };
    scale.rounds = rounds.unwrap_or(scale.rounds);
    let groups = groups(context);
    let mut findings = Findings {
        scale: format!(
            "{} interleaved rounds of {} s for each server and load (for latencies {} rounds of {LATENCY_SECONDS} s), \
             64 connections, {} of {} combinations of values and keys",
            scale.rounds,
            scale.seconds,
            scale.rounds * LATENCY_ROUNDS,
            groups.len(),
            GROUPS.len()
        ),
        ..Findings::default()
    };
    for group in groups {
        Lineup::start(context, group)?.measure(&mut findings, scale)?;
    }
    Ok(findings)
}

/// Those that are asked for and for which there is memory.
fn groups(context: &Context) -> Vec<Group> {
    let available_bytes = available_memory_bytes() as f64 * MEMORY_SHARE;
    let asked = GROUPS
        .into_iter()
        .filter(|group| !context.quick || group.keys == MAIN.keys);
    let fits = |group: &Group| {
        let fits = (group.memory_bytes() * STORING) as f64 <= available_bytes;
        if !fits {
            context.tell(&format!("{}: left out, for want of memory", group.name()));
        }
        fits
    };
    asked.filter(fits).collect()
}

/// Servers that store something.
const STORING: u64 = 3;

/// The servers of a group, with its keys in them.
struct Lineup<'a> {
    context: &'a Context,
    group: Group,
    /// Tidemark, memcached, Redis, and the floors.
    servers: [Server; 5],
    /// The endpoints, in the order of [`Who::ALL`].
    endpoints: Vec<Endpoint<'static>>,
}

impl<'a> Lineup<'a> {
    fn start(context: &'a Context, group: Group) -> Result<Self, Error> {
        let name = group.name();
        context.tell(&format!("{name}: starting the servers and storing the keys"));
        let value_bytes = group.value_bytes;
        let limits = Limits {
            memory_bytes: group.memory_bytes() * ROOM,
            value_bytes,
        };
        let start = |kind| Server::start(&context.stage, kind, limits);
        let floor = |protocol| start(Kind::Floor { protocol, value_bytes });
        let servers = [
            start(Kind::Tidemark)?,
            start(Kind::Memcached)?,
            start(Kind::Redis)?,
            floor(Protocol::Memcached)?,
            floor(Protocol::Redis)?,
        ];
        let mut endpoints = Vec::new();
        for who in Who::ALL {
            let (place, protocol) = who.server();
            endpoints.push(Endpoint::open(who.name(), servers[place].address(protocol)?, protocol));
        }
        for (who, endpoint) in Who::ALL.into_iter().zip(&endpoints) {
            // Both of Tidemark's protocols see the same keys.
            if [Who::TidemarkMemcached, Who::Memcached, Who::Redis].contains(&who) {
                endpoint.preload(group.data(), context.seed)?;
            }
        }
        Ok(Self {
            context,
            group,
            servers,
            endpoints,
        })
    }

    fn measure(&self, findings: &mut Findings, scale: Scale) -> Result<(), Error> {
        let cells: Vec<Cell> = Mix::ALL
            .into_iter()
            .flat_map(|mix| PIPELINES.map(|pipeline| self.cell(mix, pipeline, Loop::Closed)))
            .collect();
        // The floor does not depend on how many keys there are.
        let all = if self.group.keys == MAIN.keys {
            &Who::ALL[..]
        } else {
            &Who::ALL[..4]
        };
        self.measure_cells(findings, (&cells, all), scale, None)?;

        for pipeline in PIPELINES {
            let closed = self.cell(Mix::NineToOne, pipeline, Loop::Closed);
            let slowest = Who::ALL[..4]
                .iter()
                .filter_map(|who| findings.peak(closed, *who))
                .fold(f64::INFINITY, f64::min);
            let open = self.cell(Mix::NineToOne, pipeline, Loop::Open);
            self.measure_cells(findings, (&[open], &Who::ALL[..4]), scale, Some(slowest * OPEN_SHARE))?;
        }
        if self.group == MAIN {
            self.measure_latencies(findings, scale)?;
            self.count_calls(findings)?;
        }
        Ok(())
    }

    /// Each pair and its floor at half of the peak of its other server.
    fn measure_latencies(&self, findings: &mut Findings, scale: Scale) -> Result<(), Error> {
        let scale = Scale {
            rounds: scale.rounds * LATENCY_ROUNDS,
            seconds: LATENCY_SECONDS,
        };
        for pair in &PAIRS {
            let closed = self.cell(Mix::NineToOne, 1, Loop::Closed);
            let Some(peak) = findings.peak(closed, pair.other) else {
                continue;
            };
            self.measure_cells(
                findings,
                (&[LATENCY], &[pair.own, pair.other, pair.floor]),
                scale,
                Some(peak * HALF),
            )?;
        }
        Ok(())
    }

    fn measure_cells(
        &self,
        findings: &mut Findings,
        (cells, who): (&[Cell], &[Who]),
        scale: Scale,
        rate: Option<f64>,
    ) -> Result<(), Error> {
        let endpoints: Vec<Endpoint<'_>> = who.iter().map(|who| self.endpoints[who.place()]).collect();
        let loads: Vec<Load> = cells.iter().map(|cell| cell.load(scale.seconds, rate)).collect();
        let plan = Plan {
            rounds: scale.rounds,
            seed: self.context.seed,
        };
        let what = match (cells, rate) {
            ([cell], Some(rate)) => format!("pipeline {}, {rate:.0} operations/s", cell.pipeline),
            _ => "closed loop".to_owned(),
        };
        let name = self.group.name();
        let found: Rounds = rounds(&endpoints, self.group.data(), &loads, plan, &mut |round| {
            self.context
                .tell(&format!("{name}: {what}, round {round} of {}", scale.rounds));
        })?;
        for (cell, of_cell) in cells.iter().zip(found) {
            for (who, samples) in who.iter().zip(of_cell) {
                findings.samples.insert((*cell, *who), samples);
                if let Some(rate) = rate {
                    findings.rates.insert((*cell, *who), rate);
                }
            }
        }
        Ok(())
    }

    /// Counts system calls at the loads of the main table, where `perf` can.
    fn count_calls(&self, findings: &mut Findings) -> Result<(), Error> {
        self.context.tell("counting system calls");
        for how in [Loop::Closed, Loop::Open] {
            for pipeline in PIPELINES {
                let cell = self.cell(Mix::NineToOne, pipeline, how);
                for who in Who::ALL {
                    let rate = findings.rates.get(&(cell, who)).copied();
                    if how == Loop::Open && rate.is_none() {
                        continue;
                    }
                    let (endpoint, server) = (&self.endpoints[who.place()], &self.servers[who.server().0]);
                    let load = cell.load(CALLS_SECONDS, rate);
                    let counted = syscalls::count(&self.context.stage, server, || {
                        endpoint.measure(self.group.data(), load, self.context.seed)
                    });
                    let Some((calls, sample)) = counted else { return Ok(()) };
                    findings.calls.insert((cell, who), calls.per(sample?.requests));
                }
            }
        }
        Ok(())
    }

    fn cell(&self, mix: Mix, pipeline: usize, how: Loop) -> Cell {
        Cell {
            group: self.group,
            mix,
            pipeline,
            how,
        }
    }
}

impl Cell {
    fn load(&self, seconds: f64, rate: Option<f64>) -> Load {
        Load {
            distribution: Distribution::Uniform,
            reads_ratio: self.mix.reads_ratio(),
            pipeline: self.pipeline,
            rate,
            seconds,
        }
    }
}

impl Who {
    /// Its place in [`Who::ALL`].
    fn place(self) -> usize {
        self as usize
    }

    /// Its place in [`Lineup::servers`], and its protocol.
    fn server(self) -> (usize, Protocol) {
        match self {
            Self::TidemarkMemcached => (0, Protocol::Memcached),
            Self::Memcached => (1, Protocol::Memcached),
            Self::TidemarkResp => (0, Protocol::Redis),
            Self::Redis => (2, Protocol::Redis),
            Self::FloorMemcached => (3, Protocol::Memcached),
            Self::FloorResp => (4, Protocol::Redis),
        }
    }
}

impl Findings {
    /// Operations per second in closed loop.
    fn peak(&self, cell: Cell, who: Who) -> Option<f64> {
        self.spread(cell, who, |sample| sample.ops_per_second)
            .map(|spread| spread.median)
    }
}
