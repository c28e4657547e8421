//! `tidemark serve --print-config`: the options that a start would have.

use serde_json::{Map, Value};
use tidemark_control::{ServerSettings, StateFile};
use tidemark_types::{Size, format_duration};

use crate::options::{OPTIONS, OptionSpec, ServeOptions, Written};
use crate::output::note;

/// The options in force as a file that would say the same, or as JSON, with what `tidemark server set` has put in their place.
pub(super) fn configuration(options: &ServeOptions, written: &Written, json: bool) -> String {
    let known = OPTIONS
        .iter()
        .filter_map(|option| Some((option, options.text(option.key)?)));
    let set = set_while_running(options);
    if json {
        // A number and a truth value are JSON as they stand; every other text is a string.
        let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        let mut object: Map<String, Value> = known
            .map(|(option, text)| (option.key.to_owned(), value(text)))
            .collect();
        if !set.is_empty() {
            let set = set.into_iter().map(|(key, text)| (key.to_owned(), Value::String(text)));
            object.insert("set_while_running".into(), Value::Object(set.collect()));
        }
        return Value::Object(object).to_string();
    }
    let line = |(option, text): (&OptionSpec, String)| {
        let value = if option.value_name == "N" || option.value_name.is_empty() {
            text
        } else {
            toml::Value::String(text).to_string()
        };
        format!("{} = {value}  # {}", option.key, written.origin(option))
    };
    let set = set
        .into_iter()
        .map(|(key, text)| format!("# {key} is {text} in this data folder, by `tidemark server set`"));
    known.map(line).chain(set).collect::<Vec<_>>().join("\n")
}

/// The settings in the data folder that win over the options, by the names of their flags.
fn set_while_running(options: &ServeOptions) -> Vec<(&'static str, String)> {
    match StateFile::peek_server(&options.data) {
        Ok(set) => in_force(set.unwrap_or_default(), options.memory_bytes),
        Err(error) => {
            note(&format!("what `tidemark server set` has set is not known: {error}"));
            Vec::new()
        }
    }
}

/// A size of the pool is void once the configuration says another one than it did when the pool was set.
fn in_force(set: ServerSettings, configured_bytes: Option<u64>) -> Vec<(&'static str, String)> {
    let pool = set.pool.filter(|pool| Some(pool.configured_bytes) == configured_bytes);
    let memory = pool.map(|pool| ("memory", Size(pool.bytes).to_string()));
    let period = set.round_period.map(|period| ("round_period", format_duration(period)));
    memory.into_iter().chain(period).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidemark_control::PoolSetting;

    use super::*;

    #[test]
    fn a_pool_that_was_set_wins_until_the_configuration_changes() {
        let set = ServerSettings {
            pool: Some(PoolSetting {
                bytes: 4 << 30,
                configured_bytes: 1 << 30,
            }),
            round_period: Some(Duration::from_millis(500)),
        };
        let memory = ("memory", "4GiB".to_owned());
        let period = ("round_period", "500ms".to_owned());
        assert_eq!(in_force(set, Some(1 << 30)), [memory, period.clone()]);
        assert_eq!(in_force(set, Some(2 << 30)), [period]);
        assert_eq!(in_force(ServerSettings::default(), Some(1 << 30)), []);
    }
}
