//! Miss-ratio curves from requests: the gain of a tenant or trace from more memory, and its loss with less.
//!
//! A [`Profile`] takes reuse distances, of every key or of a sample of fixed size, and gives the [`Curve`] of an LRU
//! cache; [`Classes`] compose that of a cache with slab classes, and [`Depth`]s have what it takes to compose one of tiers that treat
//! sizes differently. [`Miniatures`] run the real policies of [`sim`] in small. Both know how sure they are: points of a curve
//! carry their standard error. [`Skew`] says how unevenly keys are used.
//!
//! Invariant: values in, values out. There is no clock, file or thread here; all randomness is the hash of a seed. Sizes are
//! bytes, never objects: to count objects, let each have one byte.

#![forbid(unsafe_code)]

mod classes;
mod contest;
mod curve;
mod histogram;
mod miniature;
mod order;
mod profile;
mod sample;
pub mod sim;
mod skew;
mod stack;

pub use classes::Classes;
pub use contest::{Contest, Lead};
pub use curve::{Curve, Point};
pub use miniature::Miniatures;
pub use profile::{Amount, ClassBounds, Depth, Held, Profile, Sampling};
pub use sample::{CLASSES, Threshold};
pub use sim::{Eviction, EvictionError};
pub use skew::Skew;
