//! The door of other threads to the control plane: a handle that sends commands.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use serde::Serialize;
use tidemark_meter::price::Tariff;
use tidemark_types::Clock;

use crate::answer::{Answer, Reply, answer};
use crate::controller::{Controller, LeaseReading};
use crate::error::ControlError;
use crate::mailbox::{Command, Message};
use crate::secret::{Rotation, SecretText};
use crate::settings::{Idling, ServerPatch, SettingsPatch};
use crate::shared::Shared;
use crate::sizing::ResizeStrategy;
use crate::spending::Spent;
use crate::utility::UtilityFunction;
use crate::view::{CurveView, MoveView, NodeView, PreviewView, ServerView, TenantView, TopView};

/// A round that is this much older than it should be means that the control thread hangs.
const STALE_AFTER_ROUNDS: u32 = 3;
/// With short rounds, a thread of low priority on a busy machine still deserves this long.
const STALE_AFTER_AT_LEAST: Duration = Duration::from_secs(3);

/// Sends commands to the control thread. Cloning it is cheap.
#[derive(Clone)]
pub struct ControlHandle {
    pub(crate) sender: SyncSender<Message>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Whether the server accepts work, and whether its control plane still plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// False only while draining.
    pub ready: bool,
    /// `ok`, or `stale` if the last round is too long ago or there will be none any more. The data plane then serves on
    /// its last plan.
    pub control: &'static str,
    /// Age of the last round.
    pub age_seconds: u64,
}

impl ControlHandle {
    /// Creates a tenant. The secret is shown this once.
    pub fn create_tenant(&self, name: impl Into<String>, patch: SettingsPatch) -> Answer<SecretText> {
        let name = name.into();
        self.ask(move |controller| controller.create_tenant(&name, patch))
    }

    /// Every tenant by name.
    pub fn tenants(&self) -> Answer<Vec<TenantView>> {
        self.ask(|controller| Ok(controller.tenants()))
    }

    /// One tenant.
    pub fn tenant(&self, name: impl Into<String>) -> Answer<TenantView> {
        let name = name.into();
        self.ask(move |controller| controller.tenant(&name))
    }

    /// The moves of a tenant's grant, newest first, as many as are kept.
    pub fn moves(&self, name: impl Into<String>) -> Answer<Vec<MoveView>> {
        let name = name.into();
        self.ask(move |controller| controller.moves(&name))
    }

    /// The heaviest parts of a tenant's load: keys, prefixes of keys, and commands.
    pub fn top(&self, name: impl Into<String>) -> Answer<TopView> {
        let name = name.into();
        self.ask(move |controller| controller.top(&name))
    }

    /// A tenant's miss-ratio curve as far as it is known.
    pub fn curve(&self, name: impl Into<String>) -> Answer<CurveView> {
        let name = name.into();
        self.ask(move |controller| controller.curve(&name))
    }

    /// Changes a tenant's settings.
    pub fn set_tenant(&self, name: impl Into<String>, patch: SettingsPatch) -> Answer<TenantView> {
        let name = name.into();
        self.ask(move |controller| controller.set_tenant(&name, patch))
    }

    /// Everybody's memory if a tenant's settings were changed like this. Nothing is changed.
    pub fn preview(&self, name: impl Into<String>, patch: SettingsPatch) -> Answer<PreviewView> {
        let name = name.into();
        self.ask(move |controller| controller.preview(&name, patch))
    }

    /// Has a program's strategy decide how much memory a tenant wants; `None`: the built-in one again.
    pub fn set_sizing(&self, name: impl Into<String>, strategy: Option<Box<dyn ResizeStrategy>>) -> Answer<()> {
        let name = name.into();
        self.ask(move |controller| controller.set_sizing(&name, strategy))
    }

    /// Has a program's function say what hits are worth to a tenant; `None`: the utility of its settings again.
    pub fn set_utility(&self, name: impl Into<String>, utility: Option<Box<dyn UtilityFunction>>) -> Answer<()> {
        let name = name.into();
        self.ask(move |controller| controller.set_utility(&name, utility))
    }

    /// Removes a tenant. The answer comes when its memory is back, or after ten seconds without it.
    pub fn remove_tenant(&self, name: impl Into<String>) -> Answer<()> {
        let name = name.into();
        self.send(|reply| Box::new(move |controller| controller.remove_tenant(name, reply)))
    }

