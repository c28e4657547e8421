//! The cost of elasticity: the same server with and without it, alternating (`docs/experiments/overhead.md`).

mod instructions;
mod metered;
mod start;
mod switched;

use tidemark_types::GIB;

use super::others::{DISTURBED_CORES, Others};
use super::process::Process;
use super::report::{Point, Series, Target, add_point};
use super::{Chart, Context, Experiment, Marks, Outcome, Panel, Spread};
use crate::Error;
use tidemark_tools::bench::{Load, Options, Report, Workload};
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;

pub(super) use metered::EXPERIMENT as METERED;
pub(super) use start::Started;
pub use switched::{Metered, Shape, serve as serve_switched};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "overhead",
    title: "What elasticity costs: switched on and off in one server",
    minutes: 55,
    about: "\
One server with one worker, whose elasticity is switched on and off under a load that stays the same: a million keys of 16
bytes with values of 64, uniform, nine gets to one set, a missed key is set, 128 connections; all keys belong to one tenant,
or to 128 tenants with a 128th each. Every tenant aims at a hit ratio of 90 %, and had a minute to settle there. Off, nothing
is sampled and the control plane makes no round, so what is measured as the cost of elasticity is sampling, estimating,
planning and the round itself. To the control plane the time in which it was off does not exist: it goes on where it was.
A pair is a second of each, one right after the other on the same connections, in the opposite order every time; what is
compared are the two of a pair. Longer pairs would not differ less, so the interval is narrowed by more of them. CPU time is
that of the server's process, of all its threads. The interval is that in which the median of the pairs' ratios lies with 95 %
certainty, by the ranks of the sorted ratios; its upper end shall be below twice the target of 1 %, with 128 tenants of 3 %.
Latency is that of gets and sets that are due at fixed times, 50,000 a second.

Instructions are those of all threads, counted by valgrind in closed loop with a sixteenth of the keys. They do not depend on
the day, and shall be below the target itself. A server under valgrind is some fifty times slower; the control plane's time goes
ten times slower there, its rounds with it, so that what it does for an operation is still more than it is in use.",
    run,
};

const KEYS: u64 = 1_000_000;
const CONNECTIONS: usize = 128;
const GOAL: f64 = 0.9;
/// A goal for servers that are to do the same work: so high that all items stay. What a miss costs is no overhead.
pub(in crate::experiment) const ALL_STAYS: f64 = 0.9999;
/// Its items and how they are asked for.
const ASKED: Asked = Asked {
    goal: GOAL,
    key_bytes: 16,
    value_bytes: 64,
    distribution: Distribution::Uniform,
    reads_ratio: 0.9,
    pipeline: PIPELINE,
};
/// Room for all keys twice.
const POOL_BYTES: u64 = GIB;
const CASES: [Case; 2] = [
    Case {
        tenants: 1,
        cpu_limit: 1.02,
        instructions_limit: 1.01,
        pairs: 480,
    },
    Case {
        tenants: 128,
        cpu_limit: 1.06,
        instructions_limit: 1.03,
        pairs: 120,
    },
];
const PIPELINE: usize = 50;
const OPEN_RATE: f64 = 50_000.0;
const LATENCY_LIMIT: f64 = 1.1;

/// A server with so many tenants.
#[derive(Clone, Copy, Debug)]
struct Case {
    tenants: usize,
    /// The limit of the CPU time over that without: twice the target.
    cpu_limit: f64,
    /// The limit of the instructions over those without: the target itself.
    instructions_limit: f64,
    /// The number of pairs. The interval of sixty reaches some two hundredths up if a machine's seconds differ by a
    /// tenth. A narrower limit needs more.
    pairs: usize,
}

/// How much is done on one server.
#[derive(Clone, Copy, Debug)]
struct Scale {
    pairs: usize,
    seconds: f64,
    settle_seconds: f64,
    keys: u64,
    /// Its instructions are counted, and meanwhile the control plane's time goes so many times slower.
    counted_slowed: Option<u32>,
}

/// The items of a load, and how they are asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The hit ratio that each tenant aims at.
    goal: f64,
    key_bytes: usize,
    value_bytes: usize,
    distribution: Distribution,
    reads_ratio: f64,
    /// Requests in flight per connection, in closed loop.
    pipeline: usize,
}

