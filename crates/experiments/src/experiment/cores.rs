//! Which core does what: servers on one, the load on another, so that neither waits for the other's time slice; or both on all, where
//! there are more processes than cores.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// How many this process might use when it began.
    pub count: usize,
    all: CpuSet,
    server: CpuSet,
    load: CpuSet,
}

impl Cores {
    /// The last core for servers, the one before it for the load: interrupts of devices mostly come to the first ones.
    /// Both share the only one there is.
    ///
    /// # Errors
    /// The system does not say which cores there are.
    pub fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut last = (0..CpuSet::MAX_CPU).rev().filter(|core| allowed.is_set(*core));
        let server = last.next().unwrap_or(0);
        let load = last.next().unwrap_or(server);
        Ok(Self {
            count: usize::try_from(allowed.count()).unwrap_or(1),
            all: allowed,
            server: only(server),
            load: only(load),
        })
    }

    /// Servers and load on all of them, where the system places them.
    pub(super) fn shared(self) -> Self {
        Self {
            server: self.all,
            load: self.all,
            ..self
        }
    }

    /// Binds this thread, and the threads that it starts from now on, to the load's cores.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_load(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.load)?)
    }

    /// Does something, such as starting a process, bound to the servers' cores; then this thread is the load's again.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn on_server_core<T>(&self, action: impl FnOnce() -> T) -> io::Result<T> {
        sched_setaffinity(None, &self.server)?;
        let done = action();
        self.bind_load()?;
        Ok(done)
    }
}

fn only(core: usize) -> CpuSet {
    let mut only = CpuSet::new();
    only.set(core);
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own: the binding is the thread's.
    #[test]
    fn a_process_is_started_on_the_servers_core_and_the_load_returns_to_its_own() {
        let allowed = || sched_getaffinity(None).unwrap();
        std::thread::spawn(move || {
            let (cores, before) = (Cores::choose().unwrap(), allowed());
            assert_eq!(cores.count, before.count() as usize);
            assert_eq!(cores.server == cores.load, cores.count == 1);
            assert_eq!(cores.on_server_core(allowed).unwrap(), cores.server);
            assert_eq!((allowed(), cores.load.count()), (cores.load, 1));
            let shared = cores.shared();
            assert_eq!(shared.on_server_core(allowed).unwrap(), before);
            assert_eq!(allowed(), before);
        })
        .join()
        .unwrap();
    }
}
