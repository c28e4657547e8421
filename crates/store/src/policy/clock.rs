//! The two-bit clock: an item that was used since it was last judged survives, and pays one use for it.

use super::{Queue, QueueBytes, Rules, Verdict};

pub(super) struct Clock;

impl Rules for Clock {
    fn admit(&self, _ghost: bool) -> Queue {
        Queue::Main
    }

    /// Segments that another policy left in the small queue go first: least is known of their items.
    fn victim(&self, sizes: QueueBytes) -> Queue {
        if sizes.small > 0 { Queue::Small } else { Queue::Main }
    }

    fn judge(&self, _from: Queue, uses: u8) -> Verdict {
        match uses.checked_sub(1) {
            Some(uses) => Verdict::Keep { uses },
            None => Verdict::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_item_survives_and_pays_for_it() {
        assert_eq!(Clock.judge(Queue::Main, 0), Verdict::Drop);
        for uses in 1..=3 {
            assert_eq!(Clock.judge(Queue::Main, uses), Verdict::Keep { uses: uses - 1 });
        }
    }
}
