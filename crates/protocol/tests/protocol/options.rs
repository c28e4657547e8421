//! Options of commands: the meaning of each combination, and Redis's errors for the others.

use std::fmt::Debug;

use tidemark_protocol::resp::command::{Row, resolve};
use tidemark_protocol::resp::options::{self, Deadline, Expire, Unit};
use tidemark_protocol::resp::session::{self, CommandFilter};
use tidemark_protocol::resp::{ArgList, Args, ErrorReply, Limits, Parsed, error, parse};
use tidemark_types::UnixMs;

/// Runs `read` on an inline command's arguments and row.
fn read<T>(
    line: &str,
    read: impl for<'a> FnOnce(Args<'a>, &'static Row) -> Result<T, ErrorReply<'a>>,
) -> Result<T, String> {
    let input = format!("{line}\r\n");
    let mut list = ArgList::new();
    let parsed = parse(input.as_bytes(), &Limits::with_value_bytes(1 << 20), &mut list);
    assert!(matches!(parsed, Parsed::Complete { .. }), "{line}");
    let args = list.args(input.as_bytes());
    let row = resolve(args).map_err(|error| error.to_string())?;
    read(args, row).map_err(|error| error.to_string())
}

/// Compares the meaning of the arguments, written with `Debug`, or the error.
fn check<T: Debug>(
    parse: impl for<'a> Fn(Args<'a>, &'static Row) -> Result<T, ErrorReply<'a>>,
    cases: &[(&str, &str)],
) {
    for (line, expected) in cases {
        let text = match read(line, &parse) {
            Ok(meaning) => format!("{meaning:?}"),
            Err(error) => error,
        };
        assert_eq!(text, *expected, "{line}");
    }
}

/// The meaning of `SET`'s options, in short.
fn set(line: &str) -> String {
    read(line, |args, row| {
        let options = options::set(args, row)?;
        Ok(format!("{:?} {:?} {}", options.condition, options.expiry, options.get))
    })
    .unwrap_or_else(|error| error)
}

#[test]
fn set_options() {
    let syntax = "ERR syntax error";
    let invalid = "ERR invalid expire time in 'set' command";
    let integer = "ERR value is not an integer or out of range";
    for (line, expected) in [
        ("SET k v", "Always Clear false"),
        ("SET k v ex 10", "Always Deadline(After(10000)) false"),
        ("SET k v PX 10", "Always Deadline(After(10)) false"),
        ("SET k v EXAT 10", "Always Deadline(At(10000)) false"),
        ("SET k v PXAT 10 nx get", "IfAbsent Deadline(At(10)) true"),
        ("SET k v NX NX", "IfAbsent Clear false"),
        ("SET k v XX KEEPTTL KEEPTTL GET GET", "IfPresent Keep true"),
        ("SET k v EX 10 EX 20", "Always Deadline(After(20000)) false"),
        ("SET k v IFEQ old", "IfEqual([111, 108, 100]) Clear false"),
        ("SET k v IFEQ EX GET", "IfEqual([69, 88]) Clear true"),
        ("SET k v c", syntax),
        ("SET k v EX", syntax),
        ("SET k v IFEQ", syntax),
        ("SET k v NX XX", syntax),
        ("SET k v XX NX", syntax),
        ("SET k v NX IFEQ a", syntax),
        ("SET k v IFEQ a XX", syntax),
        ("SET k v IFEQ a IFEQ b", syntax),
        ("SET k v EX 10 PX 10", syntax),
        ("SET k v EX 10 KEEPTTL", syntax),
        ("SET k v KEEPTTL EX 10", syntax),
        ("SET k v PERSIST", syntax),
        // The words are looked at before the numbers.
        ("SET k v EX abc NX XX", syntax),
        ("SET k v EX abc", integer),
        ("SET k v EX 1.5", integer),
        ("SET k v EX 0", invalid),
        ("SET k v PX -1", invalid),
        ("SET k v PXAT 0", invalid),
        ("SET k v EX 9223372036854775807", invalid),
        ("SET k", "ERR wrong number of arguments for 'set' command"),
    ] {
        assert_eq!(set(line), expected, "{line}");
    }
}

