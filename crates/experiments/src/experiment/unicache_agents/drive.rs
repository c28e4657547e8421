//! The load: requests that go from function to function, each step in an instance that is free, if there is one. An instance does one
//! step at a time, as platforms of functions have it.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tidemark_cachelet::sim::Rng;

use super::super::objects::{AccessKey, Place, S3};
use super::apps::{Access, App, Request};
use super::cluster::{Cluster, HOP, NODES, Placed, place};
use super::relay::Relay;
use crate::Error;

/// A read of at most so many bytes is one of which the time says what the way took, and not the bytes.
pub(super) const SMALL_BYTES: usize = 4 << 10;
/// Clients of S3 try again after a 503 (botocore's standard mode: three attempts; functions are invoked again after that).
const TRIES: u32 = 10;
/// The first pause between two attempts; each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(20);
/// Requests that have not ended so long after the last one came are given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Objects that are read one after the other, and how often each.
const PROBED_OBJECTS: u64 = 40;
const PROBED_READS: usize = 6;
const PROBED_ROUND_TRIPS: usize = 100;

/// How requests come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace<'a> {
    /// At these times, in seconds, whatever is under way.
    At(&'a [f64]),
    /// As many at a time as there are instances, each next one when one has ended, for so long.
    Full(Duration),
}

/// The findings.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// From when each request should have begun to its end, in milliseconds.
    pub(super) response_ms: Vec<f64>,
    /// Small reads: where the bytes were, and the milliseconds that it took.
    pub(super) small_reads: Vec<(Place, f64)>,
    /// All reads, and those that were answered without the origin.
    pub(super) reads: u64,
    pub(super) hits: u64,
    /// Attempts after a 503.
    pub(super) again: u64,
    /// The time of it all, in seconds.
    pub(super) seconds: f64,
}

impl Found {
    pub(super) fn mean_ms(&self) -> f64 {
        self.response_ms.iter().sum::<f64>() / self.response_ms.len().max(1) as f64
    }

    pub(super) fn p99_ms(&self) -> f64 {
        let mut sorted = self.response_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() as f64 * 0.99).ceil() as usize;
        sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }

    pub(super) fn per_second(&self) -> f64 {
        self.response_ms.len() as f64 / self.seconds
    }

    fn add(&mut self, other: Self) {
        self.response_ms.extend(other.response_ms);
        self.small_reads.extend(other.small_reads);
        self.reads += other.reads;
        self.hits += other.hits;
        self.again += other.again;
    }
}

/// A request at one of its steps.
#[derive(Clone, Copy, Debug)]
struct Task {
    request: usize,
    step: usize,
    due: Instant,
}

/// The state that all instances share.
struct Shared<'a> {
    app: &'a App,
    requests: &'a [Request],
    placed: &'a [Placed],
    /// Tasks that an instance has, waiting and under way.
    queued: Vec<AtomicUsize>,
    inboxes: Vec<Sender<Option<Task>>>,
    ended: Sender<()>,
    chance: AtomicU64,
    /// Nobody waits for what is still under way.
    is_over: AtomicBool,
}

impl Shared<'_> {
    /// Gives a task to an instance of its function: on some node, or wherever the fewest wait if none is free there.
    fn give(&self, task: Task) {
        let function = self.requests[task.request][task.step].function;
        let number = self.chance.fetch_add(1, Ordering::Relaxed);
        let node = Rng::new(number).below(NODES as u64) as usize;
        let of = |place: &usize| self.placed[*place].function == function;
        let load = |place: &usize| self.queued[*place].load(Ordering::Relaxed);
        let all = || (0..self.placed.len()).filter(of);
        let here = all().filter(|place| self.placed[*place].node == node).min_by_key(load);
        let free = here.filter(|place| load(place) == 0);
        if let Some(place) = free.or_else(|| all().min_by_key(load)) {
            self.queued[place].fetch_add(1, Ordering::Relaxed);
            // An instance that has ended told why.
            let _ = self.inboxes[place].send(Some(task));
        }
    }
}

/// An instance at work.
struct Instance<'a> {
    shared: &'a Shared<'a>,
    number: usize,
    s3: S3,
    found: Found,
    bytes: Vec<u8>,
}

