//! How much of a core a thread that serves no clients takes from those that do.

use std::io;
use std::time::Duration;

/// Half as far down as a thread can go: a tenth of a core that others want, too.
const NICENESS: i32 = 10;
/// The least time that a thread may run before the system looks whether another one should (since Linux 6.12; before,
/// the value is ignored). With the usual 3 ms, others on the core would wait as long, however nice the thread is.
const SLICE_NANOS: u64 = 100_000;

/// `struct sched_attr` of sched_setattr(2), in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: usize = 48;
const _: () = assert!(size_of::<Attributes>() == SIZE, "as the system knows it");

/// Makes the calling thread yield to others, in small pieces.
///
/// # Errors
/// The system refuses; the thread then runs as the others do.
pub fn step_back() -> io::Result<()> {
    schedule(Attributes {
        policy: libc::SCHED_OTHER as u32,
        nice: NICENESS,
        runtime: SLICE_NANOS,
        ..Attributes::default()
    })
}

fn schedule(attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes {
        size: SIZE as u32,
        ..attributes
    };
    // SAFETY: the system reads `size` bytes behind the pointer, which are there, and changes nothing but how the calling
    // thread (0) is scheduled.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// CPU time of the calling thread since it began: the time that it waited for a core is not in it. Zero where the
/// system does not tell.
pub fn thread_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of the program since it began. Zero where the system does not tell.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes a time there and nothing else; on failure the zeros stay.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Allocations of this size or more are mappings of their own, so that the system has them back once they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 1 << 20;

/// From now on a large allocation of this process, such as a snapshot of ten thousand tenants, goes back to the system when it is
/// freed. By itself the C library keeps the room of the largest one that was freed. For a server's start: a program that embeds the
/// store decides this for itself.
pub fn return_large_allocations() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it changes a parameter of the allocator, whatever threads allocate meanwhile; no memory is touched.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Gives the room of freed allocations back to the system, which takes some milliseconds with a large heap. The pool's memory is none
/// of it.
pub fn return_freed_allocations() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the allocator gives pages back that no allocation is in, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_steps_back() {
        // SAFETY: it only reads how the calling thread is scheduled.
        let niceness = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = niceness();
        let of_thread = std::thread::spawn(move || {
            // A process that is nicer already may not become less so.
            let is_refused = step_back().is_err();
            (is_refused, niceness())
        });
        let (is_refused, after) = of_thread.join().unwrap();
        assert!(is_refused && before > NICENESS || after == NICENESS, "{before} {after}");
        assert_eq!(niceness(), before);
    }

    #[test]
    fn work_takes_time_and_waiting_none() {
        let before = thread_cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        let waited = thread_cpu_time() - before;
        assert!(waited < Duration::from_millis(50), "{waited:?}");
        let mut sum = 0_u64;
        while thread_cpu_time() - before < Duration::from_millis(60) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