#[test]
fn deadlines_end_with_the_clock() {
    let now = UnixMs(1_700_000_000_000);
    let resolve = |line: &str| {
        read(line, |args, row| {
            match options::expire(args, row)?.deadline.resolve(now, row) {
                Ok(moment) => Ok(moment.to_string()),
                Err(error) => Ok(error.to_string()),
            }
        })
        .unwrap_or_else(|error| error)
    };
    for (line, expected) in [
        ("EXPIRE k 10", "1700000010000"),
        ("EXPIRE k -10", "1699999990000"),
        ("PEXPIRE k 10", "1700000000010"),
        ("EXPIREAT k 10", "10000"),
        ("PEXPIREAT k -10", "-10"),
        ("PEXPIREAT k 9223372036854775807", "9223372036854775807"),
        ("PEXPIRE k -9223372036854775808", "-9223370336854775808"),
        (
            "PEXPIRE k 9223372036854775807",
            "ERR invalid expire time in 'pexpire' command",
        ),
        (
            "EXPIRE k 9223372036854775",
            "ERR invalid expire time in 'expire' command",
        ),
        (
            "EXPIRE k 9223372036854775807",
            "ERR invalid expire time in 'expire' command",
        ),
        (
            "EXPIRE k -9223372036854775808",
            "ERR invalid expire time in 'expire' command",
        ),
        (
            "EXPIREAT k 9223372036854775807",
            "ERR invalid expire time in 'expireat' command",
        ),
        ("EXPIRE k abc", "ERR value is not an integer or out of range"),
    ] {
        assert_eq!(resolve(line), expected, "{line}");
    }
}

#[test]
fn expire_conditions() {
    let conflict = "ERR NX and XX, GT or LT options at the same time are not compatible";
    for (line, expected) in [
        ("EXPIRE k 1 NX XX", conflict),
        ("EXPIRE k 1 GT NX", conflict),
        (
            "EXPIRE k 1 GT LT",
            "ERR GT and LT options at the same time are not compatible",
        ),
        ("EXPIRE k 1 FOO", "ERR Unsupported option FOO"),
        ("EXPIRE k 1 NX \"a\\r\\nb\"", "ERR Unsupported option a  b"),
        ("EXPIRE k abc FOO", "ERR Unsupported option FOO"),
    ] {
        assert_eq!(read(line, options::expire), Err(expected.to_owned()), "{line}");
    }
    // The key's present time (in milliseconds) and a new one of 10 s: with which options does it apply?
    for (options, none, earlier, same, later) in [
        ("", true, true, true, true),
        ("nx nx", true, false, false, false),
        ("XX", false, true, true, true),
        ("GT", false, true, false, false),
        ("LT", true, false, false, true),
        ("XX GT", false, true, false, false),
        ("XX LT", false, false, false, true),
    ] {
        let expire: Expire = read(&format!("EXPIREAT k 10 {options}"), options::expire).unwrap();
        let applies = [None, Some(9_000), Some(10_000), Some(11_000)].map(|present| expire.applies(present, 10_000));
        assert_eq!(applies, [none, earlier, same, later], "{options:?}");
    }
}

#[test]
fn getex_and_setex() {
    check(
        options::get_ex,
        &[
            ("GETEX k", "Leave"),
            ("GETEX k PERSIST PERSIST", "Persist"),
            ("GETEX k EX 10", "Deadline(After(10000))"),
            ("GETEX k pxat 10", "Deadline(At(10))"),
            ("GETEX k EX", "ERR syntax error"),
            ("GETEX k EX 10 PERSIST", "ERR syntax error"),
            ("GETEX k PERSIST EX 10", "ERR syntax error"),
            ("GETEX k EX 10 PX 10", "ERR syntax error"),
            ("GETEX k NX", "ERR syntax error"),
            ("GETEX k PX abc", "ERR value is not an integer or out of range"),
            ("GETEX k EX 0", "ERR invalid expire time in 'getex' command"),
        ],
    );
    check(
        |args, row| options::set_with_time(args, row, Unit::Seconds),
        &[
            ("SETEX k 10 v", "After(10000)"),
            ("SETEX k 0 v", "ERR invalid expire time in 'setex' command"),
            ("SETEX k -1 v", "ERR invalid expire time in 'setex' command"),
            ("SETEX k x v", "ERR value is not an integer or out of range"),
        ],
    );
    let psetex = read("PSETEX k 10 v", |args, row| {
        options::set_with_time(args, row, Unit::Milliseconds)
    });
    assert_eq!(psetex, Ok(Deadline::After(10)));
}