impl Instance<'_> {
    fn work(mut self, inbox: &Receiver<Option<Task>>) -> io::Result<Found> {
        while let Ok(Some(task)) = inbox.recv() {
            let steps = &self.shared.requests[task.request];
            for access in &steps[task.step].accesses {
                if self.shared.is_over.load(Ordering::Relaxed) {
                    return Ok(self.found);
                }
                self.access(access)?;
            }
            self.shared.queued[self.number].fetch_sub(1, Ordering::Relaxed);
            if task.step + 1 < steps.len() {
                self.shared.give(Task {
                    step: task.step + 1,
                    ..task
                });
            } else {
                self.found.response_ms.push(ms(task.due.elapsed()));
                // Nobody waits for it at the very end.
                let _ = self.shared.ended.send(());
            }
        }
        Ok(self.found)
    }

    fn access(&mut self, access: &Access) -> io::Result<()> {
        let path = self.shared.app.path(access.group, access.number);
        let size_bytes = self.shared.app.groups[access.group].size_bytes;
        for attempt in 0..TRIES {
            let began = Instant::now();
            let answer = if access.is_write {
                self.bytes.resize(size_bytes, b'.');
                self.s3.put(&path, &self.bytes)?
            } else {
                self.s3.get(&path)?
            };
            match answer.status {
                200 if access.is_write => return Ok(()),
                200 if self.s3.body().len() == size_bytes => {
                    self.found.reads += 1;
                    self.found.hits += u64::from(matches!(answer.place, Place::Copy | Place::Validated | Place::Home));
                    if size_bytes <= SMALL_BYTES {
                        self.found.small_reads.push((answer.place, ms(began.elapsed())));
                    }
                    return Ok(());
                }
                // A write of which nobody knows whether it was done is done again by clients, too.
                500 | 503 => {
                    self.found.again += 1;
                    std::thread::sleep(PAUSE * (1 << attempt.min(6)));
                }
                status => {
                    let what = format!("{path}: {status}, {} bytes", self.s3.body().len());
                    return Err(io::Error::other(what));
                }
            }
        }
        Err(io::Error::other(format!(
            "{path}: still refused after {TRIES} attempts"
        )))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The addresses and the key of the nodes.
struct Doors {
    s3: Vec<SocketAddr>,
    key: AccessKey,
}

/// Lets requests come. The same requests come in the same order for the same seed.
pub(super) fn drive(cluster: &Cluster<'_>, app: &App, requests: &[Request], pace: Pace<'_>) -> Result<Found, Error> {
    let doors = Doors {
        s3: (0..NODES).map(|node| cluster.s3(node)).collect(),
        key: cluster.key().clone(),
    };
    let unfit = |error: io::Error| Error::Unfit {
        server: format!("the agents of {}", app.name),
        reason: error.to_string(),
    };
    run(&doors, app, requests, pace).map_err(unfit)
}

/// Reads of small objects, one after the other and nothing beside them, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed {
    /// From the own node's copy.
    pub(super) local_ms: Vec<f64>,
    /// From another node's copy.
    pub(super) remote_ms: Vec<f64>,
    /// A byte there and back through a relay, meanwhile.
    pub(super) round_trips_ms: Vec<f64>,
}

/// Has one node write each of some small objects, and then each of the others read it: once from another node's copy, and then from
/// its own one. Nothing if the application has no small objects.
pub(super) fn probe(cluster: &Cluster<'_>, app: &App) -> Result<Probed, Error> {
    let mut probed = Probed::default();
    let small = app.groups.iter().position(|group| group.size_bytes <= SMALL_BYTES);
    let Some(group) = small else { return Ok(probed) };
    let unfit = |error: io::Error| Error::Unfit {
        server: format!("the agents of {}", app.name),
        reason: format!("reads one after the other: {error}"),
    };
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let first = place(app).into_iter().find(|placed| placed.node == node);
        let from = first.map(|placed| placed.address).ok_or(io::ErrorKind::NotFound);
        let connected = from.map_err(io::Error::from);
        let connected = connected.and_then(|from| S3::connect(from, cluster.s3(node), cluster.key()));
        nodes.push(connected.map_err(unfit)?);
    }
    let body = vec![b'.'; app.groups[group].size_bytes];
    for number in 0..app.groups[group].count.min(PROBED_OBJECTS) {
        let path = app.path(group, number);
        nodes[0].put(&path, &body).map_err(unfit)?;
        for s3 in &mut nodes[1..] {
            for _ in 0..PROBED_READS {
                let began = Instant::now();
                let answer = s3.get(&path).map_err(unfit)?;
                match answer.place {
                    Place::Copy => probed.local_ms.push(ms(began.elapsed())),
                    Place::Home => probed.remote_ms.push(ms(began.elapsed())),
                    _ => {}
                }
            }
        }
    }
    let round_trips = Relay::round_trips(HOP, PROBED_ROUND_TRIPS).map_err(Error::System)?;
    probed.round_trips_ms = round_trips.into_iter().map(ms).collect();
    Ok(probed)
}

/// Has each instance read once all that its function uses: copies are where they are read, and homes know the versions of what is only
/// written. The first write of an object whose version is not known is refused, and takes three round trips to the origin.
pub(super) fn read_all(cluster: &Cluster<'_>, app: &App, requests: &[Request]) -> Result<(), Error> {
    let used = |function: usize| -> BTreeSet<(usize, u64)> {
        let steps = requests.iter().flatten().filter(|step| step.function == function);
        let accesses = steps.flat_map(|step| &step.accesses);
        accesses.map(|access| (access.group, access.number)).collect()
    };
    let all: Vec<_> = (0..app.functions.len()).map(used).collect();
    let read = |placed: &Placed| -> io::Result<()> {
        let mut s3 = S3::connect(placed.address, cluster.s3(placed.node), cluster.key())?;
        for (group, number) in &all[placed.function] {
            s3.get(&app.path(*group, *number))?;
        }
        Ok(())
    };
    let read = &read;
    let placed = place(app);
    std::thread::scope(|scope| {
        let reading: Vec<_> = placed.iter().map(|placed| scope.spawn(move || read(placed))).collect();
        let mut ended = reading
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())));
        ended.try_for_each(|read| read).map_err(|error| Error::Unfit {
            server: format!("the agents of {}", app.name),
            reason: format!("reads of all objects: {error}"),
        })
    })
}

