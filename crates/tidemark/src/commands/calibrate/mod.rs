//! `tidemark calibrate`: measures loads on this machine and trains the model of CPU time on them.

mod server;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidemark_calibrate::{Design, Journal, Outcome, Point, evaluate, measure, seconds_of};
use tidemark_meter::model;
use tidemark_tools::curve::Scatter;
use tidemark_tools::progress::Lines;
use tidemark_types::utc;
use tidemark_types::{Clock as _, SystemClock};

use super::curve::draw_picture;
use crate::failure::Failure;
use crate::output::{note, print, table};

/// A model is called good from this part of the variance on.
const GOOD_R_SQUARED: f64 = 0.95;
/// Estimates that are timed together.
const TIMED_ESTIMATES: u32 = 100_000;
/// How far the picture's faint lines are from what was measured.
const BAND_RATIO: f64 = 0.2;

const NOTES: &str = "\
Each load's peak is found, and it is measured at four parts of that, against a server that is started for it. The machine should \
have nothing else to do. What was measured is kept beside the model (FILE.points), so that an interrupted calibration goes on where it was, \
and the same measurements give the same model.";

#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct Args {
    /// The file of the model
    #[arg(value_name = "FILE", default_value = "cpu-model.toml")]
    file: PathBuf,
    /// How long all measurements may take together
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// How many loads are measured; 30 of them judge the model
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(90..=2000))]
    loads: u32,
    /// How often each load is measured, at other times; the median of its CPU times counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    passes: u32,
    /// The seed of loads, split and training
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// This machine's name in the model; a vCPU is one of its cores [default: its processor]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Draw the residuals into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The same as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.5..=240.0).contains(minutes));
    minutes.ok_or_else(|| "allowed are 0.5 to 240".into())
}

pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let design = Design::new(args.loads, args.seed);
    let mut points = args.file.clone().into_os_string();
    points.push(".points");
    let mut journal = Journal::open(Path::new(&points), &design)?;
    measure_all(args, &design, &mut journal)?;

    let machine = args.machine.clone().unwrap_or_else(processor);
    let outcome = evaluate(journal.points(), &design, &machine, args.seed)?;
    let comment = format!(
        "A model of CPU time, for `tidemark serve --cpu-model`.\nWritten by `tidemark calibrate` on {}.",
        &utc::rfc3339(SystemClock.now())[..10]
    );
    let text = model::write(&outcome.model, &comment);
    // A model that a server would not read is not written.
    model::parse(&text).map_err(|error| Failure::failed(format!("{}: {error}", args.file.display())))?;
    std::fs::write(&args.file, text).map_err(|error| Failure::failed(format!("{}: {error}", args.file.display())))?;
    if args.svg.is_some() || args.png.is_some() {
        draw(&outcome, args)?;
    }
    if json {
        print(&serde_json::to_string(&outcome)?)?;
    } else {
        let ns = estimate_ns(&outcome.model, journal.points());
        let file = args.file.display();
        print(&format!(
            "{}\nan estimate takes {ns:.0} ns\nwritten to {file}",
            as_text(&outcome)
        ))?;
    }
    let score = outcome.models[0].score;
    if score.r_squared < GOOD_R_SQUARED {
        note(&format!(
            "the model explains less than {GOOD_R_SQUARED} of the variance: measure again while the machine has nothing else to do, or longer"
        ));
    }
    Ok(())
}

