//! The S3 address of real servers when something is gone: functions, or the server itself.

use std::sync::atomic::Ordering;

use hyper::body::Bytes;

use super::s3::{Bucket, client, emulator, functions_file, pattern, server_with, until_it_is_let_in};
use super::*;

const MIB: usize = 1 << 20;

#[test]
fn a_server_that_is_killed_finds_what_its_functions_hold() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (emulator, files) = (emulator(&runtime), tempfile::tempdir().unwrap());
    let names: Vec<String> = (0..6).map(|number| format!("pool-{number}")).collect();
    assert!(names.iter().all(|name| emulator.create(name, 128)));
    let more = "memory = \"128MiB\"\nwarm_every = \"never\"\nbackup_every = \"never\"\n";
    let file = functions_file(files.path(), &emulator, more);
    let (bucket, origin) = Bucket::start();
    let server = server_with(origin, &file, &[]);
    server.json(&["tenant", "create", "shop"]);
    let key = server.json(&["tenant", "s3-key", "shop", "--place", "functions"]);
    let object = Bytes::from(pattern(9 * MIB + 1, 3));
    let first = client(&[&server], &key);
    until_it_is_let_in(&runtime, &first);
    // One is read, and the other one written through the server.
    let written = Bytes::from(pattern(5 * MIB, 4));
    bucket.put("/photos/k", &object);
    let total = |server: &Server, name: &str| server.json(&["functions", "status"])["totals"][name].as_u64().unwrap();
    assert!(runtime.block_on(first.get("photos", "k", None)).unwrap() == object);
    runtime
        .block_on(first.put("photos", "written", written.clone()))
        .unwrap();
    let catalogue = Path::new(&server.data()).join("functions.sqlite");
    let rows = |table: &str| {
        let connection = rusqlite::Connection::open(&catalogue).unwrap();
        let count = format!("SELECT COUNT(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get::<_, u64>(0)).unwrap()
    };
    wait_until("the catalogue is written", || {
        rows("stripes") == 5 && rows("names") == 1
    });

    server.signal(Signal::KILL);
    let (_, _, folder) = server.stop();
    let origin = format!("s3://photos?endpoint=http://{origin}");
    let arguments = ["--s3", "127.0.0.1:0", "--origin", &origin, "--functions", &file];
    let server = Server::start_in(folder, &arguments);
    let again = client(&[&server], &key);
    let read = || runtime.block_on(again.get("photos", "k", None)).unwrap();
    let origin_reads = || bucket.reads.load(Ordering::Relaxed);
    let before = origin_reads();
    assert!(read() == object);
    // The version is asked for once, by a read of the first bytes.
    assert_eq!((origin_reads() - before, total(&server, "resets")), (1, 0));
    let before = origin_reads();
    assert!(runtime.block_on(again.get("photos", "written", None)).unwrap() == written);
    assert_eq!(origin_reads() - before, 1);
    assert_eq!(total(&server, "misses"), 0, "all but the versions came from functions");
    // As many go as there is parity, one more, and all at once: the origin has what cannot be computed.
    for (taken, is_lost) in [(2, false), (3, true), (6, true)] {
        let before = origin_reads();
        let gone: usize = names[..taken].iter().map(|name| emulator.reclaim(name)).sum();
        assert!(gone >= taken, "{gone} of {taken}");
        assert!(read() == object, "{taken} of 6");
        assert_eq!(origin_reads() > before, is_lost, "{taken} of 6");
        wait_until("what was lost is put back", || {
            let before = origin_reads();
            assert!(read() == object, "{taken} of 6");
            origin_reads() == before
        });
    }
    server.stop();
}
