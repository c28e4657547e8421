//! Carries a command out: check, write to the state file, enter in the book, publish the plan, in this order. An
//! acknowledged command is therefore both durable and in force, and a failed one has changed nothing.

mod history;
mod lease;
mod preview;
mod secrets;
mod server;
mod top;
mod views;

use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{Clock, DataPlane, Permissions, TenantId, UnixMs};

use crate::answer::Reply;
use crate::book::{Book, Tenant};
use crate::config::ControlConfig;
use crate::confine::call_out;
use crate::error::{ControlError, Refusal, RefusalKind};
use crate::metering::Metered;
use crate::pace::Rests;
use crate::secret::{Rotation, SecretName, SecretText};
use crate::settings::{
    DEFAULT_ROUND_PERIOD, MAX_TENANTS, SettingsPatch, TenantSettings, check_flash_floors, check_floors, check_idling,
    check_name, check_pool, check_spending, check_tenant,
};
use crate::shared::Shared;
use crate::sizing::{CustomSizing, ResizeStrategy};
use crate::spending::Spent;
use crate::state::{ServerSettings, State, StoredSecret, TenantRecord};
use crate::steady::SteadyClock;
use crate::utility::{CustomUtility, UtilityFunction};
use crate::view::{NodeView, TenantView};
pub(crate) use lease::LeaseReading;
use views::{move_view, occupancy, operations_view, spending_view, tenant_view};

/// How long a removal waits for the tenant's memory. Emptying the largest tenant takes the data plane less than a
/// second.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// The control plane without its thread.
pub(crate) struct Controller {
    state: Box<dyn State>,
    server: ServerSettings,
    book: Book,
    data_plane: Arc<dyn DataPlane>,
    clock: Arc<SteadyClock>,
    config: ControlConfig,
    shared: Arc<Shared>,
    removals: Vec<Removal>,
    started_at: UnixMs,
    /// The size that the pool is set to. If the pool follows a lease, it is the limit.
    memory_bytes: u64,
    /// The memory that others on this machine do not use, while that is known. The pool takes no more, unless floors need it.
    unused_bytes: Option<u64>,
    /// The last report on the node, if its memory is shared.
    node: Option<NodeView>,
    metered: Option<Metered>,
    /// All floors together, until one of them changes.
    floors_bytes: Option<u64>,
    /// The rests of rounds and commands.
    pub(crate) rests: Rests,
}

/// Figures of this age are still shown: people do not notice it, and a program that asks in a loop costs few rounds.
const FRESH_FOR: Duration = Duration::from_millis(100);

/// Someone waits for a removed tenant's memory.
struct Removal {
    id: TenantId,
    name: String,
    began_at: UnixMs,
    reply: Reply<()>,
}

impl Controller {
    /// Reads the state file and publishes the first plan.
    pub(crate) fn new(
        state: Box<dyn State>,
        data_plane: Arc<dyn DataPlane>,
        clock: Arc<SteadyClock>,
        config: ControlConfig,
        shared: Arc<Shared>,
    ) -> Result<Self, ControlError> {
        check_pool(config.pool_bytes, config.pool_limit_bytes)?;
        check_idling(&config.idling)?;
        let records = state.tenants()?;
        let server = state.server()?;
        let mut book = match config.lease {
            Some(lease) => Book::leased(lease, config.workers, records),
            None => Book::new(config.pool_bytes, config.workers, records),
        };
        book.set_idling(config.idling);
        book.set_hit_cost(config.hit_cost);
        book.set_flash_bytes(config.flash_bytes);
        book.set_round_period(server.round_period.unwrap_or(DEFAULT_ROUND_PERIOD));
        let started_at = clock.now();
        let metered = config.metering.clone().map(Metered::new);
        let mut controller = Self {
            metered,
            state,
            server,
            book,
            data_plane,
            clock,
            memory_bytes: config.pool_bytes,
            unused_bytes: None,
            config,
            shared,
            removals: Vec::new(),
            started_at,
            node: None,
            floors_bytes: None,
            rests: Rests::default(),
        };
        controller.adopt_pool_setting()?;
        controller.warn_of_floors();
        controller.publish();
        Ok(controller)
    }

