//! A tenant over time.

/// Hit ratios are judged over intervals of this length, in seconds.
pub const INTERVAL_SECONDS: f64 = 10.0;
/// An interval this near to the goal is met: a point.
const NEAR_RATIO: f64 = 0.01;
/// The time after memory was given back in which the hit ratio is watched for a dip, in seconds. Evicting is done
/// within one second, and evicted keys are asked for again within a few intervals.
const DIP_SECONDS: f64 = 3.0 * INTERVAL_SECONDS;
/// The settled usage is the mean over this much of the end, in seconds.
const SETTLED_SECONDS: f64 = 60.0;

/// How a tenant stood at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// The time since the course began.
    pub seconds: f64,
    /// Gets until then; they never fall.
    pub gets: u64,
    /// Those that hit.
    pub hits: u64,
    /// The memory that it might hold.
    pub grant_bytes: u64,
    /// The memory that it held.
    pub usage_bytes: u64,
}

/// Moments in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// The moments.
    pub moments: Vec<Moment>,
}

/// A part of a course under one load, in seconds of the course.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageTimes {
    /// When the load began.
    pub from: f64,
    /// The time from which on the tenant is judged.
    pub settled_from: f64,
    /// When the load ended.
    pub to: f64,
}

/// The outcome of a tenant with a goal in a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Whole intervals from when on it is judged.
    pub intervals: usize,
    /// Those of them that are near the goal, 0 to 1.
    pub near_ratio: f64,
    /// How far the furthest of them was from the goal.
    pub furthest_ratio: f64,
    /// How far the hit ratio fell below the goal after memory was given back.
    pub dip_ratio: f64,
    /// The hit ratio at the end.
    pub end_hit_ratio: f64,
    /// The mean usage at the end.
    pub end_usage_bytes: f64,
    /// The memory that it might hold when the load began.
    pub first_grant_bytes: u64,
    /// The time from the change of load to the first change of the grant.
    pub first_grant_seconds: Option<f64>,
}

impl Course {
    /// Hits of the gets from one time to another; `None` without gets.
    pub fn hit_ratio(&self, from: f64, to: f64) -> Option<f64> {
        let (first, last) = (self.at(from)?, self.at(to)?);
        let gets = last.gets.checked_sub(first.gets).filter(|gets| *gets > 0)?;
        // Both are far below 2^53.
        Some((last.hits - first.hits) as f64 / gets as f64)
    }

    /// The begin and the hit ratio of each whole interval between two times, side by side; those without gets are left out.
    pub fn intervals(&self, from: f64, to: f64) -> impl Iterator<Item = (f64, f64)> {
        let count = ((to - from) / INTERVAL_SECONDS).max(0.0) as usize;
        (0..count).filter_map(move |number| {
            let begin = from + number as f64 * INTERVAL_SECONDS;
            Some((begin, self.hit_ratio(begin, begin + INTERVAL_SECONDS)?))
        })
    }

    /// The mean usage between two times, in bytes; the moments are taken to be evenly spaced.
    pub fn mean_usage_bytes(&self, from: f64, to: f64) -> f64 {
        let own = self.between(from, to);
        let sum: f64 = own.iter().map(|moment| moment.usage_bytes as f64).sum();
        sum / own.len().max(1) as f64
    }

    /// The most that was granted between two times, in bytes.
    pub fn largest_grant_bytes(&self, from: f64, to: f64) -> u64 {
        let own = self.between(from, to).iter();
        own.map(|moment| moment.grant_bytes).max().unwrap_or(0)
    }

    /// How often the grant turned from growing to shrinking or back by more than a share of itself.
    pub fn turns(&self, share: f64) -> usize {
        let mut turns = 0;
        // The last turning point, and whether it went up or down from there; unknown at first.
        let (mut extreme, mut rising) = (self.moments.first().map_or(0, |moment| moment.grant_bytes), None);
        for moment in &self.moments {
            let (grant, least) = (moment.grant_bytes, (extreme as f64 * share) as u64);
            match rising {
                Some(true) if grant >= extreme => extreme = grant,
                Some(false) if grant <= extreme => extreme = grant,
                _ if grant.abs_diff(extreme) > least => {
                    turns += usize::from(rising.is_some());
                    (extreme, rising) = (grant, Some(grant > extreme));
                }
                _ => {}
            }
        }
        turns
    }

