//! Random inputs, most of them near valid ones: commands mutated, spliced, cut and repeated, and plain noise.
//!
//! For every input, nothing panics, and the consumed bytes are within it. An answer stays the same whatever follows.
//! `incomplete` means that nothing shorter than the needed length answers anything else, and that some bytes do end the
//! command. An error is one short line. memcached's fast paths must agree with the line parser, and the RESP parser
//! with a slow second one.
//!
//! `TIDEMARK_FUZZ_SEED` sets the seed, `TIDEMARK_FUZZ_RUNS` the number of inputs per parser.

use tidemark_protocol::memcached::{self, Parsed};
use tidemark_protocol::resp::{self, ArgList};

use crate::describe;
use crate::split::{Answer, Kind, MEMCACHED, RESP, RESP_LIMITS, ask_memcached, ask_resp};

/// Inputs per parser: about a second each.
const RUNS: u64 = 300_000;
/// No answer's error is longer, in bytes.
const ERROR_BYTES_MAX: usize = 512;

/// Random numbers from a seed (xorshift, 64 bits).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn pick<'t, T: ?Sized>(&mut self, items: &[&'t T]) -> &'t T {
        items[self.below(items.len())]
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Tokens that tend to decide something.
const TOKENS: &[&[u8]] = &[
    b" ",
    b"  ",
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\t",
    b"\x7f",
    b"\x80",
    b"*",
    b"$",
    b"*2\r\n",
    b"$3\r\n",
    b"$0\r\n\r\n",
    b"-1",
    b"0",
    b"01",
    b"1",
    b"10",
    b"2147483647",
    b"4294967296",
    b"18446744073709551616",
    b"noreply",
    b"get ",
    b"set ",
    b"ms ",
    b"b",
    b"F",
    b"T1",
    b"O1",
    b"q",
    b"\"",
    b"'",
    b"\\x4",
    b"kkkkkkkkkkkkkkkk",
];

/// One input: something of the corpus, changed.
fn make_input(random: &mut Random, corpus: &[&[u8]]) -> Vec<u8> {
    if random.below(20) == 0 {
        return (0..random.below(64)).map(|_| random.next() as u8).collect();
    }
    let mut input = random.pick(corpus).to_vec();
    for _ in 0..random.below(5) {
        mutate(random, corpus, &mut input);
    }
    input.truncate(6000);
    input
}

fn mutate(random: &mut Random, corpus: &[&[u8]], input: &mut Vec<u8>) {
    let at = random.below(input.len() + 1);
    let to = (at + 1 + random.below(8)).min(input.len());
    match random.below(9) {
        0 if at < input.len() => input[at] = random.next() as u8,
        1 if at < input.len() => input[at] ^= 1 << random.below(8),
        2 => input.truncate(at),
        3 => drop(input.drain(at.min(to)..to)),
        4 => {
            let token = random.pick(TOKENS);
            input.splice(at..at, token.iter().copied());
        }
        5 => {
            let token = random.pick(TOKENS);
            input.splice(at.min(to)..to, token.iter().copied());
        }
        6 => {
            let other = random.pick(corpus);
            let from = random.below(other.len());
            input.splice(at.., other[from..].iter().copied());
        }
        7 => {
            let copy = input[at.min(to)..to].to_vec();
            let times = 1 + random.below(40);
            input.splice(at..at, copy.repeat(times));
        }
        _ => {
            let other = random.pick(corpus);
            input.extend_from_slice(other);
        }
    }
}

/// Runs one law on many inputs that are like those of a corpus.
fn fuzz(name: &str, corpus: &[&[u8]], law: impl Fn(&mut Random, &[u8])) {
    fuzz_made(name, |random| make_input(random, corpus), law);
}

/// Runs one law on many inputs; a panic says how to see it again.
#[expect(clippy::print_stdout, reason = "who sees a failure needs the seed")]
pub(crate) fn fuzz_made(name: &str, make: impl Fn(&mut Random) -> Vec<u8>, law: impl Fn(&mut Random, &[u8])) {
    let seed = from_environment("TIDEMARK_FUZZ_SEED").unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap_or_default().as_nanos() as u64 | 1
    });
    let runs = from_environment("TIDEMARK_FUZZ_RUNS").unwrap_or(RUNS);
    println!("{name}: {runs} inputs, TIDEMARK_FUZZ_SEED={seed}");
    let mut random = Random(seed.max(1));
    for run in 0..runs {
        let input = make(&mut random);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| law(&mut random, &input)));
        if outcome.is_err() {
            panic!(
                "{name}: input {run} of TIDEMARK_FUZZ_SEED={seed}: b\"{}\"",
                input.escape_ascii()
            );
        }
    }
}

