//! Conditions of commands that store.

/// The condition of a command on its key before it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    None,
    Absent,
    Present,
}
