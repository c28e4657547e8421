//! A state that ends with the process: for programs that keep their tenants' settings themselves, and for virtual time.

use std::collections::BTreeMap;

use tidemark_types::{TenantId, TenantName};

use super::{ServerSettings, State, StoredSecret, TenantRecord};
use crate::error::ControlError;
use crate::settings::TenantSettings;

/// See the module. It begins without tenants, and never fails.
#[derive(Debug, Default)]
pub struct MemoryState {
    tenants: BTreeMap<TenantId, TenantRecord>,
    /// The number that was given last.
    last_id: u32,
    server: ServerSettings,
}

impl State for MemoryState {
    fn tenants(&self) -> Result<Vec<TenantRecord>, ControlError> {
        Ok(self.tenants.values().cloned().collect())
    }

    fn server(&self) -> Result<ServerSettings, ControlError> {
        Ok(self.server)
    }

    fn add_tenant(
        &mut self,
        name: &TenantName,
        settings: TenantSettings,
        secret: StoredSecret,
    ) -> Result<TenantRecord, ControlError> {
        self.last_id += 1;
        let record = TenantRecord::new(TenantId(self.last_id), name, settings, secret);
        self.tenants.insert(record.id, record.clone());
        Ok(record)
    }

    fn update_tenant(&mut self, tenant: &TenantRecord) -> Result<(), ControlError> {
        if let Some(stored) = self.tenants.get_mut(&tenant.id) {
            // The remembered grant is nobody's setting.
            let remembered_grant_bytes = stored.remembered_grant_bytes;
            *stored = TenantRecord {
                remembered_grant_bytes,
                ..tenant.clone()
            };
        }
        Ok(())
    }

    fn remember(&mut self, grants: &[(TenantId, Option<u64>)]) -> Result<(), ControlError> {
        for (id, bytes) in grants {
            if let Some(stored) = self.tenants.get_mut(id) {
                stored.remembered_grant_bytes = *bytes;
            }
        }
        Ok(())
    }

    fn remove_tenant(&mut self, id: TenantId) -> Result<(), ControlError> {
        self.tenants.remove(&id);
        Ok(())
    }

    fn set_server(&mut self, settings: &ServerSettings) -> Result<(), ControlError> {
        self.server = *settings;
        Ok(())
    }
}
