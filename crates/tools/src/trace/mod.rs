//! Traces: the requests of real applications to their caches, read as a stream of [`Request`]s.
//!
//! Invariant: memory is bounded whatever the file holds (one decompressor window, one buffer, one line). A request is
//! either exactly the file's, or an error that names where in the file it went wrong. Sizes are bytes, times are
//! seconds of trace time.

mod binary;
mod csv;
mod source;
mod text;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use source::Source;

/// One access of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The object.
    pub key: u64,
    /// The object's size in bytes, where the trace says it.
    pub size_bytes: Option<u64>,
    /// When it was asked for, in seconds from an origin of the trace's own, where the trace says it.
    pub time_seconds: Option<f64>,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// libCacheSim's binary form: records of 24 bytes, little-endian. The fields are `u32` time in seconds, `u64`
    /// object, `u32` size in bytes, `i64` index of the next access (<https://github.com/1a1a11a/libCacheSim>,
    /// `oracleGeneralBin`).
    OracleGeneral,
    /// Big-endian 32-bit keys (the cache2k project's `.trace` files).
    I32Be,
    /// Big-endian 64-bit keys (Caffeine's simulator: Scarab Research's recommendations).
    I64Be,
    /// One decimal key per line (the LIRS set).
    Decimal,
    /// The ARC paper's form: lines `start count 0 line`, each standing for `count` keys from `start` on.
    Lis,
    /// The IBM Docker registry traces: CSV with a header, plain or as the only files of a tar archive. The columns
    /// `http.request.uri`, `http.response.written` (bytes) and `timestamp` matter.
    IbmCsv,
}

impl Format {
    /// Every format, in the order in which help texts and errors name them.
    pub const ALL: [Self; 6] = [
        Self::OracleGeneral,
        Self::I32Be,
        Self::I64Be,
        Self::Decimal,
        Self::Lis,
        Self::IbmCsv,
    ];

    /// The name in `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OracleGeneral => "oracleGeneral",
            Self::I32Be => "i32be",
            Self::I64Be => "i64be",
            Self::Decimal => "decimal",
            Self::Lis => "lis",
            Self::IbmCsv => "ibm-csv",
        }
    }

    /// The format that a file's name speaks of, compression suffixes aside. `.trace` stands for `i32be`; whether such a
    /// file holds text instead is only seen when it is opened ([`Trace::open`]).
    ///
    /// # Errors
    /// A name that speaks of none.
    pub fn of_name(path: &Path) -> Result<Self, TraceError> {
        let full = path.file_name().unwrap_or_default().to_string_lossy();
        let mut name = full.to_ascii_lowercase();
        for suffix in [".xz", ".gz", ".zst", ".tgz", ".bin"] {
            if let Some(rest) = name.strip_suffix(suffix) {
                name = if suffix == ".tgz" {
                    format!("{rest}.tar")
                } else {
                    rest.to_owned()
                };
            }
        }
        let known = if name.contains("oraclegeneral") {
            Some(Self::OracleGeneral)
        } else if name.starts_with("scarab") {
            Some(Self::I64Be)
        } else {
            match name.rsplit_once('.').map(|(_, extension)| extension) {
                Some("trace" | "i32be") => Some(Self::I32Be),
                Some("i64be") => Some(Self::I64Be),
                Some("txt" | "decimal") => Some(Self::Decimal),
                Some("lis") => Some(Self::Lis),
                Some("csv" | "tar") => Some(Self::IbmCsv),
                _ => None,
            }
        };
        known.ok_or_else(|| TraceError::UnknownName {
            trace: path.display().to_string(),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let known = Self::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| TraceError::UnknownFormat {
            given: text.chars().take(80).collect(),
        })
    }
}

