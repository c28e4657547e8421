//! Experiments: their measurements, and how these are written down.
//!
//! An experiment starts the servers that it needs ([`server`]), or uses the store in this process if no server is
//! measured ([`look_aside`]). It returns an [`Outcome`]; this module adds the circumstances and writes `NAME.json`,
//! `NAME.md` and `NAME.svg`. The comparison with memcached and Redis is one too, with tables of its own
//! ([`performance`]).
//!
//! Invariants: nothing that was started stays when an experiment ends, however it ends. Facts that identify a machine
//! are not written down. Compared figures come from the same run.

mod cachelet_regret;
mod cachelib_full_size;
mod cachelib_goals;
mod cachelib_study;
mod chart;
mod cores;
mod elcached_fig2;
mod elcached_fig3;
mod elcached_fig4;
mod extstore;
mod flash_device;
mod floor;
mod genie_fig10;
mod genie_fig11;
mod genie_fig12;
mod genie_fig14;
mod genie_fig15;
mod genie_fig17;
mod genie_fig1b;
mod genie_fig20;
mod genie_fig7;
mod give_back;
mod infinicache_fig11;
mod infinicache_fig12;
mod infinicache_fig13b;
mod infinicache_fig16;
mod infinicache_redis;
mod infinicache_trace;
mod info;
mod look_aside;
mod machine;
mod markdown;
mod measure;
mod metered;
mod neighbour;
mod objects;
mod others;
mod overhead;
pub mod performance;
mod process;
pub mod replay_hit_ratio;
mod report;
mod server;
mod statistics;
mod syscalls;
mod unicache_agents;
mod unicache_fig3;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Error;
use others::DISTURBED_CORES;

pub use chart::{Chart, Marks, Panel};
pub use cores::Cores;
pub use floor::serve as serve_floor;
pub use machine::{Machine, commit};
pub use markdown::{figure, tables};
pub use overhead::{Metered, Shape, serve_switched};
pub use process::Children;
pub use report::{Bound, Point, Report, Series, Target};
pub use server::{Programs, Stage};
pub use statistics::Spread;

/// One experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name in `make experiment NAME=...`.
    pub name: &'static str,
    /// Its subject, in a line.
    pub title: &'static str,
    /// About how long it takes on two cores.
    pub minutes: u32,
    /// The measurement and its method, in Markdown.
    pub about: &'static str,
    run: fn(&Context) -> Result<Outcome, Error>,
}

/// Every experiment.
pub const ALL: [&Experiment; 31] = [
    &cachelet_regret::EXPERIMENT,
    &cachelib_study::EXPERIMENT,
    &cachelib_full_size::STATIC,
    &cachelib_full_size::DYNAMIC,
    &elcached_fig2::EXPERIMENT,
    &elcached_fig3::EXPERIMENT,
    &elcached_fig4::EXPERIMENT,
    &extstore::EXPERIMENT,
    &flash_device::EXPERIMENT,
    &genie_fig1b::EXPERIMENT,
    &genie_fig7::EXPERIMENT,
    &genie_fig10::EXPERIMENT,
    &genie_fig11::EXPERIMENT,
    &genie_fig12::EXPERIMENT,
    &genie_fig14::EXPERIMENT,
    &genie_fig15::EXPERIMENT,
    &genie_fig17::EXPERIMENT,
    &genie_fig20::EXPERIMENT,
    &give_back::EXPERIMENT,
    &infinicache_fig11::EXPERIMENT,
    &infinicache_fig12::EXPERIMENT,
    &infinicache_fig13b::EXPERIMENT,
    &infinicache_fig16::EXPERIMENT,
    &infinicache_redis::EXPERIMENT,
    &infinicache_trace::EXPERIMENT,
    &neighbour::EXPERIMENT,
    &overhead::EXPERIMENT,
    &overhead::METERED,
    &replay_hit_ratio::EXPERIMENT,
    &unicache_agents::EXPERIMENT,
    &unicache_fig3::EXPERIMENT,
];

