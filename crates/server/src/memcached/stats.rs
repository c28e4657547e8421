//! `stats`: a tenant's own figures under memcached's names (protocol.txt, "Statistics").
//!
//! Figures of the process as a whole (pid, uptime, threads) are shown to all; figures of other tenants to nobody.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_protocol::memcached::{KEY_BYTES_MAX, Stats, VALUE_BYTES_MAX, compose, text as reply};
use tidemark_store::Counters;
use tidemark_types::{ShardSnapshot, UnixMs};

use super::{DB, VERSION};
use crate::counts::Count;
use crate::limits::DESCRIBED_CONNECTIONS;
use crate::process::Process;
use crate::session::Exec;
use crate::shared::Shared;
use crate::tenant::Tenant;

/// `stats [settings|items|slabs|sizes|conns|reset]`.
pub(super) fn answer(wanted: &Stats<'_>, tenant: &Arc<Tenant>, exec: &mut Exec<'_>) {
    let mut arguments = wanted.arguments();
    match arguments.next() {
        None => general(tenant, exec),
        Some(b"settings") => settings(tenant, exec),
        // All items are in one class: there are no slabs.
        Some(b"items") => items(tenant, exec),
        Some(b"slabs") => slabs(tenant, exec),
        Some(b"sizes") => {
            compose::stat(&mut exec.out.bytes, "sizes_status", "disabled");
        }
        Some(b"conns") => connections(tenant, exec),
        Some(b"reset") => {
            tenant.counts.reset();
            exec.out.bytes.extend_from_slice(reply::RESET);
            return;
        }
        Some(_) => {
            exec.out.bytes.extend_from_slice(reply::ERROR);
            return;
        }
    }
    exec.out.bytes.extend_from_slice(reply::END);
}

struct Lines<'e, 'x>(&'e mut Exec<'x>);

impl Lines<'_, '_> {
    fn add(&mut self, name: &str, value: impl Display) {
        compose::stat(&mut self.0.out.bytes, name, &value.to_string());
    }
}

fn counted(tenant: &Arc<Tenant>) -> (u64, Counters) {
    let mut total = Counters::default();
    let items = tenant.store.sum(|shard| {
        total.add(&shard.counters());
        shard.items_in(DB)
    });
    (items, total)
}

/// How each shard stands.
fn shards(tenant: &Arc<Tenant>, now: UnixMs) -> Vec<ShardSnapshot> {
    let mut shards = Vec::new();
    tenant.store.sum(|shard| {
        shards.push(shard.snapshot(now));
        0
    });
    shards
}

fn general(tenant: &Arc<Tenant>, exec: &mut Exec<'_>) {
    let (shared, now) = (exec.shared, exec.now);
    let (items, total) = counted(tenant);
    let count = |count| tenant.counts.get(count);
    let process = Process::read();
    let mut lines = Lines(exec);
    lines.add("pid", std::process::id());
    lines.add("uptime", shared.started.elapsed().as_secs());
    lines.add("time", now.seconds());
    lines.add("version", VERSION);
    lines.add("pointer_size", usize::BITS);
    lines.add("rusage_user", format_args!("{:.6}", process.user_seconds));
    lines.add("rusage_system", format_args!("{:.6}", process.system_seconds));
    lines.add("max_connections", tenant.connections_max(shared.connections_max));
    lines.add("curr_connections", tenant.connections.load(Ordering::Relaxed));
    lines.add("total_connections", count(Count::Connections));
    lines.add(
        "rejected_connections",
        shared.refused_connections.load(Ordering::Relaxed) + count(Count::RefusedConnections),
    );
    lines.add("conn_yields", count(Count::Yields));
    lines.add("listen_disabled_num", shared.times_full.load(Ordering::Relaxed));
    lines.add("get_expired", total.gets_expired);
    lines.add("get_flushed", total.gets_flushed);
    lines.add("cmd_get", count(Count::GetHits) + count(Count::GetMisses));
    lines.add("cmd_set", count(Count::Sets));
    lines.add("cmd_flush", count(Count::Flushes));
    lines.add("cmd_touch", count(Count::TouchHits) + count(Count::TouchMisses));
    lines.add("cmd_meta", count(Count::Metas));
    for (name, of) in [
        ("get_hits", Count::GetHits),
        ("get_misses", Count::GetMisses),
        ("delete_misses", Count::DeleteMisses),
        ("delete_hits", Count::DeleteHits),
        ("incr_misses", Count::IncrementMisses),
        ("incr_hits", Count::IncrementHits),
        ("decr_misses", Count::DecrementMisses),
        ("decr_hits", Count::DecrementHits),
        ("cas_misses", Count::CasMisses),
        ("cas_hits", Count::CasHits),
        ("cas_badval", Count::CasBad),
        ("touch_hits", Count::TouchHits),
        ("touch_misses", Count::TouchMisses),
        ("store_too_large", Count::TooLarge),
        ("store_no_memory", Count::NoMemory),
        ("auth_cmds", Count::AuthCommands),
        ("auth_errors", Count::AuthErrors),
        ("bytes_read", Count::NetworkIn),
        ("bytes_written", Count::NetworkOut),
        ("refused_ops", Count::RefusedOps),
        ("refused_bytes", Count::RefusedBytes),
        ("refused_spending", Count::RefusedSpending),
        ("refused_flash_waits", Count::RefusedFlash),
        ("failed_logins", Count::FailedLogins),
    ] {
        lines.add(name, count(of));
    }
    lines.add("limit_maxbytes", limit_bytes(tenant, shared));
    lines.add("accepting_conns", u8::from(!shared.is_draining.load(Ordering::Relaxed)));
    lines.add("threads", shared.mailboxes.len());
    lines.add("bytes", tenant.store.usage_bytes());
    lines.add("curr_items", items);
    lines.add("total_items", total.sets);
    lines.add("evictions", total.evicted);
    lines.add("reclaimed", total.expired);
    if let Some(tier) = &tenant.tier {
        // The names are those of memcached's external storage.
        let flash = tier.used();
        lines.add("get_extstore", flash.hits);
        lines.add("extstore_objects_used", flash.items);
        lines.add("extstore_bytes_used", flash.usage_bytes);
        lines.add("extstore_limit_maxbytes", flash.grant_bytes);
        lines.add("extstore_bytes_written", flash.written_bytes);
        lines.add("extstore_failed", u8::from(tier.flash().store().is_given_up()));
    }
}

