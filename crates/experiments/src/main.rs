//! `tidemark-experiments`: runs experiments and the benchmark on real servers, which it starts and ends itself.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use tidemark_experiments::Error;
use tidemark_experiments::experiment::performance::Performance;
use tidemark_experiments::experiment::{
    ALL, Children, Context, Cores, Experiment, Folders, Metered, Programs, Shape, Stage, Target, serve_floor,
    serve_switched, tables, write,
};
use tidemark_tools::Fault;
use tidemark_tools::client::Protocol;

const EXAMPLES: &str = "\
Examples:
  tidemark-experiments list
  tidemark-experiments run replay-hit-ratio
  tidemark-experiments run genie-fig12 --quick            to see that it works; prints the tables, writes nothing
  tidemark-experiments bench --tidemark target/release/tidemark

Run it in the repository's folder. It binds the servers to one core and the load to another; other work on the machine \
makes the figures worthless.";

/// Runs experiments and the benchmark against memcached and Redis
#[derive(Debug, Parser)]
#[command(name = "tidemark-experiments", version, before_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the experiments with their durations
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run one experiment; writes NAME.md and NAME.svg, and NAME.json beside the build
    Run {
        /// As `list` names it
        name: String,
        #[command(flatten)]
        options: Options,
    },
    /// Compare with memcached and Redis; writes the tables of performance.md, and performance.json beside the build
    Bench {
        /// Rounds in which all servers take turns [default: 10, quick 5]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
        rounds: Option<u16>,
        #[command(flatten)]
        options: Options,
    },
    /// Answer requests without storing anything: the benchmark starts it as its floor
    #[command(hide = true)]
    Floor {
        #[arg(long)]
        protocol: Protocol,
        #[arg(long)]
        value_bytes: usize,
    },
    /// Serve with elasticity that signals switch on and off: the experiment about its cost starts it
    #[command(hide = true)]
    Switched {
        #[arg(long)]
        tenants: usize,
        #[arg(long)]
        goal: f64,
        #[arg(long)]
        pool_bytes: u64,
        /// How many seconds are one to its control plane
        #[arg(long)]
        slowed: u32,
        /// How it is metered: no, shares, requests, rows, or by the model at an interval such as 1000us
        #[arg(long, default_value_t)]
        metered: Metered,
    },
}

#[derive(Debug, clap::Args)]
struct Options {
    /// The tidemark command
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEMARK_PROGRAM",
        default_value = "target/release/tidemark"
    )]
    tidemark: PathBuf,
    /// memcached
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    memcached: PathBuf,
    /// redis-server
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis: PathBuf,
    /// The seed of all randomness
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Fewer and shorter rounds of less: to see that it works. Prints the tables; writes only with --out
    #[arg(long)]
    quick: bool,
    /// The folder of all files [default: docs and docs/experiments, JSON beside the build]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Options {
    /// The folders to write to, if any.
    fn folders(&self, pages: &str) -> Option<Folders> {
        let of_repository = || (!self.quick).then(|| Folders::of_repository(Path::new("."), pages));
        self.out.as_deref().map(Folders::one).or_else(of_repository)
    }

    fn context(&self) -> anyhow::Result<Context> {
        let cores = Cores::choose()?;
        let stage = Stage {
            programs: Programs {
                tidemark: self.tidemark.clone(),
                memcached: self.memcached.clone(),
                redis: self.redis.clone(),
                experiments: std::env::current_exe()?,
            },
            children: Children::default(),
            cores,
        };
        cores.bind_load()?;
        stage.children.end_on_signals()?;
        let context = Context {
            stage,
            seed: self.seed,
            quick: self.quick,
            began: Instant::now(),
        };
        if cores.count == 1 {
            context.tell("there is one core only: servers and load take turns on it, and the figures say little");
        }
        Ok(context)
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the exit code says it.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            let fault = error.downcast_ref::<Error>().map(Error::fault);
            ExitCode::from(match fault {
                Some(Fault::Usage) => 2,
                Some(Fault::NotFound) => 3,
                Some(Fault::Denied) => 4,
                Some(Fault::Failed) | None => 1,
            })
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { json } => print(&list(*json)),
        Command::Run { name, options } => run_experiment(Experiment::named(name)?, options),
        Command::Bench { rounds, options } => bench(options, rounds.map(usize::from)),
        Command::Floor { protocol, value_bytes } => {
            let ready = |address| print(&format!("ready {address}")).map_err(io::Error::other);
            Ok(serve_floor(*protocol, *value_bytes, ready)?)
        }
        Command::Switched {
            tenants,
            goal,
            pool_bytes,
            slowed,
            metered,
        } => {
            let shape = Shape {
                tenants: *tenants,
                goal: *goal,
                pool_bytes: *pool_bytes,
                slowed: *slowed,
                metered: *metered,
            };
            Ok(serve_switched(shape, |line| print(line).map_err(io::Error::other))?)
        }
    }
}

fn list(json: bool) -> String {
    if json {
        let all = ALL.iter().map(|experiment| {
            serde_json::json!({"name": experiment.name, "title": experiment.title, "minutes": experiment.minutes})
        });
        let all: Vec<_> = all.collect();
        return serde_json::json!({ "experiments": all }).to_string();
    }
    let line = |experiment: &&Experiment| {
        format!(
            "{:<20} {:>3} min  {}",
            experiment.name, experiment.minutes, experiment.title
        )
    };
    ALL.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn run_experiment(experiment: &Experiment, options: &Options) -> anyhow::Result<()> {
    let context = options.context()?;
    let outcome = experiment.run(&context)?;
    let report = context.report(experiment.name, &outcome, Path::new("."));
    match options.folders("docs/experiments") {
        Some(folders) => {
            write(&folders, &report, &experiment.page(&report), &outcome.chart)?;
            context.tell(&format!("written to {}", folders.pages.join(experiment.name).display()));
        }
        None => print(&tables(&report.series))?,
    }
    print(&judgement(&report.targets))
}

fn bench(options: &Options, rounds: Option<usize>) -> anyhow::Result<()> {
    let context = options.context()?;
    let performance = Performance::measure(&context, rounds, Path::new("."))?;
    match options.folders("docs") {
        Some(folders) => {
            performance.write(&folders)?;
            context.tell(&format!(
                "written to {}",
                folders.pages.join("performance.md").display()
            ));
        }
        None => print(&performance.text())?,
    }
    print(&judgement(&performance.report.targets))
}

/// How many targets are met, and which are not.
fn judgement(targets: &[Target]) -> String {
    let met = targets.iter().filter(|target| target.met).count();
    let mut text = format!("{met} of {} targets met", targets.len());
    for target in targets.iter().filter(|target| !target.met) {
        text.push_str(&format!(
            "\nmissed: {}: {:.3}, {} {}",
            target.name,
            target.value,
            target.bound.words(),
            target.limit
        ));
    }
    text
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    Ok(stdout.flush()?)
}
