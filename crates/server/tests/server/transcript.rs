//! Sessions with the server as text, and playing them.
//!
//! ```text
//! # a comment
//! == title of a case
//! > set k 0 0 1          a line that client 1 sends; the line end is added
//! > a
//! < STORED               a line of the reply, which must be all that comes
//! 2> gets k              the same for client 2 (and 3, ...)
//! 2< VALUE k 0 1 <token>
//! 2< a
//! 2< END
//! ~> get k               is sent again and again until the reply is the one that follows
//! ~< END
//! closed                 the server closes the connection after the reply
//! ```
//!
//! In lines, `\r`, `\n`, `\t`, `\\` and `\xNN` are bytes, and `\` at the end leaves the line end out. `{text*n}` is the
//! text n times. `<name>` is a number: in a reply, its first use says which, and different names are different numbers.
//! `<*>` is any text without a space.

use std::collections::HashMap;

/// A case of a transcript.
pub(crate) struct Case {
    pub(crate) title: String,
    pub(crate) exchanges: Vec<Exchange>,
}

/// Requests of one client and their replies.
pub(crate) struct Exchange {
    pub(crate) line: usize,
    /// From 1.
    pub(crate) client: usize,
    /// Asked until the reply is right.
    pub(crate) is_polled: bool,
    pub(crate) request: Text,
    pub(crate) reply: Text,
    pub(crate) closes: bool,
}

/// Bytes with gaps.
#[derive(Clone, Default)]
pub(crate) struct Text(Vec<Part>);

#[derive(Clone)]
enum Part {
    Bytes(Vec<u8>),
    /// With its case's title before it: a name means the same within a case only.
    Name(String),
    Any,
}

impl FromIterator<Text> for Text {
    fn from_iter<T: IntoIterator<Item = Text>>(texts: T) -> Self {
        Self(texts.into_iter().flat_map(|text| text.0).collect())
    }
}

/// The values of names.
#[derive(Clone, Default)]
pub(crate) struct Names(HashMap<String, Vec<u8>>);

/// Reads a transcript.
pub(crate) fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case {
                title: title.into(),
                exchanges: Vec::new(),
            });
        } else if !line.is_empty() && !line.starts_with('#') {
            let case = cases
                .last_mut()
                .unwrap_or_else(|| panic!("line {number}: no case has begun"));
            add_line(case, number, line);
        }
    }
    assert!(
        cases.iter().all(|case| !case.exchanges.is_empty()),
        "a case without lines"
    );
    cases
}

fn add_line(case: &mut Case, number: usize, line: &str) {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let client = if digits == 0 {
        1
    } else {
        line[..digits].parse().unwrap()
    };
    let rest = &line[digits..];
    let (is_polled, rest) = rest.strip_prefix('~').map_or((false, rest), |rest| (true, rest));
    if let Some(sent) = rest.strip_prefix('>') {
        let goes_on = case.exchanges.last().is_some_and(|last| {
            last.client == client && !last.is_polled && !is_polled && last.reply.0.is_empty() && !last.closes
        });
        if !goes_on {
            let (request, reply) = (Text::default(), Text::default());
            case.exchanges.push(Exchange {
                line: number,
                client,
                is_polled,
                request,
                reply,
                closes: false,
            });
        }
        case.exchanges.last_mut().unwrap().request.add_line(sent, &case.title);
        return;
    }
    let last = case
        .exchanges
        .last_mut()
        .unwrap_or_else(|| panic!("line {number}: nothing was asked"));
    assert_eq!(last.client, client, "line {number}: another client asked");
    if rest == "closed" {
        last.closes = true;
    } else if let Some(reply) = rest.strip_prefix('<') {
        assert_eq!(last.is_polled, is_polled, "line {number}");
        last.reply.add_line(reply, &case.title);
    } else {
        panic!("line {number}: `{line}`");
    }
}

impl Text {
    /// Adds a line as it is written in a transcript, behind its mark.
    fn add_line(&mut self, written: &str, title: &str) {
        let mut rest = written.strip_prefix(' ').unwrap_or(written);
        let mut bytes = Vec::new();
        let mut ends = true;
        while let Some(at) = rest.find(['\\', '{', '<']) {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            let sign = &rest[at..];
            rest = match sign.as_bytes()[0] {
                b'\\' if sign.len() == 1 => {
                    ends = false;
                    ""
                }
                b'\\' => escaped(sign, &mut bytes),
                b'{' => repeated(sign, &mut bytes),
                _ => {
                    self.0.push(Part::Bytes(std::mem::take(&mut bytes)));
                    let (name, behind) = sign[1..].split_once('>').unwrap_or_else(|| panic!("`{written}`"));
                    self.0.push(if name == "*" {
                        Part::Any
                    } else {
                        Part::Name(format!("{title}: {name}"))
                    });
                    behind
                }
            };
        }
        bytes.extend_from_slice(rest.as_bytes());
        bytes.extend_from_slice(if ends { b"\r\n" } else { b"" });
        self.0.push(Part::Bytes(bytes));
    }

    /// Whether it has gaps.
    pub(crate) fn has_names(&self) -> bool {
        self.0.iter().any(|part| !matches!(part, Part::Bytes(_)))
    }

