//! Says in the log when the control plane stands still, and when it plans again.
//!
//! The admin thread looks, because the control thread cannot say of itself that it hangs. Each shift is said once.

use std::time::Duration;

use tidemark_control::{ControlHandle, Readiness};
use tokio::sync::watch;

/// A third of the least age that makes a control plane stale. A look reads two numbers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks after the control plane until the server stops.
pub(crate) async fn watch(control: ControlHandle, mut stopped: watch::Receiver<()>) {
    let mut state = State::default();
    loop {
        // The sender is only ever dropped: `changed` returns when it is.
        tokio::select! {
            _ = stopped.changed() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let readiness = control.readiness();
        match state.shift(&readiness) {
            Some(Shift::Stale) => tracing::error!(
                age_seconds = readiness.age_seconds,
                "the control plane stands still: the data plane serves on its last plan"
            ),
            Some(Shift::Back) => tracing::info!("the control plane plans again"),
            None => {}
        }
    }
}

/// The last observation.
#[derive(Debug, Default)]
struct State {
    is_stale: bool,
}

/// The message to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shift {
    Stale,
    Back,
}

impl State {
    fn shift(&mut self, readiness: &Readiness) -> Option<Shift> {
        let was_stale = std::mem::replace(&mut self.is_stale, readiness.control == "stale");
        match (was_stale, self.is_stale) {
            (false, true) => Some(Shift::Stale),
            (true, false) => Some(Shift::Back),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shift_is_said_once() {
        let mut state = State::default();
        for (control, said) in [
            ("ok", None),
            ("stale", Some(Shift::Stale)),
            ("stale", None),
            ("ok", Some(Shift::Back)),
            ("ok", None),
            ("stale", Some(Shift::Stale)),
        ] {
            let readiness = Readiness {
                ready: true,
                control,
                age_seconds: 0,
            };
            assert_eq!(state.shift(&readiness), said);
        }
    }
}
