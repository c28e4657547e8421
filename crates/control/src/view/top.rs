//! The heaviest parts of a tenant's load, as the API shows them: the fields of `GET /api/v1/tenants/{name}/top`.

use serde::Serialize;
use tidemark_meter::price::{Prices, Tariff};
use tidemark_meter::top::{Amounts, Top, TopKey};
use tidemark_types::KEY_PREFIX_BYTES_MAX;

/// The heaviest parts of a tenant's load, of the last ten to twenty minutes. Lists begin with the heaviest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct TopView {
    /// For how long.
    pub over_seconds: f64,
    /// Visits to connections that were sampled, one in 1,024, and commands in them.
    pub sampled_visits: u64,
    pub sampled_operations: u64,
    /// The currency of costs; `None`: there are no prices.
    pub currency: Option<String>,
    /// The use of the tenant in this time.
    pub used: UsedView,
    pub keys_by_operations: Vec<TopKeyView>,
    pub keys_by_bytes: Vec<TopKeyView>,
    /// By CPU time. A prefix ends with the delimiter; the empty one is of keys without a delimiter.
    pub prefixes: Vec<TopKeyView>,
    /// By CPU time.
    pub commands: Vec<TopCommandView>,
}

/// The use for something, as estimated from samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct UsedView {
    pub operations: f64,
    pub network_in_bytes: u64,
    pub network_out_bytes: u64,
    pub cpu_seconds: f64,
    /// A decimal number: CPU time, bytes and operations by the prices in force. Memory is not in it.
    pub cost: Option<String>,
}

/// A key, or a prefix of keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopKeyView {
    /// As text: see [`key_text`].
    pub key: String,
    /// Whether it may go on: only the first 128 bytes of keys are looked at.
    pub is_cut: bool,
    /// Its part of all that the list is ordered by: at least so much, and so much more at most.
    pub share: f64,
    /// See `share`.
    pub share_error: f64,
    /// The use of it.
    #[serde(flatten)]
    pub used: UsedView,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are the API's, which documents them")]
pub struct TopCommandView {
    pub protocol: &'static str,
    pub command: &'static str,
    /// Its part of the CPU time.
    pub share: f64,
    #[serde(flatten)]
    pub used: UsedView,
}

/// Prices by which costs are worked out.
pub(crate) type Priced<'a> = Option<(&'a Tariff, &'a Prices)>;

impl TopView {
    pub(crate) fn new(top: &Top, priced: Priced<'_>) -> Self {
        let keys = |keys: &[TopKey], weigh: fn(&Amounts) -> u64| {
            let all = weigh(&top.used);
            keys.iter()
                .map(|key| TopKeyView {
                    key: key_text(&key.key),
                    is_cut: key.key.len() == KEY_PREFIX_BYTES_MAX,
                    share: ratio(weigh(&key.used), all),
                    share_error: ratio(key.error, all),
                    used: used_view(&key.used, priced, ""),
                })
                .collect()
        };
        let commands = top.commands.iter().map(|command| TopCommandView {
            protocol: command.protocol,
            command: command.command,
            share: ratio(command.used.cpu_ns, top.used.cpu_ns),
            used: used_view(
                &command.used,
                priced,
                &format!("{}/{}", command.protocol, command.command),
            ),
        });
        Self {
            over_seconds: top.over_ms as f64 / 1000.0,
            sampled_visits: top.visits,
            sampled_operations: top.commands_sampled,
            currency: priced.map(|(tariff, _)| tariff.currency.clone()),
            used: used_view(&top.used, priced, ""),
            keys_by_operations: keys(&top.keys_by_operations, |used| used.milli_operations),
            keys_by_bytes: keys(&top.keys_by_bytes, Amounts::bytes),
            prefixes: keys(&top.prefixes, |used| used.cpu_ns),
            commands: commands.collect(),
        }
    }
}

fn used_view(used: &Amounts, priced: Priced<'_>, command: &str) -> UsedView {
    UsedView {
        operations: used.milli_operations as f64 / 1000.0,
        network_in_bytes: used.in_bytes,
        network_out_bytes: used.out_bytes,
        cpu_seconds: used.cpu_ns as f64 / 1e9,
        cost: priced.map(|(tariff, prices)| used.cost(prices, tariff.is_free(command)).to_string()),
    }
}

/// Nothing of nothing is nothing.
fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// A key as text that no terminal and no program takes for more. Unprintable characters are written as in Rust (`\n`,
/// `\u{1b}`), bytes that are not UTF-8 as `\xff`, and a backslash as two.
fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\'' => text.push(letter),
                _ => text.extend(letter.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_whatever_is_in_them() {
        for (key, expected) in [
            (&b"user:1"[..], "user:1"),
            (b"<b onload='x'>", "<b onload='x'>"),
            ("schl\u{fc}ssel".as_bytes(), "schl\u{fc}ssel"),
            (b"a\r\nb\0", "a\\r\\nb\\0"),
            (b"\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
            ("\u{202e}evil\u{9b}".as_bytes(), "\\u{202e}evil\\u{9b}"),
            (b"\xff\\x", "\\xff\\\\x"),
            (b"", ""),
        ] {
            assert_eq!(key_text(key), expected, "{key:?}");
        }
    }
}
