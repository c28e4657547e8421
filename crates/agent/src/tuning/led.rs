//! An application whose configuration this agent chooses: rounds of questions to all agents, and what follows from the answers.
//! Pure; time comes in as a value.
//!
//! ```text
//! resting --question--> counting --(an interval)--> question --> decision --> counting, or resting
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tidemark_cachelet::choose::{Chooser, Counters, Gain, Kind, Pins, Rates, Switch};
use tidemark_cachelet::config::{Config, Promise};
use tidemark_cachelet::view::Trial;

use super::told::{Counted, Pace, rates};
use super::tuned::{Expected, RANKED_MAX, Switched, Tuned};

/// How long is counted for one decision.
pub(super) const INTERVAL_US: u64 = 1_000_000;
/// Answers that have not come by then do not come.
const ANSWER_US: u64 = 500_000;
/// While a switch comes into force it is looked at so often: that is how long its pause is known to be.
const SWITCHING: Duration = Duration::from_millis(50);
/// How long it is rested at most: somebody else may have changed the configuration, or choosing may have earned its time.
pub(super) const REST_MAX: Duration = Duration::from_millis(500);
/// What is due is looked at after so long at the earliest.
const REST_MIN: Duration = Duration::from_millis(1);
/// Round trips that are remembered of an agent: the shortest of them is what the network takes.
const ROUND_TRIPS: usize = 16;
/// How much of the last switch's pause is taken over.
const NEWEST: f64 = 0.5;

/// The state of a domain, and the operator's pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    /// The configuration.
    pub(super) config: Config,
    /// The configuration on trial.
    pub(super) trial: Option<Trial>,
    /// The pinned dimensions.
    pub(super) pins: Pins,
}

/// See the module.
pub(super) struct Led {
    kind: Kind,
    chooser: Box<dyn Chooser + Send>,
    in_force: InForce,
    rates: Rates,
    gain: Gain,
    step: Step,
    round_trips_us: BTreeMap<SocketAddr, Vec<u64>>,
    /// Whether a switch was written that is not in force yet.
    is_awaited: bool,
    /// Since when a switch is under way.
    switching_since_us: Option<u64>,
    /// When the last interval ended.
    ended_us: u64,
    /// Intervals since the configuration came into force.
    intervals: u32,
    /// The record that is kept of it.
    pub(super) tuned: Tuned,
}

impl std::fmt::Debug for Led {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Led")
            .field("in_force", &self.in_force)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Step {
    Resting,
    Counting { since_us: u64 },
    Asked(Round),
}

#[derive(Debug)]
struct Round {
    asked_us: u64,
    /// Since when agents count; none in a round that begins it.
    since_us: Option<u64>,
    waiting: BTreeSet<SocketAddr>,
    answers: Vec<Counted>,
}

impl Led {
    /// One that begins with what a domain has. `tuned` is what is known of it from before.
    #[must_use]
    pub(super) fn new(kind: Kind, promise: Promise, in_force: InForce, tuned: Tuned) -> Self {
        let mut chooser = kind.make(promise, in_force.config, Rates::default());
        chooser.pin(in_force.pins);
        let gain = Gain {
            operations: tuned.operations,
            gained_us: tuned.gained_seconds * 1e6,
            took_us: tuned.took_seconds * 1e6,
        };
        Self {
            kind,
            chooser,
            in_force,
            rates: Rates::default(),
            gain,
            step: Step::Resting,
            round_trips_us: BTreeMap::new(),
            is_awaited: false,
            switching_since_us: None,
            ended_us: 0,
            intervals: 0,
            tuned,
        }
    }

    /// The domain has this. A change under way has none: what is counted meanwhile says nothing.
    pub(super) fn look(&mut self, now_us: u64, in_force: Option<InForce>) {
        let Some(in_force) = in_force else {
            self.step = Step::Resting;
            self.switching_since_us.get_or_insert(now_us);
            return;
        };
        if let Some(since_us) = self.switching_since_us.take() {
            let took_us = now_us.saturating_sub(since_us) as f64;
            self.rates.pause_us += NEWEST * (took_us - self.rates.pause_us);
        }
        if in_force.pins != self.in_force.pins {
            self.chooser.pin(in_force.pins);
        }
        if (in_force.config, in_force.trial) != (self.in_force.config, self.in_force.trial) {
            self.chooser.adopted(now_us, in_force.config, in_force.trial);
            self.intervals = 0;
            self.step = Step::Resting;
            self.is_awaited = false;
        }
        self.in_force = in_force;
    }

    /// How long nothing is due, unless an answer comes.
    pub(super) fn rest(&self, now_us: u64) -> Duration {
        if self.is_awaited || self.switching_since_us.is_some() {
            return SWITCHING;
        }
        let due_us = match &self.step {
            Step::Resting => return REST_MAX,
            Step::Counting { since_us } => since_us + INTERVAL_US,
            Step::Asked(round) => round.asked_us + ANSWER_US,
        };
        Duration::from_micros(due_us.saturating_sub(now_us)).clamp(REST_MIN, REST_MAX)
    }

