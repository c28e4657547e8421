//! Commands by lines: finds the line, splits it at spaces, and reads each command's words.
//!
//! The order of the checks is memcached's, because it decides which error a client sees. One thing surprises:
//! `noreply` as the last word hides errors, too.

use super::command::{
    Arithmetic, Command, Delete, Direction, FlushAll, Get, OpenGet, Part, Stats, Store, Touch, Verb, Verbosity,
};
use super::key::{Keys, MetaKey, is_key};
use super::table::Name;
use super::{ANNOUNCED_BYTES_MAX, Failure, LINE_BYTES_MAX, Limits, Parsed, SAID_BYTES_MAX, meta, text};
use crate::http;
use crate::number::{parse_digits, parse_i64, parse_u32, parse_u64};

/// No command but those with keys or flags has more words.
const WORDS_MAX: usize = 8;

/// Whether a name is one of the storage commands' in upper or lower case.
fn is_store_name(name: &[u8]) -> bool {
    let names: [&[u8]; 6] = [b"set", b"add", b"replace", b"append", b"prepend", b"cas"];
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The words of a line; only spaces divide them.
#[inline]
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = trim_start(rest);
        let length = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(length);
        rest = behind;
        (length > 0).then_some(word)
    })
}

/// The text without the spaces before it.
pub(super) fn trim_start(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| **byte == b' ').count();
    &text[spaces..]
}

/// The text without the spaces behind it.
fn trim_end(text: &[u8]) -> &[u8] {
    let spaces = text.iter().rev().take_while(|byte| **byte == b' ').count();
    &text[..text.len() - spaces]
}

/// The text without the spaces around it.
pub(super) fn trim_spaces(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// A line and where it came from.
#[derive(Clone, Copy)]
pub(super) struct Line<'a, 'l> {
    input: &'a [u8],
    limits: &'l Limits,
    /// Bytes of the input up to and with the line's end.
    pub(super) consumed: usize,
    /// The text behind the command's name.
    pub(super) arguments: &'a [u8],
}

/// Parses any command.
pub(super) fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    if input.first() == Some(&0x80) {
        return close(text::BINARY, input.len());
    }
    let Some(end) = find_line_end(input) else {
        return if input.len() <= LINE_BYTES_MAX {
            Parsed::Incomplete {
                needed: input.len() + 1,
            }
        } else {
            begin_keys(input, limits).unwrap_or_else(|| close(text::LINE_TOO_LONG, input.len()))
        };
    };
    let line = &input[..end];
    let line = trim_start(line.strip_suffix(b"\r").unwrap_or(line));
    let name_length = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (name, arguments) = line.split_at(name_length);
    let line = Line {
        input,
        limits,
        consumed: end + 1,
        arguments,
    };
    line.dispatch(name)
}

/// The index of the line's `\n`, if that is within the limit.
fn find_line_end(input: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', &input[..input.len().min(LINE_BYTES_MAX + 1)])
}

/// The first part of a line of keys that is longer than the limit; `None` if it is another line. Only the bytes within the
/// limit decide, so that the answer does not depend on how much has come.
fn begin_keys<'a>(input: &'a [u8], limits: &Limits) -> Option<Parsed<'a>> {
    let first = trim_start(&input[..LINE_BYTES_MAX]);
    let name_length = memchr::memchr(b' ', first)?;
    let (name, arguments) = first.split_at(name_length);
    let (with_cas, touch, keys) = match Name::of(name).filter(|_| limits.long_key_lines)? {
        Name::Get => (false, None, arguments),
        Name::Gets => (true, None, arguments),
        name @ (Name::Gat | Name::Gats) => {
            let arguments = trim_start(arguments);
            let (exptime, keys) = arguments.split_at(memchr::memchr(b' ', arguments)?);
            (name == Name::Gats, Some(parse_i64(exptime)?), keys)
        }
        _ => return None,
    };
    let before = LINE_BYTES_MAX - keys.len();
    Some(keys_part(input, before, &OpenGet { with_cas, touch }))
}

