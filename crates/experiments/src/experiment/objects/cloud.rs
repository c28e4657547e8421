//! Servers with an S3 address whose functions are processes of this machine.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidemark_functions::emulator::{Config, Emulator};
use tidemark_tools::process_cpu::process_cpu_ns;
use tokio::runtime::{Builder, Runtime};

use super::super::server::{Server, Stage, tidemark_json};
use super::origin::Origin;
use super::s3::{AccessKey, S3};
use crate::Error;

/// The bucket of all objects.
pub(in crate::experiment) const BUCKET: &str = "objects";
/// Whatever is waited for takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it is waited until something is looked at again.
const LOOK: Duration = Duration::from_millis(50);

/// The product's emulator of Lambda, with functions that are processes. All of it ends when this is dropped.
#[derive(Debug)]
pub(in crate::experiment) struct Cloud {
    emulator: Emulator,
    _runtime: Runtime,
}

impl Cloud {
    pub(in crate::experiment) fn start(stage: &Stage) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(Error::System)?;
        let within = runtime.enter();
        let emulator = Emulator::start(Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            program: stage.programs.tidemark.clone(),
            arguments: vec!["functions".into(), "program".into()],
            unit_ms: 1,
            freezes: true,
        });
        drop(within);
        Ok(Self {
            emulator: emulator.map_err(Error::System)?,
            _runtime: runtime,
        })
    }

    fn names(pool: &Pool<'_>) -> Vec<String> {
        (0..pool.count)
            .map(|number| format!("{}-{number}", pool.name))
            .collect()
    }
}

/// The pool of a server.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) struct Pool<'a> {
    /// No other one has it meanwhile.
    pub(in crate::experiment) name: &'a str,
    /// Functions, all of them in use.
    pub(in crate::experiment) count: usize,
    pub(in crate::experiment) memory_mib: u64,
    pub(in crate::experiment) code: &'a str,
    pub(in crate::experiment) reads: &'a str,
    /// As long as this, functions stay awake for what may come next.
    pub(in crate::experiment) billing_unit: &'a str,
    pub(in crate::experiment) encryption: &'a str,
}

impl Pool<'_> {
    /// The file that describes it. Nothing is done beside what is asked for.
    fn file(&self, endpoint: SocketAddr) -> String {
        let mut text = format!(
            "endpoint = \"http://{endpoint}\"\ncount = {}\nleast_in_use = {}\nmemory = \"{}MiB\"\nleast_object = \"1MiB\"\n",
            self.count, self.count, self.memory_mib
        );
        for (key, value) in [
            ("name", self.name),
            ("codes", self.code),
            ("reads", self.reads),
            ("billing_unit", self.billing_unit),
            ("encryption", self.encryption),
            ("warm_every", "never"),
            ("backup_every", "never"),
            ("refill", "on-read"),
        ] {
            // Writing into a text does not fail.
            let _ = writeln!(text, "{key} = \"{value}\"");
        }
        text
    }
}

/// A server, and its pool in the cloud. It ends, and its functions are taken back, when this is dropped.
#[derive(Debug)]
pub(in crate::experiment) struct Gateway {
    server: Server,
    s3: SocketAddr,
    emulator: Emulator,
    names: Vec<String>,
    _files: TempDir,
}

impl Gateway {
    /// Starts a server in front of an origin whose objects nobody else writes.
    pub(in crate::experiment) fn start(
        stage: &Stage,
        cloud: &Cloud,
        origin: &Origin,
        memory_bytes: u64,
        pool: &Pool<'_>,
    ) -> Result<Self, Error> {
        let names = Cloud::names(pool);
        for name in &names {
            cloud.emulator.create(name, pool.memory_mib);
        }
        let files = TempDir::with_prefix("tidemark-experiments-").map_err(Error::System)?;
        let file = files.path().join("functions.toml");
        std::fs::write(&file, pool.file(cloud.emulator.address())).map_err(|source| Error::File {
            path: file.clone(),
            source,
        })?;
        let bucket = format!("s3://{BUCKET}?endpoint=http://{}&freshness=forever", origin.address());
        let file = file.display().to_string();
        let options = ["--s3", "127.0.0.1:0", "--origin", &bucket, "--functions", &file];
        let server = Server::start_tidemark(stage, memory_bytes, &options)?;
        Ok(Self {
            s3: server.s3_address()?,
            server,
            emulator: cloud.emulator.clone(),
            names,
            _files: files,
        })
    }

