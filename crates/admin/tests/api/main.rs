//! The API over real sockets: a real control plane with a real state file, and a fake data plane.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod access;
mod flash;
mod metrics;
mod mistakes;
mod sockets;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidemark_admin::{Admin, AdminConfig, AdminError, BoundAdmin};
use tidemark_control::fake::FakeDataPlane;
use tidemark_control::{Control, ControlConfig, Listeners, Mailbox, SETTINGS, StateFile};
use tidemark_types::{Clock, GIB, MIB, SystemClock};

/// Far longer than any answer takes, so that only a hang is one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Calls until it gives something.
fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

struct Scene {
    folder: TempDir,
    data_plane: Arc<FakeDataPlane>,
    control: Control,
    admin: Admin,
    address: SocketAddr,
    token: String,
}

fn bind(folder: &Path) -> Result<BoundAdmin, AdminError> {
    BoundAdmin::bind(&AdminConfig {
        address: Some("127.0.0.1:0".parse().unwrap()),
        folder: folder.into(),
        open_metrics: false,
        reports: Default::default(),
    })
}

fn start() -> Scene {
    start_with_flash(0)
}

/// With so much flash below memory.
fn start_with_flash(flash_bytes: u64) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let data_plane = Arc::new(FakeDataPlane::new(Arc::clone(&clock)));
    let state = StateFile::open(folder.path(), clock.now()).unwrap();
    let bound = bind(folder.path()).unwrap();
    let address = bound.address().unwrap();
    let token = bound.new_token().unwrap().to_owned();
    let mailbox = Mailbox::default();
    data_plane.set_waker(mailbox.waker());
    let config = ControlConfig {
        listeners: Listeners {
            redis: Some("127.0.0.1:6379".parse().unwrap()),
            admin: Some(address),
            ..Listeners::default()
        },
        flash_bytes,
        ..ControlConfig::new(GIB, 4 * GIB, 2)
    };
    let control = Control::start(mailbox, state, Arc::clone(&data_plane) as _, clock, config).unwrap();
    let admin = bound.serve(&control.handle(), None).unwrap();
    Scene {
        folder,
        data_plane,
        control,
        admin,
        address,
        token,
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Value,
}

impl Reply {
    fn read(mut stream: impl Read) -> Self {
        let mut text = Vec::new();
        match stream.read_to_end(&mut text) {
            // An answer to a request that was not read to its end is followed by a reset.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            read => drop(read.unwrap()),
        }
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: serde_json::from_str(body).unwrap_or_else(|_| json!(body)),
        }
    }

    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

impl Scene {
    fn unix(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("admin.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn call_raw(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let mut stream = self.unix();
        // A server that refuses a body may answer and close before it has read all of it.
        let _ = stream.write_all(&request(method, path, "", body));
        Reply::read(stream)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.call_raw(method, path, text.as_bytes())
    }

    fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &Value::Null)
    }

    fn create(&self, name: &str) {
        assert_eq!(
            self.call("POST", "/api/v1/tenants", &json!({ "name": name })).status,
            201
        );
    }

    fn over_tcp(&self, path: &str, headers: &str) -> Reply {
        let mut stream = self.tcp();
        stream.write_all(&request("GET", path, headers, b"")).unwrap();
        Reply::read(stream)
    }

    fn stop(self) {
        self.admin.stop();
        self.control.stop().unwrap();
    }
}

