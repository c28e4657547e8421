//! Commands and replies as lines of text.
//!
//! ```text
//! == title of a case     every case begins on new connections to empty databases
//! SET a "x y" => +OK     a command, and the reply to it
//! 2: GET a => "x y"      the same for a second client
//! QUIT => +OK closed     the server closes the connection behind the reply
//! ```
//!
//! Replies: `+simple`, `-error to the line's end`, `-"error"`, `:1`, `:1..9` (any of these), `"bulk"`, `txt"verbatim"`,
//! `nil`, `nil*` (no array, in RESP2), `[array]`, `{map}`, `~[set]`. Types that RESP2 lacks stand for those that Redis
//! uses instead there. Within quotes `\r`, `\n`, `\t`, `\"`, `\\` and `\xHH` are bytes.

/// A case: commands in order.
pub(crate) struct Case {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

/// A command and its reply.
pub(crate) struct Step {
    pub(crate) line: String,
    /// From 1.
    pub(crate) client: usize,
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) reply: Reply,
    pub(crate) closes: bool,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(Vec<u8>),
    Integer(i64, i64),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Null,
    NullArray,
    Array(Vec<Self>),
    Map(Vec<Self>),
    Set(Vec<Self>),
}

/// A version of RESP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Resp {
    Two,
    Three,
}

impl Reply {
    /// Whether these bytes are this reply.
    pub(crate) fn is(&self, bytes: &[u8], resp: Resp) -> bool {
        if let Self::Integer(from, to) = self {
            let text = str::from_utf8(bytes).unwrap_or_default();
            let number = text.strip_prefix(':').and_then(|text| text.strip_suffix("\r\n"));
            return number
                .and_then(|number| number.parse().ok())
                .is_some_and(|number| (*from..=*to).contains(&number));
        }
        self.bytes(resp) == bytes
    }

    /// Whether there is only one such reply.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self, Self::Integer(from, to) if from != to)
    }

    /// Whether it is an error of this code.
    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error(text) if text.starts_with(code.as_bytes()))
    }

    /// The reply as it is sent.
    pub(crate) fn bytes(&self, resp: Resp) -> Vec<u8> {
        let line = |kind: &str, text: &[u8]| [kind.as_bytes(), text, b"\r\n"].concat();
        let text = |kind: &str, text: &[u8]| [&line(kind, text.len().to_string().as_bytes()), text, b"\r\n"].concat();
        let list = |kind: &str, length: usize, elements: &[Self]| {
            let mut bytes = line(kind, length.to_string().as_bytes());
            elements.iter().for_each(|element| bytes.extend(element.bytes(resp)));
            bytes
        };
        match (self, resp) {
            (Self::Simple(word), _) => line("+", word.as_bytes()),
            (Self::Error(message), _) => line("-", message),
            (Self::Integer(number, _), _) => line(":", number.to_string().as_bytes()),
            (Self::Bulk(bytes), _) | (Self::Verbatim(bytes), Resp::Two) => text("$", bytes),
            (Self::Verbatim(bytes), Resp::Three) => text("=", &[b"txt:", &bytes[..]].concat()),
            (Self::Null, Resp::Two) => b"$-1\r\n".to_vec(),
            (Self::NullArray, Resp::Two) => b"*-1\r\n".to_vec(),
            (Self::Null | Self::NullArray, Resp::Three) => b"_\r\n".to_vec(),
            (Self::Map(elements), Resp::Three) => list("%", elements.len() / 2, elements),
            (Self::Set(elements), Resp::Three) => list("~", elements.len(), elements),
            (Self::Array(elements) | Self::Map(elements) | Self::Set(elements), _) => {
                list("*", elements.len(), elements)
            }
        }
    }
}

/// Reads cases.
pub(crate) fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("== ") {
            Some(title) => cases.push(Case {
                title: title.to_owned(),
                steps: Vec::new(),
            }),
            None => cases.last_mut().unwrap().steps.push(step(line)),
        }
    }
    cases
}

fn step(line: &str) -> Step {
    let (command, reply) = line.split_once(" => ").unwrap_or_else(|| panic!("no reply: {line}"));
    let (client, command) = match command.split_once(": ") {
        Some((number, command)) if number.len() == 1 => (number.parse().unwrap(), command),
        _ => (1, command),
    };
    let (reply, closes) = reply
        .strip_suffix(" closed")
        .map_or((reply, false), |reply| (reply, true));
    let mut scanner = Scanner { rest: reply, line };
    let step = Step {
        line: line.to_owned(),
        client,
        words: words(command),
        reply: scanner.reply(true),
        closes,
    };
    assert!(scanner.rest.is_empty(), "{line}");
    step
}

