//! The S3 address, over the server's tenants.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tidemark_admin::Beside;
use tidemark_gateway::coherent::Coherent;
use tidemark_gateway::config::credentials_of;
use tidemark_gateway::{Altered, Config, Gateway, LargePlace, StartError, StoreMemory, TenantMemory, Tenants};
use tidemark_server::Neighbour;
use tidemark_types::TenantId;
use tokio::runtime::Handle;

use super::functions::FunctionPlace;
use crate::functions_file::FunctionsFile;
use crate::options::S3Options;

/// The server's tenants, as the gateway asks for them.
struct ServerTenants(Neighbour);

impl Tenants for ServerTenants {
    fn tenant(&self, name: &str) -> Option<Arc<dyn TenantMemory>> {
        Some(Arc::new(memory(&self.0, name)?))
    }
}

/// The memory of the server's tenant of that name.
pub(super) fn memory(tenants: &Neighbour, name: &str) -> Option<StoreMemory> {
    let tenant = tenants.tenant(name)?;
    let (touched, moved, asked) = (tenant.clone(), tenant.clone(), tenant.clone());
    let (all, same, id) = (tenants.clone(), name.to_owned(), tenant.id());
    Some(StoreMemory::new(
        (id, name),
        Arc::clone(tenant.store()),
        Arc::new(move |()| touched.touch()),
        Arc::new(move |(in_bytes, out_bytes)| moved.count_network(in_bytes, out_bytes)),
        Arc::new(move |(command, outcome)| asked.count_command("s3", command, outcome)),
        // By its name: a bill that is still to come does not keep a tenant that is removed.
        Arc::new(move |(invocations, mib_ms)| {
            if let Some(tenant) = all.tenant(&same).filter(|tenant| tenant.id() == id) {
                tenant.count_functions(invocations, mib_ms);
            }
        }),
    ))
}

/// The number of an application by its name.
pub(in crate::commands) type NumberOf = Arc<dyn Fn(&str) -> Option<TenantId> + Send + Sync>;

/// The parts that an agent adds to a server.
#[derive(Clone)]
pub(in crate::commands) struct Agency {
    /// Reads and writes of objects.
    pub(in crate::commands) objects: Arc<dyn Coherent>,
    /// Its threads, on which the S3 address runs as well: an answer between them then wakes no other thread.
    pub(in crate::commands) threads: Handle,
    /// The number that an application has on all nodes.
    pub(in crate::commands) number: NumberOf,
    /// Its paths of the admin API.
    pub(in crate::commands) beside: Beside,
    /// The address at which other agents reach it.
    pub(in crate::commands) peer: SocketAddr,
}

/// Tenants of this node's server, with the numbers that they have on all nodes.
struct SharedTenants(ServerTenants, Agency);

impl Tenants for SharedTenants {
    fn tenant(&self, name: &str) -> Option<Arc<dyn TenantMemory>> {
        let number = (self.1.number)(name)?;
        let memory = self.0.tenant(name)?;
        Some(Arc::new(Altered::new(memory).with_id(number)))
    }
}

pub(super) fn start(
    options: &S3Options,
    folder: &Path,
    tenants: Neighbour,
    agency: Option<&Agency>,
    place: &OnceLock<Arc<FunctionPlace>>,
) -> Result<Gateway, StartError> {
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
        peers: options.peers.clone(),
    };
    let tenants: Arc<dyn Tenants> = match agency {
        Some(agency) => Arc::new(SharedTenants(ServerTenants(tenants), agency.clone())),
        None => Arc::new(ServerTenants(tenants)),
    };
    let large = || -> Result<Option<Arc<dyn LargePlace>>, String> {
        let Some(file) = &options.functions else {
            return Ok(None);
        };
        let read = FunctionsFile::read(file);
        let read = read.map_err(|problem| format!("{}: {problem}", file.display()))?;
        let started = Arc::new(FunctionPlace::start(&read, folder, Arc::clone(&tenants))?);
        Ok(Some(Arc::clone(place.get_or_init(|| started)) as _))
    };
    let coherent = agency.map(|agency| Arc::clone(&agency.objects));
    let threads = agency.map(|agency| agency.threads.clone());
    Gateway::start_with(&config, Arc::clone(&tenants), coherent, threads, large)
}
