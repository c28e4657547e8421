//! CPU and memory against a ladder of instances: Genie's Fig. 17 (TKDE 2025, section VI.E).

use std::time::{Duration, Instant};

use super::chart::{Chart, Marks, Panel};
use super::metered::Metered;
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::bench::{self, Options, Report, Workload};
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Distribution;
use tidemark_types::MIB;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig17",
    title: "CPU and memory saved against a ladder of instances (Genie, Fig. 17)",
    minutes: 36,
    about: "\
Six loads as in Genie's Fig. 17, one after the other, each on a server of its own with one tenant whose goal is 90 % of hits. The
paper does not say what its instances and loads are, so these are ours: instances of 1 vCPU and 1 GiB, 2 and 2, 4 and 4, 8 and 8, 16
and 16, all scaled by 1/16; items of 64+1,024 bytes, 95 % reads, Zipf 0.99, 10 requests at a time, misses are stored; working sets and
rates as in the tables, scaled already. All keys are stored once before the load begins.

A load's instance is the smallest one whose vCPUs are at least the cores that it used and whose memory holds its working set. The cores
are those of the whole process, and the memory is all that is resident of it: what serves nobody is not left out. Both are means over
the time behind the warm-up. What is judged is the mean of the parts of the instances that were not used (the paper: 58.3 % of CPU,
49.9 % of memory); no load is left out.",
    run,
};

/// vCPUs and memory of the instances: 1 and 1 GiB to 16 and 16 GiB, divided by 16.
const LADDER: [(f64, u64); 5] = [
    (1.0 / 16.0, 64 * MIB),
    (2.0 / 16.0, 128 * MIB),
    (4.0 / 16.0, 256 * MIB),
    (8.0 / 16.0, 512 * MIB),
    (1.0, 1024 * MIB),
];
/// Working sets in MiB, and thousands of requests per second.
const LOADS: [(u64, f64); 6] = [
    (48, 5.0),
    (96, 40.0),
    (192, 10.0),
    (384, 80.0),
    (768, 20.0),
    (24, 120.0),
];
const KEY_BYTES: usize = 64;
const VALUE_BYTES: usize = 1024;
const READS: f64 = 0.95;
const ALPHA: f64 = 0.99;
const PIPELINE: usize = 10;
/// Room for requests that are due while a server is at work.
const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 16;
const GOAL: &str = "0.9";
/// The size of the largest instance.
const MEMORY_BYTES: u64 = 1024 * MIB;
/// The paper's means of what is saved.
const CPU_SAVED: f64 = 0.583;
const MEMORY_SAVED: f64 = 0.499;
/// A little below the goal it counts as met: it is met in the mean.
const GOAL_MET: f64 = 0.89;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much is done.
struct Scale {
    warm_up_seconds: f64,
    seconds: f64,
    /// Working sets and rates are divided by it.
    less: u64,
}

