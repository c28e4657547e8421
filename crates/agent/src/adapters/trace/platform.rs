//! A platform of functions as far as the lives of instances go: invocations in, events out. Pure.
//!
//! An invocation takes the instance of its function that was used last, or a new one if all are busy. An instance that
//! waits is paused after a while, and removed after a longer one, as OpenWhisk does it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::instances::{Happening, INSTANCES_MAX, LifeEvent};

/// OpenWhisk's `pause-grace`.
pub(super) const PAUSED_AFTER_US: u64 = 10_000_000;
/// OpenWhisk's `idle-container`.
pub(super) const REMOVED_AFTER_US: u64 = 600_000_000;

/// A function of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) app: String,
    pub(super) name: String,
}

/// Invocations of a function at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// The first one's begin.
    pub(super) start_us: u64,
    /// The distance.
    pub(super) every_us: u64,
    /// How many.
    pub(super) count: u32,
    /// How long each one takes.
    pub(super) duration_us: u64,
    /// The function's place among all.
    pub(super) function: usize,
}

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) at_us: u64,
    pub(super) event: LifeEvent,
}

/// An event that is due. At one time, an instance becomes free before an invocation looks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The invocation that an instance serves ends.
    End(u64),
    /// An instance has waited so long that it is paused, if it was not used since.
    Pause { instance: u64, uses: u64 },
    /// The same, and it is removed.
    Remove { instance: u64, uses: u64 },
    /// An invocation of a burst begins, and so many are left.
    Begin { burst: usize, left: u32 },
}

#[derive(Debug)]
struct Instance {
    function: usize,
    name: String,
    uses: u64,
    is_busy: bool,
    is_paused: bool,
}

/// See the module. An iterator over the events, in the order of time.
#[derive(Debug)]
pub(super) struct Platform {
    functions: Vec<Function>,
    bursts: Vec<Burst>,
    next_burst: usize,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    instances: BTreeMap<u64, Instance>,
    /// Instances that wait, by function; the one that was used last is at the end.
    idle: HashMap<usize, Vec<u64>>,
    made: u64,
    ready: std::collections::VecDeque<Timed>,
    /// Invocations for which there was no instance and no room for another one.
    turned_away: u64,
}

impl Platform {
    /// The life of these functions under these invocations, in any order.
    pub(super) fn new(functions: Vec<Function>, mut bursts: Vec<Burst>) -> Self {
        bursts.retain(|burst| burst.count > 0);
        bursts.sort_by_key(|burst| burst.start_us);
        Self {
            functions,
            bursts,
            next_burst: 0,
            due: BinaryHeap::new(),
            instances: BTreeMap::new(),
            idle: HashMap::new(),
            made: 0,
            ready: std::collections::VecDeque::new(),
            turned_away: 0,
        }
    }

    /// Invocations for which there was no instance, and no room for another one, so far.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    fn plan(&mut self, at_us: u64, due: Due) {
        self.due.push(Reverse((at_us, due)));
    }

    /// Whether there is anything left to come.
    fn step(&mut self) -> bool {
        let first = self.due.peek().map(|Reverse((at_us, _))| *at_us);
        if let Some(burst) = self.bursts.get(self.next_burst).copied()
            && first.is_none_or(|first| burst.start_us <= first)
        {
            let begin = Due::Begin {
                burst: self.next_burst,
                left: burst.count - 1,
            };
            self.next_burst += 1;
            self.plan(burst.start_us, begin);
            return true;
        }
        let Some(Reverse((at_us, due))) = self.due.pop() else {
            return false;
        };
        match due {
            Due::Begin { burst, left } => self.begin(at_us, burst, left),
            Due::End(instance) => self.end(at_us, instance),
            Due::Pause { instance, uses } => {
                let waits = |known: &&mut Instance| known.uses == uses && !known.is_busy;
                if let Some(known) = self.instances.get_mut(&instance).filter(waits) {
                    known.is_paused = true;
                    self.say(at_us, Happening::Paused, instance);
                }
            }
            Due::Remove { instance, uses } => {
                let waits = |known: &&Instance| known.uses == uses && !known.is_busy;
                if let Some(function) = self.instances.get(&instance).filter(waits).map(|known| known.function) {
                    self.say(at_us, Happening::Removed, instance);
                    self.instances.remove(&instance);
                    if let Some(idle) = self.idle.get_mut(&function) {
                        idle.retain(|other| *other != instance);
                    }
                }
            }
        }
        true
    }

    fn begin(&mut self, at_us: u64, burst: usize, left: u32) {
        let Burst {
            every_us,
            duration_us,
            function,
            ..
        } = self.bursts[burst];
        if left > 0 {
            self.plan(at_us + every_us, Due::Begin { burst, left: left - 1 });
        }
        let Some(instance) = self.free(function).or_else(|| self.make(at_us, function)) else {
            self.turned_away += 1;
            return;
        };
        if let Some(known) = self.instances.get_mut(&instance) {
            known.uses += 1;
            known.is_busy = true;
            if std::mem::take(&mut known.is_paused) {
                self.say(at_us, Happening::Resumed, instance);
            }
        }
        self.plan(at_us + duration_us, Due::End(instance));
    }

    fn free(&mut self, function: usize) -> Option<u64> {
        self.idle.get_mut(&function)?.pop()
    }

    fn make(&mut self, at_us: u64, function: usize) -> Option<u64> {
        if self.instances.len() >= INSTANCES_MAX {
            return None;
        }
        self.made += 1;
        let made = self.made;
        let instance = Instance {
            function,
            name: format!("{}-{made}", self.functions[function].name),
            uses: 0,
            is_busy: false,
            is_paused: false,
        };
        self.instances.insert(made, instance);
        self.say(at_us, Happening::Created, made);
        self.say(at_us, Happening::Identified, made);
        Some(made)
    }

    fn end(&mut self, at_us: u64, instance: u64) {
        let Some(known) = self.instances.get_mut(&instance) else {
            return;
        };
        known.is_busy = false;
        let (uses, function) = (known.uses, known.function);
        self.idle.entry(function).or_default().push(instance);
        self.plan(at_us + PAUSED_AFTER_US, Due::Pause { instance, uses });
        self.plan(at_us + REMOVED_AFTER_US, Due::Remove { instance, uses });
    }

    fn say(&mut self, at_us: u64, event: Happening, instance: u64) {
        let Some(known) = self.instances.get(&instance) else {
            return;
        };
        let function = &self.functions[known.function];
        // Platforms make instances before they know what for.
        let is_known = event != Happening::Created;
        let event = LifeEvent {
            event,
            instance: known.name.clone(),
            app: is_known.then(|| function.app.clone()),
            function: is_known.then(|| function.name.clone()),
            address: None,
            cgroup: None,
            memory_limit_bytes: None,
        };
        self.ready.push_back(Timed { at_us, event });
    }
}

