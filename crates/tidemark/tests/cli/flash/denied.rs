//! A system that gives less than flash asks for: no io_uring, and no room on the disk.

use std::fs::File;

use super::*;
use crate::disk::Disk;

/// Runs the program behind it so that the system refuses io_uring, as containers often do: a filter of system calls answers
/// `io_uring_setup` (425 everywhere) with EPERM.
const WITHOUT_IO_URING: &str = r#"
import ctypes, os, struct, sys
program = ctypes.create_string_buffer(struct.pack("HBBI" * 4,
    0x20, 0, 0, 0,
    0x15, 0, 1, 425,
    0x06, 0, 0, 0x00050001,
    0x06, 0, 0, 0x7FFF0000))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
wanted = Filter(4, ctypes.addressof(program))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(wanted), 0, 0):
    sys.exit("no filter: %s" % os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A command that starts a server with flash there.
fn serve(mut command: Command, folder: &TempDir, flash: &Path) -> Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEMARK_")) {
        command.env_remove(name);
    }
    command
        .args(["serve", "--data", &data(folder), "--memory", MEMORY])
        .args(["--flash", flash.to_str().unwrap(), "--flash-size", FLASH])
        .envs(["MEMCACHED", "REDIS", "ADMIN"].map(|name| (format!("TIDEMARK_{name}"), "127.0.0.1:0")));
    command
}

#[test]
fn where_io_uring_is_denied_threads_read_and_write_flash() {
    let folder = tempfile::tempdir().unwrap();
    let flash = folder.path().join("flash");
    let mut command = Command::new("python3");
    let is_there = command
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("there is no Python to set the filter: nothing was tested");
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-c", WITHOUT_IO_URING, env!("CARGO_BIN_EXE_tidemark")]);
    let mut server = Server::started(serve(command, &folder, &flash), folder);
    server.wait_for_log("flash is open");
    assert!(server.log.contains("\"queue\":\"threads\""), "{}", server.log);
    let mut client = Client::connect(&server, "redis");
    client.fill(0..KEYS, 1);
    let found = client.count(0..KEYS, 1);
    // The hash is another one in each run, so that a few more may have the tag of another.
    assert!(found >= KEYS - KEYS / 100, "{found} of {KEYS}");
    assert_eq!(client.one("DEL key-1"), Reply::Number(1));
    assert_eq!(client.one("GET key-1"), NONE);
    server.stop();
}

#[test]
fn on_a_full_disk_flash_is_given_up_and_memory_serves_on() {
    let Some(disk) = Disk::new(8 << 10) else {
        eprintln!("no disk can be made here: nothing was tested");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| serve(disk.command(), &folder, &disk.folder().join(name));
    // A file that has no room is not made.
    let refused = start("new").output().unwrap();
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(FAILED), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    std::fs::remove_file(format!("{}/new", disk.path())).unwrap();

    // One with holes has none when it is written.
    let file = File::create(format!("{}/flash", disk.path())).unwrap();
    file.set_len(FLASH_BYTES).unwrap();
    let command = start("flash");
    let server = Server::started(command, folder);
    let mut client = Client::connect(&server, "redis");
    for version in 1..=2 {
        // No set fails, and no get answers with anything else than what was set.
        client.fill(0..KEYS, version);
        let found = client.count(0..KEYS, version);
        assert!(found > 1_000 && found < FOUND_MIN, "{found} of {KEYS}");
    }
    let shown = server.json(&["server", "show"]);
    assert_eq!(shown["flash_failed"], true, "{shown}");
    client.fill(0..100, 3);
    assert_eq!(client.count(0..100, 3), 100, "in memory");
    server.stop();
}
