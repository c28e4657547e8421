//! Whether the memory granted to a tenant caches as much as it should. Two traces of real applications, replayed at
//! once as two tenants, are compared with a simulation of the same policy in the same memory.
//!
//! The policy is `fifo`, because its hit ratio follows from the room alone, and [`Fifo`] counts exactly what libcachesim
//! counts. The room is the grant without the index; each item takes a header, its key and its value.

use std::fs::File;
use std::io::Cursor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidemark_curve::sim::{Capacity, Fifo, Simulator as _};

use super::chart::{Chart, Marks, Panel};
use super::info::Info;
use super::others::Others;
use super::report::{Point, Series, Target};
use super::server::{Kind, Limits, Server, create_tenant, login};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::load::{Distribution, Keys, MAX_VALUE_BYTES, Order, Rng, ValueSize};
use tidemark_tools::replay::{self, Options, Source};
use tidemark_tools::trace::{Format, Request, Trace, TraceError};

/// The bytes of an item beside its key and its value: the header that every item has.
pub const ITEM_HEADER_BYTES: u64 = 7;
/// How far a hit ratio may be from the simulated one: a point.
pub const TOLERANCE_RATIO: f64 = 0.01;
/// The size of objects whose trace does not tell it, in bytes.
pub const VALUE_BYTES: u64 = 100;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "replay-hit-ratio",
    title: "Two traces as two tenants: hit ratio against simulation",
    minutes: 2,
    about: "\
`orm-busy` (an object-relational mapper's cache, 5,000,000 requests, values of 100 bytes) and `cloudPhysicsIO` (block I/O,
113,872 requests with sizes) are replayed at once against one server, each as a tenant of its own with its own cap and the
policy `fifo`, both empty at the start, in one pass. Each hit ratio is compared with that of a simulated first-in-first-out
cache (the same counts as libcachesim's) in the room that the tenant had: its grant without its index, each item taking
7 bytes of header, its key and its value. What it has less is mostly the segment that is being written, which is not full:
one of sixteen at the smallest cap. Where the traces are not there, generated ones of similar shape take their place
and their names say so.",
    run,
};

/// A trace of a real application.
#[derive(Clone, Copy, Debug)]
pub struct RealTrace {
    /// Its file.
    pub file: &'static str,
    /// The substitute if the trace is absent.
    pub made: MadeTrace,
    /// The caps that it is replayed with, in bytes.
    caps_bytes: [u64; 3],
}

/// The traces that are replayed.
pub const TRACES: [RealTrace; 2] = [
    RealTrace {
        file: "orm-busy.trace.xz",
        made: MadeTrace {
            name: "generated-records.oracleGeneral.bin",
            keys: 76_349,
            requests: 2_000_000,
            alpha: 0.8,
            value_size: ValueSize::Fixed(VALUE_BYTES as usize),
        },
        caps_bytes: [1 << 20, 2 << 20, 4 << 20],
    },
    RealTrace {
        file: "cloudPhysicsIO.oracleGeneral.bin",
        made: MadeTrace {
            name: "generated-blocks.oracleGeneral.bin",
            keys: 50_000,
            requests: 113_872,
            alpha: 0.6,
            value_size: ValueSize::Range(512, 69_632),
        },
        caps_bytes: [64 << 20, 256 << 20, 1 << 30],
    },
];

/// A generated load that stands for a trace.
#[derive(Clone, Copy, Debug)]
pub struct MadeTrace {
    /// The name of a file with it, which tells its format.
    pub name: &'static str,
    /// Different objects.
    pub keys: u64,
    /// Requests.
    pub requests: u64,
    /// How skewed they are: Zipf's exponent.
    pub alpha: f64,
    /// How large the objects are.
    pub value_size: ValueSize,
}

impl MadeTrace {
    /// The load as a file in the `oracleGeneral` format ([`Format::OracleGeneral`]), a second per thousand requests.
    ///
    /// # Errors
    /// The parameters make no sense.
    pub fn bytes(&self, seed: u64) -> Result<Vec<u8>, Error> {
        let keys = Keys::new(self.keys, Distribution::Zipf { alpha: self.alpha }, Order::Scrambled)?;
        let mut rng = Rng::new(seed);
        Ok(oracle_general((0..self.requests).map(|request| {
            let key = keys.draw(&mut rng);
            Request {
                key,
                size_bytes: Some(self.value_size.of(key) as u64),
                time_seconds: Some((request / 1000) as f64),
            }
        })))
    }
}

