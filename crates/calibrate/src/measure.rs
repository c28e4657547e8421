//! Measuring a load: at parts of its peak.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidemark_meter::model::{Input, Load, Present, Work};
use tidemark_tools::bench::{self, Options, Workload};
use tidemark_tools::client::Protocol;
use tidemark_tools::load::{Distribution, Lifetimes, Order, ValueSize};

use crate::{Error, LoadSpec};

/// Rates at which each load is measured, as parts of its peak. The peak itself is found in closed loop, which is no measurement: the
/// load generator sleeps there until the reply comes, so that the server pays for waking it, which a client elsewhere does not ask of it.
const RATES: [f64; 4] = [0.1, 0.35, 0.7, 0.9];
/// Measurements of a load.
pub(crate) const POINTS: usize = RATES.len();
/// The part of a load's time that storing its keys, opening connections and the server's readings take.
const PREPARATION_SECONDS: f64 = 0.4;
const READING_SECONDS: f64 = 0.12;
/// A measurement that the server knows nothing of is made again.
const ATTEMPTS: usize = 3;
/// A shorter measurement says nothing: CPU time is shared out every few milliseconds.
const SECONDS_MIN: f64 = 0.1;

/// A server's counts of the measured tenant, which never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The work that it did.
    pub work: Work,
    /// CPU time that it was charged.
    pub cpu_ns: u64,
    /// Items that it has now.
    pub items: u64,
}

/// A server that is measured, with one tenant that needs no login.
pub trait Subject {
    /// The address on which it listens.
    fn address(&self, protocol: Protocol) -> SocketAddr;

    /// The present counts of the tenant.
    ///
    /// # Errors
    /// It does not answer.
    fn reading(&mut self) -> Result<Reading, Error>;
}

/// A load at a rate, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The load.
    pub spec: LoadSpec,
    /// The pass over all loads in which it was measured, from 0 on.
    #[serde(default)]
    pub pass: u32,
    /// The rate, as a part of the load's peak.
    pub rate_ratio: f64,
    /// How long it was measured.
    pub seconds: f64,
    /// Commands that were executed meanwhile.
    pub operations: u64,
    /// CPU time that they took.
    pub cpu_ns: u64,
    /// The load as the server saw it, by the inputs' names; what it cannot know is the load generator's.
    pub inputs: BTreeMap<String, f64>,
}

impl Point {
    /// The load that a model is asked about.
    pub fn load(&self) -> Load {
        let value = |input: Input| self.inputs.get(input.name()).copied();
        let with = |load: Load, input: Input| load.with(input, value(input));
        Input::ALL.into_iter().fold(Load::default(), with)
    }

    /// CPU time per command, in nanoseconds.
    pub fn ns_per_operation(&self) -> f64 {
        self.cpu_ns as f64 / self.operations as f64
    }

    /// Commands per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// How long each measurement may take if so many loads, those that are measured again included, are to take so many minutes.
pub fn seconds_of(minutes: f64, loads: usize) -> f64 {
    let each = minutes * 60.0 / loads as f64 - PREPARATION_SECONDS;
    // Its peak is looked for as long.
    (each / (POINTS + 1) as f64 - READING_SECONDS).max(SECONDS_MIN)
}

/// Finds the peak of a load and measures it at parts of that, each for so long. `pass` is the number of the pass over all loads.
///
/// # Errors
/// The server does not answer, or refuses the load.
pub fn measure(spec: &LoadSpec, pass: u32, seconds: f64, subject: &mut dyn Subject) -> Result<Vec<Point>, Error> {
    let closed = options(spec, subject.address(spec.protocol()), seconds);
    let mut load = bench::Load::open(&closed, &mut |_| {})?;
    let mut before = subject.reading()?;
    let peak_rate = point(spec, 1.0, &mut before, subject, &mut load)?.rate();
    drop(load);
    let mut points = Vec::with_capacity(POINTS);
    for ratio in RATES {
        let open = Options {
            rate: Some(peak_rate * ratio),
            preload: false,
            ..closed.clone()
        };
        let mut load = bench::Load::open(&open, &mut |_| {})?;
        points.push(point(spec, ratio, &mut before, subject, &mut load)?);
    }
    points.iter_mut().for_each(|point| point.pass = pass);
    Ok(points)
}

/// Measures once. `before` is what the server said last, before the load, and becomes what it says after it.
fn point(
    spec: &LoadSpec,
    rate_ratio: f64,
    before: &mut Reading,
    subject: &mut dyn Subject,
    load: &mut bench::Load,
) -> Result<Point, Error> {
    for _ in 0..ATTEMPTS {
        let began = Instant::now();
        load.measure(&mut |_| {})?;
        let seconds = began.elapsed().as_secs_f64();
        let after = subject.reading()?;
        let before = std::mem::replace(before, after);
        let work = after.work.since(&before.work);
        let cpu_ns = after.cpu_ns.saturating_sub(before.cpu_ns);
        if work.operations == 0 || cpu_ns == 0 {
            continue;
        }
        let present = Present {
            connections: spec.connections as u64,
            items: after.items,
        };
        let seen = work.load(&after.work, seconds, present);
        let seen = seen.with(Input::Skew, Some(spec.skew));
        let known = |input: Input| Some((input.name().to_owned(), seen.get(input)?));
        return Ok(Point {
            spec: *spec,
            pass: 0,
            rate_ratio,
            seconds,
            operations: work.operations,
            cpu_ns,
            inputs: Input::ALL.into_iter().filter_map(known).collect(),
        });
    }
    Err(Error::Subject(format!("load {} left no trace", spec.number)))
}

/// The load in closed loop, its keys stored first.
fn options(spec: &LoadSpec, address: SocketAddr, seconds: f64) -> Options {
    let distribution = if spec.skew > 0.0 {
        Distribution::Zipf { alpha: spec.skew }
    } else {
        Distribution::Uniform
    };
    Options {
        address,
        protocol: spec.protocol(),
        logins: vec![None],
        keys_apart: false,
        connections: spec.connections,
        pipeline: spec.pipeline,
        threads: 1,
        workload: Workload {
            keys: spec.keys,
            distribution,
            order: Order::Scrambled,
            key_size_bytes: spec.key_bytes,
            value_size: ValueSize::Fixed(spec.value_bytes),
            reads_ratio: spec.reads,
            fresh_ratio: 1.0 - spec.hit_ratio,
            lifetimes: Lifetimes::default(),
            seed: u64::from(spec.number) + 1,
        },
        rate: None,
        burst: spec.pipeline,
        // A load generator that sleeps has to be woken, and the server would pay for that.
        sleeps: false,
        seconds,
        preload: true,
        look_aside: false,
        verify: false,
    }
}
