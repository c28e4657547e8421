//! The memory and the processors of this machine.

use std::fs;
use std::path::Path;

use crate::options::{Machine, default_data_folder};

/// The machine that the process runs on.
pub(in crate::commands) fn this() -> Machine {
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory_bytes(Path::new("/")).unwrap_or(u64::MAX),
        data_folder: default_data_folder(|name| std::env::var_os(name)),
    }
}

/// Physical memory, or the least that a control group of this process may take where that is less. `None` where the
/// system says neither: then nothing is too much. `root` is `/`, or a folder that stands for it.
fn memory_bytes(root: &Path) -> Option<u64> {
    physical_bytes(root).into_iter().chain(group_limits(root)).min()
}

fn physical_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The limits of the process's control groups and of those above them (cgroups(7), `/proc/PID/cgroup`): `memory.max` in
/// version 2, `memory.limit_in_bytes` in version 1. In a container the named group may lie outside of the mount; then
/// the mount's root is the container's own.
fn group_limits(root: &Path) -> Vec<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mount = root.join(mount);
        for above in Path::new(group.trim_start_matches('/')).ancestors() {
            // No limit is `max` in version 2, and more than there is in version 1.
            let text = fs::read_to_string(mount.join(above).join(file));
            limits.extend(text.ok().and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    limits
}

/// The machine's name in its network; `localhost` where the system does not say it.
pub(in crate::commands) fn name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost" } else { name }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = this();
        assert!(machine.cores > 0);
        assert!(
            ((64 << 20)..u64::MAX).contains(&machine.memory_bytes),
            "{}",
            machine.memory_bytes
        );
    }

    #[test]
    fn a_control_group_may_have_less_than_the_machine() {
        const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");
        for (files, expected) in [
            (vec![], None),
            (vec![MEMINFO], Some(8 << 30)),
            (
                vec![
                    MEMINFO,
                    ("proc/self/cgroup", "0::/pod/app\n"),
                    ("sys/fs/cgroup/pod/app/memory.max", "max\n"),
                    ("sys/fs/cgroup/pod/memory.max", "2147483648\n"),
                ],
                Some(2 << 30),
            ),
            (
                // In a container: its group's folder is the root of its view.
                vec![
                    MEMINFO,
                    ("proc/self/cgroup", "0::/../elsewhere\n"),
                    ("sys/fs/cgroup/memory.max", "536870912\n"),
                ],
                Some(512 << 20),
            ),
            (
                vec![
                    MEMINFO,
                    ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/7\n0::/\n"),
                    ("sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "1073741824\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ],
                Some(1 << 30),
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (name, text) in &files {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(memory_bytes(root.path()), expected, "{files:?}");
        }
    }
}