    pub(in crate::experiment) fn server(&self) -> &Server {
        &self.server
    }

    /// Makes a tenant whose objects are kept in one place, and waits until its key opens the address, which reads the list of keys once a
    /// second.
    pub(in crate::experiment) fn tenant(&self, stage: &Stage, name: &str, place: &str) -> Result<AccessKey, Error> {
        tidemark_json(stage, &self.server, &["tenant", "create", name, "--json"])?;
        let made = tidemark_json(
            stage,
            &self.server,
            &["tenant", "s3-key", name, "--place", place, "--json"],
        )?;
        let text = |field: &str| made[field].as_str().unwrap_or_default().to_owned();
        let key = AccessKey {
            id: text("access_key"),
            secret: text("secret_key"),
        };
        let path = format!("/{BUCKET}/none");
        self.wait("the access key", || {
            let answer = self.client(&key).and_then(|mut s3| s3.get(&path));
            Ok(answer.is_ok_and(|answer| answer.status == 404))
        })?;
        Ok(key)
    }

    /// A connection of a tenant's.
    pub(in crate::experiment) fn client(&self, key: &AccessKey) -> io::Result<S3> {
        S3::connect(IpAddr::V4(Ipv4Addr::LOCALHOST), self.s3, key)
    }

    /// Reads objects of an origin until they are all in the server's places, so that the origin is not asked for them any more.
    pub(in crate::experiment) fn fill(&self, origin: &Origin, key: &AccessKey, paths: &[String]) -> Result<(), Error> {
        let mut s3 = self.client(key).map_err(Error::System)?;
        for path in paths {
            self.wait("an object to be kept", || {
                let before = origin.reads();
                let answer = s3.get(path).map_err(|error| self.unfit(format!("{path}: {error}")))?;
                if answer.status == 200 {
                    Ok(origin.reads() == before)
                } else {
                    Err(self.unfit(format!("{path}: {}", answer.status)))
                }
            })?;
        }
        Ok(())
    }

    /// The CPU time of the server so far, in seconds.
    pub(in crate::experiment) fn cpu_s(&self) -> f64 {
        process_cpu_ns(self.server.process.id()).map_or(f64::NAN, |ns| ns as f64 / 1e9)
    }

    /// The most memory that the server ever had, in MiB.
    pub(in crate::experiment) fn peak_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.process.id()));
        let peak = status.ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix(" kB")?.parse::<f64>().ok()
        });
        peak.map_or(f64::NAN, |kib| kib / 1024.0)
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        while !is_so()? {
            if Instant::now() > until {
                return Err(self.unfit(format!("waited for {what} in vain")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn unfit(&self, reason: String) -> Error {
        Error::Unfit {
            server: format!(
                "tidemark with {}",
                self.names.first().map_or("no function", String::as_str)
            ),
            reason,
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for name in &self.names {
            self.emulator.reclaim(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_described_as_its_file_is_read() {
        let pool = Pool {
            name: "p",
            count: 2,
            memory_mib: 128,
            code: "1+1",
            reads: "first-d",
            billing_unit: "1s",
            encryption: "none",
        };
        assert_eq!(Cloud::names(&pool), ["p-0", "p-1"]);
        let text = pool.file("127.0.0.1:9".parse().unwrap());
        assert!(
            text.starts_with("endpoint = \"http://127.0.0.1:9\"\ncount = 2\n") && text.contains("codes = \"1+1\"\n"),
            "{text}"
        );
    }
}
