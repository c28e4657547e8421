//! `tidemark tenant show | list`: tenants, the moves of a grant, a curve; for people or as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};
use tidemark_control::{SETTINGS, Setting, Unset, ValueKind};
use tidemark_curve::{Curve, Point};
use tidemark_tools::curve::{Chart, PointReport, Report};

use super::super::curve::draw;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{Field, Form, columns, list, note, print};

const COLUMNS: [Field; 11] = [
    ("name", "/name", Form::Plain),
    ("state", "/state", Form::Plain),
    setting("policy"),
    setting("goals.floor_bytes"),
    setting("goals.cap_bytes"),
    ("grant", "/grant_bytes", Form::Bytes),
    ("used", "/usage_bytes", Form::Bytes),
    ("items", "/items", Form::Plain),
    ("hit ratio", "/hit_ratio", Form::Ratio),
    setting("goals.hit_ratio"),
    ("goal is", "/goal_state", Form::Plain),
];

/// The columns behind them, where there is flash.
const FLASH_COLUMNS: [Field; 2] = [
    ("flash grant", "/flash_grant_bytes", Form::Bytes),
    ("flash used", "/flash_usage_bytes", Form::Bytes),
];

/// The line of a setting, as the table of settings has it.
const fn setting(path: &str) -> Field {
    let mut row = 0;
    while row < SETTINGS.len() {
        let setting = &SETTINGS[row];
        if is_same(setting.place.path, path) {
            return line(setting);
        }
        row += 1;
    }
    panic!("there is no such setting")
}

const fn line(setting: &Setting) -> Field {
    let form = match setting.kind {
        ValueKind::Size => Form::Bytes,
        ValueKind::Ratio => Form::Ratio,
        ValueKind::Count | ValueKind::Time | ValueKind::Text => Form::Plain,
    };
    (setting.label, setting.place.pointer, form)
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut same = 0;
    while same < one.len() && same < other.len() && one[same] == other[same] {
        same += 1;
    }
    same == one.len() && same == other.len()
}

const FIELDS: [Field; 41] = [
    ("name", "/name", Form::Plain),
    ("state", "/state", Form::Plain),
    ("open on loopback", "/open", Form::Plain),
    setting("policy"),
    ("  in force", "/policy_in_force", Form::Plain),
    ("shards", "/shards", Form::Plain),
    setting("goals.hit_ratio"),
    setting("goals.latency_us"),
    ("  is", "/goal_state", Form::Plain),
    ("  missed by", "/shortfall_ratio", Form::Ratio),
    ("  best possible", "/best_hit_ratio", Form::Ratio),
    ("  known to", "/goal_standard_error", Form::Ratio),
    ("  age", "/goal_age_seconds", Form::Seconds),
    ("latency, us", "/latency/mean_us", Form::Plain),
    ("  of a hit", "/latency/hit_us", Form::Plain),
    ("  of a miss", "/latency/miss_us", Form::Plain),
    setting("goals.priority"),
    setting("goals.miss_cost_us"),
    setting("goals.utility"),
    setting("goals.floor_bytes"),
    setting("goals.cap_bytes"),
    ("grant", "/grant_bytes", Form::Bytes),
    ("  lent to it", "/lent_bytes", Form::Bytes),
    ("used", "/usage_bytes", Form::Bytes),
    ("could use", "/demand_bytes", Form::Bytes),
    ("items", "/items", Form::Plain),
    ("gets", "/gets_total", Form::Plain),
    ("hits", "/hits_total", Form::Plain),
    ("sets", "/sets_total", Form::Plain),
    ("hit ratio (10 s)", "/hit_ratio", Form::Ratio),
    ("connections", "/connections", Form::Plain),
    setting("limits.connections"),
    ("  refused", "/refused_total/connections", Form::Plain),
    setting("limits.ops_per_second"),
    ("  refused", "/refused_total/ops_per_second", Form::Plain),
    ("bytes/s", "/network_bytes_per_second", Form::Count),
    setting("limits.bytes_per_second"),
    ("  used", "/network_occupancy", Form::Ratio),
    ("  refused", "/refused_total/bytes_per_second", Form::Plain),
    ("failed logins", "/refused_total/failed_logins", Form::Plain),
    setting("goals.weight"),
];

