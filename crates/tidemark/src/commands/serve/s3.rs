//! The S3 address, over the server's tenants.

use std::path::Path;
use std::sync::Arc;

use tidemark_gateway::config::credentials_of;
use tidemark_gateway::{Config, Gateway, StartError, StoreMemory, TenantMemory, Tenants};
use tidemark_server::Neighbour;

use crate::options::S3Options;

/// The server's tenants, as the gateway asks for them.
struct ServerTenants(Neighbour);

impl Tenants for ServerTenants {
    fn tenant(&self, name: &str) -> Option<Arc<dyn TenantMemory>> {
        let tenant = self.0.tenant(name)?;
        let (touched, moved) = (tenant.clone(), tenant.clone());
        Some(Arc::new(StoreMemory::new(
            tenant.id(),
            Arc::clone(tenant.store()),
            Arc::new(move |()| touched.touch()),
            Arc::new(move |(in_bytes, out_bytes)| moved.count_network(in_bytes, out_bytes)),
        )))
    }
}

/// Starts it.
pub(super) fn start(options: &S3Options, folder: &Path, tenants: Neighbour) -> Result<Gateway, StartError> {
    let credentials = credentials_of(|name| std::env::var(name).ok());
    if credentials.is_none() {
        tracing::warn!(
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set: requests to the origin are not signed"
        );
    }
    let config = Config {
        address: options.address,
        origins: options.origins.clone(),
        credentials,
        workers: options.workers,
        read_only: options.read_only,
        folder: folder.into(),
    };
    Gateway::start(&config, Arc::new(ServerTenants(tenants)))
}
