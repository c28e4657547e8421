//! Tidemark, an elastic multi-tenant cache, as a library. The `tidemark` command of the same package is the server.
//!
//! A [`Cache`] is one pool of memory; its [`Tenant`]s share it by what each needs. A tenant with a goal gets the memory that
//! the goal takes, and follows its load; one without uses what is free; floors are kept and caps never passed.
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
//! Runnable examples, from ten lines on, are in the package's folder `examples`. Without default features there is neither
//! HTTP nor command line nor SQLite in it. Settings are the program's business: the cache begins without tenants each time.
//!
//! Linux on 64-bit machines. The cache's own threads have names that begin with `tidemark-`.

#![forbid(unsafe_code)]

pub use tidemark_embed::{
    Builder, Cache, CacheStats, Change, ControlError, CurvePointView, CurveView, Driver, Error, Idling, KEY_BYTES_MAX,
    MoveView, Reservation, SettingsPatch, Tenant, TenantSettings, TenantStats, TenantView, VALUE_BYTES_MAX, Value,
};
pub use tidemark_types::{
    Clock, HitRatio, HitRatioError, ManualClock, Policy, PolicyChoice, PolicyError, Size, SystemClock, UnitError,
    UnixMs,
};
