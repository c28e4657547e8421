//! The settings of a tenant and of the server in a body.

use serde_json::{Map, Value};
use tidemark_control::{Refusal, RefusalKind, SETTINGS, ServerPatch, Setting, SettingsPatch};

use super::values::{bytes, duration_us, plain, unknown_field, wrong};

/// `{"goals","limits","flash","policy"}`: what is there is set, null clears.
pub(crate) fn settings_patch(object: Map<String, Value>) -> Result<SettingsPatch, Refusal> {
    if object.contains_key("name") {
        return Err(Refusal::new(RefusalKind::Invalid, "a tenant's name can not be changed").field("name"));
    }
    settings(object, &[])
}

pub(super) fn settings(object: Map<String, Value>, also_allowed: &[&str]) -> Result<SettingsPatch, Refusal> {
    let mut patch = SettingsPatch::default();
    for (key, value) in object {
        let section: Vec<&Setting> = of_section(&key).collect();
        let is_section = !key.is_empty() && !section.is_empty();
        match value {
            Value::Object(fields) if is_section => {
                for (field, value) in fields {
                    let allowed = || section.iter().map(|setting| setting.place.name).collect();
                    change(&mut patch, &key, &field, &value, allowed)?;
                }
            }
            // A section that is null is one whose fields are all null.
            Value::Null if is_section => section.iter().for_each(|setting| setting.clear(&mut patch)),
            _ if is_section => return Err(wrong(&key, "an object", &["an object", "null"])),
            value => {
                let allowed = || also_allowed.iter().copied().chain(top_level()).collect();
                change(&mut patch, "", &key, &value, allowed)?;
            }
        }
    }
    Ok(patch)
}

/// Changes one field; `allowed` are the fields that are in its place.
fn change<'a>(
    patch: &mut SettingsPatch,
    section: &str,
    name: &str,
    value: &Value,
    allowed: impl FnOnce() -> Vec<&'a str>,
) -> Result<(), Refusal> {
    let Some(setting) = of_section(section).find(|setting| setting.place.name == name) else {
        let path = if section.is_empty() {
            name.to_owned()
        } else {
            format!("{section}.{name}")
        };
        return Err(unknown_field(&path, &allowed()));
    };
    match plain(value) {
        Some(value) => setting.read(patch, &value),
        None => {
            setting.clear(patch);
            Ok(())
        }
    }
}

fn of_section(section: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.place.section == section)
}

/// The sections, and the settings outside of them, in the order of the table.
fn top_level() -> Vec<&'static str> {
    let places = SETTINGS.iter().map(|setting| setting.place);
    let mut names: Vec<&'static str> = places
        .map(|place| {
            if place.section.is_empty() {
                place.name
            } else {
                place.section
            }
        })
        .collect();
    names.dedup();
    names
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tidemark_control::{Change, Utility};
    use tidemark_meter::price::Money;
    use tidemark_meter::spending::AtLimit;
    use tidemark_types::{HitRatio, Policy, PolicyChoice, Weight};

    use super::super::tests::object;
    use super::*;

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
                    minimise: Change::Clear,
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
            (json!({"": {"policy": "fifo"}}), RefusalKind::UnknownField, ""),
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
            (
                json!({"goals": {"minimise": "memory"}}),
                RefusalKind::Invalid,
                "goals.minimise",
            ),
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
    }

    #[test]
    fn every_setting_of_the_table_can_be_cleared_by_its_name() {
        for setting in SETTINGS {
            let place = setting.place;
            let body = if place.section.is_empty() {
                json!({ place.name: null })
            } else {
                json!({ place.section: { place.name: null } })
            };
            let patch = settings_patch(object(body)).unwrap();
            assert_ne!(patch, SettingsPatch::default(), "{}", place.path);
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
                "minimise",
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
            super::super::new_tenant(object(json!({"name": "a", "x": 1})))
                .map(drop)
                .unwrap_err()
                .allowed[0],
            "name"
        );
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
}
