//! `tidemark agent`: its sources of instances, what it shows, and what an operator fixes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::{Running, USAGE, check_fails, run, stderr, stdout, tidemark, wait_until};

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(super) fn etcd(folder: &Path) -> (Running, String) {
    let [client, peer] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let child = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = Running(child.expect("etcd is needed: apt-get install etcd-server"));
    let address = client.trim_start_matches("http://").to_owned();
    wait_until("etcd", || TcpStream::connect(&address).is_ok());
    (child, address)
}

/// An API server with one pod of Knative, and a watch without changes.
fn kubernetes() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next().filter(|line| !line.as_ref().is_ok_and(String::is_empty)) {
                asked.push_str(&line);
            }
            assert!(asked.contains("spec.nodeName%3Dn1"), "{asked}");
            let head = if asked.contains("watch=1") {
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()
            } else {
                let pod = json!({
                    "metadata": {"name": "pay-1", "namespace": "shop", "uid": "u-1", "labels": {"serving.knative.dev/service": "pay"}},
                    "spec": {"containers": []},
                    "status": {"phase": "Running", "podIP": "127.0.0.9"},
                });
                let list = json!({"metadata": {"resourceVersion": "7"}, "items": [pod]}).to_string();
                format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{list}",
                    list.len()
                )
            };
            stream.write_all(head.as_bytes()).unwrap();
            open.extend(asked.contains("watch=1").then_some(stream));
        }
    });
    format!("http://{address}")
}

#[test]
fn instances_are_followed_and_dimensions_are_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let (_etcd, etcd) = etcd(folder.path());
    let data = folder.path().join("data").display().to_string();
    let trace = folder.path().join("trace.csv");
    std::fs::write(&trace, "at_s,event,instance,app,function\n100,created,i-1,later,list\n").unwrap();
    let mut command = tidemark();
    command
        .args([
            "agent",
            "--origin",
            "s3://b?endpoint=http://127.0.0.1:9",
            "--etcd",
            &etcd,
        ])
        .args(["--peer", "127.0.0.1:0", "--s3", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args([
            "--memory",
            "64MiB",
            "--data",
            &data,
            "--domain",
            "shop",
            "--chooser",
            "off",
        ])
        .args(["--node", "n1", "--kubernetes", &kubernetes()])
        .args(["--trace", &trace.display().to_string(), "--trace-speed", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut agent = Running(command.spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(agent.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    if !ready.starts_with("ready ") {
        let mut said = String::new();
        agent.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("{ready}{said}");
    }
    let show = |app: &str| stdout(&run(&["agent", "show", app, "--data", &data]));
    wait_until("the application to have a view", || show("shop").contains("member "));
    let before = show("shop");
    for part in ["scope=application", "because        default", "chooser        off"] {
        assert!(before.contains(part), "{part}: {before}");
    }
    let pinned = run(&[
        "agent",
        "pin",
        "shop",
        "scope=instance",
        "coherence=update",
        "--data",
        &data,
    ]);
    assert!(pinned.status.success(), "{}", stderr(&pinned));
    assert!(
        stdout(&pinned).contains("scope=instance (pinned)"),
        "{}",
        stdout(&pinned)
    );
    // The pod is an instance, which has a cachelet of its own now.
    wait_until("the pod's cachelet", || {
        let shown = show("shop");
        shown.contains("shop/pay/u-1") && shown.contains("coherence=update (pinned)")
    });
    assert!(
        show("shop").contains("because        pinned by the operator"),
        "{}",
        show("shop")
    );
    let freed = run(&["agent", "pin", "shop", "scope=", "--data", &data]);
    assert!(
        !stdout(&freed).contains("scope=instance (pinned)"),
        "{}",
        stdout(&freed)
    );
    for (wrong, part) in [
        ("colour=blue", "scope, write, replacement"),
        ("replacement=mru", "fifo, lru, priority-lru, s3fifo"),
        // The application was promised that nothing is lost.
        ("write=back", "promised"),
    ] {
        let refused = run(&["agent", "pin", "shop", wrong, "--data", &data]);
        assert!(
            !refused.status.success() && stderr(&refused).contains(part),
            "{wrong}: {}",
            stderr(&refused)
        );
    }
    // A promise is made when an application is created.
    let created = run(&[
        "agent",
        "create",
        "drafts",
        "--consistency",
        "bounded:500ms",
        "--durability",
        "none",
        "--data",
        &data,
    ]);
    assert!(created.status.success(), "{}", stderr(&created));
    assert!(
        stdout(&created).contains("promise        bounded:500000us durability none"),
        "{}",
        stdout(&created)
    );
    let back = run(&["agent", "pin", "drafts", "write=back", "--data", &data]);
    assert!(back.status.success(), "{}", stderr(&back));
    for (app, flag, value, part) in [
        ("drafts", "--durability", "strict", "another promise"),
        ("more", "--consistency", "strong", "linearizable, bounded:T, eventual"),
        ("more", "--durability", "some", "strict, none"),
    ] {
        let refused = run(&["agent", "create", app, flag, value, "--data", &data]);
        assert!(
            !refused.status.success() && stderr(&refused).contains(part),
            "{app} {flag} {value}: {}",
            stderr(&refused)
        );
    }
    // The same as a tenant, which it is on every node.
    let with = |more: &[&str]| {
        run(&[
            &["tenant", "create", "log", "--consistency", "eventual", "--data", &data],
            more,
        ]
        .concat())
    };
    let refused = with(&["--cap", "1MiB"]);
    assert_eq!(refused.status.code(), Some(USAGE), "{}", stderr(&refused));
    let created = with(&[]);
    let shown = format!("{}{}", stdout(&created), stderr(&created));
    assert!(shown.contains("promise        eventual durability strict"), "{shown}");
    wait_until("the tenant", || {
        run(&["tenant", "set", "log", "--cap", "1MiB", "--data", &data])
            .status
            .success()
    });
    wait_until("the trace's application", || {
        stdout(&run(&["agent", "show", "--data", &data])).contains("later")
    });
}

#[test]
fn sources_of_instances_are_checked_before_anything_starts() {
    let start = [
        "agent",
        "--origin",
        "s3://b?endpoint=http://127.0.0.1:9",
        "--etcd",
        "127.0.0.1:9",
    ];
    let with = |more: &[&'static str]| [&start[..], more].concat();
    check_fails(
        &with(&["--kubernetes", "10.0.0.1:6443"]),
        USAGE,
        &["--kubernetes", "https://HOST:PORT"],
    );
    check_fails(
        &with(&["--kubernetes", "http://10.0.0.1", "--kubernetes-token", "/none"]),
        USAGE,
        &["--kubernetes", "/none"],
    );
    check_fails(
        &with(&["--trace", "/none.csv"]),
        USAGE,
        &["--trace /none.csv", "No such file"],
    );
    for more in [
        &["--trace", "/none.csv", "--trace-speed", "0"][..],
        &["--trace-speed", "2"],
        &["--kubernetes-ca", "/none"],
    ] {
        assert_eq!(run(&with(more)).status.code(), Some(USAGE), "{more:?}");
    }
}
