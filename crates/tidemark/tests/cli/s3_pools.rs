//! Tenants with functions of their own, beside others that share some.

use hyper::body::Bytes;
use serde_json::Value;
use tidemark_functions::emulator::Emulator;
use tidemark_gateway::Client;

use super::deploy::scrape;
use super::s3::{Bucket, client, emulator, functions_file, pattern, server_with, sum, until_it_is_let_in};
use super::*;

const MIB: usize = 1 << 20;
/// The functions of all pools of the file below.
const FUNCTIONS: u64 = 6 + 7 + 6 + 6;

/// `one` has seven functions, the last of them with other memory; `idle` has six that it never uses.
fn pools_file(folder: &Path, emulator: &Emulator, memory: &str) -> String {
    let more = format!(
        "memory = \"128MiB\"\nwarm_every = \"1s\"\nbackup_every = \"never\"\nrefill = \"on-read\"\n\
         [tenants.one]\ncount = 7\nmemory = \"{memory}\"\n[tenants.two]\n[tenants.idle]\n"
    );
    functions_file(folder, emulator, &more)
}

/// Changes all functions of the file: how many were changed.
fn change(what: &[&str]) -> u64 {
    let output = run(&[&["--json", "functions"], what].concat());
    assert!(output.status.success(), "{what:?}: {}", stderr(&output));
    let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
    said["changed"].as_u64().unwrap()
}

fn report(server: &Server) -> Value {
    server.json(&["functions", "status"])
}

/// A number of each pool: of the shared one, then of those of `one`, `two` and `idle`.
fn of_pools(server: &Server, part: &str, name: &str) -> [u64; 4] {
    let report = report(server);
    let pools = report["pools"].as_array().unwrap();
    assert_eq!(pools.len(), 4);
    ["", "one", "two", "idle"].map(|tenant| {
        let pool = pools
            .iter()
            .find(|pool| pool["tenant"].as_str().unwrap_or_default() == tenant);
        pool.unwrap()[part][name].as_u64().unwrap()
    })
}

/// The functions that hold chunks, each with the tenant whose own it is.
fn holding(server: &Server) -> Vec<(String, String)> {
    let report = report(server);
    let functions = report["functions"].as_array().unwrap();
    assert_eq!(functions.len() as u64, FUNCTIONS);
    let holding = functions
        .iter()
        .filter(|function| function["chunks"].as_u64().unwrap() > 0);
    let named = |function: &Value| {
        let text = |field: &str| function[field].as_str().unwrap_or_default().to_owned();
        (text("name"), text("tenant"))
    };
    holding.map(named).collect()
}

/// Reads until a pool answers both stripes of an object. A busy machine may lose some on their way; the next read has them stored again.
fn until_it_hits(server: &Server, pool: usize, read: impl Fn()) {
    wait_until("a read is answered by the tenant's functions", || {
        let before = of_pools(server, "totals", "hits")[pool];
        read();
        of_pools(server, "totals", "hits")[pool] == before + 2
    });
}

