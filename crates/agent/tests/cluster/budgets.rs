//! Copies live in the memory that instances do not use, and give it back when it is needed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use tidemark_agent::instances::{Happening, LifeEvent};

use crate::nodes::{APP, Nodes, is_applied, wait_for};

pub(crate) const LIMIT_BYTES: u64 = 128 << 20;
const VALUE_BYTES: usize = 64 << 10;

/// An instance of the application at node 0, with its folder among the control groups.
pub(crate) fn happens(nodes: &Nodes, what: Happening, instance: &str) {
    let event = LifeEvent {
        event: what,
        instance: instance.into(),
        app: Some(APP.into()),
        function: Some("pay".into()),
        address: None,
        cgroup: Some(format!("pods/{instance}")),
        memory_limit_bytes: None,
    };
    let agent = Arc::clone(nodes.agent(0));
    let taken = nodes.agent(0).handle().spawn(async move { agent.take(event).await });
    nodes.runtime.block_on(taken).unwrap().unwrap();
}

pub(crate) fn uses(nodes: &Nodes, instance: &str, used_bytes: u64) {
    let folder = nodes.cgroups.path().join("pods").join(instance);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("memory.max"), LIMIT_BYTES.to_string()).unwrap();
    // As the system does it: whoever has the file open sees the new number, and never a part of it.
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(folder.join("memory.current"));
    let text = format!("{used_bytes:>12}\n");
    file.unwrap().write_all_at(text.as_bytes(), 0).unwrap();
}

fn bytes(nodes: &Nodes) -> (u64, u64) {
    let cachelet = &nodes.shown(0)["cachelets"][0];
    let of = |name: &str| cachelet[name].as_u64().unwrap();
    (of("used_bytes"), of("budget_bytes"))
}

#[test]
fn what_instances_need_is_given_back_while_functions_go_on() {
    let nodes = Nodes::start(2);
    assert_eq!(bytes(&nodes).1, 64 << 20, "no instance is known");
    uses(&nodes, "a", 8 << 20);
    uses(&nodes, "b", 8 << 20);
    happens(&nodes, Happening::Created, "a");
    // 128 MiB less 8 MiB that are used and a sixteenth that is left alone.
    wait_for("the budget of one", || bytes(&nodes).1 == (128 - 8 - 8) << 20);
    happens(&nodes, Happening::Created, "b");
    wait_for("the budget of two", || bytes(&nodes).1 == 2 * ((128 - 8 - 8) << 20));
    let text = "x".repeat(VALUE_BYTES);
    for number in 0..(80 << 20) / VALUE_BYTES {
        assert!(is_applied(&nodes.write(0, &format!("k{number}"), &text)));
        nodes.read(0, &format!("k{number}")).unwrap();
    }
    let filled = bytes(&nodes).0;
    assert!(filled > 64 << 20, "{filled}");
    // Both need what is left, but for 8 MiB each.
    let from = Instant::now();
    uses(&nodes, "a", 112 << 20);
    uses(&nodes, "b", 112 << 20);
    wait_for("64 MiB", || bytes(&nodes).0 <= 16 << 20);
    println!(
        "{} MiB were given back after {:?}",
        (filled - bytes(&nodes).0) >> 20,
        from.elapsed()
    );
    // Down to nothing, under load.
    uses(&nodes, "a", LIMIT_BYTES);
    uses(&nodes, "b", LIMIT_BYTES);
    wait_for("nothing to be left", || bytes(&nodes) == (0, 0));
    for turn in 0..20 {
        let value = format!("{turn}");
        assert!(is_applied(&nodes.write(turn % 2, "k0", &value)));
        assert_eq!(nodes.read(0, "k0").unwrap(), Some(value.clone()));
        assert_eq!(nodes.read(1, "k0").unwrap(), Some(value));
    }
    assert_eq!(bytes(&nodes), (0, 0));
    // One is gone: its memory is not the application's any more. The other one needs it no longer.
    happens(&nodes, Happening::Removed, "a");
    uses(&nodes, "b", 8 << 20);
    wait_for("the budget of the one that is left", || {
        bytes(&nodes).1 == (128 - 8 - 8) << 20
    });
    happens(&nodes, Happening::Removed, "b");
    wait_for("the budget without instances", || bytes(&nodes).1 == 64 << 20);
}
