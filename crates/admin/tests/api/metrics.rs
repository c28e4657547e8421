//! The scraped metrics.

use super::*;

#[test]
fn metrics_say_how_tenants_and_their_goals_stand() {
    let scene = start();
    let text = |scene: &Scene| scene.get("/metrics").body.as_str().unwrap().to_owned();
    let before = scene.get("/metrics");
    assert!(
        before
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        before.head
    );
    let goals = json!({"name": "shop", "goals": {"hit_ratio": 0.9}});
    assert_eq!(scene.call("POST", "/api/v1/tenants", &goals).status, 201);
    scene.create("cart");
    scene.data_plane.set_demand("shop", 4 * MIB);
    scene.data_plane.write();
    scene.data_plane.count_gets("shop", 10, 4);
    let held = wait_for("its first grant", || {
        text(&scene).lines().find_map(|line| {
            let bytes = line.strip_prefix("tidemark_tenant_usage_bytes{tenant=\"shop\"} ")?;
            bytes.parse::<u64>().ok().filter(|bytes| *bytes > 0)
        })
    });
    assert_eq!(scene.data_plane.tenant("shop").unwrap().1, held);
    scene.data_plane.write();
    let gets = "tidemark_tenant_gets_total{tenant=\"shop\"} 10";
    wait_for("its gets", || text(&scene).contains(gets).then_some(()));
    let text = text(&scene);
    for line in [
        &format!("tidemark_pool_bytes {GIB}"),
        "tidemark_tenant_hits_total{tenant=\"shop\"} 4",
        // After ten gets nothing is known yet.
        "tidemark_tenant_goal_met{tenant=\"shop\"} 0",
        "tidemark_tenant_grant_bytes{tenant=\"cart\"} 0",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    // In the order in which they were made.
    let tenants: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("tidemark_tenant_items{tenant=")?.split('"').nth(1))
        .collect();
    assert_eq!(tenants, ["default", "shop", "cart"]);
    assert!(!text.contains("goal_met{tenant=\"cart\""), "{text}");
    assert_eq!(
        scene.call("POST", "/metrics", &Value::Null).code(),
        "method_not_allowed"
    );
    scene.stop();
}
