//! Every way of writing, in both protocols, by the protocols' own tables of commands: that WATCH sees it, and the state
//! after a refused write.
//!
//! A command that is added to a table fails here until it has an example.

use std::sync::Arc;

use tidemark_protocol::memcached::table::{self as mc, Effect};
use tidemark_protocol::resp::command::{COMMANDS, Flags, Row};
use tidemark_types::MIB;

use crate::harness::{Client, Harness, array, bulk, open_tenant};

/// The input of a client to one of the two ports: words for Redis, lines for memcached, in which `{v}` is a value and
/// `{n}` its length.
#[derive(Clone, Copy, Debug)]
enum Request {
    Redis(&'static str),
    Memcached(&'static str),
}

use Request::{Memcached as M, Redis as R};

/// A command with those before it, and whether it changes key `k`: its value, its expiry or whether it is there.
#[derive(Clone, Copy, Debug)]
struct Example {
    before: Request,
    request: Request,
    is_change: bool,
}

const fn changes(before: Request, request: Request) -> Example {
    Example {
        before,
        request,
        is_change: true,
    }
}

const fn leaves(before: Request, request: Request) -> Example {
    Example {
        is_change: false,
        ..changes(before, request)
    }
}

const NOTHING: Request = R("PING");
const ITEM: Request = R("SET k 10");
const EXPIRING: Request = R("SET k 10 EX 100");
const OTHER: Request = R("SET o 10");
/// An item with a token that is known.
const TOKEN: Request = M("ms k 2 E77\r\n10\r\n");

const EXAMPLES: &[Example] = &[
    leaves(ITEM, R("GET k")),
    leaves(ITEM, R("MGET k o")),
    changes(ITEM, R("SET k {v}")),
    changes(NOTHING, R("SET k {v}")),
    changes(ITEM, R("SET k 10")),
    changes(ITEM, R("SET k {v} XX GET")),
    changes(ITEM, R("SET k {v} EX 5")),
    changes(EXPIRING, R("SET k {v} KEEPTTL")),
    changes(ITEM, R("SET k {v} IFEQ 10")),
    changes(ITEM, R("SET k {v} PXAT 1")),
    leaves(ITEM, R("SET k {v} NX")),
    leaves(ITEM, R("SET k {v} IFEQ 11")),
    leaves(NOTHING, R("SET k {v} XX")),
    changes(ITEM, R("MSET o 1 k {v}")),
    changes(NOTHING, R("MSETNX o 1 k {v}")),
    leaves(ITEM, R("MSETNX o 1 k {v}")),
    changes(NOTHING, R("SETNX k {v}")),
    leaves(ITEM, R("SETNX k {v}")),
    changes(ITEM, R("SETEX k 100 {v}")),
    changes(ITEM, R("PSETEX k 100000 {v}")),
    changes(ITEM, R("GETSET k {v}")),
    changes(ITEM, R("GETDEL k")),
    leaves(NOTHING, R("GETDEL k")),
    changes(ITEM, R("GETEX k EX 100")),
    changes(EXPIRING, R("GETEX k PERSIST")),
    leaves(EXPIRING, R("GETEX k")),
    changes(ITEM, R("APPEND k {v}")),
    changes(NOTHING, R("APPEND k {v}")),
    leaves(ITEM, R("STRLEN k")),
    leaves(ITEM, R("GETRANGE k 0 1")),
    leaves(ITEM, R("SUBSTR k 0 1")),
    changes(ITEM, R("SETRANGE k 1 {v}")),
    changes(ITEM, R("INCR k")),
    changes(NOTHING, R("INCR k")),
    changes(ITEM, R("DECR k")),
    changes(ITEM, R("INCRBY k 5")),
    changes(ITEM, R("DECRBY k 5")),
    changes(ITEM, R("INCRBYFLOAT k 0.5")),
    changes(ITEM, R("DEL o k")),
    leaves(NOTHING, R("DEL k")),
    changes(ITEM, R("UNLINK k")),
    leaves(ITEM, R("EXISTS k")),
    leaves(ITEM, R("TOUCH k")),
    leaves(ITEM, R("TYPE k")),
    changes(ITEM, R("EXPIRE k 100")),
    changes(ITEM, R("EXPIRE k 0")),
    leaves(ITEM, R("EXPIRE k 100 XX")),
    changes(ITEM, R("PEXPIRE k 100000")),
    changes(ITEM, R("EXPIREAT k 9999999999")),
    changes(ITEM, R("PEXPIREAT k 9999999999999")),
    leaves(EXPIRING, R("TTL k")),
    leaves(EXPIRING, R("PTTL k")),
    leaves(EXPIRING, R("EXPIRETIME k")),
    leaves(EXPIRING, R("PEXPIRETIME k")),
    changes(EXPIRING, R("PERSIST k")),
    leaves(ITEM, R("PERSIST k")),
    changes(ITEM, R("RENAME k z")),
    changes(OTHER, R("RENAME o k")),
    changes(ITEM, R("RENAMENX k z")),
    changes(OTHER, R("RENAMENX o k")),
    changes(ITEM, R("FLUSHDB")),
    changes(ITEM, R("FLUSHALL")),
    leaves(NOTHING, R("FLUSHALL")),
    leaves(ITEM, R("WATCH k")),
    leaves(ITEM, M("get k\r\n")),
    leaves(ITEM, M("gets k\r\n")),
    changes(ITEM, M("gat 100 k\r\n")),
    changes(EXPIRING, M("gat 0 o k\r\n")),
    leaves(ITEM, M("gat 0 k\r\n")),
    changes(ITEM, M("gats 100 k\r\n")),
    changes(ITEM, M("gats -1 k\r\n")),
    changes(ITEM, M("set k 0 0 {n}\r\n{v}\r\n")),
    changes(NOTHING, M("set k 0 100 {n} noreply\r\n{v}\r\n")),
    changes(ITEM, M("set k 0 -1 {n}\r\n{v}\r\n")),
    changes(NOTHING, M("add k 0 0 {n}\r\n{v}\r\n")),
    leaves(ITEM, M("add k 0 0 {n}\r\n{v}\r\n")),
    changes(ITEM, M("replace k 0 0 {n}\r\n{v}\r\n")),
    leaves(NOTHING, M("replace k 0 0 {n}\r\n{v}\r\n")),
    changes(ITEM, M("append k 0 0 {n}\r\n{v}\r\n")),
    changes(ITEM, M("prepend k 0 0 {n}\r\n{v}\r\n")),
    changes(TOKEN, M("cas k 0 0 {n} 77\r\n{v}\r\n")),
    leaves(TOKEN, M("cas k 0 0 {n} 78\r\n{v}\r\n")),
    changes(ITEM, M("incr k 1\r\n")),
    leaves(NOTHING, M("incr k 1\r\n")),
    changes(ITEM, M("decr k 1\r\n")),
    changes(ITEM, M("touch k 100\r\n")),
    changes(EXPIRING, M("touch k 0\r\n")),
    changes(ITEM, M("touch k -1\r\n")),
    changes(ITEM, M("delete k\r\n")),
    changes(ITEM, M("flush_all\r\n")),
    changes(NOTHING, M("mg k N100 v\r\n")),
    changes(ITEM, M("mg k T100 v\r\n")),
    changes(EXPIRING, M("mg k T0\r\n")),
    leaves(ITEM, M("mg k v c t f h l\r\n")),
    // The client wins the right to fetch the value anew, which Redis knows nothing of.
    leaves(EXPIRING, M("mg k v R1000\r\n")),
    changes(ITEM, M("ms k {n}\r\n{v}\r\n")),
    changes(TOKEN, M("ms k {n} C77 E77\r\n{v}\r\n")),
    changes(TOKEN, M("ms k {n} E77\r\n{v}\r\n")),
    changes(TOKEN, M("ms k {n} C76 I\r\n{v}\r\n")),
    leaves(TOKEN, M("ms k {n} C78\r\n{v}\r\n")),
    changes(ITEM, M("ms k {n} MA\r\n{v}\r\n")),
    changes(ITEM, M("ms k {n} MP\r\n{v}\r\n")),
    changes(ITEM, M("ms k {n} MR\r\n{v}\r\n")),
    changes(NOTHING, M("ms k {n} ME\r\n{v}\r\n")),
    changes(ITEM, M("ms aw== {n} b\r\n{v}\r\n")),
    changes(ITEM, M("md k\r\n")),
    changes(ITEM, M("md k I\r\n")),
    changes(ITEM, M("md k x\r\n")),
    changes(ITEM, M("ma k\r\n")),
    changes(ITEM, M("ma k MD T100\r\n")),
    changes(NOTHING, M("ma k N0 J5\r\n")),
    leaves(ITEM, M("me k\r\n")),
    leaves(ITEM, M("mn\r\n")),
];

/// Commands of Redis that may be refused for want of memory and have no value that could be too large.
const WITHOUT_VALUE: &[&str] = &["incr", "decr", "incrby", "decrby", "incrbyfloat"];

impl Request {
    /// The command's name.
    fn name(self) -> String {
        let (R(text) | M(text)) = self;
        let name = text.split([' ', '\r']).next().unwrap_or_default();
        name.to_lowercase()
    }

    fn has_value(self) -> bool {
        let (R(text) | M(text)) = self;
        text.contains("{v}")
    }

    /// As it is sent with this value.
    fn bytes(self, value: &str) -> Vec<u8> {
        match self {
            R(text) => array(
                &text
                    .split(' ')
                    .map(|word| word.replace("{v}", value))
                    .collect::<Vec<_>>(),
            ),
            M(text) => {
                let lines = text.replace("{n}", &value.len().to_string()).replace("{v}", value);
                lines.into_bytes()
            }
        }
    }
}

/// A client of both ports.
struct Both {
    redis: Client,
    memcached: Client,
}

impl Both {
    fn new(harness: &Harness) -> Self {
        Self {
            redis: harness.connect(),
            memcached: harness.connect_memcached(),
        }
    }

    /// Does a request, and returns all that is answered.
    fn ask(&mut self, request: Request, value: &str) -> String {
        let bytes = request.bytes(value);
        let reply = match request {
            R(_) => {
                self.redis.send(&bytes);
                self.redis.reply()
            }
            M(_) => self.memcached.memcached(&bytes),
        };
        String::from_utf8_lossy(&reply).into_owned()
    }
}

/// The examples of a command.
fn examples<'a>(name: &'a str, is_redis: bool) -> impl Iterator<Item = &'static Example> + use<'a> {
    EXAMPLES
        .iter()
        .filter(move |example| matches!(example.request, R(_)) == is_redis && example.request.name() == name)
}

/// Whether a command of Redis has to do with keys.
fn is_about_keys(row: &Row) -> bool {
    row.keys.first > 0 || row.flags.has(Flags::WRITE)
}

#[test]
fn every_command_has_examples() {
    for row in COMMANDS.iter().filter(|row| is_about_keys(row)) {
        let writes = row.flags.has(Flags::WRITE);
        let is_shown = examples(row.name, true).any(|example| example.is_change == writes);
        assert!(is_shown, "an example of {} is missing", row.name);
        let may_be_refused = row.flags.has(Flags::DENYOOM) && !WITHOUT_VALUE.contains(&row.name);
        let has_value = examples(row.name, true).any(|example| example.request.has_value());
        assert_eq!(may_be_refused, has_value, "an example of {} with a value", row.name);
    }
    for row in mc::COMMANDS.iter() {
        let mut all = examples(row.name, false);
        match row.effect {
            Effect::None => {
                assert!(all.all(|example| !example.is_change), "{} changes nothing", row.name);
            }
            Effect::Changes => assert!(all.any(|example| example.is_change), "an example of {}", row.name),
            Effect::Stores => {
                let is_shown = all.any(|example| example.is_change && example.request.has_value());
                assert!(is_shown, "an example of {} with a value", row.name);
            }
        }
    }
    let is_redis = |name: &str| COMMANDS.iter().any(|row| row.name == name);
    let is_memcached = |name: &str| mc::COMMANDS.iter().any(|row| row.name == name);
    for Example { request, .. } in EXAMPLES {
        let is_known = if matches!(request, R(_)) {
            is_redis
        } else {
            is_memcached
        };
        assert!(is_known(&request.name()), "{request:?} is no command");
    }
}

#[test]
fn whatever_changes_a_key_in_either_protocol_ends_a_transaction_that_watches_it() {
    let harness = Harness::start();
    let (mut watcher, mut other) = (harness.connect(), Both::new(&harness));
    for example in EXAMPLES {
        watcher.ask("FLUSHALL");
        other.ask(example.before, "");
        watcher.ask("WATCH k");
        let answered = other.ask(example.request, "1");
        watcher.ask("MULTI");
        watcher.ask("PING");
        let is_given_up = watcher.ask("EXEC") == "*-1\r\n";
        assert_eq!(is_given_up, example.is_change, "{example:?}: {answered}");
        // A connection that watches from now on is told of nothing that was before.
        watcher.ask("WATCH k");
        watcher.ask("MULTI");
        watcher.ask("PING");
        assert_eq!(watcher.ask("EXEC"), "*1\r\n+PONG\r\n", "{example:?}");
        other.ask(R("UNWATCH"), "");
    }
}

/// The value of key `k`.
fn held(other: &mut Both) -> Option<Vec<u8>> {
    other.redis.send(&array(&["GET", "k"]));
    let reply = other.redis.reply();
    (reply != b"$-1\r\n").then_some(reply)
}

/// Refuses each command that has a value, and looks at the rest.
fn refuse_each(harness: &Harness, value: &str, refusals: &[&str], may_be_evicted: bool) {
    let mut other = Both::new(harness);
    for example in EXAMPLES.iter().filter(|example| example.request.has_value()) {
        for noreply in [false, true] {
            let request = match example.request {
                M(text) if noreply => {
                    let silent: Arc<str> = text.replacen("{n}", "{n} noreply", 1).into();
                    // A word behind the length is a flag to the meta commands and the token to `cas`.
                    if text.starts_with("ms") || text.starts_with("cas") || text.contains("noreply") {
                        continue;
                    }
                    M(Box::leak(silent.to_string().into_boxed_str()))
                }
                _ if noreply => continue,
                request => request,
            };
            other.ask(R("FLUSHALL"), "");
            other.ask(example.before, "");
            let before = held(&mut other);
            let answered = other.ask(request, value);
            let is_refused = answered.is_empty() || refusals.iter().any(|refusal| answered.starts_with(refusal));
            let after = held(&mut other);
            match request {
                // Done without the value: its condition is not met, or its time has come already.
                _ if !is_refused && example.is_change => assert_eq!(after, None, "{request:?}: {answered}"),
                _ if !is_refused => assert_eq!(after, before, "{request:?}: {answered}"),
                R(_) => {
                    let is_kept = after == before || (may_be_evicted && after.is_none());
                    assert!(is_kept, "{request:?}: {answered}");
                }
                M(_) if example.is_change || !may_be_evicted => assert_eq!(after, None, "{request:?}: {answered}"),
                M(_) => assert!(after == before || after.is_none(), "{request:?}: {answered}"),
            }
        }
    }
}

#[test]
fn a_write_that_is_refused_as_too_large_leaves_nothing_stale_in_memcached_and_all_in_redis() {
    let harness = Harness::start();
    let value = "v".repeat(MIB as usize + 1);
    refuse_each(
        &harness,
        &value,
        &["-ERR", "SERVER_ERROR object too large for cache"],
        false,
    );
}

#[test]
fn so_does_one_that_is_refused_for_want_of_memory() {
    let small = tidemark_types::TenantPlan {
        shards: 1,
        grant_bytes: MIB / 2,
        cap_bytes: Some(MIB / 2),
        ..open_tenant()
    };
    let harness = Harness::with(1, vec![small]);
    let value = "v".repeat(900_000);
    let refusals = ["-OOM", "SERVER_ERROR out of memory storing object"];
    refuse_each(&harness, &value, &refusals, true);
}

#[test]
fn both_ports_see_the_examples_key() {
    let harness = Harness::start();
    let mut other = Both::new(&harness);
    other.ask(M("set k 0 0 {n}\r\n{v}\r\n"), "10");
    assert_eq!(held(&mut other), Some(bulk(b"10")));
}