fn run(doors: &Doors, app: &App, requests: &[Request], pace: Pace<'_>) -> io::Result<Found> {
    let placed = place(app);
    let (inboxes, receivers): (Vec<_>, Vec<_>) = placed.iter().map(|_| channel()).unzip();
    let (tell, ended) = channel();
    let shared = Shared {
        app,
        requests,
        placed: &placed,
        queued: placed.iter().map(|_| AtomicUsize::new(0)).collect(),
        inboxes,
        ended: tell,
        chance: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let mut ready = Vec::new();
    for (number, of) in placed.iter().enumerate() {
        ready.push(Instance {
            shared: &shared,
            number,
            s3: S3::connect(of.address, doors.s3[of.node], &doors.key)?,
            found: Found::default(),
            bytes: Vec::new(),
        });
    }
    std::thread::scope(|scope| {
        let working: Vec<_> = ready
            .into_iter()
            .zip(receivers)
            .map(|(instance, inbox)| scope.spawn(move || instance.work(&inbox)))
            .collect();
        let began = Instant::now();
        let all_ended = match pace {
            Pace::At(times) => at_times(&shared, times, began, &ended),
            Pace::Full(time) => {
                keep_full(&shared, time, began, &ended);
                true
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        shared.is_over.store(true, Ordering::Relaxed);
        for inbox in &shared.inboxes {
            // An instance that has ended told why.
            let _ = inbox.send(None);
        }
        let mut found = Found {
            seconds,
            ..Found::default()
        };
        for instance in working {
            let own = instance.join().map_err(|_| io::Error::other("an instance panicked"))?;
            found.add(own?);
        }
        if all_ended {
            Ok(found)
        } else {
            Err(io::Error::other("requests do not end"))
        }
    })
}

/// Whether all of them have ended.
fn at_times(shared: &Shared<'_>, times: &[f64], began: Instant, ended: &Receiver<()>) -> bool {
    for (request, at) in times.iter().enumerate() {
        let due = began + Duration::from_secs_f64(*at);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        shared.give(Task {
            request: request % shared.requests.len(),
            step: 0,
            due,
        });
    }
    times.iter().all(|_| ended.recv_timeout(PATIENCE).is_ok())
}

fn keep_full(shared: &Shared<'_>, time: Duration, began: Instant, ended: &Receiver<()>) {
    let mut next = 0;
    let mut give = || {
        shared.give(Task {
            request: next % shared.requests.len(),
            step: 0,
            due: Instant::now(),
        });
        next += 1;
    };
    shared.placed.iter().for_each(|_| give());
    loop {
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() || ended.recv_timeout(left).is_err() {
            return;
        }
        give();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::objects::Origin;
    use super::super::apps::ALL;
    use super::*;

    /// Runs a skeleton against a store that is so far away.
    fn against_a_store(name: &str, far: Duration, pace: Pace<'_>) -> Found {
        let app = ALL.into_iter().find(|app| app.name == name).unwrap();
        let origin = Origin::start().unwrap();
        for (place, group) in app.groups.iter().enumerate() {
            (0..group.count).for_each(|number| origin.put(&app.path(place, number), group.size_bytes));
        }
        let relay = Relay::start(origin.address(), far).unwrap();
        let doors = Doors {
            s3: vec![relay.address(); NODES],
            key: AccessKey {
                id: "k".into(),
                secret: "s".into(),
            },
        };
        run(&doors, app, &app.requests(3, 50), pace).unwrap()
    }

    #[test]
    fn a_response_takes_as_long_as_its_accesses() {
        // Four accesses, each there and back.
        let found = against_a_store("ImgProc", Duration::from_millis(5), Pace::At(&[0.0, 0.01, 0.02, 0.2]));
        assert_eq!((found.response_ms.len(), found.reads, found.hits), (4, 8, 0));
        let shortest = found.response_ms.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(
            shortest >= 40.0 && found.p99_ms() >= shortest && found.seconds >= 0.24,
            "{found:?}"
        );
        assert!(found.mean_ms() >= shortest && found.mean_ms() <= found.p99_ms());
    }

    #[test]
    fn as_many_requests_as_instances_are_under_way() {
        let time = Duration::from_millis(600);
        let found = against_a_store("ML-tr", Duration::from_millis(20), Pace::Full(time));
        // 32 instances, two accesses of 40 ms each: 400 a second if all are at work.
        assert!(
            found.seconds >= 0.6 && found.per_second() < 420.0,
            "{}",
            found.per_second()
        );
        assert!(found.per_second() > 40.0, "{}", found.per_second());
    }
}
