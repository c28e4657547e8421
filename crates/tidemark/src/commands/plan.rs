//! `tidemark plan`: memory and flash for the tenants of some traces.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidemark_curve::Sampling;
use tidemark_tools::curve::DEFAULT_SAMPLES;
use tidemark_tools::progress::Lines;
use tidemark_tools::provision::{
    self, Chart, Goal, INDEX_BYTES_PER_OBJECT, Latencies, Options, PRICED_BYTES, Prices, Report, Source, Split,
    TenantReport,
};
use tidemark_tools::trace::Format;
use tidemark_types::{Size, parse_duration};

use super::bench::failure;
use super::curve::draw_picture;
use crate::failure::Failure;
use crate::output::{bytes_text, note, print};

const NOTES: &str = "\
More examples:
  tidemark plan --trace A=a.lis --trace B=b.lis --latency 700us --latency B=2ms    a goal of its own for one tenant
  tidemark plan --trace a.lis --latency 1ms --latencies memory=1us,flash=100us,origin=20ms

Each trace is a tenant. With --latency each gets the least cost at which its mean latency is as asked for; with --spending all \
share the money so that the mean latency over all requests is least. Beside the plan stands the proportional rule, four bytes \
of flash for each byte of memory, and the frontier: the least cost of each mean latency, by both.

  latency = memory + flash M(x) + origin M(x + y)          M: the trace's miss ratio, x: memory, y: flash, in bytes
  cost    = dram x + (flash + dram index / object) y       index: memory per object on flash, object: its mean size

Prices are of a GiB; money is in their unit. Profiles:
  hardware-2026        dram 14.82, flash 0.392: dollars to buy, first quarter of 2026 (13.80 and 0.365 per GB)
  elasticache-tiered   dram 0.01562, flash 0.00372: dollars an hour, the cloud's nodes with data tiering

A latency that no sizes have is told with what is missing; the exit code is then 4.
Trace formats are those of `tidemark curve`.";

#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// A tenant's trace; its name is the file's if none is given
    #[arg(long, required = true, value_name = "[NAME=]FILE")]
    trace: Vec<String>,
    /// The mean latency that each tenant is to have at most, or that of one tenant
    #[arg(
        long,
        required_unless_present = "spending",
        conflicts_with = "spending",
        value_name = "[NAME=]T"
    )]
    latency: Vec<String>,
    /// The amount that may be spent on all tenants, in the prices' unit
    #[arg(long, value_name = "AMOUNT")]
    spending: Option<f64>,
    /// Prices of a GiB of memory and of flash
    #[arg(long, value_name = "dram=P,flash=P", conflicts_with = "profile")]
    price: Option<PriceList>,
    /// Prices known by name: hardware-2026 or elasticache-tiered
    #[arg(long, value_name = "NAME", default_value_t = Profile::Hardware2026)]
    profile: Profile,
    /// How long a request takes in memory, and how much more on flash and at the origin
    #[arg(
        long,
        value_name = "memory=T,flash=T,origin=T",
        default_value = "memory=50us,flash=100us,origin=1ms"
    )]
    latencies: LatencyList,
    /// How the traces are written, where their names do not tell
    #[arg(long, value_name = "F")]
    format: Option<Format>,
    /// Bytes per object, where the trace does not say it
    #[arg(long, default_value = "1KiB", value_name = "SIZE")]
    value_size: Size,
    /// Bytes that each object takes beside its value: its key and the cache's overhead
    #[arg(long, default_value = "40", value_name = "SIZE")]
    overhead: Size,
    /// Memory that an object on flash takes for its index, in bytes
    #[arg(long, default_value_t = INDEX_BYTES_PER_OBJECT, value_name = "BYTES")]
    index_bytes: f64,
    /// Take curves of a cache with slab classes (memcached's), composed of one for each class, instead of one for all sizes
    #[arg(long)]
    classes: bool,
    /// Objects followed of each trace at most; traces of no more are measured exactly
    #[arg(long, default_value_t = DEFAULT_SAMPLES, value_name = "N")]
    samples: usize,
    /// The seed that decides which objects are sampled
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Draw the frontier as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the frontier as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

