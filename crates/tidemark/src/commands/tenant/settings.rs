//! A tenant's settings as flags: a table, each row with its place in the API's body.

use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value, json};
use tidemark_types::{HitRatio, Size, parse_duration};

use crate::client::Body;
use crate::failure::Failure;

/// One flag.
#[derive(Debug)]
struct SettingFlag {
    name: &'static str,
    value_name: &'static str,
    help: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A size, at this place in the body.
    Size(&'static str),
    /// A hit ratio, at this place in the body.
    Ratio(&'static str),
    /// A time, at this place in the body.
    Time(&'static str),
    /// A name, at this place in the body.
    Name(&'static str),
    /// A whole number, at this place in the body.
    Count(&'static str),
    /// A staleness, at this place in the body: `none` is one, and `default` clears it.
    Staleness(&'static str),
    /// The policy's name.
    Policy,
}

const fn flag(name: &'static str, value_name: &'static str, kind: Kind, help: &'static str) -> SettingFlag {
    SettingFlag {
        name,
        value_name,
        help,
        kind,
    }
}

const FLAGS: [SettingFlag; 18] = [
    flag(
        "hit-ratio",
        "R",
        Kind::Ratio("goals.hit_ratio"),
        "The share of gets that shall find their key, such as 0.9, with the least memory that does it",
    ),
    flag(
        "floor",
        "SIZE",
        Kind::Size("goals.floor_bytes"),
        "Memory that is guaranteed while the tenant needs it",
    ),
    flag(
        "cap",
        "SIZE",
        Kind::Size("goals.cap_bytes"),
        "Memory that is never exceeded, at least 1MiB",
    ),
    flag(
        "policy",
        "NAME[:PARAM]",
        Kind::Policy,
        "Which items go when memory is short: adaptive, genie, fifo, clock, s3fifo or approx-lru:SHARE [default: adaptive]",
    ),
    flag(
        "latency",
        "T",
        Kind::Time("goals.latency_us"),
        "Mean time of a get to reach with the least memory, misses included, such as 700us",
    ),
    flag(
        "miss-cost",
        "T",
        Kind::Time("goals.miss_cost_us"),
        "Time of a miss until the value is there [default: as measured from a miss to the write that follows]",
    ),
    flag(
        "priority",
        "N",
        Kind::Count("goals.priority"),
        "Priority of its goal if not all can be met: 0 to 9, the highest first [default: 5]",
    ),
    flag(
        "weight",
        "W",
        Kind::Count("goals.weight"),
        "Share of the server beside other tenants', in proportion to theirs, 1 to 100 [default: 1]",
    ),
    flag(
        "utility",
        "NAME",
        Kind::Name("goals.utility"),
        "By what memory is shared that no floor and no goal asks for: proportional, max-min, throughput or cost [default: proportional]",
    ),
    flag(
        "ops-limit",
        "N",
        Kind::Count("limits.ops_per_second"),
        "Operations per second at most; each key of a command counts",
    ),
    flag(
        "bytes-limit",
        "SIZE",
        Kind::Size("limits.bytes_per_second"),
        "Bytes per second at most, requests and replies together",
    ),
    flag(
        "max-connections",
        "N",
        Kind::Count("limits.connections"),
        "Connections open at a time at most",
    ),
    flag(
        "spending-limit",
        "AMOUNT",
        Kind::Name("limits.spending_per_month"),
        "Amount that the tenant may spend in a month (UTC), in the currency of the prices, such as 12.50",
    ),
    flag(
        "at-limit",
        "ACTION",
        Kind::Name("limits.at_spending_limit"),
        "Action at the spending limit: alert, throttle, reject-writes or evict-only [default: alert]",
    ),
    flag(
        "flash-floor",
        "SIZE",
        Kind::Size("flash.floor_bytes"),
        "Flash that is guaranteed",
    ),
    flag(
        "flash-cap",
        "SIZE",
        Kind::Size("flash.cap_bytes"),
        "Flash that is never exceeded, at least 4MiB",
    ),
    flag(
        "flash-write-limit",
        "SIZE",
        Kind::Size("flash.write_bytes_per_second"),
        "Bytes written to flash in a second at most, at least 512KiB: what memory evicts beyond is gone, unused items first",
    ),
    flag(
        "staleness",
        "KIND",
        Kind::Staleness("flash.staleness"),
        "What a crash may undo on flash: strict (nothing, but every write waits for the device), bounded:T (deletes and overwrites of the last T) or none (all that was not written yet) [default: bounded:100ms]",
    ),
];

/// The given settings, in the order of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingArgs(Vec<(&'static SettingFlag, String)>);

impl SettingArgs {
    /// The body of a call that sets them; `none` clears one.
    pub(super) fn body(&self) -> Result<Body, Failure> {
        let mut body = Body::default();
        for (flag, text) in &self.0 {
            let place = format!("--{} {text}", flag.name);
            let wrong = |problem: String| Failure::usage(format!("{place}: {problem}"));
            match flag.kind {
                Kind::Size(path) | Kind::Ratio(path) | Kind::Time(path) | Kind::Count(path) | Kind::Name(path) => {
                    let parsed = match (text.as_str(), flag.kind) {
                        ("none", _) => Ok(Value::Null),
                        (ratio, Kind::Ratio(_)) => ratio_value(ratio),
                        (time, Kind::Time(_)) => time_value(time),
                        (count, Kind::Count(_)) => count_value(count),
                        (name, Kind::Name(_)) => Ok(json!(name)),
                        (size, _) => size_value(size),
                    };
                    let value = parsed.map_err(wrong)?;
                    insert(&mut body.json, path, value);
                    body.places.push((path, place));
                }
                Kind::Staleness(path) => {
                    let value = if text == "default" { Value::Null } else { json!(text) };
                    insert(&mut body.json, path, value);
                    body.places.push((path, place));
                }
                Kind::Policy => {
                    let value = if text == "none" { Value::Null } else { json!(text) };
                    body.json.insert("policy".into(), value);
                    body.places.push(("policy", place));
                }
            }
        }
        Ok(body)
    }
}

/// Puts a value at its place, `section.field`.
fn insert(body: &mut Map<String, Value>, path: &str, value: Value) {
    let (section, field) = path.split_once('.').unwrap_or(("", path));
    let section = body.entry(section).or_insert_with(|| Value::Object(Map::new()));
    section[field] = value;
}

fn count_value(text: &str) -> Result<Value, String> {
    let count: Result<u64, _> = text.parse();
    count
        .map(|count| json!(count))
        .map_err(|_| "a whole number is needed".into())
}

fn size_value(text: &str) -> Result<Value, String> {
    let size: Result<Size, _> = text.parse();
    size.map(|Size(bytes)| json!(bytes)).map_err(|error| error.to_string())
}

fn ratio_value(text: &str) -> Result<Value, String> {
    let ratio: Result<HitRatio, _> = text.parse();
    ratio.map(|ratio| json!(ratio.get())).map_err(|error| error.to_string())
}

fn time_value(text: &str) -> Result<Value, String> {
    parse_duration(text)
        .map(|time| json!(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
        .map_err(|error| error.to_string())
}

impl clap::Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| {
            command.arg(
                Arg::new(flag.name)
                    .long(flag.name)
                    .value_name(flag.value_name)
                    .help(flag.help),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag: &'static SettingFlag| Some((flag, matches.get_one::<String>(flag.name)?.clone()));
        Ok(Self(FLAGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(given: &[(&str, &str)]) -> SettingArgs {
        let find = |name: &str| FLAGS.iter().find(|flag| flag.name == name).unwrap();
        SettingArgs(
            given
                .iter()
                .map(|(name, text)| (find(name), (*text).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn flags_become_the_api_s_body() {
        for (given, body) in [
            (vec![], json!({})),
            (vec![("cap", "64MiB")], json!({"goals": {"cap_bytes": 64 << 20}})),
            (
                vec![("flash-floor", "1GiB"), ("flash-cap", "none"), ("staleness", "none")],
                json!({"flash": {"floor_bytes": 1 << 30, "cap_bytes": null, "staleness": "none"}}),
            ),
            (
                vec![("flash-write-limit", "1MiB"), ("staleness", "default")],
                json!({"flash": {"write_bytes_per_second": 1 << 20, "staleness": null}}),
            ),
            (
                vec![("floor", "0"), ("cap", "none")],
                json!({"goals": {"floor_bytes": 0, "cap_bytes": null}}),
            ),
            (vec![("hit-ratio", "0.9")], json!({"goals": {"hit_ratio": 0.9}})),
            (vec![("hit-ratio", "none")], json!({"goals": {"hit_ratio": null}})),
            (vec![("latency", "700us")], json!({"goals": {"latency_us": 700}})),
            (vec![("miss-cost", "5ms")], json!({"goals": {"miss_cost_us": 5000}})),
            (vec![("priority", "9")], json!({"goals": {"priority": 9}})),
            (vec![("utility", "max-min")], json!({"goals": {"utility": "max-min"}})),
            (vec![("utility", "none")], json!({"goals": {"utility": null}})),
            (
                vec![
                    ("weight", "3"),
                    ("ops-limit", "500"),
                    ("bytes-limit", "1MiB"),
                    ("max-connections", "none"),
                ],
                json!({
                    "goals": {"weight": 3},
                    "limits": {"ops_per_second": 500, "bytes_per_second": 1 << 20, "connections": null},
                }),
            ),
            (
                vec![("spending-limit", "12.50"), ("at-limit", "throttle")],
                json!({"limits": {"spending_per_month": "12.50", "at_spending_limit": "throttle"}}),
            ),
            (
                vec![("spending-limit", "none")],
                json!({"limits": {"spending_per_month": null}}),
            ),
            (vec![("policy", "clock")], json!({"policy": "clock"})),
            (vec![("policy", "none")], json!({"policy": null})),
        ] {
            assert_eq!(Value::Object(args(&given).body().unwrap().json), body, "{given:?}");
        }
    }

    #[test]
    fn wrong_flags_are_named() {
        for (flag, text, part) in [
            ("cap", "much", "64MiB"),
            ("hit-ratio", "0", "0.001 to 0.9999"),
            ("hit-ratio", "1.5", "0.001 to 0.9999"),
            ("hit-ratio", "ninety", "0.001 to 0.9999"),
            ("latency", "soon", "5s"),
            ("priority", "high", "a whole number"),
            ("weight", "heavy", "a whole number"),
            ("weight", "-1", "a whole number"),
            ("ops-limit", "1.5", "a whole number"),
            ("bytes-limit", "fast", "64MiB"),
            ("max-connections", "", "a whole number"),
        ] {
            let error = args(&[(flag, text)]).body().unwrap_err().to_string();
            assert!(error.starts_with(&format!("--{flag} {text}: ")), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }
}