/// The memory that the tenant may come to hold.
fn limit_bytes(tenant: &Tenant, shared: &Shared) -> u64 {
    tenant
        .cap_bytes()
        .unwrap_or(u64::MAX)
        .min(shared.tenants.pool().stats().pool_bytes)
}

fn settings(tenant: &Tenant, exec: &mut Exec<'_>) {
    let shared = exec.shared;
    let mut lines = Lines(exec);
    lines.add("maxbytes", limit_bytes(tenant, shared));
    lines.add("maxconns", tenant.connections_max(shared.connections_max));
    lines.add("tcpport", shared.memcached.map_or(0, |address| address.port()));
    lines.add("udpport", 0);
    lines.add(
        "inter",
        shared
            .memcached
            .map_or_else(|| "NULL".into(), |address| address.ip().to_string()),
    );
    lines.add("verbosity", 0);
    lines.add("evictions", "on");
    lines.add("num_threads", shared.mailboxes.len());
    lines.add("cas_enabled", "yes");
    lines.add("auth_enabled_ascii", "yes");
    lines.add("binding_protocol", "ascii");
    lines.add("item_size_max", VALUE_BYTES_MAX);
    lines.add("key_size_max", KEY_BYTES_MAX);
    lines.add("flush_enabled", "yes");
}

fn items(tenant: &Arc<Tenant>, exec: &mut Exec<'_>) {
    let (items, total) = counted(tenant);
    if items > 0 {
        let age_ms = shards(tenant, exec.now).iter().map(|shard| shard.oldest_age_ms).max();
        let mut lines = Lines(exec);
        lines.add("items:1:number", items);
        lines.add("items:1:age", age_ms.unwrap_or(0) / 1000);
        lines.add("items:1:evicted", total.evicted);
        lines.add("items:1:outofmemory", total.refused_memory);
        lines.add("items:1:reclaimed", total.expired);
    }
}

fn slabs(tenant: &Arc<Tenant>, exec: &mut Exec<'_>) {
    let (items, _) = counted(tenant);
    let shards = shards(tenant, exec.now);
    let mut lines = Lines(exec);
    if items > 0 {
        let item_bytes = |shard: &ShardSnapshot| {
            let other = shard.index_bytes + shard.free_bytes + shard.dead_bytes;
            shard.usage_bytes.saturating_sub(other)
        };
        lines.add("1:used_chunks", items);
        lines.add("1:mem_requested", shards.iter().map(item_bytes).sum::<u64>());
        for (name, of) in [
            ("1:get_hits", Count::GetHits),
            ("1:cmd_set", Count::Sets),
            ("1:delete_hits", Count::DeleteHits),
            ("1:incr_hits", Count::IncrementHits),
            ("1:decr_hits", Count::DecrementHits),
            ("1:cas_hits", Count::CasHits),
            ("1:cas_badval", Count::CasBad),
            ("1:touch_hits", Count::TouchHits),
        ] {
            lines.add(name, tenant.counts.get(of));
        }
    }
    lines.add("active_slabs", u8::from(items > 0));
    lines.add("total_malloced", tenant.store.usage_bytes());
}

fn connections(tenant: &Tenant, exec: &mut Exec<'_>) {
    let now = exec.now;
    let (clients, _) = exec.shared.clients.some_of(tenant.id, 0, DESCRIBED_CONNECTIONS);
    let mut lines = Lines(exec);
    // In memcached the number is the descriptor's, which would tell how many connections there are of others.
    for (number, client) in clients.iter().enumerate() {
        lines.add(&format!("{number}:addr"), format_args!("tcp:{}", client.peer));
        lines.add(&format!("{number}:listen_addr"), format_args!("tcp:{}", client.local));
        lines.add(&format!("{number}:state"), "conn_parse_cmd");
        lines.add(
            &format!("{number}:secs_since_last_cmd"),
            now.since(client.last_active()).as_secs(),
        );
    }
}
