//! CONFIG GET: the settings that clients and exporters ask for, answered in Redis's names. Settings are changed through
//! the administration, not here.

use tidemark_protocol::memcached::VALUE_BYTES_MAX;
use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::glob::{self, Case};
use tidemark_store::DATABASES;

use super::answer::{Done, reply};
use super::dispatch::{Call, Family, Handler};
use super::info::memory_limit_bytes;
use crate::limits::KEEPALIVE;
use crate::session::{Exec, Session};
use crate::shared::Shared;
use crate::tenant::Tenant;

pub(super) const HANDLERS: Family = &[(CommandId::ConfigGet, Handler::Session(get))];

/// Every setting that is answered, in order of names.
const SETTINGS: &[(&str, Setting)] = &[
    // There is no persistence: a restart is a cold cache.
    ("appendfsync", Setting::Text("no")),
    ("appendonly", Setting::Text("no")),
    (
        "bind",
        Setting::Of(|_, shared| {
            shared
                .redis
                .map_or_else(String::new, |address| address.ip().to_string())
        }),
    ),
    ("cluster-enabled", Setting::Text("no")),
    ("databases", Setting::Of(|_, _| DATABASES.to_string())),
    (
        "io-threads",
        Setting::Of(|_, shared| shared.mailboxes.len().to_string()),
    ),
    ("latency-monitor-threshold", Setting::Text("0")),
    ("lazyfree-lazy-user-del", Setting::Text("no")),
    ("lazyfree-lazy-user-flush", Setting::Text("no")),
    (
        "maxclients",
        Setting::Of(|tenant, shared| tenant.connections_max(shared.connections_max).to_string()),
    ),
    (
        "maxmemory",
        Setting::Of(|tenant, shared| memory_limit_bytes(tenant, shared).to_string()),
    ),
    ("maxmemory-policy", Setting::Of(|tenant, _| policy_name(tenant))),
    ("notify-keyspace-events", Setting::Text("")),
    (
        "port",
        Setting::Of(|_, shared| shared.redis.map_or(0, |address| address.port()).to_string()),
    ),
    ("proto-max-bulk-len", Setting::Of(|_, _| VALUE_BYTES_MAX.to_string())),
    ("save", Setting::Text("")),
    ("slowlog-log-slower-than", Setting::Text("-1")),
    ("slowlog-max-len", Setting::Text("0")),
    ("tcp-keepalive", Setting::Of(|_, _| KEEPALIVE.as_secs().to_string())),
    ("timeout", Setting::Text("0")),
    ("tls-port", Setting::Text("0")),
    ("unixsocket", Setting::Text("")),
];

/// The source of a setting's value.
enum Setting {
    Text(&'static str),
    Of(fn(&Tenant, &Shared) -> String),
}

/// The eviction policy in the form of Redis's names: any key may go, and this is how.
pub(super) fn policy_name(tenant: &Tenant) -> String {
    format!("allkeys-{}", tenant.store.policy())
}

fn get<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let Some(tenant) = session.tenant.clone() else {
        return Ok(());
    };
    let asked: Vec<_> = SETTINGS
        .iter()
        .filter_map(|(name, setting)| Some((asked_as(name, call)?, setting)))
        .collect();
    let shared = exec.shared;
    let mut reply = reply(session, exec);
    reply.map(asked.len());
    for (name, setting) in asked {
        reply.bulk(name);
        match setting {
            Setting::Text(text) => reply.bulk(text.as_bytes()),
            Setting::Of(value) => reply.bulk(value(&tenant, shared).as_bytes()),
        }
    }
    Ok(())
}

/// The name by which a setting was asked for: as the client wrote it, or its own if it was a pattern.
fn asked_as<'a>(name: &'static str, call: Call<'a>) -> Option<&'a [u8]> {
    let name = name.as_bytes();
    let is_it = |pattern: &&[u8]| pattern.eq_ignore_ascii_case(name) || glob::matches(pattern, name, Case::Ignored);
    let asked = call.args.from(2).find(is_it)?;
    Some(if asked.eq_ignore_ascii_case(name) { asked } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_order_and_in_lower_case() {
        assert!(SETTINGS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(SETTINGS.iter().all(|(name, _)| *name == name.to_ascii_lowercase()));
    }
}