    /// Judges a stage by a goal.
    pub fn judge(&self, times: StageTimes, goal: f64) -> Judgement {
        let StageTimes { from, settled_from, to } = times;
        let distances: Vec<f64> = self
            .intervals(settled_from, to)
            .map(|(_, ratio)| (ratio - goal).abs())
            .collect();
        let near = distances.iter().filter(|distance| **distance <= NEAR_RATIO).count();
        let end = (to - SETTLED_SECONDS).max(from);
        Judgement {
            intervals: distances.len(),
            near_ratio: near as f64 / distances.len().max(1) as f64,
            furthest_ratio: distances.iter().copied().fold(0.0, f64::max),
            dip_ratio: self.dip_ratio(times, goal),
            end_hit_ratio: self.hit_ratio(end, to).unwrap_or(f64::NAN),
            end_usage_bytes: self.mean_usage_bytes(end, to),
            first_grant_bytes: self.first_grant_bytes(from),
            first_grant_seconds: self.first_grant_seconds(from, to),
        }
    }

    /// The depth of the hit ratio below the goal, in the intervals after a grant fell below the usage while the goal
    /// was met. A tenant that loses unused memory loses no hits by it.
    fn dip_ratio(&self, times: StageTimes, goal: f64) -> f64 {
        let own = self.between(times.from, times.to);
        let shrinks = own
            .windows(2)
            .filter(|pair| pair[1].grant_bytes < pair[0].grant_bytes.min(pair[0].usage_bytes))
            .map(|pair| pair[0].seconds);
        let mut deepest: f64 = 0.0;
        for at in shrinks {
            let before = (at - INTERVAL_SECONDS).max(times.from);
            // Misses of keys that are new since the load changed have another reason.
            if self.hit_ratio(before, at).is_none_or(|ratio| ratio < goal - NEAR_RATIO) {
                continue;
            }
            let end = (at + DIP_SECONDS).min(times.to);
            let lowest = self.intervals(at, end).map(|(_, ratio)| ratio).fold(goal, f64::min);
            deepest = deepest.max(goal - lowest);
        }
        deepest
    }

    /// The grant at a time, or at the first moment there is.
    fn first_grant_bytes(&self, from: f64) -> u64 {
        let moment = self.at(from).or(self.moments.first());
        moment.map_or(0, |moment| moment.grant_bytes)
    }

    fn first_grant_seconds(&self, from: f64, to: f64) -> Option<f64> {
        let before = self.first_grant_bytes(from);
        let moved = |moment: &&Moment| moment.grant_bytes != before;
        let first = self.between(from, to).iter().find(moved)?;
        Some(first.seconds - from)
    }

    /// The last moment that is not after this time.
    fn at(&self, seconds: f64) -> Option<&Moment> {
        // Times are sums of tenths of seconds.
        const ROUNDED: f64 = 1e-6;
        let behind = self
            .moments
            .partition_point(|moment| moment.seconds <= seconds + ROUNDED);
        self.moments.get(behind.checked_sub(1)?)
    }