    /// Time between rounds.
    pub(crate) fn round_period(&self) -> Duration {
        self.server.round_period.unwrap_or(DEFAULT_ROUND_PERIOD)
    }

    /// One round: observe, decide, publish.
    pub(crate) fn round(&mut self) {
        self.rests.begin();
        let snapshot = call_out(|| self.data_plane.snapshot());
        let now = self.clock.now();
        self.rests.between();
        self.book.observe(&snapshot, now, &mut || self.rests.between());
        if let Some(metered) = &mut self.metered {
            metered.observe(&snapshot, self.clock.wall(), |id| self.book.name_of(id));
        }
        self.judge_spending();
        let prices = self
            .metered
            .as_ref()
            .and_then(|metered| metered.tier_prices(self.clock.wall()));
        self.book.set_tier_prices(prices.unwrap_or_default());
        self.publish();
        self.remember();
        for id in snapshot.removed {
            for removal in self.removals.extract_if(.., |removal| removal.id == id) {
                removal.reply.send(Ok(()));
            }
        }
        let now = self.clock.now();
        for removal in self
            .removals
            .extract_if(.., |removal| now.since(removal.began_at) >= REMOVAL_LIMIT)
        {
            removal.reply.send(Err(ControlError::MemoryNotBack {
                name: removal.name,
                seconds: REMOVAL_LIMIT.as_secs(),
            }));
        }
        self.shared.note_round(now, self.round_period());
    }

    /// Puts the effect of tenants' spending in force.
    fn judge_spending(&mut self) {
        let Some(metered) = self.metered.as_mut().filter(|metered| metered.must_judge()) else {
            return;
        };
        let limits = self.book.limited();
        let judged = metered.judge(&limits, self.clock.wall(), |id| self.book.name_of(id));
        let wall = self.clock.wall();
        for (id, limit, _) in &limits {
            self.book.set_budget(*id, metered.hourly(*id, limit, wall));
        }
        for (id, restraint) in judged {
            if self.book.restrain(id, restraint) {
                let tenant = self.book.name_of(id);
                tracing::info!(tenant, ?restraint, "what a tenant has spent takes effect");
            }
        }
    }

    /// The spending of tenants before this process began, from the ledger.
    pub(crate) fn adopt_spent(&mut self, spent: Spent) {
        let mut spent = spent;
        spent.accounts.retain(|id, _| self.book.name_of(*id).is_some());
        let limits = self
            .book
            .limited()
            .into_iter()
            .map(|(id, limit, _)| (id, limit))
            .collect();
        let wall = self.clock.wall();
        if let Some(metered) = &mut self.metered {
            metered.adopt_spent(spent, &limits, wall);
        }
        self.judge_spending();
        self.publish();
    }

    /// Has a round now if the last one is so old that its figures would surprise who asks for them.
    fn refresh(&mut self) -> UnixMs {
        let now = self.clock.now();
        if now.since(self.shared.last_round()) >= FRESH_FOR {
            self.round();
        }
        self.clock.now()
    }

    /// How long the one has waited who waits for memory to come back since the shortest time, so that rounds should not be far
    /// apart.
    pub(crate) fn removing_for(&self) -> Option<Duration> {
        let newest = self.removals.iter().map(|removal| removal.began_at).max()?;
        Some(self.clock.now().since(newest))
    }

