//! Choosers against made-up counters.

use super::*;
use crate::config::Durability;
use crate::message::Source;
use crate::types::{Key, Version};

/// Nodes that read and write by turns: the counters of one interval of a second.
struct Script {
    meters: Vec<Meter>,
    versions: std::collections::BTreeMap<u64, u64>,
    now_us: u64,
}

impl Script {
    fn new(nodes: u32) -> Self {
        Self {
            meters: (0..nodes).map(|node| Meter::new(node / 4, 64 << 20)).collect(),
            versions: std::collections::BTreeMap::new(),
            now_us: 0,
        }
    }

    fn go(&mut self, node: usize, key: u64, size_bytes: u64, is_write: bool) {
        self.now_us += 1_000;
        let version = self.versions.entry(key).or_insert(0);
        *version += u64::from(is_write);
        let version = Version::Tag(version.to_string().into());
        let access = Access {
            key: &Key::new(&format!("k{key}")),
            size_bytes,
            is_write,
            version: Some(&version),
            source: Source::Copy,
            function: 0,
            instance: 0,
            took_us: 1_000,
        };
        self.meters[node].note(self.now_us, &access);
    }

    fn counters(&mut self) -> Counters {
        Counters {
            interval_us: 1_000_000,
            reports: self.meters.iter_mut().map(|meter| meter.take(10)).collect(),
        }
    }
}

fn hedge(promise: Promise) -> Hedge {
    Hedge::new(
        promise,
        Config::BASELINE_STORE,
        Rates::default(),
        hedge::Tuning::default(),
    )
}

/// The coherence that is chosen for a load, and after how many intervals.
fn check(load: impl Fn(&mut Script, u64), expected: &[Coherence]) {
    let mut script = Script::new(8);
    let mut hedge = hedge(Promise::default());
    let mut config = Config::BASELINE_STORE;
    for interval in 0..6 {
        load(&mut script, interval);
        if let Some(switch) = hedge.observe(script.now_us, &script.counters()) {
            assert!(switch.config.is_valid(Promise::default()), "{switch:?}");
            config = switch.config;
            hedge.adopted(script.now_us, switch.config, switch.trial);
        }
    }
    assert!(expected.contains(&config.coherence), "{config:?}, not {expected:?}");
}

#[test]
fn loads_get_their_protocols() {
    let directory = [Coherence::Invalidate, Coherence::Update];
    // Small values that are only read.
    check(
        |script, _| (0..400).for_each(|step| script.go(step as usize % 8, step % 20, 1_000, false)),
        &directory,
    );
    // Each write is read by all others before the next one.
    check(
        |script, _| {
            for step in 0..20 {
                script.go(0, step % 10, 1_000, true);
                (1..8).for_each(|node| script.go(node, step % 10, 1_000, false));
            }
        },
        &[Coherence::Update],
    );
    // Runs of writes between reads of others.
    check(
        |script, _| {
            for step in 0..20 {
                (0..4).for_each(|_| script.go(0, step, 100_000, true));
                script.go(1 + step as usize % 7, step, 100_000, false);
            }
        },
        &[Coherence::Invalidate, Coherence::SequenceAtHome],
    );
    // Values that are never used again.
    check(
        |script, interval| (0..400).for_each(|step| script.go(step as usize % 8, interval * 400 + step, 1_000, false)),
        &[Coherence::SequenceAtStore],
    );
}

#[test]
fn what_is_pinned_stays() {
    let mut script = Script::new(4);
    let mut hedge = hedge(Promise::default());
    hedge.pin(Pins {
        coherence: Some(Coherence::SequenceAtHome),
        ..Pins::default()
    });
    (0..400).for_each(|step| script.go(step as usize % 4, step % 20, 1_000, false));
    let switch = hedge.observe(script.now_us, &script.counters()).unwrap();
    assert_eq!(switch.config.coherence, Coherence::SequenceAtHome);
    assert_eq!(switch.why.reason, Reason::Pinned);
    assert!(
        hedge
            .ranking()
            .iter()
            .all(|ranked| ranked.config.coherence == Coherence::SequenceAtHome)
    );
}

#[test]
fn the_promise_is_never_chosen_away() {
    for durability in [Durability::Strict, Durability::None] {
        let promise = Promise {
            durability,
            ..Promise::default()
        };
        let all = allowed(promise, Pins::default(), Config::CONCORD);
        assert!(all.iter().all(|config| config.is_valid(promise)));
        let has_back = all.iter().any(|config| config.write == WritePolicy::Back);
        assert_eq!(has_back, durability == Durability::None);
        assert!(all.iter().all(|config| config.replication == Replication::None));
    }
}

#[test]
fn an_idle_interval_says_nothing() {
    let mut hedge = hedge(Promise::default());
    assert_eq!(hedge.observe(1, &Counters::default()), None);
}

#[test]
fn a_node_counts_a_bounded_number_of_keys() {
    let mut script = Script::new(1);
    (0..20_000).for_each(|key| script.go(0, key, 100, false));
    let counters = script.counters();
    let (keys, each) = counters.keys();
    assert!(keys.len() <= counters::SAMPLED_KEYS);
    let all = keys.len() as f64 * each;
    assert!((10_000.0..40_000.0).contains(&all), "{all} keys are estimated");
}

#[test]
fn a_switch_that_makes_things_worse_is_taken_back() {
    let mut script = Script::new(8);
    let mut hedge = hedge(Promise::default());
    let mut interval = |hedge: &mut Hedge, factor: u64| {
        (0..400).for_each(|step| script.go(step as usize % 8, step % 20, 1_000, false));
        let mut counters = script.counters();
        for times in counters.reports.iter_mut().flat_map(|report| &mut report.times) {
            times.us *= factor;
        }
        hedge.observe(script.now_us, &counters)
    };
    let first = interval(&mut hedge, 1).unwrap();
    assert_eq!(first.why.reason, Reason::Cheaper);
    hedge.adopted(1, first.config, None);
    let later: Vec<_> = (0..4).filter_map(|_| interval(&mut hedge, 50)).collect();
    assert_eq!(later[0].why.reason, Reason::RolledBack, "{later:?}");
    assert_eq!(later[0].config, Config::BASELINE_STORE);
}

