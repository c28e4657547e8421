//! Bodies about secrets and tokens.

use serde_json::{Map, Value};
use tidemark_control::{NewSecret, Refusal, RefusalKind, Rotation, SecretNameError, SecretText};

use super::values::{unknown_field, wrong};
use crate::tokens::{Role, RoleError};

/// The fields of a call that changes secrets.
#[derive(Default)]
struct Rotated {
    new: NewSecret,
    has_other: bool,
    is_finish: bool,
    is_end: bool,
}

impl Rotated {
    fn take(&mut self, key: &str, value: &Value) -> Result<(), Refusal> {
        let invalid = |text: String| Refusal::new(RefusalKind::Invalid, text).field(key);
        let flag = |value: &Value| {
            value
                .as_bool()
                .ok_or_else(|| wrong(key, "yes or no", &["true", "false"]))
        };
        let text = |value: &Value| match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(key, "a text", &["a text", "null"])),
        };
        match key {
            "finish" => self.is_finish = flag(value)?,
            "end" => self.is_end = flag(value)?,
            "force" => self.new.is_forced = flag(value)?,
            "secret_name" => {
                if let Some(text) = text(value)? {
                    self.new.name = text
                        .parse()
                        .map_err(|error: SecretNameError| invalid(error.to_string()))?;
                }
            }
            "permissions" => {
                if let Some(text) = text(value)? {
                    let parsed = text.parse();
                    let parsed = parsed.map_err(|error: tidemark_types::PermissionError| invalid(error.to_string()))?;
                    self.new.permissions = Some(parsed);
                    self.has_other = true;
                }
            }
            "secret" => {
                self.new.text = text(value)?.map(|text| SecretText::given(&text)).transpose()?;
                self.has_other |= self.new.text.is_some();
            }
            _ => return Err(unknown_field(key, &ROTATED)),
        }
        self.has_other |= self.new.is_forced;
        Ok(())
    }
}

const ROTATED: [&str; 6] = ["secret_name", "permissions", "secret", "force", "finish", "end"];

/// `{"secret_name", "permissions", "secret", "force"}` of a new secret, or `{"secret_name", "finish": true}`, or with `end`;
/// nothing: a new secret that allows everything.
pub(crate) fn rotation(object: Map<String, Value>) -> Result<Rotation, Refusal> {
    let mut rotated = Rotated::default();
    for (key, value) in object {
        rotated.take(&key, &value)?;
    }
    let ends = rotated.is_finish || rotated.is_end;
    if (ends && rotated.has_other) || (rotated.is_finish && rotated.is_end) {
        let message = "`finish` and `end` make no new secret that anything could be said of";
        return Err(Refusal::new(RefusalKind::Invalid, message).field("finish"));
    }
    Ok(match (rotated.is_finish, rotated.is_end) {
        (true, _) => Rotation::Finish(rotated.new.name),
        (_, true) => Rotation::End(rotated.new.name),
        _ => Rotation::Add(rotated.new),
    })
}

/// A token that is to be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// `{"name","role"}` of a new token; without a name it has the role's.
pub(crate) fn new_token(object: Map<String, Value>) -> Result<NewToken, Refusal> {
    let roles = Role::ALL.map(Role::name);
    let (mut name, mut role) = (None, None);
    for (key, value) in object {
        match (key.as_str(), value) {
            ("name", Value::Null) => {}
            ("name", Value::String(text)) => name = Some(text),
            ("name", _) => return Err(wrong("name", "a token's name", &["a text", "null"])),
            ("role", Value::String(text)) => {
                role = Some(text.parse::<Role>().map_err(|error: RoleError| {
                    Refusal::new(RefusalKind::Invalid, error.to_string())
                        .field("role")
                        .allowed(roles)
                })?);
            }
            ("role", _) => return Err(wrong("role", "a role's name", &roles)),
            _ => return Err(unknown_field(&key, &["name", "role"])),
        }
    }
    let role = role.ok_or_else(|| Refusal::new(RefusalKind::Invalid, "a new token needs a `role`").field("role"))?;
    Ok(NewToken {
        name: name.unwrap_or_else(|| role.name().to_owned()),
        role,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidemark_types::Permissions;

    use super::super::tests::object;
    use super::*;

    #[test]
    fn rotations() {
        let add = |permissions| {
            Some(Rotation::Add(NewSecret {
                permissions,
                ..NewSecret::default()
            }))
        };
        let reader: tidemark_control::SecretName = "reader".parse().unwrap();
        let of_reader = NewSecret {
            name: reader.clone(),
            is_forced: true,
            text: Some(SecretText::given("q0E8l5n1p2m3k4j5h6g7f8").unwrap()),
            ..NewSecret::default()
        };
        for (body, expected) in [
            (json!({}), add(None)),
            (json!({"permissions": null, "finish": false}), add(None)),
            (json!({"permissions": "read"}), add(Some(Permissions::READ))),
            (json!({"finish": true}), Some(Rotation::Finish(Default::default()))),
            (
                json!({"finish": true, "secret_name": "reader"}),
                Some(Rotation::Finish(reader.clone())),
            ),
            (
                json!({"end": true, "secret_name": "reader"}),
                Some(Rotation::End(reader)),
            ),
            (
                json!({"secret_name": "reader", "force": true, "secret": "q0E8l5n1p2m3k4j5h6g7f8"}),
                Some(Rotation::Add(of_reader)),
            ),
            (json!({"end": true, "finish": true}), None),
            (json!({"secret_name": "A"}), None),
            (json!({"finish": true, "permissions": "read"}), None),
            (json!({"finish": "yes"}), None),
            (json!({"permissions": "fly"}), None),
            (json!({"permissions": ["read"]}), None),
            (json!({"secret": "x"}), None),
        ] {
            assert_eq!(rotation(object(body.clone())).ok(), expected, "{body}");
        }
    }

    #[test]
    fn a_new_token_needs_a_role() {
        let made = |body: Value| new_token(object(body)).map(|new| (new.name, new.role));
        let scraper = |name: &str| Ok((name.to_owned(), Role::Scraper));
        assert_eq!(made(json!({"role": "scraper"})), scraper("scraper"));
        assert_eq!(made(json!({"role": "scraper", "name": null})), scraper("scraper"));
        assert_eq!(
            made(json!({"role": "scraper", "name": "prometheus"})),
            scraper("prometheus")
        );
        for (body, field) in [
            (json!({}), "role"),
            (json!({"role": "root"}), "role"),
            (json!({"role": null}), "role"),
            (json!({"role": "viewer", "name": 5}), "name"),
            (json!({"role": "viewer", "until": 5}), "until"),
        ] {
            assert_eq!(made(body).unwrap_err().field.as_deref(), Some(field));
        }
    }
}
