//! Requests' bodies: JSON objects, read under limits, every field known or refused.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Map, Value};
use tidemark_control::{
    Change, MAX_PRIORITY, NewSecret, Refusal, RefusalKind, Rotation, SETTINGS, SecretNameError, SecretText,
    ServerPatch, Setting, SettingsPatch, Utility, UtilityError,
};
use tidemark_meter::price::Money;
use tidemark_meter::spending::{AtLimit, AtLimitError};
use tidemark_types::{HitRatio, Policy, PolicyChoice, PolicyError, Staleness, StalenessError, Weight};

use crate::answer::ApiError;
use crate::unique::Unique;

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

/// `{"goals","limits","flash","policy"}`: what is there is set, null clears.
pub(crate) fn settings_patch(object: Map<String, Value>) -> Result<SettingsPatch, Refusal> {
    if object.contains_key("name") {
        return Err(Refusal::new(RefusalKind::Invalid, "a tenant's name can not be changed").field("name"));
    }
    settings(object, &[])
}

fn settings(object: Map<String, Value>, also_allowed: &[&str]) -> Result<SettingsPatch, Refusal> {
    let mut patch = SettingsPatch::default();
    for (key, value) in object {
        let section = SETTINGS.iter().any(|setting| setting.section == key);
        match value {
            Value::Object(fields) if section => {
                for (field, value) in fields {
                    change(&mut patch, &key, &field, &value)?;
                }
            }
            // A section that is null is one whose fields are all null.
            Value::Null if section => {
                for setting in SETTINGS
                    .iter()
                    .filter(|setting| setting.section == key && setting.available)
                {
                    change(&mut patch, &key, setting.name, &Value::Null)?;
                }
            }
            _ if section => return Err(wrong(&key, "an object", &["an object", "null"])),
            value
                if SETTINGS
                    .iter()
                    .any(|setting| setting.section.is_empty() && setting.name == key) =>
            {
                change(&mut patch, "", &key, &value)?;
            }
            _ => {
                let top_level = ["goals", "limits", "flash", "policy"];
                return Err(unknown_field(&key, also_allowed.iter().chain(&top_level)));
            }
        }
    }
    Ok(patch)
}

fn change(patch: &mut SettingsPatch, section: &str, name: &str, value: &Value) -> Result<(), Refusal> {
    let path = if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    };
    let known = |setting: &&Setting| setting.section == section && setting.name == name;
    let Some(setting) = SETTINGS.iter().find(known) else {
        let allowed = SETTINGS
            .iter()
            .filter(|setting| setting.section == section && setting.available);
        return Err(unknown_field(&path, allowed.map(|setting| &setting.name)));
    };
    if !setting.available {
        // Null is the default anyway.
        return if value.is_null() {
            Ok(())
        } else {
            Err(not_available(&path))
        };
    }
    match path.as_str() {
        "goals.hit_ratio" => patch.hit_ratio = hit_ratio(&path, value)?,
        "goals.latency_us" => patch.latency = duration_us(&path, value)?,
        "goals.miss_cost_us" => patch.miss_cost = duration_us(&path, value)?,
        "goals.priority" => patch.priority = priority(&path, value)?,
        "goals.utility" => patch.utility = utility(&path, value)?,
        "goals.floor_bytes" => patch.floor_bytes = bytes(&path, value)?,
        "goals.cap_bytes" => patch.cap_bytes = bytes(&path, value)?,
        "goals.weight" => patch.weight = weight(&path, value)?,
        "limits.ops_per_second" => patch.ops_per_second = bytes(&path, value)?,
        "limits.bytes_per_second" => patch.bytes_per_second = bytes(&path, value)?,
        "limits.connections" => patch.connections = bytes(&path, value)?,
        "limits.spending_per_month" => patch.spending = money(&path, value)?,
        "limits.at_spending_limit" => patch.at_limit = at_limit(&path, value)?,
        "flash.floor_bytes" => patch.flash.floor_bytes = bytes(&path, value)?,
        "flash.cap_bytes" => patch.flash.cap_bytes = bytes(&path, value)?,
        "flash.write_bytes_per_second" => patch.flash.write_bytes_per_second = bytes(&path, value)?,
        "flash.staleness" => patch.flash.staleness = staleness(&path, value)?,
        _ => patch.policy = policy(&path, value)?,
    }
    Ok(())
}

