//! The heaviest parts of a tenant's load: keys, prefixes of keys, and commands, from the commands of sampled visits.
//!
//! Counts of samples say how what was used is shared; how much was used is known from the tenant's counters. So what is stated
//! adds up to what is billed. Two generations of [`GENERATION`] are kept: what is stated is of the last one to two.
//!
//! Invariant: memory is bounded by [`TENANTS_MAX`], [`KEYS_MAX`] and [`PREFIXES_MAX`]. A tenant that was not sampled for two
//! generations has none.

mod sketch;

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use tidemark_types::{SampledCommand, TenantId, VisitSamples};

use crate::price::{METERS, Money, Prices};
use crate::usage::{Resource, Usage};
use sketch::{Sketch, Weigh};

/// Tenants whose keys are followed: beyond, who was sampled last takes the place of who was not for the longest time.
pub const TENANTS_MAX: usize = 256;
/// Keys that are followed of a tenant, by operations and as many by bytes.
pub const KEYS_MAX: usize = 128;
/// Prefixes of keys that are followed.
pub const PREFIXES_MAX: usize = 64;
/// How long samples are gathered before those of the time before are dropped.
pub const GENERATION: Duration = Duration::from_secs(600);
/// Keys and prefixes in an answer: the heaviest ones.
pub const LISTED_MAX: usize = 32;

/// The default delimiter that ends a prefix of keys.
pub const DEFAULT_DELIMITER: u8 = b':';

/// The use for something: of sampled commands, or scaled to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Commands, in thousandths: one on several keys is shared among them.
    pub milli_operations: u64,
    /// Bytes of requests.
    pub in_bytes: u64,
    /// Bytes of replies.
    pub out_bytes: u64,
    /// Time of executing them: of samples the data plane's estimate, scaled the measured CPU time.
    pub cpu_ns: u64,
}

impl Amounts {
    /// Bytes of requests and replies.
    pub fn bytes(&self) -> u64 {
        self.in_bytes + self.out_bytes
    }

    /// The cost: CPU time, bytes, and operations unless those are free. The cost of memory is not in it.
    pub fn cost(&self, prices: &Prices, is_free: bool) -> Money {
        let parts = METERS.iter().zip(prices.units).filter_map(|(meter, unit_price)| {
            let amount = match meter.resource {
                Resource::CpuNs => self.cpu_ns.into(),
                Resource::NetworkInBytes => self.in_bytes.into(),
                Resource::NetworkOutBytes => self.out_bytes.into(),
                Resource::Operations if !is_free => u128::from(self.milli_operations) / 1000,
                _ => return None,
            };
            Some(crate::bill::cost(amount, unit_price, meter.unit_amount))
        });
        parts.sum()
    }

    fn of(command: &SampledCommand) -> Self {
        Self {
            milli_operations: 1000,
            in_bytes: command.request_bytes.into(),
            out_bytes: command.reply_bytes.into(),
            cpu_ns: command.work_ns.into(),
        }
    }

    /// The part of one of several keys.
    fn split(self, keys: u32) -> Self {
        let keys = u64::from(keys.max(1));
        Self {
            milli_operations: self.milli_operations / keys,
            in_bytes: self.in_bytes / keys,
            out_bytes: self.out_bytes / keys,
            cpu_ns: self.cpu_ns / keys,
        }
    }

    /// The amounts that samples stand for, if `sampled` of them stand for `all`.
    fn scaled(self, sampled: &Self, all: &Self) -> Self {
        let scale = |part: u64, of: u64, to: u64| {
            let product = u128::from(part) * u128::from(to);
            u64::try_from(product.checked_div(of.into()).unwrap_or(0)).unwrap_or(u64::MAX)
        };
        Self {
            milli_operations: scale(self.milli_operations, sampled.milli_operations, all.milli_operations),
            in_bytes: scale(self.in_bytes, sampled.in_bytes, all.in_bytes),
            out_bytes: scale(self.out_bytes, sampled.out_bytes, all.out_bytes),
            cpu_ns: scale(self.cpu_ns, sampled.cpu_ns, all.cpu_ns),
        }
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        self.milli_operations += other.milli_operations;
        self.in_bytes += other.in_bytes;
        self.out_bytes += other.out_bytes;
        self.cpu_ns += other.cpu_ns;
    }
}

/// A key or a prefix, with what was used for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// Its first bytes, at most [`tidemark_types::KEY_PREFIX_BYTES_MAX`].
    pub key: Box<[u8]>,
    /// At least so much was used for it.
    pub used: Amounts,
    /// And at most so much more of what the list is ordered by: thousandths of operations, bytes, or nanoseconds.
    pub error: u64,
}

