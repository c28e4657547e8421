//! Alerts about spending limits, each a POST to one URL.
//!
//! One thread takes them from a bounded queue and tries each until it is accepted or given up. Alerts are told apart by their
//! identifier, so that a receiver that gets one twice knows it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tidemark_control::{AlertCounts, AlertSink};
use tidemark_meter::export::alert_event;
use tidemark_meter::spending::Alert;
use tidemark_types::{Clock, SystemClock};

use crate::post::{PostError, Poster};
use crate::retry::wait_after;
use crate::sign::SigningKey;
use crate::target::Target;

/// The limit of alerts that the control plane has for the thread. All of a thousand tenants' at once would be three
/// times as many; those that find no room are counted.
const QUEUE_ALERTS: usize = 256;
/// Alerts that wait for their next try. The oldest is given up for one more.
const WAITING_MAX: usize = 1024;
/// A CloudEvent in structured mode (CloudEvents 1.0.2, HTTP binding, 3.2).
const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// The target of alerts, and the way to it.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// The receiver.
    pub target: Target,
    /// The secret that the receiver shares; without one, alerts are not signed.
    pub key: Option<SigningKey>,
    /// Whether it may be at an address of this host.
    pub allows_inside: bool,
}

/// An alert on its way.
struct Pending {
    alert: Alert,
    tries: u32,
    due: Instant,
}

/// Starts the thread that sends alerts. It ends when nobody can hand any over; the end of the process does not wait for it.
///
/// # Errors
/// There is no thread to be had, or the certificates that the system trusts cannot be read.
pub fn start_webhook(webhook: &Webhook) -> io::Result<AlertSink> {
    let (sender, receiver) = sync_channel(QUEUE_ALERTS);
    let counts = Arc::new(AlertCounts::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut sending = Sending {
        poster: Poster::new(webhook.target.clone(), webhook.allows_inside)?,
        key: webhook.key.clone(),
        runtime,
        waiting: Vec::new(),
        counts: Arc::clone(&counts),
    };
    std::thread::Builder::new()
        .name("tidemark-webhook".into())
        .spawn(move || sending.run(&receiver))?;
    Ok(AlertSink { sender, counts })
}

struct Sending {
    poster: Poster,
    key: Option<SigningKey>,
    runtime: tokio::runtime::Runtime,
    waiting: Vec<Pending>,
    counts: Arc<AlertCounts>,
}

impl Sending {
    fn run(&mut self, receiver: &Receiver<Alert>) {
        loop {
            let next_due = self.waiting.iter().map(|pending| pending.due).min();
            let received = match next_due {
                Some(due) => receiver.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(alert) => self.take(alert),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Alerts that came meanwhile are taken first, so that the queue is empty while one is being sent.
            receiver.try_iter().for_each(|alert| self.take(alert));
            self.try_one();
        }
    }

    fn take(&mut self, alert: Alert) {
        if self.waiting.len() >= WAITING_MAX {
            let oldest = self.waiting.remove(0);
            self.give_up(&oldest.alert, "too many others wait");
        }
        self.waiting.push(Pending {
            alert,
            tries: 0,
            due: Instant::now(),
        });
    }

    /// Tries the one that has been due for the longest time.
    fn try_one(&mut self) {
        let now = Instant::now();
        let due = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, pending)| pending.due <= now);
        let Some(place) = due.min_by_key(|(_, pending)| pending.due).map(|(place, _)| place) else {
            return;
        };
        let mut pending = self.waiting.remove(place);
        pending.tries += 1;
        let Err(error) = self.post(&pending.alert) else {
            self.counts.sent.fetch_add(1, Ordering::Relaxed);
            tracing::info!(
                tenant = pending.alert.tenant,
                percent = pending.alert.percent,
                "alert sent"
            );
            return;
        };
        let wait = wait_after(pending.tries).filter(|_| error.may_pass());
        let Some(wait) = wait else {
            self.give_up(&pending.alert, &error.to_string());
            return;
        };
        self.note_failure(&pending, &error, wait);
        pending.due = Instant::now() + wait;
        self.waiting.push(pending);
    }

    fn post(&self, alert: &Alert) -> Result<(), PostError> {
        let body = alert_event(alert).to_string();
        let (id, timestamp_s) = (alert.key(), SystemClock.now().0 / 1000);
        let mut headers = vec![
            ("webhook-id", id.clone()),
            ("webhook-timestamp", timestamp_s.to_string()),
        ];
        let signature = self.key.as_ref().and_then(|key| key.signature(&id, timestamp_s, &body));
        headers.extend(signature.map(|signature| ("webhook-signature", signature)));
        self.runtime
            .block_on(self.poster.post(CONTENT_TYPE, &headers, Bytes::from(body)))
    }

    fn note_failure(&self, pending: &Pending, error: &PostError, wait: Duration) {
        tracing::warn!(
            tenant = pending.alert.tenant,
            tries = pending.tries,
            retry_in_s = wait.as_secs(),
            "the webhook at {} did not take an alert: {error}",
            self.poster.shown()
        );
    }

    fn give_up(&self, alert: &Alert, why: &str) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            tenant = alert.tenant,
            percent = alert.percent,
            "an alert is given up, the webhook at {} did not take it: {why}",
            self.poster.shown()
        );
    }
}