/// The name, the date and the permissions of one of a tenant's secrets.
macro_rules! secret {
    ($($number:literal)*) => {
        [$([
            ("secret", concat!("/secrets/", $number, "/name"), Form::Plain),
            ("  made at", concat!("/secrets/", $number, "/created_at"), Form::Plain),
            ("  permissions", concat!("/secrets/", $number, "/permissions"), Form::Plain),
        ]),*]
    };
}

/// Before `policy`, of each secret there is.
const SECRET_FIELDS: [[Field; 3]; 16] = secret!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

/// The fields behind `items`, if there is flash.
const FLASH_FIELDS: [Field; 17] = [
    setting("flash.floor_bytes"),
    setting("flash.cap_bytes"),
    ("flash grant", "/flash_grant_bytes", Form::Bytes),
    ("  used", "/flash_usage_bytes", Form::Bytes),
    ("  items", "/flash_items", Form::Plain),
    ("  hits", "/flash_hits_total", Form::Plain),
    ("  written", "/flash_written_bytes_total", Form::Bytes),
    ("  not taken", "/flash_refused_total", Form::Plain),
    ("  waits refused", "/refused_total/flash_waits", Form::Plain),
    setting("flash.write_bytes_per_second"),
    setting("flash.staleness"),
    ("  takes memory", "/flash_memory_bytes", Form::Bytes),
    ("  has failed", "/flash_failed", Form::Plain),
    ("  of a hit, us", "/latency/flash_hit_us", Form::Plain),
    ("latency at best, us", "/latency/best_us", Form::Plain),
    ("  missed by, us", "/latency/shortfall_us", Form::Plain),
    setting("goals.minimise"),
];

/// Before `connections`, where CPU time is measured.
const CPU_FIELDS: [Field; 3] = [
    ("cpu time", "/cpu_seconds_total", Form::Seconds),
    ("  modelled", "/cpu_model_seconds_total", Form::Seconds),
    ("vCPU (10 s)", "/vcpus", Form::Plain),
];

/// Before `failed logins`, where spending is limited or known.
const SPENDING_FIELDS: [Field; 6] = [
    ("spent this month", "/spending/spent", Form::Plain),
    setting("limits.spending_per_month"),
    ("  of that", "/spending/spent_ratio", Form::Ratio),
    setting("limits.at_spending_limit"),
    ("  in force", "/spending/restraint", Form::Plain),
    ("  refused", "/refused_total/spending_limit", Form::Plain),
];

/// The fields that say something of this tenant.
fn fields(tenant: &Value) -> Vec<Field> {
    let secrets = array(tenant, "/secrets").len().min(SECRET_FIELDS.len());
    let has = |pointer| tenant.pointer(pointer).is_some_and(|value| !value.is_null());
    let mut fields = Vec::new();
    for field in FIELDS {
        match field.0 {
            "policy" => fields.extend(SECRET_FIELDS[..secrets].iter().flatten()),
            "gets" if has("/flash_grant_bytes") => fields.extend(FLASH_FIELDS),
            "connections" if has("/cpu_seconds_total") => fields.extend(CPU_FIELDS),
            "failed logins" if has("/limits/spending_per_month") || has("/spending/spent") => {
                fields.extend(SPENDING_FIELDS);
            }
            _ => {}
        }
        fields.push(field);
    }
    fields.extend(SETTINGS.iter().filter(|setting| !is_placed(setting)).map(line));
    fields
}

