//! The adapter against a server that answers as an API server does, in the order that a test says.

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::instances::Happening;

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server's way with a request.
enum Answer {
    /// A whole answer.
    Whole(u16, Value),
    /// The lines of a watch, and its end.
    Watch(Vec<Value>, End),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// As it should be.
    InTime,
    /// In the middle of a line.
    Broken,
    /// It goes on.
    Open,
}

/// A pod of Knative, with the fields that such a pod has beside those that are read.
fn pod(name: &str, version: u32, phase: &str) -> Value {
    let mut pod = json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": format!("pay-00001-deployment-{name}"),
            "generateName": "pay-00001-deployment-",
            "namespace": "shop",
            "uid": format!("0c1d-{name}"),
            "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-11-27T10:00:00Z",
            "labels": {
                "app": "pay-00001",
                "serving.knative.dev/configuration": "pay",
                "serving.knative.dev/revision": "pay-00001",
                "serving.knative.dev/service": "pay",
            },
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "pay", "uid": "9", "controller": true}],
        },
        "spec": {
            "containers": [
                {"name": "user-container", "image": "pay", "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m"}}},
                {"name": "queue-proxy", "image": "queue", "resources": {"limits": {"memory": "32Mi"}}},
            ],
            "nodeName": "n1",
        },
        "status": {"phase": phase, "qosClass": "Burstable"},
    });
    if phase == "Running" {
        pod["status"]["podIP"] = json!("10.1.0.9");
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastProbeTime": null}]);
    }
    pod
}

fn list(version: u32, items: &[Value]) -> Answer {
    let page = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "items": items});
    Answer::Whole(200, page)
}

fn change(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: u32) -> Value {
    let object = json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string(), "creationTimestamp": null},
        "spec": {"containers": null},
        "status": {},
    });
    change("BOOKMARK", &object)
}

fn expired() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410})
}

#[derive(Default)]
struct Script {
    answers: VecDeque<Answer>,
    /// Path and token of each request.
    asked: Vec<String>,
}

struct Server {
    script: Arc<Mutex<Script>>,
    address: SocketAddr,
}

impl Server {
    async fn start(answers: Vec<Answer>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Script {
            answers: answers.into(),
            asked: Vec::new(),
        };
        let script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, script).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, script).await;
                            }
                        }
                    }
                });
            }
        });
        Self { script, address }
    }

    fn asked(&self) -> Vec<String> {
        self.script.lock().unwrap().asked.clone()
    }
}

/// One request, and its answer.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: Arc<Mutex<Script>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let token = head
        .lines()
        .find_map(|line| line.strip_prefix("authorization: "))
        .unwrap_or("no token");
    let answer = {
        let mut script = script.lock().unwrap();
        script.asked.push(format!("{path} {token}"));
        script.answers.pop_front()
    };
    match answer {
        Some(Answer::Whole(status, body)) => {
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status} So\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
        Some(Answer::Watch(lines, end)) => {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()).await;
            for line in lines {
                let line = format!("{line}\n");
                // Pieces do not end where lines do.
                let (first, second) = line.split_at(line.len() / 2);
                for piece in [first, second] {
                    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
                    let _ = stream.write_all(chunk.as_bytes()).await;
                }
            }
            match end {
                End::InTime => drop(stream.write_all(b"0\r\n\r\n").await),
                End::Broken => drop(stream.write_all(b"8\r\n{\"type\":\r\n").await),
                End::Open => {
                    let _ = stream.flush().await;
                    std::future::pending::<()>().await;
                }
            }
        }
        None => std::future::pending::<()>().await,
    }
    let _ = stream.flush().await;
}

/// An adapter for this server, and its events.
fn followed(url: String, token: Option<&Path>, ca: Option<&Path>, root: &Path) -> mpsc::Receiver<LifeEvent> {
    let config = KubernetesConfig {
        url,
        token_file: token.map(Path::to_owned),
        ca_file: ca.map(Path::to_owned),
        node: "n1".into(),
        cgroup_root: root.to_owned(),
    };
    let (feed, events) = mpsc::channel(8);
    tokio::spawn(Kubernetes::new(&config).unwrap().run(feed));
    events
}

