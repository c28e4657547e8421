//! JSON in which every field of an object is there once. RFC 8259 leaves the meaning of a repeated field open (section
//! 4). It is refused here, since one of the two values would be passed over unsaid.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A value without such objects in it.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Builder).map(Self)
    }
}

struct Builder;

impl<'de> Visitor<'de> for Builder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Unique(value))) = fields.next_entry::<String, _>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom("a field is there twice"));
            }
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_the_library_reads_but_for_fields_that_are_there_twice() {
        for (text, is_good) in [
            ("null", true),
            (r#"{"a": [true, -1, 18446744073709551615, 1.5, "x", null, {}]}"#, true),
            (r#"{"a": {"b": 1}, "b": {"b": 2}}"#, true),
            (r#"{"a": 1, "a": 1}"#, false),
            (r#"{"a": [{"b": 1, "b": null}]}"#, false),
            (r#"{"a": 1, "\u0061": 2}"#, false),
            ("{", false),
            ("1 1", false),
        ] {
            let read = serde_json::from_str::<Unique>(text).ok().map(|Unique(value)| value);
            let expected = is_good.then(|| serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(read, expected, "{text}");
        }
    }
}
