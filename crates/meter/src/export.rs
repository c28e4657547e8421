//! Rows for others: JSON as the API has it, CSV, FOCUS and CloudEvents.

mod focus;

use serde_json::{Map, Value, json};

use crate::row::{Kind, Row};
use crate::spending::Alert;
use crate::usage::Resource;
use tidemark_types::utc;

pub use focus::{FOCUS_COLUMNS, Focus};

/// A row as the API shows it. CPU time is in seconds; every other amount in the unit that its name ends in.
pub fn json(row: &Row) -> Value {
    let entry = &row.entry;
    let commands: Map<String, Value> = entry
        .commands
        .iter()
        .map(|(command, count)| (command.clone(), json!(count)))
        .collect();
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| {
        object.insert(name.to_owned(), value);
    };
    put("sequence", json!(row.sequence));
    put("kind", json!(entry.kind.name()));
    put("tenant", json!(entry.tenant.as_ref().map(|tenant| &tenant.name)));
    put("tenant_id", json!(entry.tenant.as_ref().map(|tenant| tenant.id.0)));
    put(
        "minute",
        json!(utc::rfc3339(tidemark_types::UnixMs(entry.from.0 / 60_000 * 60_000))),
    );
    put("from", json!(utc::rfc3339_ms(entry.from)));
    put("to", json!(utc::rfc3339_ms(entry.to)));
    put("node", json!(entry.node));
    put(
        "price_version",
        json!((!entry.price_version.is_empty()).then_some(&entry.price_version)),
    );
    put("cpu_seconds", json!(entry.usage.get(Resource::CpuNs) as f64 / 1e9));
    put(
        "cpu_model_seconds",
        json!(entry.cpu_model_ns().map(|ns| ns as f64 / 1e9)),
    );
    for (resource, amount) in entry.usage.amounts() {
        if !matches!(resource, Resource::CpuNs | Resource::CpuModelNs) {
            put(resource.name(), json!(amount));
        }
    }
    put("commands", Value::Object(commands));
    put("note", json!((!entry.note.is_empty()).then_some(&entry.note)));
    put("hash", json!(row.hash.to_string()));
    Value::Object(object)
}

/// The line of names of [`csv`].
pub fn csv_header() -> String {
    let resources = Resource::ALL.map(Resource::name).join(",");
    format!("sequence,kind,tenant,tenant_id,from,to,node,price_version,{resources},commands,note,hash")
}

/// A row as a line of CSV (RFC 4180).
pub fn csv(row: &Row) -> String {
    let entry = &row.entry;
    let commands: Vec<String> = entry
        .commands
        .iter()
        .map(|(command, count)| format!("{command}={count}"))
        .collect();
    let tenant = entry.tenant.as_ref();
    let mut fields = vec![
        row.sequence.to_string(),
        entry.kind.name().into(),
        tenant.map_or(String::new(), |tenant| tenant.name.clone()),
        tenant.map_or(String::new(), |tenant| tenant.id.to_string()),
        utc::rfc3339_ms(entry.from),
        utc::rfc3339_ms(entry.to),
        entry.node.clone(),
        entry.price_version.clone(),
    ];
    fields.extend(entry.usage.amounts().map(|(resource, amount)| {
        let is_known = resource != Resource::CpuModelNs || entry.is_modelled;
        if is_known { amount.to_string() } else { String::new() }
    }));
    fields.extend([commands.join(" "), entry.note.clone(), row.hash.to_string()]);
    csv_line(&fields)
}

/// Fields as a line of CSV, quoted where they must be (RFC 4180). A field that a spreadsheet would take for a formula begins with
/// an apostrophe, so that a name stays a text.
pub fn csv_line(fields: &[String]) -> String {
    let field = |text: &String| {
        let is_formula = text.starts_with(['=', '+', '@', '\t', '\r']);
        let text = if is_formula { format!("'{text}") } else { text.clone() };
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    };
    fields.iter().map(field).collect::<Vec<_>>().join(",")
}

/// A row as an event (CloudEvents 1.0.2, JSON format). Its identifier is made of node, sequence and hash, so that a receiver that
/// gets it twice can tell. Only use of tenants, and CPU time that is nobody's, are events of use.
pub fn cloud_event(row: &Row) -> Option<Value> {
    let entry = &row.entry;
    let subject = match (entry.kind, &entry.tenant) {
        (Kind::Use, Some(tenant)) => tenant.name.as_str(),
        (Kind::Unattributed | Kind::Unexplained, _) => entry.kind.name(),
        _ => return None,
    };
    let hash = row.hash.to_string();
    Some(json!({
        "specversion": "1.0",
        "id": format!("{}-{}", row.sequence, &hash[..16]),
        "source": format!("/tidemark/{}", percent(&entry.node)),
        "type": "io.tidemark.usage.v1",
        "subject": subject,
        "time": utc::rfc3339_ms(entry.to),
        "datacontenttype": "application/json",
        "data": json(row),
    }))
}

