//! Tidemark, an elastic multi-tenant cache, as a library. The `tidemark` command of the same package is the server.
//!
//! A [`Cache`] is one pool of memory; its [`Tenant`]s share it by what each needs. A tenant with a goal gets the memory
//! that the goal takes, and follows its load; one without uses free memory. Floors are kept and caps never exceeded.
//!
//! ```
//! use tidemark::{Cache, HitRatio, TenantSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Cache::with_memory(64 << 20)?;
//! let goal = TenantSettings { hit_ratio: Some(HitRatio::new(0.9)?), ..TenantSettings::default() };
//! let users = cache.create("users", goal)?;
//! users.insert(b"42", b"Ada")?;
//! assert!(users.get(b"42").is_some_and(|name| name == b"Ada"));
//! # Ok(())
//! # }
//! ```
//!
//! # From ten lines to a policy of your own
//!
//! Runnable examples are in the package's folder `examples`, each a few lines longer than the one before:
//!
//! | example | shows |
//! |---|---|
//! | `ten_lines` | a cache, a tenant, a value |
//! | `values` | values without copies: read in place ([`Tenant::get_with`], [`Tenant::get`]), made in place ([`Tenant::reserve`]); several at a time |
//! | `flash` | what memory evicts goes to a file ([`Builder::flash`]), and comes back, with waiting ([`Tenant::get`]) and without ([`Tenant::try_get`]) |
//! | `goals` | tenants that share memory by their goals, in virtual time, driven by the program ([`Driver`]) |
//! | `choices` | which items are let in ([`Admission`]), how much memory a tenant wants ([`ResizeStrategy`]), what its hits are worth ([`UtilityFunction`]), what the program is told ([`Events`]) |
//! | `my_own_eviction_policy` | which items go when memory is short ([`EvictionPolicy`]), against those that are built in; what happens when it fails |
//!
//! Built-in rules are chosen by name: a [`PolicyChoice`] and a [`Utility`] in [`TenantSettings`], an
//! [`AdmissionChoice`]; all can be read from text. Custom code in their place is called where the cache works. Each
//! trait says on which thread, under which lock and at what cost. Code that panics or answers nonsense is replaced by
//! the built-in rule: `fifo`, everything, the least memory for the goal, the utility in the settings, nobody. That is
//! reported to [`Events::replaced`], in [`Tenant::faults`] and counted in [`TenantStats::faults`]. It takes a program
//! that unwinds: one that is built with `panic = "abort"` ends instead.
//!
//! ```
//! use std::sync::Arc;
//! use tidemark::{Cache, EvictionPolicy, Resident, TenantSettings, Verdict};
//!
//! /// The least that an eviction policy has to say: small values go last.
//! struct SmallOnesStay;
//!
//! impl EvictionPolicy for SmallOnesStay {
//!     fn judge(&self, item: &Resident<'_>) -> Verdict {
//!         match item.uses {
//!             1.. if item.value_bytes < 1000 => Verdict::Keep { uses: item.uses - 1 },
//!             _ => Verdict::Drop,
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Cache::with_memory(64 << 20)?;
//! let pages = cache.create("pages", TenantSettings::default())?;
//! pages.set_eviction(Arc::new(SmallOnesStay))?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is in it
//!
//! Without default features there is neither
//! HTTP nor command line nor SQLite in it. Settings are the program's business: the cache begins without tenants each time.
//!
//! Linux on 64-bit machines. The cache's own threads have names that begin with `tidemark-`.

#![forbid(unsafe_code)]

pub use tidemark_embed::{
    Admission, AdmissionChoice, AdmissionError, Builder, Cache, CacheStats, Candidate, Cause, Change, ControlError,
    CurvePointView, CurveView, Driver, Error, Events, EvictionPolicy, Fault, FileError, FlashSettings, FlashUse,
    HitCurve, Idling, KEY_BYTES_MAX, Left, LeftItem, Load, MoveView, Newcomer, OnFlash, OpenError, Part, Queue,
    Reservation, Resident, ResizeStrategy, SettingsPatch, SizeReading, Tenant, TenantSettings, TenantStats, TenantView,
    Utility, UtilityError, UtilityFunction, VALUE_BYTES_MAX, Value, ValueRef, Verdict,
};
pub use tidemark_types::{
    Clock, HitRatio, HitRatioError, LogShare, ManualClock, Policy, PolicyChoice, PolicyError, Size, Staleness,
    SystemClock, UnitError, UnixMs, Weight,
};
