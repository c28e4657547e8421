//! The phases of a tenant's needs, and the goal of the one that has a goal.

use tidemark_plan::{Count, GoalState, HitGoal, Prospect, Reach, Reading, Sizer, Sizing, reach};
use tidemark_types::HitRatio;

/// The source of a tenant's size.
#[derive(Debug)]
pub(super) enum Phase {
    /// The tenant has just come, and its settings were not looked at. The memory that it had before it was idle tells the
    /// need of a goal.
    Back,
    /// It has no goal: memory goes to it by its gain.
    Free,
    /// It has a goal, whose sizer tells the size.
    Aiming(Box<Goal>),
}

impl Phase {
    pub(super) fn goal(&self) -> Option<&Goal> {
        match self {
            Self::Aiming(goal) => Some(goal),
            Self::Back | Self::Free => None,
        }
    }

    pub(super) fn goal_mut(&mut self) -> Option<&mut Goal> {
        match self {
            Self::Aiming(goal) => Some(goal),
            Self::Back | Self::Free => None,
        }
    }

    /// The goal when this hit ratio is asked for. A tenant that has come back begins with the memory that it had before.
    pub(super) fn aim(self, hit_ratio: HitRatio, remembered_bytes: u64, known_since: Count) -> Box<Goal> {
        match self {
            Self::Back => Box::new(Goal::new(hit_ratio, remembered_bytes, known_since)),
            Self::Free => Box::new(Goal::new(hit_ratio, 0, known_since)),
            Self::Aiming(mut goal) => {
                goal.aim_at(hit_ratio);
                goal
            }
        }
    }
}

/// A goal on its way.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) hit_ratio: HitRatio,
    pub(super) sizer: Sizer,
    /// The least memory that reaches it, once something is known of that.
    pub(super) bytes: Option<u64>,
    /// Whether all the memory that there is for it would reach it, and its result.
    pub(super) reach: Reach,
    pub(super) prospect: Option<Prospect>,
}

impl Goal {
    fn new(hit_ratio: HitRatio, remembered_bytes: u64, known_since: Count) -> Self {
        Self {
            hit_ratio,
            sizer: Sizer::remembering(remembered_bytes).knowing_since(known_since),
            bytes: None,
            reach: Reach::Unknown,
            prospect: None,
        }
    }

    /// Another hit ratio may be out of reach where the one before was not.
    fn aim_at(&mut self, hit_ratio: HitRatio) {
        if self.hit_ratio != hit_ratio {
            self.hit_ratio = hit_ratio;
            self.reach = Reach::Unknown;
        }
    }

    pub(super) fn is_met(&self) -> bool {
        self.sizer.state() == GoalState::Met
    }

    /// Follows a round's reading.
    pub(super) fn step(&mut self, reading: &Reading<'_>) -> Sizing {
        let sizing = self.sizer.step(reading);
        self.prospect = self.sizer.prospect(reading).filter(|_| !sizing.load_changed);
        self.reach = match self.sizer.state() {
            GoalState::Met => Reach::Within,
            GoalState::Infeasible => Reach::Out,
            GoalState::Converging => reach(self.reach, HitGoal::plainly(self.hit_ratio.get()), self.prospect),
        };
        self.bytes = match self.sizer.state() {
            GoalState::Met => Some(sizing.bytes),
            // Without a prediction it is only the present memory, or a remembered size.
            GoalState::Converging => sizing.predicted.map(|_| sizing.bytes).or(self.bytes),
            GoalState::Infeasible => None,
        };
        sizing
    }
}
