//! The values that are kept in etcd, and their keys.
//!
//! ```text
//! /tidemark/secret                       what agents prove themselves by, base64
//! /tidemark/s3-key                       what secrets of access keys are derived from, base64
//! /tidemark/apps/APP                     an application: access, promise, wanted configuration
//! /tidemark/domains/APP/document         its domain: the view in force, and the change under way
//! /tidemark/domains/APP/members/ID       a cachelet, under its agent's lease
//! /tidemark/domains/APP/tuned            what choosing its configuration has come to
//! ```

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tidemark_cachelet::config::{Config, Promise};
use tidemark_cachelet::types::CacheletId;
use tidemark_cachelet::view::Trial;
use tidemark_gateway::access::Entry;

/// The prefix of all keys.
pub const PREFIX: &str = "/tidemark/";
/// The secret of agents.
pub const SECRET_KEY: &str = "/tidemark/secret";
/// The key of access keys' secrets.
pub const S3_KEY: &str = "/tidemark/s3-key";

const APPS: &str = "/tidemark/apps/";
const DOMAINS: &str = "/tidemark/domains/";

/// The key of an application.
#[must_use]
pub fn app_key(app: &str) -> String {
    format!("{APPS}{app}")
}

/// The key of a domain's document.
#[must_use]
pub fn document_key(app: &str) -> String {
    format!("{DOMAINS}{app}/document")
}

/// The key of what choosing has come to.
#[must_use]
pub fn tuned_key(app: &str) -> String {
    format!("{DOMAINS}{app}/tuned")
}

/// The key of a cachelet.
#[must_use]
pub fn member_key(app: &str, id: CacheletId) -> String {
    format!("{DOMAINS}{app}/members/{}", id.0)
}

/// The subject of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An application.
    App(String),
    /// A domain's document.
    Document(String),
    /// The outcome of choosing its configuration.
    Tuned(String),
    /// A cachelet of a domain.
    Member(String, CacheletId),
}

/// The subject of a key; `None` for others'.
#[must_use]
pub fn place(key: &str) -> Option<Place> {
    if let Some(app) = key.strip_prefix(APPS) {
        return Some(Place::App(app.to_owned()));
    }
    let (app, rest) = key.strip_prefix(DOMAINS)?.split_once('/')?;
    if rest == "document" {
        return Some(Place::Document(app.to_owned()));
    }
    if rest == "tuned" {
        return Some(Place::Tuned(app.to_owned()));
    }
    let id = rest.strip_prefix("members/")?.parse().ok()?;
    Some(Place::Member(app.to_owned(), CacheletId(id)))
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRecord {
    /// Its access key and the buckets that it opens.
    pub access: Entry,
    /// The promise to the application, fixed when it was created.
    pub promise: Promise,
    /// The configuration that is wanted.
    pub config: Config,
    /// Dimensions that the operator has fixed.
    #[serde(default)]
    pub pinned: BTreeSet<String>,
    /// A configuration on trial.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// Why this configuration.
    #[serde(default)]
    pub reason: String,
}

/// A cachelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The node that it is on.
    pub node: String,
    /// The address at which its agent takes messages.
    pub address: SocketAddr,
    /// The cluster of nodes that it is in.
    pub cluster: u32,
    /// Which instances of the application it serves.
    pub label: String,
    /// The highest epoch of the domain that its agent has seen.
    pub seen: u64,
    /// Whether it wants to be left out of the next view.
    #[serde(default)]
    pub is_leaving: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for (key, expected) in [
            (app_key("shop"), Place::App("shop".into())),
            (document_key("shop"), Place::Document("shop".into())),
            (tuned_key("shop"), Place::Tuned("shop".into())),
            (
                member_key("shop", CacheletId(7)),
                Place::Member("shop".into(), CacheletId(7)),
            ),
        ] {
            assert_eq!(place(&key), Some(expected));
            assert!(key.starts_with(PREFIX));
        }
        for other in [SECRET_KEY, S3_KEY, "/tidemark/domains/shop/members/x", "/else"] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