/// `{"pool_bytes","round_period_us"}`: present fields are set, null clears.
pub(crate) fn server_patch(object: Map<String, Value>) -> Result<ServerPatch, Refusal> {
    let mut patch = ServerPatch::default();
    for (key, value) in object {
        match key.as_str() {
            "pool_bytes" => patch.pool_bytes = bytes(&key, &value)?,
            "round_period_us" => patch.round_period = duration_us(&key, &value)?,
            _ => return Err(unknown_field(&key, &["pool_bytes", "round_period_us"])),
        }
    }
    Ok(patch)
}

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

fn bytes(path: &str, value: &Value) -> Result<Change<u64>, Refusal> {
    match value {
        Value::Null => Ok(Change::Clear),
        _ => value
            .as_u64()
            .map(Change::Set)
            .ok_or_else(|| wrong(path, "a whole number", &["a whole number", "null"])),
    }
}

/// A decimal number as text, so that it is exact; a whole one may be a number.
fn money(path: &str, value: &Value) -> Result<Change<Money>, Refusal> {
    let text = match value {
        Value::Null => return Ok(Change::Clear),
        Value::String(text) => Some(text.clone()),
        _ => value.as_u64().map(|whole| whole.to_string()),
    };
    let needed = "a decimal number in quotes with up to 12 digits before and behind the point, such as \"12.50\"";
    text.and_then(|text| Money::parse(&text))
        .map(Change::Set)
        .ok_or_else(|| wrong(path, needed, &["0 to 999999999999.999999999999", "null"]))
}

fn at_limit(path: &str, value: &Value) -> Result<Change<AtLimit>, Refusal> {
    let names = AtLimit::ALL.map(AtLimit::name);
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: AtLimitError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names)
        }),
        _ => Err(wrong(path, "an action's name", &names)),
    }
}

fn staleness(path: &str, value: &Value) -> Result<Change<Staleness>, Refusal> {
    let names = ["strict", "bounded:1ms to bounded:1m", "none"];
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: StalenessError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names)
        }),
        _ => Err(wrong(path, "a staleness in quotes", &names)),
    }
}

fn duration_us(path: &str, value: &Value) -> Result<Change<Duration>, Refusal> {
    Ok(match bytes(path, value)? {
        Change::Keep => Change::Keep,
        Change::Clear => Change::Clear,
        Change::Set(us) => Change::Set(Duration::from_micros(us)),
    })
}

fn priority(path: &str, value: &Value) -> Result<Change<u8>, Refusal> {
    let range = format!("0 to {MAX_PRIORITY}");
    match (value, value.as_u64().map(u8::try_from)) {
        (Value::Null, _) => Ok(Change::Clear),
        (_, Some(Ok(priority))) => Ok(Change::Set(priority)),
        _ => Err(wrong(path, &format!("a whole number from {range}"), &[&range, "null"])),
    }
}

fn utility(path: &str, value: &Value) -> Result<Change<Utility>, Refusal> {
    let names = Utility::ALL.map(Utility::name);
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: UtilityError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names)
        }),
        _ => Err(wrong(path, "a utility's name", &names)),
    }
}

fn hit_ratio(path: &str, value: &Value) -> Result<Change<HitRatio>, Refusal> {
    let range = format!("{} to {}", HitRatio::LEAST, HitRatio::MOST);
    let allowed = |refusal: Refusal| refusal.allowed([range.as_str(), "null"]);
    match (value, value.as_f64()) {
        (Value::Null, _) => Ok(Change::Clear),
        (_, Some(ratio)) => HitRatio::new(ratio)
            .map(Change::Set)
            .map_err(|error| allowed(Refusal::new(RefusalKind::Invalid, error.to_string()).field(path))),
        (_, None) => Err(allowed(wrong(path, &format!("a number from {range}"), &[]))),
    }
}