/// A command, with what was used for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopCommand {
    /// `memcached` or `redis`.
    pub protocol: &'static str,
    /// In lower case.
    pub command: &'static str,
    /// So much.
    pub used: Amounts,
}

/// The heaviest parts of a tenant's load. Lists begin with the heaviest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// For how long, in milliseconds.
    pub over_ms: u64,
    /// Visits that were sampled in this time.
    pub visits: u64,
    /// Commands that were.
    pub commands_sampled: u64,
    /// The use of the tenant in this time.
    pub used: Amounts,
    /// By operations.
    pub keys_by_operations: Vec<TopKey>,
    /// By bytes.
    pub keys_by_bytes: Vec<TopKey>,
    /// By CPU time. The one without bytes is of keys without a delimiter.
    pub prefixes: Vec<TopKey>,
    /// By CPU time.
    pub commands: Vec<TopCommand>,
}

/// The samples of one generation.
#[derive(Clone, Debug)]
struct Generation {
    began_ms: u64,
    /// The tenant's counters when it began, and at the last look.
    before: Usage,
    now: Usage,
    visits: u64,
    sampled: Amounts,
    by_operations: Sketch,
    by_bytes: Sketch,
    prefixes: Sketch,
    commands: Vec<TopCommand>,
}

impl Generation {
    fn new(began_ms: u64, before: Usage) -> Self {
        let operations: Weigh = |amounts| amounts.milli_operations;
        let bytes: Weigh = Amounts::bytes;
        let work: Weigh = |amounts| amounts.cpu_ns;
        Self {
            began_ms,
            before,
            now: before,
            visits: 0,
            sampled: Amounts::default(),
            by_operations: Sketch::new(KEYS_MAX, operations),
            by_bytes: Sketch::new(KEYS_MAX, bytes),
            prefixes: Sketch::new(PREFIXES_MAX, work),
            commands: Vec::new(),
        }
    }

    fn add(&mut self, samples: &VisitSamples, delimiter: u8) {
        self.visits += u64::from(samples.visits);
        for (command, keys) in samples.iter() {
            let amounts = Amounts::of(command);
            self.sampled += amounts;
            self.add_command(command, amounts);
            let each = amounts.split(command.keys);
            for key in keys {
                self.by_operations.add(key, &each);
                self.by_bytes.add(key, &each);
                self.prefixes.add(prefix(key, delimiter), &each);
            }
        }
    }

    fn add_command(&mut self, command: &SampledCommand, amounts: Amounts) {
        let is_it = |known: &&mut TopCommand| known.command == command.command && known.protocol == command.protocol;
        match self.commands.iter_mut().find(is_it) {
            Some(known) => known.used += amounts,
            // As many as there are commands.
            None => self.commands.push(TopCommand {
                protocol: command.protocol,
                command: command.command,
                used: amounts,
            }),
        }
    }

    /// The use of the tenant in this time.
    fn used(&self) -> Amounts {
        let used = self.now.since(&self.before);
        Amounts {
            milli_operations: used.get(Resource::Operations).saturating_mul(1000),
            in_bytes: used.get(Resource::NetworkInBytes),
            out_bytes: used.get(Resource::NetworkOutBytes),
            cpu_ns: used.get(Resource::CpuNs),
        }
    }

    /// The amounts that samples stand for.
    fn scaled(&self, amounts: Amounts) -> Amounts {
        amounts.scaled(&self.sampled, &self.used())
    }
}

/// A key up to its first delimiter, which belongs to it; nothing of one without.
fn prefix(key: &[u8], delimiter: u8) -> &[u8] {
    let end = key.iter().position(|byte| *byte == delimiter);
    end.map_or(&[], |end| &key[..=end])
}

/// The last generations of a tenant.
#[derive(Clone, Debug)]
struct Followed {
    current: Generation,
    previous: Option<Generation>,
    sampled_at_ms: u64,
}

impl Followed {
    fn pass(&mut self, before: &Usage, now_ms: u64) {
        let generation_ms = GENERATION.as_millis() as u64;
        let age_ms = now_ms.saturating_sub(self.current.began_ms);
        if age_ms >= generation_ms {
            let over = std::mem::replace(&mut self.current, Generation::new(now_ms, *before));
            self.previous = (age_ms < 2 * generation_ms).then_some(over);
        }
    }

    fn generations(&self) -> impl Iterator<Item = &Generation> + Clone {
        self.previous.iter().chain([&self.current])
    }
}

/// The heaviest parts of every tenant's load.
#[derive(Clone, Debug)]
pub struct Tops {
    delimiter: u8,
    tenants: BTreeMap<TenantId, Followed>,
}

