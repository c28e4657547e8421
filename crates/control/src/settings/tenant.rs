//! Settings that change.

use tidemark_meter::spending::SpendingLimit;

use super::table::{SETTINGS, SettingsPatch, TenantSettings};

impl TenantSettings {
    /// The amount that it may spend, and the action when it is spent.
    pub(crate) fn spending_limit(&self) -> Option<SpendingLimit> {
        Some(SpendingLimit {
            amount: self.spending?,
            at_limit: self.at_limit.unwrap_or_default(),
        })
    }

    /// Whether memory is asked for by its gain.
    pub(crate) fn has_goal(&self) -> bool {
        self.hit_ratio.is_some() || self.latency.is_some()
    }

    /// Whether `other` asks for the same.
    pub(crate) fn has_same_goal(&self, other: &Self) -> bool {
        (self.hit_ratio, self.latency, self.miss_cost) == (other.hit_ratio, other.latency, other.miss_cost)
    }
}

impl From<TenantSettings> for SettingsPatch {
    /// The patch that turns a new tenant's settings into these.
    fn from(settings: TenantSettings) -> Self {
        let mut patch = Self::default();
        for setting in SETTINGS {
            (setting.access.hand_over)(&settings, &mut patch);
        }
        patch
    }
}

impl SettingsPatch {
    /// The settings after the change.
    pub fn of(self, before: TenantSettings) -> TenantSettings {
        let mut settings = before;
        for setting in SETTINGS {
            (setting.access.apply)(&self, &mut settings);
        }
        settings
    }
}
