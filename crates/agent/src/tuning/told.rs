//! The messages of agents that let one of them choose.

use std::net::SocketAddr;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemark_cachelet::choose::{Rates, Report};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Told {
    /// Asks what was counted since the last time, and for counting to go on.
    Ask(Ask),
    /// Answers it.
    Counted(Box<Counted>),
}

/// See [`Told::Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The application.
    pub app: String,
    /// The address for the answer.
    pub reply: SocketAddr,
    /// When it was asked, by the clock of whoever asks.
    pub asked_us: u64,
}

/// See [`Told::Counted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The application.
    pub app: String,
    /// The agent.
    pub from: SocketAddr,
    /// As in the question.
    pub asked_us: u64,
    /// How long the answer took to make.
    pub took_us: u64,
    /// Whether all operations since the last question were counted.
    pub is_complete: bool,
    /// The counts.
    pub report: Report,
    /// How long calls to the origin take.
    pub pace: Pace,
}

/// How long calls to the origin take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Calls that it was seen in; none says nothing.
    pub calls: u64,
    /// A call without the time for its bytes.
    pub store_us: f64,
    /// A byte.
    pub us_per_byte: f64,
}

/// Values up to this cost hardly more than none.
const SMALL_BYTES: u64 = 64 << 10;
/// How much a call counts against those before.
const NEWEST: f64 = 0.1;

/// Follows the pace of calls to the origin.
#[derive(Debug, Default)]
pub struct StorePace(Mutex<Pace>);

impl StorePace {
    /// A call ended.
    pub fn note(&self, bytes: u64, took_us: u64) {
        let mut pace = self.0.lock();
        let took_us = took_us as f64;
        let mix = |old: f64, new: f64| if old == 0.0 { new } else { old + NEWEST * (new - old) };
        pace.calls += 1;
        if bytes <= SMALL_BYTES {
            pace.store_us = mix(pace.store_us, took_us);
        } else {
            let each_us = (took_us - pace.store_us).max(0.0) / bytes as f64;
            pace.us_per_byte = mix(pace.us_per_byte, each_us);
        }
    }

    /// The pace.
    pub fn get(&self) -> Pace {
        *self.0.lock()
    }
}

/// Steps as they were measured: by the agents' calls to the origin, and by round trips between agents.
#[must_use]
pub(super) fn rates(known: Rates, paces: &[Pace], round_trips_us: &[f64]) -> Rates {
    let calls: u64 = paces.iter().map(|pace| pace.calls).sum();
    let mean = |of: fn(&Pace) -> f64, otherwise: f64| {
        let seen = paces.iter().filter(|pace| of(pace) > 0.0);
        let (sum, weight) = seen.fold((0.0, 0.0), |(sum, weight), pace| {
            (sum + of(pace) * pace.calls as f64, weight + pace.calls as f64)
        });
        if weight > 0.0 { sum / weight } else { otherwise }
    };
    let hop_us = if round_trips_us.is_empty() {
        known.hop_us
    } else {
        round_trips_us.iter().sum::<f64>() / round_trips_us.len() as f64 / 2.0
    };
    if calls == 0 {
        return Rates { hop_us, ..known };
    }
    Rates {
        hop_us,
        store_us: mean(|pace| pace.store_us, known.store_us),
        store_us_per_byte: mean(|pace| pace.us_per_byte, known.store_us_per_byte),
        ..known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_calls_give_the_time_of_a_call_and_large_ones_that_of_a_byte() {
        let pace = StorePace::default();
        for _ in 0..200 {
            pace.note(100, 5_000);
            pace.note(10 << 20, 5_000 + (10 << 20) / 100);
        }
        let Pace {
            calls,
            store_us,
            us_per_byte,
        } = pace.get();
        assert_eq!(calls, 400);
        assert!((store_us - 5_000.0).abs() < 1.0, "{store_us}");
        assert!((us_per_byte - 0.01).abs() < 0.0001, "{us_per_byte}");
    }

    #[test]
    fn what_was_not_measured_stays_as_it_is() {
        let known = Rates::default();
        assert_eq!(rates(known, &[Pace::default()], &[]), known);
        let seen = Pace {
            calls: 3,
            store_us: 7_000.0,
            us_per_byte: 0.0,
        };
        let now = rates(known, &[Pace::default(), seen], &[500.0, 700.0]);
        assert_eq!((now.store_us, now.hop_us), (7_000.0, 300.0));
        assert_eq!(now.store_us_per_byte, known.store_us_per_byte);
    }
}
