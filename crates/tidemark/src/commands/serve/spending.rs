//! Spending limits: what was spent before the start, and where alerts go; where metrics go.

use std::path::{Path, PathBuf};

use tidemark_control::{AlertSink, ControlHandle, LedgerReader, Spent};
use tidemark_push::{Otlp, SigningKey, Webhook, start_webhook};
use tidemark_types::{Clock as _, SystemClock};

use super::super::bill::kept_prices;
use super::machine;
use crate::failure::Failure;
use crate::options::{ServeOptions, WebhookOptions};

/// Reads the file of the secret, so that a mistake is told at the start.
pub(super) fn webhook(options: Option<&WebhookOptions>) -> anyhow::Result<Option<Webhook>> {
    let Some(options) = options else { return Ok(None) };
    let key = options.secret_file.as_deref().map(|file| {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        text.and_then(|text| SigningKey::of_text(&text))
            .map_err(|problem| Failure::usage(format!("--webhook-secret-file {}: {problem}", file.display())))
    });
    Ok(Some(Webhook {
        target: options.target.clone(),
        key: key.transpose()?,
        allows_inside: options.is_local,
    }))
}

/// Starts sending alerts.
pub(super) fn alerts(options: Option<&WebhookOptions>) -> anyhow::Result<Option<AlertSink>> {
    Ok(webhook(options)?.as_ref().map(start_webhook).transpose()?)
}

/// The receiver of metrics.
pub(super) fn collector(options: &ServeOptions) -> Option<Otlp> {
    Some(Otlp {
        target: options.otlp.clone()?,
        period: options.otlp_period,
        instance: machine::name(),
    })
}

/// Has the ledger read for the tenants' spending in this month before the start. Reading millions of rows takes some
/// seconds, in which clients are served already; limits are judged as soon as it is done.
pub(super) fn count_before(handle: ControlHandle, data: &Path, last_row: u64) -> anyhow::Result<()> {
    let data: PathBuf = data.into();
    let count = move || {
        let spent = spent_before(&data, last_row).unwrap_or_else(|error| {
            tracing::error!("what was spent before the start is not known, only what comes counts: {error:#}");
            Spent::default()
        });
        if let Err(error) = handle.adopt_spent(spent).wait() {
            tracing::error!("spending limits are not judged: {error}");
        }
    };
    std::thread::Builder::new().name("tidemark-spent".into()).spawn(count)?;
    Ok(())
}

fn spent_before(data: &Path, last_row: u64) -> anyhow::Result<Spent> {
    let ledger = LedgerReader::open(data)?;
    let accounts = ledger.accounts(SystemClock.now(), last_row)?;
    let prices = if ledger.prices()?.is_empty() {
        Vec::new()
    } else {
        kept_prices(&ledger)?.prices
    };
    Ok(Spent { prices, accounts })
}