/// An alert as an event (CloudEvents 1.0.2, JSON format). One that is sent twice has the same identifier.
pub fn alert_event(alert: &Alert) -> Value {
    json!({
        "specversion": "1.0",
        "id": alert.key(),
        "source": format!("/tidemark/{}", percent(&alert.node)),
        "type": "io.tidemark.spending.v1",
        "subject": alert.tenant,
        "time": utc::rfc3339_ms(alert.at),
        "datacontenttype": "application/json",
        "data": {
            "tenant": alert.tenant,
            "tenant_id": alert.id.0,
            "month": alert.month,
            "percent": alert.percent,
            "spent": alert.spent.to_string(),
            "limit": alert.limit.amount.to_string(),
            "currency": alert.currency,
            "at_limit": alert.limit.at_limit.name(),
            "message": alert.to_string(),
        },
    })
}

/// A text as a part of a URI reference (RFC 3986, 2.1).
fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;
    use crate::row::{Entry, Subject};
    use crate::usage::Usage;
    use tidemark_types::{TenantId, UnixMs};

    fn row(name: &str) -> Row {
        Chain::default().push(Entry {
            tenant: Some(Subject {
                id: TenantId(3),
                name: name.into(),
            }),
            node: "a b/c".into(),
            usage: Usage::default()
                .with(Resource::CpuNs, 1_500_000_000)
                .with(Resource::Gets, 7),
            commands: vec![("redis/get".into(), 7)],
            ..Entry::event(Kind::Use, UnixMs(90_000), UnixMs(120_000), "")
        })
    }

    #[test]
    fn rows_are_json_with_the_api_s_fields() {
        let json = json(&row("shop"));
        for field in [
            "tenant",
            "minute",
            "node",
            "price_version",
            "cpu_seconds",
            "cpu_model_seconds",
            "memory_byte_seconds",
            "network_in_bytes",
            "network_out_bytes",
            "operations",
            "hash",
        ] {
            assert!(json.get(field).is_some(), "{field}: {json}");
        }
        assert_eq!(json["cpu_seconds"], 1.5);
        assert_eq!(json["cpu_model_seconds"], Value::Null);
        assert_eq!(json["minute"], "1970-01-01T00:01:00Z");
        assert_eq!(json["commands"]["redis/get"], 7);
    }

    #[test]
    fn lines_have_as_many_fields_as_names_and_odd_texts_stay_texts() {
        let line = csv(&row("shop"));
        assert_eq!(line.split(',').count(), csv_header().split(',').count(), "{line}");
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("<script>", "<script>"),
        ] {
            assert_eq!(csv_line(&[text.to_owned()]), expected);
        }
    }

    #[test]
    fn an_alert_is_an_event_that_tells_all() {
        use crate::price::Money;
        use crate::spending::{AtLimit, SpendingLimit};
        let alert = Alert {
            id: TenantId(3),
            tenant: "shop".into(),
            month: "2026-08".into(),
            percent: 80,
            spent: Money::parse("8.25").unwrap(),
            limit: SpendingLimit {
                amount: Money::parse("10").unwrap(),
                at_limit: AtLimit::Throttle,
            },
            currency: "USD".into(),
            at: UnixMs(0),
            node: "a b".into(),
        };
        let event = alert_event(&alert);
        assert_eq!(
            (&event["specversion"], &event["id"]),
            (&json!("1.0"), &json!("3-2026-08-80-of-10.00"))
        );
        assert_eq!(event["source"], "/tidemark/a%20b");
        let data = &event["data"];
        assert_eq!(
            (&data["spent"], &data["limit"], &data["at_limit"]),
            (&json!("8.25"), &json!("10.00"), &json!("throttle"))
        );
        let message = "tenant shop has spent 8.25 USD in 2026-08: 80 % of its limit of 10.00";
        assert_eq!(data["message"], message);
    }

    #[test]
    fn an_event_has_the_required_attributes() {
        let event = cloud_event(&row("<b>\u{7}</b>")).unwrap();
        for attribute in ["specversion", "id", "source", "type"] {
            let text = event[attribute].as_str().unwrap();
            assert!(!text.is_empty(), "{attribute}");
        }
        assert_eq!(event["specversion"], "1.0");
        assert_eq!(event["source"], "/tidemark/a%20b%2Fc");
        assert_eq!(event["subject"], "<b>\u{7}</b>");
        let end = Chain::default().push(Entry::event(Kind::End, UnixMs(0), UnixMs(0), ""));
        assert_eq!(cloud_event(&end), None);
    }
}