/// Parses the next part of a line of keys.
pub(super) fn parse_keys<'a>(input: &'a [u8], open: &OpenGet) -> Parsed<'a> {
    match find_line_end(input) {
        None if input.len() <= LINE_BYTES_MAX => Parsed::Incomplete {
            needed: input.len() + 1,
        },
        None => keys_part(input, 0, open),
        Some(end) => {
            let keys = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
            complete_part(keys, end + 1, true, open)
        }
    }
}

/// A part of a line of keys that goes on behind the limit: the words that end within it, from `begin` on.
fn keys_part<'a>(input: &'a [u8], begin: usize, open: &OpenGet) -> Parsed<'a> {
    let part = &input[begin..LINE_BYTES_MAX];
    // Without a space the text is too long for a key.
    let length = memchr::memrchr(b' ', part).map_or(part.len(), |space| space + 1);
    complete_part(&part[..length], begin + length, false, open)
}

fn complete_part<'a>(keys: &'a [u8], consumed: usize, is_last: bool, open: &OpenGet) -> Parsed<'a> {
    let part = if is_last { Part::Last } else { Part::Begun };
    let (keys, part) = match Keys::parse(keys) {
        Some(keys) => (keys, part),
        None if trim_start(keys).is_empty() => (Keys::NONE, part),
        None => (Keys::NONE, Part::Bad { is_last }),
    };
    Parsed::Complete {
        command: Command::Get(Get {
            keys,
            with_cas: open.with_cas,
            touch: open.touch,
            part,
        }),
        consumed,
    }
}

/// Whether a line, or the part behind its first word, ends as the first line of an HTTP request does.
fn is_http_request(line: &[u8]) -> bool {
    let line = trim_spaces(line);
    let last = memchr::memrchr(b' ', line).map_or(0, |space| space + 1);
    http::is_version(&line[last..])
}

/// Whether a command's last word may be a key.
fn may_end_with_key(name: &[u8]) -> bool {
    matches!(
        name,
        b"get" | b"gets" | b"gat" | b"gats" | b"delete" | b"mg" | b"md" | b"ma" | b"me"
    )
}

/// A failure after which nothing more is read. All that came is taken, so that it is not parsed again.
fn close<'a>(reply: &'static [u8], consumed: usize) -> Parsed<'a> {
    Parsed::Failed(Failure {
        reply,
        consumed,
        swallow: 0,
        close: true,
    })
}

/// The first [`WORDS_MAX`] words, and the last one. Further words mean nothing, as in memcached.
struct Words<'a> {
    items: [&'a [u8]; WORDS_MAX],
    last: &'a [u8],
    /// All of them.
    count: usize,
}

impl<'a> Words<'a> {
    fn new(text: &'a [u8]) -> Self {
        let mut items = [&b""[..]; WORDS_MAX];
        let mut last = &b""[..];
        let mut count = 0;
        for word in words(text) {
            if let Some(item) = items.get_mut(count) {
                *item = word;
            }
            last = word;
            count += 1;
        }
        Self { items, last, count }
    }

    /// Whether the last word asks for no reply.
    fn noreply(&self) -> bool {
        self.last == b"noreply"
    }
}

/// The length of a body as a command line says it.
#[derive(Clone, Copy)]
pub(super) enum BodyLength {
    /// The length in bytes, without the line end behind it.
    Known(usize),
    /// No number, a negative one, or not where it belongs: nobody knows where the body ends.
    Unreadable,
}

impl BodyLength {
    pub(super) fn parse(word: &[u8]) -> Self {
        let digits = word.strip_prefix(b"+").unwrap_or(word);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Self::Unreadable;
        }
        match parse_u64(digits).and_then(|length| usize::try_from(length).ok()) {
            Some(length) if length <= ANNOUNCED_BYTES_MAX => Self::Known(length),
            _ => Self::Unreadable,
        }
    }
}

/// A storage command's words: `<key> <flags> <exptime> <bytes>`, behind them `<token>` if there is one, and `[noreply]`.
struct StoreWords<'a> {
    words: Words<'a>,
    /// How many there are without `noreply`.
    expected: usize,
    arguments: &'a [u8],
}

