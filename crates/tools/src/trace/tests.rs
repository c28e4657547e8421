use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;

use super::*;

/// The known facts of a trace.
#[derive(Debug, PartialEq)]
struct Counts {
    requests: u64,
    objects: u64,
    /// The sizes of all objects added up, each as it was last seen.
    distinct_bytes: Option<u64>,
}

fn count(trace: Trace) -> Counts {
    let mut sizes = HashMap::new();
    let mut requests = 0;
    for request in trace {
        let request = request.unwrap();
        requests += 1;
        sizes.insert(request.key, request.size_bytes);
    }
    Counts {
        requests,
        objects: sizes.len() as u64,
        distinct_bytes: sizes.values().copied().sum(),
    }
}

/// A real trace with the counts that its source states, and how to make one of the same form.
struct Case {
    file: &'static str,
    format: Option<Format>,
    counts: Counts,
    make: fn() -> Made,
}

/// A generated trace: its bytes and its counts.
struct Made {
    bytes: Vec<u8>,
    counts: Counts,
}

/// 5,000 requests for keys 1,000 to 1,099 of 17 bytes more than the key.
const MADE_REQUESTS: u64 = 5000;
const MADE_OBJECTS: u64 = 100;

fn made(sized: bool, write: impl Fn(u64, &mut Vec<u8>), compress: impl Fn(&[u8]) -> Vec<u8>) -> Made {
    let mut plain = Vec::new();
    for n in 0..MADE_REQUESTS {
        write(1000 + n % MADE_OBJECTS, &mut plain);
    }
    Made {
        bytes: compress(&plain),
        counts: Counts {
            requests: MADE_REQUESTS,
            objects: MADE_OBJECTS,
            distinct_bytes: sized.then(|| (1000..1000 + MADE_OBJECTS).map(|key| key + 17).sum()),
        },
    }
}

fn oracle_record(key: u64, out: &mut Vec<u8>) {
    out.extend(77_u32.to_le_bytes());
    out.extend(key.to_le_bytes());
    out.extend(u32::try_from(key + 17).unwrap().to_le_bytes());
    out.extend((-1_i64).to_le_bytes());
}

fn csv_line(key: u64, out: &mut Vec<u8>) {
    writeln!(out, "1,\"a, b\",v2/{key},{}.0,2017-06-20 00:00:26.5", key + 17).unwrap();
}

const CSV_HEADER: &str = ",agent,http.request.uri,http.response.written,timestamp\n";

