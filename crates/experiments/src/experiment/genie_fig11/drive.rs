//! Drives two tenants of one server with the same loads, and writes down how they stand.
//!
//! Both have the same goal; one evicts as it likes, the other by Genie's rule. They are asked side by side by one
//! thread, on connections of their own, so that a disturbance hits both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidemark_types::{GIB, Policy, PolicyError};

use super::loads::Demand;
use crate::Error;
use crate::elastic::Course;
use crate::experiment::Context;
use crate::experiment::info::Info;
use crate::experiment::server::{Kind, Limits, Server, create_tenant, login, tidemark, tidemark_json};
use tidemark_tools::bench::{self, Options, Report};
use tidemark_tools::client::{Login, Protocol};
use tidemark_tools::load::{Lifetimes, MAX_VALUE_BYTES, Workload};

/// The tenants, with their options beside the goal.
pub(super) const TENANTS: [(&str, &[&str]); 2] = [("own", &[]), ("genie", &["--policy", "genie"])];
/// More than both need together.
const MEMORY_BYTES: u64 = 4 * GIB;
/// The connections of each tenant.
const CONNECTIONS: usize = 16;
/// Requests that are due together: fewer system calls, so that one core can make the load.
const BURST: usize = 10;
/// Room for bursts that meet a server at work, and for the sets that follow misses.
const PIPELINE: usize = 64;
/// How often is looked how the tenants stand.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A load of which more cannot be sent is not the load that was meant.
const UNSENT_RATIO_MAX: f64 = 0.01;
/// How long is tried whether the machine makes a load.
const TRIAL_SECONDS: f64 = 3.0;
/// The next trial is this part of the load that was possible.
const NEXT_TRIAL: f64 = 0.8;
const TRIALS: usize = 8;
/// A measurement follows the storing of keys; this one is none.
const STORED_SECONDS: f64 = 0.01;

/// The outcome of loads that followed each other.
pub(super) struct Driven {
    /// The courses, in the order of [`TENANTS`].
    pub(super) courses: [Course; 2],
    pub(super) stages: Vec<Stage>,
}

/// The facts of one load beside the courses.
pub(super) struct Stage {
    /// The beginning, in seconds of the courses.
    pub(super) from: f64,
    pub(super) to: f64,
    /// The states that the tenants reported of their goals at the end, in the order of [`TENANTS`].
    pub(super) states: [String; 2],
    /// How the first one, which chooses, evicts at the end.
    pub(super) policy: Policy,
}

/// Gets a second of each tenant that this machine can make and serve, at most those that are wanted.
pub(super) fn possible_rate(context: &Context, demand: &Demand, wanted: f64) -> Result<f64, Error> {
    let scene = Scene::start(context, demand.goal)?;
    let mut rate = wanted;
    for _ in 0..TRIALS {
        let options = scene.options(demand, rate, TRIAL_SECONDS)?;
        let report = bench::run(&options, &mut |_| {})?;
        let due = due(&options);
        if unsent_ratio(&report, due) <= UNSENT_RATIO_MAX {
            return Ok(rate);
        }
        let sent = 1.0 - unsent_ratio(&report, due);
        // To a round number, so that small differences between two runs do not show.
        let step = wanted / 20.0;
        rate = (rate * sent.max(0.5) * NEXT_TRIAL / step).floor().max(1.0) * step;
        context.tell(&format!("{}: trying {rate:.0} gets a second", demand.name));
    }
    Err(Error::Unfit {
        server: "tidemark".into(),
        reason: format!("{}: not even {rate:.0} gets a second can be sent", demand.name),
    })
}

/// Runs loads one after the other, each for so many seconds.
pub(super) fn drive(context: &Context, demands: &[(Demand, f64)], gets_per_second: f64) -> Result<Driven, Error> {
    let Some((first, _)) = demands.first() else {
        return Err(Error::Usage("no load".into()));
    };
    let scene = Scene::start(context, first.goal)?;
    let redis = scene.server.address(Protocol::Redis)?;
    let open = |index: usize| Info::open(redis, TENANTS[index].0, &scene.secrets[index]);
    let infos = [open(0)?, open(1)?];
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(infos, began, &stop));
        let run = || {
            let stage = |(demand, seconds): &(Demand, f64)| {
                if watching.is_finished() {
                    return Err(scene.server.process.failure("it does not say how its tenants stand"));
                }
                scene.stage(demand, (gets_per_second, *seconds), began)
            };
            demands.iter().map(stage).collect::<Result<Vec<Stage>, Error>>()
        };
        let stages = run();
        stop.store(true, Ordering::Relaxed);
        let courses = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Driven {
            // First what went wrong first.
            courses: courses?,
            stages: stages?,
        })
    })
}

/// A server with both tenants.
struct Scene<'c> {
    context: &'c Context,
    server: Server,
    secrets: [String; 2],
}

impl<'c> Scene<'c> {
    fn start(context: &'c Context, goal: f64) -> Result<Self, Error> {
        let limits = Limits {
            memory_bytes: MEMORY_BYTES,
            value_bytes: MAX_VALUE_BYTES,
        };
        let server = Server::start(&context.stage, Kind::Tidemark, limits)?;
        let goal = goal.to_string();
        let create = |index: usize| {
            let (name, settings) = TENANTS[index];
            let settings = [&["--hit-ratio", &goal], settings].concat();
            create_tenant(&context.stage, &server, name, &settings)
        };
        let secrets = [create(0)?, create(1)?];
        Ok(Self {
            context,
            server,
            secrets,
        })
    }