/// Whether a setting has its line among others that it belongs to; the rest come last.
fn is_placed(setting: &Setting) -> bool {
    let lists: [&[Field]; 3] = [&FIELDS, &FLASH_FIELDS, &SPENDING_FIELDS];
    lists
        .iter()
        .any(|list| list.iter().any(|(_, place, _)| *place == setting.place.pointer))
}

const MOVES: [Field; 7] = [
    ("at", "/at", Form::Plain),
    ("from", "/from_bytes", Form::Bytes),
    ("to", "/to_bytes", Form::Bytes),
    ("other side", "/side", Form::Plain),
    ("reason", "/reason", Form::Plain),
    ("predicted", "/predicted_hit_ratio", Form::Ratio),
    ("measured", "/measured_hit_ratio", Form::Ratio),
];

const POINTS: [Field; 4] = [
    ("bytes", "/bytes", Form::Plain),
    ("size", "/bytes", Form::Bytes),
    ("miss ratio", "/miss_ratio", Form::Ratio),
    ("hit ratio", "/hit_ratio", Form::Ratio),
];

const CURVE: [Field; 6] = [
    ("requests", "/requests", Form::Plain),
    ("policy", "/policy", Form::Plain),
    ("now", "/now_bytes", Form::Bytes),
    ("for the goal", "/goal_bytes", Form::Bytes),
    ("age", "/age_seconds", Form::Seconds),
    ("standard error", "/standard_error", Form::Ratio),
];

/// The parts of a tenant that are shown.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// When its memory changed, why, and the hit ratios predicted and measured
    #[arg(long, conflicts_with = "curve")]
    moves: bool,
    /// Its miss ratio at every size, as it is estimated now
    #[arg(long)]
    curve: bool,
    /// Draw the curve as SVG
    #[arg(long, value_name = "FILE", requires = "curve")]
    svg: Option<PathBuf>,
    /// Draw the curve as PNG
    #[arg(long, value_name = "FILE", requires = "curve")]
    png: Option<PathBuf>,
}

impl ShowArgs {
    /// Asks about the tenant `name`, at `path` of the API, and prints the answer.
    pub(super) fn run(&self, client: &Client, name: &str, path: &str, json: bool) -> anyhow::Result<()> {
        if self.moves {
            moves(&client.get(&format!("{path}/moves"))?, json)
        } else if self.curve {
            let answer = client.get(&format!("{path}/curve"))?;
            self.draw(name, &answer)?;
            curve(&answer, json)
        } else {
            one(&client.get(path)?, json)
        }
    }

    fn draw(&self, name: &str, answer: &Value) -> anyhow::Result<()> {
        if self.svg.is_none() && self.png.is_none() {
            return Ok(());
        }
        let report =
            report(answer).ok_or_else(|| Failure::failed("nothing is known of its curve yet: nothing is drawn"))?;
        draw(&Chart::live(name, &report), self.svg.as_deref(), self.png.as_deref())
    }
}

/// From here on a curve is worth drawing: below, nearly all is missed.
const FALLS_BELOW: f64 = 0.99;

/// The curve of an answer, with marks at its ends and at the sizes that it tells of; `None` without points. How uncertain
/// each point is, the answer does not tell.
fn report(answer: &Value) -> Option<Report> {
    let point = |point: &Value| {
        Some(Point {
            bytes: point["bytes"].as_u64()?,
            miss_ratio: point["miss_ratio"].as_f64()?,
            standard_error: 0.0,
        })
    };
    let curve = Curve::through(array(answer, "/points").iter().filter_map(point));
    // The first corner is at no memory, which has no place on the axis.
    let (last, before) = curve.points().get(1..)?.split_last()?;
    let falls = |point: &&Point| point.miss_ratio < FALLS_BELOW;
    let (first, last) = (before.iter().find(falls).unwrap_or(last).bytes, last.bytes);
    let told = ["now_bytes", "goal_bytes"].map(|field| answer[field].as_u64());
    let mut sizes: Vec<u64> = told.into_iter().flatten().chain([first, last]).collect();
    sizes.retain(|bytes| *bytes > 0);
    sizes.sort_unstable();
    sizes.dedup();
    let mark = |bytes: &u64| PointReport {
        bytes: *bytes,
        miss_ratio: curve.at(*bytes).miss_ratio,
        standard_error: None,
    };
    Some(Report {
        requests: answer["requests"].as_u64().unwrap_or_default(),
        points: sizes.iter().map(mark).collect(),
        policy: answer["policy"].as_str().unwrap_or_default().to_owned(),
        objects: 0,
        distinct_bytes: last,
        sampled_objects: None,
        skew: None,
        lru: curve.clone(),
        curve,
    })
}