/// A tar archive of a folder and these files, the parts of its headers where POSIX puts them.
fn tar(files: &[&[u8]]) -> Vec<u8> {
    let mut archive = Vec::new();
    let folder = (b'5', [].as_slice());
    for (kind, content) in std::iter::once(folder).chain(files.iter().map(|file| (b'0', *file))) {
        let mut header = [0; 512];
        header[..5].copy_from_slice(b"a.csv");
        header[124..136].copy_from_slice(format!("{:011o} ", content.len()).as_bytes());
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        archive.extend(header);
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// The lines in two files, each with its header.
fn registry_archive(lines: &[u8]) -> Vec<u8> {
    let middle = lines.len() / 2 + lines[lines.len() / 2..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let (first, second) = lines.split_at(middle);
    let file = |lines: &[u8]| [CSV_HEADER.as_bytes(), lines].concat();
    gzip(&tar(&[&file(first), &file(second)]))
}

fn xz(plain: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    ::zstd::encode_all(plain, 1).unwrap()
}

/// Runs of two: each line stands for its key and the next.
fn made_lis() -> Made {
    let mut lis = made(false, |key, out| writeln!(out, "{key} 2 0 1").unwrap(), zstd);
    lis.counts.requests *= 2;
    lis.counts.objects += 1;
    lis
}

fn cases() -> [Case; 6] {
    let counts = |requests, objects| Counts {
        requests,
        objects,
        distinct_bytes: None,
    };
    [
        Case {
            file: "cloudPhysicsIO.oracleGeneral.bin",
            format: None,
            counts: Counts {
                distinct_bytes: Some(2_029_769_728),
                ..counts(113_872, 48_974)
            },
            make: || made(true, oracle_record, <[u8]>::to_vec),
        },
        Case {
            file: "orm-busy.trace.xz",
            format: None,
            counts: counts(5_000_000, 76_349),
            make: || made(false, |key, out| out.extend((key as u32).to_be_bytes()), xz),
        },
        Case {
            file: "scarab-recs.trace.xz",
            format: Some(Format::I64Be),
            counts: counts(1_245_184, 258_368),
            make: || made(false, |key, out| out.extend(key.to_be_bytes()), xz),
        },
        Case {
            file: "loop.trace.gz",
            format: None,
            counts: counts(505_500, 1011),
            make: || made(false, |key, out| writeln!(out, "{key}").unwrap(), gzip),
        },
        Case {
            file: "OLTP.lis.zst",
            format: None,
            counts: counts(914_145, 186_880),
            make: made_lis,
        },
        Case {
            file: "ibm-registry-dal09-10mb-50h.tar.gz",
            format: None,
            counts: counts(37_474, 12_541),
            make: || made(true, csv_line, registry_archive),
        },
    ]
}

#[test]
fn traces_have_the_counts_that_their_sources_state() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| PathBuf::from(default), PathBuf::from);
    for case in cases() {
        let path = folder.join(case.file);
        if !path.exists() {
            continue;
        }
        let trace = Trace::open(&path, case.format).unwrap();
        let position = trace.position();
        let mut found = count(trace);
        assert_eq!(position.read_bytes(), position.file_bytes(), "{}", case.file);
        // The registry's blobs are stated in numbers only.
        found.distinct_bytes = found.distinct_bytes.filter(|_| case.counts.distinct_bytes.is_some());
        assert_eq!(found, case.counts, "{}", case.file);
    }
}

#[test]
fn generated_traces_have_their_counts() {
    let folder = tempfile::tempdir().unwrap();
    for case in cases() {
        let made = (case.make)();
        let path = folder.path().join(case.file);
        std::fs::write(&path, &made.bytes).unwrap();
        assert_eq!(
            count(Trace::open(&path, case.format).unwrap()),
            made.counts,
            "{}",
            case.file
        );
    }
}

#[test]
fn requests_carry_what_the_trace_says() {
    let mut oracle = Vec::new();
    oracle_record(5, &mut oracle);
    let mut csv = CSV_HEADER.as_bytes().to_vec();
    csv_line(5, &mut csv);
    for (format, bytes, size_bytes, time_seconds) in [
        (Format::OracleGeneral, oracle, Some(22), Some(77.0)),
        // `date -ud '2017-06-20 00:00:26' +%s` is 1497916826.
        (Format::IbmCsv, csv, Some(22), Some(1_497_916_826.5)),
        (Format::Decimal, b"\n 5 \r\n".to_vec(), None, None),
        (Format::I32Be, (-5_i32).to_be_bytes().to_vec(), None, None),
    ] {
        let requests: Vec<Request> = read(&bytes, format).unwrap();
        assert_eq!(requests.len(), 1, "{format}");
        assert_eq!(
            (requests[0].size_bytes, requests[0].time_seconds),
            (size_bytes, time_seconds),
            "{format}"
        );
    }
}

fn read(bytes: &[u8], format: Format) -> Result<Vec<Request>, TraceError> {
    Trace::from_reader("t", io::Cursor::new(bytes.to_vec()), format)?.collect()
}

/// Reading `bytes` ends with an error that says `said`.
fn check_mistake(format: Format, bytes: &[u8], said: &str) {
    let error = read(bytes, format).unwrap_err().to_string();
    assert!(error.contains(said), "{format}: {error}, expected {said}");
}

#[test]
fn mistakes_are_named_with_their_place() {
    let mut records = Vec::new();
    oracle_record(1, &mut records);
    oracle_record(2, &mut records);
    let long = [b'7'; 20_000];
    let cases: [(Format, &[u8], &str); 9] = [
        (
            Format::OracleGeneral,
            &records[..40],
            "t: byte 24: the file ends after 16 of the 24 bytes",
        ),
        (Format::I32Be, &[1; 7], "byte 4: the file ends after 3 of the 4 bytes"),
        (Format::I64Be, &[1; 1], "byte 0: the file ends after 1 of the 8 bytes"),
        (
            Format::Decimal,
            b"1\n2\nx3\n",
            "line 3: expected a decimal key below 2^64, found `x3`",
        ),
        (
            Format::Decimal,
            b"18446744073709551616",
            "line 1: expected a decimal key",
        ),
        (Format::Decimal, b"-1", "found `-1`"),
        (Format::Decimal, &long, "expected a line of at most 16 KiB"),
        (Format::Lis, b"1 2 0 0\n5\n", "line 2: expected `start count 0 line`"),
        (Format::Lis, b"18446744073709551615 2 0 0", "line 1"),
    ];
    for (format, bytes, said) in cases {
        check_mistake(format, bytes, said);
    }
}

#[test]
fn mistakes_in_csv_are_named_with_their_place() {
    for (lines, said) in [
        ("1,2,3", "line 2: expected as many fields"),
        (
            "1,a,u,5.5,2017-06-20 00:00:26",
            "expected a number of bytes, found `5.5`",
        ),
        ("1,a,u,5,2017-13-20 00:00:26", "expected a time"),
        ("1,a,u,5,2017-06-20 00:00:26.", "expected a time"),
    ] {
        check_mistake(Format::IbmCsv, format!("{CSV_HEADER}{lines}\n").as_bytes(), said);
    }
    check_mistake(Format::IbmCsv, b"a,b\n", "expected a header with http.request.uri");
}

#[test]
fn cut_archives_are_noticed() {
    let file = format!("{CSV_HEADER}1,a,u,5,2017-06-20 00:00:26\n");
    let cut = |bytes: Vec<u8>, by: usize| bytes[..bytes.len() - by].to_vec();
    let behind_the_header = 1024 + CSV_HEADER.len();
    for (format, bytes, said) in [
        (
            Format::IbmCsv,
            tar(&[file.as_bytes()])[..behind_the_header].to_vec(),
            "expected the rest of an archived",
        ),
        (Format::IbmCsv, tar(&[]), "expected a file in the archive"),
        (Format::Decimal, cut(gzip(b"1\n2\n"), 6), "after decompression"),
        (Format::I32Be, cut(xz(&[0; 4000]), 20), "after decompression"),
        (Format::I32Be, cut(zstd(&[0; 4000]), 3), "after decompression"),
    ] {
        check_mistake(format, &bytes, said);
    }
}

#[test]
fn formats_are_told_by_names() {
    for (name, format) in [
        ("cloudPhysicsIO.oracleGeneral.bin", Some(Format::OracleGeneral)),
        ("w01.oracleGeneral.zst", Some(Format::OracleGeneral)),
        ("a/b.c/orm-busy.trace.xz", Some(Format::I32Be)),
        ("scarab-recs.trace.xz", Some(Format::I64Be)),
        ("x.i64be.gz", Some(Format::I64Be)),
        ("P1.LIS", Some(Format::Lis)),
        ("dal09.tar.gz", Some(Format::IbmCsv)),
        ("dal09.tgz", Some(Format::IbmCsv)),
        ("dal09.csv", Some(Format::IbmCsv)),
        ("keys.txt", Some(Format::Decimal)),
        ("data.bin", None),
        ("trace", None),
    ] {
        assert_eq!(Format::of_name(Path::new(name)).ok(), format, "{name}");
    }
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    let error = "csv".parse::<Format>().unwrap_err().to_string();
    assert!(
        error.contains("`csv`") && error.contains("oracleGeneral, i32be, i64be, decimal, lis, ibm-csv"),
        "{error}"
    );
    let error = Trace::open(Path::new("/nowhere/a.lis"), None)
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("/nowhere/a.lis: "), "{error}");
}

#[test]
fn nothing_follows_an_error() {
    let mut trace = Trace::from_reader("t", io::Cursor::new(b"1\nx\n2\n".to_vec()), Format::Decimal).unwrap();
    assert!(trace.next().unwrap().is_ok());
    assert!(trace.next().unwrap().is_err());
    assert!(trace.next().is_none());
}
