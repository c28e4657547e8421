//! RESP: the parse of each request, and the protocol errors in Redis's words.

use tidemark_protocol::resp::{ArgList, Discard, Discarded, INLINE_BYTES_MAX, Limits, Parsed, parse};

use crate::describe;

const LIMITS: Limits = Limits {
    args: 1000,
    bulk_bytes: 100,
    command_bytes: 1000,
    before_login: false,
};

fn check(limits: &Limits, cases: &[(&str, &str)]) {
    let mut list = ArgList::new();
    for (input, expected) in cases {
        let parsed = parse(input.as_bytes(), limits, &mut list);
        assert_eq!(describe::resp(&parsed, &list, input.as_bytes()), *expected, "{input:?}");
    }
}

#[test]
fn arrays() {
    check(
        &LIMITS,
        &[
            ("*1\r\n$4\r\nPING\r\n", "[PING] @14"),
            ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n", "[GET|k] @20"),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n", "[SET|k|a\\r\\nb] @30"),
            ("*1\r\n$0\r\n\r\n", "[] @10"),
            ("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "[ECHO|] @20"),
            ("*0\r\nPING\r\n", "nothing @4"),
            ("*-1\r\n", "nothing @5"),
            ("*-5\r\nPING\r\n", "nothing @5"),
            // As in Redis, the byte behind the `\r` of a length is not looked at.
            ("*1\rx$4\rxPING\r\n", "[PING] @14"),
            ("", "incomplete 1"),
            ("*", "incomplete 2"),
            ("*1", "incomplete 3"),
            ("*1\r", "incomplete 4"),
            ("*1\n$4\n", "incomplete 7"),
            ("*1\r\n", "incomplete 5"),
            ("*1\r\n$", "incomplete 6"),
            ("*3\r\n", "incomplete 5"),
            ("*3\r\n$3\r\nSE", "incomplete 13"),
            ("*2\r\n$3\r\nGET\r\n$16\r\nk", "incomplete 36"),
        ],
    );
}

#[test]
fn errors_of_arrays() {
    let multibulk = "ERR Protocol error: invalid multibulk length close";
    let bulk = "ERR Protocol error: invalid bulk length close";
    check(
        &LIMITS,
        &[
            ("*\r\n", multibulk),
            ("*a\r\n", multibulk),
            ("*1 \r\n", multibulk),
            ("*+1\r\n", multibulk),
            ("*01\r\n", multibulk),
            ("*-\r\n", multibulk),
            ("*1001\r\n", multibulk),
            ("*2147483648\r\n", multibulk),
            ("*99999999999999999999\r\n", multibulk),
            ("*1\r\n$-1\r\n", bulk),
            ("*1\r\n$a\r\n", bulk),
            ("*1\r\n$\r\n", bulk),
            ("*1\r\n$04\r\n", bulk),
            ("*1\r\n$1 \r\n", bulk),
            ("*1\r\n$536870913\r\n", bulk),
            ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$-1\r\n", bulk),
            ("*1\r\nPING\r\n", "ERR Protocol error: expected '$', got 'P' close"),
            ("*1\r\n\r\nPING\r\n", "ERR Protocol error: expected '$', got ' ' close"),
            ("*1\r\n*", "ERR Protocol error: expected '$', got '*' close"),
        ],
    );
    let digits = "1".repeat(INLINE_BYTES_MAX + 1);
    check(
        &LIMITS,
        &[
            (&format!("*{}", &digits[1..]), "incomplete 65538"),
            (
                &format!("*{digits}"),
                "ERR Protocol error: too big mbulk count string close",
            ),
            (
                &format!("*1\r\n${digits}"),
                "ERR Protocol error: too big bulk count string close",
            ),
        ],
    );
}

#[test]
fn before_login_less_is_allowed() {
    check(
        &Limits::BEFORE_LOGIN,
        &[
            ("*10\r\n", "incomplete 6"),
            ("*11\r\n", "ERR Protocol error: unauthenticated multibulk length close"),
            ("*1\r\n$16384\r\n", "incomplete 16398"),
            (
                "*1\r\n$16385\r\n",
                "ERR Protocol error: unauthenticated bulk length close",
            ),
        ],
    );
    let small = Limits {
        command_bytes: 30,
        ..Limits::BEFORE_LOGIN
    };
    check(
        &small,
        &[(
            "*2\r\n$4\r\nAUTH\r\n$20\r\n",
            "ERR Protocol error: unauthenticated bulk length close",
        )],
    );
}