    fn between(&self, from: f64, to: f64) -> &[Moment] {
        let first = self.moments.partition_point(|moment| moment.seconds < from);
        let behind = self.moments.partition_point(|moment| moment.seconds <= to);
        &self.moments[first..behind.max(first)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A moment each second; the hit ratio and the grant in MiB of the second before it.
    fn course(seconds: impl IntoIterator<Item = (f64, u64)>) -> Course {
        let mut last = Moment::default();
        let mut moments = Vec::new();
        for (number, (ratio, grant)) in seconds.into_iter().enumerate() {
            if number == 0 {
                last.grant_bytes = grant * MIB;
                moments.push(last);
            }
            last = Moment {
                seconds: (number + 1) as f64,
                gets: last.gets + 1000,
                hits: last.hits + (ratio * 1000.0) as u64,
                grant_bytes: grant * MIB,
                usage_bytes: grant * MIB / 2,
            };
            moments.push(last);
        }
        Course { moments }
    }

    fn repeated(parts: &[(usize, f64, u64)]) -> Course {
        let parts = parts
            .iter()
            .flat_map(|(seconds, ratio, grant)| std::iter::repeat_n((*ratio, *grant), *seconds));
        course(parts)
    }

    #[test]
    fn intervals_lie_side_by_side() {
        let course = repeated(&[(10, 0.5, 1), (10, 0.9, 1), (5, 0.1, 1)]);
        let intervals: Vec<_> = course.intervals(0.0, 25.0).collect();
        assert_eq!(intervals, [(0.0, 0.5), (10.0, 0.9)]);
        assert_eq!(course.intervals(20.0, 25.0).count(), 0);
        assert_eq!(course.hit_ratio(20.0, 20.0), None);
        let silent = Course {
            moments: vec![Moment::default(); 3],
        };
        assert_eq!(silent.hit_ratio(0.0, 10.0), None);
    }

    #[test]
    fn a_stage_is_judged_from_when_it_may_be() {
        let course = repeated(&[(60, 0.2, 4), (3, 0.2, 4), (57, 0.5, 8), (60, 0.905, 9), (60, 0.88, 9)]);
        let times = StageTimes {
            from: 60.0,
            settled_from: 120.0,
            to: 240.0,
        };
        let judgement = course.judge(times, 0.9);
        assert_eq!(judgement.intervals, 12);
        assert!((judgement.near_ratio - 0.5).abs() < 1e-9, "{judgement:?}");
        assert!((judgement.furthest_ratio - 0.02).abs() < 1e-9, "{judgement:?}");
        assert!((judgement.end_hit_ratio - 0.88).abs() < 1e-9, "{judgement:?}");
        assert!(
            (judgement.end_usage_bytes - 4.5 * MIB as f64).abs() < 1.0,
            "{judgement:?}"
        );
        assert_eq!(judgement.first_grant_seconds, Some(4.0));
        assert_eq!(judgement.first_grant_bytes, 4 * MIB);
        // A course that begins a moment after the load says what it saw first.
        let later = Course {
            moments: course.moments[61..].into(),
        };
        assert_eq!(later.judge(times, 0.9).first_grant_seconds, Some(4.0));
        assert_eq!(judgement.dip_ratio, 0.0, "nothing shrank");
    }

    #[test]
    fn only_what_shrinking_costs_is_a_dip() {
        let times = StageTimes {
            from: 0.0,
            settled_from: 0.0,
            to: 100.0,
        };
        for (parts, dip) in [
            // Missed before it shrank: the load is new.
            (&[(50, 0.3, 9), (50, 0.3, 4)][..], 0.0),
            (&[(50, 0.99, 9), (50, 0.95, 4)], 0.0),
            (&[(50, 0.99, 9), (50, 0.85, 4)], 0.05),
            // Half was used, so that nothing was given back.
            (&[(50, 0.99, 9), (50, 0.85, 5)], 0.0),
            // Later than a shrink is answerable for.
            (&[(20, 0.99, 9), (40, 0.95, 4), (40, 0.5, 4)], 0.0),
            (&[(50, 0.99, 4), (50, 0.5, 9)], 0.0),
        ] {
            let found = repeated(parts).judge(times, 0.9).dip_ratio;
            assert!((found - dip).abs() < 1e-9, "{parts:?}: {found}");
        }
    }

    #[test]
    fn turns_are_changes_of_direction_that_matter() {
        for (grants, turns) in [
            (&[10, 10, 10][..], 0),
            (&[10, 20, 30, 30, 40], 0),
            (&[10, 20, 10], 1),
            (&[10, 20, 19, 20, 19], 0),
            (&[10, 20, 10, 20, 10], 3),
            (&[40, 30, 20, 40], 1),
        ] {
            let course = course(grants.iter().map(|grant| (1.0, *grant)));
            assert_eq!(course.turns(0.1), turns, "{grants:?}");
        }
    }
}
