//! The code that the program supplied for a tenant, and its outcome.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidemark_store::{Hooks, Left, Listener};
use tidemark_types::{Cause, Fault, Part, TenantName};

use crate::admission::{Candidate, Gate};
use crate::events::{Hook, LeftItem};

/// Faults kept of a tenant, the newest: a program that supplies the same code again and again learns no more from more of
/// them.
const FAULTS_MAX: usize = 16;

/// See the module.
pub(crate) struct Program {
    tenant: TenantName,
    hook: Option<Arc<Hook>>,
    /// Whether the gate is anything but open: every write asks.
    is_gated: AtomicBool,
    gate: RwLock<Gate>,
    not_admitted: AtomicU64,
    faults: Mutex<VecDeque<Fault>>,
    faults_total: AtomicU64,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("tenant", &self.tenant)
            .field("faults_total", &self.faults_total)
            .finish_non_exhaustive()
    }
}

impl Program {
    pub(crate) fn new(tenant: TenantName, hook: Option<Arc<Hook>>) -> Self {
        Self {
            tenant,
            hook,
            is_gated: AtomicBool::new(false),
            gate: RwLock::new(Gate::Open),
            not_admitted: AtomicU64::new(0),
            faults: Mutex::default(),
            faults_total: AtomicU64::new(0),
        }
    }

    /// The hooks of the tenant's store.
    pub(crate) fn hooks(self: &Arc<Self>) -> Hooks {
        let wants_items = self.hook.as_ref().is_some_and(|hook| hook.wants_items());
        let program = Arc::clone(self);
        Hooks {
            below: None,
            left: wants_items.then(|| Arc::clone(self) as _),
            replaced: Some(Arc::new(move |fault| program.report(&fault))),
        }
    }

    /// Notes that something was replaced, and tells of it.
    pub(crate) fn report(&self, fault: &Fault) {
        self.faults_total.fetch_add(1, Ordering::Relaxed);
        let mut faults = self.faults.lock();
        if faults.len() == FAULTS_MAX {
            faults.pop_front();
        }
        faults.push_back(fault.clone());
        drop(faults);
        self.tell(|hook, tenant| hook.tell(|events| events.replaced(tenant, fault)));
    }

    /// The newest faults, oldest first.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.faults.lock().iter().cloned().collect()
    }

    pub(crate) fn faults_total(&self) -> u64 {
        self.faults_total.load(Ordering::Relaxed)
    }

    pub(crate) fn not_admitted(&self) -> u64 {
        self.not_admitted.load(Ordering::Relaxed)
    }

    /// Whether writes are to ask [`Self::admits`].
    #[inline]
    pub(crate) fn is_gated(&self) -> bool {
        self.is_gated.load(Ordering::Relaxed)
    }

    /// Has another gate decide. `adopt` is told whether it is anything but open, before another change.
    pub(crate) fn set_gate(&self, gate: Gate, adopt: impl FnOnce(bool)) {
        let before = {
            let mut current = self.gate.write();
            self.adopt(&gate, adopt);
            std::mem::replace(&mut *current, gate)
        };
        // Not under the lock: its end may be the program's code.
        drop(before);
    }

    /// Whether an item is let in. `remember` remembers its key, and says whether it could. Code that fails lets
    /// everything in from then on, and `adopt` is told of it.
    pub(crate) fn admits(
        &self,
        candidate: &Candidate<'_>,
        remember: impl FnOnce() -> bool,
        adopt: impl FnOnce(bool),
    ) -> bool {
        // This is not under the lock: the called code may take its time.
        let gate = self.gate.read().clone();
        match gate.admits(candidate, remember) {
            Ok(true) => true,
            Ok(false) => {
                self.not_admitted.fetch_add(1, Ordering::Relaxed);
                false
            }
            Err(cause) => {
                self.open_instead_of(&gate, cause, adopt);
                true
            }
        }
    }

    /// Opens a gate that failed, unless another one has taken its place.
    fn open_instead_of(&self, failed: &Gate, cause: Cause, adopt: impl FnOnce(bool)) {
        let mut current = self.gate.write();
        let is_same = matches!((&*current, failed), (Gate::Custom(a), Gate::Custom(b)) if Arc::ptr_eq(a, b));
        if is_same {
            self.adopt(&Gate::Open, adopt);
            *current = Gate::Open;
        }
        drop(current);
        if is_same {
            let part = Part::Admission;
            self.report(&Fault { part, cause });
        }
    }

    fn adopt(&self, gate: &Gate, adopt: impl FnOnce(bool)) {
        let is_gated = !matches!(gate, Gate::Open);
        adopt(is_gated);
        self.is_gated.store(is_gated, Ordering::Relaxed);
    }

    fn tell(&self, tell: impl FnOnce(&Hook, &str)) {
        if let Some(hook) = &self.hook {
            tell(hook, self.tenant.as_str());
        }
    }
}

impl Listener for Program {
    fn left(&self, key: &[u8], value_bytes: usize, why: Left) {
        let item = LeftItem { key, value_bytes, why };
        self.tell(|hook, tenant| hook.tell(|events| events.left(tenant, &item)));
    }

    fn emptied(&self, items: u64, why: Left) {
        self.tell(|hook, tenant| hook.tell(|events| events.emptied(tenant, items, why)));
    }
}
