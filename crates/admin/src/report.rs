//! The report of a part that the control plane does not know.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::Value;

/// Asks the part; `None` while it does not run.
type Ask = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// Asks a part for an object of JSON. Numbers in its `totals` only rise; those in its `now` do not.
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
            let numbers = report.get(part).and_then(Value::as_object);
            for (name, value) in numbers.into_iter().flatten() {
                if value.is_number() {
                    let _ = write!(text, "# TYPE {prefix}{name} {kind}\n{prefix}{name}{suffix} {value}\n");
                }
            }
        }
        text
    }
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
        assert_eq!(Report::default().metrics("f_"), "");
        assert_eq!(Report::new(|| None).ask(), None);
    }
}
