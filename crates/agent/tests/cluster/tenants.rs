//! Applications beside each other: each has its own promise and its own cachelets.

use std::sync::Arc;

use tidemark_cachelet::config::{Config, Durability, Level, Promise, WritePolicy};
use tidemark_gateway::coherent::{Caller, Reading, Writing, Written};

use crate::nodes::{APP, Nodes, content_of, is_applied, text_of, wait_for};

/// Creates an application at node 0, and waits until it can be used.
fn create(nodes: &Nodes, app: &str, promise: Promise, config: Config) {
    let agent = Arc::clone(nodes.agent(0));
    let name = app.to_owned();
    let created = nodes.agent(0).handle().spawn(async move {
        agent.create_app(&name, promise).await?;
        let change = |record: &mut tidemark_agent::layout::AppRecord| {
            record.config = config;
            Ok(())
        };
        agent.change_app(&name, change).await
    });
    nodes.runtime.block_on(created).unwrap().unwrap();
    let expected = serde_json::to_value(config).unwrap();
    wait_for("the application", || {
        let shown = tidemark_agent::show::app(nodes.agent(0), app).unwrap();
        shown["config"] == expected && shown["change"].is_null() && shown["cachelets"][0]["is_leased"] == true
    });
}

fn caller(app: &str) -> Caller {
    Caller {
        tenant: app.into(),
        address: None,
    }
}

fn read(nodes: &Nodes, app: &str, key: &str) -> Reading {
    let objects = nodes.agent(0).objects();
    nodes.runtime.block_on(objects.read(&caller(app), &format!("b/{key}")))
}

fn text(reading: Reading) -> String {
    match reading {
        Reading::Object { content, .. } => text_of(&content),
        other => panic!("{other:?}"),
    }
}

fn write(nodes: &Nodes, app: &str, key: &str, value: &str) -> Writing {
    let written = Written {
        content: Some(content_of(value)),
        is_conditional: false,
    };
    let objects = nodes.agent(0).objects();
    nodes
        .runtime
        .block_on(objects.write(&caller(app), &format!("b/{key}"), written))
}

#[test]
fn no_cachelet_is_shared_between_tenants() {
    let nodes = Nodes::start(1);
    create(&nodes, "blog", Promise::default(), Config::CONCORD);
    nodes.origin.put("k", "one");
    assert_eq!(text(read(&nodes, APP, "k")), "one");
    // Nobody tells a domain what others write. A copy that both had would show here.
    nodes.origin.put("k", "two");
    assert_eq!(text(read(&nodes, "blog", "k")), "two");
    assert_eq!(text(read(&nodes, APP, "k")), "one");
    let cachelet = |app: &str| tidemark_agent::show::app(nodes.agent(0), app).unwrap()["cachelets"][0].clone();
    assert_ne!(cachelet(APP)["id"], cachelet("blog")["id"]);
    for app in [APP, "blog"] {
        assert!(cachelet(app)["used_bytes"].as_u64().unwrap() > 0, "{app}");
    }
    // Whoever is no application here is served by nobody's.
    assert_eq!(read(&nodes, "stranger", "k"), Reading::Unavailable);
    assert_eq!(write(&nodes, "stranger", "k", "three"), Writing::Unavailable);
    assert_eq!(nodes.origin.get("k").as_deref(), Some("two"));
}

#[test]
fn each_tenant_is_served_as_it_was_promised() {
    let mut nodes = Nodes::start(1);
    let promise = |level| Promise {
        level,
        ..Promise::default()
    };
    let minute = Level::Bounded(60_000_000);
    create(&nodes, "feed", promise(minute), Config::CONCORD);
    create(&nodes, "log", promise(Level::Eventual), Config::CONCORD);
    let lossy = Promise {
        durability: Durability::None,
        ..Promise::default()
    };
    let back = Config {
        write: WritePolicy::Back,
        ..Config::CONCORD
    };
    create(&nodes, "drafts", lossy, back);
    for app in [APP, "feed", "log", "drafts"] {
        let key = format!("{app}-k");
        assert!(is_applied(&write(&nodes, app, &key, "one")), "{app}");
        assert_eq!(text(read(&nodes, app, &key)), "one", "{app}");
        // A strict write is with the origin when it is acknowledged; one of drafts comes there later.
        let is_there = nodes.origin.get(&key).is_some();
        assert_eq!(is_there, app != "drafts", "{app}");
    }
    wait_for("the drafts", || nodes.origin.get("drafts-k").as_deref() == Some("one"));
    nodes.etcd.kill();
    for app in [APP, "feed", "log", "drafts"] {
        wait_for("the lease to end", || {
            tidemark_agent::show::app(nodes.agent(0), app).unwrap()["cachelets"][0]["is_leased"] == false
        });
        nodes.origin.put(&format!("{app}-k"), "elsewhere");
    }
    assert_eq!(text(read(&nodes, APP, "shop-k")), "elsewhere", "never stale");
    assert_eq!(
        text(read(&nodes, "feed", "feed-k")),
        "one",
        "stale by less than a minute"
    );
    assert_eq!(text(read(&nodes, "log", "log-k")), "one", "whatever was written");
}
