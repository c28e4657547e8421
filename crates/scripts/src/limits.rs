//! The limits of a script. `docs/design/limits.md` shows this table.

/// Memory of Lua for a script and what it makes, in bytes: several of the longest values.
pub const MEMORY_BYTES: usize = 16 << 20;
/// The reply that a script's result becomes, in bytes: a longest value and what stands around it.
pub const RESULT_BYTES_MAX: usize = 17 << 16;
/// Arguments of a command that a script calls.
pub const CALL_ARGUMENTS_MAX: usize = 8000;
/// Tables within tables in a result.
pub(crate) const RESULT_DEPTH_MAX: usize = 64;
/// Tables within tables in what `cjson` and `cmsgpack` read and `cjson` writes: each is a call on the thread's stack.
pub(crate) const DATA_DEPTH_MAX: usize = 128;
/// Captures of a pattern, as in Lua.
pub(crate) const CAPTURES_MAX: usize = 32;
/// Calls within calls of a pattern's matching: each is one on the thread's stack.
pub(crate) const PATTERN_DEPTH_MAX: usize = 200;
/// Steps after which a run's bounds are looked at, at most. A step may copy all of the script's memory, so they are few.
pub const STEPS_PER_LOOK: u32 = 250;
/// Looks at a run of the most steps that it may take, at least.
pub(crate) const LOOKS_MIN: u64 = 100;
/// The memory that an engine may hold between two runs beyond that of its beginning, in bytes.
pub(crate) const KEPT_BYTES: usize = 1 << 20;
/// Compiled scripts that an engine keeps.
pub(crate) const COMPILED_MAX: usize = 128;
/// The longest text of an error that a reply repeats, in bytes.
pub(crate) const ERROR_BYTES_MAX: usize = 1024;
