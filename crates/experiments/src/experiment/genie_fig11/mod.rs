//! The least memory for a hit ratio under changing loads: the load of Genie's Fig. 11 (TKDE 2025, section VI.C), and two of
//! Twitter's clusters as in its Fig. 13.

mod drive;
mod findings;
mod loads;

use tidemark_types::Policy;

use super::others::Others;
use super::{Context, Experiment, Outcome};
use crate::Error;
use crate::elastic::{Judgement, Oracle, Question, Reach, StageTimes, overhead_bytes};
use crate::node::Load;
use drive::{Driven, drive, possible_rate};
use findings::Findings;
use loads::{Demand, Scale, demands};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig11",
    title: "Memory for a hit ratio under changing loads (Genie, Fig. 11 and 13)",
    minutes: 45,
    about: "\
Two tenants of one server have the same goal and are asked the same side by side, look-aside, in open loop: one has the
default policy, the other `genie`, the paper's rule. The first three loads follow each other on the same tenants: Zipf 1.1
on two million items of 16+64 bytes (key+value), uniform on the same, uniform on four million items of 8+8 bytes; the goal is
90 %. The other two are drawn after Twitter's clusters 24 (goal 99 %) and 48 (goal 70 %), independent Zipf over one million
keys with the exponent, the sizes, the operation mix, the compulsory share (gets for keys that are never asked for again) and
the lifetimes of Twitter's statistics of March 2020, a lifetime drawn for each set and divided by 1,000. Every key is stored
once before, by tenants without a goal, which then get theirs: with the load's own lifetimes for cluster 24 (three in four
outlast the run), and for cluster 48, of which all would expire at one moment, with what is left of a lifetime at any moment.

The oracle is the least memory in which a simulation, item by item, of the policy that the first of the two has at the end gives
the goal over the last third of as many requests; an item takes its key, its value and what the store adds to them, measured on the store itself. An item that has
expired keeps its place in the simulation until it is evicted. A load may settle for T: the time in which twice the keys'
number of gets arrive, the time to fill the oracle's memory at the oracle's miss ratio, and a minute. From then on every
window of ten seconds should be within a point of the goal. A dip is what the hit ratio falls below the goal within thirty
seconds after memory was given back, that is, the grant became smaller than what was used. The first grant counts where the load needs more than the tenant may hold. Memory is
what the tenant holds at the end, the mean of a minute, index included. The server has one worker on one core; the load has
the other core.",
    run,
};

/// The default policy until another one does better. The duration of a load goes by its oracle.
const FIRST_POLICY: Policy = Policy::S3Fifo;
/// The simulation of a load is in balance after so many requests per key.
const BALANCED_REQUESTS_PER_KEY: u64 = 128;
/// How long is judged at least.
const JUDGED_SECONDS: f64 = 60.0;

/// A load with its oracle's answer.
struct Prepared {
    demand: Demand,
    question: Question,
    reach: Reach,
    /// How long it may take to settle, in seconds.
    settling_seconds: f64,
    /// How long it lasts.
    seconds: f64,
}

/// The outcome of a load.
struct Found {
    demand: Demand,
    reach: Reach,
    settling_seconds: f64,
    times: StageTimes,
    /// The judgements, in the order of [`drive::TENANTS`].
    judgements: [Judgement; 2],
    states: [String; 2],
    /// The policy of the tenant that chooses it, at the end.
    policy: Policy,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = Scale::of(context.quick);
    let others = Others::watch();
    let mut findings = Findings::default();
    let mut rates = Vec::new();
    for group in demands(scale, context.seed)? {
        let mut rate = scale.gets_per_second;
        for demand in &group {
            rate = possible_rate(context, demand, rate)?;
        }
        let prepared = group
            .into_iter()
            .map(|demand| prepare(context, demand, scale, rate))
            .collect::<Result<Vec<Prepared>, Error>>()?;
        let loads: Vec<(Demand, f64)> = prepared
            .iter()
            .map(|load| (load.demand.clone(), load.seconds))
            .collect();
        let driven = drive(context, &loads, rate)?;
        findings.add(judge(context, prepared, &driven)?, &driven.courses);
        rates.push(rate);
    }
    Ok(findings.outcome(scale, &rates, others.cores()))
}

/// Asks the oracle about a load with the policy that a tenant has at first.
fn prepare(context: &Context, demand: Demand, scale: Scale, gets_per_second: f64) -> Result<Prepared, Error> {
    let workload = demand.workload.clone();
    let load = Load {
        rate: gets_per_second / workload.reads_ratio,
        workload,
    };
    let in_time = (demand.seconds * load.rate) as u64;
    let requests = in_time.min(BALANCED_REQUESTS_PER_KEY * load.workload.keys);
    let question = Question {
        load,
        stored_before: demand.stored_before.clone(),
        policy: FIRST_POLICY,
        overhead_bytes: 0,
        requests,
    };
    let mut prepared = ask(context, demand, question)?;
    if !scale.is_quick() {
        prepared.seconds = prepared.seconds.max(prepared.settling_seconds + JUDGED_SECONDS);
    }
    Ok(prepared)
}

/// Asks the oracle about a load with the question's policy.
fn ask(context: &Context, demand: Demand, mut question: Question) -> Result<Prepared, Error> {
    context.tell(&format!("{}: asking the oracle, {}", demand.name, question.policy));
    // The size of an item depends little on the number of items. Enough of them are stored, not all.
    let probed_bytes = question.everything_bytes() / 4;
    question.overhead_bytes = overhead_bytes(&question.load, question.policy, probed_bytes)?;
    let reach = question.least(demand.goal)?;
    Ok(Prepared {
        settling_seconds: question.timed(&reach).settling(&question).as_secs_f64(),
        seconds: demand.seconds,
        demand,
        question,
        reach,
    })
}

impl Question {
    /// The oracle's answer; where the goal cannot be reached, that with all memory.
    fn timed(&self, reach: &Reach) -> Oracle {
        match *reach {
            Reach::With(oracle) => oracle,
            Reach::Never { best_hit_ratio } => Oracle {
                bytes: self.everything_bytes(),
                hit_ratio: best_hit_ratio,
            },
        }
    }
}

fn judge(context: &Context, prepared: Vec<Prepared>, driven: &Driven) -> Result<Vec<Found>, Error> {
    let stages = prepared.into_iter().zip(&driven.stages);
    stages
        .map(|(mut load, stage)| {
            if stage.policy != load.question.policy {
                let question = Question {
                    policy: stage.policy,
                    ..load.question
                };
                load = ask(context, load.demand, question)?;
            }
            // A load that is too short to settle in is judged over its second half. A quick run is, and so is one whose
            // policy needs longer than the first.
            let lasts = stage.to - stage.from;
            let settles = Some(load.settling_seconds).filter(|seconds| *seconds < lasts);
            let times = StageTimes {
                from: stage.from,
                settled_from: stage.from + settles.unwrap_or(lasts / 2.0),
                to: stage.to,
            };
            let goal = load.demand.goal;
            Ok(Found {
                judgements: driven.courses.each_ref().map(|course| course.judge(times, goal)),
                states: stage.states.clone(),
                policy: stage.policy,
                demand: load.demand,
                reach: load.reach,
                settling_seconds: load.settling_seconds,
                times,
            })
        })
        .collect()
}
