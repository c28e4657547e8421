//! `tidemark tenant top`: what costs most of a tenant's load.

use clap::ValueEnum;
use serde_json::Value;

use super::show::{array, print_as};
use crate::client::Client;
use crate::output::{Field, Form, columns, note};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark tenant top shop                  the keys that are asked for most
  tidemark tenant top shop --by bytes       those that move the most bytes
  tidemark tenant top shop --by prefix      beginnings of keys, up to the first delimiter
  tidemark tenant top shop --by command
  tidemark tenant top shop --json           all of these";

/// By what is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Keys, by operations
    Operations,
    /// Keys, by bytes of requests and replies
    Bytes,
    /// Beginnings of keys up to the first delimiter, by CPU time
    Prefix,
    /// Commands, by CPU time
    Command,
}

/// The part of it that is shown.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TopArgs {
    /// The listed parts, and their order
    #[arg(long, value_enum, default_value = "operations")]
    by: By,
}

/// The use, the same for all of them.
const USED: [Field; 6] = [
    ("share", "/share", Form::Ratio),
    ("operations", "/operations", Form::Count),
    ("in", "/network_in_bytes", Form::Bytes),
    ("out", "/network_out_bytes", Form::Bytes),
    ("cpu", "/cpu_seconds", Form::Milliseconds),
    ("cost", "/cost", Form::Plain),
];

impl By {
    /// Its list in the answer.
    fn place(self) -> &'static str {
        match self {
            Self::Operations => "/keys_by_operations",
            Self::Bytes => "/keys_by_bytes",
            Self::Prefix => "/prefixes",
            Self::Command => "/commands",
        }
    }

    fn columns(self) -> Vec<Field> {
        let first: &[Field] = match self {
            Self::Operations | Self::Bytes => &[("key", "/key", Form::Plain), ("+ up to", "/share_error", Form::Ratio)],
            Self::Prefix => &[
                ("prefix", "/key", Form::Plain),
                ("+ up to", "/share_error", Form::Ratio),
            ],
            Self::Command => &[
                ("command", "/command", Form::Plain),
                ("protocol", "/protocol", Form::Plain),
            ],
        };
        [first, &USED].concat()
    }
}

impl TopArgs {
    /// Asks about the tenant at `path` of the API, and prints the answer.
    pub(super) fn run(&self, client: &Client, path: &str, json: bool) -> anyhow::Result<()> {
        let answer = client.get(&format!("{path}/top"))?;
        if !json {
            note(&summary(&answer));
        }
        print_as(&answer, json, || {
            columns(array(&answer, self.by.place()), &self.by.columns())
        })
    }
}

/// The subject of the figures.
fn summary(answer: &Value) -> String {
    let sampled = answer["sampled_operations"].as_u64().unwrap_or_default();
    if sampled == 0 {
        return "nothing was sampled yet: one visit to a connection in 1,024 is".into();
    }
    format!(
        "estimated from {sampled} operations in {} sampled visits of the last {:.0} min{}",
        answer["sampled_visits"],
        answer["over_seconds"].as_f64().unwrap_or_default() / 60.0,
        match answer["currency"].as_str() {
            Some(currency) => format!("; cost in {currency}, without memory"),
            None => String::new(),
        }
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_list_is_a_table_of_its_own() {
        let used = json!({"share": 0.5, "share_error": 0.01, "operations": 1234.6, "network_in_bytes": 2048,
            "network_out_bytes": 10, "cpu_seconds": 0.0125, "cost": "0.0001", "key": "a\\n", "command": "get",
            "protocol": "redis"});
        let answer = json!({"keys_by_operations": [used], "keys_by_bytes": [], "prefixes": [used], "commands": [used]});
        let table = |by: By| columns(array(&answer, by.place()), &by.columns());
        assert_eq!(
            table(By::Operations),
            "KEY  + UP TO  SHARE    OPERATIONS  IN       OUT   CPU      COST\n\
             a\\n  1.00 %   50.00 %  1235        2.0 KiB  10 B  12.5 ms  0.0001"
        );
        assert_eq!(table(By::Bytes), "KEY  + UP TO  SHARE  OPERATIONS  IN  OUT  CPU  COST");
        assert!(table(By::Prefix).starts_with("PREFIX  + UP TO"));
        assert!(table(By::Command).contains("get      redis     50.00 %"));
    }

    #[test]
    fn the_summary_says_what_figures_are_worth() {
        assert!(summary(&json!({"sampled_operations": 0})).starts_with("nothing was sampled"));
        let answer = json!({"sampled_operations": 40, "sampled_visits": 4, "over_seconds": 660.0, "currency": "EUR"});
        assert_eq!(
            summary(&answer),
            "estimated from 40 operations in 4 sampled visits of the last 11 min; cost in EUR, without memory"
        );
    }
}