/// Prices of a GiB.
#[derive(Clone, Copy, Debug)]
struct PriceList(Prices);

/// How long the tiers take.
#[derive(Clone, Copy, Debug)]
struct LatencyList(Latencies);

/// Prices that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    Hardware2026,
    ElastiCacheTiered,
}

impl Profile {
    const ALL: [Self; 2] = [Self::Hardware2026, Self::ElastiCacheTiered];

    fn name(self) -> &'static str {
        match self {
            Self::Hardware2026 => "hardware-2026",
            Self::ElastiCacheTiered => "elasticache-tiered",
        }
    }

    /// Prices of a GiB. Hardware is sold by the GB: contract prices of 64 GB modules and of 30 TB drives, first quarter
    /// of 2026. The cloud's are those of a node with data tiering less those of one without (r6gd.xlarge, r6g.xlarge),
    /// September 2026.
    fn prices(self) -> Prices {
        let gb = PRICED_BYTES / 1e9;
        match self {
            Self::Hardware2026 => Prices {
                memory: 13.8 * gb,
                flash: 0.365 * gb,
            },
            Self::ElastiCacheTiered => Prices {
                memory: 0.01562,
                flash: 0.00372,
            },
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|profile| profile.name() == text);
        named.ok_or_else(|| format!("`{text}` is no profile: write hardware-2026 or elasticache-tiered"))
    }
}

impl FromStr for PriceList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [memory, flash] = named(text, ["dram", "flash"])?;
        let price = |text: &str| {
            let number = text
                .parse()
                .ok()
                .filter(|price: &f64| price.is_finite() && *price > 0.0);
            number.ok_or_else(|| format!("`{text}` is no price: write a number above 0"))
        };
        Ok(Self(Prices {
            memory: price(memory)?,
            flash: price(flash)?,
        }))
    }
}

impl FromStr for LatencyList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [memory, flash, origin] = named(text, ["memory", "flash", "origin"])?;
        let time = |text: &str| parse_duration(text).map(us).map_err(|error| error.to_string());
        Ok(Self(Latencies {
            memory_us: time(memory)?,
            flash_us: time(flash)?,
            origin_us: time(origin)?,
        }))
    }
}

/// The values of `name=value` parts, one for each name, in any order.
fn named<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Result<[&'a str; N], String> {
    let expected = || format!("`{text}`: write {}", names.map(|name| format!("{name}=...")).join(","));
    let mut values = [None; N];
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(expected)?;
        let place = names
            .iter()
            .position(|known| *known == name.trim())
            .ok_or_else(expected)?;
        if values[place].replace(value.trim()).is_some() {
            return Err(expected());
        }
    }
    let mut all = [""; N];
    for (all, value) in all.iter_mut().zip(values) {
        *all = value.ok_or_else(expected)?;
    }
    Ok(all)
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub(crate) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let options = options(args)?;
    let names: Vec<String> = options.traces.iter().map(|source| source.tenant.clone()).collect();
    let lines = Lines::new(&names);
    let report = provision::run(&options, &mut |line, progress| {
        lines.set(line, progress.done_ratio, format!("{} requests", progress.requests));
    });
    drop(lines);
    let report = report.map_err(|error| failure(&error))?;
    if args.svg.is_some() || args.png.is_some() {
        draw_picture(&Chart::new(&report).picture(), args.svg.as_deref(), args.png.as_deref())?;
    }
    if json {
        print(&serde_json::to_string(&report)?)?;
    } else {
        note(&summary(&report, args));
        print(&table(&report))?;
    }
    missed(&report)
}