    fn publish(&mut self) {
        self.rests.begin();
        if let Some(plan) = self.book.plan(self.clock.now(), &mut || self.rests.between()) {
            tracing::debug!(sequence = plan.sequence, tenants = plan.tenants.len(), "plan published");
            call_out(|| self.data_plane.apply(&plan));
            if let Some(metered) = &mut self.metered {
                metered.follow(&plan, self.clock.wall());
            }
        }
        let watch = &self.config.watch;
        self.book.tell_moves(|tenant, change| {
            watch.tell(|watcher| watcher.moved(tenant, &move_view(change, None)));
            tracing::info!(
                tenant = tenant.as_str(),
                from_bytes = change.from_bytes,
                to_bytes = change.to_bytes,
                reason = change.reason.name(),
                predicted_hit_ratio = change.predicted_hit_ratio,
                "grant moved"
            );
        });
        self.book.tell_flash_moves(|tenant, change| {
            tracing::info!(
                tenant = tenant.as_str(),
                from_bytes = change.from_bytes,
                to_bytes = change.to_bytes,
                reason = change.reason.name(),
                predicted_hit_ratio = change.predicted_hit_ratio,
                "grant of flash moved"
            );
        });
        self.book.tell_measured(|tenant, change| {
            tracing::info!(
                tenant = tenant.as_str(),
                to_bytes = change.to_bytes,
                reason = change.reason.name(),
                predicted_hit_ratio = change.predicted_hit_ratio,
                measured_hit_ratio = change.measured_hit_ratio,
                "move measured"
            );
        });
        self.book.tell_faults(|tenant, fault| {
            watch.tell(|watcher| watcher.replaced(tenant, fault));
            tracing::warn!(tenant = tenant.as_str(), "{fault}: the built-in one decides instead");
        });
    }

    /// Nothing is planned any more, because a panic left it in the middle of something: those that wait are told.
    pub(crate) fn abandon(&mut self) {
        self.shared.note_end();
        self.removals.clear();
    }

    /// There will be no round any more: the memory that tenants could use is remembered, so that they have it after a
    /// restart. (A program that drives the rounds itself does not say that it ends.)
    pub(crate) fn end(&mut self) {
        self.book.remember_holders();
        self.remember();
        if self.metered.is_some() {
            // The round takes the events since the last one.
            self.round();
        }
        if let Some(metered) = &mut self.metered {
            metered.end(self.clock.wall());
        }
    }

    /// Writes down the grants that tenants are to have back: those that became idle, or all at the end. If that fails,
    /// only a restart forgets it.
    fn remember(&mut self) {
        let remembered = self.book.take_to_remember();
        if remembered.is_empty() {
            return;
        }
        if let Err(error) = self.state.remember(&remembered) {
            let tenants = remembered.len();
            tracing::warn!(tenants, "what tenants held is forgotten at a restart: {error}");
        }
    }

    /// A setting that was made while the server ran stays in force over a restart, unless the configuration was changed
    /// since then.
    fn adopt_pool_setting(&mut self) -> Result<(), ControlError> {
        let Some(setting) = self.server.pool else { return Ok(()) };
        let is_possible = check_pool(setting.bytes, self.config.pool_limit_bytes).is_ok();
        if is_possible && setting.configured_bytes == self.config.pool_bytes {
            tracing::info!(pool_bytes = setting.bytes, "memory as it was set while the server ran");
            self.set_memory(setting.bytes);
            return Ok(());
        }
        tracing::info!(
            pool_bytes = self.config.pool_bytes,
            "memory as configured: what was set before no longer applies"
        );
        self.change_server(ServerSettings {
            pool: None,
            ..self.server
        })
    }

    /// The floors that are to be kept: of all tenants but those that are being removed and this one.
    fn floors(&self, but: Option<TenantId>) -> impl Iterator<Item = u64> {
        let tenants = self.book.tenants();
        tenants
            .filter(move |tenant| Some(tenant.record.id) != but && !tenant.is_removing)
            .filter_map(|tenant| tenant.record.settings.floor_bytes)
    }

    /// The same floors of flash.
    fn flash_floors(&self, but: Option<TenantId>) -> impl Iterator<Item = u64> {
        let tenants = self.book.tenants();
        tenants
            .filter(move |tenant| Some(tenant.record.id) != but && !tenant.is_removing)
            .filter_map(|tenant| tenant.record.settings.flash.floor_bytes)
    }

    fn warn_of_floors(&self) {
        let memory = check_floors(self.floors(None), self.reach_bytes(), "");
        let flash = check_flash_floors(self.flash_floors(None), self.config.flash_bytes);
        for refusal in [memory, flash].into_iter().filter_map(Result::err) {
            tracing::warn!("{refusal}: each is kept only in part");
        }
    }

    fn change_server(&mut self, server: ServerSettings) -> Result<(), ControlError> {
        self.state.set_server(&server)?;
        self.server = server;
        Ok(())
    }
}

