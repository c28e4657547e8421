//! The IBM Docker registry traces: CSV, plain or in a tar archive.
//!
//! The archive is read by hand because only a stream of whole files is needed. Headers have 512 bytes, with names,
//! sizes and types at fixed places (POSIX.1-1988 ustar). Contents are padded to 512.

use super::source::Source;
use super::text::number;
use super::{Request, TraceError};

const TAR_BLOCK_BYTES: u64 = 512;
/// Columns that a line has to have; their places come from the header.
const COLUMNS: [&str; 3] = ["http.request.uri", "http.response.written", "timestamp"];

/// A CSV of the registry's requests.
pub(super) struct Ibm {
    source: Source,
    in_tar: bool,
    /// Bytes of the present file that were not read yet, and of its padding.
    left: u64,
    padding: u64,
    /// The places of [`COLUMNS`].
    places: [usize; 3],
}

impl Ibm {
    pub(super) fn new(source: Source) -> Result<Self, TraceError> {
        let in_tar = source.begins_with_tar();
        let mut ibm = Self {
            source,
            in_tar,
            left: if in_tar { 0 } else { u64::MAX },
            padding: 0,
            places: [0; 3],
        };
        if in_tar && !ibm.next_file()? {
            return Err(ibm.source.archive_error("a file in the archive"));
        }
        ibm.read_header()?;
        Ok(ibm)
    }

    pub(super) fn next(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let before = self.source.offset();
            let Some(line) = self.source.line(self.left)? else {
                if self.in_tar && self.left > 0 {
                    return Err(self.source.archive_error("the rest of an archived file"));
                }
                if !self.in_tar || !self.next_file()? {
                    return Ok(None);
                }
                self.read_header()?;
                continue;
            };
            let parsed = (!line.is_empty()).then(|| parse(line, self.places).map_err(|e| (e.0, e.1.to_vec())));
            self.left -= self.source.offset() - before;
            match parsed {
                None => {}
                Some(Ok(request)) => return Ok(Some(request)),
                Some(Err((expected, found))) => return Err(self.source.line_error(expected, &found)),
            }
        }
    }

    /// Goes to the beginning of the next regular file of the archive; `false` at its end.
    fn next_file(&mut self) -> Result<bool, TraceError> {
        self.source.skip(self.padding)?;
        self.padding = 0;
        while let Some(header) = self.source.record::<{ TAR_BLOCK_BYTES as usize }>()? {
            if header.iter().all(|byte| *byte == 0) {
                return Ok(false);
            }
            let Some(size) = octal(&header[124..136]) else {
                return Err(self.source.archive_error("a tar header with the file's size in octal"));
            };
            let padding = size.next_multiple_of(TAR_BLOCK_BYTES) - size;
            // Types `0` and NUL are files; directories, links and extended headers are passed over.
            if matches!(header[156], b'0' | 0) && size > 0 {
                (self.left, self.padding) = (size, padding);
                return Ok(true);
            }
            self.source.skip(size + padding)?;
        }
        Ok(false)
    }

    fn read_header(&mut self) -> Result<(), TraceError> {
        let before = self.source.offset();
        let Some(line) = self.source.line(self.left)? else {
            return Err(self.source.archive_error("a CSV header"));
        };
        let names: Vec<&[u8]> = fields(line).collect();
        let places = COLUMNS.map(|column| names.iter().position(|name| *name == column.as_bytes()));
        let [Some(uri), Some(written), Some(timestamp)] = places else {
            let found = line.to_vec();
            let expected = "a header with http.request.uri, http.response.written and timestamp";
            return Err(self.source.line_error(expected, &found));
        };
        self.places = [uri, written, timestamp];
        self.left -= self.source.offset() - before;
        Ok(())
    }
}

/// The expected and the actual text.
type Unexpected<'a> = (&'static str, &'a [u8]);

fn parse(line: &[u8], places: [usize; 3]) -> Result<Request, Unexpected<'_>> {
    let mut found: [Option<&[u8]>; 3] = [None; 3];
    for (index, field) in fields(line).enumerate() {
        if let Some(column) = places.iter().position(|place| *place == index) {
            found[column] = Some(field);
        }
    }
    let [Some(uri), Some(written), Some(timestamp)] = found else {
        return Err(("as many fields as the header has", line));
    };
    Ok(Request {
        key: rapidhash::v3::rapidhash_v3(uri),
        size_bytes: Some(whole_bytes(written).ok_or(("a number of bytes", written))?),
        time_seconds: Some(seconds(timestamp).ok_or(("a time such as 2017-06-20 00:00:26.626", timestamp))?),
    })
}

/// The fields of a CSV line, quotes around them taken off. (A doubled quote inside stays doubled: keys only have to
/// differ.)
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        let end = text.iter().position(|byte| {
            quoted ^= *byte == b'"';
            *byte == b',' && !quoted
        });
        let field = &text[..end.unwrap_or(text.len())];
        rest = end.map(|end| &text[end + 1..]);
        let inner = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\""));
        Some(inner.unwrap_or(field))
    })
}

/// `28540435` or `28540435.0`.
fn whole_bytes(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (whole, fraction) = text.split_at(point);
    fraction
        .iter()
        .skip(1)
        .all(|digit| *digit == b'0')
        .then(|| number(whole))?
}

/// `2017-06-20 00:00:26.626`, also with `T` and `Z`, as seconds since 1970.
fn seconds(text: &[u8]) -> Option<f64> {
    let text = text.strip_suffix(b"Z").unwrap_or(text);
    let part = |from: usize, to: usize| text.get(from..to).and_then(number);
    let marks = [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")];
    let marked = marks
        .iter()
        .all(|(at, mark)| text.get(*at..*at + 1) == Some(mark.as_slice()));
    if !marked || !matches!(text.get(10), Some(b' ' | b'T')) {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let begin = tidemark_types::utc::day(year, month, day)?.seconds();
    let fraction = match text.get(19..) {
        None | Some([]) => 0.0,
        Some([b'.', digits @ ..]) if digits.len() <= 9 => {
            let value = number(digits)? as f64;
            value / 10_f64.powi(i32::try_from(digits.len()).ok()?)
        }
        Some(_) => return None,
    };
    Some((begin + hour * 3600 + minute * 60 + second) as f64 + fraction)
}

/// An octal number as tar headers write it: digits, then spaces or NULs.
fn octal(field: &[u8]) -> Option<u64> {
    let text = field.trim_ascii_start();
    let end = text
        .iter()
        .position(|byte| !(b'0'..=b'7').contains(byte))
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || digits.len() > 12 || rest.iter().any(|byte| !matches!(byte, b' ' | 0)) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |value, digit| value * 8 + u64::from(digit - b'0')),
    )
}