    /// Creates a tenant with a secret that its owner has made.
    pub fn create_tenant_with(
        &self,
        name: impl Into<String>,
        patch: SettingsPatch,
        secret: SecretText,
    ) -> Answer<SecretText> {
        let name = name.into();
        self.ask(move |controller| controller.create_tenant_with(&name, patch, Some(secret)))
    }

    /// Changes a tenant's secrets. A new secret is shown this once.
    pub fn rotate(&self, name: impl Into<String>, rotation: Rotation) -> Answer<Option<SecretText>> {
        let name = name.into();
        self.ask(move |controller| controller.rotate(&name, rotation))
    }

    /// The server's state.
    pub fn server(&self) -> Answer<ServerView> {
        self.ask(|controller| Ok(controller.server()))
    }

    /// The server's state and every tenant by name, both as of one round: the two agree.
    pub fn overview(&self) -> Answer<(ServerView, Vec<TenantView>)> {
        self.ask(|controller| Ok(controller.overview()))
    }

    /// Changes the server's settings until they are changed again, over restarts.
    pub fn set_server(&self, patch: ServerPatch) -> Answer<ServerView> {
        self.ask(move |controller| controller.set_server(patch))
    }

    /// Tells of a pool size from a changed configuration; it replaces what [`Self::set_server`] set.
    pub fn configure_pool(&self, pool_bytes: u64) -> Answer<()> {
        self.ask(move |controller| controller.configure_pool(pool_bytes))
    }

    /// Tells how much memory others on this machine do not use, if that is known. The pool takes no more of the size that it
    /// is set to, but as much as all floors need.
    pub fn follow_unused(&self, unused_bytes: Option<u64>) -> Answer<()> {
        self.ask(move |controller| {
            controller.follow_unused(unused_bytes);
            Ok(())
        })
    }

    /// Tells how tenants come and go from now on, from a changed configuration.
    pub fn configure_idling(&self, idling: Idling) -> Answer<()> {
        self.ask(move |controller| controller.configure_idling(idling))
    }

    /// Tells other prices from a changed configuration. The use until now is priced by the ones before.
    pub fn configure_prices(&self, tariff: Option<Arc<Tariff>>) -> Answer<()> {
        self.ask(move |controller| {
            controller.configure_prices(tariff);
            Ok(())
        })
    }

    /// Tells what tenants spent before this process began. Until then, spending limits are not judged.
    pub fn adopt_spent(&self, spent: Spent) -> Answer<()> {
        self.ask(move |controller| {
            controller.adopt_spent(spent);
            Ok(())
        })
    }

    /// How the pool stands towards the lease on the node's memory.
    pub(crate) fn lease_reading(&self) -> Answer<LeaseReading> {
        self.ask(|controller| Ok(controller.lease_reading()))
    }

    /// Makes the pool so large, as the lease allows or demands.
    pub(crate) fn follow_lease(&self, pool_bytes: u64) -> Answer<()> {
        self.ask(move |controller| {
            controller.follow_lease(pool_bytes);
            Ok(())
        })
    }

    /// Tells how the node stands, and the most that the pool could come to.
    pub(crate) fn note_node(&self, view: NodeView, reach_bytes: u64) -> Answer<()> {
        self.ask(move |controller| {
            controller.note_node(view, reach_bytes);
            Ok(())
        })
    }

    /// Says from now on that the server is not ready, so that load balancers turn away before it stops.
    pub fn set_draining(&self) {
        self.shared.set_draining();
    }

    /// Whether the server is ready. Needs no answer of the control thread, which may hang.
    pub fn readiness(&self) -> Readiness {
        let age = self.clock.now().since(self.shared.last_round());
        let period = self.shared.period();
        let is_late = age > (period * STALE_AFTER_ROUNDS).max(STALE_AFTER_AT_LEAST);
        let is_stale = is_late || self.shared.has_ended();
        Readiness {
            ready: !self.shared.is_draining(),
            control: if is_stale { "stale" } else { "ok" },
            age_seconds: age.as_secs(),
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Controller) -> Result<T, ControlError> + Send + 'static,
    ) -> Answer<T> {
        self.send(|reply| Box::new(move |controller| reply.send(work(controller))))
    }

    fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Answer<T> {
        let (reply, result) = answer();
        match self.sender.try_send(Message::Command(command(reply))) {
            // Disconnected: the reply was dropped with the command, and the answer says so.
            Ok(()) | Err(TrySendError::Disconnected(_)) => result,
            Err(TrySendError::Full(_)) => Answer::busy(),
        }
    }
}
