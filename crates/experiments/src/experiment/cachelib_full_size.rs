//! The study of CacheLib's experiment at full size, as time passes: Tidemark's rule alone. See [`crate::study`].

use tidemark_control::Utility;

use super::cachelib_study::{FLOOR, MOVED, OF_ORACLE, PREDICTION_ERROR, STEP, label, time_labels};
use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use crate::study::{Found, Plot, Rule, Setting, TENANTS, run as run_in_virtual_time, run_in_real_time};

pub(super) const STATIC: Experiment = Experiment {
    name: "cachelib-study-static",
    title: "Four tenants that compete at full size, in real time: all there (the study of CacheLib)",
    minutes: 43,
    about: "\
The static plot of [cachelib-study](cachelib-study.md) at full size and as time passes: four tenants with 20 million items of
1 KiB each, a pool of 8 GiB in this process, with the cache's own threads and a thread for each tenant's client, 2,500 s. A hit takes the
client 1.07 us and a miss 233 us, whatever they take the store; how far a client was behind that at its end is among the figures.
Tidemark's rule alone, by throughput, with floors of 5 %. It is compared with the same rule at an eighth of the size in virtual
time, run beside it, which that other page compares with the oracle. Full size does more: where the exponent is above 1, the
same part of the keys misses the less, the more keys there are (for Zipf 1.2 and eight times as many, 1.5 times less).",
    run: run_static,
};

pub(super) const DYNAMIC: Experiment = Experiment {
    name: "cachelib-study-dynamic",
    title: "Four tenants that compete at full size, in real time: coming and going (the study of CacheLib)",
    minutes: 60,
    about: "\
The dynamic plot of [cachelib-study](cachelib-study.md) at full size and as time passes: four tenants with 20 million items of
1 KiB each join a pool of 8 GiB in this process at 0, 500, 1000 and 1500 s and leave in reverse from 2000 to 3500 s, with the cache's
own threads and a thread for each tenant's client. A hit takes the client 1.07 us and a miss 233 us, whatever they take the store; how
far a client was behind that at its end is among the figures. Tidemark's rule alone, by throughput, with floors of 5 %. It is
compared with the same rule at an eighth of the size in virtual time, run beside it, which that other page compares with the
oracle. Full size does more: where the exponent is above 1, the same part of the keys misses the less, the more keys there are (for
Zipf 1.2 and eight times as many, 1.5 times less).",
    run: run_dynamic,
};

/// No client may be further behind, over the time that it is there: else the machine was measured.
const BEHIND: f64 = 0.01;

fn run_static(context: &Context) -> Result<Outcome, Error> {
    run(context, Plot::Static)
}

fn run_dynamic(context: &Context) -> Result<Outcome, Error> {
    run(context, Plot::Dynamic)
}

fn run(context: &Context, plot: Plot) -> Result<Outcome, Error> {
    let others = Others::watch();
    let rule = Rule::tidemark(Utility::Throughput, FLOOR);
    let (divisor, haste) = if context.quick { (64, 100) } else { (1, 1) };
    let setting = |divisor, haste| Setting {
        divisor,
        plot,
        haste,
        seed: context.seed,
    };
    context.tell("an eighth, in virtual time");
    let eighth = run_in_virtual_time(&setting(8 * divisor, 1), &rule)?;
    let full = setting(divisor, haste);
    context.tell(&format!("full size, {} s", full.seconds()));
    let (found, behind) = run_in_real_time(&full, &rule)?;
    Ok(Outcome {
        scale: format!("{} MiB, {} s", full.pool_bytes() >> 20, full.seconds()),
        targets: targets(&found, &eighth, plot, behind),
        series: series(&found, &eighth, plot, behind),
        chart: chart(&found, &full),
        others_cores: others.cores(),
    })
}

/// Operations a second: settled where all are there, else over the whole plot.
fn total(found: &Found, plot: Plot) -> f64 {
    match plot {
        Plot::Static | Plot::Long => (0..TENANTS).map(|tenant| found.settled(tenant)).sum(),
        Plot::Dynamic => found.mean(),
    }
}

fn of_tenant(found: &Found, plot: Plot, tenant: usize) -> f64 {
    match plot {
        Plot::Static | Plot::Long => found.settled(tenant),
        Plot::Dynamic => found.throughput_while_there(tenant),
    }
}

fn targets(found: &Found, eighth: &Found, plot: Plot, behind: f64) -> Vec<Target> {
    let mut targets = vec![Target::at_least(
        "operations of all, over those at an eighth in virtual time",
        total(found, plot) / total(eighth, plot),
        OF_ORACLE,
    )];
    if plot == Plot::Static {
        let moved = found.moved_per_minute();
        targets.push(Target::at_most(
            "moved in a minute after settling, over the pool",
            moved,
            MOVED,
        ));
        let error = found.median_prediction_error().unwrap_or(f64::NAN);
        let what = "median error of predicted hit ratios";
        targets.push(Target::at_most(what, error, PREDICTION_ERROR));
    }
    targets.push(Target::at_most(
        "how far a client was behind, over its time",
        behind,
        BEHIND,
    ));
    targets
}

fn series(found: &Found, eighth: &Found, plot: Plot, behind: f64) -> Vec<Series> {
    let series = |name: &str, measure: &str, unit: &str, points| Series {
        name: name.into(),
        measure: measure.into(),
        unit: unit.into(),
        condition: String::new(),
        x: "tenant".into(),
        points,
    };
    let throughputs = |found: &Found| {
        let of = |tenant| Point::single(label(tenant), of_tenant(found, plot, tenant) / 1000.0);
        let all = Point::single("all".to_owned(), total(found, plot) / 1000.0);
        (0..TENANTS).map(of).chain([all]).collect()
    };
    vec![
        series("full size, real time", "throughput", "thousands/s", throughputs(found)),
        series(
            "an eighth, virtual time",
            "throughput",
            "thousands/s",
            throughputs(eighth),
        ),
        series(
            "clients",
            "how far the last client was behind, over its time",
            "ratio",
            vec![Point::single("all".to_owned(), behind)],
        ),
    ]
}

/// The throughput and the grant of each tenant.
fn chart(found: &Found, setting: &Setting) -> Chart {
    let step = (STEP / setting.haste).max(1);
    let places: Vec<usize> = (0..setting.seconds() + 1 - step).step_by(step).collect();
    let panel = |title: &str, unit: &str, of: &dyn Fn(usize, usize) -> Option<f64>| Panel {
        title: title.into(),
        x_label: "seconds".into(),
        y_label: unit.into(),
        places: time_labels(&places),
        marks: Marks::Course,
        series: (0..TENANTS)
            .map(|tenant| {
                let values = places.iter().map(|from| Spread::of(of(tenant, *from)));
                (label(tenant), values.collect())
            })
            .collect(),
    };
    let throughput = |tenant, from| Some(found.throughput(tenant, from, from + step)? / 1000.0);
    let part = |tenant, from| Some(found.part(tenant, from + step - 1)? * 100.0);
    Chart {
        title: format!("Four tenants that compete for a pool, {}", name_of(setting.plot)),
        panels: vec![
            panel("Operations of each", "thousands/s", &throughput),
            panel("Memory of each", "% of the pool", &part),
        ],
    }
}

fn name_of(plot: Plot) -> &'static str {
    match plot {
        Plot::Static | Plot::Long => "all there",
        Plot::Dynamic => "coming and going",
    }
}