impl Iterator for Platform {
    type Item = Timed;

    fn next(&mut self) -> Option<Timed> {
        while self.ready.is_empty() && self.step() {}
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// The events of a function whose invocations begin and last so many seconds.
    fn check(invocations: &[(u64, u64)], expected: &[(u64, &str, &str)]) {
        let bursts = invocations.iter().map(|(start, duration)| Burst {
            start_us: start * S,
            every_us: 0,
            count: 1,
            duration_us: duration * S,
            function: 0,
        });
        let events: Vec<_> = Platform::new(vec![function("pay")], bursts.collect())
            .map(|timed| {
                let text = format!("{:?}", timed.event.event).to_lowercase();
                (timed.at_us / S, text, timed.event.instance)
            })
            .collect();
        let events: Vec<_> = events
            .iter()
            .map(|(at, happening, name)| (*at, happening.as_str(), name.as_str()))
            .collect();
        assert_eq!(events, expected, "{invocations:?}");
    }

    fn function(name: &str) -> Function {
        Function {
            app: "shop".into(),
            name: name.into(),
        }
    }

    #[test]
    fn instances_come_and_go_with_invocations() {
        let one = [(0, "created", "pay-1"), (0, "identified", "pay-1")];
        check(
            &[(0, 5)],
            &[&one[..], &[(15, "paused", "pay-1"), (605, "removed", "pay-1")]].concat(),
        );
        // It is used again before it is paused, and later after.
        check(
            &[(0, 5), (7, 1), (30, 2)],
            &[
                &one[..],
                &[
                    (18, "paused", "pay-1"),
                    (30, "resumed", "pay-1"),
                    (42, "paused", "pay-1"),
                    (632, "removed", "pay-1"),
                ],
            ]
            .concat(),
        );
        // The second comes when the first one ends; the third while the instance is busy.
        check(
            &[(0, 5), (5, 5), (6, 1)],
            &[
                &one[..],
                &[
                    (6, "created", "pay-2"),
                    (6, "identified", "pay-2"),
                    (17, "paused", "pay-2"),
                    (20, "paused", "pay-1"),
                    (607, "removed", "pay-2"),
                    (610, "removed", "pay-1"),
                ],
            ]
            .concat(),
        );
    }

    #[test]
    fn a_burst_needs_as_many_instances_as_overlap() {
        let burst = Burst {
            start_us: 0,
            every_us: S,
            count: 60,
            duration_us: 5 * S / 2,
            function: 0,
        };
        let events: Vec<_> = Platform::new(vec![function("pay")], vec![burst]).collect();
        let made = |timed: &&Timed| timed.event.event == Happening::Created;
        assert_eq!(events.iter().filter(made).count(), 3);
        assert!(events.is_sorted_by_key(|timed| timed.at_us));
    }

    #[test]
    fn their_number_is_bounded() {
        let burst = Burst {
            start_us: 0,
            every_us: 1,
            count: INSTANCES_MAX as u32 + 7,
            duration_us: 60 * S,
            function: 0,
        };
        let mut platform = Platform::new(vec![function("pay")], vec![burst]);
        let made = platform
            .by_ref()
            .filter(|timed| timed.event.event == Happening::Created);
        assert_eq!(made.count(), INSTANCES_MAX);
        assert_eq!(platform.turned_away(), 7);
    }
}