/// The use of a load.
#[derive(Clone, Copy, Debug)]
struct Used {
    cores: f64,
    memory_bytes: f64,
    hit_ratio: f64,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            warm_up_seconds: 2.0,
            seconds: 4.0,
            less: 8,
        }
    } else {
        Scale {
            warm_up_seconds: 30.0,
            seconds: 300.0,
            less: 1,
        }
    };
    let others = Others::watch();
    let mut found = Vec::new();
    for (number, (mib, kops)) in LOADS.into_iter().enumerate() {
        context.tell(&format!(
            "W{}: {mib} MiB, {kops} thousand requests a second",
            number + 1
        ));
        let working_set_bytes = mib * MIB / scale.less;
        let used = measure(context, working_set_bytes, kops * 1000.0 / scale.less as f64, &scale)?;
        found.push((working_set_bytes, used));
    }
    let (targets, series) = (targets(&found), series(&found));
    Ok(Outcome {
        scale: format!(
            "{} s of each load after {} s of warm-up; working sets and rates divided by {}",
            scale.seconds, scale.warm_up_seconds, scale.less
        ),
        targets,
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

fn measure(context: &Context, working_set_bytes: u64, rate: f64, scale: &Scale) -> Result<Used, Error> {
    let server = Metered::start(context, MEMORY_BYTES, &[])?;
    server.ask(&["tenant", "set", "default", "--hit-ratio", GOAL, "--json"])?;
    let options = |seconds: f64, preload: bool| -> Result<Options, Error> {
        Ok(Options {
            address: server.address(Protocol::Memcached)?,
            protocol: Protocol::Memcached,
            logins: vec![None],
            keys_apart: false,
            connections: CONNECTIONS,
            pipeline: IN_FLIGHT,
            threads: 1,
            workload: Workload {
                reads_ratio: READS,
                seed: context.seed,
                ..Workload::gets(
                    working_set_bytes / (KEY_BYTES + VALUE_BYTES) as u64,
                    Distribution::Zipf { alpha: ALPHA },
                    KEY_BYTES,
                    VALUE_BYTES,
                )
            },
            rate: Some(rate),
            burst: PIPELINE,
            sleeps: true,
            seconds,
            preload,
            look_aside: true,
            verify: false,
        })
    };
    bench::run(&options(scale.warm_up_seconds, true)?, &mut |_| {})?;
    let load = options(scale.seconds, false)?;
    let before_ns = server.process_cpu_ns()?;
    let began = Instant::now();
    let (report, resident) = std::thread::scope(|scope| {
        let running = scope.spawn(move || bench::run(&load, &mut |_| {}));
        let mut resident = Vec::new();
        while !running.is_finished() {
            resident.push(server.resident_bytes()? as f64);
            std::thread::sleep(LOOK_EVERY.min(Duration::from_secs_f64(scale.seconds / 4.0)));
        }
        let report = running
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<(Report, Vec<f64>), Error>((report, resident))
    })?;
    let used_ns = server.process_cpu_ns()? - before_ns;
    if report.errors > 0 {
        return Err(Error::Usage(format!("{} requests failed", report.errors)));
    }
    Ok(Used {
        cores: used_ns as f64 / began.elapsed().as_nanos() as f64,
        memory_bytes: resident.iter().sum::<f64>() / resident.len().max(1) as f64,
        hit_ratio: report.hit_ratio.unwrap_or_default(),
    })
}

/// The smallest instance that has so much.
fn instance(cores: f64, memory_bytes: u64) -> Option<(f64, u64)> {
    LADDER
        .into_iter()
        .find(|(vcpus, memory)| *vcpus >= cores && *memory >= memory_bytes)
}

/// The parts of a load's instance that were not used: of vCPUs and of memory. None of them where no instance suffices.
fn saved(working_set_bytes: u64, used: &Used) -> (f64, f64) {
    let Some((vcpus, memory_bytes)) = instance(used.cores, working_set_bytes) else {
        return (0.0, 0.0);
    };
    (1.0 - used.cores / vcpus, 1.0 - used.memory_bytes / memory_bytes as f64)
}

fn targets(found: &[(u64, Used)]) -> Vec<Target> {
    let all: Vec<(f64, f64)> = found.iter().map(|(bytes, used)| saved(*bytes, used)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
    let mut targets = vec![
        Target::at_least("CPU saved, mean of all loads", mean(|saved| saved.0), CPU_SAVED),
        Target::at_least("memory saved, mean of all loads", mean(|saved| saved.1), MEMORY_SAVED),
    ];
    let goals = found.iter().enumerate().map(|(number, (_, used))| {
        let name = format!("W{}: part of gets that were found", number + 1);
        Target::at_least(name, used.hit_ratio, GOAL_MET)
    });
    targets.extend(goals);
    targets
}

const PARTS: &str = "saved";
const CORES: &str = "vCPUs";
const MEMORY: &str = "memory";
const X: &str = "load";

fn series(found: &[(u64, Used)]) -> Vec<Series> {
    let mut series = Vec::new();
    let mut add = |name: &str, (measure, unit): (&str, &str), place: &str, value: f64| {
        if let Some(spread) = Spread::of([value]) {
            let point = Point::spread(place, spread);
            add_point(&mut series, (name, measure, unit), ("", X), point);
        }
    };
    for (number, ((working_set_bytes, used), (mib, kops))) in found.iter().zip(LOADS).enumerate() {
        let place = format!("W{}: {mib} MiB, {kops} k/s", number + 1);
        let (cpu, memory) = saved(*working_set_bytes, used);
        let (vcpus, memory_bytes) = instance(used.cores, *working_set_bytes).unwrap_or_default();
        add("CPU", (PARTS, "%"), &place, cpu * 100.0);
        add("memory", (PARTS, "%"), &place, memory * 100.0);
        add("used", (CORES, CORES), &place, used.cores);
        add("of its instance", (CORES, CORES), &place, vcpus);
        add("used", (MEMORY, "MiB"), &place, used.memory_bytes / MIB as f64);
        add("of its instance", (MEMORY, "MiB"), &place, (memory_bytes / MIB) as f64);
        add(
            "part of gets that were found",
            ("hit ratio", ""),
            &place,
            used.hit_ratio,
        );
    }
    series
}

fn chart(series: &[Series]) -> Chart {
    let panel = |title: &str, measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        let mut panel = Panel::of_series(title, Marks::Bars, &own);
        panel.places = (1..=LOADS.len()).map(|number| format!("W{number}")).collect();
        panel
    };
    Chart {
        title: "What six loads leave unused of a fixed instance".into(),
        panels: vec![panel("Saved", PARTS), panel("vCPUs", CORES), panel("Memory", MEMORY)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_the_smallest_that_has_enough_of_both() {
        for (cores, mib, expected) in [
            (0.01, 24, Some((1.0 / 16.0, 64 * MIB))),
            (0.0625, 64, Some((1.0 / 16.0, 64 * MIB))),
            // Much CPU and little memory, and the other way round.
            (0.3, 24, Some((0.5, 512 * MIB))),
            (0.01, 700, Some((1.0, 1024 * MIB))),
            (1.1, 1, None),
            (0.1, 1025, None),
        ] {
            assert_eq!(instance(cores, mib * MIB), expected, "{cores} {mib}");
        }
    }

    #[test]
    fn what_is_saved_is_what_the_instance_has_more() {
        let used = |cores, mib: u64| Used {
            cores,
            memory_bytes: (mib * MIB) as f64,
            hit_ratio: 0.9,
        };
        assert_eq!(saved(24 * MIB, &used(0.25, 64)), (0.0, 0.75));
        assert_eq!(saved(700 * MIB, &used(0.25, 256)), (0.75, 0.75));
        assert_eq!(saved(700 * MIB, &used(2.0, 256)), (0.0, 0.0));
        // A use of more than the instance has saves less than nothing, which counts.
        assert!(saved(24 * MIB, &used(0.01, 96)).1 < 0.0);
        let found = [(24 * MIB, used(0.25, 64)), (700 * MIB, used(0.25, 256))];
        let targets = targets(&found);
        assert_eq!((targets[0].value, targets[1].value), (0.375, 0.75));
        assert!(!targets[0].met && targets[1].met && targets[2].met);
    }
}
