//! Reads and writes by several clients at once, one after the other in each, and how long they took.

use std::io;
use std::time::{Duration, Instant};

/// One that reads and writes objects.
pub(in crate::experiment) trait Client: Send {
    /// Reads an object whole; how many bytes it has.
    fn read(&mut self, key: &str) -> io::Result<usize>;

    /// Writes an object.
    fn write(&mut self, key: &str, bytes: &[u8]) -> io::Result<()>;
}

/// How much each client does: for so long, but so often at least and at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) struct Limits {
    pub(in crate::experiment) seconds: f64,
    pub(in crate::experiment) least: u64,
    pub(in crate::experiment) most: u64,
}

impl Limits {
    pub(in crate::experiment) fn seconds(seconds: f64) -> Self {
        Self {
            seconds,
            least: 1,
            most: u64::MAX,
        }
    }
}

/// When a client goes on after what it has done.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) enum Pace {
    /// At once.
    Full,
    /// After a pause.
    After(Duration),
    /// Each time that so long has passed since the last time; at once if it is late.
    Every(Duration),
}

/// Times in milliseconds, in order.
#[derive(Clone, Debug, Default)]
pub(in crate::experiment) struct Times(Vec<f64>);

impl From<Vec<f64>> for Times {
    fn from(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }
}

impl Times {
    /// The time that a share of all does not exceed: the next one above, so that a 99th percentile of few is the longest.
    pub(in crate::experiment) fn at(&self, share: f64) -> f64 {
        let place = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    pub(in crate::experiment) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
}

/// The findings.
#[derive(Clone, Debug, Default)]
pub(in crate::experiment) struct Found {
    pub(in crate::experiment) reads: Times,
    /// Reads and writes.
    pub(in crate::experiment) done: u64,
    /// Bytes that were read.
    pub(in crate::experiment) bytes: u64,
    pub(in crate::experiment) seconds: f64,
}

/// What a client has done: so many bytes read, or a write.
pub(in crate::experiment) type Done = io::Result<Option<usize>>;

/// Has each client do something again and again. `act` gets the client, its number, and how often it was called for it before; its
/// first time counts for nothing.
pub(in crate::experiment) fn repeat<C: Client>(
    clients: Vec<C>,
    (limits, pace): (Limits, Pace),
    act: impl Fn(&mut C, usize, u64) -> Done + Sync,
) -> io::Result<Found> {
    let act = &act;
    let mut clients: Vec<(usize, C)> = clients.into_iter().enumerate().collect();
    for (number, client) in &mut clients {
        act(client, *number, 0)?;
    }
    let began = Instant::now();
    let one = |number: usize, mut client: C| -> io::Result<(Vec<f64>, u64, u64)> {
        let (mut times, mut done, mut bytes) = (Vec::new(), 0, 0);
        let mut due = began;
        while done < limits.least || (done < limits.most && began.elapsed().as_secs_f64() < limits.seconds) {
            let since = Instant::now();
            let read = act(&mut client, number, done + 1)?;
            done += 1;
            if let Some(read_bytes) = read {
                times.push(since.elapsed().as_secs_f64() * 1e3);
                bytes += read_bytes as u64;
            }
            match pace {
                Pace::Full => {}
                Pace::After(pause) => std::thread::sleep(pause),
                Pace::Every(period) => {
                    due += period;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            }
        }
        Ok((times, done, bytes))
    };
    let one = &one;
    std::thread::scope(|scope| {
        let working: Vec<_> = clients
            .into_iter()
            .map(|(number, client)| scope.spawn(move || one(number, client)))
            .collect();
        let (mut times, mut found) = (Vec::new(), Found::default());
        for client in working {
            let (own, done, bytes) = client.join().map_err(|_| io::Error::other("a client panicked"))??;
            times.extend(own);
            found.done += done;
            found.bytes += bytes;
        }
        Ok(Found {
            reads: Times::from(times),
            seconds: began.elapsed().as_secs_f64(),
            ..found
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Client for Nothing {
        fn read(&mut self, _: &str) -> io::Result<usize> {
            Ok(10)
        }

        fn write(&mut self, _: &str, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_percentile_is_one_of_the_times() {
        let times = Times::from((1..=200).rev().map(f64::from).collect::<Vec<_>>());
        assert_eq!(
            [0.0, 0.5, 0.99, 1.0].map(|share| times.at(share)),
            [1.0, 100.0, 198.0, 200.0]
        );
        assert_eq!((times.mean(), times.0.len()), (100.5, 200));
        assert_eq!(Times::from(vec![3.0, 7.0]).at(0.99), 7.0, "of few it is the longest");
        assert!(Times::default().at(0.5).is_nan());
    }

    #[test]
    fn reads_and_writes_are_counted_but_for_the_first() {
        let limits = Limits {
            seconds: 0.0,
            least: 6,
            most: 6,
        };
        let act = |client: &mut Nothing, _, number: u64| {
            if number.is_multiple_of(2) {
                return client.read("k").map(Some);
            }
            client.write("k", b"").map(|()| None)
        };
        let found = repeat(vec![Nothing, Nothing], (limits, Pace::Full), act).unwrap();
        assert_eq!((found.done, found.bytes, found.reads.0.len()), (12, 60, 6));
        let failing = |_: &mut Nothing, number: usize, _| match number {
            0 => Ok(Some(1)),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        assert!(repeat(vec![Nothing, Nothing], (limits, Pace::Full), failing).is_err());
    }

    #[test]
    fn a_pace_is_kept() {
        let limits = |most| Limits {
            seconds: f64::MAX,
            least: 0,
            most,
        };
        let read = |client: &mut Nothing, _, _| client.read("k").map(Some);
        let pause = Duration::from_millis(20);
        for pace in [Pace::After(pause), Pace::Every(pause)] {
            let found = repeat(vec![Nothing], (limits(3), pace), read).unwrap();
            assert!(
                found.seconds >= 0.06 && found.reads.at(1.0) < 60_000.0,
                "{pace:?}: {found:?}"
            );
        }
    }
}