    fn stage(&self, demand: &Demand, (gets_per_second, seconds): (f64, f64), began: Instant) -> Result<Stage, Error> {
        let options = self.options(demand, gets_per_second, seconds)?;
        if let Some(lifetimes) = &demand.stored_before {
            self.store_all(demand, lifetimes, &options)?;
        }
        // Setting a tenant's goal is a part of the answer to the load, so time counts from before it.
        let from = began.elapsed().as_secs_f64();
        let goal = demand.goal.to_string();
        for (name, _) in TENANTS {
            let set = ["tenant", "set", name, "--hit-ratio", &goal];
            tidemark(&self.context.stage, &self.server, &set)?;
        }
        self.context.tell(&format!(
            "{}: {gets_per_second:.0} gets a second of each tenant for {seconds:.0} s",
            demand.name
        ));
        let report = bench::run(&options, &mut |_| {})?;
        check(demand, &report, due(&options))?;
        Ok(Stage {
            from,
            to: from + seconds,
            states: [self.said(0, "goal_state")?, self.said(1, "goal_state")?],
            policy: self.policy()?,
        })
    }

    /// Stores every key of both tenants, while they have no goal: free memory is theirs.
    fn store_all(&self, demand: &Demand, lifetimes: &Lifetimes, options: &Options) -> Result<(), Error> {
        self.context.tell(&format!("{}: storing every key", demand.name));
        for (name, _) in TENANTS {
            let set = ["tenant", "set", name, "--hit-ratio", "none"];
            tidemark(&self.context.stage, &self.server, &set)?;
        }
        let storing = Options {
            preload: true,
            rate: None,
            burst: 1,
            seconds: STORED_SECONDS,
            workload: Workload {
                lifetimes: lifetimes.clone(),
                ..demand.workload.clone()
            },
            ..options.clone()
        };
        let report = bench::run(&storing, &mut |_| {})?;
        if report.preload_errors > 0 {
            return Err(self.server.process.failure("not every key was stored"));
        }
        Ok(())
    }

    /// A field of the tenant's own report.
    fn said(&self, tenant: usize, field: &str) -> Result<String, Error> {
        let show = ["tenant", "show", TENANTS[tenant].0, "--json"];
        let shown = tidemark_json(&self.context.stage, &self.server, &show)?;
        Ok(shown[field].as_str().unwrap_or("unknown").to_owned())
    }

    fn policy(&self) -> Result<Policy, Error> {
        let policy = self.said(0, "policy_in_force")?;
        let unfit = |reason: PolicyError| Error::Unfit {
            server: "tidemark".into(),
            reason: reason.to_string(),
        };
        policy.parse().map_err(unfit)
    }

    fn options(&self, demand: &Demand, gets_per_second: f64, seconds: f64) -> Result<Options, Error> {
        let logins = (0..TENANTS.len()).map(|index| login(TENANTS[index].0, &self.secrets[index]));
        let logins = logins.collect::<Result<Vec<Option<Login>>, Error>>()?;
        let requests_per_second = gets_per_second / demand.workload.reads_ratio;
        Ok(Options {
            address: self.server.address(demand.protocol)?,
            protocol: demand.protocol,
            rate: Some(requests_per_second * logins.len() as f64),
            logins,
            keys_apart: false,
            connections: CONNECTIONS * TENANTS.len(),
            pipeline: PIPELINE,
            threads: 1,
            workload: demand.workload.clone(),
            burst: BURST,
            sleeps: false,
            seconds,
            preload: false,
            look_aside: true,
            verify: false,
        })
    }
}

/// Requests that a load in open loop consists of.
fn due(options: &Options) -> f64 {
    options.rate.unwrap_or(0.0) * options.seconds
}

fn unsent_ratio(report: &Report, due: f64) -> f64 {
    report.unsent as f64 / due
}

/// Whether the load was as it should have been.
fn check(demand: &Demand, report: &Report, due: f64) -> Result<(), Error> {
    let unfit = |reason: String| {
        Err(Error::Unfit {
            server: "tidemark".into(),
            reason: format!("{}: {reason}", demand.name),
        })
    };
    if report.mistakes.wrong + report.mistakes.unanswered > 0 {
        let first = report.first_mistake.clone();
        return unfit(first.unwrap_or_else(|| "requests failed".into()));
    }
    if unsent_ratio(report, due) > UNSENT_RATIO_MAX {
        return unfit(format!(
            "{} of {due:.0} requests could not be sent in time",
            report.unsent
        ));
    }
    Ok(())
}

/// Looks how both tenants stand until it is told to stop.
fn watch(mut infos: [Info; 2], began: Instant, stop: &AtomicBool) -> Result<[Course; 2], Error> {
    let mut courses = [Course::default(), Course::default()];
    let mut next = began.elapsed();
    while !stop.load(Ordering::Relaxed) {
        for (info, course) in infos.iter_mut().zip(&mut courses) {
            course.moments.push(info.moment(began.elapsed().as_secs_f64())?);
        }
        next += LOOK_EVERY;
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    Ok(courses)
}
