//! The registry's objects of all sizes through a pool of functions: what it costs, and what is lost.

use super::infinicache_trace::{
    ALL_OBJECTS_DOLLARS, ALL_OBJECTS_RESETS, ALL_OBJECTS_SERVING, Arm, MEMORY_BYTES, PAPER_ALL, TODAY, WITH, chart,
    hours, load, pass, scale, series,
};
use super::others::Others;
use super::report::Target;
use super::{Context, Experiment, Outcome};
use crate::Error;
use crate::functions::{Found, Purpose, made_small};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "infinicache-fig13b",
    title: "50 hours of a registry's objects of all sizes in the memory of functions (InfiniCache, Figs. 13(b) and 14(a))",
    minutes: 10,
    about: "\
The load of [infinicache-trace](infinicache-trace.md), which is the registry's for objects of more than 10 MB, and generated requests for
smaller ones beside it, because the whole trace is not published with the paper. Together there are 3,654 requests an hour, as in the paper's
table 1. Small objects have a byte to 10 MB, half of them below 2 MB, a tenth below 50 KB, so that more than a fifth of all objects are larger than 10 MB and
sizes span nine orders of magnitude (Fig. 1(a)), and 133 GB in all, by which the paper's working sets of all and of large objects differ.
They come when large ones do; three tenths are for objects that nobody asked for before, the others for one of the last that were, recent ones more
often.

All else is as there, with backups: virtual time, the pool, the cloud, the prices of the paper and today's. An object of a byte is coded as any other one, in
twelve chunks of 64 bytes, and each read of it invokes functions, as in the paper. The product keeps objects below 1 MiB in a tenant's memory instead.",
    run,
};

/// Requests of all sizes in an hour (the paper's table 1).
const REQUESTS_AN_HOUR: u64 = 3_654;
/// The small objects are others for the same seed.
const SMALL_SEED: u64 = 1 << 32;

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let (mut load, from) = load(context)?;
    let all = (hours(context) * REQUESTS_AN_HOUR) as usize;
    let small = made_small(context.seed + SMALL_SEED, &load, all.saturating_sub(load.len()));
    let words = format!("{from}, with {} generated ones for small objects", small.len());
    load.extend(small);
    load.sort_by_key(|asked| asked.at_us);
    let passed = pass(context, &[WITH, TODAY], &load)?;
    let series = series(&passed, &PAPER_ALL);
    Ok(Outcome {
        scale: scale(load.len(), &words),
        targets: targets(&passed),
        chart: chart(EXPERIMENT.title, &series),
        series,
        others_cores: others.cores(),
    })
}

/// The paper's figures, which are to be reached at its prices.
fn targets(passed: &[(Arm, Found)]) -> Vec<Target> {
    let Some((arm, found)) = passed.iter().find(|(arm, _)| !arm.is_today) else {
        return Vec::new();
    };
    let all = found.all();
    let dollars = all.dollars(&arm.prices(), MEMORY_BYTES);
    vec![
        Target::at_most("dollars for 50 hours", dollars.iter().sum(), ALL_OBJECTS_DOLLARS),
        Target::at_most(
            "dollars of it for serving",
            dollars[Purpose::Serving as usize],
            ALL_OBJECTS_DOLLARS * ALL_OBJECTS_SERVING,
        ),
        Target::at_most("RESETs", all.resets as f64, ALL_OBJECTS_RESETS),
    ]
}
