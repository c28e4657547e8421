//! The configuration file: TOML, flat, every key known.

use std::path::Path;

use toml::Value;

use super::nearest::nearest;
use super::{OPTIONS, OptionError};

/// Keys and values of the file. Numbers and truth values become the text that a flag would have.
pub(super) fn read(path: &Path) -> Result<Vec<(&'static str, String)>, OptionError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        OptionError(format!(
            "can not read the configuration file {}: {error}",
            path.display()
        ))
    })?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(""));
        let line = before.matches('\n').count() + 1;
        let message = error.message().replace('\n', " ");
        OptionError(format!("{} is not TOML, line {line}: {message}", path.display()))
    })?;
    table
        .iter()
        .map(|(key, value)| Ok((known(key, path)?, text_of(key, value, path)?)))
        .collect()
}

fn known(key: &str, path: &Path) -> Result<&'static str, OptionError> {
    let keys = || OPTIONS.iter().map(|option| option.key);
    keys().find(|known| *known == key).ok_or_else(|| {
        let hint = nearest(key, keys()).map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
        OptionError(format!("there is no option `{key}` ({}){hint}", path.display()))
    })
}

fn text_of(key: &str, value: &Value, path: &Path) -> Result<String, OptionError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Boolean(switch) => Ok(switch.to_string()),
        // An option that is no list refuses the comma.
        Value::Array(values) => {
            let texts: Result<Vec<_>, _> = values.iter().map(|value| text_of(key, value, path)).collect();
            Ok(texts?.join(","))
        }
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => {
            let kind = value.type_str();
            Err(OptionError(format!(
                "{key} in {} is a {kind}: write a text, a number, true or false",
                path.display()
            )))
        }
    }
}