/// One tenant.
pub(super) fn one(tenant: &Value, json: bool) -> anyhow::Result<()> {
    print_as(tenant, json, || list(&told(tenant), &fields(tenant)))
}

/// All tenants.
pub(super) fn all(answer: &Value, json: bool) -> anyhow::Result<()> {
    let tenants = array(answer, "/tenants");
    let has_flash = tenants
        .iter()
        .any(|tenant| tenant.get("flash_grant_bytes").is_some_and(Value::is_number));
    let flash: &[Field] = if has_flash { &FLASH_COLUMNS } else { &[] };
    let told = || tenants.iter().map(told_in_a_row).collect::<Vec<_>>();
    print_as(answer, json, || columns(&told(), &[&COLUMNS, flash].concat()))
}

fn moves(answer: &Value, json: bool) -> anyhow::Result<()> {
    let moves = with_sides(array(answer, ""));
    let has_flash = moves.iter().any(|change| change.get("tier").is_some());
    let tier = has_flash.then_some(("tier", "/tier", Form::Plain));
    let shown: Vec<Field> = MOVES.into_iter().chain(tier).collect();
    print_as(answer, json, || columns(&moves, &shown))
}

/// A tenant for people: settings that nobody made as the values that hold, and times with where they come from.
fn told(tenant: &Value) -> Value {
    let mut told = tenant.clone();
    for setting in SETTINGS {
        let text = match setting.unset {
            Unset::Nothing | Unset::InForce { .. } => "none".to_owned(),
            Unset::Value(value) => format!("{} (default)", value()),
            // `-` is left for what is not known.
            Unset::Measured(_) => continue,
        };
        let unset = told.pointer_mut(setting.place.pointer).filter(|value| value.is_null());
        if let Some(value) = unset {
            *value = text.into();
        }
    }
    for (place, source) in [
        ("/latency/hit_us", "/latency/hit_is"),
        ("/latency/miss_us", "/latency/miss_is"),
    ] {
        let source = tenant.pointer(source).and_then(Value::as_str);
        if let (Some(source), Some(value)) = (source, told.pointer_mut(place).filter(|value| !value.is_null())) {
            *value = format!("{value} ({source})").into();
        }
    }
    told
}

/// The same with whichever goal there is in one place.
fn told_in_a_row(tenant: &Value) -> Value {
    let mut told = told(tenant);
    let goal = |place| tenant.pointer(place).filter(|value| !value.is_null());
    if let (None, Some(latency_us), Some(shown)) = (
        goal("/goals/hit_ratio"),
        goal("/goals/latency_us"),
        told.pointer_mut("/goals/hit_ratio"),
    ) {
        *shown = format!("{latency_us} us").into();
    }
    told
}

/// Moves with the text about their other side: `from blog`.
fn with_sides(moves: &[Value]) -> Vec<Value> {
    let with_side = |change: &Value| {
        let grew = change["to_bytes"].as_u64() > change["from_bytes"].as_u64();
        let other = change["other"].as_str().unwrap_or("free memory");
        let mut change = change.clone();
        // The tenant that had the flash is not kept.
        if change.get("tier").is_some() {
            return change;
        }
        change["side"] = format!("{} {other}", if grew { "from" } else { "to" }).into();
        change
    };
    moves.iter().map(with_side).collect()
}

