//! One trace on one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::recent::Recent;
use crate::Error;
use crate::client::{Connection, Login, Part, Protocol, Received, Reply, quote};
use crate::load::{MAX_VALUE_BYTES, Values};
use crate::trace::{Request, Trace};

/// Gets in flight at once. More of them would hide the way to the server better, but let evictions come later than they
/// would one by one. That raises the hit ratio of small caches above the true one.
pub const WINDOW: usize = 16;
/// Received at once.
const SCRATCH_BYTES: usize = 256 << 10;
/// With this much waiting to be sent, no more is asked for.
const MAX_UNSENT_BYTES: usize = 256 << 10;
/// The longest sleep: how late another trace's failure may be seen.
const MAX_SLEEP: Duration = Duration::from_millis(50);
/// How long the server may say nothing while it was asked something.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// The state that a player's thread shares with the others.
pub(super) struct Shared<'a> {
    pub(super) requests: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Set by a player that failed: the others end too.
    pub(super) stop: &'a AtomicBool,
}

impl<'a> Shared<'a> {
    pub(super) fn new(stop: &'a AtomicBool) -> Self {
        Self {
            requests: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stop,
        }
    }
}

/// See the module.
pub(super) struct Player {
    poll: Poll,
    scratch: Vec<u8>,
    requests: Requests,
    channel: Channel,
}

/// The trace's requests, each when its time has come.
struct Requests {
    trace: Trace,
    /// Read, but not to be made yet.
    held: Option<Request>,
    speed: Option<f64>,
    first_seconds: Option<f64>,
    ended: bool,
}

/// The connection and its requests.
struct Channel {
    connection: Connection,
    /// The gets in the order in which replies will come.
    in_flight: VecDeque<InFlight>,
    /// The keys of the gets among them, in the same order.
    asked: VecDeque<u64>,
    recent: Recent,
    values: Values,
    value_size_bytes: usize,
    /// The gets that missed, among the replies in hand: empty but for a moment.
    missed: Vec<Get>,
    counts: Counts,
}

#[derive(Clone, Copy)]
enum InFlight {
    Get(Get),
    Set,
}

#[derive(Clone, Copy)]
struct Get {
    key: u64,
    /// The size of the value to store after a miss, in bytes.
    size_bytes: usize,
    /// Whether an earlier get of the key was in flight when this one was made: its miss does not count.
    early: bool,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: u64,
    hits: u64,
    refused: u64,
}

/// The action that is possible with the next request.
enum Next {
    Now(Request),
    /// Not before this much time has passed.
    Later(Duration),
    /// Not before a reply came.
    Blocked,
    End,
}

impl Player {
    /// Connects, and logs in.
    pub(super) fn open(
        (address, protocol, login): (SocketAddr, Protocol, Option<&Login>),
        trace: Trace,
        value_size_bytes: usize,
        speed: Option<f64>,
    ) -> Result<Self, Error> {
        let poll = Poll::new().map_err(Error::Poll)?;
        let mut connection = Connection::open(address, protocol, login)?;
        connection.register(poll.registry(), Token(0))?;
        Ok(Self {
            poll,
            scratch: vec![0; SCRATCH_BYTES],
            requests: Requests {
                trace,
                held: None,
                speed,
                first_seconds: None,
                ended: false,
            },
            channel: Channel {
                connection,
                // Every get in flight may leave a set behind, and the next ones are made before that is answered.
                in_flight: VecDeque::with_capacity(2 * WINDOW),
                asked: VecDeque::with_capacity(WINDOW),
                recent: Recent::new(),
                values: Values::default(),
                value_size_bytes,
                missed: Vec::with_capacity(WINDOW),
                counts: Counts::default(),
            },
        })
    }

    /// The trace's name.
    pub(super) fn name(&self) -> &str {
        self.requests.trace.name()
    }

    /// Makes all requests of the trace.
    pub(super) fn play(&mut self, shared: &Shared<'_>, start: Instant) -> Result<(), Error> {
        let mut events = Events::with_capacity(1);
        let mut heard = start;
        loop {
            let wait = self.ask(start)?;
            self.channel.connection.send()?;
            if self.requests.ended && self.channel.in_flight.is_empty() || shared.stop.load(Ordering::Relaxed) {
                break;
            }
            match self.poll.poll(&mut events, Some(wait.min(MAX_SLEEP))) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(Error::Poll(error)),
                _ => {}
            }
            let closing = events.iter().any(mio::event::Event::is_read_closed);
            if self.listen(closing)? || self.channel.in_flight.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() > MAX_SILENCE {
                return Err(Error::Silent {
                    address: self.channel.connection.address(),
                    seconds: MAX_SILENCE.as_secs(),
                });
            }
            self.channel.counts.tell(shared);
        }
        self.channel.counts.tell(shared);
        Ok(())
    }

    /// Makes the requests that may be made now. Returns how long there is nothing more to do but to wait for replies.
    fn ask(&mut self, start: Instant) -> Result<Duration, Error> {
        while self.channel.has_room() {
            match self.requests.next(&self.channel, start)? {
                Next::Now(request) => self.channel.get(&request),
                Next::Later(wait) => return Ok(wait),
                Next::Blocked | Next::End => break,
            }
        }
        Ok(MAX_SLEEP)
    }

    /// Takes the replies that are there, and sets missed keys. Returns whether there were any.
    fn listen(&mut self, to_the_end: bool) -> Result<bool, Error> {
        let mut any = false;
        while let Received::Bytes { length, more } = self.channel.connection.receive(&mut self.scratch)? {
            any = true;
            self.channel.take(&self.scratch[..length])?;
            if !more && !to_the_end {
                break;
            }
        }
        Ok(any)
    }
}