impl Tops {
    /// Nothing is known of any tenant yet. A key's prefix ends with `delimiter`.
    pub fn new(delimiter: u8) -> Self {
        Self {
            delimiter,
            tenants: BTreeMap::new(),
        }
    }

    /// Takes over the samples of a tenant. `before` is what it had used at the last look, `now` what it has used since.
    pub fn observe(&mut self, id: TenantId, samples: &VisitSamples, before: &Usage, now: &Usage, now_ms: u64) {
        if !self.tenants.contains_key(&id) {
            if samples.is_empty() {
                return;
            }
            self.make_room();
        }
        let followed = self.tenants.entry(id).or_insert_with(|| Followed {
            current: Generation::new(now_ms, *before),
            previous: None,
            sampled_at_ms: now_ms,
        });
        followed.pass(before, now_ms);
        followed.current.now = *now;
        if !samples.is_empty() {
            followed.sampled_at_ms = now_ms;
            followed.current.add(samples, self.delimiter);
        }
    }

    fn make_room(&mut self) {
        if self.tenants.len() < TENANTS_MAX {
            return;
        }
        let oldest = self.tenants.iter().min_by_key(|(_, followed)| followed.sampled_at_ms);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.tenants.remove(&id);
        }
    }

    /// Forgets tenants that were not sampled for two generations.
    pub fn tidy(&mut self, now_ms: u64) {
        let limit_ms = 2 * GENERATION.as_millis() as u64;
        self.tenants
            .retain(|_, followed| now_ms.saturating_sub(followed.sampled_at_ms) < limit_ms);
    }

    /// Forgets a tenant.
    pub fn forget(&mut self, id: TenantId) {
        self.tenants.remove(&id);
    }

    /// Tenants that are followed.
    pub fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// The heaviest parts of a tenant's load; `None` for one that was not sampled of late.
    pub fn top(&self, id: TenantId, now_ms: u64) -> Option<Top> {
        let followed = self.tenants.get(&id)?;
        let began_ms = followed.generations().map(|one| one.began_ms).min()?;
        let mut top = Top {
            over_ms: now_ms.saturating_sub(began_ms),
            keys_by_operations: heaviest(followed, |one| &one.by_operations, |amounts| amounts.milli_operations),
            keys_by_bytes: heaviest(followed, |one| &one.by_bytes, Amounts::bytes),
            prefixes: heaviest(followed, |one| &one.prefixes, |amounts| amounts.cpu_ns),
            ..Top::default()
        };
        for generation in followed.generations() {
            top.visits += generation.visits;
            top.commands_sampled += generation.sampled.milli_operations / 1000;
            top.used += generation.used();
            for command in &generation.commands {
                let used = generation.scaled(command.used);
                let is_it =
                    |known: &&mut TopCommand| known.command == command.command && known.protocol == command.protocol;
                match top.commands.iter_mut().find(is_it) {
                    Some(known) => known.used += used,
                    None => top.commands.push(TopCommand { used, ..*command }),
                }
            }
        }
        top.commands
            .sort_by_key(|command| std::cmp::Reverse(command.used.cpu_ns));
        Some(top)
    }
}

/// The heaviest keys of all generations together, scaled.
fn heaviest(followed: &Followed, sketch_of: fn(&Generation) -> &Sketch, weigh: Weigh) -> Vec<TopKey> {
    let mut keys: BTreeMap<&[u8], TopKey> = BTreeMap::new();
    for generation in followed.generations() {
        for one in sketch_of(generation).followed() {
            keys.entry(&one.key).or_insert_with(|| TopKey {
                key: one.key.clone(),
                used: Amounts::default(),
                error: 0,
            });
        }
    }
    for generation in followed.generations() {
        let sketch = sketch_of(generation);
        let (sampled, all) = (weigh(&generation.sampled), weigh(&generation.used()));
        let scale = |error: u64| {
            let product = u128::from(error) * u128::from(all);
            u64::try_from(product.checked_div(sampled.into()).unwrap_or(0)).unwrap_or(u64::MAX)
        };
        for (key, top) in &mut keys {
            match sketch.get(key) {
                Some(one) => {
                    top.used += generation.scaled(one.seen);
                    top.error = top.error.saturating_add(scale(one.error));
                }
                None => top.error = top.error.saturating_add(scale(sketch.unseen_max())),
            }
        }
    }
    let mut keys: Vec<TopKey> = keys.into_values().collect();
    keys.sort_by_key(|one| std::cmp::Reverse(weigh(&one.used)));
    keys.truncate(LISTED_MAX);
    keys
}

#[cfg(test)]
mod tests;
