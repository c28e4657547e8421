//! The screen: rows of text made of the API's answers, in an order.

use std::cmp::Ordering;

use clap::ValueEnum;
use serde_json::Value;

use crate::output::{Form, bytes_text, table};

/// A column, by which tenants can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Column {
    /// The tenant's name
    Tenant,
    /// Memory that it may hold
    Grant,
    /// Memory that it holds
    Used,
    /// Flash that it holds
    Flash,
    /// The hit ratio of the last 10 s
    Hits,
    /// Its goal for it
    Goal,
    /// Cores of the last 10 s
    Vcpu,
    /// Money spent in this month
    Spent,
    /// The reason of the last move of its grant
    Moved,
}

/// How tenants are sorted. Numbers begin with the largest, names with the first; reversed, the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sorting {
    pub(super) column: Column,
    pub(super) is_reversed: bool,
}

/// The shown part of a server and its tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) summary: String,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) sorting: Sorting,
}

/// The key by which cells are compared.
#[derive(Clone, Debug, PartialEq)]
enum Rank {
    /// Not known: behind all others, whatever the order.
    Unknown,
    Number(f64),
    Text(String),
}

impl Column {
    pub(super) const ALL: [Self; 9] = [
        Self::Tenant,
        Self::Grant,
        Self::Used,
        Self::Flash,
        Self::Hits,
        Self::Goal,
        Self::Vcpu,
        Self::Spent,
        Self::Moved,
    ];

    /// The one so many places further, round and round.
    pub(super) fn beside(self, step: isize) -> Self {
        let count = Self::ALL.len() as isize;
        Self::ALL[(self as isize + step).rem_euclid(count) as usize]
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tenant => "TENANT",
            Self::Grant => "GRANT",
            Self::Used => "USED",
            Self::Flash => "FLASH",
            Self::Hits => "HIT RATIO",
            Self::Goal => "GOAL",
            Self::Vcpu => "VCPU",
            Self::Spent => "SPENT",
            Self::Moved => "LAST MOVE",
        }
    }

    /// The field of a tenant in the API, and its form.
    fn field(self) -> (&'static str, Form) {
        match self {
            Self::Tenant => ("/name", Form::Plain),
            Self::Grant => ("/grant_bytes", Form::Bytes),
            Self::Used => ("/usage_bytes", Form::Bytes),
            Self::Flash => ("/flash_usage_bytes", Form::Bytes),
            Self::Hits => ("/hit_ratio", Form::Ratio),
            Self::Goal => ("/goals/hit_ratio", Form::Ratio),
            Self::Vcpu => ("/vcpus", Form::Cores),
            Self::Spent => ("/spending/spent", Form::Plain),
            Self::Moved => ("/last_move/reason", Form::Plain),
        }
    }

    /// The cell of a tenant.
    fn text(self, tenant: &Value) -> String {
        let (place, form) = self.field();
        form.text(tenant.pointer(place))
    }

    fn rank(self, tenant: &Value) -> Rank {
        let value = tenant.pointer(self.field().0);
        match (self, value) {
            (_, None | Some(Value::Null)) => Rank::Unknown,
            // Amounts of money are texts.
            (Self::Spent, Some(Value::String(amount))) => amount.parse().map_or(Rank::Unknown, Rank::Number),
            (_, Some(Value::String(text))) => Rank::Text(text.clone()),
            (_, Some(number)) => number.as_f64().map_or(Rank::Unknown, Rank::Number),
        }
    }
}

impl Rank {
    fn compare(&self, other: &Self, is_reversed: bool) -> Ordering {
        let known = match (self, other) {
            (Self::Unknown, Self::Unknown) => return Ordering::Equal,
            (Self::Unknown, _) => return Ordering::Greater,
            (_, Self::Unknown) => return Ordering::Less,
            (Self::Number(one), Self::Number(two)) => two.total_cmp(one),
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        };
        if is_reversed { known.reverse() } else { known }
    }
}

impl View {
    /// The view of the answers about the server and its tenants.
    pub(super) fn new(server: &Value, tenants: &[Value], sorting: Sorting) -> Self {
        let mut ranked: Vec<(Rank, &Value)> = tenants
            .iter()
            .map(|tenant| (sorting.column.rank(tenant), tenant))
            .collect();
        // Those that are alike stay in the order of names, in which the API has them.
        ranked.sort_by(|(one, _), (two, _)| one.compare(two, sorting.is_reversed));
        let row = |(_, tenant): &(Rank, &Value)| Column::ALL.iter().map(|column| column.text(tenant)).collect();
        Self {
            summary: summary(server, tenants),
            rows: ranked.iter().map(row).collect(),
            sorting,
        }
    }
}

