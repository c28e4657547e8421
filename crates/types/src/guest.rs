//! Code that a program supplies to the cache that it embeds: calls into it come back whatever it does.
//!
//! Invariant: no panic of a [`Guest`]'s code passes through a [`Guest`], neither from a call nor from its end. That takes a
//! program that is built with unwinding: where panics abort, they still do.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The limit of a panic's message, in characters: it goes into reports, and a program may write anything.
const MESSAGE_CHARS_MAX: usize = 256;

/// The parts that a program can supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Which items go when memory is short.
    Eviction,
    /// Which items are let in.
    Admission,
    /// How much memory a tenant wants.
    Sizing,
    /// The worth of hits to a tenant.
    Utility,
    /// The receiver of events.
    Events,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eviction => "eviction policy",
            Self::Admission => "admission policy",
            Self::Sizing => "resize strategy",
            Self::Utility => "utility function",
            Self::Events => "event hook",
        })
    }
}

/// The fault in the code of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It panicked, with this message.
    Panicked(String),
    /// Its answer makes no sense. The text quotes it, and says what is allowed.
    Nonsense(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Nonsense(what) => f.write_str(what),
        }
    }
}

/// Code that a program supplied was replaced by the built-in rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The part at fault.
    pub part: Part,
    /// Why.
    pub cause: Cause,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program's {} {}", self.part, self.cause)
    }
}

/// Code of a program: a box or a counted pointer of it.
pub struct Guest<P>(Option<P>);

impl<P> fmt::Debug for Guest<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guest")
    }
}

impl<P> Guest<P> {
    /// This code.
    pub fn new(code: P) -> Self {
        Self(Some(code))
    }

    /// Calls it.
    ///
    /// # Errors
    /// The code panicked. Its state is unknown from then on: it should not be called again.
    pub fn call<R>(&self, call: impl FnOnce(&P) -> R) -> Result<R, Cause> {
        let Some(code) = &self.0 else {
            unreachable!("only its end takes it out")
        };
        guarded(|| call(code))
    }

    /// Calls it where it keeps something between calls.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn call_mut<R>(&mut self, call: impl FnOnce(&mut P) -> R) -> Result<R, Cause> {
        let Some(code) = &mut self.0 else {
            unreachable!("only its end takes it out")
        };
        guarded(|| call(code))
    }
}

impl<P> Drop for Guest<P> {
    fn drop(&mut self) {
        let code = self.0.take();
        // Nobody is left to be told.
        let _ = guarded(|| drop(code));
    }
}

fn guarded<R>(call: impl FnOnce() -> R) -> Result<R, Cause> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| Cause::Panicked(message(payload)))
}

/// The text of a panic.
fn message(payload: Box<dyn Any + Send>) -> String {
    let text = match (payload.downcast_ref::<String>(), payload.downcast_ref::<&'static str>()) {
        (Some(text), _) => text.as_str(),
        (None, Some(text)) => text,
        (None, None) => {
            // It is of a type of the program's, whose end may panic again.
            std::mem::forget(payload);
            return "without a message".into();
        }
    };
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;
    use std::sync::Arc;

    /// Panics at its end, too.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("at the end");
        }
    }

    #[test]
    fn every_panic_is_an_answer() {
        let long = "x".repeat(1000);
        for (what, panics, message) in [
            ("a text", (|| panic!("as it is")) as fn(), "as it is".to_owned()),
            ("a made text", || panic!("{}", 6 * 7), "42".into()),
            (
                "a long one",
                || panic!("{}", "x".repeat(1000)),
                long[..MESSAGE_CHARS_MAX].into(),
            ),
            (
                "no text, which panics when it ends",
                || panic_any(Bomb),
                "without a message".into(),
            ),
        ] {
            let mut guest = Guest::new(panics);
            assert_eq!(
                guest.call(|code| code()),
                Err(Cause::Panicked(message.clone())),
                "{what}"
            );
            assert_eq!(guest.call_mut(|code| code()), Err(Cause::Panicked(message)), "{what}");
        }
        assert_eq!(Guest::new(7).call(|seven| seven + 1), Ok(8));
    }

    #[test]
    fn its_end_is_its_own() {
        drop(Guest::new(Arc::new(Bomb)));
        drop(Guest::new(Box::new(Bomb)));
    }

    #[test]
    fn a_fault_says_what_and_why() {
        let fault = |part, cause| Fault { part, cause }.to_string();
        assert_eq!(
            fault(Part::Eviction, Cause::Panicked("oh".into())),
            "the program's eviction policy panicked: oh"
        );
        assert_eq!(
            fault(Part::Sizing, Cause::Nonsense("asked for 0 bytes".into())),
            "the program's resize strategy asked for 0 bytes"
        );
    }
}
