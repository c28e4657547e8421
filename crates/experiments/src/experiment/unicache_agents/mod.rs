//! UniCache's evaluation (AIOps'24, figure 4 and tables 2 and 3) on running agents: nine applications under three loads, with the
//! configuration that the agents choose and with fixed ones.

mod apps;
mod arrivals;
mod cluster;
mod drive;
mod findings;
mod relay;

use std::path::PathBuf;
use std::time::Duration;

use tidemark_cachelet::sim::Rng;

use super::others::Others;
use super::{Context, Experiment, Outcome};
use crate::Error;
use apps::App;
use arrivals::{arrivals, patterns};
use cluster::Cluster;
use drive::{Found, Pace, Probed, drive, probe, read_all};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "unicache-agents",
    title: "Cachelets: nine applications on running agents, beside UniCache's baseline and Concord",
    minutes: 35,
    about: "\
Four agents in two clusters, each a process of `tidemark agent`, with Debian's etcd and an origin in memory. Relays in user space make
the distances: 1 ms from node to node and 15 ms to the origin in either direction, so 2 and 30 ms there and back, as Concord (HPCA'25)
measured them; a relay limits no bandwidth. All of it runs on one machine of two cores: agents and etcd on one, load, relays and origin on the other.

The applications are skeletons of the nine of UniCache's table 2: which objects each function reads and writes, and nothing else. Functions
compute nothing, so a response is the time of its accesses, and of waiting for an instance that is free. Each node has six or eight instances of the
application's functions, each with 10 MiB of memory that it does not use. An instance does one step at a time. A request's functions run one after
the other, each on a node that chance names. Objects of many megabytes are made smaller, up to 1 MiB.

The loads are the paper's, scaled: it had 450, 1,000 and 1,800 requests a second on 15 nodes of 20 cores, 30 to 120 a node. Here it is a tenth of that a node:
12, 27 and 48 a second for all. Requests come as a function of Azure's trace of 2019 was invoked, another one for each application; a minute
of the trace is a second here. *Throughput* is that of as many requests at a time as there are instances.

(i) is the paper's baseline, with sequence numbers at the store; (ii) is the same with sequence numbers at home; Concord is its fixed configuration;
without a cache all reads go to the origin. They are the same agents with all dimensions pinned. *Ours* is what agents choose by themselves
(`--chooser hedge`) from Concord's configuration on; it had 20 s of the middle load before it was measured, and so had Concord. Before that, each
instance had read once all that its function uses; the same with (ii).
Ratios are means over applications and loads. Hits are measured in Concord's configuration: one node writes a small object, then the others read
it, one after the other with nothing beside; a round trip is what a byte takes there and back through a relay.

An agent's writes are conditional. With (i) and without a cache nobody tells a node what another one wrote: its first attempt may then be refused,
and a write takes three round trips to the origin where the paper's took one. So ours is also compared with (i) as if each access took one
round trip and nothing else.

Where ours is not what the paper chose: updates in two phases, which keep reads linearizable, cost the writer a second round, and few reads find
what another node wrote, so that they gain less than the 3 % from which on agents switch. Leaders of clusters are a detour with four nodes. With
sequence numbers each read would ask the home; a directory costs nothing for data sets and videos, which nobody writes. All that is used fits, so
that the orders of replacement and the scopes have nearly the same price. That price leaves out that a smaller scope has more cachelets to
tell of a write, which shows at full load.",
    run,
};

/// Requests a second of all nodes.
const LOADS: [(&str, f64); 3] = [("low", 12.0), ("medium", 27.0), ("high", 48.0)];
/// Requests that are drawn for a load: more than come.
const REQUESTS: usize = 4_096;

/// A configuration under its name. Nothing in a dimension means that it is not pinned.
#[derive(Clone, Copy, Debug)]
struct Arm {
    name: &'static str,
    values: [&'static str; 7],
    /// How long the middle load lasts before anything is measured.
    before: Before,
}

#[derive(Clone, Copy, Debug)]
enum Before {
    /// Long enough for connections to be there. Each read goes to the origin in any case.
    Warm,
    /// The same, after each instance has read all that its function uses.
    Filled,
    /// The same, and long enough for a configuration to be chosen.
    Chosen,
}

const NO_CACHE: &str = "no cache";
const AT_STORE: &str = "(i) at the store";
const AT_HOME: &str = "(ii) at home";
const CONCORD: &str = "Concord";
const OURS: &str = "ours";
/// The others that ours is compared with.
const ALL_BUT_OURS: [&str; 4] = [NO_CACHE, AT_STORE, AT_HOME, CONCORD];

/// Concord comes before ours, which goes on from its configuration.
const ARMS: [Arm; 5] = [
    Arm {
        name: NO_CACHE,
        values: [
            "application",
            "through",
            "lru",
            "sequence-at-store",
            "none",
            "flat",
            "bypass",
        ],
        before: Before::Warm,
    },
    Arm {
        name: AT_STORE,
        values: [
            "instance",
            "through",
            "lru",
            "sequence-at-store",
            "none",
            "flat",
            "keep",
        ],
        before: Before::Warm,
    },
    Arm {
        name: AT_HOME,
        values: ["instance", "through", "lru", "sequence-at-home", "none", "flat", "keep"],
        before: Before::Filled,
    },
    Arm {
        name: CONCORD,
        values: ["application", "through", "lru", "invalidate", "none", "flat", "keep"],
        before: Before::Chosen,
    },
    Arm {
        name: OURS,
        values: [""; 7],
        before: Before::Chosen,
    },
];

/// The lengths of the parts of a measurement, in seconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    warm: usize,
    chosen: usize,
    point: usize,
    full: usize,
}

