//! INFO: the tenant's own figures under Redis's names, as exporters read them.
//!
//! Figures of the process as a whole (version, uptime, CPU time) are shown to all; figures of other tenants to nobody.
//! Things that a cache without persistence, replicas and scripts does not have are shown as absent.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use tidemark_protocol::resp::command::CommandId;
use tidemark_store::{Counters, DATABASES};

use super::answer::{Done, reply};
use super::config::policy_name;
use super::describe::all_rows;
use super::dispatch::{Call, Family, Handler};
use crate::access::Access;
use crate::clients::Client;
use crate::counts::Count;
use crate::process::{self, Process};
use crate::session::{Exec, Session};
use crate::shared::Shared;
use crate::tenant::Tenant;

pub(super) const HANDLERS: Family = &[(CommandId::Info, Handler::Keys(info))];

/// The version of Redis that clients may take this server for: features that they expect of it are here.
pub(super) const COMPATIBLE_VERSION: &str = "7.2.4";

/// Writes a section.
type Section = fn(&mut Report<'_>);

/// Each section's name in a question, whether it is in the answer to a plain INFO, and its text.
const SECTIONS: [(&str, bool, Section); 13] = [
    ("server", true, server),
    ("clients", true, clients),
    ("memory", true, memory),
    ("persistence", true, persistence),
    ("stats", true, stats),
    ("replication", true, replication),
    ("cpu", true, cpu),
    ("modules", true, modules),
    ("commandstats", false, command_stats),
    ("errorstats", true, error_stats),
    ("latencystats", false, latency_stats),
    ("cluster", true, cluster),
    ("keyspace", true, keyspace),
];

/// The memory that a tenant may come to hold.
pub(super) fn memory_limit_bytes(tenant: &Tenant, shared: &Shared) -> u64 {
    tenant
        .cap_bytes()
        .unwrap_or(u64::MAX)
        .min(shared.tenants.pool().stats().pool_bytes)
}

/// The source of the sections.
struct Report<'r> {
    tenant: &'r Tenant,
    shared: &'r Shared,
    now: tidemark_types::UnixMs,
    shards: Shards,
    text: String,
}

/// The sums over the tenant's shards.
#[derive(Default)]
struct Shards {
    counted: Counters,
    index_bytes: u64,
    /// Keys, and those that expire, of each database.
    databases: [(u64, u64); DATABASES],
}

impl Shards {
    fn of(access: &mut Access<'_>, now: tidemark_types::UnixMs) -> Self {
        let mut all = Self::default();
        access.for_each_shard(|shard| {
            all.counted.add(&shard.counters());
            all.index_bytes += shard.snapshot(now).index_bytes;
            for (db, (keys, expiring)) in (0..).zip(&mut all.databases) {
                *keys += shard.items_in(db);
                *expiring += shard.expiring_in(db);
            }
        });
        all
    }
}

impl Report<'_> {
    fn title(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\r\n");
        }
        // Writing to a string does not fail, here and below.
        let _ = write!(self.text, "# {title}\r\n");
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    fn lines(&mut self, lines: &[(&str, u64)]) {
        lines.iter().for_each(|(name, value)| self.line(name, value));
    }

    fn count(&self, count: Count) -> u64 {
        self.tenant.counts.get(count)
    }
}

fn info<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let Some(tenant) = &session.tenant else { return Ok(()) };
    let asked: BTreeSet<String> = call
        .args
        .from(1)
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .collect();
    let is_asked = |name: &str| asked.contains(name);
    let plain = asked.is_empty() || is_asked("default");
    let all = is_asked("all") || is_asked("everything");
    let mut report = Report {
        tenant,
        shared: exec.shared,
        now: exec.now,
        shards: Shards::of(access, exec.now),
        text: String::new(),
    };
    for (name, is_plain, write) in SECTIONS {
        let is_modules = name == "modules";
        // Redis leaves the modules out of `all`.
        let in_all = all && (!is_modules || is_asked("everything"));
        if (plain && is_plain) || in_all || is_asked(name) {
            write(&mut report);
        }
    }
    reply(session, exec).verbatim(report.text.as_bytes());
    Ok(())
}

fn server(report: &mut Report<'_>) {
    let shared = report.shared;
    let uptime = shared.started.elapsed().as_secs();
    report.title("Server");
    report.line("redis_version", COMPATIBLE_VERSION);
    // As in a Redis that was not built in a repository.
    report.line("redis_git_sha1", "00000000");
    report.line("redis_git_dirty", 0);
    report.line("server_name", "tidemark");
    report.line("tidemark_version", env!("CARGO_PKG_VERSION"));
    report.line("redis_mode", "standalone");
    report.line("os", process::operating_system());
    report.line("arch_bits", usize::BITS);
    report.line("multiplexing_api", "epoll");
    report.line("process_id", std::process::id());
    report.line("run_id", &shared.run_id);
    report.line("tcp_port", shared.redis.map_or(0, |address| address.port()));
    report.line("server_time_usec", u128::from(report.now.0) * 1000);
    report.lines(&[("uptime_in_seconds", uptime), ("uptime_in_days", uptime / 86_400)]);
    // Upkeep is done in every turn, not by a timer; clients read these only to know that they are there.
    report.lines(&[
        ("hz", 10),
        ("configured_hz", 10),
        ("io_threads_active", u64::from(shared.mailboxes.len() > 1)),
    ]);
}

