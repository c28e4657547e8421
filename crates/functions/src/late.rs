//! When a chunk counts as late: learnt as TCP learns when to send again (RFC 6298). Pure.

use std::time::Duration;

/// Before anything is measured, a chunk counts as late after this.
const FIRST: Duration = Duration::from_millis(500);
/// A chunk is late after this at the least, and at the most.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(3);
/// And so long after the mean at the least, in seconds, however little times differ: else chunks that all become slower would
/// never count as more than the mean, which would stay as it is.
const MARGIN: f64 = 0.001;

/// Mean and deviation of chunks' times, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Late(Option<(f64, f64)>);

impl Late {
    /// A chunk came after so long. One that was late counts as if it had come just then: one slow function among ten would
    /// else make the deviation so large that its chunks are never late. If all are slower, this grows all the same.
    pub fn learn(&mut self, took: Duration) {
        let took = took.min(self.after()).as_secs_f64();
        self.0 = Some(match self.0 {
            None => (took, took / 2.0),
            Some((mean, deviation)) => (
                mean + (took - mean) / 8.0,
                deviation + ((took - mean).abs() - deviation) / 4.0,
            ),
        });
    }

    /// A chunk that has not come by then is late.
    pub fn after(&self) -> Duration {
        let late = self.0.map_or(FIRST, |(mean, deviation)| {
            Duration::from_secs_f64(mean + (4.0 * deviation).max(MARGIN))
        });
        late.clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_four_deviations_after_the_mean_within_limits() {
        let mut late = Late::default();
        assert_eq!(late.after(), FIRST);
        late.learn(Duration::from_millis(100));
        assert_eq!(late.after().as_millis(), 300, "the first deviation is half of the mean");
        (0..200).for_each(|_| late.learn(Duration::from_millis(100)));
        assert_eq!(late.after().as_millis(), 101);
        (0..200).for_each(|_| late.learn(Duration::from_millis(200)));
        assert!(late.after() > Duration::from_millis(200), "all became slower: {late:?}");
        (0..200).for_each(|_| late.learn(Duration::from_millis(1)));
        assert_eq!(late.after(), LEAST);
        (0..20).for_each(|_| late.learn(Duration::from_secs(100)));
        assert_eq!(late.after(), MOST, "all are slower");
    }

    #[test]
    fn one_slow_function_among_ten_stays_late() {
        let mut late = Late::default();
        for round in 0..1000 {
            let others = [18, 19, 20, 20, 20, 20, 20, 21, 22].into_iter();
            others.for_each(|took_ms| late.learn(Duration::from_millis(took_ms)));
            let took = Duration::from_millis(200);
            assert!(late.after() < took / 3, "round {round}: {late:?}");
            late.learn(took);
        }
    }
}
