//! Counting the operations of one application on this node, while somebody asks for it and the allowance lasts.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidemark_cachelet::choose::{Access, Meter, Report};

use super::allowance::{Allowance, TIMED_EVERY, thread_ns};

/// For so long counting goes on after a question: an interval, and as much for a late question.
const COUNTED_US: u64 = 3_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Counting {
    until_us: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    meter: Option<Meter>,
    noted: u64,
    /// Whether everything since the last report was counted.
    is_complete: bool,
}

impl Counting {
    /// Whether operations are counted now.
    pub fn is_on(&self, now_us: u64) -> bool {
        now_us < self.until_us.load(Ordering::Relaxed)
    }

    /// Counts an operation that ended now.
    pub fn note<'a>(&self, now_us: u64, access: impl FnOnce() -> Access<'a>, allowance: &Allowance) {
        let mut inner = self.inner.lock();
        inner.noted += 1;
        let is_timed = inner.noted.is_multiple_of(TIMED_EVERY);
        let from_ns = if is_timed { thread_ns() } else { 0 };
        if let Some(meter) = &mut inner.meter {
            meter.note(now_us, &access());
        }
        if is_timed {
            allowance.add(TIMED_EVERY * thread_ns().saturating_sub(from_ns));
            if !allowance.covers(0) {
                inner.is_complete = false;
                self.until_us.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The counts since the last time, and whether they are complete. Counting goes on if the allowance covers it.
    pub fn take(&self, now_us: u64, node: NodeFigures, allowance: &Allowance) -> (Report, bool) {
        let mut inner = self.inner.lock();
        let is_complete = inner.is_complete && self.is_on(now_us);
        let meter = inner
            .meter
            .get_or_insert_with(|| Meter::new(node.cluster, node.budget_bytes));
        meter.set_budget(node.budget_bytes);
        let report = meter.take(node.copies);
        inner.is_complete = allowance.covers(0);
        let until_us = if inner.is_complete { now_us + COUNTED_US } else { 0 };
        self.until_us.store(until_us, Ordering::Relaxed);
        (report, is_complete)
    }
}

/// The figures of the node in a report beside the counts.
#[derive(Clone, Copy, Debug)]
pub struct NodeFigures {
    /// The cluster that the node is in.
    pub cluster: u32,
    /// The limit of copies.
    pub budget_bytes: u64,
    /// Copies.
    pub copies: u64,
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::message::Source;
    use tidemark_cachelet::types::Key;

    use super::*;

    const NODE: NodeFigures = NodeFigures {
        cluster: 0,
        budget_bytes: 1 << 20,
        copies: 0,
    };

    fn read(counting: &Counting, now_us: u64, allowance: &Allowance) {
        let key = Key::new("k");
        let access = || Access {
            key: &key,
            size_bytes: 10,
            is_write: false,
            version: None,
            source: Source::Copy,
            function: 0,
            instance: 0,
            took_us: 7,
        };
        if counting.is_on(now_us) {
            counting.note(now_us, access, allowance);
        }
    }

    #[test]
    fn a_report_says_whether_everything_was_counted() {
        let (counting, allowance) = (Counting::default(), Allowance::default());
        read(&counting, 5, &allowance);
        let (first, is_complete) = counting.take(10, NODE, &allowance);
        assert_eq!((first.reads, is_complete), (0, false), "nobody had asked");
        read(&counting, 20, &allowance);
        let (second, is_complete) = counting.take(30, NODE, &allowance);
        assert_eq!((second.reads, is_complete), (1, true));
        assert!(!counting.is_on(30 + COUNTED_US), "nobody asks any more");
        let (_, is_complete) = counting.take(31 + COUNTED_US, NODE, &allowance);
        assert!(!is_complete);
    }

    #[test]
    fn counting_ends_when_the_allowance_does() {
        let (counting, allowance) = (Counting::default(), Allowance::default());
        counting.take(10, NODE, &allowance);
        allowance.add(u64::from(u32::MAX));
        (0..TIMED_EVERY).for_each(|_| read(&counting, 20, &allowance));
        assert!(!counting.is_on(20));
        assert!(!counting.take(30, NODE, &allowance).1);
        assert!(!counting.is_on(30), "it does not begin again");
    }
}
