//! No byte of a value is ever read as a command, however wrong the line before it is.
//!
//! A client sends a storage command whose value is itself commands, then `mn`. Whatever the line lacks or has too much
//! of, the parser begins a command at the line and at the `mn`, and nowhere between: else the connection is closed. It
//! stays open if the words up to the length are in their places.

use tidemark_protocol::may_end_line;
use tidemark_protocol::memcached::{self, Parsed};
use tidemark_protocol::resp::{self, ArgList, Discarded};

use crate::fuzz::{Random, fuzz_made};

/// How a connection went on through a stream.
#[derive(Debug, Default, PartialEq)]
struct Course {
    /// The offsets at which something was read as a command.
    begins: Vec<usize>,
    is_closed: bool,
}

/// Goes through memcached's commands as a connection does.
fn memcached_course(stream: &[u8], limits: &memcached::Limits) -> Course {
    let mut course = Course::default();
    let mut at = 0;
    let mut open: Option<memcached::OpenGet> = None;
    while at < stream.len() && !course.is_closed {
        let parsed = match open.take() {
            Some(open) => memcached::parse_keys(&stream[at..], &open),
            None => {
                course.begins.push(at);
                memcached::parse(&stream[at..], limits)
            }
        };
        match parsed {
            Parsed::Complete { command, consumed } => {
                if let memcached::Command::Get(get) = command {
                    let (with_cas, touch) = (get.with_cas, get.touch);
                    open = get.part.is_followed().then_some(memcached::OpenGet { with_cas, touch });
                }
                at += consumed;
            }
            Parsed::Incomplete { .. } => return course,
            Parsed::Failed(failure) | Parsed::TooLarge { failure, .. } => {
                at += failure.consumed;
                let rest = stream.get(at..).unwrap_or_default();
                course.is_closed = failure.close || !may_end_line(rest, failure.swallow);
                at = at.saturating_add(failure.swallow);
            }
        }
    }
    course
}

/// The same of RESP's.
fn resp_course(stream: &[u8], limits: &resp::Limits) -> Course {
    let mut list = ArgList::new();
    let mut course = Course::default();
    let mut at = 0;
    while at < stream.len() && !course.is_closed {
        course.begins.push(at);
        match resp::parse(&stream[at..], limits, &mut list) {
            resp::Parsed::Complete { consumed } | resp::Parsed::Nothing { consumed } => at += consumed,
            resp::Parsed::Incomplete { .. } => return course,
            resp::Parsed::Failed(_) => course.is_closed = true,
            resp::Parsed::Refused { consumed, mut rest, .. } => {
                at += consumed;
                match rest.feed(&stream[at..]) {
                    Discarded::Done { consumed } => at += consumed,
                    Discarded::More { .. } => return course,
                    Discarded::Failed(_) => course.is_closed = true,
                }
            }
        }
    }
    course
}

/// The storage commands beside `ms`.
const NAMES: &[&[u8]] = &[b"set", b"add", b"cas", b"append", b"prepend", b"replace"];

/// The pieces that values are made of.
const PIECES: &[&[u8]] = &[
    b"flush_all\r\n",
    b"FLUSHALL\r\n",
    b"*1\r\n$8\r\nFLUSHALL\r\n",
    b"set k 0 0 1\r\nx\r\n",
    b"mn\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"x",
    b"xyz",
];

fn value(random: &mut Random) -> Vec<u8> {
    (0..random.below(6))
        .flat_map(|_| random.pick(PIECES).to_vec())
        .collect()
}

