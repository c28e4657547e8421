//! The experiment of the study of CacheLib (Idiosyncrasies of Programmable Caching Engines, section 3). Four tenants of
//! very different skew share a pool that holds a tenth of their items, and misses cost 218 times as much as hits. It
//! runs in virtual time ([`run`]), or in real time ([`run_in_real_time`]).
//!
//! In virtual time a whole number divides the study's 8 GiB and 80 GiB. It also divides the rates, by making hits and
//! misses so much dearer. Sizes over items, fill times over phases, rounds over phases and misses over hits are as in
//! the study, and no time is scaled. Each tenant has one client that asks again when it has its answer. Invariant: in
//! virtual time, all events follow from the setting and the seed alone.

mod optimizer;
mod real_time;
mod rule;

use std::time::Duration;

use tidemark_control::{Change, MIN_CAP_BYTES, MoveView, SettingsPatch};
use tidemark_curve::{Curve, Point};
use tidemark_types::GIB;

use crate::Error;
use crate::elastic::Moment;
use crate::node::{Costs, Node};
use optimizer::{Optimizer, Pool, SLAB_BYTES};
use tidemark_tools::load::{Distribution, Workload};

pub use real_time::run_in_real_time;
pub use rule::{Goal, Rule};

/// How many tenants there are.
pub const TENANTS: usize = 4;
/// The exponents of their popularity; 0 is uniform.
pub const ALPHAS: [f64; TENANTS] = [1.2, 0.9, 0.6, 0.0];
/// The pool at full size.
const POOL_BYTES: u64 = 8 * GIB;
/// Each tenant's items at full size.
const ITEMS: u64 = 20_000_000;
/// The bytes of an item, key and value.
const ITEM_BYTES: usize = 1024;
const KEY_BYTES: usize = 16;
/// The times of a hit and a miss at full size, in microseconds. They are fitted to the study's figures, which follow
/// from them.
const HIT_US: f64 = 1.07;
const MISS_US: f64 = 233.0;
/// Seconds over which the settled state is measured.
const SETTLED_SECONDS: usize = 300;

/// When tenants come and go, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// All are there from the beginning on.
    Static,
    /// The same for eight times as long: until eviction has made the best even of memory that it was given late.
    Long,
    /// They join at 0, 500, 1000 and 1500 s, and leave in reverse from 2000 s to 3500 s.
    Dynamic,
}

impl Plot {
    /// How long it lasts.
    pub fn seconds(self) -> usize {
        match self {
            Self::Static => 2500,
            Self::Long => 20_000,
            Self::Dynamic => 3500,
        }
    }

    /// The seconds from which and to which a tenant is there.
    pub fn presence(self, tenant: usize) -> (usize, usize) {
        match self {
            Self::Static | Self::Long => (0, self.seconds()),
            Self::Dynamic => (500 * tenant, self.seconds() - 500 * tenant),
        }
    }
}

/// How large and how long.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The divisor of the study's sizes and rates.
    pub divisor: u64,
    /// When tenants come and go.
    pub plot: Plot,
    /// The divisor of the plot's times. It only serves to see whether the plot runs: nothing settles in less than the
    /// whole.
    pub haste: usize,
    /// The seed of all randomness.
    pub seed: u64,
}

impl Setting {
    /// All memory.
    pub fn pool_bytes(&self) -> u64 {
        POOL_BYTES / self.divisor
    }

    /// How long it lasts.
    pub fn seconds(&self) -> usize {
        self.plot.seconds() / self.haste
    }

    /// From when to when a tenant is there, in seconds.
    fn presence(&self, tenant: usize) -> (usize, usize) {
        let (from, to) = self.plot.presence(tenant);
        (from / self.haste, to / self.haste)
    }

    /// The tenants that are there at a second.
    fn there(&self, second: usize) -> [bool; TENANTS] {
        std::array::from_fn(|tenant| {
            let (from, to) = self.presence(tenant);
            (from..to).contains(&second)
        })
    }

    /// The time from which on the settled state is measured, in seconds.
    fn settled_from(&self) -> usize {
        self.seconds() - (SETTLED_SECONDS / self.haste).max(2)
    }

    fn costs(&self) -> Costs {
        Costs {
            hit_us: HIT_US * self.divisor as f64,
            miss_us: MISS_US * self.divisor as f64,
        }
    }

    fn workload(&self, tenant: usize) -> Workload {
        let distribution = match ALPHAS[tenant] {
            0.0 => Distribution::Uniform,
            alpha => Distribution::Zipf { alpha },
        };
        Workload {
            seed: self.seed + tenant as u64,
            ..Workload::gets(ITEMS / self.divisor, distribution, KEY_BYTES, ITEM_BYTES - KEY_BYTES)
        }
    }

    /// A hit's and a miss's time as durations, for settings.
    fn cost(&self, full_us: f64) -> Duration {
        Duration::from_nanos((full_us * 1000.0) as u64 * self.divisor)
    }
}

