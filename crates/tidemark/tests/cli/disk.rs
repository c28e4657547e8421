//! A small disk of a test's own.

use std::fs::File;
use std::io::Write as _;

use super::*;

/// A disk in a mount namespace that only the processes in it see; it ends with the test.
pub(super) struct Disk {
    /// Stands in the namespace until its standard input ends.
    holder: Child,
    folder: TempDir,
}

impl Disk {
    /// One of so many KiB; `None` where the system lets nobody make one.
    pub(super) fn new(kib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("mount -t tmpfs -o size={kib}k,mode=777 tmpfs \"$0\" && echo mounted && exec cat");
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        let disk = Self { holder, folder };
        (said == "mounted\n").then_some(disk)
    }

    /// The path at which this process finds it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/root{}", self.holder.id(), self.folder.path().display())
    }

    /// The path at which a Tidemark finds it that sees it.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A Tidemark that sees it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--user", "--mount", "--preserve-credentials", "--target"])
            .arg(self.holder.id().to_string())
            .arg(env!("CARGO_BIN_EXE_tidemark"));
        command
    }

    /// Until nothing more can be written.
    pub(super) fn fill(&self) {
        let mut file = File::create(format!("{}/rest", self.path())).unwrap();
        let error = (0..1000).find_map(|_| file.write_all(&[0; 1024]).err());
        assert_eq!(error.unwrap().kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A test that failed does not care how it ends.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
