//! The pool of functions as the gateway's place for large objects.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tidemark_admin::Report;
use tidemark_functions::Code;
use tidemark_functions::codec::Parity;
use tidemark_functions::cost::Prices;
use tidemark_functions::proxy::{FunctionState, Functions};
use tidemark_gateway::large::{Reading, ReadingChunks};
use tidemark_gateway::memory::Bill;
use tidemark_gateway::{LargePlace, TenantMemory, Totals};
use tokio::sync::Semaphore;

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

/// See the module.
pub(crate) struct FunctionPlace {
    functions: Functions,
    least: LeastBytes,
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
async fn settle(functions: Functions, bills: Arc<Bills>, least: LeastBytes) {
    let mut timer = tokio::time::interval(SETTLE_EVERY);
    for second in 0_u64.. {
        timer.tick().await;
        if second.is_multiple_of(LOOK_SECONDS) {
            least.learn(&functions.accounts());
        }
        for (account, amount) in functions.settle() {
            let bill = locked(&bills).get(&account).cloned();
            if let Some(bill) = bill {
                bill((amount.invocations, amount.mib_ms));
            }
        }
    }
}

impl FunctionPlace {
    /// Starts the proxy on the runtime that this is called in.
    pub(crate) fn start(file: &FunctionsFile, folder: &Path) -> Result<Self, String> {
        let api = file.api().map_err(|error| error.to_string())?;
        let functions = Functions::start(file.config(folder), Arc::new(api)).map_err(|error| error.to_string())?;
        tracing::info!(listen = %functions.address(), functions = file.count, "functions connect");
        let bills: Arc<Bills> = Arc::default();
        let least = LeastBytes::of(file);
        let settling = tokio::spawn(settle(functions.clone(), Arc::clone(&bills), least.clone()));
        Ok(Self {
            functions,
            least,
            bills,
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            settling,
        })
    }

    /// Under which number a tenant is charged.
    fn account(&self, payer: &dyn TenantMemory) -> u32 {
        let account = payer.id().0;
        locked(&self.bills).entry(account).or_insert_with(|| payer.bill());
        account
    }

    /// The report of the admin API: totals, the present state, and each function.
    fn report(&self) -> Value {
        let status = self.functions.status();
        let [serving, warm, backup] = status.totals.spent(status.memory_bytes);
        let prices = Prices::TODAY;
        let function = |(name, state, chunks, bytes): &(String, FunctionState, usize, u64)| {
            json!({
                "name": name,
                "run": format!("{:?}", state.run).to_lowercase(),
                "check": format!("{:?}", state.check).to_lowercase(),
                "chunks": chunks,
                "chunk_bytes": bytes,
            })
        };
        json!({
            "totals": status.totals,
            "now": {
                "functions": status.functions,
                "functions_in_use": status.functions_in_use,
                "memory_bytes": status.memory_bytes,
                "used_bytes": status.used_bytes,
                "room_bytes": status.room_bytes,
                "objects": status.objects,
                "availability_ratio": status.totals.availability(),
                "modelled_availability_ratio": status.expected.map(|expected| expected.availability),
                "modelled_loss_ratio": status.expected.map(|expected| expected.loss),
                "modelled_loss_approximate_ratio": status.expected.map(|expected| expected.loss_approximate),
                "serving_gb_seconds": serving.gb_seconds,
                "warm_gb_seconds": warm.gb_seconds,
                "backup_gb_seconds": backup.gb_seconds,
                "serving_dollars": serving.dollars(&prices),
                "warm_dollars": warm.dollars(&prices),
                "backup_dollars": backup.dollars(&prices),
            },
            "tenants": self.least.tenants().into_iter().map(|(id, reads, least)| json!({
                "id": id,
                "reads_per_object_hour": reads,
                "least_object_bytes": least,
            })).collect::<Vec<_>>(),
            "reclaim": status.expected.map(|expected| expected.reclaim.to_string()),
            "functions": status.states.iter().map(function).collect::<Vec<_>>(),
        })
    }
}

impl LargePlace for FunctionPlace {
    fn least_bytes(&self, payer: &dyn TenantMemory) -> u64 {
        self.least.of_account(payer.id().0)
    }

    fn read(&self, payer: &dyn TenantMemory, content: [u8; 16], stripe: u32, range: Range<usize>) -> Reading {
        let (functions, account) = (self.functions.clone(), self.account(payer));
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
        let (functions, account) = (self.functions.clone(), self.account(payer));
        Box::pin(async move {
            let bytes = range.len() as u64;
            let read = functions.get_chunks(content, stripe, range).await?;
            functions.used_by(account, &content, bytes);
            Some(read)
        })
    }

    fn has(&self, content: &[u8; 16], stripe: u32) -> bool {
        self.functions.has(content, stripe)
    }

    fn code(&self, object_bytes: u64) -> Option<Code> {
        self.functions.code(object_bytes)
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
        let (functions, account) = (self.functions.clone(), self.account(payer));
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

    fn name(&self, name: [u8; 16], content: [u8; 16]) {
        self.functions.name(name, content);
    }

    fn named(&self, name: &[u8; 16]) -> Option<[u8; 16]> {
        self.functions.named(name)
    }

    fn forget(&self, content: &[u8; 16]) {
        self.functions.forget(content);
    }
}
