//! One connection under load: its requests in flight, and the meaning of its replies.

use std::collections::VecDeque;

use super::tally::Tally;
use crate::Error;
use crate::client::{Connection, Part, Reply};
use crate::load::{KeyText, Lifetimes, Operation, Rng, ValueSize, Values};

/// The limit of requests that were written but not sent yet, or one value. A connection whose server does not read is
/// left alone.
const MAX_UNSENT_BYTES: usize = 256 << 10;

/// A connection and its requests.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) in_flight: VecDeque<InFlight>,
    /// The first of the keys that it asks for.
    pub(super) first_key: u64,
    /// Keys that were missed and are to be stored.
    pub(super) refills: VecDeque<u64>,
    /// Keys that are still to be stored before the measurement.
    pub(super) preload: Preload,
    /// Whether something was written that was not sent yet.
    pub(super) dirty: bool,
    pipeline: usize,
}

/// A request whose reply is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    key: u64,
    since_ns: u64,
    get: bool,
    /// Whether a part of its value was not the right one.
    wrong: bool,
}

/// Every so-many-th key from a first one on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preload {
    pub(super) next: u64,
    pub(super) step: u64,
    pub(super) end: u64,
}

impl Iterator for Preload {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let key = self.next;
        (key < self.end).then(|| {
            self.next = key.saturating_add(self.step);
            key
        })
    }
}

/// How keys and values are written and recognised; a thread's own.
pub(super) struct Speller {
    pub(super) key: KeyText,
    pub(super) values: Values,
    pub(super) value_size: ValueSize,
    pub(super) lifetimes: Lifetimes,
    /// The source of random lifetimes.
    pub(super) rng: Rng,
    pub(super) verify: bool,
    pub(super) look_aside: bool,
}

impl Session {
    pub(super) fn new(connection: Connection, pipeline: usize, first_key: u64, preload: Preload) -> Self {
        Self {
            connection,
            first_key,
            in_flight: VecDeque::with_capacity(pipeline),
            // Each request in flight can leave one behind.
            refills: VecDeque::with_capacity(pipeline),
            preload,
            dirty: false,
            pipeline,
        }
    }

    /// Whether another request may be written.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < self.pipeline && self.connection.unsent_bytes() < MAX_UNSENT_BYTES
    }

    /// Writes a request whose latency counts from `since_ns`.
    #[inline]
    pub(super) fn issue(&mut self, operation: Operation, speller: &mut Speller, since_ns: u64) {
        let (key, get) = match operation {
            Operation::Get(key) => {
                self.connection.get(speller.key.of(key));
                (key, true)
            }
            Operation::Set(key) => {
                let size_bytes = speller.value_size.of(key);
                let lifetime = speller.lifetimes.draw(&mut speller.rng);
                let values = &speller.values;
                self.connection.set(speller.key.of(key), size_bytes, lifetime, |out| {
                    values.write(key, size_bytes, out);
                });
                (key, false)
            }
        };
        self.in_flight.push_back(InFlight {
            key,
            since_ns,
            get,
            wrong: false,
        });
    }

    /// Takes the replies in `input`, which came at `now_ns`.
    #[inline]
    pub(super) fn take(
        &mut self,
        input: &[u8],
        speller: &mut Speller,
        tally: &mut Tally,
        now_ns: u64,
    ) -> Result<(), Error> {
        let Self {
            connection,
            in_flight,
            refills,
            ..
        } = self;
        let address = connection.address();
        connection.replies(input, |reply| {
            let Some(request) = in_flight.front_mut() else {
                return Err(Error::OutOfStep {
                    address,
                    what: "nothing",
                    reply: format!("{reply:?}").chars().take(80).collect(),
                });
            };
            if let Reply::Value(part) = reply {
                check(request, part, speller, tally);
                if !part.last {
                    return Ok(());
                }
            }
            tally.last_ns = now_ns;
            tally.requests += 1;
            tally.took(now_ns.saturating_sub(request.since_ns));
            if count(request, reply, tally) == Outcome::Miss && speller.look_aside {
                refills.push_back(request.key);
            }
            in_flight.pop_front();
            Ok(())
        })
    }

    /// Gives up on requests in flight at the end.
    pub(super) fn abandon(&mut self, tally: &mut Tally, now_ns: u64) {
        for request in self.in_flight.drain(..) {
            tally.requests += 1;
            tally.mistakes.unanswered += 1;
            tally.took(now_ns.saturating_sub(request.since_ns));
            tally.last_ns = now_ns;
            tally.mistake(|| "no reply came".into());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Miss,
}

/// Counts a request by its whole reply.
#[inline]
fn count(request: &InFlight, reply: Reply<'_>, tally: &mut Tally) -> Outcome {
    match reply {
        Reply::Value(_) if request.get && !request.wrong => {
            tally.gets += 1;
            tally.hits += 1;
        }
        Reply::Miss if request.get => {
            tally.gets += 1;
            return Outcome::Miss;
        }
        Reply::Stored if !request.get => {}
        Reply::Refused(line) => {
            tally.mistakes.refused += 1;
            tally.mistake(|| crate::client::quote(line));
        }
        Reply::Value(_) => tally.mistakes.wrong += 1,
        Reply::Miss | Reply::Stored | Reply::Unexpected(_) => {
            tally.mistakes.wrong += 1;
            let asked = if request.get { "get" } else { "set" };
            tally.mistake(|| match reply {
                Reply::Unexpected(line) => format!("a {asked} was answered `{}`", crate::client::quote(line)),
                _ => format!("a {asked} was answered with another request's reply"),
            });
        }
    }
    Outcome::Done
}

/// Marks the request if a part is not its value's.
#[inline]
fn check(request: &mut InFlight, part: Part<'_>, speller: &mut Speller, tally: &mut Tally) {
    let key = request.key;
    if part.offset == 0 {
        let expected = speller.value_size.of(key);
        if part.size_bytes != expected {
            request.wrong = true;
            tally.mistake(|| {
                let found = part.size_bytes;
                format!("a value has {found} bytes where {expected} were to be: other data under the same keys?")
            });
        }
        if part.key.is_some_and(|named| named != speller.key.of(key)) {
            request.wrong = true;
            tally.mistake(|| "a get was answered with another key's value".into());
        }
    }
    if !request.get {
        request.wrong = true;
        tally.mistake(|| "a set was answered with a value".into());
    } else if speller.verify && !request.wrong && !speller.values.matches(key, part.offset, part.bytes) {
        request.wrong = true;
        tally.mistake(|| "a value has not the bytes that are stored under its key".into());
    }
}
