//! The memory of a node that one instance may hold, and the lease that it has to state.

/// The memory that an instance may hold. It follows the caller's steps in this order. To grow, a claim is stated, then
/// all other leases are read anew, then the claim is checked. To shrink, a pool is brought down, then that is settled,
/// then stated.
///
/// Invariant: the last statement, or attempt at one, is never less than the held bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenure {
    held_bytes: u64,
    claimed_bytes: Option<u64>,
}

impl Tenure {
    /// The bytes that the pool may hold, or still holds.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The bytes that the lease has to state now.
    pub fn stated_bytes(&self) -> u64 {
        self.claimed_bytes.unwrap_or(self.held_bytes).max(self.held_bytes)
    }

    /// Asks for more. It counts from when it is stated; it may be used after [`Self::check`].
    pub fn claim(&mut self, bytes: u64) {
        self.claimed_bytes = Some(bytes);
    }

    /// Whether the claim fits beside the others' leases, as they were read after it was stated. If so it is held; if not, or
    /// if one of them could not be read (`None`), it is withdrawn.
    pub fn check(&mut self, node_bytes: u64, others: impl IntoIterator<Item = Option<u64>>) -> bool {
        let Some(claimed) = self.claimed_bytes.take() else {
            return false;
        };
        let mut all = others.into_iter().chain([Some(claimed)]);
        let sum = all.try_fold(0_u64, |sum, lease| lease.map(|bytes| sum.saturating_add(bytes)));
        let fits = sum.is_some_and(|sum| sum <= node_bytes);
        if fits {
            self.held_bytes = claimed;
        }
        fits
    }

    /// Withdraws a claim that could not be stated or checked.
    pub fn withdraw(&mut self) {
        self.claimed_bytes = None;
    }

    /// The pool was limited to `limit_bytes` and holds `resident_bytes`. It cannot hold more than the larger of both,
    /// and the rest is not held any more.
    pub fn settle(&mut self, limit_bytes: u64, resident_bytes: u64) {
        self.held_bytes = self.held_bytes.min(limit_bytes.max(resident_bytes));
    }
}
