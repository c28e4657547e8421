//! Throughput of one to ten clients over several servers, each with its own pool of functions.

use std::io;
use std::time::Duration;

use super::chart::{Chart, Marks, Panel};
use super::objects::{AccessKey, BUCKET, Client, Cloud, Found, Gateway, Limits, Origin, Pace, Pool, S3, repeat};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::server::Stage;
use super::{Context, Experiment, Outcome};
use crate::Error;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "infinicache-fig12",
    title: "Throughput of 1 to 10 clients over several servers (InfiniCache, Fig. 12)",
    minutes: 5,
    about: "\
Servers, each with a pool of twelve functions of its own (10+2), and clients that read objects of 20 MB: a client hashes an object's name and asks the server
that has it, on a connection of its own to each. The paper had five proxies with 50 functions each, and ten clients, all of them on machines of their own. Here they are
processes that share the cores of one machine, as the system places them, so that it is the machine that limits them, and not a proxy: more servers can not be
faster than one. What can be seen is whether servers and clients get in each other's way before the machine is used up.

First, clients read as fast as they can: the highest throughput is the *limit* of the machine. Then each client asks for as much as an eighth of that, at
steady intervals, so that eight of them would use the machine up. What is judged is the throughput over what was asked for, while that is no more than three quarters
of the limit.",
    run,
};

const SERVERS: [usize; 2] = [1, 3];
const NAMES: [&str; 3] = ["first", "second", "third"];
const CLIENTS: std::ops::RangeInclusive<usize> = 1..=10;
/// So many clients would use the machine up.
const CLIENTS_AT_LIMIT: f64 = 8.0;
/// What is asked for is judged up to this part of the limit.
const JUDGED_RATIO: f64 = 0.75;
/// The least part of what was asked for that comes.
const LINEAR_RATIO: f64 = 0.95;
const OBJECTS: u64 = 24;
const OBJECT_BYTES: u64 = 20_000_000;
const MEMORY_BYTES: u64 = 128 << 20;

fn pool(name: &str) -> Pool<'_> {
    Pool {
        name,
        count: 12,
        memory_mib: 256,
        code: "10+2",
        reads: "data-first",
        billing_unit: "1s",
        encryption: "none",
    }
}

fn path(number: u64) -> String {
    format!("/{BUCKET}/object-{}", number % OBJECTS)
}

/// The server that has an object (FNV-1a).
fn home(path: &str, servers: usize) -> usize {
    let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize % servers
}

/// A client of several servers.
struct Hashing(Vec<S3>);

impl Client for Hashing {
    fn read(&mut self, path: &str) -> io::Result<usize> {
        let home = home(path, self.0.len());
        self.0[home].read(path)
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let home = home(path, self.0.len());
        self.0[home].write(path, bytes)
    }
}

/// Servers with a key for each.
struct Servers(Vec<(Gateway, AccessKey)>);

impl Servers {
    fn start(stage: &Stage, cloud: &Cloud, origin: &Origin, count: usize) -> Result<Self, Error> {
        let mut all = Vec::new();
        for (number, name) in NAMES.iter().take(count).enumerate() {
            let gateway = Gateway::start(stage, cloud, origin, MEMORY_BYTES, &pool(name))?;
            let access = gateway.tenant(stage, "large", "functions")?;
            let own = (0..OBJECTS).map(path).filter(|path| home(path, count) == number);
            gateway.fill(origin, &access, &own.collect::<Vec<_>>())?;
            all.push((gateway, access));
        }
        Ok(Self(all))
    }

    fn client(&self) -> io::Result<Hashing> {
        let connections = self.0.iter().map(|(gateway, access)| gateway.client(access));
        connections.collect::<io::Result<_>>().map(Hashing)
    }

