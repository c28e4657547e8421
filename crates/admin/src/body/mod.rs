//! Requests' bodies: JSON objects, read under limits, every field known or refused.

mod secrets;
mod settings;
mod values;

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Map, Value};
use tidemark_control::{Refusal, RefusalKind, SecretText, SettingsPatch};

use crate::answer::ApiError;
use crate::unique::Unique;
pub(crate) use secrets::{new_token, rotation};
use settings::settings;
pub(crate) use settings::{server_patch, settings_patch};
use values::wrong;

/// The largest body: a hundred times the longest request.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// A body that is one JSON object; `None` for an empty body.
pub(crate) async fn read_object(body: Body) -> Result<Option<Map<String, Value>>, ApiError> {
    // A length that is announced is refused before anything of it is received.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let reading = tokio::time::timeout(BODY_PATIENCE, Limited::new(body, MAX_BODY_BYTES).collect());
    let bytes = match reading.await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(error)) => {
            let message = format!("the body is broken off: {error}");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "broken_off", message));
        }
        Err(_) => {
            let message = format!("the body did not arrive within {} s", BODY_PATIENCE.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message));
        }
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    match serde_json::from_slice(&bytes) {
        Ok(Unique(Value::Object(object))) => Ok(Some(object)),
        Ok(_) => Err(bad_json("a JSON object is needed")),
        Err(error) => Err(bad_json(&format!("the body can not be read: {error}"))),
    }
}

/// The same as [`read_object`], but a body is required.
pub(crate) async fn read_needed_object(body: Body) -> Result<Map<String, Value>, ApiError> {
    read_object(body)
        .await?
        .ok_or_else(|| bad_json("the body is empty: a JSON object is needed"))
}

fn too_large() -> ApiError {
    let message = format!("the body is longer than {MAX_BODY_BYTES} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn bad_json(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "bad_json", message)
}

/// A tenant that is to be made.
pub(crate) struct NewTenant {
    pub(crate) name: String,
    /// Its first secret, if its owner has made one.
    pub(crate) secret: Option<SecretText>,
    pub(crate) patch: SettingsPatch,
}

/// `{"name","secret","goals","limits","flash","policy"}` of a new tenant.
pub(crate) fn new_tenant(mut object: Map<String, Value>) -> Result<NewTenant, Refusal> {
    let name = match object.remove("name") {
        Some(Value::String(name)) => name,
        Some(_) => return Err(wrong("name", "a tenant's name", &["a text"])),
        None => return Err(Refusal::new(RefusalKind::Invalid, "a new tenant needs a `name`").field("name")),
    };
    let secret = match object.remove("secret") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(SecretText::given(&text)?),
        Some(_) => return Err(wrong("secret", "a secret", &["a text", "null"])),
    };
    let patch = settings(object, &["name", "secret"])?;
    Ok(NewTenant { name, secret, patch })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            _ => panic!("{value} is no object"),
        }
    }

    #[test]
    fn a_new_tenant_needs_a_name() {
        let made = |body: Value| new_tenant(object(body)).map(|new| (new.name, new.secret.is_some(), new.patch));
        let shop = |has_secret| Ok(("shop".to_owned(), has_secret, SettingsPatch::default()));
        assert_eq!(made(json!({"name": "shop", "secret": null})), shop(false));
        assert_eq!(
            made(json!({"name": "shop", "secret": "q0E8l5n1p2m3k4j5h6g7f8"})),
            shop(true)
        );
        for body in [json!({}), json!({"name": 5}), json!({"name": null})] {
            assert_eq!(made(body).unwrap_err().field.as_deref(), Some("name"));
        }
        for secret in [json!("short"), json!(5)] {
            let refused = made(json!({"name": "shop", "secret": secret})).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some("secret"));
        }
    }
}