impl<'a> StoreWords<'a> {
    fn new(arguments: &'a [u8], with_token: bool) -> Self {
        Self {
            words: Words::new(arguments),
            expected: if with_token { 5 } else { 4 },
            arguments,
        }
    }

    /// Whether there are as many words as there may be. As in memcached, further ones are ignored, but not a number: it may
    /// be the length, behind a space in the key.
    fn are_counted(&self) -> bool {
        let count = self.words.count;
        count == self.expected || (count > self.expected && !self.has_number_behind())
    }

    /// Whether one of the words that are too many is a number, or may be.
    fn has_number_behind(&self) -> bool {
        let behind = self.words.items.iter().skip(self.expected);
        self.words.count > WORDS_MAX || behind.copied().any(|word| parse_u64(word).is_some())
    }

    /// Whether two spaces follow each other: a word may be missing between them.
    fn has_gap(&self) -> bool {
        memchr::memmem::find(trim_end(self.arguments), b"  ").is_some()
    }

    /// The length of a refused command's body. It can be read if each word is certain to be in its place. A space in
    /// the key moves all words behind it, and an empty key moves them the other way.
    fn refused_length(&self) -> BodyLength {
        let [_, flags, exptime, length, ..] = self.words.items;
        let is_too_many = self.words.count > self.expected + usize::from(self.words.noreply());
        let is_moved =
            is_too_many && (parse_u32(flags).is_none() || parse_i64(exptime).is_none() || self.has_number_behind());
        if is_moved || self.has_gap() {
            BodyLength::Unreadable
        } else {
            // With fewer than four words this one is empty.
            BodyLength::parse(length)
        }
    }
}

/// Why there is no body.
pub(super) enum NoBody {
    /// It has not come whole.
    Incomplete { needed: usize },
    /// It has no line end behind it.
    Failed(Failure),
    /// It is too long.
    TooLarge(Failure),
}

impl NoBody {
    /// The parse result of the command that would store it under `key`.
    pub(super) fn parsed(self, key: MetaKey<'_>) -> Parsed<'_> {
        match self {
            Self::Incomplete { needed } => Parsed::Incomplete { needed },
            Self::Failed(failure) => Parsed::Failed(failure),
            Self::TooLarge(failure) => Parsed::TooLarge { failure, key },
        }
    }
}

/// The reply, unless the client asked for none.
fn unless(noreply: bool, reply: &'static [u8]) -> &'static [u8] {
    if noreply { b"" } else { reply }
}

impl<'a> Line<'a, '_> {
    fn dispatch(self, name: &[u8]) -> Parsed<'a> {
        if !may_end_with_key(name) && is_http_request(self.arguments) {
            return close(b"", self.input.len());
        }
        let Some(name) = Name::of(name) else {
            return self.not_offered(name);
        };
        match name {
            Name::Get => self.get(false),
            Name::Gets => self.get(true),
            Name::Gat => self.gat(false),
            Name::Gats => self.gat(true),
            Name::Set => self.store(Verb::Set),
            Name::Add => self.store(Verb::Add),
            Name::Replace => self.store(Verb::Replace),
            Name::Append => self.store(Verb::Append),
            Name::Prepend => self.store(Verb::Prepend),
            Name::Cas => self.store(Verb::Cas(0)),
            Name::Incr => self.arithmetic(Direction::Increment),
            Name::Decr => self.arithmetic(Direction::Decrement),
            Name::Touch => self.touch(),
            Name::Delete => self.delete(),
            Name::MetaGet => meta::get(self),
            Name::MetaSet => meta::set(self),
            Name::MetaDelete => meta::delete(self),
            Name::MetaArithmetic => meta::arithmetic(self),
            Name::MetaDebug => meta::debug(self),
            Name::MetaNoop => self.complete(Command::MetaNoop),
            Name::FlushAll => self.flush_all(),
            Name::Version => self.complete(Command::Version),
            Name::Verbosity => self.verbosity(),
            Name::Stats => self.complete(Command::Stats(Stats { text: self.arguments })),
            Name::Quit => self.complete(Command::Quit),
        }
    }