fn summary(server: &Value, tenants: &[Value]) -> String {
    let bytes = |field: &str| server[field].as_f64().map_or("-".into(), bytes_text);
    let currency = tenants
        .iter()
        .find_map(|tenant| tenant.pointer("/spending/currency")?.as_str());
    let flash = server["flash_bytes"].as_f64().map_or(String::new(), |all| {
        format!(", {} of {} flash used", bytes("flash_usage_bytes"), bytes_text(all))
    });
    format!(
        "tidemark {}: {} of {} granted to {} tenants, {} used{flash}, {} connections{}",
        server["version"].as_str().unwrap_or("-"),
        bytes("granted_bytes"),
        bytes("pool_bytes"),
        tenants.len(),
        bytes("usage_bytes"),
        server["connections"],
        currency.map_or(String::new(), |currency| format!(", spent in {currency} this month"))
    )
}

/// Everything as text, for who has no terminal.
pub(super) fn table_of(view: &View) -> String {
    let names = Column::ALL.iter().map(|column| column.title().to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(names).chain(view.rows.iter().cloned()).collect();
    format!("{}\n{}", view.summary, table(&rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tenants() -> Vec<Value> {
        let tenant = |name: &str, grant: u64, hits: Value, spent: Value| {
            json!({"name": name, "grant_bytes": grant, "usage_bytes": 0, "hit_ratio": hits, "vcpus": 0.125,
                "goals": {"hit_ratio": null}, "spending": spent, "last_move": {"reason": "surplus"}})
        };
        let spent = |amount: &str| json!({"spent": amount, "currency": "EUR"});
        vec![
            tenant("a", 1 << 20, json!(0.5), spent("9.5")),
            tenant("b", 3 << 20, json!(null), json!(null)),
            json!({"flash_usage_bytes": 5 << 20, "name": "c", "grant_bytes": 2 << 20, "usage_bytes": 0, "hit_ratio": 0.75,
                "vcpus": 0.125, "goals": {"hit_ratio": null}, "spending": spent("10.25"),
                "last_move": {"reason": "surplus"}}),
        ]
    }

    fn names(column: Column, is_reversed: bool) -> String {
        let view = View::new(&json!({}), &tenants(), Sorting { column, is_reversed });
        view.rows.iter().map(|row| row[0].as_str()).collect()
    }

    #[test]
    fn tenants_are_in_the_order_that_was_asked_for() {
        for (column, forwards, backwards) in [
            (Column::Tenant, "abc", "cba"),
            (Column::Grant, "bca", "acb"),
            // A tenant without the figure is last in both.
            (Column::Hits, "cab", "acb"),
            (Column::Spent, "cab", "acb"),
            (Column::Vcpu, "abc", "abc"),
            (Column::Goal, "abc", "abc"),
        ] {
            assert_eq!(
                (names(column, false).as_str(), names(column, true).as_str()),
                (forwards, backwards),
                "{column:?}"
            );
        }
    }

    #[test]
    fn columns_are_walked_round() {
        assert_eq!(Column::Tenant.beside(-1), Column::Moved);
        assert_eq!(Column::Moved.beside(1), Column::Tenant);
        for (place, column) in Column::ALL.into_iter().enumerate() {
            assert_eq!(column as usize, place);
        }
    }

    #[test]
    fn a_table_has_every_column_and_a_summary() {
        let server = json!({"version": "1.2.3", "pool_bytes": 1 << 30, "granted_bytes": 6 << 20, "usage_bytes": 0,
            "flash_bytes": 2_u64 << 30, "flash_usage_bytes": 5 << 20, "connections": 2});
        let sorting = Sorting {
            column: Column::Spent,
            is_reversed: false,
        };
        assert_eq!(
            table_of(&View::new(&server, &tenants(), sorting)),
            "tidemark 1.2.3: 6.0 MiB of 1.0 GiB granted to 3 tenants, 0 B used, 5.0 MiB of 2.0 GiB flash used, 2 connections, spent in EUR this month\n\
             TENANT  GRANT    USED  FLASH    HIT RATIO  GOAL  VCPU   SPENT  LAST MOVE\n\
             c       2.0 MiB  0 B   5.0 MiB  75.00 %    -     0.125  10.25  surplus\n\
             a       1.0 MiB  0 B   -        50.00 %    -     0.125  9.5    surplus\n\
             b       3.0 MiB  0 B   -        -          -     0.125  -      surplus"
        );
    }
}
