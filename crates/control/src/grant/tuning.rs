//! The numbers behind grants, by meaning, each with its reason.

use tidemark_types::{MIB, UNIT_BYTES};

/// The memory beyond its usage that a tenant holds on to.
#[derive(Debug)]
pub(crate) struct Headroom {
    /// So that it can write on until the next round, a tenant keeps this part of its usage beyond it.
    pub(crate) divisor: u64,
    /// While it wants more, it keeps its writes of so many seconds if that is more.
    pub(super) seconds: u64,
    /// That counts only up to this part of its usage or a large segment, whichever is more.
    pub(super) most_divisor: u64,
    /// The least, in units.
    pub(crate) units_min: u64,
    /// On the way to its share, a tenant holds on to the memory for so many seconds' writes. Others have the rest until
    /// then.
    pub(super) ahead_seconds: u64,
    /// A tenant that fills towards its goal takes this part of its usage ahead. That is enough until the next round, and
    /// others keep the part that it could not fill yet.
    pub(super) goal_divisor: u64,
    /// It takes so much of its recent writes ahead if that is more.
    pub(super) goal_per_inflow: u64,
}

/// The memory that moves between tenants in a full pool.
#[derive(Debug)]
pub(super) struct Moves {
    /// The gain that moves grants at least, for a tenant that asks for more, as a part of its grant. Less would move
    /// segments back and forth between tenants for no visible difference.
    pub(super) gain_divisor: u64,
    /// A large segment, in units: a tenant below its share may always gain it at once, and always be ahead of its writes
    /// by it.
    pub(super) transfer_units_min: u64,
    /// A tenant gains at most this multiple of its recent writes. A slow writer thus does not empty its neighbours for
    /// memory that it would need hours to fill.
    pub(super) transfer_per_inflow: u64,
    /// Worths within this factor count as equal: curves are not known better.
    pub(super) alike: f64,
}

/// Goals beside others.
#[derive(Debug)]
pub(super) struct Goals {
    /// A goal is short of memory if it lacks more than this part of its need.
    pub(super) short_divisor: u64,
    /// Goals leave everybody this part of an equal share, as far as it is held. A tenant without a floor is not promised
    /// anything. But one without any memory could not even show what more would be worth to it.
    pub(super) leave_divisor: u64,
}

pub(crate) const HEADROOM: Headroom = Headroom {
    divisor: 16,
    seconds: 3,
    most_divisor: 4,
    units_min: 4,
    ahead_seconds: 10,
    goal_divisor: 4,
    goal_per_inflow: 4,
};

pub(super) const MOVES: Moves = Moves {
    gain_divisor: 64,
    transfer_units_min: 2 * MIB / UNIT_BYTES,
    transfer_per_inflow: 4,
    alike: 1.25,
};

pub(super) const GOALS: Goals = Goals {
    short_divisor: 32,
    leave_divisor: 8,
};
