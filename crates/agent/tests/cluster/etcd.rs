//! Debian's etcd, started by a test and ended with it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running etcd.
pub(crate) struct EtcdServer {
    child: Option<Child>,
    folder: TempDir,
    client_port: u16,
    peer_port: u16,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl EtcdServer {
    pub(crate) fn start() -> Self {
        let mut etcd = Self {
            child: None,
            folder: tempfile::tempdir().unwrap(),
            client_port: free_port(),
            peer_port: free_port(),
        };
        etcd.resume();
        etcd
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Starts it again on its data.
    pub(crate) fn resume(&mut self) {
        let (client, peer) = (self.client_port, self.peer_port);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.data())
            .args([
                "--listen-client-urls",
                &url(client),
                "--advertise-client-urls",
                &url(client),
            ])
            .args([
                "--listen-peer-urls",
                &url(peer),
                "--initial-advertise-peer-urls",
                &url(peer),
            ])
            .args(["--initial-cluster", &format!("default={}", url(peer))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("etcd is needed: apt-get install etcd-server"));
        let until = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(("127.0.0.1", client)).is_err() {
            assert!(Instant::now() < until, "etcd does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it at once; its data stays.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Keeps its data as they are now.
    pub(crate) fn back_up(&mut self) {
        self.kill();
        copy(&self.data(), &self.folder.path().join("backup"));
        self.resume();
    }

    /// Comes back as it was at the backup.
    pub(crate) fn restore(&mut self) {
        self.kill();
        fs::remove_dir_all(self.data()).unwrap();
        copy(&self.folder.path().join("backup"), &self.data());
        self.resume();
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Stops its process, or lets it go on.
    pub(crate) fn pause(&self, is_paused: bool) {
        let signal = if is_paused { Signal::STOP } else { Signal::CONT };
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }
}

/// A folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}
