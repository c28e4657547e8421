//! Replies out of bytes, however the bytes were cut on the way.
//!
//! Invariant: the replies and the values' bytes are the same for every way in which the stream is cut. A value is handed
//! on in the parts in which it came, so that no value, however large, has to be kept.

use super::Protocol;

/// The longest line: memcached's keys have 250 bytes; error texts quote a command.
const MAX_LINE_BYTES: usize = 2 << 10;

/// One part of the server's answer to one request. A value comes as one or more parts, the last one marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A part of a value.
    Value(Part<'a>),
    /// The key is not there.
    Miss,
    /// The value was stored.
    Stored,
    /// An error reply: the whole line.
    Refused(&'a [u8]),
    /// A well-formed reply that no get and no set has.
    Unexpected(&'a [u8]),
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The key that the server says it is of: with the first part, in memcached's protocol.
    pub key: Option<&'a [u8]>,
    /// Bytes of the whole value.
    pub size_bytes: usize,
    /// The offset of this part in the value.
    pub offset: usize,
    /// The part; may be empty.
    pub bytes: &'a [u8],
    /// Whether the value, and the reply, ends with it.
    pub last: bool,
}

/// The kind of the beginning of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Too little: more bytes have to be appended to the same input.
    NeedMore,
    /// A reply, and how many bytes of the input it took.
    Reply(usize, Reply<'a>),
    /// Not this protocol.
    Malformed,
}

/// Reads replies; remembers a value that came in part.
#[derive(Clone, Debug)]
pub struct Decoder {
    protocol: Protocol,
    value: Option<Unfinished>,
}

#[derive(Clone, Copy, Debug)]
struct Unfinished {
    size_bytes: usize,
    done_bytes: usize,
}

/// The first line of a reply.
enum Head<'a> {
    NeedMore,
    Malformed,
    /// The reply is this line only; its length with the line's end.
    Line(usize, Reply<'a>),
    /// A value begins behind the line.
    Value {
        key: Option<&'a [u8]>,
        size_bytes: usize,
        begins: usize,
    },
}

impl Decoder {
    /// A decoder at the beginning of a connection's replies.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, value: None }
    }

    /// Takes the beginning of the input.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Decoded<'a> {
        if let Some(value) = self.value {
            return self.go_on(value, input);
        }
        let head = match self.protocol {
            Protocol::Memcached => memcached_head(input),
            Protocol::Redis => resp_head(input),
        };
        let (key, size_bytes, begins) = match head {
            Head::NeedMore => return Decoded::NeedMore,
            Head::Malformed => return Decoded::Malformed,
            Head::Line(length, reply) => return Decoded::Reply(length, reply),
            Head::Value {
                key,
                size_bytes,
                begins,
            } => (key, size_bytes, begins),
        };
        let (rest, tail) = (&input[begins..], self.tail());
        let part = |bytes, last| Part {
            key,
            size_bytes,
            offset: 0,
            bytes,
            last,
        };
        if let Some((bytes, behind)) = rest.split_at_checked(size_bytes)
            && behind.len() >= tail.len()
        {
            if !behind.starts_with(tail) {
                return Decoded::Malformed;
            }
            return Decoded::Reply(begins + size_bytes + tail.len(), Reply::Value(part(bytes, true)));
        }
        let bytes = &rest[..rest.len().min(size_bytes)];
        self.value = Some(Unfinished {
            size_bytes,
            done_bytes: bytes.len(),
        });
        Decoded::Reply(begins + bytes.len(), Reply::Value(part(bytes, false)))
    }

    /// The next part of a value, or its end.
    fn go_on<'a>(&mut self, value: Unfinished, input: &'a [u8]) -> Decoded<'a> {
        let tail = self.tail();
        let left = value.size_bytes - value.done_bytes;
        let part = |bytes, last| Part {
            key: None,
            size_bytes: value.size_bytes,
            offset: value.done_bytes,
            bytes,
            last,
        };
        if left > 0 {
            if input.is_empty() {
                return Decoded::NeedMore;
            }
            let bytes = &input[..input.len().min(left)];
            self.value = Some(Unfinished {
                done_bytes: value.done_bytes + bytes.len(),
                ..value
            });
            return Decoded::Reply(bytes.len(), Reply::Value(part(bytes, false)));
        }
        if input.len() < tail.len() {
            return if tail.starts_with(input) {
                Decoded::NeedMore
            } else {
                Decoded::Malformed
            };
        }
        if !input.starts_with(tail) {
            return Decoded::Malformed;
        }
        self.value = None;
        Decoded::Reply(tail.len(), Reply::Value(part(&[], true)))
    }

    /// The bytes that follow a value.
    #[inline]
    fn tail(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Memcached => b"\r\nEND\r\n",
            Protocol::Redis => b"\r\n",
        }
    }
}