async fn next(events: &mut mpsc::Receiver<LifeEvent>) -> (Happening, String) {
    let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("an event");
    let event = event.unwrap();
    assert_eq!(
        (
            event.app.as_deref(),
            event.function.as_deref(),
            event.memory_limit_bytes
        ),
        (Some("shop"), Some("pay"), Some(160 << 20)),
    );
    (event.event, event.instance.trim_start_matches("0c1d-").to_owned())
}

#[tokio::test]
async fn pods_are_followed_through_ends_breaks_and_versions_that_are_too_old() {
    use Happening::{Created, Identified, Removed};
    let mut other = pod("web", 90, "Running");
    other["metadata"]["labels"] = json!({"app": "web"});
    let answers = vec![
        list(100, &[pod("a", 95, "Pending"), other]),
        Answer::Watch(
            vec![
                change("MODIFIED", &pod("a", 101, "Running")),
                change("MODIFIED", &pod("a", 102, "Running")),
                change("ADDED", &pod("b", 103, "Running")),
                bookmark(110),
            ],
            End::InTime,
        ),
        Answer::Watch(vec![change("DELETED", &pod("a", 111, "Running"))], End::Broken),
        // The server is away, and refuses then: nothing is lost by that.
        Answer::Whole(503, json!({"kind": "Status", "code": 503})),
        Answer::Watch(vec![change("ADDED", &pod("c", 112, "Running"))], End::InTime),
        Answer::Whole(410, expired()),
        list(300, &[pod("c", 112, "Running"), pod("d", 250, "Running")]),
        Answer::Watch(
            vec![
                change("MODIFIED", &pod("c", 301, "Succeeded")),
                change("ERROR", &expired()),
            ],
            End::InTime,
        ),
        list(400, &[]),
        Answer::Watch(vec![change("ADDED", &pod("e", 401, "Running"))], End::Open),
    ];
    let server = Server::start(answers, None).await;
    let root = tempfile::tempdir().unwrap();
    let token = root.path().join("token");
    fs::write(&token, "first\n").unwrap();
    let mut events = followed(format!("http://{}/", server.address), Some(&token), None, root.path());
    assert_eq!(next(&mut events).await, (Created, "a".into()));
    fs::write(&token, "second\n").unwrap();
    for (happening, name) in [
        (Identified, "a"),
        (Created, "b"),
        (Removed, "a"),
        (Created, "c"),
        // It went while nobody watched.
        (Removed, "b"),
        (Created, "d"),
        (Removed, "c"),
        (Removed, "d"),
        (Created, "e"),
    ] {
        assert_eq!(next(&mut events).await, (happening, name.into()));
    }
    let asked = server.asked();
    let watched: Vec<_> = asked
        .iter()
        .map(|path| path.split_once("resourceVersion=").map(|(_, version)| version))
        .map(|version| version.and_then(|version| version.split(' ').next()))
        .collect();
    assert_eq!(
        watched,
        [
            None,
            Some("100"),
            Some("110"),
            Some("111"),
            Some("111"),
            Some("112"),
            None,
            Some("300"),
            None,
            Some("400"),
        ]
    );
    assert!(asked.iter().all(|path| path.starts_with("/api/v1/pods?")), "{asked:?}");
    assert!(
        asked
            .iter()
            .all(|path| path.contains("fieldSelector=spec.nodeName%3Dn1")),
        "{asked:?}"
    );
    assert!(asked[0].ends_with(" Bearer first"), "{asked:?}");
    assert!(asked[9].ends_with(" Bearer second"), "a token is renewed: {asked:?}");
}

