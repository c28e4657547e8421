use std::io::Write as _;

use tempfile::NamedTempFile;

use super::*;

/// A trace of these decimal keys.
fn trace(keys: impl IntoIterator<Item = u64>) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".decimal").tempfile().unwrap();
    for key in keys {
        writeln!(file, "{key}").unwrap();
    }
    file
}

fn options(file: &NamedTempFile) -> Options {
    Options {
        by_class: false,
        path: file.path().to_owned(),
        format: None,
        eviction: Eviction::Lru,
        sampling: Sampling {
            keys: DEFAULT_SAMPLES,
            seed: 1,
        },
        sizes: Vec::new(),
        value_size_bytes: 1,
        overhead_bytes: 0,
    }
}

fn measure(options: &Options) -> Report {
    run(options, &mut |_| ()).unwrap()
}

fn points(report: &Report) -> Vec<(u64, f64)> {
    report
        .points
        .iter()
        .map(|point| (point.bytes, point.miss_ratio))
        .collect()
}

/// Ten rounds of a hundred keys: LRU and FIFO miss all unless all fit.
fn rounds() -> NamedTempFile {
    trace((0..1000).map(|n| n % 100))
}

#[test]
fn default_sizes_are_parts_of_the_distinct_bytes() {
    let file = rounds();
    for eviction in ["lru", "fifo"] {
        let mut options = options(&file);
        options.eviction = eviction.parse().unwrap();
        let report = measure(&options);
        assert_eq!(
            (report.requests, report.objects, report.distinct_bytes),
            (1000, 100, 100)
        );
        let expected = [1, 2, 5, 10, 20, 40, 60, 80].map(|bytes| (bytes, 1.0));
        assert_eq!(points(&report), expected, "{eviction}");
        assert!(report.points.iter().all(|point| point.standard_error.is_none()));
    }
}

#[test]
fn sizes_are_bytes_not_objects() {
    let file = rounds();
    let mut options = options(&file);
    options.sizes = vec![4000, 3999];
    for (value_size_bytes, overhead_bytes, at_4000) in [(40, 0, 0.1), (30, 10, 0.1), (40, 1, 1.0)] {
        for eviction in ["lru", "fifo", "clock"] {
            options.eviction = eviction.parse().unwrap();
            (options.value_size_bytes, options.overhead_bytes) = (value_size_bytes, overhead_bytes);
            let expected = [(3999, 1.0), (4000, at_4000)];
            assert_eq!(
                points(&measure(&options)),
                expected,
                "{eviction}, {value_size_bytes}+{overhead_bytes}"
            );
        }
    }
}

#[test]
fn traces_of_nothing_and_of_one_request() {
    let empty = measure(&options(&trace([])));
    assert_eq!((empty.requests, empty.points.len(), empty.skew), (0, 0, None));
    for eviction in ["lru", "fifo", "clock", "s3fifo", "approx-lru:0.7"] {
        let file = trace([7]);
        let mut options = options(&file);
        options.eviction = eviction.parse().unwrap();
        assert_eq!(points(&measure(&options)), [(1, 1.0)], "{eviction}");
    }
}