/// Requests in the `oracleGeneral` format ([`Format::OracleGeneral`]); those without a size get [`VALUE_BYTES`].
pub fn oracle_general(requests: impl Iterator<Item = Request>) -> Vec<u8> {
    /// The format's field for an object that is not asked for again; unknown here, and read by nobody.
    const NO_NEXT_ACCESS: i64 = -1;
    let mut file = Vec::new();
    for request in requests {
        let size_bytes = request.size_bytes.unwrap_or(VALUE_BYTES);
        file.extend_from_slice(&(request.time_seconds.unwrap_or(0.0) as u32).to_le_bytes());
        file.extend_from_slice(&request.key.to_le_bytes());
        file.extend_from_slice(&u32::try_from(size_bytes).unwrap_or(u32::MAX).to_le_bytes());
        file.extend_from_slice(&NO_NEXT_ACCESS.to_le_bytes());
    }
    file
}

/// The memory of a tenant, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The memory that it may hold.
    pub grant_bytes: u64,
    /// The part of the grant that its index holds.
    pub index_bytes: u64,
}

impl Memory {
    /// A tenant's, as its own `INFO memory` says.
    ///
    /// # Errors
    /// The server cannot be asked, or does not say.
    pub fn of(address: SocketAddr, tenant: &str, secret: &str) -> Result<Self, Error> {
        let fields = Info::open(address, tenant, secret)?.read("memory")?;
        Ok(Self {
            grant_bytes: fields.number("tidemark_grant_bytes")?,
            index_bytes: fields.number("used_memory_overhead")?,
        })
    }
}

/// The hit ratio that requests have in a first-in-first-out cache in a tenant's memory.
///
/// # Errors
/// The trace cannot be read.
pub fn simulated_hit_ratio(
    requests: impl Iterator<Item = Result<Request, TraceError>>,
    memory: Memory,
) -> Result<f64, TraceError> {
    let mut cache = Fifo::new(Capacity {
        bytes: memory.grant_bytes.saturating_sub(memory.index_bytes),
        overhead_bytes: ITEM_HEADER_BYTES,
    });
    let (mut count, mut hits) = (0_u64, 0_u64);
    for request in requests {
        let Request { key, size_bytes, .. } = request?;
        let value_bytes = size_bytes.unwrap_or(VALUE_BYTES).min(MAX_VALUE_BYTES as u64);
        let key_bytes = itoa::Buffer::new().format(key).len() as u64;
        count += 1;
        hits += u64::from(cache.request(key, key_bytes + value_bytes));
    }
    Ok(hits as f64 / count as f64)
}

/// A trace that can be read several times.
enum Input {
    File(PathBuf),
    Made(&'static str, Vec<u8>),
}

impl Input {
    /// The file where it is there, else what stands for it.
    fn find(folder: &Path, file: &str, made: &MadeTrace, seed: u64) -> Result<Self, Error> {
        let path = folder.join(file);
        match File::open(&path) {
            Ok(_) => Ok(Self::File(path)),
            Err(_) => Ok(Self::Made(made.name, made.bytes(seed)?)),
        }
    }

    /// Without the folder.
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Made(name, _) => (*name).to_owned(),
        }
    }

    fn open(&self) -> Result<Trace, Error> {
        Ok(match self {
            Self::File(path) => Trace::open(path, None)?,
            Self::Made(name, bytes) => Trace::from_reader(name, Cursor::new(bytes.clone()), Format::OracleGeneral)?,
        })
    }
}

/// One trace in one size.
struct Found {
    trace: usize,
    cap_bytes: u64,
    measured: f64,
    simulated: f64,
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| "../shared/traces".into(), PathBuf::from);
    let inputs = TRACES
        .each_ref()
        .map(|trace| Input::find(&folder, trace.file, &trace.made, context.seed));
    let [first, second] = inputs;
    let inputs = [first?, second?];
    let others = Others::watch();
    let mut found = Vec::new();
    let sizes = if context.quick { 1 } else { TRACES[0].caps_bytes.len() };
    for size in 0..sizes {
        let caps = TRACES.each_ref().map(|trace| trace.caps_bytes[size]);
        context.tell(&format!("caps of {} and {} MiB", caps[0] >> 20, caps[1] >> 20));
        found.extend(replay_both(context, &inputs, caps)?);
    }
    Ok(outcome(&inputs.each_ref().map(Input::name), &found, others.cores()))
}

