//! Choosing as UniCache does (AIOps'24, section 4): one expert per dimension that learns with SARSA, and a moderator.
//!
//! An expert's state is the dimension's value and what characterises the load for it (the paper's table 1), in coarse steps. Its
//! action is a value. Its reward is by how much the response time went down. The paper states no more than that: step sizes, the
//! load's steps and the moderator's weights are ours. The moderator takes suggestions in the order of their expected reward times
//! the expert's weight. It leaves out what would negate one that it took or breaks the promise, and takes the cost of the
//! transition off.
//!
//! A response time that stays long rewards nothing and punishes nothing. So experts try more while operations take much longer than
//! they have taken under the same load: first what they have not tried from there, then what they have not seen since it became
//! long. Until each has seen all of its values, none takes the long time for the usual one.

use std::collections::BTreeMap;

use super::price::{Features, Load, Rates};
use super::{Chooser, Counters, Pins, Ranked, Reason, Switch, Why, is_permitted};
use crate::config::{Admission, Coherence, Config, Domain, Promise, Replacement, Replication, Scope, WritePolicy};
use crate::types::mix;
use crate::view::Trial;

/// How much a new reward counts.
const STEP: f64 = 0.3;
/// How much what follows counts.
const FOLLOWING: f64 = 0.5;
/// How often something is tried that is not thought best, in millionths; it falls with experience down to the last value.
const TRIES: [u64; 2] = [200_000, 20_000];
/// Intervals in which the first falls to the last.
const TRYING_INTERVALS: u64 = 400;
/// A suggestion must promise this reward beyond the transition's cost.
const LEAST_REWARD: f64 = 0.02;
/// The cost of a transition, as a reward.
const TRANSITION: f64 = 0.05;
/// How much an expert's weight follows how its suggestions turned out.
const WEIGHT_STEP: f64 = 0.1;
/// Operations take long where they take so many times the shortest that is known for the load.
const LONG: f64 = 1.5;
/// How much of the way that shortest time goes towards the present one in an interval: what was reached once may be no more.
const FORGETTING: f64 = 0.005;
/// Operations that an interval must have to say anything.
const LEAST_OPERATIONS: f64 = 20.0;
/// Dimensions that have an expert: all of them.
const EXPERTS: usize = 7;
/// The number of replication's expert.
const REPLICATION: usize = 6;

/// State of an expert: the load in coarse steps, and the dimension's value.
type Place = (u64, usize);

/// One dimension's expert.
#[derive(Clone, Debug)]
struct Expert {
    /// Learned rewards of (state, action).
    values: BTreeMap<(Place, usize), f64>,
    weight: f64,
    /// State and action of the interval before.
    last: Option<(Place, usize)>,
}

/// States and actions that an expert remembers: all that there are, with room.
const REMEMBERED: usize = 65_536;

impl Expert {
    fn value(&self, place: Place, action: usize) -> f64 {
        self.values.get(&(place, action)).copied().unwrap_or(0.0)
    }

    /// The SARSA update: reward and the value of what follows pull the value of what was done.
    fn learn(&mut self, reward: f64, place: Place, action: usize) {
        let following = self.value(place, action);
        let Some(last) = self.last.replace((place, action)) else {
            return;
        };
        if self.values.len() >= REMEMBERED && !self.values.contains_key(&last) {
            return;
        }
        let value = self.values.entry(last).or_insert(0.0);
        *value += STEP * (reward + FOLLOWING * following - *value);
        // Whoever changed something is judged by what came of it.
        if last.0.1 != last.1 {
            let direction = if reward > 0.0 { 1.0 } else { -1.0 };
            self.weight = (self.weight * (1.0 + WEIGHT_STEP * direction)).clamp(0.1, 10.0);
        }
    }
}

/// A value of a dimension that an expert suggests.
struct Suggestion {
    expert: usize,
    action: usize,
    reward: f64,
    is_try: bool,
}

/// One expert per dimension, and a moderator.
#[derive(Clone, Debug)]
pub struct Sarsa {
    promise: Promise,
    pins: Pins,
    config: Config,
    experts: [Expert; EXPERTS],
    before_us: Option<f64>,
    /// The shortest that operations took, by the load.
    shortest_us: BTreeMap<u64, f64>,
    /// The load under which operations take long, and one bit for each value that an expert has seen since.
    searched: Option<(u64, [u32; EXPERTS])>,
    intervals: u64,
    chance: u64,
}

