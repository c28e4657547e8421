//! The load clients against a server of the test's own, whose cache and whose mistakes are known.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod replay;
