//! memcached: the form of each reply.

use tidemark_protocol::memcached::compose::{self, DebugFacts, Facts, Outcome};
use tidemark_protocol::memcached::{Command, Limits, Meta, Parsed, parse};

const LIMITS: Limits = Limits {
    value_bytes: 10,
    long_key_lines: true,
};

fn meta(line: &str) -> Meta<'_> {
    match parse(line.as_bytes(), &LIMITS) {
        Parsed::Complete {
            command: Command::MetaGet(meta) | Command::MetaDelete(meta),
            ..
        } => meta,
        Parsed::Complete {
            command: Command::MetaSet(set),
            ..
        } => set.meta,
        Parsed::Complete {
            command: Command::MetaArithmetic(arithmetic),
            ..
        } => arithmetic.meta,
        other => panic!("{other:?}"),
    }
}

fn composed(append: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    append(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn classic_replies() {
    for (text, expected) in [
        (
            composed(|out| compose::value(out, b"k", 0, None, b"hi")),
            "VALUE k 0 2\r\nhi\r\n",
        ),
        (
            composed(|out| compose::value(out, b"k", 4_294_967_295, None, b"")),
            "VALUE k 4294967295 0\r\n\r\n",
        ),
        (
            composed(|out| compose::value(out, b"k", 7, Some(u64::MAX), b"x")),
            "VALUE k 7 1 18446744073709551615\r\nx\r\n",
        ),
        (
            composed(|out| compose::value_header(out, b"k", 0, Some(1), 5)),
            "VALUE k 0 5 1\r\n",
        ),
        (composed(|out| compose::number(out, 42)), "42\r\n"),
        (composed(|out| compose::stat(out, "pid", "1")), "STAT pid 1\r\n"),
        (composed(|out| compose::version(out, "0.1.0")), "VERSION 0.1.0\r\n"),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn meta_replies_carry_flags_in_the_order_asked() {
    let facts = Facts {
        value_bytes: 2,
        cas: 9,
        client_flags: 5,
        ttl_seconds: Some(30),
        ttl_before_seconds: None,
        idle_seconds: 3,
        was_read: true,
        ..Facts::default()
    };
    let marked = Facts {
        won: true,
        stale: true,
        taken: true,
        ..facts
    };
    let hit = |line: &str, facts: &Facts| composed(|out| compose::meta_hit(out, &meta(line), facts, b"hi"));
    for (line, facts, expected) in [
        ("mg a v\r\n", &facts, "VA 2\r\nhi\r\n"),
        ("mg a\r\n", &facts, "HD\r\n"),
        ("mg a q v\r\n", &facts, "VA 2\r\nhi\r\n"),
        ("mg a s v c f l h t\r\n", &facts, "VA 2 s2 c9 f5 l3 h1 t30\r\nhi\r\n"),
        ("mg a k O12 s\r\n", &facts, "HD ka O12 s2\r\n"),
        ("mg a O\r\n", &facts, "HD O\r\n"),
        ("mg YQ== k b s\r\n", &facts, "HD kYQ== b s2\r\n"),
        ("mg YQ== b s\r\n", &facts, "HD s2\r\n"),
        // Before `T` the time is the old one, here none; behind it the new one.
        ("mg a t T30\r\n", &facts, "HD t-1\r\n"),
        ("mg a T30 t\r\n", &facts, "HD t30\r\n"),
        ("mg a u N5 R5 E1 P/x Lx I\r\n", &facts, "HD\r\n"),
        ("mg a v\r\n", &marked, "VA 2 Z X W\r\nhi\r\n"),
    ] {
        assert_eq!(hit(line, facts), expected, "{line:?}");
    }
    let line = composed(|out| compose::meta_hit_header(out, &meta("mg a v c\r\n"), &facts));
    assert_eq!(line, "VA 2 c9\r\n");
}

#[test]
fn quiet_mode_hides_the_ordinary_answer() {
    let facts = Facts {
        cas: 9,
        value_bytes: 1,
        ..Facts::default()
    };
    let stored = |line: &str, outcome| composed(|out| compose::meta_stored(out, &meta(line), outcome, &facts));
    let outcome = |line: &str, outcome| composed(|out| compose::meta_outcome(out, &meta(line), outcome));
    let number = |line: &str| composed(|out| compose::meta_number(out, &meta(line), &facts, 10));
    for (text, expected) in [
        (
            composed(|out| compose::meta_miss(out, &meta("mg a k O1 v\r\n"))),
            "EN ka O1\r\n",
        ),
        (composed(|out| compose::meta_miss(out, &meta("mg a k q\r\n"))), ""),
        (stored("ms a 1 c k O1 s\r\nx\r\n", Outcome::Done), "HD c9 ka O1 s1\r\n"),
        (stored("ms a 1 c q\r\nx\r\n", Outcome::Done), ""),
        (stored("ms a 1 c k q\r\nx\r\n", Outcome::Exists), "EX c9 ka\r\n"),
        (stored("ms a 1\r\nx\r\n", Outcome::NotStored), "NS\r\n"),
        (outcome("md a O1 v s\r\n", Outcome::Done), "HD O1\r\n"),
        (outcome("md a q\r\n", Outcome::Done), ""),
        (outcome("md a q k\r\n", Outcome::NotFound), "NF ka\r\n"),
        (number("ma a v t c k\r\n"), "VA 2 t-1 c9 ka\r\n10\r\n"),
        (number("ma a t\r\n"), "HD t-1\r\n"),
        (number("ma a v q\r\n"), ""),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn meta_debug() {
    let Parsed::Complete {
        command: Command::MetaDebug(key),
        ..
    } = parse(b"me YQ== b\r\n", &LIMITS)
    else {
        panic!("me");
    };
    let facts = DebugFacts {
        ttl_seconds: Some(100),
        idle_seconds: 2,
        cas: 7,
        was_read: true,
        item_bytes: 61,
    };
    for (facts, expected) in [
        (Some(facts), "ME YQ== exp=100 la=2 cas=7 fetch=yes cls=0 size=61\r\n"),
        (
            Some(DebugFacts {
                ttl_seconds: None,
                was_read: false,
                ..facts
            }),
            "ME YQ== exp=-1 la=2 cas=7 fetch=no cls=0 size=61\r\n",
        ),
        (None, "EN\r\n"),
    ] {
        assert_eq!(composed(|out| compose::meta_debug(out, key, facts.as_ref())), expected);
    }
}