    /// The bytes, with names replaced by their values.
    pub(crate) fn bytes(&self, names: &Names) -> Vec<u8> {
        let bytes = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.clone(),
            Part::Name(name) => names
                .0
                .get(name)
                .unwrap_or_else(|| panic!("<{name}> was not seen yet"))
                .clone(),
            Part::Any => panic!("a request can not be just anything"),
        };
        self.0.iter().flat_map(bytes).collect()
    }

    /// Whether these bytes are the text; learns what names stand for.
    pub(crate) fn matches(&self, mut bytes: &[u8], names: &mut Names) -> bool {
        let mut learnt = names.clone();
        for part in &self.0 {
            let taken = match part {
                Part::Bytes(expected) if bytes.starts_with(expected) => expected.len(),
                Part::Bytes(_) => return false,
                Part::Any => bytes.iter().take_while(|b| !b.is_ascii_whitespace()).count(),
                Part::Name(name) => {
                    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
                    if digits == 0 || !learnt.is(name, &bytes[..digits]) {
                        return false;
                    }
                    digits
                }
            };
            bytes = &bytes[taken..];
        }
        let all = bytes.is_empty();
        if all {
            *names = learnt;
        }
        all
    }

    /// How often `needle` is in the text.
    pub(crate) fn count(&self, needle: &[u8]) -> usize {
        let count = |part: &Part| {
            if let Part::Bytes(bytes) = part {
                count(bytes, needle)
            } else {
                0
            }
        };
        self.0.iter().map(count).sum()
    }

    /// The text for a message.
    pub(crate) fn shown(&self) -> String {
        let shown = |part: &Part| match part {
            Part::Bytes(bytes) => show(bytes),
            Part::Name(name) => format!("<{name}>"),
            Part::Any => "<*>".into(),
        };
        self.0.iter().map(shown).collect()
    }
}

impl Names {
    /// Whether a name stands for this number, or can from now on.
    fn is(&mut self, name: &str, number: &[u8]) -> bool {
        if let Some(known) = self.0.get(name) {
            return known == number;
        }
        let is_new = self.0.values().all(|known| known != number);
        if is_new {
            self.0.insert(name.into(), number.into());
        }
        is_new
    }
}

/// How often one text is in another.
pub(crate) fn count(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).filter(|window| *window == needle).count()
}

/// Bytes for a message, shortened.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 400;
    let shown = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii();
    let more = bytes.len().saturating_sub(SHOWN_BYTES);
    if more > 0 {
        format!("{shown}...({more} more)")
    } else {
        shown.to_string()
    }
}

/// Reads an escape that begins with a backslash and returns the rest behind it.
fn escaped<'a>(sign: &'a str, bytes: &mut Vec<u8>) -> &'a str {
    let (byte, length) = match sign.as_bytes()[1] {
        b'r' => (b'\r', 2),
        b'n' => (b'\n', 2),
        b't' => (b'\t', 2),
        b'\\' => (b'\\', 2),
        b'x' => (u8::from_str_radix(&sign[2..4], 16).unwrap(), 4),
        _ => panic!("`{sign}`"),
    };
    bytes.push(byte);
    &sign[length..]
}

/// Reads `{text*n}` and returns the rest behind it.
fn repeated<'a>(sign: &'a str, bytes: &mut Vec<u8>) -> &'a str {
    let (inside, behind) = sign[1..].split_once('}').unwrap_or_else(|| panic!("`{sign}`"));
    let (text, times) = inside.rsplit_once('*').unwrap_or_else(|| panic!("`{sign}`"));
    bytes.extend_from_slice(text.repeat(times.parse().unwrap()).as_bytes());
    behind
}

#[test]
fn lines_are_read_as_they_are_written() {
    let cases = parse("# x\n== a\n> set {k*3} \\x80\\r\\\n> b\n< HD c<one>\n2> c\n2closed\n== b\n~> d\n~< <*> e\n");
    let titles: Vec<&str> = cases.iter().map(|case| &*case.title).collect();
    assert_eq!(titles, ["a", "b"]);
    let [first, second] = &cases[0].exchanges[..] else {
        panic!()
    };
    assert_eq!(first.request.bytes(&Names::default()), b"set kkk \x80\rb\r\n");
    assert_eq!(
        (first.client, second.client, first.closes, second.closes),
        (1, 2, false, true)
    );
    assert!(cases[1].exchanges[0].is_polled);
    let mut names = Names::default();
    for (bytes, fits) in [
        (&b"HD c7\r\n"[..], true),
        (b"HD c8\r\n", false),
        (b"HD c7\r\nx", false),
        (b"HD c7", false),
        (b"HD c\r\n", false),
    ] {
        assert_eq!(first.reply.matches(bytes, &mut names), fits, "{}", show(bytes));
    }
    let other = &parse("== c\n> x\n< HD c<two>\n")[0].exchanges[0].reply;
    assert!(
        !other.matches(b"HD c7\r\n", &mut names),
        "different names are different numbers"
    );
    assert!(other.matches(b"HD c8\r\n", &mut names));
}
