//! memcached: the parse of each line.

use tidemark_protocol::memcached::{Command, LINE_BYTES_MAX, Limits, OpenGet, Parsed, Part, parse, parse_keys};

use crate::describe;

const LIMITS: Limits = Limits {
    value_bytes: 10,
    long_key_lines: true,
};

pub(crate) fn check(cases: &[(&str, &str)]) {
    for (input, expected) in cases {
        let parsed = parse(input.as_bytes(), &LIMITS);
        assert_eq!(describe::memcached(&parsed), *expected, "{input:?}");
    }
}

#[test]
fn reading_keys() {
    let long = "k".repeat(250);
    let too_long = "k".repeat(251);
    check(&[
        ("get a\r\n", "get a @7"),
        ("get a\n", "get a @6"),
        ("  get a\r\n", "get a @9"),
        ("get  a \r\n", "get a @9"),
        ("get a b  c\r\nget d\r\n", "get a b c @12"),
        ("get \u{e9}\r\n", "get \\xc3\\xa9 @8"),
        ("gets a b\r\n", "get a b cas @10"),
        ("gat 10 a\r\n", "get a touch=10 @10"),
        ("gat -1 a b\r\n", "get a b touch=-1 @12"),
        ("gats 0 a\r\n", "get a cas touch=0 @10"),
        (
            &format!("get {long}\r\n"),
            &format!("get {}..(250) @256", "k".repeat(60)),
        ),
        (
            &format!("get {too_long}\r\n"),
            "CLIENT_ERROR bad command line format @257",
        ),
        (
            &format!("get a {too_long}\r\n"),
            "CLIENT_ERROR bad command line format @259",
        ),
        (
            &format!("gat 0 {too_long}\r\n"),
            "CLIENT_ERROR bad command line format @259",
        ),
        ("get\r\n", "CLIENT_ERROR bad command line format @5"),
        ("get \r\n", "CLIENT_ERROR bad command line format @6"),
        ("gets\r\n", "CLIENT_ERROR bad command line format @6"),
        ("gat\r\n", "CLIENT_ERROR bad command line format @5"),
        ("gat 0\r\n", "CLIENT_ERROR bad command line format @7"),
        ("gat x a\r\n", "CLIENT_ERROR invalid exptime argument @9"),
        // A key holds nothing that a terminal or a log could stumble over.
        ("get a\tb\r\n", "CLIENT_ERROR bad command line format @9"),
        ("get \ta\r\n", "CLIENT_ERROR bad command line format @8"),
        ("get a\rb\r\n", "CLIENT_ERROR bad command line format @9"),
        ("get a\r\r\n", "CLIENT_ERROR bad command line format @8"),
        ("get a\0b\r\n", "CLIENT_ERROR bad command line format @9"),
        ("get a\x7fb\r\n", "CLIENT_ERROR bad command line format @9"),
        ("GET a\r\n", "ERROR @7"),
        ("getx a\r\n", "ERROR @8"),
        ("bget a\r\n", "ERROR @8"),
    ]);
}

#[test]
fn storing() {
    check(&[
        ("set a 1 2 3\r\nxyz\r\n", "Set a 1 2 [xyz] @18"),
        ("set a 1 2 3\nxyz\r\n", "Set a 1 2 [xyz] @17"),
        ("set a 0 0 0\r\n\r\n", "Set a 0 0 [] @15"),
        ("set a 0 0 4\r\na\r\nb\r\nget k\r\n", "Set a 0 0 [a\\r\\nb] @19"),
        ("set a 0 0 1 noreply\r\nx\r\n", "Set a 0 0 [x] noreply @24"),
        ("set a 0 0 1  noreply\r\nx\r\n", "Set a 0 0 [x] noreply @25"),
        ("set  a  0 0 1 \r\nx\r\n", "Set a 0 0 [x] @19"),
        // Anything else in noreply's place is ignored.
        ("set a 0 0 1 NOREPLY\r\nx\r\n", "Set a 0 0 [x] @24"),
        ("set a 4294967295 -1 1\r\nx\r\n", "Set a 4294967295 -1 [x] @26"),
        (
            "set a 0 9223372036854775807 1\r\nx\r\n",
            "Set a 0 9223372036854775807 [x] @34",
        ),
        ("set a +0 0 +01\r\nx\r\n", "Set a 0 0 [x] @19"),
        ("add a 0 0 1\r\nx\r\n", "Add a 0 0 [x] @16"),
        ("replace a 0 0 1\r\nx\r\n", "Replace a 0 0 [x] @20"),
        ("append a 0 0 1\r\nx\r\n", "Append a 0 0 [x] @19"),
        ("prepend a 0 0 1\r\nx\r\n", "Prepend a 0 0 [x] @20"),
        (
            "cas a 0 0 1 18446744073709551615\r\nx\r\n",
            "Cas(18446744073709551615) a 0 0 [x] @37",
        ),
        ("cas a 0 0 1 7 noreply\r\nx\r\n", "Cas(7) a 0 0 [x] noreply @26"),
        ("cas a 0 0 1 7 x\r\nx\r\n", "Cas(7) a 0 0 [x] @20"),
        // The first command of a connection may be a login; it is a set like any other.
        ("set auth 0 0 10\r\nshop sesam\r\n", "Set auth 0 0 [shop sesam] @29"),
    ]);
}

