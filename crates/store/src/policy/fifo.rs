//! First in, first out: the oldest segment goes, whole.

use super::{Queue, QueueBytes, Rules, Verdict};

pub(super) struct Fifo;

impl Rules for Fifo {
    fn admit(&self, _ghost: bool) -> Queue {
        Queue::Main
    }

    /// Segments that another policy left in the small queue go first: least is known of their items.
    fn victim(&self, sizes: QueueBytes) -> Queue {
        if sizes.small > 0 { Queue::Small } else { Queue::Main }
    }

    fn judge(&self, _from: Queue, _uses: u8) -> Verdict {
        Verdict::Drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_survives() {
        for uses in 0..=3 {
            assert_eq!(Fifo.judge(Queue::Main, uses), Verdict::Drop);
        }
        assert_eq!(Fifo.admit(true), Queue::Main);
        assert_eq!(Fifo.victim(QueueBytes { small: 1, main: 9 }), Queue::Small);
        assert_eq!(Fifo.victim(QueueBytes { small: 0, main: 9 }), Queue::Main);
    }
}