/// The outcome of a rule.
#[derive(Clone, Debug)]
pub struct Found {
    setting: Setting,
    /// The moments of each tenant, at the end of each second; `None` while it is not there.
    pub courses: [Vec<Option<Moment>>; TENANTS],
    /// The errors of predicted hit ratios of moves.
    pub prediction_errors: Vec<f64>,
    /// In virtual time: by how much hit ratio each tenant was said to miss its goal, in the mean of the settled seconds.
    pub shortfalls: [f64; TENANTS],
}

impl Found {
    fn nothing(setting: &Setting) -> Self {
        Self {
            setting: *setting,
            courses: Default::default(),
            prediction_errors: Vec::new(),
            shortfalls: [0.0; TENANTS],
        }
    }
}

/// The name of a tenant, from 0 on.
pub fn name(tenant: usize) -> String {
    format!("t{}", tenant + 1)
}

/// Lets the tenants' memory be shared by a rule.
///
/// # Errors
/// The node's.
pub fn run(setting: &Setting, rule: &Rule) -> Result<Found, Error> {
    let mut node = Node::with_hit_cost(setting.pool_bytes(), 1, setting.seed, setting.cost(HIT_US))?;
    let mut found = Found::nothing(setting);
    let mut there = [false; TENANTS];
    let mut optimizer = Optimizer::default();
    for second in 0..setting.seconds() {
        let now = setting.there(second);
        if now != there {
            found.change(&mut node, rule, there, now)?;
            there = now;
        }
        if matches!(rule, Rule::CacheLib) && second > 0 {
            found.optimize(&mut node, &mut optimizer)?;
        }
        node.run(Duration::from_secs(1));
        for (tenant, course) in found.courses.iter_mut().enumerate() {
            let standing = there[tenant].then(|| node.standing(&name(tenant))).transpose()?;
            course.push(standing.map(|standing| standing.moment));
        }
        if second >= setting.settled_from() {
            found.note_shortfalls(&mut node, there)?;
        }
    }
    for tenant in (0..TENANTS).filter(|tenant| there[*tenant]) {
        found.note_predictions(&node.command(|control| control.moves(name(tenant)))?);
    }
    Ok(found)
}

impl Found {
    /// Tenants leave, and others join.
    fn change(
        &mut self,
        node: &mut Node,
        rule: &Rule,
        before: [bool; TENANTS],
        now: [bool; TENANTS],
    ) -> Result<(), Error> {
        for tenant in (0..TENANTS).filter(|tenant| before[*tenant] && !now[*tenant]) {
            self.note_predictions(&node.command(|control| control.moves(name(tenant)))?);
            node.remove(&name(tenant));
        }
        // Tenants that have to give do so before others get memory.
        for joins in [false, true] {
            for tenant in (0..TENANTS).filter(|tenant| now[*tenant] && before[*tenant] != joins) {
                let patch = rule.patch(&self.setting, now, tenant);
                if joins {
                    node.create(&name(tenant), patch)?;
                    node.load_closed(&name(tenant), &self.setting.workload(tenant), self.setting.costs())?;
                } else {
                    node.command(|control| control.set_tenant(name(tenant), patch))?;
                }
            }
        }
        Ok(())
    }

    /// One run of CacheLib's optimizer.
    fn optimize(&self, node: &mut Node, optimizer: &mut Optimizer) -> Result<(), Error> {
        let slab_bytes = SLAB_BYTES / self.setting.divisor;
        let mut pools = [None; TENANTS];
        for (tenant, pool) in pools.iter_mut().enumerate() {
            let Some(Some(moment)) = self.courses[tenant].last() else {
                continue;
            };
            let before = self.courses[tenant]
                .iter()
                .rev()
                .nth(1)
                .copied()
                .flatten()
                .unwrap_or_default();
            let view = node.command(|control| control.curve(name(tenant)))?;
            let curve = Curve::through(view.points.iter().map(|point| Point {
                bytes: point.bytes,
                miss_ratio: point.miss_ratio,
                standard_error: 0.0,
            }));
            let miss_ratio = |bytes: u64| curve.at(bytes).miss_ratio;
            let last_slab = miss_ratio(moment.grant_bytes.saturating_sub(slab_bytes)) - miss_ratio(moment.grant_bytes);
            *pool = Some(Pool {
                bytes: moment.grant_bytes,
                tail_hits: last_slab * (moment.gets - before.gets) as f64,
                has_evicted: moment.usage_bytes >= moment.grant_bytes - moment.grant_bytes / 32,
            });
        }
        let Some((from, to)) = optimizer.step(slab_bytes, MIN_CAP_BYTES, &pools) else {
            return Ok(());
        };
        let bytes = |tenant: usize| pools[tenant].map_or(0, |pool| pool.bytes);
        for (tenant, bytes) in [(from, bytes(from) - slab_bytes), (to, bytes(to) + slab_bytes)] {
            let patch = SettingsPatch {
                cap_bytes: Change::Set(bytes),
                ..SettingsPatch::default()
            };
            node.command(|control| control.set_tenant(name(tenant), patch))?;
        }
        Ok(())
    }

