//! `tidemark demo functions`.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::{Value, json};
use tidemark_functions::emulator::{Config, Emulator};
use tidemark_types::Size;

use super::client::{Got, S3Client};
use super::origin::{Origin, Slowness};
use super::server::{Folder, Server};
use crate::failure::Failure;
use crate::output::{note, print};

/// The bucket.
const BUCKET: &str = "demo";
/// Memory of a function: AWS's least, so that the machine has room for many.
const MEMORY_MIB: u64 = 128;
/// A key that the server does not know by then is not coming.
const KEY_PATIENCE: Duration = Duration::from_secs(5);
/// An object's bytes repeat after this.
const PATTERN_BYTES: usize = 1 << 20;
/// Functions' room that the objects may take, so that nothing is evicted for lack of it.
const ROOM_PERCENT: u64 = 60;

#[derive(Debug, clap::Args)]
pub(super) struct FunctionsArgs {
    /// Functions in the pool
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(12..=64))]
    functions: u32,
    /// Objects that are uploaded
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    objects: u32,
    /// Bytes of each
    #[arg(long, value_name = "SIZE", default_value = "20MiB")]
    object_size: Size,
    /// How often all objects are read
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Functions that are taken away before each round but the first two
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=64))]
    take: u32,
}

pub(super) fn run(args: &FunctionsArgs, json: bool) -> anyhow::Result<()> {
    let bytes = args.object_size.0 * u64::from(args.objects);
    let room = u64::from(args.functions) * ((MEMORY_MIB - 64) << 20) * ROOM_PERCENT / 100;
    if args.object_size.0 == 0 || bytes > room {
        let most = Size(room / u64::from(args.objects));
        return Err(Failure::usage(format!(
            "--object-size: {} functions have room for objects of {most}",
            args.functions
        ))
        .into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(show(args, json));
    runtime.shutdown_background();
    result
}

/// The result of a round of reads.
struct Round {
    number: u32,
    taken: usize,
    places: Vec<String>,
    took_ms: Vec<f64>,
    cost: f64,
    report: Value,
}

async fn show(args: &FunctionsArgs, json: bool) -> anyhow::Result<()> {
    let slowness = Slowness {
        delay: Duration::from_millis(30),
        bytes_per_second: 50 << 20,
    };
    let origin = Origin::start(slowness).await?;
    let emulator = Emulator::start(Config {
        listen: ([127, 0, 0, 1], 0).into(),
        program: std::env::current_exe()?,
        arguments: vec!["functions".into(), "program".into()],
        unit_ms: 1,
        freezes: true,
    })?;
    let names: Vec<String> = (0..args.functions).map(|number| format!("demo-{number}")).collect();
    for name in &names {
        emulator.create(name, MEMORY_MIB);
    }
    let folder = Folder::new()?;
    let file = folder.path().join("functions.toml");
    std::fs::write(&file, pool(args, &emulator))?;
    let origin_option = format!("s3://{BUCKET}?endpoint=http://{origin}");
    let options = ["--memory", "64MiB", "--s3", "127.0.0.1:0", "--origin", &origin_option];
    let options = options.map(OsStr::new);
    let server = Server::start(
        folder.path(),
        &[&options[..], &[OsStr::new("--functions"), file.as_os_str()]].concat(),
    )?;
    let client = S3Client {
        address: server.address("s3")?,
        credentials: server.tenant("demo")?,
    };
    note(&format!(
        "origin {origin} (30 ms, 50 MiB/s a connection), functions' API {}, S3 address {}",
        emulator.address(),
        client.address
    ));
    wait_for_key(&client).await?;
    for number in 0..args.objects {
        client
            .put(&path(number), object(number, args.object_size.0 as usize))
            .await?;
    }
    note(&format!(
        "{} objects of {} uploaded; {} functions; 10+2",
        args.objects, args.object_size, args.functions
    ));
    let mut rounds = Vec::new();
    for number in 0..args.rounds {
        let taken = if number < 2 {
            0
        } else {
            take(&emulator, &names, number, args.take)
        };
        let round = read_all(args, &client, &server, &emulator, (number, taken)).await?;
        if !json {
            print(&line(&round, number == 0))?;
        }
        rounds.push(round);
    }
    if json {
        let all: Vec<Value> = rounds.iter().map(as_json).collect();
        print(&json!({"rounds": all}).to_string())?;
    }
    Ok(())
}

/// The server reads the list of keys once a second: waits until it knows the new one.
async fn wait_for_key(client: &S3Client) -> anyhow::Result<()> {
    let until = Instant::now() + KEY_PATIENCE;
    loop {
        match client.put(&path(0), Bytes::from_static(b"first")).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The file that describes the pool.
fn pool(args: &FunctionsArgs, emulator: &Emulator) -> String {
    format!(
        "endpoint = \"http://{}\"\nname = \"demo\"\ncount = {}\nleast_in_use = {}\nmemory = \"{MEMORY_MIB}MiB\"\n\
         least_object = \"1MiB\"\ncodes = \"10+2\"\nwarm_every = \"10s\"\n",
        emulator.address(),
        args.functions,
        args.functions
    )
}

/// Takes functions away, others each round.
fn take(emulator: &Emulator, names: &[String], round: u32, count: u32) -> usize {
    let from = round as usize * 5;
    let chosen = (0..count as usize).map(|step| &names[(from + step) % names.len()]);
    chosen.map(|name| emulator.reclaim(name)).sum()
}

fn path(number: u32) -> String {
    format!("/{BUCKET}/object-{number}")
}

/// An object's bytes: others for each.
fn object(number: u32, bytes: usize) -> Bytes {
    let mut state = u64::from(number) + 1;
    let pattern: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(PATTERN_BYTES)
    .collect();
    let mut all = Vec::with_capacity(bytes + PATTERN_BYTES);
    while all.len() < bytes {
        all.extend_from_slice(&pattern);
    }
    all.truncate(bytes);
    all.into()
}

async fn read_all(
    args: &FunctionsArgs,
    client: &S3Client,
    server: &Server,
    emulator: &Emulator,
    (number, taken): (u32, usize),
) -> anyhow::Result<Round> {
    let (mut places, mut took_ms) = (Vec::new(), Vec::new());
    for object_number in 0..args.objects {
        let Got { place, bytes, took } = client.get(&path(object_number)).await?;
        if bytes != object(object_number, args.object_size.0 as usize) {
            return Err(Failure::failed(format!("object {object_number} came back with other bytes")).into());
        }
        places.push(place);
        took_ms.push(took.as_secs_f64() * 1000.0);
    }
    took_ms.sort_by(f64::total_cmp);
    // The last stripes are stored while their readers have gone on.
    let until = Instant::now() + Duration::from_secs(5);
    let mut report = server.functions()?;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let later = server.functions()?;
        let is_still = later["totals"]["written_stripes"] == report["totals"]["written_stripes"]
            && later["totals"]["repaired_chunks"] == report["totals"]["repaired_chunks"];
        report = later;
        if is_still || Instant::now() > until {
            break;
        }
    }
    let bill = emulator.bill();
    let prices = tidemark_functions::cost::Prices::TODAY;
    let cost = bill.invocations as f64 * prices.invocation + bill.gb_seconds * prices.gb_second;
    Ok(Round {
        number,
        taken,
        places,
        took_ms,
        cost,
        report,
    })
}

fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or_default()
}

fn line(round: &Round, is_first: bool) -> String {
    let count = |place: &str| round.places.iter().filter(|found| *found == place).count();
    let (totals, now) = (&round.report["totals"], &round.report["now"]);
    let whole = |value: &Value| value.as_u64().unwrap_or_default();
    let cells = [
        round.number.to_string(),
        round.taken.to_string(),
        count("functions").to_string(),
        (round.places.len() - count("functions")).to_string(),
        format!("{:.0} ms", at(&round.took_ms, 0.5)),
        format!("{:.0} ms", at(&round.took_ms, 1.0)),
        whole(&totals["decoded"]).to_string(),
        whole(&totals["repaired_chunks"]).to_string(),
        whole(&totals["resets"]).to_string(),
        format!(
            "{:.2} %",
            100.0 * now["availability_ratio"].as_f64().unwrap_or_default()
        ),
        format!("${:.6}", round.cost),
    ];
    let heads = [
        "ROUND",
        "TAKEN",
        "FUNCTIONS",
        "ORIGIN",
        "P50",
        "MAX",
        "COMPUTED",
        "PUT BACK",
        "RESETS",
        "AVAILABILITY",
        "COST SO FAR",
    ];
    let join = |cells: &[String]| {
        let padded = cells
            .iter()
            .zip(heads)
            .map(|(cell, head)| format!("{cell:>width$}", width = head.len().max(7)));
        padded.collect::<Vec<_>>().join("  ")
    };
    let row = join(&cells);
    if is_first {
        format!("{}\n{row}", join(&heads.map(str::to_owned)))
    } else {
        row
    }
}

fn as_json(round: &Round) -> Value {
    json!({
        "round": round.number,
        "taken": round.taken,
        "places": round.places,
        "took_ms": round.took_ms,
        "dollars": round.cost,
        "functions": round.report,
    })
}
