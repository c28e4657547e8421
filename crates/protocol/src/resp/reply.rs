//! Replies in either version of RESP, appended to a buffer.
//!
//! Invariant: code that begins an array, a map, a set or a push appends as many elements as it announced.

use super::error::ErrorReply;
use crate::number::{append_i64, append_u64};

/// The most bytes that a type, a length and a line end take.
const HEADER_BYTES: usize = 24;

/// Which RESP a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The version with which every connection begins.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Version {
    /// The version as in `HELLO`'s reply.
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Reply<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
}

impl<'o> Reply<'o> {
    /// Replies in this version, behind the buffer's content.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// The version.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `+QUEUED`.
    #[inline]
    pub fn queued(&mut self) {
        self.out.extend_from_slice(b"+QUEUED\r\n");
    }

    /// A simple string. The text has no line end.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a simple string is one line");
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error.
    pub fn error(&mut self, error: &ErrorReply<'_>) {
        self.out.push(b'-');
        error.append_to(self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.out.push(b':');
        append_i64(self.out, number);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(HEADER_BYTES + bytes.len() + 2);
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The header of a bulk string of this length; its bytes and `\r\n` must follow.
    #[inline]
    pub fn bulk_header(&mut self, length: usize) {
        self.header(b'$', length);
    }

    /// A number as a bulk string.
    pub fn bulk_integer(&mut self, number: i64) {
        self.bulk(itoa::Buffer::new().format(number).as_bytes());
    }

    /// No value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// No array.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"*-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The beginning of an array of so many elements.
    #[inline]
    pub fn array(&mut self, elements: usize) {
        self.header(b'*', elements);
    }

    /// The beginning of a map of so many pairs; in RESP2 an array of twice as many elements.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.header(b'*', pairs * 2),
            Version::Resp3 => self.header(b'%', pairs),
        }
    }

    /// The beginning of a set of so many elements; in RESP2 an array.
    pub fn set(&mut self, elements: usize) {
        self.header_by_version(b'~', elements);
    }

    /// The beginning of a push of so many elements; in RESP2 an array.
    pub fn push(&mut self, elements: usize) {
        self.header_by_version(b'>', elements);
    }

    /// A number with a fraction: the shortest text that is read as the same `f64`; in RESP2 as a bulk string.
    pub fn double(&mut self, number: f64) {
        let text = if number.is_nan() {
            "nan".to_owned()
        } else if number.is_infinite() {
            if number > 0.0 {
                "inf".to_owned()
            } else {
                "-inf".to_owned()
            }
        } else if number != 0.0 && !(1e-5..1e17).contains(&number.abs()) {
            format!("{number:e}")
        } else {
            format!("{number}")
        };
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Yes or no; in RESP2 one or zero.
    pub fn boolean(&mut self, yes: bool) {
        self.out.extend_from_slice(match (self.version, yes) {
            (Version::Resp2, false) => b":0\r\n",
            (Version::Resp2, true) => b":1\r\n",
            (Version::Resp3, false) => b"#f\r\n",
            (Version::Resp3, true) => b"#t\r\n",
        });
    }

    /// Text to be shown as it is (INFO, CLIENT LIST); in RESP2 a bulk string.
    pub fn verbatim(&mut self, text: &[u8]) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => {
                self.header(b'=', text.len() + b"txt:".len());
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn header_by_version(&mut self, resp3: u8, elements: usize) {
        match self.version {
            Version::Resp2 => self.header(b'*', elements),
            Version::Resp3 => self.header(resp3, elements),
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, length: usize) {
        self.out.push(kind);
        append_u64(self.out, length as u64);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::error;

    fn both(write: impl Fn(&mut Reply<'_>)) -> [String; 2] {
        [Version::Resp2, Version::Resp3].map(|version| {
            let mut out = Vec::new();
            write(&mut Reply::new(&mut out, version));
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn replies_in_both_versions() {
        for (written, resp2, resp3) in [
            (both(|r| r.ok()), "+OK\r\n", "+OK\r\n"),
            (both(|r| r.queued()), "+QUEUED\r\n", "+QUEUED\r\n"),
            (both(|r| r.simple("PONG")), "+PONG\r\n", "+PONG\r\n"),
            (
                both(|r| r.error(&error::SYNTAX)),
                "-ERR syntax error\r\n",
                "-ERR syntax error\r\n",
            ),
            (both(|r| r.integer(-7)), ":-7\r\n", ":-7\r\n"),
            (both(|r| r.bulk(b"a\r\nb")), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (both(|r| r.bulk(b"")), "$0\r\n\r\n", "$0\r\n\r\n"),
            (both(|r| r.bulk_integer(10)), "$2\r\n10\r\n", "$2\r\n10\r\n"),
            (both(|r| r.null()), "$-1\r\n", "_\r\n"),
            (both(|r| r.null_array()), "*-1\r\n", "_\r\n"),
            (both(|r| r.array(12)), "*12\r\n", "*12\r\n"),
            (both(|r| r.map(3)), "*6\r\n", "%3\r\n"),
            (both(|r| r.set(3)), "*3\r\n", "~3\r\n"),
            (both(|r| r.push(3)), "*3\r\n", ">3\r\n"),
            (both(|r| r.double(1.5)), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (both(|r| r.double(1e300)), "$5\r\n1e300\r\n", ",1e300\r\n"),
            (both(|r| r.double(f64::INFINITY)), "$3\r\ninf\r\n", ",inf\r\n"),
            (both(|r| r.double(f64::NEG_INFINITY)), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (both(|r| r.double(f64::NAN)), "$3\r\nnan\r\n", ",nan\r\n"),
            (both(|r| r.boolean(true)), ":1\r\n", "#t\r\n"),
            (both(|r| r.boolean(false)), ":0\r\n", "#f\r\n"),
            (both(|r| r.verbatim(b"a:1")), "$3\r\na:1\r\n", "=7\r\ntxt:a:1\r\n"),
        ] {
            assert_eq!(written, [resp2, resp3]);
        }
    }
}
