//! The server that is measured: this program, in a folder that is removed at the end.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidemark_calibrate::{Error, Reading, Subject};
use tidemark_meter::model::Work;
use tidemark_tools::client::Protocol;
use tidemark_types::LoadShape;

use super::number;
use crate::client::Client;
use crate::commands::demo::server::{Folder, Server};

/// The tenant that connections of this machine are without a login.
const TENANT: &str = "/api/v1/tenants/default";
const SERVER: &str = "/api/v1/server";
/// Between two looks whether the server has had a round.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The memory of the server: more than a load stores.
const MEMORY: &str = "512MiB";
/// All of it at once, so that no grant moves while a load is measured.
const FIRST_GRANT: &str = "384MiB";
/// One thread, so that the load has a core of its own on a machine with two.
const WORKERS: &str = "1";
/// How long the server may take to forget everything, or to have a round.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server with one tenant.
pub(super) struct Measured {
    client: Client,
    memcached: SocketAddr,
    redis: SocketAddr,
    /// Ends it, before its folder goes.
    _server: Server,
    _folder: Folder,
}

impl Measured {
    /// Starts it.
    pub(super) fn start() -> anyhow::Result<Self> {
        let folder = Folder::new()?;
        let options = [
            "--memory",
            MEMORY,
            "--first-grant",
            FIRST_GRANT,
            "--workers",
            WORKERS,
            "--memcached",
            "127.0.0.1:0",
            "--redis",
            "127.0.0.1:0",
            "--cpu-model",
            "off",
        ];
        let server = Server::start(folder.path(), &options.map(OsStr::new))?;
        Ok(Self {
            client: Client::of(folder.path()),
            memcached: server.address("memcached")?,
            redis: server.address("redis")?,
            _server: server,
            _folder: folder,
        })
    }

    /// Has it forget what the load before stored.
    pub(super) fn clear(&self, protocol: Protocol) -> anyhow::Result<()> {
        let (command, reply): (&[u8], &[u8]) = match protocol {
            Protocol::Memcached => (b"flush_all\r\n", b"OK\r\n"),
            Protocol::Redis => (b"FLUSHALL\r\n", b"+OK\r\n"),
        };
        let mut socket = TcpStream::connect(self.address(protocol))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(command)?;
        let mut answer = vec![0; reply.len()];
        socket.read_exact(&mut answer)?;
        anyhow::ensure!(
            answer == reply,
            "the server answered {:?}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }
}

impl Subject for Measured {
    fn address(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::Memcached => self.memcached,
            Protocol::Redis => self.redis,
        }
    }

    fn reading(&mut self) -> Result<Reading, Error> {
        let get = |path: &str| {
            let answer = self.client.get(path);
            answer.map_err(|error| Error::Subject(format!("{error:#}")))
        };
        let rounds = || Ok::<_, Error>(get(SERVER)?["rounds_total"].as_u64());
        // The shown figures may be of a round before the load's end. Asking has one made when the last is a tenth of a
        // second old.
        let (before, until) = (rounds()?, Instant::now() + PATIENCE);
        while rounds()? == before {
            if Instant::now() > until {
                return Err(Error::Subject("it has no rounds".into()));
            }
            std::thread::sleep(LOOK_EVERY);
            get(TENANT)?;
        }
        reading(&get(TENANT)?).ok_or_else(|| Error::Subject("it does not say what its tenant did".into()))
    }
}

fn reading(answer: &Value) -> Option<Reading> {
    let counted = answer.get("operations_total")?.as_array()?;
    let operations = |protocol: Option<&str>| -> u64 {
        let of = counted
            .iter()
            .filter(|one| protocol.is_none_or(|name| one["protocol"] == name));
        of.filter_map(|one| one["count"].as_u64()).sum()
    };
    let cpu_seconds = answer.get("cpu_seconds_total")?.as_f64()?;
    Some(Reading {
        work: Work {
            operations: operations(None),
            resp_operations: operations(Some("redis")),
            gets: number(answer, "/gets_total")?,
            hits: number(answer, "/hits_total")?,
            sets: number(answer, "/sets_total")?,
            shape: LoadShape {
                visits: number(answer, "/shape_total/visits")?,
                arrivals: number(answer, "/shape_total/arrivals")?,
                written_key_bytes: number(answer, "/shape_total/written_key_bytes")?,
                written_value_bytes: number(answer, "/shape_total/written_value_bytes")?,
            },
        },
        cpu_ns: (cpu_seconds * 1e9) as u64,
        items: number(answer, "/items")?,
    })
}