#[test]
fn scanning() {
    check(
        |args, _| {
            let scan = options::scan(args)?;
            let pattern = scan.pattern.map(|pattern| pattern.escape_ascii().to_string());
            Ok((scan.cursor, pattern, scan.count, scan.types))
        },
        &[
            ("SCAN 0", "(0, None, 10, Strings)"),
            ("SCAN 18446744073709551615", "(18446744073709551615, None, 10, Strings)"),
            ("SCAN 00 match a* count 5 type STRING", "(0, Some(\"a*\"), 5, Strings)"),
            ("SCAN 0 TYPE list", "(0, None, 10, Nothing)"),
            ("SCAN abc", "ERR invalid cursor"),
            ("SCAN 0x", "ERR invalid cursor"),
            ("SCAN \" 0\"", "ERR invalid cursor"),
            ("SCAN +0", "ERR invalid cursor"),
            ("SCAN \"\"", "ERR invalid cursor"),
            ("SCAN 18446744073709551616", "ERR invalid cursor"),
            ("SCAN 0 MATCH", "ERR syntax error"),
            ("SCAN 0 FOO", "ERR syntax error"),
            ("SCAN 0 FOO a", "ERR syntax error"),
            ("SCAN 0 COUNT 0", "ERR syntax error"),
            ("SCAN 0 COUNT -1", "ERR syntax error"),
            ("SCAN 0 COUNT abc", "ERR value is not an integer or out of range"),
        ],
    );
}

