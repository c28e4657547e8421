//! The table of commands: it says what Redis says, and is found by any spelling of a name.

use tidemark_protocol::resp::command::{COMMANDS, Row, lookup, resolve};
use tidemark_protocol::resp::{ArgList, Limits, Parsed, parse};
use tidemark_types::Permissions;

/// The answers of Redis 7.0.15 to COMMAND INFO for the commands that are offered. A line has name, arity, first key,
/// last key, step, flags, categories and tips. The order of lines and of words within one means nothing.
const REDIS: &str = include_str!("redis-7.0.15-commands.txt");

/// Subcommands that came later.
const NEWER: [&str; 2] = ["client|setinfo", "client|no-touch"];

fn all_rows() -> impl Iterator<Item = &'static Row> {
    COMMANDS.iter().chain(COMMANDS.iter().flat_map(|row| row.subcommands))
}

fn sorted(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    words.sort();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(",")
    }
}

fn line_of(row: &Row) -> String {
    format!(
        "{} {} {} {} {} {} {} {}",
        row.name,
        row.arity,
        row.keys.first,
        row.keys.last,
        row.keys.step,
        sorted(row.flags.names().map(str::to_owned)),
        sorted(row.categories().names().map(|name| format!("@{name}"))),
        sorted(row.tips.iter().map(|tip| (*tip).to_owned())),
    )
}

#[test]
fn rows_agree_with_redis() {
    let mut expected: Vec<String> = REDIS
        .lines()
        .map(|line| {
            let words = line.split(' ').enumerate().map(|(at, word)| match at {
                0..5 => word.to_owned(),
                _ => sorted(word.split(',').map(str::to_owned)),
            });
            words.collect::<Vec<_>>().join(" ")
        })
        .collect();
    let mut rows: Vec<String> = all_rows()
        .filter(|row| !NEWER.contains(&row.name))
        .map(line_of)
        .collect();
    expected.sort();
    rows.sort();
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
    assert_eq!(rows.len(), expected.len());
}

#[test]
fn every_row_is_complete() {
    let permissions = |row: &Row| (row.permissions.bits(), row.flags.names().any(|flag| flag == "write"));
    for row in all_rows() {
        assert!(row.summary.ends_with('.'), "{row:?}");
        assert!(row.since.split('.').count() == 3, "{row:?}");
        assert!(!row.group.is_empty(), "{row:?}");
        assert!(row.arity != 0, "{row:?}");
        let (bits, writes) = permissions(row);
        // Whoever may only read can change nothing.
        assert!(!writes || bits & !Permissions::READ.bits() != 0, "{row:?}");
    }
}

#[test]
fn names_are_found_in_any_case_and_nothing_else_is() {
    for row in COMMANDS {
        let lower = row.name.as_bytes();
        let mixed: Vec<u8> = lower
            .iter()
            .enumerate()
            .map(|(at, byte)| if at % 2 == 0 { byte.to_ascii_uppercase() } else { *byte })
            .collect();
        for name in [lower.to_vec(), lower.to_ascii_uppercase(), mixed] {
            assert_eq!(lookup(&name), Some(row));
            for at in 0..name.len() {
                // Every byte counts, also where only bit 5 differs from a letter's other case.
                for byte in 0..=255_u8 {
                    let mut other = name.clone();
                    other[at] = byte;
                    let same = byte.eq_ignore_ascii_case(&name[at]);
                    assert_eq!(lookup(&other) == Some(row), same, "{}", other.escape_ascii());
                }
            }
            assert_ne!(lookup(&[&name[..], b"x"].concat()), Some(row));
            assert_ne!(lookup(&name[1..]), Some(row));
        }
    }
    for name in [
        &b""[..],
        b"g",
        b"getgetgetgetgetgetget",
        &[b'x'; 300],
        b"\0\0\0",
        b"get\0",
    ] {
        assert_eq!(lookup(name), None, "{}", name.escape_ascii());
    }
}

#[test]
fn keys_are_where_the_row_says() {
    for (name, args, places) in [
        ("get", 2, vec![1]),
        ("set", 5, vec![1]),
        ("mget", 4, vec![1, 2, 3]),
        ("mset", 5, vec![1, 3]),
        ("mset", 4, vec![1, 3]),
        ("rename", 3, vec![1, 2]),
        ("del", 2, vec![1]),
        ("watch", 3, vec![1, 2]),
        ("ping", 1, vec![]),
        ("get", 1, vec![]),
        ("mget", 1, vec![]),
        ("scan", 3, vec![]),
    ] {
        let line = std::iter::once(name).chain(std::iter::repeat_n("x", args - 1));
        assert_eq!(places_of(&line.collect::<Vec<_>>().join(" ")), places, "{name} {args}");
    }
    for (line, places) in [
        ("eval x 0", vec![]),
        ("eval x 2 a b c", vec![3, 4]),
        ("evalsha_ro x 1 a", vec![3]),
        ("eval x 2 a", vec![]),
        ("eval x -1 a", vec![]),
        ("eval x one a", vec![]),
        ("eval x 9223372036854775807 a", vec![]),
    ] {
        assert_eq!(places_of(line), places, "{line}");
    }
}