/// Measures the loads that are not in the journal, pass by pass.
fn measure_all(args: &Args, design: &Design, journal: &mut Journal) -> anyhow::Result<()> {
    let visits = (0..args.passes).flat_map(|pass| design.all().map(move |spec| (pass, *spec)));
    let all = args.passes as usize * design.all().count();
    let missing: Vec<_> = visits.filter(|(pass, spec)| !journal.has(spec.number, *pass)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let seconds = seconds_of(args.minutes, all);
    let mut server = server::Measured::start()?;
    let lines = Lines::new(&["calibrate".into()]);
    let began = Instant::now();
    for (number, (pass, spec)) in missing.iter().enumerate() {
        let done = all - missing.len() + number;
        let left = began.elapsed().div_f64(number.max(1) as f64) * (missing.len() - number) as u32;
        let message = if number == 0 {
            format!("measurement {} of {all}", done + 1)
        } else {
            let left = Duration::from_secs(left.as_secs());
            format!(
                "measurement {} of {all}, {} left",
                done + 1,
                tidemark_types::format_duration(left)
            )
        };
        lines.set(0, done as f64 / all as f64, message);
        server.clear(spec.protocol())?;
        let points = measure(spec, *pass, seconds, &mut server)?;
        journal.add(&points)?;
    }
    Ok(())
}

/// The processor's name, as far as the system tells it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
    // As a model file allows it.
    name.chars()
        .map(|letter| {
            if letter.is_ascii_graphic() && !"\"\\".contains(letter) {
                letter
            } else {
                ' '
            }
        })
        .take(100)
        .collect()
}

fn draw(outcome: &Outcome, args: &Args) -> anyhow::Result<()> {
    let about = format!(
        "{} loads that it was not trained on, of {}; R squared {:.3}; dashed: {:.0} % off",
        outcome.held_out,
        outcome.loads,
        outcome.models[0].score.r_squared,
        BAND_RATIO * 100.0
    );
    let chart = Scatter {
        title: "Cores: measured, and by the model",
        about: &about,
        axes: ("measured", "by the model"),
        pairs: &outcome.residuals,
        band_ratio: BAND_RATIO,
    };
    draw_picture(&chart.picture(), args.svg.as_deref(), args.png.as_deref())
}

/// How long an estimate takes here, in nanoseconds.
fn estimate_ns(model: &model::Model, points: &[Point]) -> f64 {
    let loads: Vec<model::Load> = points.iter().map(Point::load).collect();
    let began = Instant::now();
    let asked = loads.iter().cycle().take(TIMED_ESTIMATES as usize);
    let sum: f64 = asked.map(|load| model.ns_per_operation(load)).sum();
    std::hint::black_box(sum);
    began.elapsed().as_secs_f64() * 1e9 / f64::from(TIMED_ESTIMATES)
}

fn as_text(outcome: &Outcome) -> String {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let head = ["MODEL", "R SQUARED", "PER COMMAND", "MEAN ERROR", "WORST"]
        .map(String::from)
        .to_vec();
    let row = |row: &tidemark_calibrate::Row| {
        let score = &row.score;
        vec![
            row.model.to_owned(),
            format!("{:.3}", score.r_squared),
            format!("{:.3}", score.r_squared_per_operation),
            percent(score.mean_error),
            percent(score.worst_error),
        ]
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(outcome.models.iter().map(row)).collect();
    let network: Vec<String> = outcome.network.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{} loads, {} of them held out; perceptron {}\n\n{}\n",
        outcome.loads,
        outcome.held_out,
        network.join("-"),
        table(&rows)
    );
    text += "What inputs help: the mean error without each, less the mean error with it\n";
    let helps = outcome
        .helps
        .iter()
        .map(|help| vec![help.input.to_owned(), percent(help.error_without)]);
    text += &table(&helps.collect::<Vec<_>>());
    text += &format!(
        "\nWith the skew, too: R squared {:.3}, mean error {}\n\nHalf a range beyond what it was trained on, mean error\n",
        outcome.with_skew.r_squared,
        percent(outcome.with_skew.mean_error)
    );
    let beyond = outcome.beyond.iter();
    let beyond = beyond.map(|one| vec![one.characteristic.to_owned(), percent(one.mean_error)]);
    text + &table(&beyond.collect::<Vec<_>>())
}

/// A number of an answer of the API.
fn number(answer: &Value, pointer: &str) -> Option<u64> {
    answer.pointer(pointer).and_then(Value::as_u64)
}
