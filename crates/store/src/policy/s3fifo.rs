//! S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023). The constants
//! are those of libCacheSim 0.3.5: a small queue of a tenth, promotion after two uses, ghosts for as many items as nine
//! tenths hold.

use super::{Queue, QueueBytes, Rules, Verdict};

/// Uses in the small queue that promote an item.
const PROMOTING_USES: u8 = 2;

pub(super) struct S3Fifo;

impl Rules for S3Fifo {
    fn admit(&self, ghost: bool) -> Queue {
        if ghost { Queue::Main } else { Queue::Small }
    }

    fn victim(&self, sizes: QueueBytes) -> Queue {
        if sizes.small_is_over() {
            Queue::Small
        } else {
            Queue::Main
        }
    }

    fn judge(&self, from: Queue, uses: u8) -> Verdict {
        match from {
            // A promoted item begins anew: its uses on probation have been rewarded.
            Queue::Small if uses >= PROMOTING_USES => Verdict::Keep { uses: 0 },
            Queue::Small => Verdict::DropToGhost,
            Queue::Main => uses.checked_sub(1).map_or(Verdict::Drop, |uses| Verdict::Keep { uses }),
        }
    }

    fn has_ghosts(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probation_takes_two_uses() {
        assert_eq!(S3Fifo.judge(Queue::Small, 0), Verdict::DropToGhost);
        assert_eq!(S3Fifo.judge(Queue::Small, 1), Verdict::DropToGhost);
        assert_eq!(S3Fifo.judge(Queue::Small, 2), Verdict::Keep { uses: 0 });
        assert_eq!(S3Fifo.judge(Queue::Main, 0), Verdict::Drop);
        assert_eq!(S3Fifo.judge(Queue::Main, 2), Verdict::Keep { uses: 1 });
    }

    #[test]
    fn ghosts_come_back_to_the_main_queue() {
        assert_eq!(S3Fifo.admit(false), Queue::Small);
        assert_eq!(S3Fifo.admit(true), Queue::Main);
    }

    #[test]
    fn the_queue_above_its_share_gives() {
        assert_eq!(S3Fifo.victim(QueueBytes { small: 11, main: 89 }), Queue::Small);
        assert_eq!(S3Fifo.victim(QueueBytes { small: 10, main: 90 }), Queue::Main);
    }
}
