//! The report of a part that the control plane does not know.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::Value;

/// Asks the part; `None` while it does not run.
type Ask = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// Asks a part for an object of JSON. Numbers in its `totals` only rise; those in its `now` do not. If it has several `pools`, each has
/// such numbers of its own, and the `tenant` whose own it is, if any.
#[derive(Clone, Default)]
pub struct Report(Option<Ask>);

/// All parts that the admin API asks.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// The pool of functions.
    pub functions: Report,
    /// The S3 address.
    pub gateway: Report,
}

impl Reports {
    /// Their metrics.
    pub(crate) fn metrics(&self) -> String {
        self.functions.metrics("tidemark_functions_") + &self.gateway.metrics("tidemark_gateway_")
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").finish_non_exhaustive()
    }
}

impl Report {
    /// The report of a part that answers like this, at once and without waiting.
    pub fn new(ask: impl Fn() -> Option<Value> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// The answer of the part; `None` if it does not run.
    pub(crate) fn ask(&self) -> Option<Value> {
        self.0.as_ref()?()
    }

    /// The same as metrics whose names begin so.
    pub(crate) fn metrics(&self, prefix: &str) -> String {
        let mut text = String::new();
        let Some(report) = self.ask() else {
            return text;
        };
        for (part, kind, suffix) in [("totals", "counter", "_total"), ("now", "gauge", "")] {
            for (name, value) in numbers(&report, part) {
                let _ = write!(text, "# TYPE {prefix}{name} {kind}\n{prefix}{name}{suffix} {value}\n");
            }
            let pools = report["pools"].as_array().map_or(&[][..], Vec::as_slice);
            let first = pools.first().filter(|_| pools.len() > 1);
            for (name, _) in first.into_iter().flat_map(|first| numbers(first, part)) {
                let _ = writeln!(text, "# TYPE {prefix}pool_{name} {kind}");
                for pool in pools.iter().filter(|pool| pool[part][name].is_number()) {
                    // Names of tenants need no escape.
                    let (tenant, value) = (pool["tenant"].as_str().unwrap_or_default(), &pool[part][name]);
                    let _ = writeln!(text, "{prefix}pool_{name}{suffix}{{tenant=\"{tenant}\"}} {value}");
                }
            }
        }
        text
    }
}

/// The numbers of a part by their names.
fn numbers<'a>(report: &'a Value, part: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let all = report.get(part).and_then(Value::as_object).into_iter().flatten();
    all.filter(|(_, value)| value.is_number())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_become_metrics() {
        let report =
            Report::new(|| Some(json!({"totals": {"hits": 3}, "now": {"used_bytes": 5, "name": "x"}, "else": 1})));
        let text = "# TYPE f_hits counter\nf_hits_total 3\n# TYPE f_used_bytes gauge\nf_used_bytes 5\n";
        assert_eq!(report.metrics("f_"), text);
        let pool = |tenant, hits| json!({"tenant": tenant, "totals": {"hits": hits}, "now": {}});
        let report = Report::new(move || {
            Some(json!({"totals": {"hits": 3}, "now": {}, "pools": [pool(None, 1), pool(Some("shop"), 2)]}))
        });
        let pools = "f_pool_hits_total{tenant=\"\"} 1\nf_pool_hits_total{tenant=\"shop\"} 2\n";
        let text = format!("# TYPE f_hits counter\nf_hits_total 3\n# TYPE f_pool_hits counter\n{pools}");
        assert_eq!(report.metrics("f_"), text);
        assert_eq!(Report::default().metrics("f_"), "");
        assert_eq!(Report::new(|| None).ask(), None);
    }
}
