//! The flash tier's own requests to the device, beside `fio`'s.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidemark_flash::Buffer;
use tidemark_flash::device::{Device, FileDevice, Queue, Request, queue};
use tidemark_tools::load::Rng;
use tidemark_tools::process_cpu::process_cpu_ns;

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "flash-device",
    title: "Reads and writes of the flash tier's driver, beside fio",
    minutes: 2,
    about: "\
The driver that a server's workers read with, and the flash thread writes with, beside `fio` with io_uring: the same file, direct I/O, the same depth
and block size. Reads are of 4 KiB at random, 16 at once. Writes are of 256 KiB in sequence, four at once, which is how a segment is written.
Both take turns in each round, and the ratios are those of a round, since the device is shared with others and its speed changes by the
minute. CPU time is that of the process, over its requests.",
    run,
};

const FILE: &str = "flash";
const READ_BYTES: usize = 4 << 10;
const READ_DEPTH: usize = 16;
/// A quarter of a segment.
const WRITE_BYTES: usize = 256 << 10;
const WRITE_DEPTH: usize = 4;
/// The least part of fio's throughput.
const RATIO_MIN: f64 = 0.8;
const DRIVER: &str = "tidemark";
const FIO: &str = "fio";

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    file_bytes: u64,
    rounds: usize,
    seconds: u64,
}

/// The requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    per_second: f64,
    cpu_us: f64,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Write, Self::Read];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "random reads of 4 KiB",
            Self::Write => "writes of 256 KiB in sequence",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Read => READ_BYTES,
            Self::Write => WRITE_BYTES,
        }
    }

    fn depth(self) -> usize {
        match self {
            Self::Read => READ_DEPTH,
            Self::Write => WRITE_DEPTH,
        }
    }
}

/// Requests of the driver, one after the other.
struct Driver {
    queue: Box<dyn Queue>,
    kind: Kind,
    blocks: u64,
    next: u64,
    rng: Rng,
    written: Arc<Buffer>,
}

impl Driver {
    fn new(device: &Arc<dyn Device>, kind: Kind, seed: u64) -> Result<Self, Error> {
        Ok(Self {
            queue: queue(device, kind.depth() as u32).map_err(Error::System)?,
            kind,
            blocks: device.size_bytes() / kind.bytes() as u64,
            next: 0,
            rng: Rng::new(seed),
            written: Arc::new(Buffer::copied(&vec![0xA5; kind.bytes()])),
        })
    }

    fn submit(&mut self, spare: Option<Buffer>) {
        let bytes = self.kind.bytes();
        let request = match self.kind {
            Kind::Read => Request::Read {
                offset: self.rng.below(self.blocks) * bytes as u64,
                buffer: spare.unwrap_or_else(|| Buffer::zeroed(bytes)),
            },
            Kind::Write => {
                let offset = self.next % self.blocks * bytes as u64;
                Request::Write {
                    offset,
                    bytes: Arc::clone(&self.written),
                    part: 0..bytes,
                }
            }
        };
        self.next += 1;
        self.queue.submit(self.next, request);
    }

    /// Keeps so many requests under way until `goes_on`, told how many have ended, says no.
    fn run(&mut self, goes_on: impl Fn(u64) -> bool) -> Result<u64, Error> {
        let (mut ended, mut done) = (0, Vec::new());
        (0..self.kind.depth()).for_each(|_| self.submit(None));
        self.queue.begin();
        while self.queue.under_way() > 0 {
            self.queue.wait(&mut done);
            let again = goes_on(ended + done.len() as u64);
            for done in done.drain(..) {
                done.result.map_err(Error::System)?;
                ended += 1;
                if again {
                    self.submit(done.buffer);
                }
            }
            self.queue.begin();
        }
        Ok(ended)
    }

    fn measure(&mut self, seconds: u64) -> Result<Sample, Error> {
        let own = std::process::id();
        let (began, cpu_ns) = (Instant::now(), process_cpu_ns(own).unwrap_or(0));
        let time = Duration::from_secs(seconds);
        let ended = self.run(|_| began.elapsed() < time)? as f64;
        let cpu_ns = process_cpu_ns(own).unwrap_or(0).saturating_sub(cpu_ns);
        Ok(Sample {
            per_second: ended / began.elapsed().as_secs_f64(),
            cpu_us: cpu_ns as f64 / 1e3 / ended,
        })
    }
}