#[test]
fn features_say_who_shares_and_how_unlike_keys_are() {
    let mut meter = Meter::new(0, 64 << 20);
    let version = Version::Tag("1".into());
    let read = |meter: &mut Meter, key: &str, size_bytes: u64, (function, instance): (u64, u64)| {
        let access = Access {
            key: &Key::new(key),
            size_bytes,
            is_write: false,
            version: Some(&version),
            source: Source::Copy,
            function,
            instance,
            took_us: 1_000,
        };
        meter.note(0, &access);
    };
    // Of three reads after the first one, one is by the same instance, and two are by the same function.
    for who in [(1, 1), (1, 1), (1, 2), (2, 3)] {
        read(&mut meter, "a", 100, who);
    }
    let counters = |report| Counters {
        interval_us: 1_000_000,
        reports: vec![report],
    };
    let alike = price::Load::of(&counters(meter.take(1))).features();
    assert_eq!((alike.instances_ratio, alike.functions_ratio), (0.5, 0.25));
    assert_eq!((alike.size_spread, alike.popularity_spread), (0.0, 0.0));
    assert_eq!((alike.elements, alike.per_second), (1.0, 4.0));
    assert_eq!(alike.small_reuse_ratio, 0.75);
    // Sizes of 100 and 300 bytes: a deviation of 100 around 200. Uses of 3 and 1: one around two.
    read(&mut meter, "small", 100, (1, 1));
    for _ in 0..3 {
        read(&mut meter, "large", 300, (1, 1));
    }
    let unlike = price::Load::of(&counters(meter.take(1))).features();
    assert!((unlike.size_spread - 0.5).abs() < 1e-9, "{unlike:?}");
    assert!((unlike.popularity_spread - 0.5).abs() < 1e-9, "{unlike:?}");
    assert_eq!(unlike.small_reuse_ratio, 0.0, "the small value was read once");
}

/// A domain whose configuration is a little worse than the best one; operations take what they cost by price.
struct LittleWorse {
    script: Script,
    intervals: u64,
    hedge: Hedge,
    start: Config,
}

impl LittleWorse {
    fn new() -> Self {
        let (promise, rates) = (Promise::default(), Rates::default());
        let mut script = Script::new(8);
        let mut counters = Counters::default();
        for interval in 0..3 {
            Self::go(&mut script, interval);
            counters = script.counters();
        }
        let load = price::Load::of(&counters);
        let all = allowed(promise, Pins::default(), Config::CONCORD);
        let price_us = |config: &Config| load.price_us(config, &rates);
        let best_us = all.iter().map(price_us).fold(f64::INFINITY, f64::min);
        let is_little_worse = |config: &&Config| (0.86..0.96).contains(&(best_us / price_us(config)));
        let start = *all.iter().find(is_little_worse).unwrap();
        let hedge = Hedge::new(promise, start, rates, hedge::Tuning::default());
        Self {
            script,
            intervals: 3,
            hedge,
            start,
        }
    }

    /// Values that nobody reads twice: to ask the home first is a detour.
    fn go(script: &mut Script, interval: u64) {
        (0..400).for_each(|step| script.go(step as usize % 8, interval * 400 + step, 1_000, false));
    }

    /// An interval in which operations of a partition take `percent` of what they cost elsewhere.
    fn interval(&mut self, slowed: Option<(u8, u64)>) -> Option<Switch> {
        Self::go(&mut self.script, self.intervals);
        self.intervals += 1;
        let mut counters = self.script.counters();
        let price_us = price_us(&counters, &self.start, &Rates::default()) as u64;
        for report in &mut counters.reports {
            for (number, times) in (0_u8..).zip(&mut report.times) {
                let percent = slowed
                    .filter(|(partition, _)| *partition == number)
                    .map_or(100, |(_, percent)| percent);
                times.us = times.count * price_us * percent / 100;
            }
        }
        let switch = self.hedge.observe(self.script.now_us, &counters);
        if let Some(switch) = &switch {
            self.hedge.adopted(self.script.now_us, switch.config, switch.trial);
        }
        switch
    }
}

#[test]
fn a_small_gain_is_tried_on_a_partition_first() {
    for (percent, expected) in [(80, Reason::TrialKept), (130, Reason::TrialFailed)] {
        let mut domain = LittleWorse::new();
        let begun = domain.interval(None).unwrap();
        assert_eq!(begun.why.reason, Reason::Trial, "{begun:?}");
        let trial = begun.trial.unwrap();
        assert_eq!(begun.config, domain.start, "all other keys stay as they are");
        assert_ne!(trial.config, domain.start);
        let slowed = Some((trial.partition, percent));
        let ended = (0..10).find_map(|_| domain.interval(slowed)).unwrap();
        assert_eq!((ended.why.reason, ended.trial), (expected, None), "{ended:?}");
        let is_kept = expected == Reason::TrialKept;
        let wanted = if is_kept { trial.config } else { domain.start };
        assert_eq!(ended.config, wanted);
        // One that failed is not tried again soon.
        let later: Vec<_> = (0..12).filter_map(|_| domain.interval(None)).collect();
        let is_tried = |switch: &Switch| switch.trial.is_some_and(|again| again.config == trial.config);
        assert!(is_kept || !later.iter().any(is_tried), "{later:?}");
    }
}
