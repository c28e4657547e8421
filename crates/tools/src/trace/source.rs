//! Decompressed bytes with a position: the source of every format.
//!
//! Invariant: at most [`BUFFER_BYTES`] and one line of [`MAX_LINE_BYTES`] are held, besides the decompressor's window,
//! which is bounded too.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use super::TraceError;

/// Read at once from the decompressor: large enough that the calls do not show, small enough for a core's cache.
const BUFFER_BYTES: usize = 64 << 10;
/// The longest line: an order of magnitude above the longest of the known traces; a binary file given as text fails early.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Enough to see the compression (6 bytes), a tar archive's mark (at 257) and whether a file is text.
const PEEK_BYTES: usize = 512;
/// The memory limit of an xz decoder: its largest preset needs 65 MiB.
const XZ_MEMORY_BYTES: u64 = 256 << 20;
/// Errors quote this much of a faulty line.
const QUOTE_CHARS: usize = 60;

const XZ_MAGIC: &[u8] = &[0xFD, b'7', b'z', b'X', b'Z', 0];
const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];

/// See the module.
pub(super) struct Source {
    trace: String,
    reader: BufReader<Box<dyn Read + Send>>,
    head: Vec<u8>,
    offset: u64,
    line: u64,
    text: Vec<u8>,
}

impl Source {
    /// Sees the compression by the first bytes and undoes it.
    pub(super) fn decompress(trace: String, mut raw: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let fail = |source| TraceError::Read {
            trace: trace.clone(),
            offset: 0,
            source,
        };
        let head = peek(&mut raw).map_err(fail)?;
        let whole = Cursor::new(head.clone()).chain(raw);
        let mut plain: Box<dyn Read + Send> = if head.starts_with(XZ_MAGIC) {
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES, liblzma::stream::CONCATENATED);
            let stream = stream.map_err(|error| fail(error.into()))?;
            Box::new(liblzma::read::XzDecoder::new_stream(whole, stream))
        } else if head.starts_with(GZIP_MAGIC) {
            Box::new(flate2::read::MultiGzDecoder::new(whole))
        } else if head.starts_with(ZSTD_MAGIC) {
            Box::new(zstd::stream::read::Decoder::new(whole).map_err(fail)?)
        } else {
            Box::new(whole)
        };
        let head = peek(&mut plain).map_err(fail)?;
        let plain: Box<dyn Read + Send> = Box::new(Cursor::new(head.clone()).chain(plain));
        Ok(Self {
            trace,
            reader: BufReader::with_capacity(BUFFER_BYTES, plain),
            head,
            offset: 0,
            line: 0,
            text: Vec::new(),
        })
    }

    /// Whether the beginning is nothing but digits and line ends.
    pub(super) fn begins_with_digits(&self) -> bool {
        !self.head.is_empty()
            && self
                .head
                .iter()
                .all(|b| b.is_ascii_digit() || matches!(b, b'\n' | b'\r'))
    }

    /// Whether the beginning is a POSIX tar header (its mark is at byte 257).
    pub(super) fn begins_with_tar(&self) -> bool {
        self.head.get(257..262) == Some(b"ustar".as_slice())
    }

    /// Bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `N` bytes, or `None` at the end of the file.
    pub(super) fn record<const N: usize>(&mut self) -> Result<Option<[u8; N]>, TraceError> {
        let ready = self.reader.fill_buf();
        if let Ok(Some(record)) = ready.map(|buffer| buffer.first_chunk::<N>()) {
            let record = *record;
            self.reader.consume(N);
            self.offset += N as u64;
            return Ok(Some(record));
        }
        let mut record = [0; N];
        let found = self.read_up_to(&mut record)?;
        match found {
            0 => Ok(None),
            _ if found == N => Ok(Some(record)),
            _ => Err(TraceError::Truncated {
                trace: self.trace.clone(),
                offset: self.offset - found as u64,
                found,
                expected: N,
            }),
        }
    }

    /// The next line without its end, or `None` at the end of the file. `limit` bytes are the most that may be read, for
    /// a file inside an archive.
    pub(super) fn line(&mut self, limit: u64) -> Result<Option<&[u8]>, TraceError> {
        self.text.clear();
        let most = limit.min(MAX_LINE_BYTES as u64);
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut self.text);
        let read = read.map_err(|source| TraceError::Read {
            trace: self.trace.clone(),
            offset: self.offset,
            source,
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.offset += read as u64;
        self.line += 1;
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
        } else if read == MAX_LINE_BYTES {
            return Err(self.line_error("a line of at most 16 KiB", &self.text));
        }
        if self.text.last() == Some(&b'\r') {
            self.text.pop();
        }
        Ok(Some(&self.text))
    }

    /// Passes over `count` bytes.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), TraceError> {
        let passed = io::copy(&mut (&mut self.reader).take(count), &mut io::sink());
        let passed = passed.map_err(|source| self.read_error(source))?;
        self.offset += passed;
        if passed < count {
            return Err(self.archive_error("the rest of an archived file"));
        }
        Ok(())
    }

    /// An error about the line that was read last, or about a part of it.
    pub(super) fn line_error(&self, expected: &'static str, found: &[u8]) -> TraceError {
        TraceError::Line {
            trace: self.trace.clone(),
            line: self.line,
            expected,
            found: String::from_utf8_lossy(found).chars().take(QUOTE_CHARS).collect(),
        }
    }

    /// An error about the archive at the present position.
    pub(super) fn archive_error(&self, expected: &'static str) -> TraceError {
        TraceError::Archive {
            trace: self.trace.clone(),
            offset: self.offset,
            expected,
        }
    }

    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(error)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    fn read_error(&self, source: io::Error) -> TraceError {
        TraceError::Read {
            trace: self.trace.clone(),
            offset: self.offset,
            source,
        }
    }
}

/// Reads the first [`PEEK_BYTES`], or all if there are less.
fn peek(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(PEEK_BYTES);
    reader.take(PEEK_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}
