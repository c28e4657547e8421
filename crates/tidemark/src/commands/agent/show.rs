//! `tidemark agent show`: the configuration of an application, its reason, and its counts.

use serde_json::Value;

use crate::client::Client;
use crate::failure::{FailureKind, kind_of};
use crate::output::{bytes_text, print};

/// The most points of a curve that are shown as text; JSON has all of them.
const POINTS_SHOWN: usize = 5;
/// The path of the agent's part of the admin API.
pub(super) const PATH: &str = "/api/v1/agent";

const DIMENSIONS: [&str; 7] = [
    "scope",
    "write",
    "replacement",
    "coherence",
    "replication",
    "domain",
    "admission",
];

pub(super) fn run(client: &Client, app: Option<&str>, json: bool) -> anyhow::Result<()> {
    let path = app.map_or_else(|| format!("{PATH}/apps"), |app| format!("{PATH}/apps/{app}"));
    let mut answer = client.get(&path)?;
    if let Some(app) = app {
        let of_tenant = |part: &str| match client.get(&format!("/api/v1/tenants/{app}{part}")) {
            // An application that this node does not serve yet is no tenant.
            Err(error) if kind_of(&error) == FailureKind::NotFound => Ok(Value::Null),
            got => got,
        };
        answer["tenant"] = of_tenant("")?;
        answer["curve"] = of_tenant("/curve")?;
    }
    if json {
        return Ok(print(&answer.to_string())?);
    }
    match app {
        Some(_) => Ok(print(&one(&answer))?),
        None => {
            let apps = answer["apps"].as_array().map(Vec::as_slice).unwrap_or_default();
            let lines: Vec<_> = apps.iter().map(line).collect();
            Ok(print(&lines.join("\n"))?)
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or_default()),
        value => value.to_string(),
    }
}

fn line(app: &Value) -> String {
    let members = app["members"].as_array().map_or(0, Vec::len);
    format!(
        "{:16} epoch {:>5}  {members} cachelets  {} {}  hit ratio {}",
        text(&app["name"]),
        text(&app["epoch"]),
        text(&app["config"]["coherence"]),
        text(&app["config"]["write"]),
        text(&app["counts"]["hit_ratio"]),
    )
}

/// The dimensions, those that are pinned with a mark.
pub(super) fn configuration(app: &Value) -> String {
    let pinned = app["pinned"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown = DIMENSIONS.map(|name| {
        let is_pinned = pinned.iter().any(|pinned| pinned == name);
        format!(
            "{name}={}{}",
            text(&app["config"][name]),
            if is_pinned { " (pinned)" } else { "" }
        )
    });
    format!("{}\nbecause        {}", shown.join("\n"), text(&app["reason"]))
}

/// A configuration in one line.
fn short(config: &Value) -> String {
    let fixed = ["scope", "coherence", "domain", "replacement", "write", "admission"];
    fixed.map(|name| text(&config[name])).join(" ")
}

/// A level as it is written.
fn level(level: &Value) -> String {
    match level["bounded"].as_u64() {
        Some(us) => format!("bounded:{us}us"),
        None => text(level),
    }
}

fn percent(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio))
}

/// The application's memory on this node: its tenant's grant and goal, and what more memory would bring.
fn memory(app: &Value) -> Vec<String> {
    let (memory, tenant) = (&app["memory"], &app["tenant"]);
    if memory.is_null() {
        return Vec::new();
    }
    let bytes = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), bytes_text);
    let mut lines = vec![
        format!(
            "memory         holds {} of {} granted, {} items, hit ratio {}, evicted {}",
            bytes(&memory["usage_bytes"]),
            bytes(&memory["grant_bytes"]),
            text(&memory["items"]),
            percent(&memory["hit_ratio"]),
            text(&memory["evicted_total"]),
        ),
        format!(
            "goal           hit ratio {}, state {}, demand {}",
            percent(&tenant["goals"]["hit_ratio"]),
            text(&tenant["goal_state"]),
            bytes(&tenant["demand_bytes"]),
        ),
    ];
    let points = app["curve"]["points"].as_array().map(Vec::as_slice).unwrap_or_default();
    let step = points.len().div_ceil(POINTS_SHOWN).max(1);
    for point in points.iter().rev().step_by(step).rev() {
        lines.push(format!(
            "curve          {:>10}  misses {}",
            bytes(&point["bytes"]),
            percent(&point["miss_ratio"])
        ));
    }
    lines
}