    fn read(&self, clients: usize, (seconds, pace): (f64, Pace)) -> Result<Found, Error> {
        let clients: io::Result<Vec<Hashing>> = (0..clients).map(|_| self.client()).collect();
        // Each begins elsewhere, so that no two ask for the same object at a time.
        let read = |client: &mut Hashing, at: usize, number: u64| {
            let begin = at as u64 * OBJECTS / *CLIENTS.end() as u64;
            client.read(&path(begin + number)).map(Some)
        };
        let found = clients.and_then(|clients| repeat(clients, (Limits::seconds(seconds), pace), read));
        found.map_err(|error| Error::Unfit {
            server: format!("{} servers", self.0.len()),
            reason: error.to_string(),
        })
    }
}

fn gb_per_s(found: &Found) -> f64 {
    found.bytes as f64 / 1e9 / found.seconds
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let stage = context.stage.on_all_cores()?;
    let (seconds, step) = if context.quick { (1.0, 3) } else { (5.0, 1) };
    let (cloud, origin) = (Cloud::start(&stage)?, Origin::start().map_err(Error::System)?);
    (0..OBJECTS).for_each(|number| origin.put(&path(number), OBJECT_BYTES as usize));
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for count in SERVERS {
        let name = if count == 1 {
            "one server".to_owned()
        } else {
            format!("{count} servers")
        };
        context.tell(&name);
        let servers = Servers::start(&stage, &cloud, &origin, count)?;
        let mut add = |measure: (&str, &str), clients: usize, value| {
            let point = Point::single(clients.to_string(), value);
            add_point(&mut series, (&name, measure.0, measure.1), ("", "clients"), point);
        };
        let mut limit = 0.0_f64;
        for clients in CLIENTS.step_by(step) {
            let found = servers.read(clients, (seconds, Pace::Full))?;
            limit = limit.max(gb_per_s(&found));
            add(("as fast as they can", "GB/s"), clients, gb_per_s(&found));
            add(("as fast as they can, median", "ms"), clients, found.reads.at(0.5));
        }
        let each = limit / CLIENTS_AT_LIMIT;
        let period = Duration::from_secs_f64(OBJECT_BYTES as f64 / 1e9 / each);
        let mut least = f64::INFINITY;
        for clients in CLIENTS.step_by(step) {
            let found = servers.read(clients, (seconds, Pace::Every(period)))?;
            let asked = each * clients as f64;
            add(("at a steady rate", "GB/s"), clients, gb_per_s(&found));
            add(
                ("at a steady rate, over what was asked for", ""),
                clients,
                gb_per_s(&found) / asked,
            );
            add(("at a steady rate, median", "ms"), clients, found.reads.at(0.5));
            if asked <= limit * JUDGED_RATIO {
                least = least.min(gb_per_s(&found) / asked);
            }
        }
        let what = format!("{name}: least throughput over what clients ask for, up to three quarters of the limit");
        targets.push(Target::at_least(what, least, LINEAR_RATIO));
    }
    Ok(Outcome {
        scale: format!("{seconds} s of reads for each number of clients; {OBJECTS} objects of 20 MB"),
        targets,
        chart: chart(&series),
        series,
        others_cores: others.cores(),
    })
}

fn chart(series: &[Series]) -> Chart {
    let panel = |measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(measure, Marks::Lines, &own)
    };
    Chart {
        title: EXPERIMENT.title.into(),
        panels: vec![
            panel("as fast as they can"),
            panel("at a steady rate"),
            panel("as fast as they can, median"),
            panel("at a steady rate, median"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_one_home_each_and_servers_about_as_many() {
        let homes = |servers| -> Vec<usize> { (0..OBJECTS).map(|number| home(&path(number), servers)).collect() };
        for servers in SERVERS {
            let homes = homes(servers);
            for server in 0..servers {
                let own = homes.iter().filter(|home| **home == server).count();
                let mean = OBJECTS as usize / servers;
                assert!((mean / 2..=mean * 2).contains(&own), "{server} of {servers}: {own}");
            }
        }
    }
}