    /// The time of the question that is to be sent to all agents now. `may` says whether choosing may take more time.
    pub(super) fn ask(&mut self, now_us: u64, agents: &BTreeSet<SocketAddr>, may: bool) -> Option<u64> {
        let since_us = match &self.step {
            Step::Resting if may => None,
            Step::Counting { since_us } if now_us >= since_us + INTERVAL_US => Some(*since_us),
            _ => return None,
        };
        self.step = Step::Asked(Round {
            asked_us: now_us,
            since_us,
            waiting: agents.clone(),
            answers: Vec::new(),
        });
        Some(now_us)
    }

    /// An agent answers.
    pub(super) fn heard(&mut self, now_us: u64, counted: Counted) {
        let Step::Asked(round) = &mut self.step else { return };
        if counted.asked_us != round.asked_us || !round.waiting.remove(&counted.from) {
            return;
        }
        let trip_us = now_us.saturating_sub(counted.asked_us.saturating_add(counted.took_us));
        let trips = self.round_trips_us.entry(counted.from).or_default();
        trips.push(trip_us);
        if trips.len() > ROUND_TRIPS {
            trips.remove(0);
        }
        round.answers.push(counted);
    }

    /// The counters of an interval, when all agents have answered. An interval that is not complete is given up.
    pub(super) fn counters(&mut self, now_us: u64) -> Option<Counters> {
        let Step::Asked(round) = &mut self.step else {
            return None;
        };
        let is_late = now_us >= round.asked_us + ANSWER_US;
        if !round.waiting.is_empty() && !is_late {
            return None;
        }
        let answers = std::mem::take(&mut round.answers);
        let is_whole = round.waiting.is_empty() && answers.iter().all(|answer| answer.is_complete);
        let (asked_us, since_us, missing) = (round.asked_us, round.since_us, round.waiting.clone());
        self.round_trips_us.retain(|agent, _| !missing.contains(agent));
        let paces: Vec<Pace> = answers.iter().map(|answer| answer.pace).collect();
        self.set_rates(&paces);
        let Some(since_us) = since_us else {
            self.step = Step::Counting { since_us: asked_us };
            return None;
        };
        self.step = Step::Resting;
        self.ended_us = asked_us;
        is_whole.then(|| Counters {
            interval_us: asked_us - since_us,
            reports: answers.into_iter().map(|answer| answer.report).collect(),
        })
    }

    fn set_rates(&mut self, paces: &[Pace]) {
        let trips = self.round_trips_us.values().filter_map(|trips| trips.iter().min());
        // The agent's own answer goes over no network.
        let trips: Vec<_> = trips.map(|trip| *trip as f64).filter(|trip| *trip > 0.0).collect();
        self.rates = rates(self.rates, paces, &trips);
        self.chooser.set_rates(self.rates);
    }

    /// Decides. `goes_on` says whether the next interval may follow at once.
    pub(super) fn decide(&mut self, now_us: u64, counters: &Counters, goes_on: bool) -> Option<Switch> {
        let (config, mean_us) = (self.in_force.config, counters.mean_us());
        self.gain.add(counters, &config, self.in_force.pins, &self.rates);
        self.intervals += 1;
        if self.intervals > 1 {
            self.tuned.settled(mean_us);
        }
        let switch = self.chooser.observe(now_us, counters);
        self.keep(counters, mean_us);
        if goes_on && switch.is_none() {
            self.step = Step::Counting {
                since_us: self.ended_us,
            };
        }
        switch
    }

    /// The switch is written: it will be in force.
    pub(super) fn switched(&mut self, at_seconds: u64, switch: &Switch, counters: &Counters) {
        self.is_awaited = true;
        self.tuned.switched(Switched {
            at_seconds,
            from: self.in_force.config,
            to: switch.trial.map_or(switch.config, |trial| trial.config),
            is_trial: switch.trial.is_some(),
            reason: switch.why.to_string(),
            before_us: counters.mean_us(),
            after_us: None,
        });
    }

    /// The switch was not written: the domain has what it had.
    pub(super) fn refused(&mut self, now_us: u64) {
        let InForce { config, trial, .. } = self.in_force;
        self.chooser.adopted(now_us, config, trial);
    }

    fn keep(&mut self, counters: &Counters, mean_us: f64) {
        let load = tidemark_cachelet::choose::price::Load::of(counters).features();
        let ranking = self.chooser.ranking();
        let best = ranking.into_iter().take(RANKED_MAX).map(|ranked| Expected {
            config: ranked.config,
            expected_us: ranked.expected_us,
            weight: ranked.weight,
        });
        self.tuned = Tuned {
            chooser: self.kind.to_string(),
            operations: self.gain.operations,
            gained_seconds: self.gain.gained_us / 1e6,
            took_seconds: self.gain.took_us / 1e6,
            mean_us,
            load,
            ranking: best.collect(),
            ..std::mem::take(&mut self.tuned)
        };
    }
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::choose::{Meter, Report};
    use tidemark_cachelet::config::Coherence;

