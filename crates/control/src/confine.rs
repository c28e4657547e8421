//! A panic of the control plane ends the control plane alone, while the data plane goes on with its last plan.
//!
//! The program has to be built with unwinding. The confinement holds for the control plane's own code on its own
//! thread, which no client's command goes through. That thread also calls the data plane. A panic there may leave a
//! store in the middle of a change, and a program does better to end. [`is_confined`] tells its panic hook which of the
//! two it is.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CONFINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread would end the control plane and nothing else.
pub fn is_confined() -> bool {
    IS_CONFINED.get()
}

/// The side whose code panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Panicked {
    /// The control plane's own.
    #[error(
        "what is cached is served on by the last plan, and commands are refused until the program is started again"
    )]
    Control,
    /// The data plane's, and no panic hook ended the program.
    #[error("it happened in the data plane, of which a part may be half changed: end the program and start it again")]
    DataPlane,
}

/// Runs the control plane's own code. After a panic its data must not be used any more.
pub(crate) fn confine<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    IS_CONFINED.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    // A panic within `call_out` leaves it as it was there.
    let was_own = IS_CONFINED.replace(false);
    result.map_err(|_| {
        if was_own {
            Panicked::Control
        } else {
            Panicked::DataPlane
        }
    })
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
        assert_eq!(inside, Ok((true, false, true)));
        assert!(!is_confined() && !call_out(is_confined));
        // The flag is right also after a panic of either.
        assert_eq!(confine(|| -> () { panic!("a mistake") }), Err(Panicked::Control));
        assert!(!is_confined());
        assert_eq!(
            confine(|| call_out(|| -> () { panic!("a mistake") })),
            Err(Panicked::DataPlane)
        );
        assert!(!is_confined());
    }
}