impl Times {
    fn of(context: &Context) -> Self {
        if context.quick {
            Self {
                warm: 2,
                chosen: 8,
                point: 4,
                full: 3,
            }
        } else {
            Self {
                warm: 5,
                chosen: 20,
                point: 8,
                full: 4,
            }
        }
    }
}

/// One application under one configuration.
#[derive(Debug)]
struct Measured {
    app: &'static App,
    arm: &'static str,
    /// In the order of [`LOADS`].
    loads: Vec<Found>,
    full: Found,
    /// Reads one after the other; none but with Concord's configuration.
    probed: Probed,
    /// The dimensions at the end.
    config: Vec<String>,
}

/// All that was measured.
#[derive(Debug)]
struct All {
    measured: Vec<Measured>,
    /// Whether requests came by the trace.
    is_traced: bool,
    times: Times,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let times = Times::of(context);
    let apps: Vec<&App> = if context.quick {
        apps::ALL.into_iter().filter(|app| app.name == "HotelR").collect()
    } else {
        apps::ALL.to_vec()
    };
    let traces = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| "../shared/traces".into(), PathBuf::from);
    let (patterns, is_traced) = patterns(&traces, times.point.max(times.chosen), apps::ALL.len());
    let mut all = All {
        measured: Vec::new(),
        is_traced,
        times,
    };
    for (app, pattern) in apps.into_iter().zip(&patterns) {
        context.tell(app.name);
        let cluster = Cluster::start(&context.stage, app)?;
        for arm in &ARMS {
            all.measured
                .push(measure(context, &cluster, (app, arm), pattern, times)?);
        }
    }
    Ok(findings::outcome(&EXPERIMENT, &all, others.cores()))
}

fn measure(
    context: &Context,
    cluster: &Cluster<'_>,
    (app, arm): (&'static App, &Arm),
    pattern: &[f64],
    times: Times,
) -> Result<Measured, Error> {
    cluster.pin(arm.values)?;
    let pass = |seed: u64, per_second: f64, seconds: usize| {
        let seed = context.seed * 1_000 + seed;
        let come = arrivals(&pattern[..seconds], per_second, &mut Rng::new(seed));
        drive(cluster, app, &app.requests(seed, REQUESTS), Pace::At(&come))
    };
    let before = match arm.before {
        Before::Warm | Before::Filled => times.warm,
        Before::Chosen => times.chosen,
    };
    if !matches!(arm.before, Before::Warm) {
        read_all(cluster, app, &app.requests(context.seed, REQUESTS))?;
    }
    pass(0, LOADS[1].1, before)?;
    let mut loads = Vec::new();
    for ((_, per_second), seed) in LOADS.iter().zip(1..) {
        loads.push(pass(seed, *per_second, times.point)?);
    }
    let requests = app.requests(context.seed, REQUESTS);
    let full = Pace::Full(Duration::from_secs(times.full as u64));
    let measured = Measured {
        app,
        arm: arm.name,
        loads,
        full: drive(cluster, app, &requests, full)?,
        probed: if arm.name == CONCORD {
            probe(cluster, app)?
        } else {
            Probed::default()
        },
        config: cluster.config()?,
    };
    tell(context, &measured);
    Ok(measured)
}

/// Tells on standard error how it went.
fn tell(context: &Context, measured: &Measured) {
    let each: Vec<String> = measured
        .loads
        .iter()
        .map(|found| {
            format!(
                "{:.2} ms (P99 {:.1}, {} again)",
                found.mean_ms(),
                found.p99_ms(),
                found.again
            )
        })
        .collect();
    context.tell(&format!(
        "{} {}: {}; {:.1} a second; {}",
        measured.app.name,
        measured.arm,
        each.join(", "),
        measured.full.per_second(),
        measured.config.join(" ")
    ));
}
