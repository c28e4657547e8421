//! One instance's part in sharing a node's memory: the work of each period.
//!
//! Invariant: the pool's limit is raised only after a larger lease was stated and found to fit. A smaller lease is
//! stated only after the pool came down to it. If anything fails, the instance keeps its lease.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidemark_plan::node::{Member, Node, Step, Tenure, step};

use super::folder::{self, Folder, FolderError, Peer};
use super::lease::Lease;
use crate::controller::LeaseReading;
use crate::error::ControlError;
use crate::settings::{MAX_LEASE_PERIOD, MIN_POOL_BYTES};
use crate::view::{LeaseView, NodeView};

/// Surplus moves between instances at most this fast: a 16th of the node's memory in a second. All of it has then moved
/// within 30 s, and a giver evicts no faster than it can serve beside it.
const PACE_DIVISOR: u64 = 16;
/// While a pool comes down, or an instance waits for its first lease, the next look comes so soon.
pub(super) const HURRY: Duration = Duration::from_millis(100);
/// An instance that stated nothing for so many of its periods stands still.
const STALLED_AFTER_PERIODS: u32 = 5;
/// A short silence may be a busy machine's.
const STALLED_AFTER_MIN: Duration = Duration::from_secs(3);

/// The pool that follows a lease.
pub(crate) trait LeasedPool {
    /// How it stands.
    ///
    /// # Errors
    /// It does not answer.
    fn reading(&mut self) -> Result<LeaseReading, ControlError>;

    /// Changes its limit. Returns when nothing beyond it is taken any more.
    ///
    /// # Errors
    /// It does not answer; the limit is as before or as it was to be.
    fn follow(&mut self, limit_bytes: u64) -> Result<(), ControlError>;

    /// Tells of the node, for those who ask, and of the most that this instance could come to.
    fn note(&mut self, view: NodeView, reach_bytes: u64);
}

/// Why an instance keeps its lease as it is.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the control plane does not answer ({0})")]
    Control(#[from] ControlError),
    #[error(
        "{} is held by a running instance, but is no lease: nobody can have more memory until it is one",
        file.display()
    )]
    Unknown { file: PathBuf },
    #[error(
        "the node's memory is too little for its instances: each needs at least {} MiB",
        MIN_POOL_BYTES >> 20
    )]
    TooLittle,
}

/// See the module.
pub(crate) struct Steward {
    folder: Folder,
    tenure: Tenure,
    period: Duration,
    sequence: u64,
    /// The node's memory as it was last read.
    node_bytes: u64,
    /// For each other instance the last sequence, and when it was new.
    heard: BTreeMap<String, (u64, Instant)>,
    look: Look,
    /// The pool was told to hold less.
    is_coming_down: bool,
    /// The last report of a problem.
    problem: Option<String>,
}

/// The result of the last look at the folder.
#[derive(Default)]
struct Look {
    leases: Vec<LeaseView>,
    /// The memory promised to the others for good: their floors, or the least that works.
    promised_bytes: u64,
}

impl Steward {
    /// Joins with a lease of nothing.
    ///
    /// # Errors
    /// The folder cannot be used, or holds no number of bytes.
    pub(crate) fn join(folder: &Path, period: Duration) -> Result<Self, FolderError> {
        let node_bytes = folder::node_bytes(folder, MIN_POOL_BYTES)?;
        Ok(Self {
            folder: Folder::join(folder, &Lease::default())?,
            tenure: Tenure::default(),
            period,
            sequence: 0,
            node_bytes,
            heard: BTreeMap::new(),
            look: Look::default(),
            is_coming_down: false,
            problem: None,
        })
    }

