//! A model of CacheLib's pool optimizer (`MarginalHitsOptimizeStrategy` of release v20231101), as in its code and in
//! the study. Once a second, one slab goes from the pool with the lowest smoothed rank to the one with the highest.
//!
//! A pool's rank is its place by the hits that its last slab brings in a second. Only pools that have evicted give, and only
//! pools that were there when the optimizer ran first take part. Hits in a last slab are not counted here but taken from
//! each tenant's curve.

use super::TENANTS;

/// A slab at full size.
pub(super) const SLAB_BYTES: u64 = 4 << 20;
/// The weight of the newest rank.
const NEWEST: f64 = 0.3;

/// The state of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pool {
    pub(super) bytes: u64,
    /// Hits a second that its last slab brings.
    pub(super) tail_hits: f64,
    pub(super) has_evicted: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Optimizer {
    /// The smoothed ranks of those that take part; empty before the first run.
    ranks: Option<[Option<f64>; TENANTS]>,
}

impl Optimizer {
    /// The pools from which and to which a slab of so many bytes goes now, if one does. Pools keep at least
    /// `least_bytes`.
    pub(super) fn step(
        &mut self,
        slab_bytes: u64,
        least_bytes: u64,
        pools: &[Option<Pool>; TENANTS],
    ) -> Option<(usize, usize)> {
        let known = pools.map(|pool| pool.map(|_| 0.0));
        let is_first = self.ranks.is_none();
        let ranks = self.ranks.get_or_insert(known);
        let taking_part: Vec<usize> = (0..TENANTS)
            .filter(|tenant| ranks[*tenant].is_some() && pools[*tenant].is_some())
            .collect();
        let tail_hits = |tenant: usize| pools[tenant].map_or(0.0, |pool| pool.tail_hits);
        let mut by_hits = taking_part.clone();
        by_hits.sort_by(|a, b| tail_hits(*a).total_cmp(&tail_hits(*b)));
        for (rank, tenant) in by_hits.into_iter().enumerate() {
            if let Some(smoothed) = &mut ranks[tenant] {
                let weight = if is_first { 1.0 } else { NEWEST };
                *smoothed += (rank as f64 - *smoothed) * weight;
            }
        }
        let smoothed = |tenant: &usize| ranks[*tenant].unwrap_or(0.0);
        let gives = |tenant: &&usize| {
            let pool = pools[**tenant];
            pool.is_some_and(|pool| pool.has_evicted && pool.bytes >= slab_bytes + least_bytes)
        };
        let order = |a: &&usize, b: &&usize| smoothed(a).total_cmp(&smoothed(b));
        let victim = *taking_part.iter().filter(gives).min_by(order)?;
        let receiver = *taking_part.iter().max_by(order)?;
        (smoothed(&receiver) > smoothed(&victim)).then_some((victim, receiver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(tail_hits: f64, has_evicted: bool) -> Option<Pool> {
        Some(Pool {
            bytes: 100,
            tail_hits,
            has_evicted,
        })
    }

    #[test]
    fn a_slab_goes_to_the_highest_rank_from_the_lowest_that_has_evicted() {
        for (pools, expected) in [
            ([pool(9.0, true), pool(1.0, true), pool(2.0, true), None], Some((1, 0))),
            ([pool(9.0, true), pool(1.0, false), pool(2.0, true), None], Some((2, 0))),
            ([pool(9.0, true), pool(1.0, false), pool(2.0, false), None], None),
            ([pool(9.0, true), None, None, None], None),
        ] {
            assert_eq!(Optimizer::default().step(4, 4, &pools), expected, "{pools:?}");
        }
    }

    #[test]
    fn who_comes_later_takes_no_part() {
        let mut optimizer = Optimizer::default();
        assert_eq!(optimizer.step(4, 4, &[pool(1.0, true), None, None, None]), None);
        assert_eq!(
            optimizer.step(4, 4, &[pool(1.0, true), pool(9.0, true), None, None]),
            None
        );
    }
}