#[test]
fn objects_larger_than_a_cache_pass_it_by() {
    // A large object between the uses of small ones.
    let mut bytes = Vec::new();
    for n in 0..1000_u64 {
        let (key, size) = if n % 2 == 0 { (n % 20, 10_u32) } else { (1000 + n, 5000) };
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(key.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    let mut file = tempfile::Builder::new()
        .suffix(".oracleGeneral.bin")
        .tempfile()
        .unwrap();
    file.write_all(&bytes).unwrap();
    let mut options = options(&file);
    options.sizes = vec![99, 100];
    assert_eq!(points(&measure(&options)), [(99, 1.0), (100, 0.51)]);
}

#[test]
fn samples_come_with_their_error() {
    let keys = (0..200_000_u64).map(|n| (n * n * 31 % 99_991) * (n % 7) / 7);
    let file = trace(keys);
    let mut options = options(&file);
    let exact = measure(&options);
    for eviction in ["lru", "fifo", "clock", "s3fifo", "approx-lru:0.7"] {
        options.eviction = eviction.parse().unwrap();
        options.sampling.keys = 2000;
        options.sizes = exact.points.iter().map(|point| point.bytes).collect();
        let sampled = measure(&options);
        options.sampling = Sampling::EXACT;
        let exact = measure(&options);
        assert_eq!((sampled.sampled_objects, exact.sampled_objects), (Some(2000), None));
        for (a, b) in sampled.points.iter().zip(&exact.points) {
            let error = a.standard_error.unwrap();
            let difference = (a.miss_ratio - b.miss_ratio).abs();
            assert!(difference < 4.0 * error && error < 0.1, "{eviction}: {a:?} {b:?}");
        }
    }
}

#[test]
fn progress_only_grows() {
    let file = trace((0..300_000).map(|n| n % 1000));
    let mut seen = vec![0.0];
    run(&options(&file), &mut |progress| seen.push(progress.done_ratio)).unwrap();
    assert!(
        seen.is_sorted() && seen.iter().all(|done| (0.0..=1.0).contains(done)),
        "{seen:?}"
    );
}

#[test]
fn broken_records_are_told_with_their_place() {
    let mut file = trace([1, 2, 3]);
    writeln!(file, "four").unwrap();
    let error = run(&options(&file), &mut |_| ()).unwrap_err().to_string();
    assert!(
        error.contains("line 4") && error.contains("a decimal key") && error.contains("`four`"),
        "{error}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_the_range() {
    let file = trace([1]);
    let check = |change: fn(&mut Options), part: &str| {
        let mut options = options(&file);
        change(&mut options);
        let error = run(&options, &mut |_| ()).unwrap_err();
        assert_eq!(error.fault(), crate::Fault::Usage);
        assert!(error.to_string().contains(part), "{error}");
    };
    check(|options| options.sampling.keys = 0, "1 to 1073741824");
    check(|options| options.sizes = vec![5, 0], "1 byte to 256TiB");
    check(|options| options.sizes = vec![MAX_SIZE_BYTES + 1], "1 byte to 256TiB");
    check(|options| options.sizes = vec![1; MAX_SIZES + 1], "at most 256");
}

/// Charts of an exact, a sampled and a policy's curve, of one point and of none.
#[test]
fn every_report_can_be_drawn() {
    let (many, one, none) = (trace((0..50_000).map(|n| n * n % 9973)), trace([1]), trace([]));
    for (file, eviction, keys) in [
        (&many, "lru", 1 << 20),
        (&many, "lru", 500),
        (&many, "s3fifo", 500),
        (&one, "clock", 10),
        (&none, "lru", 10),
    ] {
        let mut options = options(file);
        options.eviction = eviction.parse().unwrap();
        options.sampling.keys = keys;
        let report = measure(&options);
        let picture = Chart::new("a < b & c.trace", &report).picture();
        let svg = picture.svg();
        assert!(
            svg.contains("a &lt; b &amp; c.trace") && !svg.contains("NaN") && !svg.contains("inf"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), report.points.len());
        assert_eq!(
            svg.matches("<polygon").count(),
            usize::from(report.sampled_objects.is_some())
        );
        for part in svg.split(" cy=\"").skip(1) {
            let y: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..picture.height).contains(&y), "{y}");
        }
        // The band stays below the heads, too.
        for place in svg
            .split("points=\"")
            .skip(1)
            .flat_map(|part| part.split('"').next().unwrap().split(' '))
        {
            let (x, y) = place.split_once(',').unwrap();
            let place: (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!(
                (0.0..picture.width).contains(&place.0) && (69.9..picture.height).contains(&place.1),
                "{place:?}"
            );
        }
        let png = png(&picture).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
        assert_eq!(png[16..24], [0, 0, 6, 64, 0, 0, 3, 192], "1600 times 960 dots");
    }
}
