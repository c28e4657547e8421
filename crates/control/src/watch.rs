//! The receivers of the control plane's events, as they happen.

use std::fmt;
use std::sync::Arc;

use tidemark_types::{Fault, TenantName};

use crate::view::MoveView;

/// The receiver of events. It is called on the control plane's thread, after the change is in force. It must not panic,
/// and not wait for the control plane.
pub trait Watcher: Send + Sync {
    /// A tenant has another grant.
    fn moved(&self, tenant: &TenantName, change: &MoveView);
    /// A custom part of a tenant was replaced.
    fn replaced(&self, tenant: &TenantName, fault: &Fault);
}

/// A [`Watcher`], if there is one.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<dyn Watcher>>);

impl Watch {
    /// A watch of this watcher.
    pub fn by(watcher: Arc<dyn Watcher>) -> Self {
        Self(Some(watcher))
    }

    /// Has it told, if it is there.
    pub(crate) fn tell(&self, tell: impl FnOnce(&dyn Watcher)) {
        if let Some(watcher) = &self.0 {
            tell(&**watcher);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", self.0.is_some())
    }
}
