//! The metrics for scrapers, and for the sender to a collector.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tidemark_control::{ControlHandle, ServerView, TenantView};

use crate::Beside;
use crate::metrics::Metrics;
use crate::report::Reports;

/// All metrics of a server as one text. Each of them has its own memory of what left with tenants that left.
pub struct Scraper {
    metrics: Mutex<Metrics>,
    reports: Reports,
    more: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraper").finish_non_exhaustive()
    }
}

impl Scraper {
    /// The scraper of the control plane, of the parts that report, and of what is beside them.
    pub fn new(reports: &Reports, beside: Option<&Beside>) -> Self {
        Self {
            metrics: Mutex::default(),
            reports: reports.clone(),
            more: beside.map(|beside| Arc::clone(&beside.metrics)),
        }
    }

    /// The text, in OpenMetrics' format.
    ///
    /// # Errors
    /// A number is beyond what the format can say.
    pub(crate) fn text(&self, server: &ServerView, tenants: Vec<TenantView>) -> Result<String, fmt::Error> {
        // The sums count even after a panic.
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let text = metrics.text(server, tenants)?;
        let more = self.more.as_ref().map(|more| more()).unwrap_or_default();
        let more = more + &self.reports.metrics();
        // OpenMetrics ends with a line that says so.
        Ok(match text.strip_suffix("# EOF\n") {
            Some(before) => format!("{before}{more}# EOF\n"),
            None => text + &more,
        })
    }

    /// Asks the control plane, and waits for its answer; `None` when it has ended. Not for a thread that runs an event loop.
    pub fn ask(&self, control: &ControlHandle) -> Option<String> {
        let (server, tenants) = control.overview().wait().ok()?;
        self.text(&server, tenants).ok()
    }
}
