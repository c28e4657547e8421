//! Tidemark, an elastic multi-tenant cache.
//!
//! This library is the facade for embedding the cache in another program; the `tidemark` command of the same package is
//! the server. Without default features it has neither HTTP nor command line nor SQLite.

#![forbid(unsafe_code)]

pub use tidemark_types::{Policy, PolicyError, Size, UnitError};