impl Sarsa {
    /// A chooser for a domain with a configuration. Its trials follow from the seed.
    #[must_use]
    pub fn new(promise: Promise, config: Config, seed: u64) -> Self {
        let expert = || Expert {
            values: BTreeMap::new(),
            weight: 1.0,
            last: None,
        };
        Self {
            promise,
            pins: Pins::default(),
            config,
            experts: std::array::from_fn(|_| expert()),
            before_us: None,
            shortest_us: BTreeMap::new(),
            searched: None,
            intervals: 0,
            chance: mix(seed),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.chance = mix(self.chance);
        self.chance % limit.max(1)
    }

    fn tries(&self, is_long: bool) -> u64 {
        let [first, last] = TRIES;
        if is_long {
            return first;
        }
        let fallen = (first - last) * self.intervals.min(TRYING_INTERVALS) / TRYING_INTERVALS;
        first - fallen
    }

    /// Whether operations take much longer than they have taken under this load.
    fn is_long(&mut self, load: u64, mean_us: f64) -> bool {
        if self.shortest_us.len() >= REMEMBERED && !self.shortest_us.contains_key(&load) {
            return false;
        }
        let shortest_us = *self.shortest_us.entry(load).or_insert(mean_us);
        let is_long = mean_us > LONG * shortest_us;
        self.note_search(load, is_long);
        let is_searching = is_long && (0..EXPERTS).any(|expert| !self.unseen(expert).is_empty());
        let forgetting = if is_searching { 0.0 } else { FORGETTING };
        let shortest_us = mean_us.min(shortest_us + forgetting * (mean_us - shortest_us));
        self.shortest_us.insert(load, shortest_us);
        is_long
    }

    /// Notes that operations take long with the present values, or that they do not.
    fn note_search(&mut self, load: u64, is_long: bool) {
        if !is_long {
            self.searched = None;
            return;
        }
        let before = self.searched.filter(|(of, _)| *of == load);
        let (_, mut seen) = before.unwrap_or((load, [0; EXPERTS]));
        for (expert, seen) in seen.iter_mut().enumerate() {
            *seen |= 1 << value_of(&self.config, expert);
        }
        self.searched = Some((load, seen));
    }

    /// The other values that an expert may have.
    fn others(&self, expert: usize) -> impl Iterator<Item = usize> {
        let now = value_of(&self.config, expert);
        (0..count_of(expert)).filter(move |action| {
            let changed = with_value(&self.config, expert, *action);
            *action != now && is_permitted(&changed, self.promise, self.pins)
        })
    }

    /// Those among them that it has not seen since operations take long.
    fn unseen(&self, expert: usize) -> Vec<usize> {
        let seen = self.searched.map_or(0, |(_, seen)| seen[expert]);
        self.others(expert).filter(|action| seen & (1 << action) == 0).collect()
    }

    /// A value to try: one that was not tried from here, if there is any, or else one that was not seen for long.
    fn untried(&mut self, expert: usize, place: Place) -> usize {
        let known = &self.experts[expert].values;
        let new: Vec<usize> = self
            .others(expert)
            .filter(|action| !known.contains_key(&(place, *action)))
            .collect();
        let unseen = self.unseen(expert);
        let others = self.others(expert).collect();
        let choice = [new, unseen, others].into_iter().find(|some| !some.is_empty());
        let Some(choice) = choice else { return place.1 };
        choice[self.below(choice.len() as u64) as usize]
    }

    fn suggest(&mut self, states: [u64; EXPERTS], is_long: bool) -> Vec<Suggestion> {
        let mut suggestions = Vec::new();
        for (expert, state) in states.into_iter().enumerate() {
            let (now, count) = (value_of(&self.config, expert), count_of(expert));
            let is_try = self.below(1_000_000) < self.tries(is_long) / EXPERTS as u64;
            let action = if is_try {
                self.untried(expert, (state, now))
            } else {
                let of = |action: &usize| self.experts[expert].value((state, now), *action);
                let best = (0..count).max_by(|one, other| of(one).total_cmp(&of(other)));
                best.filter(|best| of(best) > of(&now)).unwrap_or(now)
            };
            let known = &self.experts[expert];
            let gain = known.value((state, now), action) - known.value((state, now), now);
            if action != now {
                suggestions.push(Suggestion {
                    expert,
                    action,
                    reward: gain * known.weight - TRANSITION,
                    is_try,
                });
            }
        }
        suggestions.sort_by(|one, other| other.reward.total_cmp(&one.reward));
        suggestions
    }

    /// The configuration after the suggestions that go together.
    fn moderate(&self, suggestions: &[Suggestion]) -> Config {
        let taken = suggestions
            .iter()
            .filter(|suggestion| suggestion.is_try || suggestion.reward >= LEAST_REWARD);
        taken.fold(self.config, |config, suggestion| {
            let changed = with_value(&config, suggestion.expert, suggestion.action);
            let may_be = is_permitted(&changed, self.promise, self.pins);
            if may_be { changed } else { config }
        })
    }
}

/// The load in coarse steps for each expert: size, sharers, writes, reads of what changed. For replication it is the number of
/// operations in place of who reads.
fn states_of(load: &Features) -> [u64; EXPERTS] {
    let size = ((load.size_bytes + 1.0).log2() / 4.0) as u64;
    let sharers = load.sharers.max(1.0).log2() as u64;
    let writes = (load.write_ratio * 4.0).ceil() as u64;
    let changed = (load.changed_ratio * 4.0).ceil() as u64;
    let operations = ((load.per_second + 1.0).log2() / 2.0) as u64;
    let mut states = [((size * 16 + sharers.min(15)) * 8 + writes.min(7)) * 8 + changed.min(7); EXPERTS];
    states[REPLICATION] = (size * 16 + operations.min(15)) * 8 + writes.min(7);
    states
}

fn count_of(expert: usize) -> usize {
    [
        Scope::ALL.len(),
        WritePolicy::ALL.len(),
        Replacement::ALL.len(),
        Coherence::ALL.len(),
        Domain::ALL.len(),
        Admission::ALL.len(),
        Replication::ALL.len(),
    ][expert]
}

fn value_of(config: &Config, expert: usize) -> usize {
    [
        config.scope as usize,
        config.write as usize,
        config.replacement as usize,
        config.coherence as usize,
        config.domain as usize,
        config.admission as usize,
        config.replication as usize,
    ][expert]
}

fn with_value(config: &Config, expert: usize, value: usize) -> Config {
    let mut changed = *config;
    match expert {
        0 => changed.scope = Scope::ALL[value],
        1 => {
            changed.write = WritePolicy::ALL[value];
            if changed.write == WritePolicy::Through {
                // There is nothing left that a second cachelet could hold.
                changed.replication = changed.replication.without_data();
            }
        }
        2 => changed.replacement = Replacement::ALL[value],
        3 => changed.coherence = Coherence::ALL[value],
        4 => changed.domain = Domain::ALL[value],
        5 => changed.admission = Admission::ALL[value],
        _ => changed.replication = Replication::ALL[value],
    }
    changed
}

impl Chooser for Sarsa {
    fn observe(&mut self, _now_us: u64, counters: &Counters) -> Option<Switch> {
        let load = Load::of(counters);
        if load.operations < LEAST_OPERATIONS {
            return None;
        }
        self.intervals += 1;
        let (states, mean_us) = (states_of(&load.features()), counters.mean_us().max(1.0));
        let reward = self.before_us.replace(mean_us).map_or(0.0, |before_us| {
            ((before_us - mean_us) / before_us.max(mean_us)).clamp(-1.0, 1.0)
        });
        let is_long = self.is_long(states[0], mean_us);
        let suggestions = self.suggest(states, is_long);
        let config = self.moderate(&suggestions);
        for (number, expert) in self.experts.iter_mut().enumerate() {
            let place = (states[number], value_of(&self.config, number));
            expert.learn(reward, place, value_of(&config, number));
        }
        if config == self.config {
            return None;
        }
        let expected: f64 = suggestions.iter().map(|suggestion| suggestion.reward.max(0.0)).sum();
        self.config = config;
        Some(Switch {
            config,
            trial: None,
            why: Why {
                reason: Reason::Learned,
                from_us: mean_us,
                to_us: mean_us * (1.0 - expected.min(1.0)),
                switch_us: 0.0,
                figures: vec![("reward", expected)],
            },
        })
    }