fn clients(report: &mut Report<'_>) {
    let connected = report.tenant.connections.load(Ordering::Relaxed);
    let is_watching: fn(&Client) -> bool = |client| client.watches.load(Ordering::Relaxed) > 0;
    let is_tracking: fn(&Client) -> bool = |client| client.is_tracking.load(Ordering::Relaxed);
    let kinds = [is_watching, is_tracking];
    let [watching, tracking] = report.shared.clients.count_of(report.tenant.id, kinds);
    report.title("Clients");
    report.lines(&[
        ("connected_clients", connected),
        ("cluster_connections", 0),
        (
            "maxclients",
            report.tenant.connections_max(report.shared.connections_max),
        ),
        ("client_recent_max_input_buffer", 0),
        ("client_recent_max_output_buffer", 0),
        ("blocked_clients", 0),
        ("tracking_clients", tracking),
        ("watching_clients", watching),
        ("clients_in_timeout_table", 0),
    ]);
}

fn memory(report: &mut Report<'_>) {
    let used = report.tenant.store.usage_bytes();
    let peak = report.tenant.store.peak_usage_bytes();
    let overhead = report.shards.index_bytes;
    let limit = memory_limit_bytes(report.tenant, report.shared);
    report.title("Memory");
    report.line("used_memory", used);
    report.line("used_memory_human", human(used));
    // Memory is held in whole units that are backed by physical memory.
    report.line("used_memory_rss", used);
    report.line("used_memory_rss_human", human(used));
    report.line("used_memory_peak", peak);
    report.line("used_memory_peak_human", human(peak));
    report.line("used_memory_overhead", overhead);
    report.line("used_memory_startup", 0);
    report.line("used_memory_dataset", used.saturating_sub(overhead));
    report.line("maxmemory", limit);
    report.line("maxmemory_human", human(limit));
    report.line("maxmemory_policy", policy_name(report.tenant));
    report.line("mem_fragmentation_ratio", "1.00");
    report.line("mem_fragmentation_bytes", 0);
    report.line("mem_clients_normal", report.tenant.buffer_bytes.load(Ordering::Relaxed));
    report.line("mem_allocator", "tidemark");
    report.line("tidemark_grant_bytes", report.tenant.store.grant_bytes());
    if let Some(tier) = &report.tenant.tier {
        let flash = tier.used();
        for (name, figure) in [
            ("tidemark_flash_grant_bytes", flash.grant_bytes),
            ("tidemark_flash_usage_bytes", flash.usage_bytes),
            ("tidemark_flash_memory_bytes", flash.memory_bytes),
            ("tidemark_flash_items", flash.items),
            ("tidemark_flash_hits", flash.hits),
            ("tidemark_flash_written_bytes", flash.written_bytes),
            ("tidemark_flash_refused", flash.refused),
            ("tidemark_flash_failed", tier.flash().store().is_given_up().into()),
        ] {
            report.line(name, figure);
        }
    }
}