/// The words of a command.
pub(crate) fn words(command: &str) -> Vec<Vec<u8>> {
    let mut scanner = Scanner {
        rest: command,
        line: command,
    };
    let mut words = Vec::new();
    while !scanner.rest.is_empty() {
        words.push(match scanner.rest.strip_prefix('"') {
            Some(rest) => {
                scanner.rest = rest;
                scanner.quoted()
            }
            None => scanner.until(" ").as_bytes().to_vec(),
        });
        scanner.rest = scanner.rest.trim_start();
    }
    words
}

struct Scanner<'a> {
    rest: &'a str,
    line: &'a str,
}

impl<'a> Scanner<'a> {
    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The text before one of some characters, or before the end.
    fn until(&mut self, ends: &str) -> &'a str {
        let end = self.rest.find(|c| ends.contains(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// The text before the closing quote.
    fn quoted(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(self.until("\\\"").as_bytes());
            if self.take("\"") {
                return bytes;
            }
            assert!(self.take("\\"), "a quote does not end: {}", self.line);
            let (escape, rest) = self.rest.split_at(1);
            self.rest = rest;
            bytes.push(match escape {
                "r" => b'\r',
                "n" => b'\n',
                "t" => b'\t',
                "x" => {
                    let (hex, rest) = self.rest.split_at(2);
                    self.rest = rest;
                    u8::from_str_radix(hex, 16).unwrap()
                }
                other => other.as_bytes()[0],
            });
        }
    }

    fn reply(&mut self, is_outermost: bool) -> Reply {
        for (begin, end, make) in [
            ("[", "]", Reply::Array as fn(_) -> _),
            ("{", "}", Reply::Map),
            ("~[", "]", Reply::Set),
        ] {
            if self.take(begin) {
                let mut elements = Vec::new();
                while !self.take(end) {
                    elements.push(self.reply(false));
                    self.rest = self.rest.trim_start();
                }
                return make(elements);
            }
        }
        match () {
            () if self.take("-\"") => Reply::Error(self.quoted()),
            () if is_outermost && self.take("-") => Reply::Error(std::mem::take(&mut self.rest).as_bytes().to_vec()),
            () if self.take("txt\"") => Reply::Verbatim(self.quoted()),
            () if self.take("\"") => Reply::Bulk(self.quoted()),
            () if self.take("nil*") => Reply::NullArray,
            () if self.take("nil") => Reply::Null,
            () if self.take("+") => Reply::Simple(self.until(" ]}").to_owned()),
            () if self.take(":") => {
                let numbers = self.until(" ]}");
                let (from, to) = numbers.split_once("..").unwrap_or((numbers, numbers));
                Reply::Integer(from.parse().unwrap(), to.parse().unwrap())
            }
            () => panic!("no reply at `{}`: {}", self.rest, self.line),
        }
    }
}

#[test]
fn lines_are_read_as_they_are_written() {
    let cases = parse("# x\n== a\n2: SET \"a\\x00\\\"\" b => +OK closed\nx => [:1 {\"k\" nil*} ~[-\"E x\"] :2..5]\n");
    let [first, second] = &cases[0].steps[..] else { panic!() };
    assert_eq!(
        (first.client, first.closes, &first.reply),
        (2, true, &Reply::Simple("OK".into()))
    );
    assert_eq!(first.words, [&b"SET"[..], b"a\0\"", b"b"]);
    let bytes = |resp| String::from_utf8(second.reply.bytes(resp)).unwrap();
    assert_eq!(
        bytes(Resp::Two),
        "*4\r\n:1\r\n*2\r\n$1\r\nk\r\n*-1\r\n*1\r\n-E x\r\n:2\r\n"
    );
    assert_eq!(
        bytes(Resp::Three),
        "*4\r\n:1\r\n%1\r\n$1\r\nk\r\n_\r\n~1\r\n-E x\r\n:2\r\n"
    );
    assert!(Reply::Integer(2, 5).is(b":5\r\n", Resp::Two) && !Reply::Integer(2, 5).is(b":6\r\n", Resp::Two));
}