#[test]
fn parts_of_values() {
    check(
        |args, _| options::range(args, 5),
        &[
            ("GETRANGE k 0 -1", "0..5"),
            ("GETRANGE k 1 3", "1..4"),
            ("GETRANGE k -3 -2", "2..4"),
            ("GETRANGE k 0 100", "0..5"),
            ("GETRANGE k -100 1", "0..2"),
            ("GETRANGE k 0 -100", "0..1"),
            ("GETRANGE k -100 -200", "0..0"),
            ("GETRANGE k 3 1", "0..0"),
            ("GETRANGE k 5 6", "0..0"),
            ("GETRANGE k -9223372036854775808 9223372036854775807", "0..5"),
            ("SUBSTR k 0 0", "0..1"),
            ("GETRANGE k x 1", "ERR value is not an integer or out of range"),
            (
                "GETRANGE k 0 99999999999999999999",
                "ERR value is not an integer or out of range",
            ),
        ],
    );
    assert_eq!(read("GETRANGE k 0 -1", |args, _| options::range(args, 0)), Ok(0..0));
    check(
        |args, _| options::offset(args, 10),
        &[
            ("SETRANGE k 0 abc", "0"),
            ("SETRANGE k 7 abc", "7"),
            (
                "SETRANGE k 8 abc",
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            (
                "SETRANGE k 9223372036854775807 a",
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            ("SETRANGE k 100 \"\"", "100"),
            ("SETRANGE k -1 a", "ERR offset is out of range"),
            ("SETRANGE k abc a", "ERR value is not an integer or out of range"),
        ],
    );
}

#[test]
fn small_arguments() {
    check(
        |args, _| options::database(args.arg(1), 16),
        &[
            ("SELECT 0", "0"),
            ("SELECT 15", "15"),
            ("SELECT 16", "ERR DB index is out of range"),
            ("SELECT -1", "ERR DB index is out of range"),
            ("SELECT abc", "ERR value is not an integer or out of range"),
            (
                "SELECT 99999999999",
                "ERR value is out of range, value must between -2147483648 and 2147483647",
            ),
        ],
    );
    check(
        |args, _| options::negated_integer(args.arg(2)),
        &[
            ("DECRBY k 5", "-5"),
            ("DECRBY k -9223372036854775807", "9223372036854775807"),
            ("DECRBY k -9223372036854775808", "ERR decrement would overflow"),
            ("DECRBY k abc", "ERR value is not an integer or out of range"),
        ],
    );
    check(
        |args, _| options::flush(args),
        &[
            ("FLUSHDB", "()"),
            ("FLUSHALL async", "()"),
            ("FLUSHDB SYNC", "()"),
            ("FLUSHDB FOO", "ERR syntax error"),
            ("FLUSHALL ASYNC FOO", "ERR syntax error"),
        ],
    );
}

#[test]
fn logging_in() {
    let login = |credentials: session::Credentials<'_>| {
        let name = credentials.name.map(|name| name.escape_ascii().to_string());
        (name, credentials.secret.escape_ascii().to_string())
    };
    check(
        |args, _| session::auth(args).map(login),
        &[
            ("AUTH s", "(None, \"s\")"),
            ("AUTH n s", "(Some(\"n\"), \"s\")"),
            ("AUTH n s x", "ERR syntax error"),
        ],
    );
    check(
        |args, _| {
            let hello = session::hello(args)?;
            let name = hello.client_name.map(|name| name.escape_ascii().to_string());
            Ok((
                hello.version.map(|version| version.number()),
                hello.login.map(login),
                name,
            ))
        },
        &[
            ("HELLO", "(None, None, None)"),
            ("HELLO 2", "(Some(2), None, None)"),
            (
                "HELLO 3 AUTH n s SETNAME me",
                "(Some(3), Some((Some(\"n\"), \"s\")), Some(\"me\"))",
            ),
            (
                "hello 3 setname me auth n s",
                "(Some(3), Some((Some(\"n\"), \"s\")), Some(\"me\"))",
            ),
            ("HELLO 1", "NOPROTO unsupported protocol version"),
            ("HELLO 4 FOO", "NOPROTO unsupported protocol version"),
            ("HELLO abc", "ERR Protocol version is not an integer or out of range"),
            (
                "HELLO 99999999999999999999",
                "ERR Protocol version is not an integer or out of range",
            ),
            ("HELLO 3 AUTH n", "ERR Syntax error in HELLO option 'AUTH'"),
            ("HELLO 3 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'"),
            ("HELLO 3 FOO", "ERR Syntax error in HELLO option 'FOO'"),
            ("HELLO 3 \"a\\r\\nb\"", "ERR Syntax error in HELLO option 'a  b'"),
            (
                "HELLO 3 SETNAME \"a b\"",
                "ERR Client names cannot contain spaces, newlines or special characters.",
            ),
        ],
    );
    let secret = read("AUTH shop sesam", |args, _| Ok(format!("{:?}", session::auth(args)?))).unwrap();
    assert!(secret.contains("shop") && !secret.contains("sesam"), "{secret}");
}

#[test]
fn listing_clients() {
    check(
        |args, _| session::client_list(args),
        &[
            ("CLIENT LIST", "All"),
            ("CLIENT LIST TYPE normal", "Type(Normal)"),
            ("CLIENT LIST TYPE SLAVE", "Type(Replica)"),
            ("CLIENT LIST ID 1 2", "Ids([1, 2])"),
            ("CLIENT LIST ID -1 2", "Ids([18446744073709551615, 2])"),
            ("CLIENT LIST FOO", "ERR syntax error"),
            ("CLIENT LIST TYPE", "ERR syntax error"),
            ("CLIENT LIST ID", "ERR syntax error"),
            ("CLIENT LIST TYPE normal ID 1", "ERR syntax error"),
            ("CLIENT LIST TYPE foo", "ERR Unknown client type 'foo'"),
            ("CLIENT LIST ID 1 abc", "ERR Invalid client ID"),
        ],
    );
}

#[test]
fn killing_clients() {
    check(
        |args, _| {
            let kill = session::client_kill(args)?;
            let texts =
                [kill.address, kill.local_address, kill.user].map(|text| text.map(|t| t.escape_ascii().to_string()));
            Ok((
                kill.id,
                texts,
                kill.kind,
                kill.max_age_seconds,
                kill.skip_me,
                kill.by_address_only,
            ))
        },
        &[
            (
                "CLIENT KILL 1.1.1.1:1",
                "(None, [Some(\"1.1.1.1:1\"), None, None], None, None, false, true)",
            ),
            (
                "CLIENT KILL ID 5",
                "(Some(5), [None, None, None], None, None, true, false)",
            ),
            (
                "CLIENT KILL ADDR a LADDR b USER u TYPE pubsub MAXAGE 9 SKIPME no",
                "(None, [Some(\"a\"), Some(\"b\"), Some(\"u\")], Some(PubSub), Some(9), false, false)",
            ),
            ("CLIENT KILL ID 0", "ERR client-id should be greater than 0"),
            ("CLIENT KILL ID abc", "ERR client-id should be greater than 0"),
            ("CLIENT KILL ID 1 TYPE", "ERR syntax error"),
            ("CLIENT KILL TYPE foo", "ERR Unknown client type 'foo'"),
            ("CLIENT KILL TYPE normal SKIPME foo", "ERR syntax error"),
            ("CLIENT KILL FOO bar", "ERR syntax error"),
            ("CLIENT KILL MAXAGE 0", "ERR maxage should be greater than 0"),
        ],
    );
}

#[test]
fn settings_of_clients() {
    check(
        |args, _| session::client_reply(args),
        &[
            ("CLIENT REPLY on", "On"),
            ("CLIENT REPLY SKIP", "Skip"),
            ("CLIENT REPLY x", "ERR syntax error"),
        ],
    );
    check(
        |args, _| session::on_off(args),
        &[
            ("CLIENT NO-EVICT on", "true"),
            ("CLIENT NO-TOUCH OFF", "false"),
            ("CLIENT NO-EVICT x", "ERR syntax error"),
        ],
    );
    check(
        |args, _| {
            Ok(matches!(
                session::client_set_info(args)?,
                session::ClientAttribute::LibraryName(_)
            ))
        },
        &[
            ("CLIENT SETINFO lib-name redis-py", "true"),
            ("CLIENT SETINFO LIB-VER \"\"", "false"),
            ("CLIENT SETINFO foo bar", "ERR Unrecognized option 'foo'"),
            (
                "CLIENT SETINFO LIB-VER \"a b\"",
                "ERR lib-ver cannot contain spaces, newlines or special characters.",
            ),
        ],
    );
}

#[test]
fn commands_about_commands() {
    check(
        |args, _| {
            Ok(match session::command_list(args)? {
                CommandFilter::All => "all".to_owned(),
                CommandFilter::Category(category) => format!("category {}", category.is_some()),
                CommandFilter::Pattern(pattern) => format!("pattern {}", pattern.escape_ascii()),
                CommandFilter::Module => "module".to_owned(),
            })
        },
        &[
            ("COMMAND LIST", "\"all\""),
            ("COMMAND LIST FILTERBY ACLCAT Read", "\"category true\""),
            ("COMMAND LIST FILTERBY ACLCAT foo", "\"category false\""),
            ("COMMAND LIST FILTERBY PATTERN x*", "\"pattern x*\""),
            ("COMMAND LIST FILTERBY MODULE foo", "\"module\""),
            ("COMMAND LIST FILTERBY", "ERR syntax error"),
            ("COMMAND LIST FILTERBY FOO bar", "ERR syntax error"),
            ("COMMAND LIST FOO bar baz", "ERR syntax error"),
        ],
    );
    check(
        |args, _| {
            let keys = session::command_get_keys(args)?;
            Ok(keys
                .map(|key| key.escape_ascii().to_string())
                .collect::<Vec<_>>()
                .join(","))
        },
        &[
            ("COMMAND GETKEYS GET a", "\"a\""),
            ("COMMAND GETKEYS mset a 1 b 2", "\"a,b\""),
            ("COMMAND GETKEYS SET a b EX 10", "\"a\""),
            ("COMMAND GETKEYS RENAME a b", "\"a,b\""),
            ("COMMAND GETKEYS FOO a", "ERR Invalid command specified"),
            ("COMMAND GETKEYS ECHO a", "ERR The command has no key arguments"),
            (
                "COMMAND GETKEYS GET a b",
                "ERR Invalid number of arguments specified for command",
            ),
            (
                "COMMAND GETKEYS",
                "ERR wrong number of arguments for 'command|getkeys' command",
            ),
        ],
    );
}

#[test]
fn fixed_errors_are_one_line_with_a_code() {
    for error in [
        error::SYNTAX,
        error::NO_AUTH,
        error::NO_AUTH_HELLO,
        error::WRONG_PASS,
        error::EXEC_ABORT,
    ] {
        let text = error.to_string();
        let code = text.split(' ').next().unwrap();
        assert!(
            code.bytes().all(|byte| byte.is_ascii_uppercase()) && !text.contains('\n'),
            "{text}"
        );
    }
    let above = ErrorReply::AboveLimit("the transaction", 1024, "commands");
    assert_eq!(
        above.to_string(),
        "ERR the transaction is above the limit of 1024 commands"
    );
}