#[test]
fn inline_lines() {
    let unbalanced = "ERR Protocol error: unbalanced quotes in request close";
    check(
        &LIMITS,
        &[
            ("PING\r\n", "[PING] @6"),
            ("PING\nPING\n", "[PING] @5"),
            ("set  k\tv \r\n", "[set|k|v] @11"),
            ("\r\n", "nothing @2"),
            ("\n", "nothing @1"),
            ("   \r\n", "nothing @5"),
            ("PING \"a b\"\r\n", "[PING|a b] @12"),
            ("PING a\"b c\"\r\n", "[PING|ab c] @13"),
            (
                "ECHO \"\\x41\\xfF\\n\\r\\t\\b\\a\\q\\\\\\\"\"\r\n",
                "[ECHO|A\\xff\\n\\r\\t\\x08\\x07q\\\\\\\"] @33",
            ),
            ("ECHO \"\\xZZ\\x4\"\r\n", "[ECHO|xZZx4] @16"),
            ("ECHO 'a\\'b\\n'\r\n", "[ECHO|a\\'b\\\\n] @15"),
            ("ECHO \"\" ''\r\n", "[ECHO||] @12"),
            ("\"\"\r\n", "[] @4"),
            ("PING \"a\" \r\n", "[PING|a] @11"),
            ("PING a\u{b}b\r\n", "[PING|a\\x0bb] @10"),
            ("PING \"a\r\n", unbalanced),
            ("PING 'a\r\n", unbalanced),
            ("PING \"a\"b\r\n", unbalanced),
            ("PING 'a'b\r\n", unbalanced),
            ("PING \"a\\\r\n", unbalanced),
            ("PING", "incomplete 5"),
            ("PING\r", "incomplete 6"),
            ("$4\r\n", "[$4] @4"),
        ],
    );
    let line = "a".repeat(INLINE_BYTES_MAX);
    check(
        &LIMITS,
        &[
            (&line, "incomplete 65537"),
            (&format!("{line}\n"), &format!("[{}..(65536)] @65537", "a".repeat(60))),
            (&format!("{line}a"), "ERR Protocol error: too big inline request close"),
            (
                &format!("{line}a\r\n"),
                "ERR Protocol error: too big inline request close",
            ),
        ],
    );
}

/// Feeds `input` to the parser and the refused command's rest in pieces of `step` bytes; the error and the rest behind
/// the command.
fn refuse(input: &[u8], step: usize) -> (String, Vec<u8>) {
    let mut list = ArgList::new();
    let mut pieces = input.chunks(step);
    let mut held = Vec::new();
    let mut refused: Option<(String, Discard)> = None;
    loop {
        match &mut refused {
            None => {
                if let Parsed::Refused { error, consumed, rest } = parse(&held, &LIMITS, &mut list) {
                    held.drain(..consumed);
                    refused = Some((error.to_string(), rest));
                    continue;
                }
            }
            Some((error, rest)) => match rest.feed(&held) {
                Discarded::Done { consumed } => {
                    held.drain(..consumed);
                    held.extend(pieces.flatten());
                    return (error.clone(), held);
                }
                Discarded::More { consumed } => {
                    held.drain(..consumed);
                    assert!(held.len() < 20, "a refused command is not kept");
                }
                Discarded::Failed(error) => return (error.to_string(), held),
            },
        }
        held.extend_from_slice(pieces.next().expect("the command has an end"));
    }
}

#[test]
fn what_is_too_large_is_refused_and_dropped() {
    let long = "x".repeat(101);
    let arg = format!("$101\r\n{long}\r\n");
    let fits = format!("$100\r\n{}\r\n", &long[1..]);
    let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    for (input, error, left) in [
        (
            format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n{arg}*1\r\n$4\r\nPING\r\n"),
            too_long,
            "*1\r\n$4\r\nPING\r\n",
        ),
        (
            format!("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n{arg}$2\r\nEX\r\n$2\r\n10\r\nPING\r\n"),
            too_long,
            "PING\r\n",
        ),
        (format!("*2\r\n{arg}{arg}rest"), too_long, "rest"),
        // Ten arguments that are allowed one by one are not as one command.
        (format!("*10\r\n{}rest", fits.repeat(10)), too_long, "rest"),
        (format!("*170\r\n{}rest", "$0\r\n\r\n".repeat(170)), too_long, "rest"),
        (
            format!("*2\r\n{arg}$x\r\nrest"),
            "ERR Protocol error: invalid bulk length",
            "$x\r\nrest",
        ),
    ] {
        for step in [1, 2, 7, input.len()] {
            let (found, rest) = refuse(input.as_bytes(), step);
            assert_eq!(found, error);
            if !error.contains("Protocol") {
                assert_eq!(
                    rest.escape_ascii().to_string(),
                    left.as_bytes().escape_ascii().to_string(),
                    "by {step}"
                );
            }
        }
    }
}