/// Replays both traces at once against a new server.
fn replay_both(context: &Context, inputs: &[Input; 2], caps: [u64; 2]) -> Result<Vec<Found>, Error> {
    /// More than both caps, so that nobody has to give anything back.
    const MEMORY_BYTES: u64 = 2 << 30;
    const TENANTS: [&str; 2] = ["first", "second"];
    let limits = Limits {
        memory_bytes: MEMORY_BYTES,
        value_bytes: MAX_VALUE_BYTES,
    };
    let server = Server::start(&context.stage, Kind::Tidemark, limits)?;
    let (mut secrets, mut logins) = (Vec::new(), Vec::new());
    for (tenant, cap) in TENANTS.into_iter().zip(caps) {
        let cap = cap.to_string();
        let settings = ["--cap", &cap, "--policy", "fifo"];
        let secret = create_tenant(&context.stage, &server, tenant, &settings)?;
        logins.push(login(tenant, &secret)?);
        secrets.push(secret);
    }
    let sources = inputs.iter().zip(logins).map(|(input, login)| {
        Ok(Source {
            trace: input.open()?,
            login,
        })
    });
    let options = Options {
        address: server.address(Protocol::Memcached)?,
        protocol: Protocol::Memcached,
        sources: sources.collect::<Result<_, Error>>()?,
        value_size_bytes: VALUE_BYTES as usize,
        speed: None,
    };
    let report = replay::run(options, &mut |_| {})?;
    let mut found = Vec::new();
    for (index, trace) in report.traces.iter().enumerate() {
        let memory = Memory::of(server.address(Protocol::Redis)?, TENANTS[index], &secrets[index])?;
        found.push(Found {
            trace: index,
            cap_bytes: caps[index],
            measured: trace.hit_ratio.unwrap_or(f64::NAN),
            simulated: simulated_hit_ratio(inputs[index].open()?, memory)?,
        });
    }
    Ok(found)
}

fn outcome(names: &[String; 2], found: &[Found], others_cores: f64) -> Outcome {
    let mib = |bytes: u64| (bytes >> 20).to_string();
    let mut targets = Vec::new();
    let mut series = Vec::new();
    let mut panels = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let own: Vec<&Found> = found.iter().filter(|found| found.trace == index).collect();
        for found in &own {
            targets.push(Target::at_most(
                format!(
                    "{name}, cap of {} MiB: distance from the simulated hit ratio",
                    mib(found.cap_bytes)
                ),
                (found.measured - found.simulated).abs(),
                TOLERANCE_RATIO,
            ));
        }
        let mut drawn = Vec::new();
        for (who, value) in [
            ("Tidemark", (|found: &Found| found.measured) as fn(&Found) -> f64),
            ("simulation", |found| found.simulated),
        ] {
            let points = own
                .iter()
                .map(|found| Point::single(mib(found.cap_bytes), value(found)));
            series.push(Series {
                name: who.to_owned(),
                measure: "hit ratio".into(),
                unit: "ratio".into(),
                condition: name.clone(),
                x: "cap in MiB".into(),
                points: points.collect(),
            });
            drawn.push((
                who.to_owned(),
                own.iter().map(|found| Spread::of([value(found)])).collect(),
            ));
        }
        panels.push(Panel {
            title: name.clone(),
            x_label: "cap in MiB".into(),
            y_label: "hit ratio".into(),
            places: own.iter().map(|found| mib(found.cap_bytes)).collect(),
            marks: Marks::Bars,
            series: drawn,
        });
    }
    Outcome {
        scale: "one pass of each trace for each pair of caps".into(),
        targets,
        series,
        chart: Chart {
            title: "Hit ratio of two tenants at once, policy fifo".into(),
            panels,
        },
        others_cores,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_trace_is_a_trace() {
        for trace in &TRACES {
            let made = MadeTrace {
                requests: 3000,
                ..trace.made
            };
            let bytes = made.bytes(1).unwrap();
            assert_eq!(bytes, made.bytes(1).unwrap());
            assert_ne!(bytes, made.bytes(2).unwrap());
            assert_eq!(Format::of_name(Path::new(made.name)).unwrap(), Format::OracleGeneral);
            let input = Input::Made(made.name, bytes);
            let requests: Vec<Request> = input.open().unwrap().map(Result::unwrap).collect();
            assert_eq!((requests.len(), requests[2999].time_seconds), (3000, Some(2.0)));
            for request in requests {
                assert!(request.key < made.keys);
                assert_eq!(request.size_bytes, Some(made.value_size.of(request.key) as u64));
            }
        }
    }

    #[test]
    fn items_take_their_header_and_their_key() {
        // Two objects in turn, keys of one and two digits.
        let requests = || {
            let keys = [5_u64, 10].into_iter().cycle().take(100);
            keys.map(|key| {
                Ok(Request {
                    key,
                    size_bytes: (key == 5).then_some(50),
                    time_seconds: None,
                })
            })
        };
        let both = 50 + 1 + VALUE_BYTES + 2 + 2 * ITEM_HEADER_BYTES;
        for (room, ratio) in [(both, 0.98), (both - 1, 0.0)] {
            let memory = Memory {
                grant_bytes: room + 1000,
                index_bytes: 1000,
            };
            assert_eq!(simulated_hit_ratio(requests(), memory).unwrap(), ratio, "{room}");
        }
    }
}
