//! The pools of functions as the gateway's place for large objects.
//!
//! A tenant's objects are in its own pool, if it has one, else in the one that tenants share.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tidemark_admin::Report;
use tidemark_functions::Code;
use tidemark_functions::accounts::Payers;
use tidemark_functions::codec::Parity;
use tidemark_functions::place::Place;
use tidemark_functions::proxy::Functions;
use tidemark_gateway::access::Placing;
use tidemark_gateway::large::{Reading, ReadingChunks};
use tidemark_gateway::memory::Bill;
use tidemark_gateway::{LargePlace, TenantMemory, Tenants, Totals};
use tidemark_types::TenantName;
use tokio::sync::Semaphore;

use super::functions_report::report_of;
use super::least::{LOOK_SECONDS, LeastBytes};
use crate::failure::Failure;
use crate::functions_file::FunctionsFile;
use crate::options::{ServeOptions, Written};

/// Whether the file that describes the pool can be followed. A mistake is named with the place where the file was named.
pub(super) fn check(options: &ServeOptions, written: &Written) -> Result<(), Failure> {
    let file = options.s3.as_ref().and_then(|s3| s3.functions.as_ref());
    let Some(file) = file else { return Ok(()) };
    FunctionsFile::read(file).map(drop).map_err(|problem| {
        let place = written.place("functions").unwrap_or_else(|| file.display().to_string());
        Failure::usage(format!("{place}: {problem}"))
    })
}

/// The report for the admin API, once the place is there.
pub(super) fn report(place: &Arc<OnceLock<Arc<FunctionPlace>>>) -> Report {
    let place = Arc::clone(place);
    Report::new(move || place.get().map(|place| place.report()))
}

/// The same of the S3 address.
pub(super) fn gateway_report(count: &Arc<OnceLock<Box<dyn Fn() -> Totals + Send + Sync>>>) -> Report {
    let count = Arc::clone(count);
    Report::new(move || {
        let Totals {
            requests,
            memory_bytes,
            large_bytes,
            origin_bytes,
            origin_questions,
            written_bytes,
            relayed_requests,
            relayed_bytes,
            bypassed_requests,
            gateways,
            known_objects,
            pending_blocks,
        } = count.get()?();
        Some(json!({
            "totals": {
                "requests": requests,
                "memory_bytes": memory_bytes,
                "functions_bytes": large_bytes,
                "origin_bytes": origin_bytes,
                "origin_questions": origin_questions,
                "written_bytes": written_bytes,
                "relayed_requests": relayed_requests,
                "relayed_bytes": relayed_bytes,
                "bypassed_requests": bypassed_requests,
            },
            "now": {"gateways": gateways, "known_objects": known_objects, "pending_blocks": pending_blocks},
        }))
    })
}

/// A pool, and the sizes from which on objects are kept there.
#[derive(Clone)]
pub(super) struct PlacePool {
    /// The tenant whose own it is.
    pub(super) tenant: Option<TenantName>,
    pub(super) functions: Functions,
    pub(super) least: LeastBytes,
}

/// See the module.
pub(crate) struct FunctionPlace {
    /// The shared one is the first.
    pools: Arc<[PlacePool]>,
    /// Numbers of pools by the tenants whose own they are.
    own: HashMap<Box<str>, usize>,
    bills: Arc<Bills>,
    writes: Arc<Semaphore>,
    settling: tokio::task::JoinHandle<()>,
}

impl Drop for FunctionPlace {
    fn drop(&mut self) {
        self.settling.abort();
    }
}

/// How often tenants are charged: as often as the control plane takes a snapshot of their counters.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Stripes that wait to be stored: 256 MiB. More are not kept, and are read from the origin when they are wanted.
const WRITES_MAX: usize = 64;

/// How tenants are charged, by their numbers. One for each tenant that ever used functions in this process.
type Bills = Mutex<HashMap<u32, Bill>>;

fn locked(bills: &Bills) -> MutexGuard<'_, HashMap<u32, Bill>> {
    bills.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Charges tenants for what functions cost.
async fn settle(pools: Arc<[PlacePool]>, bills: Arc<Bills>, tenants: Arc<dyn Tenants>) {
    let mut timer = tokio::time::interval(SETTLE_EVERY);
    for second in 0_u64.. {
        timer.tick().await;
        for pool in pools.iter() {
            if second.is_multiple_of(LOOK_SECONDS) {
                pool.least.learn(&pool.functions.accounts());
            }
            let charges = pool.functions.settle(payers(pool, &bills, tenants.as_ref()));
            for (account, amount) in charges {
                let bill = locked(&bills).get(&account).cloned();
                if let Some(bill) = bill {
                    bill((amount.invocations, amount.mib_ms));
                }
            }
        }
    }
}