/// `VALUE <key> <flags> <bytes>`, or a line that is the whole reply.
#[inline]
fn memcached_head(input: &[u8]) -> Head<'_> {
    // The reply of a miss is looked for first: it needs no search for the line's end.
    if input.starts_with(b"END\r\n") {
        return Head::Line(5, Reply::Miss);
    }
    let line = match line(input) {
        Ok(Some(line)) => line,
        Ok(None) => return Head::NeedMore,
        Err(()) => return Head::Malformed,
    };
    let length = line.len() + 2;
    if let Some(fields) = line.strip_prefix(b"VALUE ") {
        let mut fields = fields.split(|byte| *byte == b' ');
        let parsed = (
            fields.next(),
            fields.next().and_then(number),
            fields.next().and_then(number),
            fields.next(),
        );
        return match parsed {
            (Some(key), Some(_flags), Some(size_bytes), None) if !key.is_empty() => Head::Value {
                key: Some(key),
                size_bytes,
                begins: length,
            },
            _ => Head::Malformed,
        };
    }
    let reply = match line {
        b"STORED" => Reply::Stored,
        b"ERROR" => Reply::Refused(line),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => Reply::Refused(line),
        _ if line.first().is_some_and(u8::is_ascii_uppercase) => Reply::Unexpected(line),
        _ => return Head::Malformed,
    };
    Head::Line(length, reply)
}

/// `$<bytes>`, or a line that is the whole reply.
#[inline]
fn resp_head(input: &[u8]) -> Head<'_> {
    let line = match line(input) {
        Ok(Some(line)) => line,
        Ok(None) => return Head::NeedMore,
        Err(()) => return Head::Malformed,
    };
    let length = line.len() + 2;
    let reply = match line {
        [b'$', b'-', b'1'] => Reply::Miss,
        [b'$', digits @ ..] => {
            return number(digits).map_or(Head::Malformed, |size_bytes| Head::Value {
                key: None,
                size_bytes,
                begins: length,
            });
        }
        b"+OK" => Reply::Stored,
        [b'-', ..] => Reply::Refused(line),
        [b'+' | b':', ..] => Reply::Unexpected(line),
        _ => return Head::Malformed,
    };
    Head::Line(length, reply)
}

/// The first line without its end `\r\n`; `None` while it is incomplete.
#[inline]
fn line(input: &[u8]) -> Result<Option<&[u8]>, ()> {
    match memchr::memchr(b'\n', input) {
        Some(end) => match input[..end].split_last() {
            Some((b'\r', line)) if line.len() <= MAX_LINE_BYTES => Ok(Some(line)),
            _ => Err(()),
        },
        None if input.len() > MAX_LINE_BYTES => Err(()),
        None => Ok(None),
    }
}

/// Decimal digits of a number that a value's size may be.
#[inline]
fn number(digits: &[u8]) -> Option<usize> {
    // Ten digits cannot overflow; flags have up to ten.
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let mut value = 0_usize;
    for digit in digits {
        value = value * 10 + usize::from(digit.wrapping_sub(b'0'));
        if !digit.is_ascii_digit() {
            return None;
        }
    }
    Some(value)
}