fn weight(path: &str, value: &Value) -> Result<Change<Weight>, Refusal> {
    let range = format!("{} to {}", Weight::LEAST.get(), Weight::MOST.get());
    match (value, value.as_u64().and_then(Weight::new)) {
        (Value::Null, _) => Ok(Change::Clear),
        (_, Some(weight)) => Ok(Change::Set(weight)),
        (_, None) => Err(wrong(path, &format!("a whole number from {range}"), &[]).allowed([range.as_str(), "null"])),
    }
}

fn policy(path: &str, value: &Value) -> Result<Change<PolicyChoice>, Refusal> {
    let rules = [PolicyChoice::Adaptive, PolicyChoice::Genie];
    let plain = Policy::PLAIN.map(PolicyChoice::Fixed);
    // `approx-lru` is not among them: it needs a share, which the message tells of.
    let names = || rules.iter().chain(&plain).map(PolicyChoice::to_string);
    match value {
        Value::Null => Ok(Change::Clear),
        Value::String(text) => text.parse().map(Change::Set).map_err(|error: PolicyError| {
            Refusal::new(RefusalKind::Invalid, error.to_string())
                .field(path)
                .allowed(names())
        }),
        _ => Err(wrong(path, "a policy's name", &[]).allowed(names())),
    }
}

fn wrong(path: &str, needed: &str, allowed: &[&str]) -> Refusal {
    Refusal::new(RefusalKind::Invalid, format!("`{path}` must be {needed}"))
        .field(path)
        .allowed(allowed.iter().copied())
}

fn unknown_field<'a>(path: &str, allowed: impl IntoIterator<Item = &'a &'a str>) -> Refusal {
    let path: String = path.chars().take(200).collect();
    Refusal::new(RefusalKind::UnknownField, format!("there is no field `{path}`"))
        .field(path)
        .allowed(allowed.into_iter().copied())
}

fn not_available(path: &str) -> Refusal {
    let message = format!("`{path}` is not available in this version: it would have no effect");
    Refusal::new(RefusalKind::NotAvailable, message).field(path)
}