/// The laws that hold for both parsers. `endings` are bytes of which some must lead an incomplete command to its end.
fn check(ask: fn(&[u8]) -> Answer, random: &mut Random, input: &[u8], endings: &[&[u8]]) {
    let answer = ask(input);
    match answer.kind {
        Kind::Needs(needed) => {
            assert!(needed > input.len(), "needs {needed}");
            if needed - input.len() < 5000 {
                let noise = (input.len()..needed - 1).map(|_| random.next() as u8);
                let shorter: Vec<u8> = input.iter().copied().chain(noise).collect();
                let cut = input.len() + random.below(shorter.len() - input.len() + 1);
                for part in [&shorter[..], &shorter[..cut]] {
                    let early = !matches!(ask(part).kind, Kind::Needs(_));
                    assert!(!early, "answers before {needed}: {}", part.escape_ascii());
                }
                assert!(has_end(ask, input, endings), "nothing ends it");
            }
        }
        kind => {
            if let Kind::Taken(consumed) = kind {
                assert!(consumed > 0 && consumed <= input.len(), "took {consumed}");
            }
            let behind: Vec<u8> = (0..1 + random.below(12)).map(|_| random.next() as u8).collect();
            let longer = ask(&[input, &behind].concat());
            assert_eq!(longer.text, answer.text, "with {} behind", behind.escape_ascii());
            let is_error = answer.text.contains("ERR");
            assert!(!is_error || answer.text.len() <= ERROR_BYTES_MAX, "{}", answer.text);
        }
    }
}

/// Whether filling up to the needed length and one of the endings lead to an answer.
fn has_end(ask: fn(&[u8]) -> Answer, input: &[u8], endings: &[&[u8]]) -> bool {
    let mut all = input.to_vec();
    for _ in 0..400 {
        let Kind::Needs(needed) = ask(&all).kind else {
            return true;
        };
        // Bodies are ended by filling them; lines and lengths by their ends.
        let filled = [&all[..], &b"x".repeat(needed.saturating_sub(all.len() + 2)), b"\r\n"].concat();
        if endings
            .iter()
            .any(|ending| !matches!(ask(&[&all[..], ending].concat()).kind, Kind::Needs(_)))
        {
            return true;
        }
        let best = endings
            .iter()
            .map(|ending| [&all[..], ending].concat())
            .chain([filled])
            .min_by_key(|longer| match ask(longer).kind {
                Kind::Needs(needed) => needed - longer.len(),
                _ => 0,
            });
        all = best.unwrap_or_default();
    }
    false
}

#[test]
fn memcached_holds_its_laws() {
    fuzz("memcached", MEMCACHED, |random, input| {
        check(ask_memcached, random, input, &[b"\n", b"\r\n"]);
        fast_paths_agree(input);
    });
}

/// A space before a command changes nothing but keeps it off the fast paths.
fn fast_paths_agree(input: &[u8]) {
    let limits = memcached::Limits {
        value_bytes: 1000,
        long_key_lines: true,
    };
    let fast = memcached::parse(input, &limits);
    let spaced = [b" ", input].concat();
    // From the limit of a line on one byte more moves the parts of the line, and the binary protocol has no spaces.
    let line = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    if input.first() == Some(&0x80) || line >= 2040 {
        return;
    }
    let earlier = |failure: memcached::Failure| memcached::Failure {
        consumed: failure.consumed - 1,
        ..failure
    };
    let slow = match memcached::parse(&spaced, &limits) {
        Parsed::Complete { command, consumed } => Parsed::Complete {
            command,
            consumed: consumed - 1,
        },
        Parsed::Incomplete { needed } => Parsed::Incomplete { needed: needed - 1 },
        Parsed::Failed(failure) => Parsed::Failed(earlier(failure)),
        Parsed::TooLarge { failure, key } => Parsed::TooLarge {
            failure: earlier(failure),
            key,
        },
    };
    assert_eq!(describe::memcached(&fast), describe::memcached(&slow));
}

#[test]
fn resp_holds_its_laws() {
    fuzz("resp", RESP, |random, input| {
        check(
            ask_resp,
            random,
            input,
            &[b"\r\n", b"0\r\n\r\n", b"$0\r\n\r\n", b"\n", b"\"\n", b"'\n"],
        );
        second_parser_agrees(input);
    });
}

/// Reads a request with nothing in mind but the rules.
struct SlowReader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> SlowReader<'a> {
    /// `<kind><number>\r` and one byte more; only the number's one right text counts.
    fn number(&mut self, kind: u8) -> Option<usize> {
        let rest = self.input.get(self.at..)?;
        let end = rest.iter().position(|byte| *byte == b'\r')?;
        let text = str::from_utf8(rest.get(1..end)?).ok()?;
        let number: usize = text.parse().ok()?;
        rest.get(end + 1)?;
        self.at += end + 2;
        (rest[0] == kind && number.to_string() == text).then_some(number)
    }

    /// An argument and the line end behind it.
    fn argument(&mut self) -> Option<&'a [u8]> {
        let length = self.number(b'$')?;
        let argument = self.input.get(self.at..self.at.checked_add(length)?)?;
        self.at += length + 2;
        let line_end = self.input.get(self.at - 2..self.at);
        (line_end == Some(b"\r\n") && length <= 1000).then_some(argument)
    }

    /// A whole array within the limits of `ask_resp`.
    fn request(&mut self) -> Option<Vec<&'a [u8]>> {
        let count = self.number(b'*').filter(|count| (1..=100).contains(count))?;
        let arguments: Option<Vec<_>> = (0..count).map(|_| self.argument()).collect();
        arguments.filter(|_| self.at <= 3000)
    }
}

fn second_parser_agrees(input: &[u8]) {
    if input.first() != Some(&b'*') {
        return;
    }
    let mut list = ArgList::new();
    let first = match resp::parse(input, &RESP_LIMITS, &mut list) {
        resp::Parsed::Complete { consumed } => Some((list.args(input).from(0).collect(), consumed)),
        _ => None,
    };
    let mut reader = SlowReader { input, at: 0 };
    let second = reader.request().map(|arguments| (arguments, reader.at));
    assert_eq!(first, second);
}
