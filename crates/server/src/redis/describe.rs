//! COMMAND: the commands described to clients, from the protocol's table.

use std::sync::LazyLock;

use tidemark_protocol::resp::Reply;
use tidemark_protocol::resp::command::{COMMANDS, CommandId, Flags, KeyPlaces, Row, lookup};
use tidemark_protocol::resp::glob::{self, Case};
use tidemark_protocol::resp::session::{self as options, CommandFilter};

use super::answer::{Done, reply};
use super::dispatch::{Call, Family, Handler};
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Command, Handler::Session(all)),
    (CommandId::CommandCount, Handler::Session(count)),
    (CommandId::CommandInfo, Handler::Session(info)),
    (CommandId::CommandDocs, Handler::Session(docs)),
    (CommandId::CommandList, Handler::Session(list)),
    (CommandId::CommandGetKeys, Handler::Session(get_keys)),
];

/// All rows, subcommands behind their container: the order in which they are numbered.
static BY_NUMBER: LazyLock<Vec<&'static Row>> = LazyLock::new(|| {
    COMMANDS
        .iter()
        .flat_map(|row| std::iter::once(row).chain(row.subcommands))
        .collect()
});

/// The row of a number ([`CommandId`]).
pub(super) fn row_of(number: usize) -> Option<&'static Row> {
    BY_NUMBER.get(number).copied()
}

/// All commands and subcommands.
pub(super) fn all_rows() -> impl Iterator<Item = &'static Row> {
    BY_NUMBER.iter().copied()
}

fn all<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let mut reply = reply(session, exec);
    reply.array(COMMANDS.len());
    COMMANDS.iter().for_each(|row| describe(row, &mut reply));
    Ok(())
}

fn count<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    reply(session, exec).integer(COMMANDS.len() as i64);
    Ok(())
}

fn info<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if call.args.len() == 2 {
        return all(call, session, exec);
    }
    let names = call.args.from(2);
    let mut reply = reply(session, exec);
    reply.array(names.len());
    for name in names {
        match named(name) {
            Some(row) => describe(row, &mut reply),
            None => reply.null(),
        }
    }
    Ok(())
}

/// The row of `get` or `client|list`.
fn named(name: &[u8]) -> Option<&'static Row> {
    match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => lookup(&name[..bar])?.subcommand(&name[bar + 1..]),
        None => lookup(name),
    }
}

/// Name, arity, flags, key places, categories, hints, key specifications, subcommands.
fn describe(row: &Row, reply: &mut Reply<'_>) {
    reply.array(10);
    reply.bulk(row.name.as_bytes());
    reply.integer(row.arity.into());
    reply.set(row.flags.names().count());
    row.flags.names().for_each(|flag| reply.simple(flag));
    reply.integer(row.keys.first.into());
    reply.integer(row.keys.last.into());
    reply.integer(row.keys.step.into());
    let categories = row.categories();
    reply.set(categories.names().count());
    categories.names().for_each(|name| reply.simple(&format!("@{name}")));
    reply.set(row.tips.len());
    row.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    let specs = KeySpecs::of(row);
    reply.set(specs.0.len());
    specs.0.iter().for_each(|spec| spec.describe(reply));
    match row.subcommands {
        [] => reply.set(0),
        rows => {
            reply.array(rows.len());
            rows.iter().for_each(|row| describe(row, reply));
        }
    }
}

/// The action of a command on some of its keys, and their places.
struct KeySpec {
    flags: &'static [&'static str],
    keys: KeyPlaces,
}

struct KeySpecs(Vec<KeySpec>);

