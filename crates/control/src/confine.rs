//! What a panic of the control plane ends: the control plane alone, while the data plane goes on with its last plan.
//!
//! That takes a program that is built with unwinding. It holds for the control plane's own code on its own thread, which no
//! client's command goes through; of the data plane, which that thread calls too, a panic may leave a store in the middle of
//! a change, and a program does better to end ([`is_confined`] tells its panic hook which of the two it is).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CONFINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread would end the control plane and nothing else.
pub fn is_confined() -> bool {
    IS_CONFINED.get()
}

/// Runs the control plane's own code; `None` if it panicked. What it works on must not be asked for anything any more then.
pub(crate) fn confine<T>(work: impl FnOnce() -> T) -> Option<T> {
    IS_CONFINED.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CONFINED.set(false);
    result.ok()
}

/// Calls the data plane.
pub(crate) fn call_out<T>(call: impl FnOnce() -> T) -> T {
    let was_confined = IS_CONFINED.replace(false);
    let result = call();
    IS_CONFINED.set(was_confined);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_code_on_the_own_thread_is_confined() {
        assert!(!is_confined());
        let inside = confine(|| (is_confined(), call_out(is_confined), is_confined()));
        assert_eq!(inside, Some((true, false, true)));
        assert!(!is_confined() && !call_out(is_confined));
        // Also after a panic, of either.
        assert_eq!(confine(|| panic!("a mistake")), None::<()>);
        assert!(!is_confined());
        assert_eq!(confine(|| call_out(|| panic!("a mistake"))), None::<()>);
        assert!(!is_confined());
    }
}
