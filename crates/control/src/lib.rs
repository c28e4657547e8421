//! The control plane: the tenants, their permissions, and how much memory each may hold.
//!
//! A [`Control`] runs one thread; a [`Stepped`] is the same without it, driven by its caller. Once per round it takes a
//! [`Snapshot`](tidemark_types::Snapshot) from the data plane, decides, and publishes a [`Plan`](tidemark_types::Plan).
//! Between rounds it answers the commands of a [`ControlHandle`]. Its durable data is in one [`State`]: a file that
//! outlives the process, with the feature `sqlite`, or memory.
//!
//! If several instances share a node's memory, a [`NodeLease`] makes the pool as large as its lease. It reads and
//! commands through a handle, too.
//!
//! The parts, from pure to impure: [`grants`], [`shards_for`] and `idle` are functions over plain values. `estimator`
//! and `elastic` follow one tenant's load, and `sizing` asks a custom strategy. `moves` keeps the changes of a grant
//! and their reasons. `book` holds every tenant and turns snapshots and commands into plans, without clock, file or
//! thread. `controller` carries each command to the file, the book and the data plane, in this order. `thread` gives it
//! time and a mailbox, and `node` keeps the lease.
//!
//! Invariants: a command is acknowledged only after it is in the state file and in force in the data plane. The sum of
//! all grants never passes the pool less [`reserve_bytes`]. Nothing of the cache's content is ever stored.

#![forbid(unsafe_code)]

mod answer;
#[cfg(feature = "sqlite")]
pub mod backup;
mod book;
mod config;
mod confine;
mod controller;
mod credit;
mod elastic;
mod error;
mod estimator;
pub mod fake;
mod flash;
mod goal;
mod grant;
mod handle;
mod hit_cost;
mod hit_interval;
mod idle;
#[cfg(feature = "sqlite")]
mod ledger;
mod mailbox;
mod metering;
mod miss_cost;
mod moves;
mod node;
mod pace;
mod process;
mod rate_interval;
mod secret;
mod settings;
mod shards;
mod shared;
mod sizing;
mod spending;
mod state;
mod steady;
mod stepped;
mod thread;
mod tiers;
mod utility;
mod view;
mod want;
mod watch;

pub use answer::Answer;
pub use config::{ControlConfig, FirstLease, Listeners};
pub use confine::is_confined;
pub use error::{ControlError, Refusal, RefusalKind};
pub use grant::{GoalNeed, Grant, Holder, Problem, grants, reserve_bytes};
pub use handle::{ControlHandle, Readiness};
#[cfg(feature = "sqlite")]
pub use ledger::{
    Carried, DEFAULT_LEDGER_RETENTION, LEDGER_FILE_NAME, LEDGER_ROWS_MAX, Ledger, LedgerReader, MAX_LEDGER_RETENTION,
    MIN_LEDGER_RETENTION, Query, Verified,
};
pub use mailbox::Mailbox;
pub use metering::{
    DEFAULT_CPU_MODEL_INTERVAL, DEFAULT_LEDGER_PERIOD, LedgerMessage, MAX_CPU_MODEL_INTERVAL, MAX_LEDGER_PERIOD,
    MIN_CPU_MODEL_INTERVAL, MIN_LEDGER_PERIOD, Metering,
};
pub use node::{FolderError, Joined, NodeError, NodeLease};
pub use secret::{NewSecret, Rotation, SecretName, SecretNameError, SecretText};
pub use settings::{
    ApiPlace, Bounds, Change, DEFAULT_FIRST_GRANT_BYTES, DEFAULT_HIT_COST, DEFAULT_IDLE_AFTER, DEFAULT_LEASE_PERIOD,
    DEFAULT_PRIORITY, DEFAULT_ROUND_PERIOD, FlashPatch, FlashSettings, Idling, MAX_COST, MAX_IDLE_AFTER,
    MAX_LEASE_PERIOD, MAX_PRIORITY, MAX_ROUND_PERIOD, MAX_TENANTS, MIN_CAP_BYTES, MIN_COST, MIN_FIRST_GRANT_BYTES,
    MIN_FLASH_CAP_BYTES, MIN_IDLE_AFTER, MIN_LEASE_PERIOD, MIN_POOL_BYTES, MIN_ROUND_PERIOD, PlainValue, SETTINGS,
    ServerPatch, Setting, SettingsPatch, StateColumn, TenantSettings, Unset, ValueKind,
};
pub use shards::shards_for;
pub use sizing::{HitCurve, ResizeStrategy, SizeReading};
pub use spending::{AlertCounts, AlertSink, Spent};
#[cfg(feature = "sqlite")]
pub use state::StateFile;
pub use state::{MemoryState, PoolSetting, ServerSettings, State, StoredSecret, TenantRecord};
pub use stepped::Stepped;
pub use thread::Control;
pub use tidemark_plan::tiers::{Minimise, MinimiseError};
pub use tidemark_plan::{Load, Reach, Utility, UtilityError};
pub use utility::UtilityFunction;
pub use view::{
    AlertsView, CpuModelView, CurvePointView, CurveView, DurationBucketView, DurationsView, LastMoveView, LatencyView,
    LeaseView, MoveView, MovesView, NodeView, OperationsView, PreviewView, PreviewedView, ProcessView, RefusedView,
    SecretView, SectionView, ServerView, ShapeView, SpendingView, TenantAddress, TenantView, TopCommandView,
    TopKeyView, TopView, UsedView,
};
pub use watch::{Watch, Watcher};