impl KeySpecs {
    fn of(row: &Row) -> Self {
        use CommandId::{Append, Del, GetDel, MSet, MSetNx, PSetEx, Rename, RenameNx, SetEx, SetNx, Unlink};
        use CommandId::{
            Decr, DecrBy, Exists, GetEx, GetSet, Incr, IncrBy, IncrByFloat, Set, StrLen, Touch, Type, Watch,
        };
        if row.keys.first == 0 {
            return Self(Vec::new());
        }
        let (one, two) = (KeyPlaces { last: 1, ..row.keys }, KeyPlaces { first: 2, ..row.keys });
        let flags: &[&str] = match row.id {
            Rename | RenameNx => {
                let written: &[&str] = if row.id == Rename {
                    &["OW", "update"]
                } else {
                    &["OW", "insert"]
                };
                let moved = KeySpec {
                    flags: &["RW", "access", "delete"],
                    keys: one,
                };
                return Self(vec![
                    moved,
                    KeySpec {
                        flags: written,
                        keys: two,
                    },
                ]);
            }
            Set => &["RW", "access", "update", "variable_flags"],
            MSet | SetEx | PSetEx => &["OW", "update"],
            MSetNx | SetNx => &["OW", "insert"],
            GetSet | Incr | Decr | IncrBy | DecrBy | IncrByFloat | GetEx => &["RW", "access", "update"],
            GetDel => &["RW", "access", "delete"],
            Append => &["RW", "insert"],
            Del | Unlink => &["RM", "delete"],
            StrLen | Type | Exists | Touch | Watch => &["RO"],
            _ if row.flags.has(Flags::WRITE) => &["RW", "update"],
            _ => &["RO", "access"],
        };
        Self(vec![KeySpec { flags, keys: row.keys }])
    }
}

impl KeySpec {
    fn describe(&self, reply: &mut Reply<'_>) {
        let KeyPlaces { first, last, step } = self.keys;
        // The last key is counted from the first one, or from behind.
        let last = if last < 0 {
            i64::from(last)
        } else {
            i64::from(last) - i64::from(first)
        };
        reply.map(3);
        reply.bulk(b"flags");
        reply.set(self.flags.len());
        self.flags.iter().for_each(|flag| reply.simple(flag));
        reply.bulk(b"begin_search");
        search(reply, "index", &[("index", first.into())]);
        reply.bulk(b"find_keys");
        search(
            reply,
            "range",
            &[("lastkey", last), ("keystep", step.into()), ("limit", 0)],
        );
    }
}

fn search(reply: &mut Reply<'_>, kind: &str, numbers: &[(&str, i64)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

fn docs<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let rows: Vec<&Row> = match call.args.len() {
        2 => COMMANDS.iter().collect(),
        // Unknown names are left out, as in Redis.
        _ => call.args.from(2).filter_map(named).collect(),
    };
    let mut reply = reply(session, exec);
    document_all(rows.into_iter(), &mut reply);
    Ok(())
}

fn document_all<'r>(rows: impl ExactSizeIterator<Item = &'r Row>, reply: &mut Reply<'_>) {
    reply.map(rows.len());
    for row in rows {
        reply.bulk(row.name.as_bytes());
        reply.map(3 + usize::from(!row.subcommands.is_empty()));
        for (name, text) in [("summary", row.summary), ("since", row.since), ("group", row.group)] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        if !row.subcommands.is_empty() {
            reply.bulk(b"subcommands");
            document_all(row.subcommands.iter(), reply);
        }
    }
}

fn list<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let filter = options::command_list(call.args)?;
    let is_named = |row: &&Row| match filter {
        CommandFilter::All => true,
        CommandFilter::Category(category) => category.is_some_and(|category| row.categories().has(category)),
        CommandFilter::Pattern(pattern) => glob::matches(pattern, row.name.as_bytes(), Case::Ignored),
        CommandFilter::Module => false,
    };
    let rows: Vec<&Row> = all_rows().filter(is_named).collect();
    let mut reply = reply(session, exec);
    reply.array(rows.len());
    rows.iter().for_each(|row| reply.bulk(row.name.as_bytes()));
    Ok(())
}

fn get_keys<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let keys: Vec<&[u8]> = options::command_get_keys(call.args)?.collect();
    let mut reply = reply(session, exec);
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_number() {
        for row in all_rows() {
            assert_eq!(row_of(row.id as usize), Some(row), "{}", row.name);
        }
        assert_eq!(row_of(all_rows().count()), None);
    }

    #[test]
    fn subcommands_are_named_behind_a_bar() {
        for (name, id) in [
            ("GET", Some(CommandId::Get)),
            ("client|LIST", Some(CommandId::ClientList)),
            ("client|none", None),
            ("get|list", None),
            ("none", None),
        ] {
            assert_eq!(named(name.as_bytes()).map(|row| row.id), id, "{name}");
        }
    }
}