#[test]
fn a_tenant_s_life() {
    let scene = start();
    let goals = json!({"cap_bytes": 64 * MIB, "floor_bytes": 2 * MIB, "hit_ratio": 0.875, "weight": 3});
    let limits = json!({"ops_per_second": 500, "bytes_per_second": MIB});
    let body = json!({"name": "shop", "goals": goals, "limits": limits, "policy": "clock"});
    let created = scene.call("POST", "/api/v1/tenants", &body);
    assert_eq!((created.status, &created.body["name"]), (201, &json!("shop")));
    assert_eq!(created.body["secret"].as_str().unwrap().len(), 43);
    assert_eq!(scene.call("POST", "/api/v1/tenants", &body).code(), "name_taken");

    let shown = scene.get("/api/v1/tenants/shop").body;
    assert_eq!(
        (&shown["state"], &shown["policy"], &shown["shards"]),
        (&json!("idle"), &json!("clock"), &json!(1))
    );
    for setting in SETTINGS {
        let path = setting.place.path;
        assert!(shown.pointer(setting.place.pointer).is_some(), "answers lack {path}");
    }
    assert_eq!(shown["goals"]["cap_bytes"], json!(64 * MIB));
    assert_eq!(
        (&shown["goals"]["hit_ratio"], &shown["goal_state"]),
        (&json!(0.875), &json!("none"))
    );
    assert_eq!(shown["goals"]["weight"], json!(3));
    assert_eq!(
        shown["limits"],
        json!({
            "ops_per_second": 500, "bytes_per_second": MIB, "connections": null, "spending_per_month": null,
            "at_spending_limit": null
        })
    );
    assert_eq!(
        shown["refused_total"],
        json!({
            "ops_per_second": 0, "bytes_per_second": 0, "spending_limit": 0, "flash_waits": 0, "connections": 0,
            "failed_logins": 0,
            "reply_size": 0, "stalled_connections": 0, "incomplete_commands": 0, "connection_memory": 0
        })
    );
    for unknown in [
        "shortfall_ratio",
        "best_hit_ratio",
        "goal_age_seconds",
        "goal_standard_error",
        "demand_bytes",
        "lent_bytes",
    ] {
        assert_eq!(shown.get(unknown), Some(&Value::Null), "{unknown}");
    }

    scene.data_plane.set_demand("shop", GIB);
    scene.data_plane.write();
    let patched = scene.call(
        "PATCH",
        "/api/v1/tenants/shop",
        &json!({
            "goals": {"cap_bytes": 4 * MIB, "hit_ratio": null},
            "limits": {"ops_per_second": null, "connections": 9},
            "policy": null,
        }),
    );
    assert_eq!(
        patched.body["limits"],
        json!({
            "ops_per_second": null, "bytes_per_second": MIB, "connections": 9, "spending_per_month": null,
            "at_spending_limit": null
        })
    );
    assert_eq!(
        (
            patched.status,
            &patched.body["policy"],
            &patched.body["policy_in_force"]
        ),
        (200, &json!("adaptive"), &json!("s3fifo"))
    );
    assert_eq!(patched.body["goals"]["hit_ratio"], Value::Null);
    assert_eq!(patched.body["goals"]["floor_bytes"], json!(2 * MIB), "a patch merges");
    assert!(scene.data_plane.tenant("shop").unwrap().1 <= 4 * MIB);

    let rotated = scene.call("POST", "/api/v1/tenants/shop/rotate", &json!({"permissions": "read"}));
    assert_ne!(rotated.body["secret"], created.body["secret"]);
    assert_eq!(
        scene.get("/api/v1/tenants/shop").body["secrets"][1]["permissions"],
        json!("read")
    );
    let refused = scene.call("POST", "/api/v1/tenants/shop/rotate", &Value::Null);
    assert_eq!(
        (refused.status, &refused.body["error"]["field"]),
        (409, &json!("force"))
    );
    let forced = scene.call("POST", "/api/v1/tenants/shop/rotate", &json!({"force": true}));
    assert_eq!(forced.status, 200);
    let own = json!({"secret_name": "writer", "secret": "q0E8l5n1p2m3k4j5h6g7f8"});
    let named = scene.call("POST", "/api/v1/tenants/shop/rotate", &own);
    assert_eq!(
        (named.status, named.body),
        (200, json!({"name": "shop", "secret": null}))
    );
    assert_eq!(
        scene.get("/api/v1/tenants/shop").body["secrets"][2]["name"],
        json!("writer")
    );
    let finished = scene.call("POST", "/api/v1/tenants/shop/rotate", &json!({"finish": true}));
    assert_eq!(finished.body, json!({"name": "shop", "secret": null}));

    let names = |scene: &Scene| -> Vec<Value> {
        let body = scene.get("/api/v1/tenants").body;
        body["tenants"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tenant| tenant["name"].clone())
            .collect()
    };
    assert_eq!(names(&scene), [json!("default"), json!("shop")]);
    let removed = scene.call("DELETE", "/api/v1/tenants/shop", &Value::Null);
    assert_eq!((removed.status, &removed.body), (204, &json!("")));
    assert_eq!(names(&scene), [json!("default")]);
    assert_eq!(scene.get("/api/v1/tenants/shop").code(), "not_found");
    scene.stop();
}

