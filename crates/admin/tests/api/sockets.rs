//! The sockets that the API listens on.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn silent_connections_leave_room_and_the_socket_is_its_owner_s() {
    let scene = start();
    let mode = std::fs::metadata(scene.folder.path().join("admin.sock"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // More than TCP has places for: the Unix socket has its own.
    let silent: Vec<TcpStream> = (0..100).map(|_| scene.tcp()).collect();
    assert_eq!(scene.get("/healthz").status, 200);
    drop(silent);
    assert_eq!(scene.over_tcp("/healthz", "").status, 200);
    scene.stop();
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    drop(UnixListener::bind(&path).unwrap());
    let bound = bind(folder.path()).unwrap();
    assert!(bound.new_token().is_some());
    let error = bind(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(&path.display().to_string()) && error.contains("another server"),
        "{error}"
    );
    drop(bound);
    assert!(!path.exists());
    assert!(
        bind(folder.path()).unwrap().new_token().is_none(),
        "the token is shown once"
    );
}

#[test]
fn a_taken_address_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = AdminConfig {
        address: Some(address),
        folder: folder.path().into(),
        open_metrics: false,
        reports: Default::default(),
    };
    let error = BoundAdmin::bind(&config).unwrap_err();
    assert!(
        matches!(&error, AdminError::Bind { address: named, .. } if *named == address),
        "{error}"
    );
    assert!(
        !folder.path().join("admin.token").exists(),
        "a start that fails makes no token that nobody is shown"
    );
}