/// With the fields of flash, which are left out where there is none.
const PREVIEW: [Field; 10] = [
    ("name", "/name", Form::Plain),
    ("now", "/grant_bytes", Form::Bytes),
    ("flash", "/flash_grant_bytes", Form::Bytes),
    ("hit ratio", "/hit_ratio", Form::Ratio),
    ("as it is", "/unchanged_bytes", Form::Bytes),
    ("flash", "/unchanged_flash_bytes", Form::Bytes),
    ("predicted", "/unchanged_hit_ratio", Form::Ratio),
    ("changed", "/changed_bytes", Form::Bytes),
    ("flash", "/changed_flash_bytes", Form::Bytes),
    ("predicted", "/changed_hit_ratio", Form::Ratio),
];

/// Everybody's memory and flash after it.
pub(super) fn preview(answer: &Value, json: bool) -> anyhow::Result<()> {
    if !json {
        note("nothing is changed; where grants would come to, with the settings as they are and changed:");
    }
    let tenants = array(answer, "/tenants");
    let is_there = |field: &&Field| {
        field.0 != "flash"
            || tenants
                .iter()
                .any(|tenant| tenant.pointer(field.1).is_some_and(Value::is_number))
    };
    let shown: Vec<Field> = PREVIEW.iter().filter(is_there).copied().collect();
    print_as(answer, json, || columns(tenants, &shown))
}

fn curve(answer: &Value, json: bool) -> anyhow::Result<()> {
    let points = array(answer, "/points");
    if !json {
        if points.is_empty() {
            note("nothing is known of its curve yet");
        }
        note(&list(answer, &CURVE));
    }
    print_as(answer, json, || columns(&with_hit_ratios(points), &POINTS))
}

fn with_hit_ratios(points: &[Value]) -> Vec<Value> {
    let with_hit_ratio = |point: &Value| {
        let hit_ratio = point["miss_ratio"].as_f64().map(|ratio| 1.0 - ratio);
        json!({"bytes": point["bytes"], "miss_ratio": point["miss_ratio"], "hit_ratio": hit_ratio})
    };
    points.iter().map(with_hit_ratio).collect()
}

pub(in super::super) fn print_as(answer: &Value, json: bool, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    Ok(print(&if json { answer.to_string() } else { text() })?)
}