    use super::*;

    const NOTHING: InForce = InForce {
        config: Config::CONCORD,
        trial: None,
        pins: Pins {
            scope: None,
            write: None,
            replacement: None,
            coherence: None,
            replication: None,
            domain: None,
            admission: None,
        },
    };

    fn led() -> Led {
        Led::new(Kind::Hedge, Promise::default(), NOTHING, Tuned::default())
    }

    fn agents(count: u16) -> BTreeSet<SocketAddr> {
        (1..=count)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect()
    }

    fn answer(led: &mut Led, now_us: u64, (agent, asked_us): (u16, u64), report: Report, is_complete: bool) {
        let counted = Counted {
            app: "shop".into(),
            from: SocketAddr::from(([127, 0, 0, 1], agent)),
            asked_us,
            took_us: 100,
            is_complete,
            report,
            pace: Pace::default(),
        };
        led.heard(now_us, counted);
    }

    fn report() -> Report {
        Meter::new(0, 1 << 20).take(0)
    }

    #[test]
    fn a_decision_needs_two_questions_and_every_answer() {
        let (mut led, agents) = (led(), agents(2));
        assert_eq!(led.ask(0, &agents, false), None, "choosing has taken enough");
        assert_eq!(led.rest(0), REST_MAX);
        assert_eq!(led.ask(0, &agents, true), Some(0));
        assert_eq!(led.rest(ANSWER_US - 7_000), Duration::from_millis(7));
        answer(&mut led, 1_100, (1, 0), report(), false);
        assert_eq!(led.counters(1_100), None);
        answer(&mut led, 2_100, (2, 0), report(), false);
        assert_eq!(led.counters(2_100), None, "counting begins");
        assert_eq!(led.rest(2_100), REST_MAX);
        assert_eq!(led.rest(INTERVAL_US - 20_000), Duration::from_millis(20));
        assert_eq!(led.ask(INTERVAL_US - 1, &agents, true), None);
        assert_eq!(
            led.ask(INTERVAL_US, &agents, false),
            Some(INTERVAL_US),
            "what was begun is ended"
        );
        answer(&mut led, INTERVAL_US + 1_100, (1, INTERVAL_US), report(), true);
        answer(&mut led, INTERVAL_US + 1_200, (1, INTERVAL_US), report(), true);
        assert_eq!(led.counters(INTERVAL_US + 2_000), None);
        answer(&mut led, INTERVAL_US + 3_100, (2, INTERVAL_US), report(), true);
        let counters = led.counters(INTERVAL_US + 3_100).unwrap();
        assert_eq!((counters.interval_us, counters.reports.len()), (INTERVAL_US, 2));
        // The shortest round trips are 1,000 us and 2,000 us; half of their mean is a hop.
        assert_eq!(led.rates.hop_us, 750.0);
    }

    #[test]
    fn an_interval_that_is_not_complete_decides_nothing() {
        for (is_complete, answers) in [(false, 2), (true, 1)] {
            let (mut led, agents) = (led(), agents(2));
            led.ask(0, &agents, true);
            (1..=2).for_each(|agent| answer(&mut led, 10, (agent, 0), report(), true));
            led.counters(10);
            led.ask(INTERVAL_US, &agents, true).unwrap();
            (1..=answers).for_each(|agent| answer(&mut led, INTERVAL_US, (agent, INTERVAL_US), report(), is_complete));
            assert_eq!(led.counters(INTERVAL_US + ANSWER_US), None, "{is_complete} {answers}");
            assert!(matches!(led.step, Step::Resting));
        }
    }

    #[test]
    fn what_somebody_else_changed_is_begun_from() {
        let mut led = led();
        led.look(0, None);
        assert_eq!(led.rest(0), SWITCHING);
        led.ask(1, &agents(1), true).unwrap();
        let pinned = InForce {
            config: Config {
                coherence: Coherence::SequenceAtHome,
                ..Config::CONCORD
            },
            pins: Pins {
                coherence: Some(Coherence::SequenceAtHome),
                ..Pins::default()
            },
            ..NOTHING
        };
        led.look(50_000, Some(pinned));
        assert!(
            matches!(led.step, Step::Resting),
            "what was counted before says nothing"
        );
        assert_eq!(led.rates.pause_us, (8_000.0 + 50_000.0) / 2.0);
        let ranking = led.chooser.ranking();
        assert!(
            ranking
                .iter()
                .all(|ranked| ranked.config.coherence == Coherence::SequenceAtHome)
        );
    }
}