/// The same by fio.
fn fio(file: &Path, kind: Kind, scale: Scale) -> Result<Sample, Error> {
    let failed = |reason: String| Error::Program {
        program: FIO.into(),
        reason,
    };
    let (pattern, section) = match kind {
        Kind::Read => ("randread", "read"),
        Kind::Write => ("write", "write"),
    };
    let output = Command::new(FIO)
        .args([
            "--name=turn",
            "--direct=1",
            "--ioengine=io_uring",
            "--time_based",
            "--thread",
        ])
        .args(["--output-format=json", "--norandommap", "--randrepeat=0"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={}", scale.file_bytes))
        .arg(format!("--rw={pattern}"))
        .arg(format!("--bs={}", kind.bytes()))
        .arg(format!("--iodepth={}", kind.depth()))
        .arg(format!("--runtime={}", scale.seconds))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    parsed(&text, section).ok_or_else(|| failed(format!("it printed no figures: {text}")))
}

/// The figures of fio's JSON, which may come after a line of text.
fn parsed(text: &str, section: &str) -> Option<Sample> {
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    let per_second = job[section]["iops"].as_f64()?;
    let cpu_ratio = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0;
    Some(Sample {
        per_second,
        cpu_us: cpu_ratio * 1e6 / per_second,
    })
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = if context.quick {
        Scale {
            file_bytes: 64 << 20,
            rounds: 1,
            seconds: 1,
        }
    } else {
        Scale {
            file_bytes: 2 << 30,
            rounds: 5,
            seconds: 4,
        }
    };
    let others = Others::watch();
    let folder = TempDir::with_prefix("tidemark-experiments-").map_err(Error::System)?;
    let path = folder.path().join(FILE);
    let file = FileDevice::open(&path, scale.file_bytes).map_err(|error| Error::Usage(error.to_string()))?;
    let is_direct = file.is_direct();
    let device: Arc<dyn Device> = Arc::new(file);
    context.tell("writing the file");
    // A file system answers reads of what was never written without its device.
    let blocks = scale.file_bytes / WRITE_BYTES as u64;
    let mut filling = Driver::new(&device, Kind::Write, context.seed)?;
    filling.run(|ended| ended < blocks)?;
    let driver = filling.queue.name();
    let mut samples: [Vec<(Sample, Sample)>; 2] = Default::default();
    for round in 0..scale.rounds {
        context.tell(&format!("round {} of {}", round + 1, scale.rounds));
        for (kind, samples) in Kind::ALL.into_iter().zip(&mut samples) {
            let ours = || Driver::new(&device, kind, context.seed + round as u64)?.measure(scale.seconds);
            let pair = if round % 2 == 0 {
                (ours()?, fio(&path, kind, scale)?)
            } else {
                let fio = fio(&path, kind, scale)?;
                (ours()?, fio)
            };
            samples.push(pair);
        }
    }
    let series = series(&samples);
    Ok(Outcome {
        scale: format!(
            "{} rounds of {} s each, a file of {} MiB, {driver}, {}",
            scale.rounds,
            scale.seconds,
            scale.file_bytes >> 20,
            if is_direct {
                "direct I/O"
            } else {
                "through the page cache"
            },
        ),
        targets: targets(&samples),
        chart: Chart {
            title: "Requests to the device".into(),
            panels: panels(&series),
        },
        series,
        others_cores: others.cores(),
    })
}

fn targets(samples: &[Vec<(Sample, Sample)>; 2]) -> Vec<Target> {
    let ratio = |samples: &[(Sample, Sample)]| {
        let pairs = samples.iter().map(|(ours, fio)| (ours.per_second, fio.per_second));
        Spread::of_ratios(pairs).map_or(f64::NAN, |spread| spread.median)
    };
    let target = |(kind, samples): (Kind, &Vec<(Sample, Sample)>)| {
        Target::at_least(format!("{}, over fio's", kind.name()), ratio(samples), RATIO_MIN)
    };
    Kind::ALL.into_iter().zip(samples).map(target).collect()
}

type Figure = fn(&Sample) -> f64;

const RATE: &str = "requests";
const CPU: &str = "CPU time of a request";

fn series(samples: &[Vec<(Sample, Sample)>; 2]) -> Vec<Series> {
    let mut series = Vec::new();
    let measures: [(&str, &str, Figure); 2] = [
        (RATE, "1/s", |sample| sample.per_second),
        (CPU, "µs", |sample| sample.cpu_us),
    ];
    for (measure, unit, of) in measures {
        for (kind, samples) in Kind::ALL.into_iter().zip(samples) {
            let sides: [(&str, Vec<f64>); 2] = [
                (DRIVER, samples.iter().map(|(ours, _)| of(ours)).collect()),
                (FIO, samples.iter().map(|(_, fio)| of(fio)).collect()),
            ];
            for (name, values) in sides {
                if let Some(spread) = Spread::of(values) {
                    let point = Point::spread(kind.name(), spread);
                    add_point(&mut series, (name, measure, unit), ("", "requests"), point);
                }
            }
        }
    }
    series
}

fn panels(series: &[Series]) -> Vec<Panel> {
    let panel = |measure: &str| {
        let own: Vec<&Series> = series.iter().filter(|series| series.measure == measure).collect();
        Panel::of_series(measure, Marks::Bars, &own)
    };
    vec![panel(RATE), panel(CPU)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_fio_are_read_behind_its_warnings() {
        let text = "fio: a warning\n{\"jobs\": [{\"read\": {\"iops\": 1000.0}, \"usr_cpu\": 1.5, \"sys_cpu\": 0.5}]}";
        let sample = Sample {
            per_second: 1000.0,
            cpu_us: 20.0,
        };
        assert_eq!(parsed(text, "read"), Some(sample));
        assert_eq!(parsed(text, "write"), None);
        assert_eq!(parsed("", "read"), None);
    }

    #[test]
    fn the_driver_asks_for_as_much_as_it_is_told_and_within_the_file() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(FILE);
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, 2 << 20).unwrap());
        let mut driver = Driver::new(&device, Kind::Write, 1).unwrap();
        let ended = driver.run(|ended| ended < 5).unwrap();
        // Requests under way when it ends are awaited.
        assert!((5..=5 + 2 * WRITE_DEPTH as u64).contains(&ended), "{ended}");
        let mut first = vec![0; 4096];
        let mut buffer = Buffer::zeroed(first.len());
        device.read(0, buffer.as_mut()).unwrap();
        first.copy_from_slice(buffer.as_ref());
        assert!(first.iter().all(|byte| *byte == 0xA5));
        let reads = Driver::new(&device, Kind::Read, 1).unwrap().run(|ended| ended < 100);
        assert!(reads.unwrap() >= 100);
    }
}