/// The array at a place of the answer; empty if there is none.
pub(in super::super) fn array<'a>(answer: &'a Value, place: &str) -> &'a [Value] {
    let array = answer.pointer(place).and_then(Value::as_array);
    array.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_and_curves_are_tables() {
        let moves = json!([
            {"at": "2026-08-01T12:00:00.250Z", "from_bytes": 20 << 20, "to_bytes": 64 << 20, "reason": "goal",
             "other": "blog", "predicted_hit_ratio": 0.9, "measured_hit_ratio": null},
            {"at": "2026-08-01T11:00:00.000Z", "from_bytes": 64 << 20, "to_bytes": 20 << 20, "reason": "surplus",
             "other": null, "predicted_hit_ratio": null, "measured_hit_ratio": 0.5},
        ]);
        assert_eq!(
            columns(&with_sides(array(&moves, "")), &MOVES),
            "AT                        FROM      TO        OTHER SIDE      REASON   PREDICTED  MEASURED\n\
             2026-08-01T12:00:00.250Z  20.0 MiB  64.0 MiB  from blog       goal     90.00 %    -\n\
             2026-08-01T11:00:00.000Z  64.0 MiB  20.0 MiB  to free memory  surplus  -          50.00 %"
        );
        let curve = json!({"points": [{"bytes": 1 << 20, "miss_ratio": 0.25}]});
        assert_eq!(
            columns(&with_hit_ratios(array(&curve, "/points")), &POINTS),
            "BYTES    SIZE     MISS RATIO  HIT RATIO\n1048576  1.0 MiB  25.00 %     75.00 %"
        );
        assert!(array(&json!({}), "/points").is_empty());
    }

    #[test]
    fn every_setting_has_a_line() {
        let tenant = json!({
            "flash_grant_bytes": 0, "cpu_seconds_total": 0, "limits": {"spending_per_month": "1.00"},
        });
        let shown = fields(&tenant);
        for setting in SETTINGS {
            let lines = shown.iter().filter(|(_, place, _)| *place == setting.place.pointer);
            assert_eq!(lines.count(), 1, "{}", setting.place.path);
        }
    }

    #[test]
    fn what_nobody_set_is_told_as_what_holds() {
        let goals =
            json!({"priority": null, "weight": null, "utility": "max-min", "cap_bytes": null, "floor_bytes": 1 << 20});
        let latency =
            json!({"mean_us": null, "hit_us": 50, "hit_is": "assumed", "miss_us": 900, "miss_is": "measured"});
        let tenant = json!({"goals": goals, "latency": latency, "hit_ratio": null});
        let shown = told(&tenant);
        for (place, form, text) in [
            ("/goals/priority", Form::Plain, "5 (default)"),
            ("/goals/weight", Form::Plain, "1 (default)"),
            ("/goals/utility", Form::Plain, "max-min"),
            ("/goals/cap_bytes", Form::Bytes, "none"),
            ("/goals/floor_bytes", Form::Bytes, "1.0 MiB"),
            ("/latency/hit_us", Form::Plain, "50 (assumed)"),
            ("/latency/miss_us", Form::Plain, "900 (measured)"),
            ("/latency/mean_us", Form::Plain, "-"),
            ("/hit_ratio", Form::Ratio, "-"),
        ] {
            assert_eq!(form.text(shown.pointer(place)), text, "{place}");
        }
    }

    #[test]
    fn a_list_has_whichever_goal_a_tenant_has() {
        for (goals, text) in [
            (json!({"hit_ratio": null, "latency_us": null}), "none"),
            (json!({"hit_ratio": 0.9, "latency_us": null}), "90.00 %"),
            (json!({"hit_ratio": null, "latency_us": 700}), "700 us"),
        ] {
            let row = told_in_a_row(&json!({"goals": goals}));
            let (_, place, form) = COLUMNS.iter().find(|(name, ..)| *name == "goal").unwrap();
            assert_eq!(form.text(row.pointer(place)), text, "{row}");
        }
    }

    #[test]
    fn a_curve_is_drawn_with_marks_where_the_tenant_is_and_where_its_goal_is() {
        let answer = json!({
            "requests": 5000,
            "points": [
                {"bytes": 0, "miss_ratio": 1.0},
                {"bytes": 9, "miss_ratio": 0.999},
                {"bytes": 1 << 20, "miss_ratio": 0.5},
                {"bytes": 4 << 20, "miss_ratio": 0.1},
            ],
            "now_bytes": 2 << 20, "goal_bytes": 4 << 20, "policy": "clock", "standard_error": 0.01,
        });
        let report = report(&answer).unwrap();
        let marks: Vec<_> = report.points.iter().map(|point| point.bytes >> 20).collect();
        assert_eq!(
            (marks, report.requests, report.policy.as_str()),
            (vec![1, 2, 4], 5000, "clock")
        );
        let svg = Chart::live("shop", &report).picture().svg();
        for part in ["Miss ratio of shop", "5,000 gets, estimated", "clock"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("lru"), "there is nothing to compare with");
        for nothing in [
            json!({}),
            json!({"points": []}),
            json!({"points": [{"bytes": 0, "miss_ratio": 1.0}]}),
        ] {
            assert!(super::report(&nothing).is_none(), "{nothing}");
        }
    }
}