#[tokio::test]
async fn a_long_list_comes_in_parts() {
    let part = |items: &[Value], rest: &str| {
        Answer::Whole(
            200,
            json!({"metadata": {"resourceVersion": "7", "continue": rest}, "items": items}),
        )
    };
    let answers = vec![
        part(&[pod("a", 1, "Running")], "more=="),
        // The place in the list is too old: it begins anew.
        Answer::Whole(410, expired()),
        part(&[pod("a", 1, "Running")], "more=="),
        part(&[pod("b", 2, "Running")], ""),
        Answer::Watch(vec![bookmark(8)], End::Open),
    ];
    let server = Server::start(answers, None).await;
    let root = tempfile::tempdir().unwrap();
    let mut events = followed(format!("http://{}", server.address), None, None, root.path());
    assert_eq!(next(&mut events).await, (Happening::Created, "a".into()));
    assert_eq!(next(&mut events).await, (Happening::Created, "b".into()));
    let asked = server.asked();
    assert!(asked[3].contains("&continue=more%3D%3D"), "{asked:?}");
    assert!(asked[0].ends_with(" no token"), "{asked:?}");
}

#[tokio::test]
async fn a_server_is_known_by_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "other"] {
        certificate(folder.path(), name);
    }
    let file = |name: &str| folder.path().join(name);
    let certificate = CertificateDer::from_pem_file(file("own.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("own.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).unwrap();
    let answers = vec![list(1, &[pod("a", 1, "Running")])];
    let server = Server::start(answers, Some(TlsAcceptor::from(Arc::new(config)))).await;
    let url = format!("https://{}", server.address);
    let other = KubernetesConfig {
        url: url.clone(),
        token_file: None,
        ca_file: Some(file("other.pem")),
        node: "n1".into(),
        cgroup_root: folder.path().to_owned(),
    };
    let refused = Api::new(&other).unwrap().list().await.err().unwrap();
    assert!(matches!(refused, KubernetesError::Unreachable(_)), "{refused}");
    let mut events = followed(url, None, Some(&file("own.pem")), folder.path());
    assert_eq!(next(&mut events).await, (Happening::Created, "a".into()));
}

/// A certificate of its own for 127.0.0.1, `NAME.pem`, and its key, `NAME.key`.
fn certificate(folder: &Path, name: &str) {
    let said = "[req]\ndistinguished_name=name\nx509_extensions=more\nprompt=no\n[name]\nCN=api\n\
                [more]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n";
    fs::write(folder.join("request"), said).unwrap();
    let made = Command::new("openssl")
        .current_dir(folder)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-config", "request", "-days", "2"])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn mistakes_are_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let good = KubernetesConfig {
        url: "https://10.0.0.1:6443".into(),
        token_file: None,
        ca_file: None,
        node: "n1".into(),
        cgroup_root: folder.path().to_owned(),
    };
    let wrong = |config: KubernetesConfig| Kubernetes::new(&config).unwrap_err().to_string();
    for url in ["10.0.0.1:6443", "ftp://10.0.0.1", "http://10.0.0.1/?a=b", ""] {
        let url = url.to_owned();
        assert!(wrong(KubernetesConfig { url, ..good.clone() }).contains("https://HOST:PORT"));
    }
    let token_file = Some(folder.path().join("none"));
    let ca_file = Some(empty);
    let ca = KubernetesConfig {
        ca_file,
        ..good.clone()
    };
    assert!(wrong(ca).contains("no certificate"));
    let token = KubernetesConfig {
        token_file,
        url: "http://10.0.0.1:8001".into(),
        ..good
    };
    assert!(wrong(token).contains("none"));
}

#[test]
fn rests_grow_and_differ() {
    assert!(rest(0, 0) >= REST_FIRST / 2 && rest(0, u32::MAX) <= REST_FIRST);
    assert!(rest(3, 0) > rest(0, u32::MAX));
    assert_ne!(rest(5, 0), rest(5, u32::MAX));
    for failures in [9, 31, 32, u32::MAX] {
        assert!(rest(failures, 0) >= REST_MAX / 2 && rest(failures, u32::MAX) <= REST_MAX);
    }
}