/// A size as Redis writes it for people.
fn human(bytes: u64) -> String {
    const UNITS: [(u64, char); 4] = [(1 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, letter)) => format!("{:.2}{letter}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

fn persistence(report: &mut Report<'_>) {
    let started = report.shared.started_at.seconds();
    report.title("Persistence");
    report.lines(&[
        ("loading", 0),
        ("async_loading", 0),
        ("rdb_changes_since_last_save", 0),
        ("rdb_bgsave_in_progress", 0),
        ("rdb_last_save_time", started),
    ]);
    report.line("rdb_last_bgsave_status", "ok");
    report.lines(&[
        ("aof_enabled", 0),
        ("aof_rewrite_in_progress", 0),
        ("aof_rewrite_scheduled", 0),
    ]);
}

fn stats(report: &mut Report<'_>) {
    let counted = report.shards.counted;
    let totals = [Count::Commands, Count::NetworkIn, Count::NetworkOut].map(|count| report.count(count));
    let [commands, input, output] = totals;
    let [commands_rate, input_rate, output_rate] = report.tenant.counts.commands().rates(totals, report.now);
    let kib = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    report.title("Stats");
    report.lines(&[
        ("total_connections_received", report.count(Count::Connections)),
        ("total_commands_processed", commands),
        ("instantaneous_ops_per_sec", commands_rate),
        ("total_net_input_bytes", input),
        ("total_net_output_bytes", output),
    ]);
    report.line("instantaneous_input_kbps", kib(input_rate));
    report.line("instantaneous_output_kbps", kib(output_rate));
    report.lines(&[
        (
            "rejected_connections",
            report.shared.refused_connections.load(Ordering::Relaxed) + report.count(Count::RefusedConnections),
        ),
        ("sync_full", 0),
        ("sync_partial_ok", 0),
        ("sync_partial_err", 0),
        ("expired_keys", counted.expired),
        ("evicted_keys", counted.evicted),
        ("evicted_clients", 0),
        ("keyspace_hits", counted.hits),
        ("keyspace_misses", counted.gets - counted.hits),
        ("pubsub_channels", 0),
        ("pubsub_patterns", 0),
        ("latest_fork_usec", 0),
        ("total_forks", 0),
        ("migrate_cached_sockets", 0),
        ("slave_expires_tracked_keys", 0),
        ("unexpected_error_replies", 0),
        ("total_error_replies", report.count(Count::Errors)),
        ("acl_access_denied_auth", report.count(Count::AuthErrors)),
        ("acl_access_denied_cmd", report.count(Count::Denied)),
        ("acl_access_denied_key", 0),
        ("acl_access_denied_channel", 0),
        ("tidemark_refused_ops", report.count(Count::RefusedOps)),
        ("tidemark_refused_bytes", report.count(Count::RefusedBytes)),
        ("tidemark_refused_spending", report.count(Count::RefusedSpending)),
        ("tidemark_refused_flash_waits", report.count(Count::RefusedFlash)),
        ("tidemark_failed_logins", report.count(Count::FailedLogins)),
    ]);
}

fn replication(report: &mut Report<'_>) {
    report.title("Replication");
    report.line("role", "master");
    report.line("connected_slaves", 0);
    report.line("master_failover_state", "no-failover");
    report.line("master_repl_offset", 0);
    report.line("repl_backlog_active", 0);
}

fn cpu(report: &mut Report<'_>) {
    let process = Process::recent();
    report.title("CPU");
    report.line("used_cpu_sys", format_args!("{:.6}", process.system_seconds));
    report.line("used_cpu_user", format_args!("{:.6}", process.user_seconds));
}

fn modules(report: &mut Report<'_>) {
    report.title("Modules");
}

/// How often each command was called. The time is what all of the tenant's commands took, shared evenly.
fn command_stats(report: &mut Report<'_>) {
    let counts = report.tenant.counts.commands();
    let errors = counts.errors();
    let commands = report.count(Count::Commands).max(1);
    let usec_per_call = report.count(Count::BusyNanos) as f64 / commands as f64 / 1000.0;
    report.title("Commandstats");
    for row in all_rows() {
        let calls = counts.calls(row.id);
        let failures = errors
            .by_command
            .iter()
            .find(|(id, _)| *id == row.id)
            .map(|(_, failures)| *failures);
        if calls == 0 && failures.is_none() {
            continue;
        }
        let failures = failures.unwrap_or_default();
        report.line(
            &format!("cmdstat_{}", row.name),
            format_args!(
                "calls={calls},usec={:.0},usec_per_call={usec_per_call:.2},rejected_calls={},failed_calls={}",
                calls as f64 * usec_per_call,
                failures.rejected,
                failures.failed
            ),
        );
    }
}

fn error_stats(report: &mut Report<'_>) {
    let mut errors = report.tenant.counts.commands().errors().by_code;
    errors.sort();
    report.title("Errorstats");
    for (code, count) in errors {
        report.line(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// Times of single commands are not kept, but those of requests: from when a connection was ready until its replies were
/// given to the system.
fn latency_stats(report: &mut Report<'_>) {
    report.title("Latencystats");
    let durations = report.tenant.counts.durations();
    let percentile = |share| durations.quantile_us(share).unwrap_or(0);
    let line = format!(
        "p50={},p99={},p99.9={},requests={}",
        percentile(0.5),
        percentile(0.99),
        percentile(0.999),
        durations.requests()
    );
    report.line("tidemark_request_duration_usec", line);
}

fn cluster(report: &mut Report<'_>) {
    report.title("Cluster");
    report.line("cluster_enabled", 0);
}

/// How long keys live on average is not known without looking at each: shown as zero, as Redis does until it has looked.
fn keyspace(report: &mut Report<'_>) {
    let databases = report.shards.databases;
    let tier = report.tenant.tier.as_deref();
    report.title("Keyspace");
    for (db, (in_memory, expires)) in (0..).zip(databases) {
        // How many of those that lie on flash only will expire is not known.
        let keys = in_memory + tier.map_or(0, |tier| tier.items_in(db));
        if keys > 0 {
            report.line(
                &format!("db{db}"),
                format_args!("keys={keys},expires={expires},avg_ttl=0"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1_572_864, "1.50M"),
            (1 << 30, "1.00G"),
            (3 << 40, "3.00T"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
