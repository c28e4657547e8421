//! The memory use of a control group, and its limit: version 2 of the hierarchy or version 1, whichever the host has.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path};

/// Above this, version 1 means that there is no limit.
const NO_LIMIT_BYTES: u64 = 1 << 62;
/// A number and a newline.
const NUMBER_BYTES: usize = 32;

/// A control group's files, open: reading one again is one system call.
#[derive(Debug)]
pub struct Group {
    used: File,
    limit: File,
}

/// The memory use of a control group, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// In bytes.
    pub used_bytes: u64,
    /// In bytes; nothing if there is no limit.
    pub limit_bytes: Option<u64>,
}

impl Group {
    /// The group of a folder below the hierarchy's root, such as `/sys/fs/cgroup`.
    ///
    /// # Errors
    /// The folder leads out of the hierarchy, or has files of neither version.
    pub fn open(root: &Path, folder: &str) -> io::Result<Self> {
        let relative = Path::new(folder.trim_start_matches('/'));
        if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let open = |folder: &Path, used: &str, limit: &str| {
            Ok::<_, io::Error>(Self {
                used: File::open(folder.join(used))?,
                limit: File::open(folder.join(limit))?,
            })
        };
        let unified = root.join(relative);
        open(&unified, "memory.current", "memory.max").or_else(|_| {
            let split = root.join("memory").join(relative);
            open(&split, "memory.usage_in_bytes", "memory.limit_in_bytes")
        })
    }

    /// The use now.
    ///
    /// # Errors
    /// The group is gone, or its files have no numbers.
    pub fn read(&self) -> io::Result<Memory> {
        let used_bytes = number(&self.used)?.ok_or(io::ErrorKind::InvalidData)?;
        let limit_bytes = number(&self.limit)?.filter(|bytes| *bytes < NO_LIMIT_BYTES);
        Ok(Memory {
            used_bytes,
            limit_bytes,
        })
    }
}

/// The number of a file; nothing for `max`.
fn number(file: &File) -> io::Result<Option<u64>> {
    let mut text = [0; NUMBER_BYTES];
    let length = file.read_at(&mut text, 0)?;
    let text = std::str::from_utf8(&text[..length]).map_err(|_| io::ErrorKind::InvalidData)?;
    match text.trim() {
        "max" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(files: &[(&str, &str)], expected: Option<(u64, Option<u64>)>) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let read = Group::open(root.path(), "pods/a").and_then(|group| group.read()).ok();
        let read = read.map(|memory| (memory.used_bytes, memory.limit_bytes));
        assert_eq!(read, expected, "{files:?}");
    }

    #[test]
    fn both_versions_are_read() {
        check(
            &[
                ("pods/a/memory.current", "5000\n"),
                ("pods/a/memory.max", "134217728\n"),
            ],
            Some((5_000, Some(134_217_728))),
        );
        check(
            &[("pods/a/memory.current", "5000\n"), ("pods/a/memory.max", "max\n")],
            Some((5_000, None)),
        );
        check(
            &[
                ("memory/pods/a/memory.usage_in_bytes", "7\n"),
                ("memory/pods/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ],
            Some((7, None)),
        );
        check(
            &[("pods/a/memory.current", "much\n"), ("pods/a/memory.max", "1\n")],
            None,
        );
        check(&[], None);
    }

    #[test]
    fn no_folder_leads_out_of_the_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        let error = Group::open(&root.path().join("inner"), "../outside").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
