//! What is known of a tenant's goal and of its curve, for those who ask.

use std::time::Duration;

use tidemark_plan::GoalState;

/// How a tenant stands to its goal. The default is that of a tenant without one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GoalReport {
    /// `None` without a goal.
    pub(crate) state: Option<GoalState>,
    /// By how much the hit ratio that can be had misses the goal.
    pub(crate) shortfall_ratio: Option<f64>,
    /// The best hit ratio that the tenant could have with what it may hold.
    pub(crate) best_hit_ratio: Option<f64>,
    /// The size beyond which one more MiB gains less than 0.01 points of hit ratio.
    pub(crate) demand_bytes: Option<u64>,
    /// The least size that meets the goal.
    pub(crate) goal_bytes: Option<u64>,
}

/// The state of a goal as the API names it; `None` where there is no goal.
pub(crate) fn state_name(state: Option<GoalState>) -> &'static str {
    match state {
        None => "none",
        Some(GoalState::Met) => "met",
        Some(GoalState::Converging) => "converging",
        Some(GoalState::Infeasible) => "infeasible",
    }
}

/// The miss-ratio curve of a tenant's load under its policy, as it was last estimated: an LRU cache's, stretched by what the
/// policy was measured to make of its memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurveReport {
    /// The gets that it is of.
    pub(crate) requests: u64,
    /// Sizes in bytes, ascending, each with its miss ratio.
    pub(crate) points: Vec<(u64, f64)>,
    /// How long ago the last gets of it came.
    pub(crate) age: Duration,
    /// The standard error of the miss ratio at what is held now.
    pub(crate) standard_error: f64,
}