/// One load.
#[derive(Clone, Copy, Debug)]
struct Cell {
    tenants: usize,
    /// Requests in flight per connection, in closed loop.
    pipeline: usize,
    /// Open loop, if there is one.
    rate: Option<f64>,
    limit: f64,
}

impl Cell {
    fn name(&self) -> String {
        // Short enough for a place of the chart.
        match self.rate {
            Some(rate) => format!("{}, {rate:.0}/s", self.tenants),
            None => format!("{}, pipeline {}", self.tenants, self.pipeline),
        }
    }
}

/// The loads of a server with so many tenants.
fn cells(tenants: usize, limit: f64) -> [Cell; 2] {
    let closed = Cell {
        tenants,
        pipeline: PIPELINE,
        rate: None,
        limit,
    };
    let open = Cell {
        pipeline: 1,
        rate: Some(OPEN_RATE),
        ..closed
    };
    [closed, open]
}

/// The measurement with elasticity on, and without it.
#[derive(Clone, Copy, Debug)]
struct Pair {
    cpu_ns: [f64; 2],
    p99_us: [f64; 2],
}

/// How CPU time and latency are measured.
fn timed(context: &Context, case: &Case) -> Scale {
    if context.quick {
        Scale {
            pairs: 8,
            seconds: 0.5,
            settle_seconds: 3.0,
            keys: KEYS / 16,
            counted_slowed: None,
        }
    } else {
        Scale {
            pairs: case.pairs,
            seconds: 1.0,
            settle_seconds: 60.0,
            keys: KEYS,
            counted_slowed: None,
        }
    }
}