/// The input of an experiment.
#[derive(Debug)]
pub struct Context {
    /// How servers are started.
    pub stage: Stage,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether only to see that it works: fewer and shorter rounds, smaller data.
    pub quick: bool,
    /// When it began.
    pub began: Instant,
}

impl Context {
    /// Tells the present step on standard error.
    pub fn tell(&self, what: &str) {
        let seconds = self.began.elapsed().as_secs();
        // Nothing depends on it: where standard error is closed, it is not said.
        let _ = writeln!(std::io::stderr(), "{:>3}:{:02}  {what}", seconds / 60, seconds % 60);
    }

    /// The report of `outcome` of `name` under the present circumstances; the sources are in `root`.
    pub fn report(&self, name: &str, outcome: &Outcome, root: &Path) -> Report {
        let versions = self.stage.programs.versions().collect();
        let machine = Machine::this(self.stage.cores.count, versions, outcome.others_cores);
        if machine.others_cores > DISTURBED_CORES {
            let cores = machine.others_cores;
            self.tell(&format!(
                "other processes had {cores:.2} of a core: the figures say little"
            ));
        }
        Report {
            name: name.to_owned(),
            commit: commit(root),
            seed: self.seed,
            scale: outcome.scale.clone(),
            machine,
            targets: outcome.targets.clone(),
            series: outcome.series.clone(),
        }
    }
}

/// The findings of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How much was done, in words.
    pub scale: String,
    /// The targets.
    pub targets: Vec<Target>,
    /// The measured series.
    pub series: Vec<Series>,
    /// The picture.
    pub chart: Chart,
    /// How many cores other processes had meanwhile.
    pub others_cores: f64,
}

impl Experiment {
    /// The experiment of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<&'static Self, Error> {
        let known = || ALL.map(|experiment| experiment.name).join(", ");
        let found = ALL.into_iter().find(|experiment| experiment.name == name);
        found.ok_or_else(|| Error::Usage(format!("there is no experiment `{name}`: allowed are {}", known())))
    }

    /// Runs it.
    ///
    /// # Errors
    /// A server does not start, or not behave.
    pub fn run(&self, context: &Context) -> Result<Outcome, Error> {
        (self.run)(context)
    }

    /// The page about a run of it.
    pub fn page(&self, report: &Report) -> String {
        markdown::page(self, report)
    }
}

/// The folders of results.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Pages and pictures, which people read.
    pub pages: PathBuf,
    /// JSON, which programs read. It is no part of the repository.
    pub json: PathBuf,
}

impl Folders {
    /// Both in one folder.
    pub fn one(folder: &Path) -> Self {
        Self {
            pages: folder.to_owned(),
            json: folder.to_owned(),
        }
    }

    /// Pages in a folder of the repository, JSON beside the build.
    pub fn of_repository(root: &Path, pages: &str) -> Self {
        let build = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Self {
            pages: root.join(pages),
            json: build.join("experiments"),
        }
    }
}

/// Writes `NAME.md`, `NAME.svg` and `NAME.json` into their folders.
///
/// # Errors
/// A file cannot be written.
pub fn write(folders: &Folders, report: &Report, page: &str, chart: &Chart) -> Result<(), Error> {
    write_json(&folders.json, report)?;
    write_file(&folders.pages.join(format!("{}.md", report.name)), page)?;
    write_file(&folders.pages.join(format!("{}.svg", report.name)), &chart.svg())
}

/// Writes a report as `NAME.json` into a folder.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(folder: &Path, report: &Report) -> Result<(), Error> {
    // A report has no key that is not a text, so that this cannot fail; if it did, the page would say it.
    let json = serde_json::to_string_pretty(report).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    write_file(&folder.join(format!("{}.json", report.name)), &format!("{json}\n"))
}

fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