#[cfg(test)]
mod tests {
    use tidemark_types::Permissions;

    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            _ => panic!("{value} is no object"),
        }
    }

    #[test]
    fn settings_are_set_cleared_and_kept() {
        let keep = SettingsPatch::default;
        let ratio = |ratio| Change::Set(HitRatio::new(ratio).unwrap());
        for (body, expected) in [
            (json!({}), keep()),
            (
                json!({"goals": {"floor_bytes": 1 << 20}}),
                SettingsPatch {
                    floor_bytes: Change::Set(1 << 20),
                    ..keep()
                },
            ),
            (
                json!({"goals": {"cap_bytes": 1 << 30, "floor_bytes": null}}),
                SettingsPatch {
                    floor_bytes: Change::Clear,
                    cap_bytes: Change::Set(1 << 30),
                    ..keep()
                },
            ),
            (
                json!({"goals": {"hit_ratio": 0.9}}),
                SettingsPatch {
                    hit_ratio: ratio(0.9),
                    ..keep()
                },
            ),
            (
                json!({"goals": null}),
                SettingsPatch {
                    hit_ratio: Change::Clear,
                    latency: Change::Clear,
                    miss_cost: Change::Clear,
                    priority: Change::Clear,
                    utility: Change::Clear,
                    floor_bytes: Change::Clear,
                    cap_bytes: Change::Clear,
                    weight: Change::Clear,
                    ..keep()
                },
            ),
            (
                json!({"policy": "clock"}),
                SettingsPatch {
                    policy: Change::Set(PolicyChoice::Fixed(Policy::Clock)),
                    ..keep()
                },
            ),
            (
                json!({"policy": "adaptive"}),
                SettingsPatch {
                    policy: Change::Set(PolicyChoice::Adaptive),
                    ..keep()
                },
            ),
            (
                json!({"policy": null}),
                SettingsPatch {
                    policy: Change::Clear,
                    ..keep()
                },
            ),
            (
                json!({"goals": {"latency_us": 700, "miss_cost_us": 5000, "priority": 9, "utility": "max-min"}}),
                SettingsPatch {
                    latency: Change::Set(Duration::from_micros(700)),
                    miss_cost: Change::Set(Duration::from_millis(5)),
                    priority: Change::Set(9),
                    utility: Change::Set(Utility::MaxMin),
                    ..keep()
                },
            ),
            (
                json!({"goals": {"weight": 100}}),
                SettingsPatch {
                    weight: Change::Set(Weight::MOST),
                    ..keep()
                },
            ),
            (
                json!({"limits": {"spending_per_month": "12.5", "at_spending_limit": "throttle"}}),
                SettingsPatch {
                    spending: Change::Set(Money::parse("12.5").unwrap()),
                    at_limit: Change::Set(AtLimit::Throttle),
                    ..keep()
                },
            ),
            (
                json!({"limits": {"spending_per_month": 3}}),
                SettingsPatch {
                    spending: Change::Set(Money::parse("3").unwrap()),
                    ..keep()
                },
            ),
            (
                json!({"limits": null}),
                SettingsPatch {
                    spending: Change::Clear,
                    at_limit: Change::Clear,
                    ops_per_second: Change::Clear,
                    bytes_per_second: Change::Clear,
                    connections: Change::Clear,
                    ..keep()
                },
            ),
            (
                json!({"limits": {"ops_per_second": 5, "bytes_per_second": 4096, "connections": null}}),
                SettingsPatch {
                    ops_per_second: Change::Set(5),
                    bytes_per_second: Change::Set(4096),
                    connections: Change::Clear,
                    ..keep()
                },
            ),
        ] {
            assert_eq!(settings_patch(object(body.clone())), Ok(expected), "{body}");
        }
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for (body, kind, field) in [
            (json!({"goal": {}}), RefusalKind::UnknownField, "goal"),
            (json!({"goals": {"cap": 1}}), RefusalKind::UnknownField, "goals.cap"),
            (
                json!({"goals": {"cap_bytes": "64MiB"}}),
                RefusalKind::Invalid,
                "goals.cap_bytes",
            ),
            (
                json!({"goals": {"cap_bytes": -1}}),
                RefusalKind::Invalid,
                "goals.cap_bytes",
            ),
            (
                json!({"goals": {"cap_bytes": 1.5}}),
                RefusalKind::Invalid,
                "goals.cap_bytes",
            ),
            (
                json!({"goals": {"hit_ratio": 0}}),
                RefusalKind::Invalid,
                "goals.hit_ratio",
            ),
            (
                json!({"goals": {"hit_ratio": 1.5}}),
                RefusalKind::Invalid,
                "goals.hit_ratio",
            ),
            (
                json!({"goals": {"hit_ratio": "ninety"}}),
                RefusalKind::Invalid,
                "goals.hit_ratio",
            ),
            (
                json!({"goals": {"latency_us": -1}}),
                RefusalKind::Invalid,
                "goals.latency_us",
            ),
            (
                json!({"goals": {"priority": 256}}),
                RefusalKind::Invalid,
                "goals.priority",
            ),
            (
                json!({"goals": {"priority": "high"}}),
                RefusalKind::Invalid,
                "goals.priority",
            ),
            (
                json!({"goals": {"utility": "mine"}}),
                RefusalKind::Invalid,
                "goals.utility",
            ),
            (json!({"goals": {"utility": 1}}), RefusalKind::Invalid, "goals.utility"),
            (json!({"goals": {"weight": 0}}), RefusalKind::Invalid, "goals.weight"),
            (json!({"goals": {"weight": 101}}), RefusalKind::Invalid, "goals.weight"),
            (json!({"goals": {"weight": 1.5}}), RefusalKind::Invalid, "goals.weight"),
            (
                json!({"limits": {"ops_per_second": "many"}}),
                RefusalKind::Invalid,
                "limits.ops_per_second",
            ),
            (json!({"limits": {"ops": 1}}), RefusalKind::UnknownField, "limits.ops"),
            (
                json!({"limits": {"spending_per_month": "-1"}}),
                RefusalKind::Invalid,
                "limits.spending_per_month",
            ),
            (
                json!({"limits": {"spending_per_month": 1.5}}),
                RefusalKind::Invalid,
                "limits.spending_per_month",
            ),
            (
                json!({"limits": {"at_spending_limit": "panic"}}),
                RefusalKind::Invalid,
                "limits.at_spending_limit",
            ),
            (json!({"goals": 5}), RefusalKind::Invalid, "goals"),
            (json!({"policy": "lru"}), RefusalKind::Invalid, "policy"),
            (
                json!({"flash": {"staleness": "soon"}}),
                RefusalKind::Invalid,
                "flash.staleness",
            ),
            (
                json!({"flash": {"staleness": 5}}),
                RefusalKind::Invalid,
                "flash.staleness",
            ),
            (
                json!({"flash": {"floor_bytes": "1GiB"}}),
                RefusalKind::Invalid,
                "flash.floor_bytes",
            ),
            (json!({"flash": {"size": 1}}), RefusalKind::UnknownField, "flash.size"),
            (json!({"policy": "fifo:3"}), RefusalKind::Invalid, "policy"),
            (json!({"policy": 3}), RefusalKind::Invalid, "policy"),
            (json!({"name": "other"}), RefusalKind::Invalid, "name"),
        ] {
            let refusal = settings_patch(object(body.clone())).unwrap_err();
            assert_eq!((refusal.kind, refusal.field.as_deref()), (kind, Some(field)), "{body}");
        }
        for setting in SETTINGS.iter().filter(|setting| !setting.available) {
            let refusal = settings_patch(object(json!({setting.section: {setting.name: 1}}))).unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::NotAvailable, "{}", setting.name);
        }
    }

    #[test]
    fn allowed_names_are_listed() {
        let allowed = |body| settings_patch(object(body)).unwrap_err().allowed;
        assert_eq!(allowed(json!({"x": 1})), ["goals", "limits", "flash", "policy"]);
        assert_eq!(
            allowed(json!({"goals": {"x": 1}})),
            [
                "floor_bytes",
                "cap_bytes",
                "hit_ratio",
                "latency_us",
                "miss_cost_us",
                "priority",
                "weight",
                "utility"
            ]
        );
        assert_eq!(
            allowed(json!({"policy": "x"})),
            ["adaptive", "genie", "fifo", "clock", "s3fifo"]
        );
        for value in [json!(0), json!(-1e300), json!("ninety"), json!({})] {
            assert_eq!(
                allowed(json!({"goals": {"hit_ratio": value}})),
                ["0.001 to 0.9999", "null"]
            );
        }
        assert_eq!(
            new_tenant(object(json!({"name": "a", "x": 1})))
                .map(drop)
                .unwrap_err()
                .allowed[0],
            "name"
        );
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

    #[test]
    fn the_server_s_settings() {
        let patch = server_patch(object(json!({"pool_bytes": 5, "round_period_us": null}))).unwrap();
        assert_eq!((patch.pool_bytes, patch.round_period), (Change::Set(5), Change::Clear));
        for body in [
            json!({"memory": 5}),
            json!({"pool_bytes": "1GiB"}),
            json!({"round_period_us": -5}),
        ] {
            assert!(server_patch(object(body.clone())).is_err(), "{body}");
        }
    }

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
}