    /// Notes the shortfalls of the tenants' goals at the end of one of the settled seconds.
    fn note_shortfalls(&mut self, node: &mut Node, there: [bool; TENANTS]) -> Result<(), Error> {
        let seconds = (self.setting.seconds() - self.setting.settled_from()) as f64;
        for tenant in (0..TENANTS).filter(|tenant| there[*tenant]) {
            self.shortfalls[tenant] += node.view(&name(tenant))?.shortfall_ratio.unwrap_or(0.0) / seconds;
        }
        Ok(())
    }

    fn note_predictions(&mut self, moves: &[MoveView]) {
        let errors = moves.iter().filter_map(|change| {
            let (predicted, measured) = (change.predicted_hit_ratio?, change.measured_hit_ratio?);
            (measured > 0.0).then(|| (predicted - measured).abs() / measured)
        });
        self.prediction_errors.extend(errors);
    }

    /// Operations per second of a tenant between two seconds, at full size; `None` if it was not there all the time.
    pub fn throughput(&self, tenant: usize, from: usize, to: usize) -> Option<f64> {
        let course = &self.courses[tenant];
        let begin = match from.checked_sub(1).and_then(|before| course.get(before)) {
            Some(Some(moment)) => moment.gets,
            _ => 0,
        };
        let end = course.get(to - 1)?.as_ref()?.gets;
        course.get(from)?.as_ref()?;
        Some((end - begin) as f64 / (to - from) as f64 * self.setting.divisor as f64)
    }

    /// A tenant's throughput while it was there.
    pub fn throughput_while_there(&self, tenant: usize) -> f64 {
        let (from, to) = self.setting.presence(tenant);
        self.throughput(tenant, from, to).unwrap_or(0.0)
    }

    /// A tenant's throughput at the end of the static plot.
    pub fn settled(&self, tenant: usize) -> f64 {
        let (from, to) = (self.setting.settled_from(), self.setting.seconds());
        self.throughput(tenant, from, to).unwrap_or(0.0)
    }

    /// The hit ratio of a tenant at the end of the static plot.
    pub fn settled_hit_ratio(&self, tenant: usize) -> Option<f64> {
        self.hit_ratio(tenant, self.setting.settled_from() - 1, self.setting.seconds() - 1)
    }

    /// The second in which a tenant holds nearly the most that it ever held. Its grant may have been more for a while.
    pub fn filled_from(&self, tenant: usize) -> Option<usize> {
        /// A log leaves up to a segment free.
        const NEARLY: f64 = 31.0 / 32.0;
        let course = &self.courses[tenant];
        let most = course.iter().flatten().map(|moment| moment.usage_bytes).max()?;
        course
            .iter()
            .position(|moment| moment.is_some_and(|moment| moment.usage_bytes as f64 >= most as f64 * NEARLY))
    }

    /// Operations of all tenants, over the time of the plot.
    pub fn mean(&self) -> f64 {
        let seconds = self.setting.seconds() as f64;
        let all = (0..TENANTS).map(|tenant| {
            let (from, to) = self.setting.presence(tenant);
            self.throughput_while_there(tenant) * (to - from) as f64
        });
        all.sum::<f64>() / seconds
    }

    /// The part of the pool that changed hands in the last seconds, per minute.
    pub fn moved_per_minute(&self) -> f64 {
        let (from, to) = (self.setting.settled_from(), self.setting.seconds());
        let moved: u64 = self
            .courses
            .iter()
            .flat_map(|course| course[from..to].windows(2))
            .filter_map(|pair| Some(pair[1]?.grant_bytes.saturating_sub(pair[0]?.grant_bytes)))
            .sum();
        moved as f64 / self.setting.pool_bytes() as f64 / ((to - from) as f64 / 60.0)
    }

    /// A tenant's grant at the end of a second, as a part of the pool.
    pub fn part(&self, tenant: usize, second: usize) -> Option<f64> {
        let moment = (*self.courses[tenant].get(second)?)?;
        Some(moment.grant_bytes as f64 / self.setting.pool_bytes() as f64)
    }

    /// The hit ratio of a tenant between two seconds.
    pub fn hit_ratio(&self, tenant: usize, from: usize, to: usize) -> Option<f64> {
        let (begin, end) = (self.courses[tenant][from]?, self.courses[tenant][to]?);
        Some((end.hits - begin.hits) as f64 / (end.gets - begin.gets).max(1) as f64)
    }

    /// The median error of the predicted hit ratios, relative to those that came; `None` without predictions.
    pub fn median_prediction_error(&self) -> Option<f64> {
        let mut errors = self.prediction_errors.clone();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied()
    }
}
