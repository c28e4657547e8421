//! Events of instances from something else than the local API.

use std::fs;
use std::sync::Arc;

use tidemark_agent::adapters::{Trace, feed};

use crate::nodes::{APP, Nodes, wait_for};

#[test]
fn a_trace_makes_instances_and_applications() {
    let nodes = Nodes::start(1);
    let pod = nodes.cgroups.path().join("pods/a");
    fs::create_dir_all(&pod).unwrap();
    fs::write(pod.join("memory.max"), "134217728").unwrap();
    fs::write(pod.join("memory.current"), "8388608").unwrap();
    let file = nodes.cgroups.path().join("trace.csv");
    let text = format!(
        "at_s,event,instance,app,function,cgroup,node\n\
         0,created,a,,,pods/a,n0\n\
         0,created,elsewhere,{APP},pay,,n7\n\
         1,identified,a,{APP},pay,,n0\n\
         2,identified,b,later,list,,n0\n\
         2,identified,c,not a name,list,,n0\n\
         3,paused,a,,,,n0\n"
    );
    fs::write(&file, text).unwrap();
    let agent = nodes.agent(0);
    let trace = Trace::read(&file, "n0", 10.0).unwrap();
    let played = agent.handle().spawn(trace.play(feed(agent)));
    assert_eq!(nodes.runtime.block_on(played).unwrap(), 5, "those of this node");
    let budget = || nodes.shown(0)["cachelets"][0]["budget_bytes"].as_u64();
    // 128 MiB less 8 MiB that are used and a sixteenth that is left alone.
    wait_for("the instance's unused memory", || budget() == Some((128 - 8 - 8) << 20));
    wait_for("an application that nobody knew", || {
        let later = tidemark_agent::show::app(agent, "later");
        later.is_some_and(|app| app["cachelets"][0]["is_member"] == true)
    });
    assert!(agent.app("not a name").is_none());
    let ended = || Arc::strong_count(agent);
    wait_for("nobody to hold the agent", || ended() == 1);
}
