//! Who is told what the control plane does, as it does it.

use std::fmt;
use std::sync::Arc;

use tidemark_types::{Fault, TenantName};

use crate::view::MoveView;

/// Is told. Called on the control plane's thread, after what it is told of is in force; it must not panic, and not wait for
/// the control plane.
pub trait Watcher: Send + Sync {
    /// A tenant has another grant.
    fn moved(&self, tenant: &TenantName, change: &MoveView);
    /// What a program supplied for a tenant was replaced.
    fn replaced(&self, tenant: &TenantName, fault: &Fault);
}

/// A [`Watcher`], if there is one.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<dyn Watcher>>);

impl Watch {
    /// By this one.
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