/// Why a trace could not be read. None of these is helped by trying again.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// `--format` names no format.
    #[error("`{given}` is not a trace format: allowed are {}", format_names())]
    UnknownFormat {
        /// The name that was given.
        given: String,
    },
    /// The file's name says nothing about the format.
    #[error(
        "{trace}: the name does not tell the trace's format: give --format, one of {}",
        format_names()
    )]
    UnknownName {
        /// The file.
        trace: String,
    },
    /// The file cannot be opened.
    #[error("{trace}: {source}")]
    Open {
        /// The file.
        trace: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file cannot be read on, or its content cannot be decompressed.
    #[error("{trace}: byte {offset} after decompression: {source}")]
    Read {
        /// The file.
        trace: String,
        /// How many bytes were read well.
        offset: u64,
        /// The system's or the decompressor's reason.
        source: io::Error,
    },
    /// The file ends inside a record.
    #[error("{trace}: byte {offset}: the file ends after {found} of the {expected} bytes of a record")]
    Truncated {
        /// The file.
        trace: String,
        /// The offset of the record's first byte.
        offset: u64,
        /// Bytes that are there.
        found: usize,
        /// Bytes that a record has.
        expected: usize,
    },
    /// A line is not of the format.
    #[error("{trace}: line {line}: expected {expected}, found `{found}`")]
    Line {
        /// The file.
        trace: String,
        /// The line's number, from 1.
        line: u64,
        /// The expected text.
        expected: &'static str,
        /// The actual text (its beginning, if it is long).
        found: String,
    },
    /// An archive is not of the format.
    #[error("{trace}: byte {offset}: expected {expected}")]
    Archive {
        /// The file.
        trace: String,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The expected content.
        expected: &'static str,
    },
}

/// A trace that is being read: an iterator that ends after the last request or after the first error.
pub struct Trace {
    name: String,
    records: Records,
    position: Position,
    ended: bool,
}

/// How far a trace was read, in bytes of the file as it is on disk: for progress bars, from any thread.
#[derive(Clone, Debug)]
pub struct Position {
    read_bytes: Arc<AtomicU64>,
    file_bytes: u64,
}

impl Position {
    /// Bytes of the file that were read so far (the decompressor reads ahead a little).
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// The file's length in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }
}

enum Records {
    Oracle(Source),
    I32(Source),
    I64(Source),
    Decimal(Source),
    Lis(text::Lis),
    Ibm(csv::Ibm),
}

impl Trace {
    /// Opens a trace file; `format` where the name does not tell it. Compression (xz, gzip, zstd) is seen by the file's
    /// first bytes. A `.trace` file whose beginning is lines of digits is read as `decimal` unless `format` is given.
    ///
    /// # Errors
    /// The file cannot be opened or decompressed, its format is not known, or its header is not that of the format.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let guessed = match format {
            Some(format) => format,
            None => Format::of_name(path)?,
        };
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (file_bytes, file) = opened.map_err(|source| TraceError::Open {
            trace: name.clone(),
            source,
        })?;
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            inner: file,
            count: Arc::clone(&read_bytes),
        };
        let source = Source::decompress(name.clone(), counted)?;
        let format = if format.is_none() && guessed == Format::I32Be && source.begins_with_digits() {
            Format::Decimal
        } else {
            guessed
        };
        let position = Position { read_bytes, file_bytes };
        Self::start(name, source, format, position)
    }

    /// Reads a trace from anything that is not a file; `name` is what errors call it.
    ///
    /// # Errors
    /// It cannot be decompressed, or its header is not that of the format.
    pub fn from_reader(name: &str, reader: impl Read + Send + 'static, format: Format) -> Result<Self, TraceError> {
        let source = Source::decompress(name.to_owned(), reader)?;
        let position = Position {
            read_bytes: Arc::default(),
            file_bytes: 0,
        };
        Self::start(name.to_owned(), source, format, position)
    }

    fn start(name: String, source: Source, format: Format, position: Position) -> Result<Self, TraceError> {
        let records = match format {
            Format::OracleGeneral => Records::Oracle(source),
            Format::I32Be => Records::I32(source),
            Format::I64Be => Records::I64(source),
            Format::Decimal => Records::Decimal(source),
            Format::Lis => Records::Lis(text::Lis::new(source)),
            Format::IbmCsv => Records::Ibm(csv::Ibm::new(source)?),
        };
        Ok(Self {
            name,
            records,
            position,
            ended: false,
        })
    }

    /// The name of the trace in errors: the path as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far the file was read; the handle stays valid when the trace is gone.
    pub fn position(&self) -> Position {
        self.position.clone()
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match &mut self.records {
            Records::Oracle(source) => binary::oracle_general(source),
            Records::I32(source) => binary::i32be(source),
            Records::I64(source) => binary::i64be(source),
            Records::Decimal(source) => text::decimal(source),
            Records::Lis(lis) => lis.next(),
            Records::Ibm(ibm) => ibm.next(),
        };
        let next = next.transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Request {
    /// An access of which only the key is known.
    pub(crate) fn of_key(key: u64) -> Self {
        Self {
            key,
            size_bytes: None,
            time_seconds: None,
        }
    }
}

/// Counts the bytes that are read through it.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// The names of all formats, for errors.
fn format_names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

#[cfg(test)]
mod tests;