#[test]
fn tenants_have_functions_of_their_own_or_share_some() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (emulator, files) = (emulator(&runtime), tempfile::tempdir().unwrap());
    let bootstrap = files.path().join("bootstrap");
    std::fs::write(&bootstrap, "#!/bin/sh\n").unwrap();
    let file = pools_file(files.path(), &emulator, "128MiB");
    let deploy = ["deploy", &file, "--bootstrap", bootstrap.to_str().unwrap()];
    assert_eq!((change(&deploy), change(&deploy)), (FUNCTIONS, 0));
    let file = pools_file(files.path(), &emulator, "192MiB");
    assert_eq!((change(&["resize", &file]), change(&["resize", &file])), (7, 0));

    let (_bucket, origin) = Bucket::start();
    let server = server_with(origin, &file, &["--ledger-period", "1s"]);
    let names = ["one", "two", "three", "four"];
    server.json(&["tenant", "create", "idle"]);
    let keys = names.map(|name| {
        server.json(&["tenant", "create", name]);
        server.json(&["tenant", "s3-key", name, "--place", "functions"])
    });
    let clients = keys.each_ref().map(|key| client(&[&server], key));
    clients.iter().for_each(|client| until_it_is_let_in(&runtime, client));
    let objects: Vec<Bytes> = (0..4).map(|seed| pattern(5 * MIB, seed).into()).collect();
    let get = |client: &Client, name: &str| runtime.block_on(client.get("photos", name, None)).unwrap();
    for ((client, name), object) in clients.iter().zip(names).zip(&objects) {
        runtime.block_on(client.put("photos", name, object.clone())).unwrap();
    }
    let own = [1, 2, 0, 0];
    for (((client, name), object), pool) in clients.iter().zip(names).zip(&objects).zip(own) {
        until_it_hits(&server, pool, || assert!(get(client, name) == object, "{name}"));
    }
    assert_eq!(of_pools(&server, "now", "objects"), [2, 1, 1, 0]);
    let held = holding(&server);
    for (name, tenant) in &held {
        let own = if tenant.is_empty() {
            "pool-".to_owned()
        } else {
            format!("pool-{tenant}-")
        };
        let number = name.strip_prefix(&own).and_then(|number| number.parse::<u64>().ok());
        assert!(number.is_some(), "{name} of {tenant}");
    }
    let count = |tenant: &str| held.iter().filter(|(_, of)| of == tenant).count();
    assert!((6..=7).contains(&count("one")), "{held:?}");
    assert_eq!(["", "two", "idle"].map(count), [6, 6, 0]);

    each_pool_is_on_its_own(&server, &clients, &emulator, &objects, &get);
    each_pays_for_its_own(&server);

    // After a restart each pool has what it had.
    let rows = || {
        let catalogue = rusqlite::Connection::open(Path::new(&server.data()).join("functions.sqlite")).unwrap();
        let count = |row: &rusqlite::Row<'_>| row.get::<_, u64>(0);
        catalogue.query_row("SELECT COUNT(*) FROM stripes", [], count).unwrap()
    };
    wait_until("the catalogue is written", || rows() == 4 + 2 + 4);
    server.signal(Signal::KILL);
    let (_, _, folder) = server.stop();
    let origin = format!("s3://photos?endpoint=http://{origin}");
    let server = Server::start_in(
        folder,
        &["--s3", "127.0.0.1:0", "--origin", &origin, "--functions", &file],
    );
    assert_eq!(of_pools(&server, "now", "objects"), [2, 1, 2, 0]);
    for (((key, name), object), pool) in keys.iter().zip(names).zip(&objects).zip(own) {
        let client = client(&[&server], key);
        until_it_hits(&server, pool, || assert!(get(&client, name) == object, "{name}"));
    }
    let shown = stdout(&server.run(&["functions", "status"]));
    assert!(shown.contains("(shared)") && shown.contains("idle"), "{shown}");
    server.stop();
    assert_eq!(change(&["remove", &file, "--tenant", "one"]), 7);
    let refused = run(&["functions", "remove", &file, "--tenant", "three"]);
    assert_eq!(refused.status.code(), Some(USAGE), "it shares its functions");
    assert_eq!(
        (change(&["remove", &file]), change(&["remove", &file])),
        (FUNCTIONS - 7, 0)
    );
}

/// One tenant's reads and losses change nothing for another.
fn each_pool_is_on_its_own(
    server: &Server,
    clients: &[Client; 4],
    emulator: &Emulator,
    objects: &[Bytes],
    get: &impl Fn(&Client, &str) -> Bytes,
) {
    // An object of another tenant's pool is read from the origin, and then from one's own.
    let before = of_pools(server, "totals", "hits");
    until_it_hits(server, 2, || assert!(get(&clients[1], "one") == objects[0]));
    assert_eq!(of_pools(server, "now", "objects"), [2, 1, 2, 0]);
    let after = of_pools(server, "totals", "hits");
    assert_eq!([after[0], after[1], after[3]], [before[0], before[1], before[3]]);
    // All of one's functions are taken away.
    let taken: usize = (0..7)
        .map(|number| emulator.reclaim(&format!("pool-one-{number}")))
        .sum();
    assert!(taken >= 6, "{taken}");
    let misses = of_pools(server, "totals", "misses");
    assert!(get(&clients[0], "one") == objects[0]);
    assert!(of_pools(server, "totals", "misses")[1] > misses[1]);
    assert!(of_pools(server, "totals", "lost_chunks")[1] > 0);
    until_it_hits(server, 1, || assert!(get(&clients[0], "one") == objects[0]));
    until_it_hits(server, 2, || assert!(get(&clients[1], "two") == objects[1]));
    until_it_hits(server, 0, || assert!(get(&clients[2], "three") == objects[2]));
    assert_eq!(of_pools(server, "now", "objects"), [2, 1, 2, 0]);
}

fn each_pays_for_its_own(server: &Server) {
    let metrics = scrape(server);
    for tenant in ["", "one", "two", "idle"] {
        let line = format!("tidemark_functions_pool_warm_invocations_total{{tenant=\"{tenant}\"}} ");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    // Its functions are kept warm, though nothing was ever read from them.
    wait_until("the warm-ups of an unused pool are on its tenant's bill", || {
        sum(server, "idle", "invocations") > 0.0
    });
    wait_until("those who share pay", || {
        ["three", "four"]
            .iter()
            .all(|name| sum(server, name, "invocations") > 0.0)
    });
    // Charges follow the counts: what was counted before is never less than what is charged.
    let charged = sum(server, "idle", "invocations");
    let [_, _, _, counted] = of_pools(server, "totals", "warm_invocations");
    assert!(charged <= counted as f64, "{charged} of {counted}");
}
