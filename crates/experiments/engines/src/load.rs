//! Loads: the keys that are asked for, and their order. They are written to files before anything is measured, so that
//! the measuring process neither generates keys nor reads compressed traces.
//!
//! Invariant: a load follows from its name, the seed and the scale, which makes everything smaller alike.

use std::collections::HashSet;
use std::env;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use tidemark_tools::load::{Distribution, KeyText, Keys, Order, Rng};
use tidemark_tools::trace::Trace;

use crate::engine::{KEY_BYTES, PAYLOAD_BYTES};

/// Keys of the generated load.
const ZIPF_KEYS: f64 = 4e6;
/// Its exponent.
const ZIPF_ALPHA: f64 = 0.99;
/// Operations that fill a cache: three times as many misses as 128 MiB hold items.
const ZIPF_FILL: f64 = 20e6;
/// Operations that are timed.
const ZIPF_TIMED: f64 = 10e6;
/// More requests than a trace has.
const TRACE_REQUESTS: f64 = 1e7;
/// Traces are repeated until so many operations are timed: some seconds in the slowest cache.
const TRACE_TIMED: f64 = 4e6;

/// A load by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Generated: Zipf's law.
    Zipf,
    /// An object-relational mapper.
    OrmBusy,
    /// Recommendations of products.
    ScarabRecs,
    /// Blocks read and written by virtual machines.
    CloudPhysics,
}

impl Name {
    /// All loads.
    pub(crate) const ALL: [Self; 4] = [Self::Zipf, Self::OrmBusy, Self::ScarabRecs, Self::CloudPhysics];

    /// The name in options and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::OrmBusy => "orm-busy",
            Self::ScarabRecs => "scarab-recs",
            Self::CloudPhysics => "cloudPhysicsIO",
        }
    }

    fn file(self) -> Option<&'static str> {
        match self {
            Self::Zipf => None,
            Self::OrmBusy => Some("orm-busy.trace.xz"),
            Self::ScarabRecs => Some("scarab-recs.trace.xz"),
            Self::CloudPhysics => Some("cloudPhysicsIO.oracleGeneral.bin"),
        }
    }

    /// The path of the load's trace, if it is one and is there.
    pub(crate) fn trace(self) -> Option<PathBuf> {
        let folder = env::var_os("TIDEMARK_TRACES").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces"),
            PathBuf::from,
        );
        Some(folder.join(self.file()?)).filter(|path| path.is_file())
    }

    /// Whether it can be had on this machine.
    pub(crate) fn is_there(self) -> bool {
        self == Self::Zipf || self.trace().is_some()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|load| load.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a load: allowed are {names}")
        })
    }
}

/// A load in files.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Which.
    pub(crate) name: Name,
    /// Its keys in the order of asking.
    pub(crate) keys: PathBuf,
    /// Each of its keys once.
    pub(crate) distinct: PathBuf,
    /// Number of those.
    pub(crate) distinct_count: u64,
    /// Number of keys that fill a cache.
    pub(crate) fill: usize,
    /// Operations to be timed after that.
    pub(crate) timed: usize,
}

impl Load {
    /// Bytes of keys and values of all objects.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.distinct_count * PAYLOAD_BYTES
    }
}

/// Writes a load into a folder; `scale` is the part of it that is wanted.
pub(crate) fn prepare(name: Name, seed: u64, scale: f64, folder: &Path) -> Result<Load> {
    let path = |kind: &str| folder.join(format!("{name}.{kind}"));
    let mut files = Files {
        keys: create(&path("keys"))?,
        distinct: create(&path("distinct"))?,
        // Any 64-bit number has a hexadecimal text of 16 bytes.
        text: KeyText::new(KEY_BYTES, u64::MAX)?,
        distinct_count: 0,
    };
    let (fill, timed) = match name.trace() {
        Some(trace) => {
            let requests = (TRACE_REQUESTS * scale) as usize;
            (
                write_trace(&trace, requests, &mut files)?,
                (TRACE_TIMED * scale) as usize,
            )
        }
        None => {
            let (fill, timed) = ((ZIPF_FILL * scale) as usize, (ZIPF_TIMED * scale) as usize);
            write_zipf(seed, (ZIPF_KEYS * scale) as u64, fill + timed, &mut files)?;
            (fill, timed)
        }
    };
    files
        .keys
        .flush()
        .and_then(|()| files.distinct.flush())
        .context("the keys can not be written")?;
    Ok(Load {
        name,
        keys: path("keys"),
        distinct: path("distinct"),
        distinct_count: files.distinct_count,
        fill,
        timed,
    })
}

struct Files {
    keys: BufWriter<File>,
    distinct: BufWriter<File>,
    text: KeyText,
    distinct_count: u64,
}

impl Files {
    fn ask(&mut self, key: u64) -> Result<()> {
        self.keys
            .write_all(self.text.of(key))
            .context("the keys can not be written")
    }

    fn note(&mut self, key: u64) -> Result<()> {
        self.distinct_count += 1;
        self.distinct
            .write_all(self.text.of(key))
            .context("the keys can not be written")
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("{} can not be written", path.display()))?;
    Ok(BufWriter::new(file))
}

fn write_zipf(seed: u64, keys: u64, count: usize, files: &mut Files) -> Result<()> {
    let distinct = 0..keys;
    let keys = Keys::new(keys, Distribution::Zipf { alpha: ZIPF_ALPHA }, Order::Scrambled)?;
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        files.ask(keys.draw(&mut rng))?;
    }
    distinct.into_iter().try_for_each(|key| files.note(key))
}

/// Writes the first requests of a trace; returns how many.
fn write_trace(path: &Path, requests: usize, files: &mut Files) -> Result<usize> {
    let (mut seen, mut count) = (HashSet::new(), 0);
    for request in Trace::open(path, None)?.take(requests) {
        let key = request?.key;
        files.ask(key)?;
        if seen.insert(key) {
            files.note(key)?;
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_load_follows_from_the_seed() {
        let written = |seed| {
            let folder = tempfile::tempdir().unwrap();
            let load = prepare(Name::Zipf, seed, 1e-4, folder.path()).unwrap();
            assert_eq!((load.fill, load.timed, load.distinct_count), (2000, 1000, 400));
            assert_eq!(fs::metadata(&load.distinct).unwrap().len(), 400 * KEY_BYTES as u64);
            fs::read(&load.keys).unwrap()
        };
        assert_eq!(written(1).len(), 3000 * KEY_BYTES);
        assert_eq!(written(1), written(1));
        assert_ne!(written(1), written(2));
    }

    #[test]
    fn names_are_read_back() {
        for name in Name::ALL {
            assert_eq!(name.name().parse(), Ok(name));
        }
        assert!("lru".parse::<Name>().unwrap_err().contains("scarab-recs"));
    }
}
