//! Every setting of a tenant.

/// A setting of a tenant by its place in the API's bodies.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `goals`, `limits`, `flash`, or empty for the top level.
    pub section: &'static str,
    /// The field's name.
    pub name: &'static str,
}

const fn setting(section: &'static str, name: &'static str) -> Setting {
    Setting { section, name }
}

/// Every setting of a tenant.
pub const SETTINGS: [Setting; 18] = [
    setting("goals", "floor_bytes"),
    setting("goals", "cap_bytes"),
    setting("goals", "hit_ratio"),
    setting("goals", "latency_us"),
    setting("goals", "miss_cost_us"),
    setting("goals", "priority"),
    setting("goals", "weight"),
    setting("goals", "utility"),
    setting("limits", "ops_per_second"),
    setting("limits", "bytes_per_second"),
    setting("limits", "connections"),
    setting("limits", "spending_per_month"),
    setting("limits", "at_spending_limit"),
    setting("flash", "floor_bytes"),
    setting("flash", "cap_bytes"),
    setting("flash", "write_bytes_per_second"),
    setting("flash", "staleness"),
    setting("", "policy"),
];
