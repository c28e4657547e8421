//! The report of the admin API about pools of functions.

use serde_json::{Value, json};
use tidemark_functions::cost::Prices;
use tidemark_functions::proxy::{FunctionState, Spent, Status, Totals};
use tidemark_types::TenantName;

use super::functions::PlacePool;
use super::least::Seen;

/// All pools together, each pool, the least sizes of tenants, and each function. A `tenant` is the one whose own a pool is.
pub(super) fn report_of(pools: &[PlacePool]) -> Value {
    let statuses: Vec<Status> = pools.iter().map(|pool| pool.functions.status()).collect();
    let (mut functions, mut tenants, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (pool, status) in pools.iter().zip(&statuses) {
        let tenant = pool.tenant.as_ref().map(TenantName::as_str);
        let function = |function| function_row(function, tenant);
        functions.extend(status.states.iter().map(function));
        let least = |(id, seen): (u32, Seen)| {
            json!({
                "id": id,
                "reads_per_object_hour": seen.reads_an_hour,
                "least_object_bytes": seen.least_bytes,
                "left_object_bytes": seen.left_bytes,
            })
        };
        tenants.extend(pool.least.tenants().into_iter().map(least));
        rows.push(json!({
            "tenant": tenant,
            "totals": status.totals,
            "now": now(std::slice::from_ref(status)),
            "reclaim": reclaim(status),
        }));
    }
    json!({
        "totals": statuses.iter().map(|status| status.totals).sum::<Totals>(),
        "now": now(&statuses),
        "pools": rows,
        "tenants": tenants,
        "reclaim": statuses.first().and_then(reclaim),
        "functions": functions,
    })
}

fn function_row((name, state, chunks, bytes): &(String, FunctionState, usize, u64), tenant: Option<&str>) -> Value {
    json!({
        "name": name,
        "tenant": tenant,
        "run": format!("{:?}", state.run).to_lowercase(),
        "check": format!("{:?}", state.check).to_lowercase(),
        "chunks": chunks,
        "chunk_bytes": bytes,
    })
}

fn reclaim(status: &Status) -> Option<String> {
    Some(status.expected?.reclaim.to_string())
}

/// The state of some pools. The memory of a function and the model are those of the first.
fn now(statuses: &[Status]) -> Value {
    let (first, prices) = (statuses.first(), Prices::TODAY);
    let expected = first.and_then(|status| status.expected);
    let sum = |of: fn(&Status) -> u64| statuses.iter().map(of).sum::<u64>();
    let totals: Totals = statuses.iter().map(|status| status.totals).sum();
    let spent = statuses.iter().map(|status| status.totals.spent(status.memory_bytes));
    let [serving, warm, backup] = spent.fold([Spent::default(); 3], |sum, one| {
        std::array::from_fn(|purpose| sum[purpose].plus(one[purpose]))
    });
    json!({
        "functions": sum(|status| status.functions as u64),
        "functions_in_use": sum(|status| status.functions_in_use as u64),
        "memory_bytes": first.map(|status| status.memory_bytes),
        "used_bytes": sum(|status| status.used_bytes),
        "room_bytes": sum(|status| status.room_bytes),
        "objects": sum(|status| status.objects as u64),
        "availability_ratio": totals.availability(),
        "modelled_availability_ratio": expected.map(|expected| expected.availability),
        "modelled_loss_ratio": expected.map(|expected| expected.loss),
        "modelled_loss_approximate_ratio": expected.map(|expected| expected.loss_approximate),
        "serving_gb_seconds": serving.gb_seconds,
        "warm_gb_seconds": warm.gb_seconds,
        "backup_gb_seconds": backup.gb_seconds,
        "serving_dollars": serving.dollars(&prices),
        "warm_dollars": warm.dollars(&prices),
        "backup_dollars": backup.dollars(&prices),
    })
}
