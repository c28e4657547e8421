//! Libraries that Redis offers to scripts beside Lua's own.

pub(crate) mod bit;
pub(crate) mod json;
pub(crate) mod msgpack;
pub(crate) mod pack;
