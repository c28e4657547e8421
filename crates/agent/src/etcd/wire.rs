//! How etcd's gateway writes keys, values, numbers and events. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{EtcdError, Write};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// When it was last changed.
    pub revision: u64,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was set.
    Put(Pair),
    /// A key was removed, or its lease has ended.
    Delete {
        /// Which.
        key: String,
        /// When.
        revision: u64,
    },
}

pub(super) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// The first key that does not begin with `prefix` any more.
pub(super) fn end_of(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    STANDARD.encode(end)
}

/// A number that may be a text, or absent, which is zero.
pub(super) fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        value => value.as_u64().unwrap_or_default(),
    }
}

fn text(value: &Value) -> Result<String, EtcdError> {
    let encoded = value.as_str().unwrap_or_default();
    let bytes = STANDARD.decode(encoded).map_err(|_| EtcdError::Unreadable)?;
    String::from_utf8(bytes).map_err(|_| EtcdError::Unreadable)
}

fn pair(value: &Value) -> Result<Pair, EtcdError> {
    Ok(Pair {
        key: text(&value["key"])?,
        value: text(&value["value"])?,
        revision: number(&value["mod_revision"]),
    })
}

pub(super) fn pairs(value: &Value) -> Result<Vec<Pair>, EtcdError> {
    value.as_array().into_iter().flatten().map(pair).collect()
}

pub(super) fn events(value: &Value) -> Result<Vec<Event>, EtcdError> {
    let event = |event: &Value| {
        let Pair { key, value, revision } = pair(&event["kv"])?;
        Ok(if event["type"].as_str() == Some("DELETE") {
            Event::Delete { key, revision }
        } else {
            Event::Put(Pair { key, value, revision })
        })
    };
    value.as_array().into_iter().flatten().map(event).collect()
}

pub(super) fn operation(write: &Write) -> Value {
    match write {
        Write::Put { key, value, lease } => json!({"request_put": {
            "key": encoded(key), "value": encoded(value), "lease": lease.to_string(),
        }}),
        Write::Delete { key } => json!({"request_delete_range": {"key": encoded(key)}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_writes_is_read() {
        let answer = json!([
            {"kv": {"key": "L2E=", "create_revision": "2", "mod_revision": "2", "version": "1", "value": "MQ=="}},
            {"type": "DELETE", "kv": {"key": "L2E=", "mod_revision": "3"}}
        ]);
        let pair = Pair {
            key: "/a".into(),
            value: "1".into(),
            revision: 2,
        };
        let gone = Event::Delete {
            key: "/a".into(),
            revision: 3,
        };
        assert_eq!(events(&answer).unwrap(), [Event::Put(pair), gone]);
        assert_eq!(events(&Value::Null).unwrap(), []);
        assert!(events(&json!([{"kv": {"key": "?"}}])).is_err());
    }

    #[test]
    fn numbers_may_be_texts_or_absent() {
        for (value, expected) in [
            (json!("7587899187745136389"), 7_587_899_187_745_136_389),
            (json!(3), 3),
            (Value::Null, 0),
        ] {
            assert_eq!(number(&value), expected);
        }
    }
}
