//! The messages that the server sends by itself: alerts about spending limits to a webhook, and metrics to a collector.
//!
//! Each has a thread of its own and a bounded queue, so that a receiver that hangs, fails or is gone delays nobody.
//! Pure functions decide when and how often something is tried (`retry`). An address is judged before anything is sent
//! to it (`address`), and is the one that is connected to.

#![forbid(unsafe_code)]

mod address;
mod otlp;
mod post;
mod retry;
mod sign;
mod target;
mod webhook;

pub use otlp::{Otlp, start_otlp};
pub use sign::SigningKey;
pub use target::{Target, TargetError};
pub use webhook::{Webhook, start_webhook};