impl Requests {
    fn next(&mut self, channel: &Channel, start: Instant) -> Result<Next, Error> {
        let request = match self.held.take() {
            Some(request) => request,
            None => match self.trace.next() {
                Some(request) => request?,
                None => {
                    self.ended = true;
                    return Ok(Next::End);
                }
            },
        };
        if channel.is_asked(request.key) && !channel.recent.contains(request.key) {
            self.held = Some(request);
            return Ok(Next::Blocked);
        }
        if let Some(speed) = self.speed {
            let due = self.due(&request, speed)?;
            let wait = due.saturating_sub(start.elapsed());
            if !wait.is_zero() {
                self.held = Some(request);
                return Ok(Next::Later(wait));
            }
        }
        Ok(Next::Now(request))
    }

    /// When a request is to be made, from the beginning of the replay.
    fn due(&mut self, request: &Request, speed: f64) -> Result<Duration, Error> {
        let Some(seconds) = request.time_seconds else {
            let name = self.trace.name();
            return Err(Error::Usage(format!(
                "{name}: this trace does not say when its requests came: --speed needs that"
            )));
        };
        let first_seconds = *self.first_seconds.get_or_insert(seconds);
        // A request that came before the first one, by a clock that was set back, is due at once.
        Ok(Duration::try_from_secs_f64((seconds - first_seconds) / speed).unwrap_or_default())
    }
}

impl Channel {
    fn has_room(&self) -> bool {
        self.asked.len() < WINDOW && self.connection.unsent_bytes() < MAX_UNSENT_BYTES
    }

    /// Whether the answer to a get of the key is still to come.
    fn is_asked(&self, key: u64) -> bool {
        self.asked.contains(&key)
    }

    fn get(&mut self, request: &Request) {
        let size = request
            .size_bytes
            .map_or(Some(self.value_size_bytes), |bytes| usize::try_from(bytes).ok());
        self.ask(Get {
            key: request.key,
            size_bytes: size.map_or(MAX_VALUE_BYTES, |bytes| bytes.min(MAX_VALUE_BYTES)),
            early: self.is_asked(request.key),
        });
    }

    fn ask(&mut self, get: Get) {
        self.connection.get(itoa::Buffer::new().format(get.key).as_bytes());
        self.in_flight.push_back(InFlight::Get(get));
        self.asked.push_back(get.key);
    }

    /// Takes replies, and writes what follows from misses before any later request.
    fn take(&mut self, input: &[u8]) -> Result<(), Error> {
        let Self {
            connection,
            in_flight,
            asked,
            recent,
            values,
            missed,
            counts,
            ..
        } = self;
        let address = connection.address();
        connection.replies(input, |reply| {
            let request = in_flight.front().copied();
            match (request, reply) {
                (Some(InFlight::Get(get)), Reply::Value(part)) => {
                    check(address, get.key, part, values)?;
                    if !part.last {
                        return Ok(());
                    }
                    counts.requests += 1;
                    counts.hits += 1;
                    recent.remember(get.key);
                }
                (Some(InFlight::Get(get)), Reply::Miss) => {
                    counts.requests += u64::from(!get.early);
                    missed.push(get);
                }
                (Some(InFlight::Set), Reply::Stored) => {}
                (Some(InFlight::Set), Reply::Refused(_)) => counts.refused += 1,
                (Some(InFlight::Get(_)), Reply::Refused(line)) => {
                    return Err(Error::Refused {
                        address,
                        what: "a get",
                        reply: quote(line),
                    });
                }
                (request, reply) => return Err(unexpected(address, request, reply)),
            }
            if let Some(InFlight::Get(_)) = in_flight.pop_front() {
                asked.pop_front();
            }
            Ok(())
        })?;
        let mut missed = std::mem::take(&mut self.missed);
        for get in missed.drain(..) {
            self.follow(get);
        }
        self.missed = missed;
        Ok(())
    }

    /// Follows up a miss with the set. If a set of the key may just have been written, the same get is sent again.
    fn follow(&mut self, get: Get) {
        if get.early {
            return self.ask(Get { early: false, ..get });
        }
        let Get { key, size_bytes, .. } = get;
        let values = &self.values;
        let mut text = itoa::Buffer::new();
        let key_text = text.format(key).as_bytes();
        self.connection
            .set(key_text, size_bytes, None, |out| values.write(key, size_bytes, out));
        self.in_flight.push_back(InFlight::Set);
        self.recent.remember(key);
    }
}

impl Counts {
    fn tell(self, shared: &Shared<'_>) {
        shared.requests.store(self.requests, Ordering::Relaxed);
        shared.hits.store(self.hits, Ordering::Relaxed);
        shared.refused.store(self.refused, Ordering::Relaxed);
    }
}

/// Whether a part of a value is of the one stored under the key, in whatever size.
fn check(address: SocketAddr, key: u64, part: Part<'_>, values: &Values) -> Result<(), Error> {
    let mut text = itoa::Buffer::new();
    let other_key = part.key.is_some_and(|named| named != text.format(key).as_bytes());
    if other_key || !values.matches(key, part.offset, part.bytes) {
        return Err(Error::WrongValue { address, key });
    }
    Ok(())
}

/// A reply that the request does not have.
fn unexpected(address: SocketAddr, request: Option<InFlight>, reply: Reply<'_>) -> Error {
    let what = match request {
        Some(InFlight::Get(_)) => "a get",
        Some(InFlight::Set) => "a set",
        None => "nothing",
    };
    let reply = match reply {
        Reply::Value(_) => "a value".into(),
        Reply::Miss => "a miss".into(),
        Reply::Stored => "stored".into(),
        Reply::Refused(line) | Reply::Unexpected(line) => quote(line),
    };
    Error::OutOfStep { address, what, reply }
}