/// How instructions are counted.
fn counted(context: &Context) -> Scale {
    if context.quick {
        Scale {
            pairs: 1,
            seconds: 2.5,
            settle_seconds: 3.0,
            keys: KEYS / 64,
            counted_slowed: Some(1),
        }
    } else {
        Scale {
            pairs: 3,
            // Three rounds.
            seconds: 30.0,
            settle_seconds: 180.0,
            keys: KEYS / 16,
            counted_slowed: Some(10),
        }
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let mut found = Found::default();
    for case in &CASES {
        let (tenants, scale) = (case.tenants, timed(context, case));
        context.tell(&format!("{tenants} tenants: storing keys and settling"));
        let mut scene = Scene::start(context, tenants, scale)?;
        for cell in cells(tenants, case.cpu_limit) {
            context.tell(&format!("{}: {} pairs", cell.name(), scale.pairs));
            found.add(&cell, &scene.pairs(&cell)?);
        }
        drop(scene);
        context.tell(&format!("{tenants} tenants: counting instructions"));
        let mut scene = Scene::start(context, tenants, counted(context))?;
        let [cell, _] = cells(tenants, case.instructions_limit);
        found.add_instructions(&cell, &scene.counted_pairs(&cell)?);
    }
    let chart = found.chart();
    let [one, many] = CASES.map(|case| timed(context, &case));
    Ok(Outcome {
        scale: format!(
            "{} and {} pairs of {} s each; {} keys",
            one.pairs, many.pairs, one.seconds, one.keys
        ),
        targets: found.targets,
        series: found.series,
        chart,
        others_cores: others.cores(),
    })
}

/// A server that runs, with elasticity on.
struct Scene {
    process: Process,
    options: Options,
    scale: Scale,
}

impl Scene {
    fn start(context: &Context, tenants: usize, scale: Scale) -> Result<Self, Error> {
        Self::asked(context, tenants, (Metered::default(), ASKED), scale)
    }

    /// The same with other metering and another load.
    fn asked(
        context: &Context,
        tenants: usize,
        (metered, asked): (Metered, Asked),
        scale: Scale,
    ) -> Result<Self, Error> {
        let started = Started::start(context, (tenants, asked.goal), metered, scale.counted_slowed)?;
        let keys = (scale.keys / tenants as u64).max(1);
        let scene = Self {
            options: Options {
                address: started.address,
                protocol: Protocol::Redis,
                logins: started.logins,
                keys_apart: false,
                connections: CONNECTIONS,
                pipeline: asked.pipeline,
                threads: 1,
                workload: Workload {
                    reads_ratio: asked.reads_ratio,
                    seed: context.seed,
                    ..Workload::gets(keys, asked.distribution, asked.key_bytes, asked.value_bytes)
                },
                rate: None,
                burst: 1,
                sleeps: false,
                seconds: scale.settle_seconds,
                preload: true,
                look_aside: true,
                verify: false,
            },
            process: started.process,
            scale,
        };
        scene.measure(&mut scene.open(&scene.options)?)?;
        Ok(scene)
    }

    fn open(&self, options: &Options) -> Result<Load, Error> {
        Ok(Load::open(options, &mut |_| {})?)
    }

    fn measure(&self, load: &mut Load) -> Result<Report, Error> {
        let report = load.measure(&mut |_| {})?;
        if report.errors > 0 {
            let mistake = report.first_mistake.unwrap_or_else(|| "requests failed".into());
            return Err(self.process.failure(&mistake));
        }
        Ok(report)
    }

    /// Pair after pair. One during which other processes were busy is measured again, as long as there is patience.
    fn pairs(&mut self, cell: &Cell) -> Result<Vec<Pair>, Error> {
        let (mut pairs, mut patience) = (Vec::new(), self.scale.pairs);
        let mut load = self.open(&self.options_of(cell))?;
        while pairs.len() < self.scale.pairs {
            let others = Others::watch();
            let pair = self.pair(&mut load, pairs.len())?;
            if others.cores() > DISTURBED_CORES && patience > 0 {
                patience -= 1;
            } else {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }

    /// Instructions per operation with elasticity on and off, pair after pair.
    fn counted_pairs(&mut self, cell: &Cell) -> Result<Vec<[f64; 2]>, Error> {
        let mut counter = instructions::Counter::default();
        let mut pairs = Vec::new();
        let mut load = self.open(&self.options_of(cell))?;
        for number in 0..self.scale.pairs {
            let mut pair = [f64::NAN; 2];
            for is_on in order(number) {
                self.switch(is_on)?;
                counter.since_last(&self.process)?;
                let report = self.measure(&mut load)?;
                let counted = counter.since_last(&self.process)?;
                pair[usize::from(!is_on)] = counted as f64 / report.requests.max(1) as f64;
            }
            pairs.push(pair);
        }
        Ok(pairs)
    }

    fn options_of(&self, cell: &Cell) -> Options {
        Options {
            pipeline: cell.pipeline,
            rate: cell.rate,
            seconds: self.scale.seconds,
            preload: false,
            ..self.options.clone()
        }
    }

    fn pair(&mut self, load: &mut Load, number: usize) -> Result<Pair, Error> {
        let mut pair = Pair {
            cpu_ns: [f64::NAN; 2],
            p99_us: [f64::NAN; 2],
        };
        for is_on in order(number) {
            self.switch(is_on)?;
            let report = self.measure(load)?;
            let place = usize::from(!is_on);
            let cpu_ns = report.server_cpu_ns_per_op;
            pair.cpu_ns[place] = cpu_ns.ok_or_else(|| self.process.failure("its CPU time can not be read"))?;
            pair.p99_us[place] = report.latency_us.map_or(f64::NAN, |latency| latency.p99);
        }
        self.switch(true)?;
        Ok(pair)
    }

    fn switch(&mut self, is_on: bool) -> Result<(), Error> {
        let (signal, answer) = if is_on {
            (switched::ON, "on")
        } else {
            (switched::OFF, "off")
        };
        self.process.signal(signal);
        let answered = self.process.line()?;
        if answered == answer {
            Ok(())
        } else {
            Err(self.process.failure(&format!("it is `{answered}`, not `{answer}`")))
        }
    }
}

/// On and off in the opposite order every time.
fn order(number: usize) -> [bool; 2] {
    let on_first = number.is_multiple_of(2);
    [on_first, !on_first]
}

/// The 95 % confidence interval of the median: the values at the ranks n/2 -+ 0.98 sqrt(n) of the sorted ones (Conover,
/// Practical Nonparametric Statistics, 3.2). It is `None` with too few values.
fn median_interval(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (middle, reach) = (sorted.len() as f64 / 2.0, 0.98 * (sorted.len() as f64).sqrt());
    let (low, high) = ((middle - reach).floor(), (middle + reach).ceil());
    if low < 1.0 || high + 1.0 > sorted.len() as f64 {
        return None;
    }
    // Ranks count from one.
    Some((sorted[low as usize - 1], sorted[high as usize]))
}

#[derive(Default)]
struct Found {
    targets: Vec<Target>,
    series: Vec<Series>,
}

const CPU: &str = "CPU per operation";
const RATIO: &str = "with elasticity over without";
const LATENCY: &str = "latency, 99th percentile";
const INSTRUCTIONS: &str = "instructions per operation";

impl Found {
    fn add(&mut self, cell: &Cell, pairs: &[Pair]) {
        let name = cell.name();
        for (place, state) in ["on", "off"].into_iter().enumerate() {
            self.add_point(&name, (state, CPU, "ns"), pairs.iter().map(|pair| pair.cpu_ns[place]));
            if cell.rate.is_some() {
                self.add_point(
                    &name,
                    (state, LATENCY, "µs"),
                    pairs.iter().map(|pair| pair.p99_us[place]),
                );
            }
        }
        let cpu = || pairs.iter().map(|pair| pair.cpu_ns[0] / pair.cpu_ns[1]);
        self.add_point(&name, (CPU, RATIO, "ratio"), cpu());
        let upper = median_interval(cpu()).map_or(f64::NAN, |(_, high)| high);
        let what = format!("{name}: CPU per operation, on over off, upper end of the median's interval");
        self.targets.push(Target::at_most(what, upper, cell.limit));
        if cell.rate.is_some() {
            let latency = || pairs.iter().map(|pair| pair.p99_us[0] / pair.p99_us[1]);
            self.add_point(&name, (LATENCY, RATIO, "ratio"), latency());
            let median = Spread::of(latency()).map_or(f64::NAN, |spread| spread.median);
            let what = format!("{name}: {LATENCY}, on over off, median");
            self.targets.push(Target::at_most(what, median, LATENCY_LIMIT));
        }
    }

    fn add_instructions(&mut self, cell: &Cell, pairs: &[[f64; 2]]) {
        let name = cell.name();
        for (place, state) in ["on", "off"].into_iter().enumerate() {
            self.add_point(
                &name,
                (state, INSTRUCTIONS, "count"),
                pairs.iter().map(|pair| pair[place]),
            );
        }
        let ratios = || pairs.iter().map(|pair| pair[0] / pair[1]);
        self.add_point(&name, (INSTRUCTIONS, RATIO, "ratio"), ratios());
        let median = Spread::of(ratios()).map_or(f64::NAN, |spread| spread.median);
        let what = format!("{name}: {INSTRUCTIONS}, on over off, median");
        self.targets.push(Target::at_most(what, median, cell.limit));
    }

    fn add_point(&mut self, cell: &str, (name, measure, unit): (&str, &str, &str), values: impl Iterator<Item = f64>) {
        if let Some(spread) = Spread::of(values) {
            let point = Point::spread(cell, spread);
            add_point(&mut self.series, (name, measure, unit), ("", "tenants, load"), point);
        }
    }

    fn chart(&self) -> Chart {
        let panel = |measure: &str| {
            let own: Vec<&Series> = self.series.iter().filter(|series| series.measure == measure).collect();
            Panel::of_series(measure, Marks::Bars, &own)
        };
        Chart {
            title: "Elasticity on and off".into(),
            panels: [CPU, LATENCY].map(panel).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_ranks() {
        let interval = |count: u32| median_interval((1..=count).rev().map(f64::from));
        // The ranks for 95 %: of 60 values the 22nd to the 39th.
        assert_eq!(interval(60), Some((22.0, 39.0)));
        assert_eq!(interval(100), Some((40.0, 61.0)));
        assert_eq!(interval(5), None);
    }

    #[test]
    fn targets_are_of_the_interval_and_of_the_median() {
        let pairs: Vec<Pair> = (0..60)
            .map(|number| Pair {
                cpu_ns: [1000.0 + f64::from(number), 1000.0],
                p99_us: [105.0, 100.0],
            })
            .collect();
        let mut found = Found::default();
        cells(1, 1.02).iter().for_each(|cell| found.add(cell, &pairs));
        let values: Vec<(f64, bool)> = found.targets.iter().map(|target| (target.value, target.met)).collect();
        assert_eq!(values, [(1.038, false), (1.038, false), (1.05, true)]);
        assert_eq!(found.chart().panels.len(), 2);
        let [cell, _] = cells(1, 1.01);
        found.add_instructions(&cell, &[[1005.0, 1000.0], [1030.0, 1000.0], [1009.0, 1000.0]]);
        let last = found.targets.last().unwrap();
        assert!((last.value - 1.009).abs() < 1e-9 && last.met, "{last:?}");
    }
}
