//! S3-FIFO, the policy that is the server's own: new copies pass a small queue, and those that are used there reach the
//! main one (Yang et al., SOSP 2023). A hit moves nothing.

use super::{PROBATION, Policy, Use, Verdict};

/// The policy of this module.
#[derive(Debug)]
pub(super) struct S3Fifo;

impl Policy for S3Fifo {
    fn moves_on_use(&self) -> bool {
        false
    }

    fn priority(&self, _last: Use) -> u32 {
        PROBATION
    }

    fn has_probation(&self) -> bool {
        true
    }

    fn judge(&self, priority: u32, reuse_count: u8) -> Verdict {
        match (priority, reuse_count) {
            (_, 0) => Verdict::Goes,
            // It has to be used again in the main queue to stay there.
            (PROBATION, _) => Verdict::Stays { reuse_count: 0 },
            (_, count) => Verdict::Stays { reuse_count: count - 1 },
        }
    }
}
