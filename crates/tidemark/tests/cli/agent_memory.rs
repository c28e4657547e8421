//! `tidemark agent`: the copies of an application are items of its tenant, with a goal, a curve and a bill.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::etcd;
use crate::s3::{Bucket, client, pattern, sum, until_it_is_let_in};
use crate::{Server, data, stdout, tidemark, wait_until};

const OBJECTS: usize = 60;
const OBJECT_BYTES: usize = 20_000;

const MIB: u64 = 1 << 20;

/// Has the configuration say so much memory.
fn configure(files: &tempfile::TempDir, memory_bytes: u64) -> std::path::PathBuf {
    let config = files.path().join("agent.toml");
    let memory_mib = memory_bytes / MIB;
    std::fs::write(
        &config,
        format!("ledger_period = \"1s\"\nmemory = \"{memory_mib}MiB\"\n"),
    )
    .unwrap();
    config
}

/// An agent of the application `shop`, whose folder of control groups is `cgroups` below `files`.
fn agent(files: &tempfile::TempDir, etcd: &str, origin: std::net::SocketAddr) -> Server {
    let config = configure(files, 64 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let mut command = tidemark();
    command
        .args(["agent", "--origin", &format!("s3://photos?endpoint=http://{origin}")])
        .args(["--etcd", etcd, "--peer", "127.0.0.1:0", "--s3", "127.0.0.1:0"])
        .args(["--admin", "127.0.0.1:0", "--domain", "shop"])
        .args(["--chooser", "off", "--config", config.to_str().unwrap()])
        .args(["--cgroup-root", files.path().join("cgroups").to_str().unwrap()])
        .args(["--data", &data(&folder)]);
    Server::started(command, folder)
}

/// Tells the agent of an instance's life.
fn happens(agent: &Server, event: &Value) {
    let address = agent.ready.split(' ').find_map(|word| word.strip_prefix("admin="));
    let token = std::fs::read_to_string(format!("{}/admin.token", agent.data())).unwrap();
    let body = event.to_string();
    let mut socket = TcpStream::connect(address.unwrap()).unwrap();
    let head = format!(
        "POST /api/v1/agent/instances HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        address.unwrap(),
        token.trim(),
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[test]
fn the_pool_is_what_instances_do_not_use() {
    let files = tempfile::tempdir().unwrap();
    let (_etcd, etcd) = etcd(files.path());
    let (_bucket, origin) = Bucket::start();
    let agent = agent(&files, &etcd, origin);
    let pool = || count(&agent.json(&["server", "show"])["pool_bytes"]);
    assert_eq!(pool(), 64 * MIB, "no instance is known");
    let group = files.path().join("cgroups/pods/i-1");
    std::fs::create_dir_all(&group).unwrap();
    let uses = |bytes: u64| std::fs::write(group.join("memory.current"), bytes.to_string()).unwrap();
    std::fs::write(group.join("memory.max"), (64 * MIB).to_string()).unwrap();
    let comes = |instance: &str| {
        let event = json!({
            "event": "created", "instance": instance, "app": "shop", "function": "pay", "cgroup": "pods/i-1"
        });
        happens(&agent, &event);
    };
    let goes = |instance: &str| happens(&agent, &json!({"event": "removed", "instance": instance}));
    uses(20 * MIB);
    comes("i-1");
    // A sixteenth is left alone.
    wait_until("the pool of one instance", || pool() == (64 - 20 - 4) * MIB);
    uses(60 * MIB);
    wait_until("the least pool", || pool() == 8 * MIB);
    goes("i-1");
    wait_until("all that the operator gave", || pool() == 64 * MIB);
    // Less from the operator holds after a reload, also once instances have come and gone.
    configure(&files, 48 * MIB);
    agent.signal(Signal::HUP);
    wait_until("less from the operator", || pool() == 48 * MIB);
    uses(20 * MIB);
    comes("i-2");
    wait_until("the pool of another instance", || pool() == (64 - 20 - 4) * MIB);
    goes("i-2");
    wait_until("what the operator gives now", || pool() == 48 * MIB);
    agent.stop();
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[test]
fn an_application_s_copies_have_a_goal_a_curve_and_a_bill() {
    let files = tempfile::tempdir().unwrap();
    let (_etcd, etcd) = etcd(files.path());
    let (_bucket, origin) = Bucket::start();
    let agent = agent(&files, &etcd, origin);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shop = client(&[&agent], &agent.json(&["tenant", "s3-key", "shop"]));
    until_it_is_let_in(&runtime, &shop);
    agent.json(&["tenant", "set", "shop", "--hit-ratio", "0.5"]);
    let object = |number: usize| pattern(OBJECT_BYTES, number);
    let (mut read, mut next) = (0_u64, 1_usize);
    runtime.block_on(async {
        for number in 0..OBJECTS {
            let key = format!("k{number}");
            shop.put("photos", &key, object(number).into()).await.unwrap();
        }
    });
    let mut read_some = |times: usize| {
        for _ in 0..times {
            // Some are read far more often than others.
            next = next * 75 % 65_537;
            let number = next % OBJECTS * (next / OBJECTS % OBJECTS) / OBJECTS;
            let got = runtime.block_on(shop.get("photos", &format!("k{number}"), None));
            assert!(got.unwrap() == object(number), "k{number}");
        }
        read += times as u64;
        read
    };
    read_some(200);
    let show = || agent.json(&["agent", "show", "shop"]);
    wait_until("a curve and a goal", || {
        read_some(50);
        let shown = show();
        let points = shown["curve"]["points"].as_array().map_or(0, Vec::len);
        points > 1 && shown["tenant"]["goal_state"] == "met"
    });
    let shown = show();
    let (memory, tenant) = (&shown["memory"], &shown["tenant"]);
    assert_eq!(tenant["goals"]["hit_ratio"], 0.5, "{shown:#}");
    assert!(
        count(&memory["usage_bytes"]) >= (OBJECTS * OBJECT_BYTES) as u64,
        "{memory}"
    );
    assert!(
        count(&memory["grant_bytes"]) >= count(&memory["usage_bytes"]),
        "{memory}"
    );
    let reads = read_some(0);
    assert!(
        count(&memory["gets_total"]) >= reads && count(&memory["hits_total"]) * 10 > 9 * reads,
        "{memory}"
    );
    let text = stdout(&agent.run(&["agent", "show", "shop"]));
    for part in [
        "memory         holds ",
        "goal           hit ratio 50.0 %, state met",
        "curve  ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The tenant's rows of the ledger have all of that.
    wait_until("the ledger", || sum(&agent, "shop", "gets") >= reads as f64);
    assert!(sum(&agent, "shop", "hits") > 0.9 * reads as f64);
    assert!(sum(&agent, "shop", "memory_byte_seconds") > (OBJECTS * OBJECT_BYTES) as f64);
    assert!(sum(&agent, "shop", "network_out_bytes") >= (reads as usize * OBJECT_BYTES) as f64);
    // Requests are operations, by command and outcome.
    assert!(runtime.block_on(shop.get("photos", "nothing", None)).is_err());
    let executed = |command: &str| -> u64 {
        let rows = agent.json(&["usage", "shop"]);
        let rows = rows["rows"].as_array().unwrap().iter();
        rows.map(|row| count(&row["commands"][command])).sum()
    };
    wait_until("the last operation", || executed("s3/get_object/miss") > 0);
    assert_eq!(executed("s3/put_object"), OBJECTS as u64);
    assert!(executed("s3/get_object") >= reads);
    assert!(sum(&agent, "shop", "operations") >= (OBJECTS as u64 + reads) as f64);
    // An operator's limit is one of copies, too: they go, and what is read is right.
    agent.json(&["tenant", "set", "shop", "--hit-ratio", "none", "--cap", "1MiB"]);
    wait_until("copies to keep the cap", || {
        read_some(20);
        let shown = show();
        let used = count(&shown["cachelets"][0]["used_bytes"]);
        used > 0 && used <= 1 << 20 && count(&shown["memory"]["usage_bytes"]) <= 1 << 20
    });
    read_some(100);
    assert_eq!(show()["counts"]["failed"], 0);
    agent.stop();
}