#[test]
fn refused_values_are_swallowed() {
    let too_long = "k".repeat(251);
    check(&[
        ("set a 0 0 1 noreply x\r\n", "incomplete 26"),
        (
            "cas a 0 0 1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @13 swallow 3",
        ),
        (
            "cas a 0 0 1 1 2 3\r\nx\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "set a x 0 1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @13 swallow 3",
        ),
        (
            "set a -1 0 1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @14 swallow 3",
        ),
        (
            "set a 4294967296 0 1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @22 swallow 3",
        ),
        (
            "set a 0 x 1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @13 swallow 3",
        ),
        (
            "set a 0 9223372036854775808 1\r\n",
            "CLIENT_ERROR bad command line format @31 swallow 3",
        ),
        (
            "set a\tb 0 0 1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @15 swallow 3",
        ),
        (
            &format!("set {too_long} 0 0 1\r\nx\r\n"),
            "CLIENT_ERROR bad command line format @263 swallow 3",
        ),
        (
            "cas a 0 0 1 x\r\nx\r\n",
            "CLIENT_ERROR bad command line format @15 swallow 3",
        ),
        (
            "cas a 0 0 1 -1\r\nx\r\n",
            "CLIENT_ERROR bad command line format @16 swallow 3",
        ),
        // A body of 9 bytes that is a command, behind words of which there are too many or too few.
        ("set a 0 0 9 x y\r\nflush_all\r\n", "Set a 0 0 [flush_all] @28"),
        (
            "add a 0 0 9 x y z 1 2 3\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "append a 0 0 9 noreply x\r\nflush_all\r\n",
            "Append a 0 0 [flush_all] @37",
        ),
        (
            "cas a 0 0 9 \r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format @14 swallow 11",
        ),
        (
            "cas a 0 0 9 1 noreply x\r\nflush_all\r\n",
            "Cas(1) a 0 0 [flush_all] @36",
        ),
        ("SET a 0 0 9\r\nflush_all\r\n", "ERROR @13 swallow 11"),
        ("Cas a 0 0 9 1\r\nflush_all\r\n", "ERROR @15 swallow 11"),
        // Keys with a space and without a byte: the words are not what their places say.
        (
            "set a b 0 0 9\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "set a 0 0 0 9\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "set a 5 0 0 9 noreply\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "cas a b 0 0 9 1\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "cas a 0 0 0 9 1\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "cas  0 0 9 1\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "set  0 0 9\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        ("set  0 0 9 noreply\r\nflush_all\r\n", " close"),
        (
            "set a 0 0\r\nflush_all\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        ("set\r\n", "CLIENT_ERROR bad command line format close"),
        // Nobody knows where a body of such a length ends.
        ("set a 0 0 x\r\nx\r\n", "CLIENT_ERROR bad command line format close"),
        ("set a 0 0 1x\r\nx\r\n", "CLIENT_ERROR bad command line format close"),
        ("set a 0 0 -1\r\nx\r\n", "CLIENT_ERROR bad command line format close"),
        (
            "set a 0 0 18446744073709551617\r\n",
            "CLIENT_ERROR bad command line format close",
        ),
        (
            "set a 0 0 11\r\n",
            "SERVER_ERROR object too large for cache @14 swallow 13 forget a",
        ),
        (
            "set a 0 0 2147483645\r\n",
            "SERVER_ERROR object too large for cache @22 swallow 2147483647 forget a",
        ),
        (
            "set a 0 0 2147483646\r\n",
            "CLIENT_ERROR bad command line format @22 swallow 2147483648 forget a",
        ),
        (
            "set a 0 0 4294967295\r\n",
            "CLIENT_ERROR bad command line format @22 swallow 4294967297 forget a",
        ),
        // The client counted wrongly: the following bytes may be the rest of the value.
        ("set a 0 0 3\r\nabcde\r\n", "CLIENT_ERROR bad data chunk close"),
        ("set a 0 0 3\r\nabc\n\n", "CLIENT_ERROR bad data chunk close"),
        // noreply hides errors, too, once the words have been counted.
        ("set a x 0 1 noreply\r\nx\r\n", " @21 swallow 3"),
        ("set a 0 0 11 noreply\r\n", " @22 swallow 13 forget a"),
        ("set a 0 0 1 noreply\r\nxyz", " close"),
        ("cas a 0 0 1 noreply\r\nx\r\n", " @21 swallow 3"),
    ]);
}

#[test]
fn http_ends_the_connection() {
    check(&[
        ("POST / HTTP/1.1\r\n", " close"),
        ("post\r\n", " close"),
        ("Host: localhost:11211\r\n", " close"),
        ("PUT /x HTTP/1.1\r\n", " close"),
        ("GET / HTTP/1.0 \r\n", " close"),
        ("set /x HTTP/1.1\r\n", " close"),
        ("touch /x HTTP/1.1\r\n", " close"),
        ("version /x HTTP/2\r\n", " close"),
        ("mg /x HTTP/1.1\r\n", " close"),
        ("delete /x HTTP/1.1\r\n", " close"),
        // Keys may be named so.
        ("get HTTP/1.1\r\n", "get HTTP/1.1 @14"),
        ("mg HTTP/1.1\r\n", "mg HTTP/1.1 @13"),
        ("delete HTTP/1.1\r\n", "delete HTTP/1.1 @17"),
        ("set HTTP/1.1 0 0 1\r\nx\r\n", "Set HTTP/1.1 0 0 [x] @23"),
        ("x http/1.1\r\n", "ERROR @12"),
    ]);
}

#[test]
fn numbers_and_times() {
    check(&[
        ("incr a 1\r\n", "Increment a 1 @10"),
        (
            "decr a 18446744073709551615 noreply\r\n",
            "Decrement a 18446744073709551615 noreply @37",
        ),
        ("incr a 1 foo\r\n", "Increment a 1 @14"),
        ("incr a\r\n", "CLIENT_ERROR bad command line format @8"),
        ("incr a 1 2 3\r\n", "Increment a 1 @14"),
        ("incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument @10"),
        ("incr a -1\r\n", "CLIENT_ERROR invalid numeric delta argument @11"),
        (
            "incr a 18446744073709551616\r\n",
            "CLIENT_ERROR invalid numeric delta argument @29",
        ),
        ("incr a x noreply\r\n", " @18"),
        ("touch a 10\r\n", "touch a 10 @12"),
        ("touch a 10 noreply\r\n", "touch a 10 noreply @20"),
        ("touch a\r\n", "CLIENT_ERROR bad command line format @9"),
        ("touch a x\r\n", "CLIENT_ERROR invalid exptime argument @11"),
    ]);
}

#[test]
fn deleting() {
    check(&[
        ("delete a\r\n", "delete a @10"),
        ("delete a noreply\r\n", "delete a noreply @18"),
        ("delete a 0\r\n", "delete a @12"),
        ("delete a 0 noreply\r\n", "delete a noreply @20"),
        ("delete\r\n", "CLIENT_ERROR bad command line format @8"),
        ("delete a b c d\r\n", "delete a @16"),
        ("delete a 1\r\n", "delete a @12"),
        ("delete a 0 0\r\n", "delete a @14"),
        ("delete a noreply 0\r\n", "delete a @20"),
        ("delete a 1 noreply\r\n", "delete a noreply @20"),
        ("delete noreply\r\n", "delete noreply @16"),
        ("flush_all\r\n", "flush_all 0 @11"),
        ("flush_all 10\r\n", "flush_all 10 @14"),
        ("flush_all -1\r\n", "flush_all -1 @14"),
        ("flush_all noreply\r\n", "flush_all 0 noreply @19"),
        ("flush_all 10 noreply\r\n", "flush_all 10 noreply @22"),
        ("flush_all 0 foo\r\n", "flush_all 0 @17"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument @13"),
        ("flush_all x noreply\r\n", " @21"),
        ("flush_all a b c\r\n", "CLIENT_ERROR invalid exptime argument @17"),
    ]);
}

#[test]
fn everything_else() {
    check(&[
        ("version\r\n", "version @9"),
        ("version foo\r\n", "version @13"),
        ("verbosity 1\r\n", "verbosity 1 @13"),
        ("verbosity 1 noreply\r\n", "verbosity 1 noreply @21"),
        ("verbosity\r\n", "CLIENT_ERROR bad command line format @11"),
        ("verbosity x\r\n", "CLIENT_ERROR bad command line format @13"),
        ("verbosity noreply\r\n", " @19"),
        ("stats\r\n", "stats [] @7"),
        ("stats settings\r\n", "stats [settings] @16"),
        ("stats  detail  on\r\n", "stats [detail on] @19"),
        ("quit\r\n", "quit @6"),
        ("quit now\r\n", "quit @10"),
        ("mn\r\n", "mn @4"),
        ("\r\n", "CLIENT_ERROR bad command line format @2"),
        ("\n", "CLIENT_ERROR bad command line format @1"),
        (" \r\n", "CLIENT_ERROR bad command line format @3"),
        ("     \n", "CLIENT_ERROR bad command line format @6"),
        ("x\r\n", "CLIENT_ERROR bad command line format @3"),
        ("noreply\r\n", "ERROR @9"),
        ("shutdown\r\n", "SERVER_ERROR: shutdown not enabled @10"),
        ("slabs reassign 1 2\r\n", "ERROR @20"),
        ("cache_memlimit 64\r\n", "ERROR @19"),
    ]);
}

#[test]
fn what_is_missing_is_counted() {
    check(&[
        ("", "incomplete 1"),
        ("g", "incomplete 2"),
        ("get a", "incomplete 6"),
        ("get a\r", "incomplete 7"),
        ("set a 0 0 5\r\n", "incomplete 20"),
        ("set a 0 0 5\r\nabcde\r", "incomplete 20"),
        ("set a 0 0 5 noreply\n", "incomplete 27"),
        ("add a 0 0 10\r\nabc", "incomplete 26"),
        ("ms a 5 c\r\nab", "incomplete 17"),
    ]);
}

#[test]
fn lines_are_bounded() {
    let limits = Limits::default();
    let check = |input: String, expected: &str| {
        assert_eq!(
            describe::memcached(&parse(input.as_bytes(), &limits)),
            expected,
            "{}",
            input.len()
        );
    };
    let too_long = "CLIENT_ERROR line too long close";
    check(
        "x".repeat(LINE_BYTES_MAX),
        &format!("incomplete {}", LINE_BYTES_MAX + 1),
    );
    check(
        "x".repeat(LINE_BYTES_MAX) + "\n",
        &format!("ERROR @{}", LINE_BYTES_MAX + 1),
    );
    check("x".repeat(LINE_BYTES_MAX + 1), too_long);
    check("x".repeat(LINE_BYTES_MAX + 1) + "\n", too_long);
    check(format!("set {} 0 0 1\r\n", "k".repeat(LINE_BYTES_MAX)), too_long);
    check(format!("mg {}", "k".repeat(LINE_BYTES_MAX)), too_long);
    check(" ".repeat(LINE_BYTES_MAX + 1), too_long);
    // Before login no line may be longer.
    let strict = Limits {
        long_key_lines: false,
        ..limits
    };
    let line = format!("get {}", "k ".repeat(LINE_BYTES_MAX));
    let parsed = parse(line.as_bytes(), &strict);
    assert!(matches!(parsed, Parsed::Failed(failure) if failure.close));
}

/// Reads a line of keys in parts, with so much at hand at a time; the keys, and how the last part ends.
fn keys_of(line: &[u8], at_hand: usize) -> (Vec<&[u8]>, Part) {
    let (mut keys, mut open, mut done, mut seen) = (Vec::new(), None, 0, at_hand);
    loop {
        let input = &line[done..seen.min(line.len())];
        let parsed = match &open {
            None => parse(input, &Limits::default()),
            Some(open) => parse_keys(input, open),
        };
        let (get, consumed) = match parsed {
            Parsed::Complete {
                command: Command::Get(get),
                consumed,
            } => (get, consumed),
            Parsed::Incomplete { needed } => {
                assert!(needed > input.len() && input.len() <= LINE_BYTES_MAX, "{needed}");
                seen = done + needed;
                continue;
            }
            other => panic!("{}", describe::memcached(&other)),
        };
        keys.extend(get.keys);
        done += consumed;
        seen = seen.max(done + at_hand);
        open = Some(OpenGet {
            with_cas: get.with_cas,
            touch: get.touch,
        });
        if let Part::Last | Part::Whole = get.part {
            assert_eq!(done, line.len());
        }
        if get.part != Part::Begun {
            return (keys, get.part);
        }
        assert!(consumed <= LINE_BYTES_MAX);
    }
}

#[test]
fn a_line_of_keys_has_no_limit_and_is_read_in_parts() {
    const KEYS: usize = 10_000;
    let names: Vec<String> = (0..KEYS).map(|n| format!("{n:041}")).collect();
    for begin in ["get ", "gets ", "gat 60 ", "  gats  -1  "] {
        for (between, end) in [
            (" ", "\r\n"),
            ("   ", "\n"),
            (" ", " \r\n"),
            (&*" ".repeat(3000), "\r\n"),
        ] {
            let names = if between.len() > 100 { &names[..50] } else { &names };
            let line = [begin, &names.join(between), end].concat();
            for at_hand in [1, 2000, line.len()] {
                let (keys, part) = keys_of(line.as_bytes(), at_hand);
                assert_eq!(part, Part::Last);
                assert!(
                    keys.iter()
                        .eq(names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().iter())
                );
            }
        }
    }
    // A word that is no key spoils its part, whatever is before and behind it.
    for bad in ["k".repeat(251), "k".repeat(5000), "k\x01".to_owned()] {
        let line = format!("get {} {bad} k k\r\n", "k ".repeat(1500));
        let (keys, part) = keys_of(line.as_bytes(), line.len());
        assert!(
            keys.len() > 1000 && matches!(part, Part::Bad { .. }),
            "{} {part:?}",
            keys.len()
        );
    }
}

#[test]
fn the_binary_protocol_is_answered_in_its_own_form_and_closed() {
    for input in [&b"\x80"[..], b"\x80\x00\x00\x03", b"\x80get a\r\n"] {
        let Parsed::Failed(failure) = parse(input, &LIMITS) else {
            panic!("{input:?}");
        };
        assert!(failure.close);
        assert_eq!(failure.reply[0], 0x81);
        assert!(failure.reply.ends_with(b"use the text or meta protocol\n"));
    }
}

#[test]
fn commands_need_permissions() {
    for (line, permissions) in [
        ("get a\r\n", "read"),
        ("gat 0 a\r\n", "read,write"),
        ("mg a v R30\r\n", "read"),
        ("mg a T30\r\n", "read,write"),
        ("mg a N30\r\n", "read,write"),
        ("me a\r\n", "read"),
        ("set a 0 0 1\r\nx\r\n", "write"),
        ("incr a 1\r\n", "write"),
        ("touch a 1\r\n", "write"),
        ("delete a\r\n", "write"),
        ("ms a 1\r\nx\r\n", "write"),
        ("md a\r\n", "write"),
        ("ma a\r\n", "write"),
        ("flush_all\r\n", "flush"),
        ("version\r\n", "none"),
        ("stats\r\n", "none"),
        ("mn\r\n", "none"),
    ] {
        let Parsed::Complete { command, .. } = parse(line.as_bytes(), &LIMITS) else {
            panic!("{line:?}");
        };
        assert_eq!(command.permissions().to_string(), permissions, "{line:?}");
    }
}