    fn not_offered(self, name: &[u8]) -> Parsed<'a> {
        match name {
            // As in memcached, which asks for a line of two letters before it looks at it.
            b"" | [_] if self.arguments.is_empty() => self.fail(text::BAD_FORMAT),
            b"shutdown" => self.fail(text::SHUTDOWN),
            _ if http::is_first_word(name) || http::is_version(name) => close(b"", self.input.len()),
            _ if is_store_name(name) => {
                // Names are in lower case. The bytes behind such a line are a body all the same.
                let words = StoreWords::new(self.arguments, name.eq_ignore_ascii_case(b"cas"));
                self.fail_with_body(text::ERROR, words.refused_length())
            }
            _ if name.eq_ignore_ascii_case(b"ms") => self.fail_with_body(text::ERROR, meta::set_length(self)),
            _ => self.fail(text::ERROR),
        }
    }

    pub(super) fn complete(self, command: Command<'a>) -> Parsed<'a> {
        Parsed::Complete {
            command,
            consumed: self.consumed,
        }
    }

    /// A failure of a command without a body. The first line of an HTTP request ends the connection: its body could be
    /// commands that a web page chose.
    pub(super) fn fail(self, reply: &'static [u8]) -> Parsed<'a> {
        if is_http_request(self.arguments) {
            return close(b"", self.input.len());
        }
        Parsed::Failed(Failure {
            reply,
            consumed: self.consumed,
            swallow: 0,
            close: false,
        })
    }

    /// A failure of a command with a body: the body must not be taken for commands.
    pub(super) fn fail_with_body(self, reply: &'static [u8], length: BodyLength) -> Parsed<'a> {
        let BodyLength::Known(bytes) = length else {
            return close(reply, self.input.len());
        };
        Parsed::Failed(Failure {
            reply,
            consumed: self.consumed,
            swallow: bytes + 2,
            close: false,
        })
    }

    /// Takes the body of `length` bytes behind the line. `noreply` hides errors. If no line end follows, the client
    /// counted wrongly, and nobody knows where the value ends. The connection is closed.
    pub(super) fn body(self, length: usize, noreply: bool) -> Result<(&'a [u8], usize), NoBody> {
        if length > self.limits.value_bytes {
            let reply = if length > SAID_BYTES_MAX {
                text::BAD_FORMAT
            } else {
                text::TOO_LARGE
            };
            return Err(NoBody::TooLarge(Failure {
                reply: unless(noreply, reply),
                consumed: self.consumed,
                swallow: length + 2,
                close: false,
            }));
        }
        let end = self.consumed + length;
        match self.input.get(end..end + 2) {
            Some(b"\r\n") => Ok((&self.input[self.consumed..end], end + 2)),
            Some(_) => Err(NoBody::Failed(Failure {
                reply: unless(noreply, text::BAD_DATA_CHUNK),
                consumed: self.input.len(),
                swallow: 0,
                close: true,
            })),
            None => Err(NoBody::Incomplete { needed: end + 2 }),
        }
    }

    fn get(self, with_cas: bool) -> Parsed<'a> {
        self.keys(self.arguments, with_cas, None)
    }

    fn gat(self, with_cas: bool) -> Parsed<'a> {
        let arguments = trim_start(self.arguments);
        let length = memchr::memchr(b' ', arguments).unwrap_or(arguments.len());
        let (exptime, keys) = arguments.split_at(length);
        if trim_start(keys).is_empty() {
            return self.fail(text::BAD_FORMAT);
        }
        match parse_i64(exptime) {
            Some(exptime) => self.keys(keys, with_cas, Some(exptime)),
            None => self.fail(text::BAD_EXPTIME),
        }
    }

    fn keys(self, keys: &'a [u8], with_cas: bool, touch: Option<i64>) -> Parsed<'a> {
        if trim_start(keys).is_empty() {
            return self.fail(text::BAD_FORMAT);
        }
        match Keys::parse(keys) {
            Some(keys) => self.complete(Command::Get(Get {
                keys,
                with_cas,
                touch,
                part: Part::Whole,
            })),
            None => self.fail(text::BAD_FORMAT),
        }
    }

    fn store(self, verb: Verb) -> Parsed<'a> {
        let words = StoreWords::new(self.arguments, verb == Verb::Cas(0));
        if !words.are_counted() {
            return self.fail_with_body(text::BAD_FORMAT, words.refused_length());
        }
        let [key, flags, exptime, length, cas, ..] = words.words.items;
        let noreply = words.words.noreply();
        let bad = || self.fail_with_body(unless(noreply, text::BAD_FORMAT), words.refused_length());
        let (true, Some(flags), Some(exptime), BodyLength::Known(length)) = (
            is_key(key),
            parse_u32(flags),
            parse_i64(exptime),
            BodyLength::parse(length),
        ) else {
            return bad();
        };
        let verb = match (verb, parse_u64(cas)) {
            (Verb::Cas(_), Some(token)) => Verb::Cas(token),
            (Verb::Cas(_), None) => return bad(),
            _ => verb,
        };
        let (value, consumed) = match self.body(length, noreply) {
            Ok(body) => body,
            Err(reason) => return reason.parsed(MetaKey::plain(key)),
        };
        let store = Store {
            verb,
            key,
            flags,
            exptime,
            value,
            noreply,
        };
        Parsed::Complete {
            command: Command::Store(store),
            consumed,
        }
    }

    fn arithmetic(self, direction: Direction) -> Parsed<'a> {
        let words = Words::new(self.arguments);
        let [key, delta, ..] = words.items;
        let noreply = words.noreply();
        if words.count < 2 || !is_key(key) {
            return self.fail(unless(noreply, text::BAD_FORMAT));
        }
        match parse_digits(delta) {
            Some(delta) => self.complete(Command::Arithmetic(Arithmetic {
                key,
                direction,
                delta,
                noreply,
            })),
            None => self.fail(unless(noreply, text::BAD_DELTA)),
        }
    }

    fn touch(self) -> Parsed<'a> {
        let words = Words::new(self.arguments);
        let [key, exptime, ..] = words.items;
        let noreply = words.noreply();
        if words.count < 2 || !is_key(key) {
            return self.fail(unless(noreply, text::BAD_FORMAT));
        }
        match parse_i64(exptime) {
            Some(exptime) => self.complete(Command::Touch(Touch { key, exptime, noreply })),
            None => self.fail(unless(noreply, text::BAD_EXPTIME)),
        }
    }

    /// `delete <key> [noreply]`. A delay could be given once, and old clients still send a zero.
    fn delete(self) -> Parsed<'a> {
        let words = Words::new(self.arguments);
        let key = words.items[0];
        let noreply = words.count > 1 && words.noreply();
        if words.count > 1 && is_http_request(self.arguments) {
            return close(b"", self.input.len());
        }
        if !is_key(key) {
            return self.fail(unless(noreply, text::BAD_FORMAT));
        }
        self.complete(Command::Delete(Delete { key, noreply }))
    }

    fn flush_all(self) -> Parsed<'a> {
        let words = Words::new(self.arguments);
        let noreply = words.noreply();
        let delay = if words.count > usize::from(noreply) {
            parse_i64(words.items[0])
        } else {
            Some(0)
        };
        match delay {
            Some(delay) => self.complete(Command::FlushAll(FlushAll { delay, noreply })),
            None => self.fail(unless(noreply, text::BAD_EXPTIME)),
        }
    }

    fn verbosity(self) -> Parsed<'a> {
        let words = Words::new(self.arguments);
        let noreply = words.noreply();
        match parse_u32(words.items[0]) {
            Some(level) => self.complete(Command::Verbosity(Verbosity { level, noreply })),
            None => self.fail(unless(noreply, text::BAD_FORMAT)),
        }
    }
}
