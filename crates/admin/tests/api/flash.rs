//! The API's figures of flash.

use tidemark_types::FlashUse;

use super::*;

/// The fields of a tenant and of the server.
const OF_TENANT: [&str; 8] = [
    "flash_grant_bytes",
    "flash_usage_bytes",
    "flash_memory_bytes",
    "flash_items",
    "flash_hits_total",
    "flash_written_bytes_total",
    "flash_refused_total",
    "flash_failed",
];
const OF_SERVER: [&str; 5] = [
    "flash_bytes",
    "flash_granted_bytes",
    "flash_usage_bytes",
    "flash_memory_bytes",
    "flash_failed",
];

fn fields(object: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| object[*name].clone()).collect()
}

#[test]
fn everything_that_shows_memory_shows_flash() {
    let scene = start_with_flash(256 * MIB);
    scene.create("shop");
    scene.create("cart");
    let asked = json!({"flash": {
        "floor_bytes": 8 * MIB, "cap_bytes": 64 * MIB, "write_bytes_per_second": MIB, "staleness": "bounded:50ms"
    }});
    let set = scene.call("PATCH", "/api/v1/tenants/shop", &asked);
    assert_eq!((set.status, &set.body["flash"]), (200, &asked["flash"]));
    scene.data_plane.set_demand("shop", 4 * MIB);
    scene.data_plane.write();
    wait_for("its memory", || {
        let usage = &scene.get("/api/v1/tenants/shop").body["usage_bytes"];
        (usage.as_u64() > Some(0)).then_some(())
    });
    scene.data_plane.set_flash(
        "shop",
        FlashUse {
            grant_bytes: 64 * MIB,
            usage_bytes: 9 * MIB,
            memory_bytes: 2 * MIB,
            items: 5000,
            hits: 70,
            written_bytes: 11 * MIB,
            refused: 3,
            ..FlashUse::default()
        },
    );
    let shown = wait_for("a round that saw it", || {
        let shown = scene.get("/api/v1/tenants/shop").body;
        shown["flash_usage_bytes"].is_number().then_some(shown)
    });
    let of_shop = json!([64 * MIB, 9 * MIB, 2 * MIB, 5000, 70, 11 * MIB, 3, false]);
    assert_eq!(fields(&shown, &OF_TENANT), of_shop);
    assert_eq!(
        scene.data_plane.tenant("shop").unwrap().0.flash.grant_bytes,
        Some(64 * MIB)
    );
    let listed = scene.get("/api/v1/tenants").body["tenants"].clone();
    let one = |name: &str| {
        let mut listed = listed.as_array().unwrap().iter();
        fields(listed.find(|tenant| tenant["name"] == name).unwrap(), &OF_TENANT)
    };
    assert_eq!(one("shop"), of_shop);
    assert_eq!(
        one("cart"),
        json!([null, null, null, null, null, null, null, null]),
        "nothing is known of one that was never used"
    );
    let server = scene.get("/api/v1/server").body;
    assert_eq!(
        fields(&server, &OF_SERVER),
        json!([256 * MIB, 64 * MIB, 9 * MIB, 2 * MIB, false])
    );
    let moves = scene.get("/api/v1/tenants/shop/moves").body;
    let of_flash = |change: &&Value| change["tier"] == "flash";
    let of_flash: Vec<&Value> = moves.as_array().unwrap().iter().filter(of_flash).collect();
    assert_eq!(of_flash.len(), 1, "{moves}");
    assert_eq!(
        fields(of_flash[0], &["from_bytes", "to_bytes", "reason"]),
        json!([0, 64 * MIB, "join"])
    );
    assert_eq!(shown["flash_moves_total"], json!([{"reason": "join", "count": 1}]));
    let metrics = scene.get("/metrics").body.as_str().unwrap().to_owned();
    for line in [
        format!("tidemark_flash_size_bytes {}", 256 * MIB),
        format!("tidemark_flash_granted_bytes {}", 64 * MIB),
        "tidemark_flash_failed 0".to_owned(),
        format!("tidemark_flash_usage_bytes{{tenant=\"shop\"}} {}", 9 * MIB),
        "tidemark_flash_refused_total{tenant=\"shop\"} 3".to_owned(),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} is not in\n{metrics}"
        );
    }
    scene.data_plane.fail_flash();
    wait_for("the failure", || {
        (scene.get("/api/v1/tenants/shop").body["flash_failed"] == true).then_some(())
    });
    scene.stop();
}

#[test]
fn a_device_that_failed_before_anybody_used_it_is_told() {
    let scene = start_with_flash(256 * MIB);
    scene.create("shop");
    let failed = || scene.get("/api/v1/server").body["flash_failed"].clone();
    assert_eq!(failed(), false);
    scene.data_plane.fail_flash();
    wait_for("the failure", || (failed() == true).then_some(()));
    let metrics = scene.get("/metrics").body.as_str().unwrap().to_owned();
    assert!(
        metrics.lines().any(|line| line == "tidemark_flash_failed 1"),
        "{metrics}"
    );
    scene.stop();
}

#[test]
fn without_flash_nothing_is_said_of_it() {
    let scene = start();
    scene.create("shop");
    let (shown, server) = (scene.get("/api/v1/tenants/shop").body, scene.get("/api/v1/server").body);
    for (object, names) in [(shown, &OF_TENANT[..]), (server, &OF_SERVER)] {
        for name in names {
            assert_eq!(object.get(name), Some(&Value::Null), "{name}");
        }
    }
    let metrics = scene.get("/metrics").body.as_str().unwrap().to_owned();
    assert!(
        !metrics.lines().any(|line| line.starts_with("tidemark_flash")),
        "{metrics}"
    );
    scene.stop();
}
