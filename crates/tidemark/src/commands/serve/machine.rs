//! What this machine has.

use crate::options::{Machine, default_data_folder};

/// The machine that the process runs on.
pub(super) fn this() -> Machine {
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory_bytes().unwrap_or(u64::MAX),
        data_folder: default_data_folder(|name| std::env::var_os(name)),
    }
}

/// Physical memory; `None` where the system has no `/proc/meminfo`: then nothing is too much.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The machine's name in its network; `localhost` where the system does not say it.
pub(super) fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
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
}