fn places_of(line: &str) -> Vec<usize> {
    let mut list = ArgList::new();
    let input = format!("{line}\r\n");
    parse(input.as_bytes(), &Limits::with_value_bytes(1 << 20), &mut list);
    let args = list.args(input.as_bytes());
    lookup(args.arg(0))
        .map(|row| row.key_places(args).collect())
        .unwrap_or_default()
}

/// The row of an inline command by its name, or the error.
fn resolved(line: &[u8]) -> String {
    let mut list = ArgList::new();
    let input = [line, b"\r\n"].concat();
    let parsed = parse(&input, &Limits::with_value_bytes(1 << 20), &mut list);
    assert!(matches!(parsed, Parsed::Complete { .. }), "{}", line.escape_ascii());
    match resolve(list.args(&input)) {
        Ok(row) => row.name.to_owned(),
        Err(error) => {
            let mut text = Vec::new();
            error.append_to(&mut text);
            text.escape_ascii().to_string()
        }
    }
}

#[test]
fn commands_are_resolved_with_the_errors_of_redis() {
    let begin = "ERR unknown command \\'FOO\\', with args beginning with: ";
    for (line, expected) in [
        ("GeT a", "get".to_owned()),
        ("CLIENT list", "client|list".to_owned()),
        ("client SetInfo a b", "client|setinfo".to_owned()),
        ("COMMAND", "command".to_owned()),
        ("COMMAND count", "command|count".to_owned()),
        ("GET", "ERR wrong number of arguments for \\'get\\' command".to_owned()),
        (
            "get a b",
            "ERR wrong number of arguments for \\'get\\' command".to_owned(),
        ),
        (
            "MSET a b c",
            "ERR wrong number of arguments for \\'mset\\' command".to_owned(),
        ),
        (
            "MSETNX a b c",
            "ERR wrong number of arguments for \\'msetnx\\' command".to_owned(),
        ),
        (
            "PING a b",
            "ERR wrong number of arguments for \\'ping\\' command".to_owned(),
        ),
        ("MSET a b c d", "mset".to_owned()),
        ("PING a", "ping".to_owned()),
        (
            "CLIENT",
            "ERR wrong number of arguments for \\'client\\' command".to_owned(),
        ),
        (
            "CLIENT ID a",
            "ERR wrong number of arguments for \\'client|id\\' command".to_owned(),
        ),
        (
            "client FOO",
            "ERR unknown subcommand \\'FOO\\'. Try CLIENT HELP.".to_owned(),
        ),
        (
            "client FOO bar",
            "ERR unknown subcommand \\'FOO\\'. Try CLIENT HELP.".to_owned(),
        ),
        (
            "Client Caching yes",
            "ERR the command \\'CLIENT Caching\\' is not offered by Tidemark".to_owned(),
        ),
        (
            "HSET a b c",
            "ERR the command \\'HSET\\' is not offered by Tidemark".to_owned(),
        ),
        (
            "json.get a",
            "ERR the command \\'json.get\\' is not offered by Tidemark".to_owned(),
        ),
        ("FOO", begin.to_owned()),
        ("FOO a b c", format!("{begin}\\'a\\' \\'b\\' \\'c\\' ")),
        ("FOO \"\" \"a b\"", format!("{begin}\\'\\' \\'a b\\' ")),
        ("FOO \"a\\r\\nb\\x00c\"", format!("{begin}\\'a  b\\' ")),
        (
            "\"F\\r\\nO\" x",
            "ERR unknown command \\'F  O\\', with args beginning with: \\'x\\' ".to_owned(),
        ),
    ] {
        assert_eq!(resolved(line.as_bytes()), expected, "{line:?}");
    }
}

#[test]
fn errors_repeat_no_more_than_a_bound() {
    let begin = "ERR unknown command \\'FOO\\', with args beginning with: ";
    let a = |count: usize| "a".repeat(count);
    for (line, expected) in [
        (&format!("FOO {}", a(200)), format!("{begin}\\'{}\\' ", a(128))),
        (&format!("FOO {} b", a(126)), format!("{begin}\\'{}\\' ", a(126))),
        (
            &format!("FOO {} b c", a(123)),
            format!("{begin}\\'{}\\' \\'b\\' ", a(123)),
        ),
        (
            &format!("FOO {} {} {} b", a(50), a(50), a(50)),
            format!("{begin}\\'{}\\' \\'{}\\' \\'{}\\' ", a(50), a(50), a(22)),
        ),
        (
            &format!("client {}", a(200)),
            format!("ERR unknown subcommand \\'{}\\'. Try CLIENT HELP.", a(128)),
        ),
        (
            &a(200),
            format!("ERR unknown command \\'{}\\', with args beginning with: ", a(128)),
        ),
    ] {
        assert_eq!(resolved(line.as_bytes()), expected, "{line:?}");
    }
}