/// The outcome of choosing.
fn tuned(app: &Value) -> Vec<String> {
    let tuned = &app["tuned"];
    if tuned.is_null() {
        return vec![format!("chooser        {}", app["chooser"].as_str().unwrap_or("off"))];
    }
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let mut lines = vec![
        format!(
            "chooser        {} on {}, {:.2} % of its processor time",
            text(&tuned["chooser"]),
            text(&tuned["node"]),
            100.0 * number(&tuned["cpu_ratio"])
        ),
        format!(
            "gained         {:.3} s of waiting against the fixed configuration, in {} operations that took {:.3} s",
            number(&tuned["gained_seconds"]),
            text(&tuned["operations"]),
            number(&tuned["took_seconds"])
        ),
    ];
    for expected in tuned["ranking"].as_array().into_iter().flatten() {
        lines.push(format!(
            "expected       {:>10} us  {}",
            text(&expected["expected_us"]),
            short(&expected["config"])
        ));
    }
    for switch in tuned["switches"].as_array().into_iter().flatten() {
        lines.push(format!(
            "switch         {} -> {}: {}; measured {} us before, {} after",
            short(&switch["from"]),
            short(&switch["to"]),
            text(&switch["reason"]),
            text(&switch["before_us"]),
            text(&switch["after_us"])
        ));
    }
    lines
}

/// The processor time of choosing beside that of this node's agent.
fn choosing(app: &Value) -> String {
    let of = |name: &str| app["choosing"][name].as_f64().unwrap_or_default();
    format!(
        "choosing       took {:.3} s of {:.3} s of this agent's processor time ({:.2} %, at most {:.0} %)",
        of("cpu_seconds_total"),
        of("agent_cpu_seconds_total"),
        100.0 * of("cpu_ratio"),
        100.0 * of("cpu_ratio_allowed"),
    )
}

fn one(app: &Value) -> String {
    let counts = &app["counts"];
    let mut lines = vec![
        format!("name           {}", text(&app["name"])),
        format!(
            "promise        {} durability {}",
            level(&app["promise"]["level"]),
            text(&app["promise"]["durability"])
        ),
        format!("epoch          {}", text(&app["epoch"])),
    ];
    if !app["change"].is_null() {
        lines.push(format!(
            "changing to    {} ({})",
            text(&app["change"]["epoch"]),
            text(&app["change"]["phase"])
        ));
    }
    lines.push(configuration(app));
    lines.extend(tuned(app));
    lines.push(choosing(app));
    for member in app["members"].as_array().into_iter().flatten() {
        lines.push(format!(
            "member         {} {} {}",
            text(&member["node"]),
            text(&member["label"]),
            text(&member["id"])
        ));
    }
    for cachelet in app["cachelets"].as_array().into_iter().flatten() {
        lines.push(format!(
            "here           {} uses {} of {} bytes, leased {}",
            text(&cachelet["label"]),
            text(&cachelet["used_bytes"]),
            text(&cachelet["budget_bytes"]),
            text(&cachelet["is_leased"]),
        ));
    }
    lines.extend(memory(app));
    for place in ["copy", "validated", "home", "store"] {
        lines.push(format!(
            "reads          {place:9} {:>10}  mean {:>10} us",
            text(&counts["reads"][place]),
            text(&counts["read_mean_us"][place]),
        ));
    }
    lines.push(format!(
        "writes         {:>20}  mean {:>10} us",
        text(&counts["writes"]),
        text(&counts["write_mean_us"])
    ));
    lines.push(format!("hit ratio      {}", text(&counts["hit_ratio"])));
    lines.push(format!("failed         {}", text(&counts["failed"])));
    lines.push(format!("messages sent  {}", text(&counts["messages_sent"])));
    lines.push(format!("store calls    {}", text(&counts["store"])));
    lines.join("\n")
}