    fn adopted(&mut self, _now_us: u64, config: Config, _trial: Option<Trial>) {
        if config != self.config {
            self.config = config;
            self.experts.iter_mut().for_each(|expert| expert.last = None);
        }
    }

    fn pin(&mut self, pins: Pins) {
        self.pins = pins;
        let pinned = pins.applied(self.config);
        if pinned.is_valid(self.promise) {
            self.config = pinned;
        }
    }

    /// It learns from what operations took, and prices nothing.
    fn set_rates(&mut self, _rates: Rates) {}

    fn ranking(&self) -> Vec<Ranked> {
        let expected_us = self.before_us.unwrap_or_default();
        vec![Ranked {
            config: self.config,
            expected_us,
            weight: 1.0,
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::{Access, Meter};
    use crate::config::Durability;
    use crate::message::Source;
    use crate::types::Key;

    /// The counters of an interval in which each operation took so long.
    fn counters(took_us: u64) -> Counters {
        let mut meter = Meter::new(0, 1 << 20);
        for number in 0..100_u64 {
            let access = Access {
                key: &Key::new(&format!("k{}", number % 10)),
                size_bytes: 1_000,
                is_write: false,
                version: None,
                source: Source::Copy,
                function: 0,
                instance: 0,
                took_us,
            };
            meter.note(number, &access);
        }
        Counters {
            interval_us: 1_000_000,
            reports: vec![meter.take(10)],
        }
    }

    #[test]
    fn it_learns_which_protocol_is_faster_and_keeps_the_promise() {
        let promise = Promise::default();
        let start = Config {
            coherence: Coherence::SequenceAtStore,
            ..Config::CONCORD
        };
        let mut sarsa = Sarsa::new(promise, start, 5);
        let (mut config, mut fast) = (start, 0);
        for interval in 0..4_000 {
            let is_fast = config.coherence == Coherence::Invalidate && config.admission == Admission::Keep;
            fast += u32::from(is_fast && interval >= 3_000);
            if let Some(switch) = sarsa.observe(0, &counters(if is_fast { 100 } else { 10_000 })) {
                assert!(switch.config.is_valid(promise), "{switch:?}");
                config = switch.config;
                sarsa.adopted(0, config, None);
            }
        }
        assert!(fast > 700, "{fast} of the last 1,000 intervals");
    }

    #[test]
    fn the_moderator_ranks_and_leaves_out_what_negates_a_higher_choice() {
        let suggestion = |expert, action, reward| Suggestion {
            expert,
            action,
            reward,
            is_try: false,
        };
        let sarsa = Sarsa::new(Promise::default(), Config::CONCORD, 1);
        let check = |suggestions: &[Suggestion], coherence, domain| {
            let config = sarsa.moderate(suggestions);
            assert_eq!((config.coherence, config.domain), (coherence, domain));
        };
        // Leaders and validation at the store do not go together.
        let leaders = || suggestion(4, Domain::Hierarchical as usize, 0.5);
        let at_store = || suggestion(3, Coherence::SequenceAtStore as usize, 0.4);
        check(&[leaders(), at_store()], Coherence::Invalidate, Domain::Hierarchical);
        check(&[at_store(), leaders()], Coherence::SequenceAtStore, Domain::Flat);
        check(
            &[leaders(), suggestion(3, Coherence::Update as usize, 0.3)],
            Coherence::Update,
            Domain::Hierarchical,
        );
        let too_little = suggestion(3, Coherence::Update as usize, LEAST_REWARD / 2.0);
        check(&[too_little], Coherence::Invalidate, Domain::Flat);
    }

    #[test]
    fn a_suggestion_is_weighed_and_pays_for_the_transition() {
        let mut sarsa = Sarsa::new(Promise::default(), Config::CONCORD, 1);
        sarsa.intervals = TRYING_INTERVALS;
        let place = (7, Coherence::Invalidate as usize);
        let known = ((place, Coherence::Update as usize), 0.06);
        sarsa.experts[3].values.extend([known]);
        let mut reward = |weight: f64| {
            sarsa.experts[3].weight = weight;
            let suggestions = (0..100)
                .map(|_| sarsa.suggest([7; EXPERTS], false))
                .find(|all| all.iter().all(|one| !one.is_try));
            let suggestions = suggestions.unwrap();
            assert_eq!(suggestions.len(), 1);
            assert_eq!(suggestions[0].action, Coherence::Update as usize);
            suggestions[0].reward
        };
        assert!((reward(1.0) - (0.06 - TRANSITION)).abs() < 1e-9);
        assert!((reward(2.0) - (0.12 - TRANSITION)).abs() < 1e-9);
    }

    #[test]
    fn every_value_of_every_dimension_is_an_action() {
        for expert in 0..EXPERTS {
            let values: Vec<usize> = (0..count_of(expert))
                .map(|value| value_of(&with_value(&Config::CONCORD, expert, value), expert))
                .collect();
            assert_eq!(values, (0..count_of(expert)).collect::<Vec<_>>(), "expert {expert}");
        }
        let both = Config {
            write: WritePolicy::Back,
            replication: Replication::Both,
            ..Config::CONCORD
        };
        let through = with_value(&both, 1, WritePolicy::Through as usize);
        assert_eq!(through.replication, Replication::Coherence);
    }

    #[test]
    fn an_expert_learns_whether_a_second_cachelet_pays() {
        let promise = Promise::default();
        // Either is what is fast, in turn: whoever always keeps one value fails.
        for fast in [Replication::None, Replication::Coherence] {
            let start = Config {
                replication: if fast == Replication::None {
                    Replication::Coherence
                } else {
                    Replication::None
                },
                ..Config::CONCORD
            };
            let mut sarsa = Sarsa::new(promise, start, 3);
            let (mut config, mut count) = (start, 0);
            for interval in 0..4_000 {
                let is_fast = config.replication == fast;
                count += u32::from(is_fast && interval >= 3_000);
                if let Some(switch) = sarsa.observe(0, &counters(if is_fast { 100 } else { 10_000 })) {
                    assert!(switch.config.is_valid(promise), "{switch:?}");
                    config = switch.config;
                    sarsa.adopted(0, config, None);
                }
            }
            assert!(count > 700, "{fast:?}: {count} of the last 1,000 intervals");
        }
    }

    /// Nothing but the first interval at a slow value has a reward: it is tried until what is fast is found again.
    #[test]
    fn an_expert_does_not_stay_where_nothing_is_rewarded() {
        let promise = Promise {
            durability: Durability::None,
            ..Promise::default()
        };
        let [fast, slow] = [100, 10_000].map(counters);
        for seed in 1..=12 {
            let mut sarsa = Sarsa::new(promise, Config::CONCORD, seed);
            let (mut config, mut count) = (Config::CONCORD, 0);
            for interval in 0..6_000 {
                let is_fast = config.replication == Replication::Coherence;
                count += u32::from(is_fast && interval >= 5_000);
                // Long after all has been tried, the operator's hand.
                if interval == 4_500 {
                    config = Config {
                        write: WritePolicy::Back,
                        replication: Replication::Both,
                        ..Config::CONCORD
                    };
                    sarsa.adopted(0, config, None);
                }
                if let Some(switch) = sarsa.observe(0, if is_fast { &fast } else { &slow }) {
                    assert!(switch.config.is_valid(promise), "{switch:?}");
                    config = switch.config;
                    sarsa.adopted(0, config, None);
                }
            }
            assert!(count > 700, "seed {seed}: {count} of the last 1,000 intervals");
        }
    }

    /// The usual time is not forgotten before every value has been seen: the last one may be what is fast.
    #[test]
    fn a_search_ends_when_all_values_were_seen() {
        let mut sarsa = Sarsa::new(Promise::default(), Config::CONCORD, 1);
        sarsa.shortest_us.insert(7, 100.0);
        for _ in 0..5_000 {
            assert!(sarsa.is_long(7, 10_000.0), "nothing else was tried");
        }
        let all = [u32::MAX; EXPERTS];
        sarsa.searched = Some((7, all));
        let longer = (0..5_000).take_while(|_| sarsa.is_long(7, 10_000.0)).count();
        assert!((50..1_000).contains(&longer), "{longer} intervals");
        assert_eq!(sarsa.searched, None);
    }

    #[test]
    fn what_is_replicated_follows_the_promise() {
        let sarsa = Sarsa::new(Promise::default(), Config::CONCORD, 1);
        let suggestion = |expert, action, reward| Suggestion {
            expert,
            action,
            reward,
            is_try: false,
        };
        let data = || suggestion(REPLICATION, Replication::Data as usize, 0.5);
        // Without write-back there is nothing that the store lacks.
        assert_eq!(sarsa.moderate(&[data()]), Config::CONCORD);
        let lossy = Promise {
            durability: Durability::None,
            ..Promise::default()
        };
        let sarsa = Sarsa::new(lossy, Config::CONCORD, 1);
        let back = suggestion(1, WritePolicy::Back as usize, 0.6);
        let config = sarsa.moderate(&[back, data()]);
        assert_eq!(
            (config.write, config.replication),
            (WritePolicy::Back, Replication::Data)
        );
    }

    #[test]
    fn what_is_pinned_is_never_changed() {
        let mut sarsa = Sarsa::new(Promise::default(), Config::CONCORD, 1);
        let pins = Pins {
            coherence: Some(Coherence::Update),
            ..Pins::default()
        };
        sarsa.pin(pins);
        sarsa.adopted(0, pins.applied(Config::CONCORD), None);
        for interval in 0..2_000 {
            if let Some(switch) = sarsa.observe(0, &counters(100 + interval % 7)) {
                assert_eq!(switch.config.coherence, Coherence::Update);
            }
        }
    }
}
