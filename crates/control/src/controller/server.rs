//! Commands about the server.

use std::sync::Arc;

use tidemark_meter::price::Tariff;
use tidemark_types::Clock;

use super::Controller;
use super::views::{durations_view, occupancy};
use crate::error::ControlError;
use crate::metering::Metered;
use crate::process;
use crate::settings::{Change, Idling, ServerPatch, check_floors, check_idling, check_pool, check_round_period};
use crate::state::{PoolSetting, ServerSettings};
use crate::view::{ServerView, TenantView};

impl Controller {
    pub(crate) fn set_server(&mut self, patch: ServerPatch) -> Result<ServerView, ControlError> {
        let mut server = self.server;
        match patch.pool_bytes {
            Change::Keep => {}
            Change::Clear => server.pool = None,
            Change::Set(bytes) => {
                server.pool = Some(PoolSetting {
                    bytes,
                    configured_bytes: self.config.pool_bytes,
                });
            }
        }
        server.round_period = patch.round_period.of(server.round_period);
        if let Some(period) = server.round_period {
            check_round_period(period)?;
        }
        self.adopt_server(server)?;
        Ok(self.server())
    }

    /// The configuration was changed while the server runs: it wins over earlier settings.
    pub(crate) fn configure_pool(&mut self, pool_bytes: u64) -> Result<(), ControlError> {
        let before = std::mem::replace(&mut self.config.pool_bytes, pool_bytes);
        let server = ServerSettings {
            pool: None,
            ..self.server
        };
        self.adopt_server(server)
            .inspect_err(|_| self.config.pool_bytes = before)
    }

    /// The configuration says something else about how tenants come and go.
    pub(crate) fn configure_idling(&mut self, idling: Idling) -> Result<(), ControlError> {
        check_idling(&idling)?;
        self.config.idling = idling;
        self.book.set_idling(idling);
        self.publish();
        Ok(())
    }

    /// The configuration says other prices.
    pub(crate) fn configure_prices(&mut self, tariff: Option<Arc<Tariff>>) {
        // The use until now is priced by the prices until now.
        self.round();
        let wall = self.clock.wall();
        if let Some(metered) = &mut self.metered {
            metered.set_tariff(tariff, wall);
        }
    }

    fn adopt_server(&mut self, server: ServerSettings) -> Result<(), ControlError> {
        let memory_bytes = server.pool.map_or(self.config.pool_bytes, |pool| pool.bytes);
        if memory_bytes != self.memory_bytes {
            check_pool(memory_bytes, self.config.pool_limit_bytes)?;
            check_floors(self.floors(None), memory_bytes, "pool_bytes")?;
        }
        self.change_server(server)?;
        self.book.set_round_period(self.round_period());
        tracing::info!(memory_bytes, round_period = ?self.round_period(), "server set");
        self.set_memory(memory_bytes);
        self.publish();
        Ok(())
    }

    pub(crate) fn server(&mut self) -> ServerView {
        self.refresh();
        self.server_view()
    }

    /// The server and every tenant as of one round.
    pub(crate) fn overview(&mut self) -> (ServerView, Vec<TenantView>) {
        self.refresh();
        (self.server_view(), self.tenant_views())
    }

    fn server_view(&self) -> ServerView {
        let pool = self.book.pool();
        let nobody = self.metered.as_ref().map(Metered::nobody_seconds);
        let network = self.metered.as_ref().map(Metered::network_per_second);
        let network_limit = self.metered.as_ref().and_then(Metered::network_limit);
        let flash = (self.config.flash_bytes > 0).then(|| self.book.flash_held());
        ServerView {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.clock.now().since(self.started_at).as_secs(),
            workers: self.config.workers,
            pool_bytes: self.book.pool_bytes(),
            granted_bytes: self.book.granted_bytes(),
            usage_bytes: pool.usage_bytes,
            other_bytes: pool.other_bytes,
            flash_bytes: flash.map(|_| self.config.flash_bytes),
            flash_granted_bytes: flash.map(|flash| flash.grant_bytes),
            flash_usage_bytes: flash.map(|flash| flash.usage_bytes),
            flash_memory_bytes: flash.map(|flash| flash.memory_bytes),
            flash_failed: flash.map(|_| pool.has_flash_failed),
            connections: pool.connections,
            failed_logins_total: pool.failed_logins,
            network_bytes_per_second: network,
            network_limit_bytes_per_second: network_limit,
            network_occupancy: network.and_then(|per_second| occupancy(per_second, network_limit)),
            rss_bytes: process::rss_bytes(),
            process: process::view(),
            request_duration: pool.served.as_ref().map(durations_view),
            cpu_seconds_total: process::cpu_seconds(),
            unattributed_cpu_seconds_total: nobody.map(|(unattributed, _)| unattributed),
            unexplained_cpu_seconds_total: nobody.map(|(_, unexplained)| unexplained),
            cpu_model: self.metered.as_ref().and_then(Metered::model),
            alerts: self.metered.as_ref().and_then(Metered::alerts),
            rounds_total: self.shared.rounds(),
            round_period_us: u64::try_from(self.round_period().as_micros()).unwrap_or(u64::MAX),
            memcached: self.config.listeners.memcached,
            redis: self.config.listeners.redis,
            tenant_listeners: self.config.listeners.of_tenants.clone(),
            admin: self.config.listeners.admin,
            node: self.node.clone(),
        }
    }
}
