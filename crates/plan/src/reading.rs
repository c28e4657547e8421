//! The input of a sizer and its answer.

use tidemark_curve::Curve;
use tidemark_types::UnixMs;

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GoalState {
    /// It is.
    Met,
    /// Not yet, or not known yet.
    #[default]
    Converging,
    /// It cannot be, with the memory that there is or with any.
    Infeasible,
}

/// The facts about a tenant at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The moment.
    pub now: UnixMs,
    /// The hit ratio that is asked for.
    pub goal: f64,
    /// Gets so far; never falls.
    pub gets: u64,
    /// Those that hit.
    pub hits: u64,
    /// Memory that it holds, in bytes.
    pub usage_bytes: u64,
    /// Memory that it may hold.
    pub grant_bytes: u64,
    /// Memory that it could have at most, by its cap and the pool.
    pub most_bytes: u64,
    /// Memory that there is for its goal: that, less the other tenants' floors.
    pub reach_bytes: u64,
    /// The curve of an LRU cache of bare items.
    pub curve: &'a Curve,
    /// Gets in the curve.
    pub curve_gets: u64,
    /// Keys that there are, as far as they were met.
    pub keys: u64,
    /// Memory held for each byte of bare items: index, unfinished segments.
    pub overhead: f64,
}

/// The answer of a [`Sizer`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sizing {
    /// The memory that the tenant should have, in bytes.
    pub bytes: u64,
    /// The hit ratio that is to be expected of it, if that is known.
    pub predicted: Option<f64>,
    /// The load is another one: the curve's requests are past.
    pub load_changed: bool,
}

impl Reading<'_> {
    /// Whether the grant is used: a log leaves up to a segment free.
    pub(crate) fn is_full(&self) -> bool {
        self.usage_bytes >= self.grant_bytes - self.grant_bytes / 32
    }

    /// Whether it is full but for the room that expiry and cleaning leave from time to time.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.usage_bytes >= self.grant_bytes - self.grant_bytes / 8
    }
}
