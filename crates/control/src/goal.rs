//! The state of a tenant's goal, and its curve, for reports.
//!
//! Invariant: state, shortfall and best hit ratio of a goal come from one [`GoalReading`]; without gets there is none.

use std::time::Duration;

use tidemark_plan::{GoalReading, GoalState};
use tidemark_types::UnixMs;

/// A reading that no get has renewed for this long says nothing any more: three times its interval.
const READING_LASTS: Duration = Duration::from_secs(30);

/// How a tenant stands to its goal. The default is that of a tenant without one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GoalReport {
    /// `None` without a goal, or without a load.
    pub(crate) state: Option<GoalState>,
    /// The reading that the state comes from; `None` while nothing was measured.
    pub(crate) reading: Option<GoalReading>,
    /// The size beyond which one more MiB gains less than 0.01 points of hit ratio.
    pub(crate) demand_bytes: Option<u64>,
    /// The least size that meets the goal.
    pub(crate) goal_bytes: Option<u64>,
}

/// The state of a goal and the reading that it comes from. `latest` is the last reading, and gets were seen in the last
/// seconds or not.
pub(crate) fn stands(
    latest: Option<GoalReading>,
    has_load: bool,
    now: UnixMs,
) -> (Option<GoalState>, Option<GoalReading>) {
    let reading = latest.filter(|reading| now.since(reading.at) <= READING_LASTS);
    let state = reading.map(|reading| reading.state);
    (state.or(has_load.then_some(GoalState::Converging)), reading)
}

/// The state of a goal as the API names it; `None` where there is no goal, or no load.
pub(crate) fn state_name(state: Option<GoalState>) -> &'static str {
    match state {
        None => "none",
        Some(GoalState::Met) => "met",
        Some(GoalState::Converging) => "converging",
        Some(GoalState::Infeasible) => "infeasible",
    }
}

/// The miss-ratio curve of a tenant's load under its policy, as it was last estimated. It is an LRU cache's, stretched
/// by the measured efficiency of the policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurveReport {
    /// The gets that it is of.
    pub(crate) requests: u64,
    /// Sizes in bytes, ascending, each with its miss ratio.
    pub(crate) points: Vec<(u64, f64)>,
    /// How long ago the last gets of it came.
    pub(crate) age: Duration,
    /// The standard error of the miss ratio at the present memory.
    pub(crate) standard_error: f64,
}
