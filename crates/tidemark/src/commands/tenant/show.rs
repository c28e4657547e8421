//! `tidemark tenant show | list`: tenants, the moves of a grant, a curve; for people or as JSON.

use serde_json::{Value, json};

use crate::client::Client;
use crate::output::{Field, Form, columns, list, note, print};

const COLUMNS: [Field; 11] = [
    ("name", "/name", Form::Plain),
    ("state", "/state", Form::Plain),
    ("policy", "/policy", Form::Plain),
    ("floor", "/goals/floor_bytes", Form::Bytes),
    ("cap", "/goals/cap_bytes", Form::Bytes),
    ("grant", "/grant_bytes", Form::Bytes),
    ("used", "/usage_bytes", Form::Bytes),
    ("items", "/items", Form::Plain),
    ("hit ratio", "/hit_ratio", Form::Ratio),
    ("goal", "/goals/hit_ratio", Form::Ratio),
    ("goal is", "/goal_state", Form::Plain),
];

const FIELDS: [Field; 25] = [
    ("name", "/name", Form::Plain),
    ("state", "/state", Form::Plain),
    ("open on loopback", "/open", Form::Plain),
    ("secret", "/secrets/0/created_at", Form::Plain),
    ("  permissions", "/secrets/0/permissions", Form::Plain),
    ("newer secret", "/secrets/1/created_at", Form::Plain),
    ("  permissions", "/secrets/1/permissions", Form::Plain),
    ("policy", "/policy", Form::Plain),
    ("  in force", "/policy_in_force", Form::Plain),
    ("shards", "/shards", Form::Plain),
    ("goal", "/goals/hit_ratio", Form::Ratio),
    ("  is", "/goal_state", Form::Plain),
    ("  missed by", "/shortfall_ratio", Form::Ratio),
    ("  best possible", "/best_hit_ratio", Form::Ratio),
    ("floor", "/goals/floor_bytes", Form::Bytes),
    ("cap", "/goals/cap_bytes", Form::Bytes),
    ("grant", "/grant_bytes", Form::Bytes),
    ("used", "/usage_bytes", Form::Bytes),
    ("could use", "/demand_bytes", Form::Bytes),
    ("items", "/items", Form::Plain),
    ("gets", "/gets_total", Form::Plain),
    ("hits", "/hits_total", Form::Plain),
    ("sets", "/sets_total", Form::Plain),
    ("hit ratio (10 s)", "/hit_ratio", Form::Ratio),
    ("connections", "/connections", Form::Plain),
];

const MOVES: [Field; 6] = [
    ("at", "/at", Form::Plain),
    ("from", "/from_bytes", Form::Bytes),
    ("to", "/to_bytes", Form::Bytes),
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

/// What of a tenant is shown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// When its memory changed, why, and the hit ratios predicted and measured
    #[arg(long, conflicts_with = "curve")]
    moves: bool,
    /// Its miss ratio at every size, as it is estimated now
    #[arg(long)]
    curve: bool,
}

impl ShowArgs {
    /// Asks about the tenant at `path` of the API and prints the answer.
    pub(super) fn run(self, client: &Client, path: &str, json: bool) -> anyhow::Result<()> {
        if self.moves {
            moves(&client.get(&format!("{path}/moves"))?, json)
        } else if self.curve {
            curve(&client.get(&format!("{path}/curve"))?, json)
        } else {
            one(&client.get(path)?, json)
        }
    }
}

/// One tenant.
pub(super) fn one(tenant: &Value, json: bool) -> anyhow::Result<()> {
    print_as(tenant, json, || list(tenant, &FIELDS))
}

/// All tenants.
pub(super) fn all(answer: &Value, json: bool) -> anyhow::Result<()> {
    print_as(answer, json, || columns(array(answer, "/tenants"), &COLUMNS))
}

fn moves(answer: &Value, json: bool) -> anyhow::Result<()> {
    print_as(answer, json, || columns(array(answer, ""), &MOVES))
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

fn print_as(answer: &Value, json: bool, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    Ok(print(&if json { answer.to_string() } else { text() })?)
}

/// The array at a place of the answer; empty if there is none.
fn array<'a>(answer: &'a Value, place: &str) -> &'a [Value] {
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
             "predicted_hit_ratio": 0.9, "measured_hit_ratio": null},
        ]);
        assert_eq!(
            columns(array(&moves, ""), &MOVES),
            "AT                        FROM      TO        REASON  PREDICTED  MEASURED\n\
             2026-08-01T12:00:00.250Z  20.0 MiB  64.0 MiB  goal    90.00 %    -"
        );
        let curve = json!({"points": [{"bytes": 1 << 20, "miss_ratio": 0.25}]});
        assert_eq!(
            columns(&with_hit_ratios(array(&curve, "/points")), &POINTS),
            "BYTES    SIZE     MISS RATIO  HIT RATIO\n1048576  1.0 MiB  25.00 %     75.00 %"
        );
        assert!(array(&json!({}), "/points").is_empty());
    }
}
