//! A tenant's settings as flags, which the table of settings has.

use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value, json};
use tidemark_control::{SETTINGS, Setting, ValueKind};
use tidemark_types::{HitRatio, Size, parse_duration};

use crate::client::Body;
use crate::failure::Failure;

/// The given settings, in the order of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingArgs(Vec<(&'static Setting, String)>);

impl SettingArgs {
    /// The body of a call that sets or clears them.
    pub(super) fn body(&self) -> Result<Body, Failure> {
        let mut body = Body::default();
        for (setting, text) in &self.0 {
            let place = format!("--{} {text}", setting.flag);
            let value = value(setting, text).map_err(|problem| Failure::usage(format!("{place}: {problem}")))?;
            insert(&mut body.json, setting, value);
            body.places.push((setting.place.path, place));
        }
        Ok(body)
    }
}

/// Puts a value at its place.
fn insert(body: &mut Map<String, Value>, setting: &Setting, value: Value) {
    let place = setting.place;
    if place.section.is_empty() {
        body.insert(place.name.into(), value);
        return;
    }
    let section = body.entry(place.section).or_insert_with(|| Value::Object(Map::new()));
    section[place.name] = value;
}

/// A flag's text as the API has it.
fn value(setting: &Setting, text: &str) -> Result<Value, String> {
    if text == setting.clear {
        return Ok(Value::Null);
    }
    match setting.kind {
        ValueKind::Size => size_value(text),
        ValueKind::Count => count_value(text),
        ValueKind::Time => time_value(text),
        ValueKind::Ratio => ratio_value(text),
        ValueKind::Text => Ok(json!(text)),
    }
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
        SETTINGS.iter().fold(command, |command, setting| {
            command.arg(
                Arg::new(setting.flag)
                    .long(setting.flag)
                    .value_name(setting.value_name)
                    .help(setting.help()),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &'static Setting| Some((setting, matches.get_one::<String>(setting.flag)?.clone()));
        Ok(Self(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidemark_control::Unset;

    use super::*;

    fn args(given: &[(&str, &str)]) -> SettingArgs {
        let find = |name: &str| SETTINGS.iter().find(|setting| setting.flag == name).unwrap();
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
            (vec![("minimise", "latency")], json!({"goals": {"minimise": "latency"}})),
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

    /// The texts that a row says beside its help's words: what is allowed, and the default.
    fn facts(setting: &Setting) -> Vec<String> {
        let bounds = setting.bounds.filter(|_| setting.help.contains("{least}"));
        let range = bounds.map(|bounds| {
            let (least, most) = (setting.shown(bounds.least), setting.shown(bounds.most));
            if setting.help.contains("{most}") {
                format!("{least} to {most}")
            } else {
                format!("at least {least}")
            }
        });
        let default = match setting.unset {
            Unset::Value(value) | Unset::InForce { value, .. } => Some(value()),
            Unset::Nothing | Unset::Measured(_) => None,
        };
        range.into_iter().chain(default).collect()
    }

    #[test]
    fn the_help_says_bounds_names_and_default() {
        for (flag, help) in [
            ("cap", "Memory that is never exceeded, at least 1MiB"),
            (
                "priority",
                "Priority of its goal if not all can be met: 0 to 9, the highest first [default: 5]",
            ),
            (
                "utility",
                "By what memory is shared that no floor and no goal asks for: proportional, max-min, throughput or cost \
                 [default: proportional]",
            ),
            (
                "miss-cost",
                "Time of a miss until the value is there [default: as measured from a miss to the write that follows]",
            ),
        ] {
            let setting = SETTINGS.iter().find(|setting| setting.flag == flag).unwrap();
            assert_eq!(setting.help(), help);
        }
        for setting in SETTINGS {
            let help = setting.help();
            assert!(!help.contains(['{', '}']), "--{}: {help}", setting.flag);
            for fact in facts(setting) {
                assert!(help.contains(&fact), "--{}: {fact}: {help}", setting.flag);
            }
        }
    }

    #[test]
    fn docs_have_a_row_for_each_setting_and_no_other() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tenants.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, table) = page
            .split_once("| setting | field | meaning |\n|---|---|---|\n")
            .unwrap();
        let mut rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
        for setting in SETTINGS {
            let (flag, path) = (setting.flag, setting.place.path);
            let begin = format!("| `--{flag} {}` | `{path}` | ", setting.value_name);
            let row = rows.iter().position(|row| row.starts_with(&begin));
            let row = rows.remove(row.unwrap_or_else(|| panic!("docs/tenants.md has no row that begins `{begin}`")));
            // People's pages put a space between a number and its unit.
            let said = row.replace(' ', "");
            for fact in facts(setting) {
                assert!(said.contains(&fact.replace(' ', "")), "--{flag}: {fact}: {row}");
            }
        }
        assert!(rows.is_empty(), "rows of no setting: {rows:?}");
    }
}
