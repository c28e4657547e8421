//! Backups of a server that runs and of one that was killed.

use serde_json::Value;

use super::*;

fn names(server: &Server) -> Vec<String> {
    let tenants = server.json(&["tenant", "list"]);
    let tenants = tenants["tenants"].as_array().unwrap().iter();
    tenants
        .map(|tenant| tenant["name"].as_str().unwrap().to_owned())
        .collect()
}

fn restored(archive: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["restore", archive, "--data", &data(&folder)]);
    assert!(output.status.success(), "{}", stderr(&output));
    Server::start_in(folder, &[])
}

#[test]
fn each_backup_of_a_busy_server_is_one_moment_of_it() {
    let mut server = Server::start(&["--ledger-period", "1s"]);
    let backups = tempfile::tempdir().unwrap();
    let path = |number: usize| backups.path().join(format!("{number}.tar")).display().to_string();
    let data = server.data();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..30 {
                let output = run(&["tenant", "create", &format!("t{number:02}"), "--data", &data]);
                assert!(output.status.success(), "{}", stderr(&output));
            }
        });
        for number in 0..6 {
            let output = run(&["backup", &path(number), "--data", &data, "--json"]);
            assert!(output.status.success(), "{}", stderr(&output));
            let backup: Value = serde_json::from_str(&stdout(&output)).unwrap();
            let files = backup["files"].as_array().unwrap();
            let has = |name: &str| files.iter().any(|file| file["name"] == name);
            assert!(
                has("state.sqlite") && has("ledger.sqlite") && has("admin.token"),
                "{backup}"
            );
        }
        writer.join().unwrap();
    });
    let all = names(&server);
    assert_eq!(all.len(), 31);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let after_kill = path(6);
    assert!(run(&["backup", &after_kill, "--data", &data]).status.success());
    let mut before = 0;
    for number in 0..7 {
        let found = names(&restored(&path(number)));
        assert_eq!(found, all.get(..found.len()).unwrap(), "backup {number}");
        assert!(found.len() >= before, "backup {number} is older than the one before it");
        before = found.len();
    }
    assert_eq!(before, 31, "a kill loses nothing");
}

#[test]
fn a_restore_is_refused_where_it_would_lose_something() {
    let server = Server::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("backup.tar").display().to_string();
    let data = server.data();
    assert!(run(&["backup", &archive, "--data", &data]).status.success());
    check_fails(
        &["backup", &archive, "--data", &data],
        FAILED,
        &[&archive, "exists already"],
    );
    check_fails(
        &["restore", &archive, "--data", &data, "--replace"],
        FAILED,
        &["in use by another Tidemark"],
    );
    let folder = tempfile::tempdir().unwrap();
    let other = super::data(&folder);
    check_fails(
        &["restore", "/dev/null", "--data", &other],
        FAILED,
        &["no backup of Tidemark"],
    );
    assert!(run(&["restore", &archive, "--data", &other]).status.success());
    check_fails(&["restore", &archive, "--data", &other], FAILED, &["--replace"]);
    assert!(
        run(&["restore", &archive, "--data", &other, "--replace"])
            .status
            .success()
    );
}