/// A tenant pays for its own functions from its creation on, also before it is heard of here.
fn payers(pool: &PlacePool, bills: &Bills, tenants: &dyn Tenants) -> Payers {
    let Some(name) = &pool.tenant else {
        return Payers::Users;
    };
    match tenants.tenant(name.as_str()) {
        Some(tenant) => Payers::One(account_of(bills, tenant.as_ref())),
        None => Payers::Nobody,
    }
}

/// Under which number a tenant is charged.
fn account_of(bills: &Bills, payer: &dyn TenantMemory) -> u32 {
    let account = payer.id().0;
    locked(bills).entry(account).or_insert_with(|| payer.bill());
    account
}

impl FunctionPlace {
    /// Starts the proxy on the runtime that this is called in.
    pub(crate) fn start(file: &FunctionsFile, folder: &Path, tenants: Arc<dyn Tenants>) -> Result<Self, String> {
        let api = file.api().map_err(|error| error.to_string())?;
        let functions = Functions::start(file.config(folder), Arc::new(api)).map_err(|error| error.to_string())?;
        let pools = file.pools.iter().zip(functions).map(|(pool, functions)| {
            let (listen, tenant) = (functions.address(), pool.tenant.as_ref().map(TenantName::as_str));
            tracing::info!(%listen, functions = pool.count, tenant, "functions connect");
            PlacePool {
                tenant: pool.tenant.clone(),
                functions,
                least: LeastBytes::of(file, pool),
            }
        });
        let pools: Arc<[PlacePool]> = pools.collect();
        let own = pools.iter().enumerate();
        let own = own.filter_map(|(number, pool)| Some((Box::from(pool.tenant.as_ref()?.as_str()), number)));
        let bills: Arc<Bills> = Arc::default();
        let settling = tokio::spawn(settle(Arc::clone(&pools), Arc::clone(&bills), tenants));
        Ok(Self {
            own: own.collect(),
            pools,
            bills,
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            settling,
        })
    }

    /// The pool of a tenant.
    fn pool(&self, payer: &dyn TenantMemory) -> &PlacePool {
        &self.pools[self.own.get(payer.name()).copied().unwrap_or_default()]
    }

    /// Its functions, and the number under which it is charged.
    fn of(&self, payer: &dyn TenantMemory) -> (Functions, u32) {
        (self.pool(payer).functions.clone(), account_of(&self.bills, payer))
    }

    /// The report of the admin API.
    fn report(&self) -> Value {
        report_of(&self.pools)
    }
}

impl LargePlace for FunctionPlace {
    fn cheapest(&self, payer: &dyn TenantMemory, size_bytes: u64) -> Placing {
        match self.pool(payer).least.place(payer.id().0, size_bytes) {
            Place::Memory => Placing::Memory,
            Place::Functions => Placing::Functions,
            Place::Origin => Placing::Origin,
        }
    }

    fn read(&self, payer: &dyn TenantMemory, content: [u8; 16], stripe: u32, range: Range<usize>) -> Reading {
        let (functions, account) = self.of(payer);
        Box::pin(async move {
            let bytes = range.len() as u64;
            let read = functions.get(content, stripe, range).await;
            if read.is_some() {
                functions.used_by(account, &content, bytes);
            }
            read
        })
    }

    fn read_chunks(
        &self,
        payer: &dyn TenantMemory,
        content: [u8; 16],
        stripe: u32,
        range: Range<usize>,
    ) -> ReadingChunks {
        let (functions, account) = self.of(payer);
        Box::pin(async move {
            let bytes = range.len() as u64;
            let read = functions.get_chunks(content, stripe, range).await?;
            functions.used_by(account, &content, bytes);
            Some(read)
        })
    }

    fn has(&self, payer: &dyn TenantMemory, content: &[u8; 16], stripe: u32) -> bool {
        self.pool(payer).functions.has(content, stripe)
    }

    fn code(&self, payer: &dyn TenantMemory, object_bytes: u64) -> Option<Code> {
        self.pool(payer).functions.code(object_bytes)
    }

    fn write(
        &self,
        payer: &dyn TenantMemory,
        content: [u8; 16],
        object_bytes: u64,
        stripe: u32,
        bytes: Bytes,
        parity: Option<Parity>,
    ) -> bool {
        let (functions, account) = self.of(payer);
        let Ok(permit) = Arc::clone(&self.writes).try_acquire_owned() else {
            return false;
        };
        tokio::spawn(async move {
            let moved = bytes.len() as u64;
            let put = functions.put_coded(content, object_bytes, stripe, bytes, parity);
            if put.await {
                functions.used_by(account, &content, moved);
            }
            drop(permit);
        });
        true
    }

    // All pools have the same names: a version is current for all tenants.
    fn name(&self, name: [u8; 16], content: [u8; 16]) {
        self.pools[0].functions.name(name, content);
    }

    fn named(&self, name: &[u8; 16]) -> Option<[u8; 16]> {
        self.pools[0].functions.named(name)
    }

    fn forget(&self, content: &[u8; 16]) {
        self.pools.iter().for_each(|pool| pool.functions.forget(content));
    }
}
