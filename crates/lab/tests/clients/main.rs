//! The load clients against a server of the test's own, whose cache and whose mistakes are known.

mod bench;
mod fake;
mod replay;