/// A goal that no sizes reach: the shortfall.
fn missed(report: &Report) -> anyhow::Result<()> {
    let missed = report.tenants.iter().filter_map(|tenant| {
        let short_us = tenant.shortfall_us.filter(|short_us| *short_us > 0.0)?;
        let goal_us = tenant.latency_goal_us?;
        let (name, best) = (&tenant.tenant, time_text(goal_us + short_us));
        Some(format!(
            "{name}: no sizes reach {}: the best is {best}, {} more",
            time_text(goal_us),
            time_text(short_us)
        ))
    });
    let missed: Vec<String> = missed.collect();
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(crate::failure::FailureKind::Denied, missed.join("; ")).into())
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut traces: Vec<Source> = args.trace.iter().map(|text| source(text)).collect();
    let mut common = None;
    for text in &args.latency {
        let (tenant, time) = match text.split_once('=') {
            Some((tenant, time)) => (Some(tenant), time),
            None => (None, text.as_str()),
        };
        let time = parse_duration(time).map_err(|error| Failure::usage(format!("--latency {text}: {error}")))?;
        let place = match tenant {
            None => &mut common,
            Some(name) => match traces.iter_mut().find(|source| source.tenant == name) {
                Some(source) => &mut source.latency_us,
                None => return Err(Failure::usage(format!("--latency {text}: no trace is named `{name}`")).into()),
            },
        };
        if place.replace(us(time)).is_some() {
            return Err(Failure::usage(format!("--latency {text}: there is one already")).into());
        }
    }
    let goal = match (args.spending, common) {
        (Some(amount), _) => Goal::Spending(amount),
        (None, Some(latency_us)) => Goal::LatencyUs(latency_us),
        (None, None) => match traces.iter().find(|source| source.latency_us.is_none()) {
            Some(source) => {
                let text = format!(
                    "tenant `{}` has no latency: write --latency T for all, or NAME=T for each",
                    source.tenant
                );
                return Err(Failure::usage(text).into());
            }
            // Each has one of its own; the common one is nobody's.
            None => Goal::LatencyUs(traces.iter().filter_map(|source| source.latency_us).fold(0.0, f64::max)),
        },
    };
    if !(args.index_bytes.is_finite() && args.index_bytes >= 0.0) {
        return Err(Failure::usage(format!("--index-bytes {}: it is 0 or more", args.index_bytes)).into());
    }
    Ok(Options {
        traces,
        format: args.format,
        sampling: Sampling {
            keys: args.samples,
            seed: args.seed,
        },
        value_size_bytes: args.value_size.0,
        overhead_bytes: args.overhead.0,
        latencies: args.latencies.0,
        price_per_gib: args.price.map_or_else(|| args.profile.prices(), |list| list.0),
        index_bytes_per_object: args.index_bytes,
        by_class: args.classes,
        goal,
    })
}

/// `[NAME=]FILE`; a `=` behind a `/` is part of the file's name.
fn source(text: &str) -> Source {
    let named = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty() && !name.contains('/'));
    let path = PathBuf::from(named.map_or(text, |(_, file)| file));
    let file_name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Source {
        tenant: named.map_or_else(file_name, |(name, _)| name.to_owned()),
        latency_us: None,
        path,
    }
}

fn summary(report: &Report, args: &Args) -> String {
    let prices = match &args.price {
        Some(_) => "prices as given".into(),
        None => format!("profile {}", args.profile),
    };
    let goal = match report.goal {
        Goal::LatencyUs(_) => "least cost for the latency".into(),
        Goal::Spending(amount) => format!("least latency for {amount}"),
    };
    let (dram, flash) = (report.price_per_gib.dram, report.price_per_gib.flash);
    format!(
        "{goal}; {prices}: memory {dram:.4} and flash {flash:.4} per GiB ({:.1} : 1)",
        dram / flash
    )
}

const COLUMNS: [&str; 9] = [
    "TENANT",
    "MEMORY",
    "INDEX",
    "FLASH",
    "COST",
    "LATENCY",
    "MEMORY HITS",
    "FLASH HITS",
    "MISSES",
];