/// Commands about tenants.
impl Controller {
    pub(crate) fn create_tenant(&mut self, name: &str, patch: SettingsPatch) -> Result<SecretText, ControlError> {
        self.create_tenant_with(name, patch, None)
    }

    pub(crate) fn create_tenant_with(
        &mut self,
        name: &str,
        patch: SettingsPatch,
        text: Option<SecretText>,
    ) -> Result<SecretText, ControlError> {
        let name = check_name(name)?;
        if let Some(taken) = self.book.find(name.as_str()) {
            let why = if taken.is_removing {
                "is being removed: its memory is not back yet"
            } else {
                "exists already"
            };
            let refusal = Refusal::new(RefusalKind::NameTaken, format!("tenant `{name}` {why}")).field("name");
            return Err(refusal.into());
        }
        if self.book.len() >= MAX_TENANTS {
            let message = format!("there are {MAX_TENANTS} tenants already: a server has at most that many");
            return Err(Refusal::new(RefusalKind::OverLimit, message).into());
        }
        let settings = patch.of(TenantSettings::default());
        self.check_settings(None, &settings)?;
        let (secret, stored) = self.new_secret(SecretName::default(), Permissions::ALL, text)?;
        let record = self.state.add_tenant(&name, settings, stored)?;
        tracing::info!(tenant = %name, id = record.id.0, "tenant created");
        self.book.insert(record);
        self.floors_bytes = None;
        self.publish();
        Ok(secret)
    }

    pub(crate) fn set_tenant(&mut self, name: &str, patch: SettingsPatch) -> Result<TenantView, ControlError> {
        let mut record = self.existing(name)?.record.clone();
        let settings = patch.of(record.settings);
        if settings != record.settings {
            self.check_settings(Some(record.id), &settings)?;
            record.settings = settings;
            self.update(record)?;
            tracing::info!(tenant = name, "tenant changed");
        }
        self.tenant(name)
    }

    pub(crate) fn set_sizing(
        &mut self,
        name: &str,
        strategy: Option<Box<dyn ResizeStrategy>>,
    ) -> Result<(), ControlError> {
        let id = self.existing(name)?.record.id;
        self.book.set_sizing(id, CustomSizing::new(strategy));
        self.publish();
        Ok(())
    }

    pub(crate) fn set_utility(
        &mut self,
        name: &str,
        utility: Option<Box<dyn UtilityFunction>>,
    ) -> Result<(), ControlError> {
        let id = self.existing(name)?.record.id;
        self.book.set_utility(id, CustomUtility::new(utility));
        self.publish();
        Ok(())
    }

    /// Removes the tenant at once; the reply is sent when its memory is back.
    pub(crate) fn remove_tenant(&mut self, name: String, reply: Reply<()>) {
        match self.start_removing(&name) {
            Err(error) => reply.send(Err(error)),
            Ok(id) => self.removals.push(Removal {
                id,
                name,
                began_at: self.clock.now(),
                reply,
            }),
        }
    }

    fn start_removing(&mut self, name: &str) -> Result<TenantId, ControlError> {
        let id = self.existing(name)?.record.id;
        self.state.remove_tenant(id)?;
        tracing::info!(tenant = name, id = id.0, "tenant removed");
        self.book.start_removing(id);
        self.floors_bytes = None;
        self.publish();
        Ok(id)
    }

    pub(crate) fn rotate(&mut self, name: &str, rotation: Rotation) -> Result<Option<SecretText>, ControlError> {
        let mut record = self.existing(name)?.record.clone();
        let secret = match rotation {
            Rotation::Add(new) => {
                let permissions = secrets::admit(&mut record, &new)?;
                let (secret, stored) = self.new_secret(new.name, permissions, new.text)?;
                if record.secrets.iter().any(|known| known.hash.0 == stored.hash.0) {
                    let message = format!("tenant `{name}` has this secret already");
                    return Err(Refusal::new(RefusalKind::Invalid, message).field("secret").into());
                }
                record.secrets.push(stored);
                Some(secret)
            }
            Rotation::Finish(of) => secrets::finish(&mut record, &of).map(|()| None)?,
            Rotation::End(of) => secrets::end(&mut record, &of).map(|()| None)?,
        };
        self.update(record)?;
        tracing::info!(tenant = name, "secrets rotated");
        Ok(secret)
    }

