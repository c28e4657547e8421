//! How large the tests in virtual time are. CI divides keys, rates and memory of the longest; `make soak` runs them whole,
//! with `TIDEMARK_TEST_SCALE=full`.

/// The divisor: this one in CI, and 1 where everything runs whole.
pub(crate) fn divisor(in_ci: u64) -> u64 {
    let is_full = std::env::var("TIDEMARK_TEST_SCALE").is_ok_and(|scale| scale == "full");
    if is_full { 1 } else { in_ci }
}