fn table(report: &Report) -> String {
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let of_split = |name: &str, split: &Split| {
        vec![
            name.to_owned(),
            size_text(split.memory_bytes),
            size_text(split.index_bytes),
            size_text(split.flash_bytes),
            money_text(split.cost),
            time_text(split.latency_us),
        ]
    };
    let of_tenant = |tenant: &TenantReport| {
        let mut row = of_split(&tenant.tenant, &tenant.split);
        let misses = 1.0 - tenant.memory_hit_ratio - tenant.flash_hit_ratio;
        row.extend([tenant.memory_hit_ratio, tenant.flash_hit_ratio, misses.max(0.0)].map(percent));
        row
    };
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(report.tenants.iter().map(of_tenant));
    if report.tenants.len() > 1 {
        rows.push(of_split("(all)", &report.total));
    }
    if let Some(split) = &report.proportional {
        rows.push(of_split("(1:4)", split));
    }
    let mut text = aligned(&rows);
    if let Some(saved) = report.saved_ratio {
        text.push_str(&format!("\nsaved against 1:4  {}", percent(saved)));
    }
    let mut rows = vec![
        ["LATENCY", "COST", "MEMORY", "FLASH", "COST 1:4", "SAVED"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for step in &report.frontier {
        let tied = step.proportional.filter(|split| split.cost > 0.0);
        rows.push(vec![
            time_text(step.latency_us),
            money_text(step.elastic.cost),
            size_text(step.elastic.memory_bytes),
            size_text(step.elastic.flash_bytes),
            tied.map_or_else(|| "-".into(), |split| money_text(split.cost)),
            tied.map_or_else(|| "-".into(), |split| percent(1.0 - step.elastic.cost / split.cost)),
        ]);
    }
    if rows.len() > 1 {
        text.push_str("\n\n");
        text.push_str(&aligned(&rows));
    }
    text
}

/// Columns as wide as their widest cell; the first one on the left, the others on the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column).unwrap_or(0);
            if column == 0 {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn size_text(bytes: f64) -> String {
    bytes_text(bytes.round())
}

/// Four digits: prices may be of a month or of an hour.
fn money_text(money: f64) -> String {
    if money == 0.0 {
        return "0".into();
    }
    let digits = (3 - money.abs().log10().floor() as i32).clamp(0, 12);
    format!("{money:.digits$}", digits = digits as usize)
}

fn time_text(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.1} us")
    } else {
        format!("{:.3} ms", us / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_any_order_and_refused_with_what_to_write() {
        for (text, expected) in [
            ("dram=13.8,flash=0.36", Ok((13.8, 0.36))),
            ("flash=1, dram=4", Ok((4.0, 1.0))),
            ("dram=1", Err("write dram=...,flash=...")),
            ("dram=1,dram=2", Err("write dram=...,flash=...")),
            ("dram=1,flash=1,disk=1", Err("write dram=...,flash=...")),
            ("dram=1,flash=0", Err("`0` is no price")),
            ("dram=NaN,flash=1", Err("`NaN` is no price")),
        ] {
            match (text.parse::<PriceList>(), expected) {
                (Ok(list), Ok(prices)) => assert_eq!((list.0.memory, list.0.flash), prices, "{text}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (got, expected) => panic!("{text}: {got:?} and not {expected:?}"),
            }
        }
        let list: LatencyList = "origin=20ms,memory=1us,flash=100us".parse().unwrap();
        assert_eq!(
            (list.0.memory_us, list.0.flash_us, list.0.origin_us),
            (1.0, 100.0, 20_000.0)
        );
        assert!(
            "memory=1,flash=1us,origin=1us"
                .parse::<LatencyList>()
                .unwrap_err()
                .contains("`1`")
        );
    }

    #[test]
    fn traces_may_have_names() {
        for (text, tenant, path) in [
            ("a.lis", "a.lis", "a.lis"),
            ("shop=dir/a.lis", "shop", "dir/a.lis"),
            ("dir/a=b.lis", "a=b.lis", "dir/a=b.lis"),
        ] {
            let source = source(text);
            assert_eq!((source.tenant.as_str(), source.path.to_str().unwrap()), (tenant, path));
        }
    }

    #[test]
    fn money_has_four_digits() {
        for (money, text) in [
            (0.0, "0"),
            (0.000_123_456, "0.0001235"),
            (1.5, "1.500"),
            (123_456.0, "123456"),
        ] {
            assert_eq!(money_text(money), text);
        }
    }
}