#[test]
fn the_server_is_shown_and_set() {
    let scene = start();
    let shown = scene.get("/api/v1/server").body;
    assert_eq!((&shown["pool_bytes"], &shown["workers"]), (&json!(GIB), &json!(2)));
    assert_eq!(
        (&shown["redis"], &shown["memcached"]),
        (&json!("127.0.0.1:6379"), &Value::Null)
    );
    assert_eq!(shown["unexplained_cpu_seconds_total"], Value::Null);
    assert!(shown["rss_bytes"].as_u64() > Some(0) && shown["rounds_total"].as_u64() > Some(0));
    let set = scene.call(
        "PATCH",
        "/api/v1/server",
        &json!({"pool_bytes": 2 * GIB, "round_period_us": 250_000}),
    );
    assert_eq!(
        (&set.body["pool_bytes"], &set.body["round_period_us"]),
        (&json!(2 * GIB), &json!(250_000))
    );
    assert_eq!(scene.data_plane.pool_and_granted_bytes().0, 2 * GIB);
    assert_eq!(
        scene.call("PATCH", "/api/v1/server", &json!({"pool_bytes": null})).body["pool_bytes"],
        json!(GIB)
    );
    scene.stop();
}

#[test]
fn a_tenant_s_moves_and_its_curve() {
    let scene = start();
    scene.create("shop");
    assert_eq!(scene.get("/api/v1/tenants/shop/moves").body, json!([]));
    scene.data_plane.set_demand("shop", 4 * GIB);
    scene.data_plane.write();
    // It takes the first grant by itself; the round that it asks for gives the rest.
    let moves = wait_for("both moves", || {
        let moves = scene.get("/api/v1/tenants/shop/moves").body;
        (moves.as_array().unwrap().len() >= 2).then_some(moves)
    });
    let granted = scene.get("/api/v1/tenants/shop").body["grant_bytes"].clone();
    for (index, from, to, reason) in [
        (0, &json!(20 * MIB), &granted, "surplus"),
        (1, &json!(0), &json!(20 * MIB), "join"),
    ] {
        let change = &moves[index];
        let at = change["at"].as_str().unwrap();
        assert_eq!((at.len(), at.ends_with('Z')), (24, true), "{at}");
        let mut expected = json!({
            "from_bytes": from,
            "to_bytes": to,
            "reason": reason,
            "other": null,
            "predicted_hit_ratio": null,
            "measured_hit_ratio": null,
        });
        expected["at"] = change["at"].clone();
        assert_eq!(*change, expected);
    }
    let patch = json!({"goals": {"cap_bytes": 64 * MIB}});
    let preview = scene.call("POST", "/api/v1/tenants/shop/preview", &patch);
    assert_eq!((preview.status, &preview.body["pool_bytes"]), (200, &json!(GIB)));
    let shop = &preview.body["tenants"][0];
    assert_eq!(
        (&shop["name"], &shop["grant_bytes"], &shop["changed_bytes"]),
        (&json!("shop"), &granted, &json!(64 * MIB))
    );
    assert!(shop["unchanged_bytes"].as_u64() > Some(64 * MIB), "{shop}");
    assert_eq!(shop["changed_hit_ratio"], Value::Null, "it was asked nothing");
    assert_eq!(
        scene.get("/api/v1/tenants/shop").body["goals"]["cap_bytes"],
        Value::Null
    );
    // It was asked nothing yet.
    let curve = json!({
        "requests": null,
        "points": [],
        "now_bytes": granted,
        "goal_bytes": null,
        "policy": null,
        "age_seconds": null,
        "standard_error": null,
    });
    assert_eq!(scene.get("/api/v1/tenants/shop/curve").body, curve);
    scene.stop();
}

#[test]
fn readiness_turns_with_draining() {
    let scene = start();
    let ready = scene.get("/readyz");
    assert_eq!(
        (ready.status, &ready.body["ready"], &ready.body["control"]),
        (200, &json!(true), &json!("ok"))
    );
    assert!(ready.body["age_seconds"].is_u64());
    scene.control.handle().set_draining();
    let draining = scene.get("/readyz");
    assert_eq!((draining.status, &draining.body["ready"]), (503, &json!(false)));
    assert_eq!(scene.get("/healthz").status, 200);
    scene.stop();
}

#[test]
fn a_stopping_control_plane_is_no_hang() {
    let scene = start();
    scene.data_plane.withhold_removed(true);
    scene.create("shop");
    let mut waiting = scene.unix();
    waiting
        .write_all(&request("DELETE", "/api/v1/tenants/shop", "", b""))
        .unwrap();
    let state = |scene: &Scene| scene.get("/api/v1/tenants/shop").body["state"].clone();
    wait_for("its removal", || (state(&scene) == json!("removing")).then_some(()));
    let Scene { control, admin, .. } = scene;
    control.stop().unwrap();
    let reply = Reply::read(waiting);
    assert_eq!((reply.status, reply.code()), (503, "unavailable"));
    admin.stop();
}