    /// The memory that the pool may hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.tenure.held_bytes()
    }

    /// The problem, if there is one.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether the node's memory is enough for all instances to work, as far as they are known.
    pub(crate) fn is_enough(&self) -> bool {
        let instances = (self.look.leases.len() as u64).max(1);
        MIN_POOL_BYTES * instances <= self.node_bytes
    }

    /// The most that this instance could have beside the others' promises.
    pub(crate) fn reach_bytes(&self, most_bytes: u64) -> u64 {
        let rest = self.node_bytes.saturating_sub(self.look.promised_bytes);
        rest.min(most_bytes).max(MIN_POOL_BYTES)
    }

    pub(crate) fn set_period(&mut self, period: Duration) {
        self.period = period;
    }

    /// Does the present work. Returns the time until the next look.
    pub(crate) fn tick(&mut self, now: Instant, pool: &mut impl LeasedPool) -> Duration {
        let outcome = self.take_part(now, pool);
        let is_hurried = *outcome.as_ref().unwrap_or(&false);
        self.say(outcome.err());
        if is_hurried {
            HURRY.min(self.period)
        } else {
            self.period
        }
    }

    /// Whether the next look should come soon.
    fn take_part(&mut self, now: Instant, pool: &mut impl LeasedPool) -> Result<bool, Obstacle> {
        let reading = pool.reading()?;
        // A claim of before that could not be stated or checked ends here; memory that the pool gave up meanwhile is
        // not held.
        self.tenure.withdraw();
        self.tenure.settle(reading.limit_bytes, reading.resident_bytes);
        let outcome = match self.state(&reading) {
            Ok(()) => self.agree(now, &reading, pool),
            Err(error) => Err(error.into()),
        };
        // Callers that ask also see the problem, before the log says it.
        let problem = outcome.as_ref().err().map(ToString::to_string);
        pool.note(
            self.view(problem, &reading),
            self.reach_bytes(reading.demand.most_bytes),
        );
        outcome
    }

    fn agree(&mut self, now: Instant, reading: &LeaseReading, pool: &mut impl LeasedPool) -> Result<bool, Obstacle> {
        let node_bytes = self.folder.node_bytes(MIN_POOL_BYTES)?;
        if node_bytes != self.node_bytes {
            tracing::info!(
                from = self.node_bytes,
                to = node_bytes,
                "the node's memory is another one"
            );
            self.node_bytes = node_bytes;
        }
        let peers = self.folder.survey()?;
        self.look_at(now, &peers);
        if let Some(unknown) = peers.iter().find(|peer| peer.lease.is_none()) {
            return Err(Obstacle::Unknown {
                file: self.folder.path().join(&unknown.name),
            });
        }
        if std::mem::take(&mut self.is_coming_down) {
            // First that is to be true and stated; the next step comes a period later, so that the pace is kept.
            self.is_coming_down = reading.limit_bytes < self.held_bytes();
            return Ok(self.is_coming_down);
        }
        let (members, me) = self.members(now, reading, &peers);
        let node = Node {
            bytes: node_bytes,
            least_bytes: MIN_POOL_BYTES,
            members: &members,
        };
        let pace_bytes = (node_bytes / PACE_DIVISOR) as f64 * self.period.as_secs_f64();
        let step = step(&node, me, pace_bytes as u64);
        tracing::debug!(?step, lease_bytes = self.held_bytes(), "lease");
        match step {
            Step::Stay => {}
            Step::Shrink(bytes) => {
                self.is_coming_down = true;
                pool.follow(bytes)?;
            }
            Step::Grow(bytes) => self.grow(bytes, reading, pool)?,
        }
        if !self.is_enough() {
            return Err(Obstacle::TooLittle);
        }
        Ok(matches!(step, Step::Shrink(_)))
    }

    fn grow(&mut self, bytes: u64, reading: &LeaseReading, pool: &mut impl LeasedPool) -> Result<(), Obstacle> {
        self.tenure.claim(bytes);
        self.state(reading)?;
        let others = self.folder.survey()?;
        let leases = others
            .iter()
            .map(|peer| peer.lease.as_ref().map(|lease| lease.lease_bytes));
        if self.tenure.check(self.node_bytes, leases) {
            pool.follow(bytes)?;
        } else {
            // Somebody else was faster.
            self.state(reading)?;
        }
        Ok(())
    }

    fn state(&mut self, reading: &LeaseReading) -> Result<(), FolderError> {
        self.sequence += 1;
        let lease = Lease {
            sequence: self.sequence,
            process: std::process::id(),
            period_ms: u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX),
            lease_bytes: self.tenure.stated_bytes(),
            resident_bytes: reading.resident_bytes,
            floors_set_bytes: reading.floors_set_bytes,
            demand: reading.demand.clone(),
        };
        self.folder.state(&lease)
    }

    /// All instances in the order of their names, and which of them this one is.
    fn members(&self, now: Instant, reading: &LeaseReading, peers: &[Peer]) -> (Vec<Member>, usize) {
        let mut members: Vec<Member> = peers
            .iter()
            .filter_map(|peer| Some((peer, peer.lease.as_ref()?)))
            .map(|(peer, lease)| Member {
                lease_bytes: lease.lease_bytes,
                is_stalled: self.is_stalled(now, &peer.name, lease),
                demand: lease.demand.clone(),
            })
            .collect();
        let me = peers.partition_point(|peer| peer.name.as_str() < self.folder.name());
        let own = Member {
            lease_bytes: self.held_bytes(),
            is_stalled: false,
            demand: reading.demand.clone(),
        };
        members.insert(me.min(members.len()), own);
        (members, me)
    }

    /// Takes note of the present instances, and of new statements.
    fn look_at(&mut self, now: Instant, peers: &[Peer]) {
        self.heard.retain(|name, _| peers.iter().any(|peer| peer.name == *name));
        let mut look = Look::default();
        for peer in peers {
            let lease = peer.lease.as_ref();
            if let Some(lease) = lease {
                let (sequence, at) = self.heard.entry(peer.name.clone()).or_insert((lease.sequence, now));
                if *sequence != lease.sequence {
                    (*sequence, *at) = (lease.sequence, now);
                }
            }
            let floors_set_bytes = lease.map_or(0, |lease| lease.floors_set_bytes);
            look.promised_bytes = look.promised_bytes.saturating_add(floors_set_bytes.max(MIN_POOL_BYTES));
            look.leases.push(LeaseView {
                process: lease.map(|lease| lease.process),
                lease_bytes: lease.map(|lease| lease.lease_bytes),
                resident_bytes: lease.map(|lease| lease.resident_bytes),
                state: match lease {
                    None => "unknown",
                    Some(lease) if self.is_stalled(now, &peer.name, lease) => "stalled",
                    Some(_) => "active",
                },
            });
        }
        // This instance's own, filled in where it is shown.
        look.leases.push(LeaseView {
            process: Some(std::process::id()),
            lease_bytes: None,
            resident_bytes: None,
            state: "active",
        });
        self.look = look;
    }

    fn is_stalled(&self, now: Instant, name: &str, lease: &Lease) -> bool {
        let period = Duration::from_millis(lease.period_ms).min(MAX_LEASE_PERIOD);
        let silence = (period * STALLED_AFTER_PERIODS).max(STALLED_AFTER_MIN);
        let heard = self.heard.get(name);
        heard.is_some_and(|(_, at)| now.saturating_duration_since(*at) >= silence)
    }

    fn view(&self, problem: Option<String>, reading: &LeaseReading) -> NodeView {
        let mut leases = self.look.leases.clone();
        if let Some(own) = leases.last_mut() {
            own.lease_bytes = Some(self.held_bytes());
            own.resident_bytes = Some(reading.resident_bytes);
        }
        NodeView {
            folder: self.folder.path().to_path_buf(),
            memory_bytes: self.node_bytes,
            lease_bytes: self.held_bytes(),
            instances: leases.len().max(1),
            problem,
            leases,
        }
    }

    /// Logs a problem when it begins, changes or ends.
    fn say(&mut self, obstacle: Option<Obstacle>) {
        let problem = obstacle.map(|obstacle| obstacle.to_string());
        if problem == self.problem {
            return;
        }
        match &problem {
            // The caller of an instance without a lease to work with reports it.
            _ if self.held_bytes() < MIN_POOL_BYTES => {}
            Some(problem) => tracing::warn!(lease_bytes = self.held_bytes(), "the lease stays as it is: {problem}"),
            None => tracing::info!(lease_bytes = self.held_bytes(), "the lease follows the node again"),
        }
        self.problem = problem;
    }
}

#[cfg(test)]
mod tests;