    pub(crate) fn tenant(&mut self, name: &str) -> Result<TenantView, ControlError> {
        let now = self.refresh();
        let tenant = self.book.find(name).ok_or_else(|| not_found(name))?;
        Ok(self.tenant_view(tenant, now))
    }

    pub(crate) fn tenants(&mut self) -> Vec<TenantView> {
        self.refresh();
        self.tenant_views()
    }

    fn tenant_views(&self) -> Vec<TenantView> {
        let now = self.clock.now();
        self.book
            .tenants()
            .map(|tenant| self.tenant_view(tenant, now))
            .collect()
    }

    fn tenant_view(&self, tenant: &Tenant, now: UnixMs) -> TenantView {
        let mut view = tenant_view(tenant, now, self.book.hit_cost());
        view.flash_failed = view.flash_grant_bytes.map(|_| self.book.pool().has_flash_failed);
        if let Some(metered) = &self.metered {
            let seen = tenant.seen.as_deref();
            let cpu_ns = seen.map_or(0, |seen| seen.counters.cpu_ns);
            view.cpu_seconds_total = Some(cpu_ns as f64 / 1e9);
            view.cores = Some(seen.map_or(0.0, |seen| seen.cpu.per_second(now) / 1e9));
            view.vcpus = view.cores;
            if let Some((seconds, vcpus)) = metered.modelled(tenant.record.id, now) {
                (view.cpu_model_seconds_total, view.vcpus) = (Some(seconds), Some(vcpus));
            }
            let per_second = seen.map_or(0.0, |seen| seen.network.per_second(now));
            view.network_bytes_per_second = Some(per_second);
            view.network_occupancy = occupancy(per_second, view.settings.limits.bytes_per_second);
            view.memory_byte_seconds_total =
                Some(metered.byte_seconds(tenant.record.id, self.clock.wall()).unwrap_or(0));
            let standing = metered.standing(tenant.record.id, self.clock.wall());
            view.spending = standing.map(|(standing, currency)| spending_view(tenant, standing, currency));
            view.operations_total = operations_view(seen.map_or(&[], |seen| &seen.commands));
        }
        view
    }

    fn existing(&self, name: &str) -> Result<&Tenant, ControlError> {
        let tenant = self.book.find(name).filter(|tenant| !tenant.is_removing);
        Ok(tenant.ok_or_else(|| not_found(name))?)
    }

    fn update(&mut self, mut record: TenantRecord) -> Result<(), ControlError> {
        record.version += 1;
        self.state.update_tenant(&record)?;
        self.book.update(record);
        self.floors_bytes = None;
        if let Some(metered) = &mut self.metered {
            metered.judge_soon();
        }
        self.judge_spending();
        self.publish();
        Ok(())
    }

    fn check_settings(&self, id: Option<TenantId>, settings: &TenantSettings) -> Result<(), Refusal> {
        check_tenant(settings)?;
        let prices = self
            .metered
            .as_ref()
            .and_then(|metered| metered.prices(self.clock.wall()));
        check_spending(settings, prices)?;
        if let Some(floor) = settings.flash.floor_bytes {
            check_flash_floors(self.flash_floors(id).chain([floor]), self.config.flash_bytes)?;
        }
        let Some(floor) = settings.floor_bytes else {
            return Ok(());
        };
        let floors = self.floors(id).chain([floor]);
        check_floors(floors, self.reach_bytes(), "goals.floor_bytes")
    }

    /// A secret, of this text or a new one, and what is stored of it.
    fn new_secret(
        &self,
        name: SecretName,
        permissions: Permissions,
        text: Option<SecretText>,
    ) -> Result<(SecretText, StoredSecret), ControlError> {
        let secret = text.map_or_else(SecretText::generate, Ok)?;
        let stored = StoredSecret {
            name,
            hash: secret.hash(),
            permissions,
            created_at: self.clock.wall(),
        };
        Ok((secret, stored))
    }
}

fn not_found(name: &str) -> Refusal {
    let name: String = name.chars().take(80).collect();
    Refusal::new(RefusalKind::NotFound, format!("there is no tenant `{name}`"))
}

#[cfg(test)]
mod tests;