/// A storage command's line without its end, and whether each word up to the length is at its place.
fn line(random: &mut Random, length: usize) -> (Vec<u8>, bool) {
    let is_meta = random.below(4) == 0;
    let mut name = match is_meta {
        true => b"ms".to_vec(),
        false => random.pick(NAMES).to_vec(),
    };
    let has_token = name == b"cas";
    if random.below(10) == 0 {
        name.make_ascii_uppercase();
    }
    let long = [b'k'; 251];
    let (key, is_placed): (&[u8], bool) = match random.below(8) {
        0 => (b"a b", false),
        1 => (b"a 5", false),
        2 => (b"a 5 5", false),
        3 => (b"", false),
        4 => (b"a\tb", true),
        5 => (&long, true),
        _ => (b"key", true),
    };
    let length = format!("{}{length}", random.pick(&["", "", "", "+", "0"]));
    let mut words = vec![key, length.as_bytes()];
    if is_meta {
        let flags: &[&[u8]] = &[b"T0", b"q", b"S5", b"Z", b"MS", b"F", b"b", b"c"];
        words.extend((0..random.below(4)).map(|_| random.pick(flags)));
    } else {
        let others: &[&[u8]] = &[b"noreply", b"noreply", b"x", b"y1"];
        let others: Vec<&[u8]> = (0..random.below(5).saturating_sub(1))
            .map(|_| random.pick(others))
            .collect();
        // With more words than there can be, wrong numbers say that the words may be at other places.
        let numbers: &[&[u8]] = match others[..] {
            [] | [b"noreply"] => &[b"0", b"0", b"7", b"-1", b"x", b"4294967296", b"99999999999999999999"],
            _ => &[b"0", b"7"],
        };
        words.splice(1..1, [random.pick(numbers), random.pick(numbers)]);
        // Without it and with another word in its place, there is none too many.
        if has_token && (random.below(4) > 0 || others.len() == 1 || !is_placed) {
            words.push(b"7");
        }
        words.extend(others);
    }
    ([&name[..], &words.join(&b' ')].join(&b' '), is_placed)
}

#[test]
fn no_byte_of_a_memcached_value_is_a_command() {
    let make = |random: &mut Random| {
        let value = value(random);
        let (line, is_placed) = line(random, value.len());
        [
            &[u8::from(is_placed), line.len() as u8, (line.len() >> 8) as u8],
            &line[..],
            b"\r\n",
            &value,
            b"\r\nmn\r\n",
        ]
        .concat()
    };
    fuzz_made("values of memcached", make, |random, made| {
        let (is_placed, stream) = (made[0] == 1, &made[3..]);
        let line_bytes = usize::from(u16::from_le_bytes([made[1], made[2]]));
        let limits = memcached::Limits {
            value_bytes: [4, 1000][random.below(2)],
            ..memcached::Limits::default()
        };
        let course = memcached_course(stream, &limits);
        let end = stream.len() - b"mn\r\n".len();
        let within = course.begins.iter().find(|at| (line_bytes + 2..end).contains(at));
        // The line is read, and is not the first of the value's.
        assert_eq!(course.begins.first(), Some(&0));
        assert_eq!(within, None, "a command begins within the value: {course:?}");
        assert!(
            !is_placed || course.begins == [0, end],
            "the length could be read: {course:?}"
        );
    });
}

#[test]
fn no_byte_of_a_redis_value_is_a_command() {
    let make = |random: &mut Random| {
        let value = value(random);
        // One in three says too much or too little.
        let said = match random.below(6) {
            0 => value.len() + 1 + random.below(3),
            1 => value.len().saturating_sub(1 + random.below(3)),
            _ => value.len(),
        };
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${said}\r\n");
        [
            &[head.len() as u8],
            head.as_bytes(),
            &value,
            b"\r\n*1\r\n$4\r\nPING\r\n",
        ]
        .concat()
    };
    fuzz_made("values of redis", make, |random, made| {
        let (head_bytes, stream) = (usize::from(made[0]), &made[1..]);
        let limits = resp::Limits {
            bulk_bytes: [4, 1000][random.below(2)],
            ..resp::Limits::with_value_bytes(1000)
        };
        let end = stream.len() - b"*1\r\n$4\r\nPING\r\n".len();
        let head = str::from_utf8(&stream[..head_bytes]).unwrap();
        let said: usize = head.rsplit('$').next().unwrap().trim_end().parse().unwrap();
        let course = resp_course(stream, &limits);
        if head_bytes + said + 2 == end {
            assert_eq!(
                course,
                Course {
                    begins: vec![0, end],
                    is_closed: false
                }
            );
        } else if stream.get(head_bytes + said..head_bytes + said + 2) != Some(b"\r\n") {
            // Closed, or waiting for more.
            assert_eq!(course.begins, [0], "{course:?}");
        }
    });
}

#[test]
fn what_ends_with_a_line_end_may_come_in_pieces() {
    for (bytes, left, may) in [
        (&b""[..], 5, true),
        (b"abc", 5, true),
        (b"abc\r", 5, true),
        (b"abc\r\nx", 5, true),
        (b"abcd", 5, false),
        (b"abc\rx", 5, false),
        (b"\n", 1, true),
        (b"x", 1, false),
        (b"x", 0, true),
    ] {
        assert_eq!(may_end_line(bytes, left), may, "{} of {left}", bytes.escape_ascii());
    }
}
