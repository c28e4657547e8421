//! The judgement of a tenant with a goal. The course of its hit ratio and memory ([`Course`]) is compared with the
//! least memory that would have done ([`Oracle`]).
//!
//! The same figures for a server over the wire and for a node in virtual time. Invariant: values in, values out.

mod course;
mod oracle;

pub use course::{Course, INTERVAL_SECONDS, Judgement, Moment, StageTimes};
pub use oracle::{Oracle, Question, Reach, overhead_bytes};
