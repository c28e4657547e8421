//! The protocols from outside: tables of cases, and laws that hold for any input.

mod commands;
mod compose;
mod describe;
mod fuzz;
mod memcached;
mod meta;
mod options;
mod resp;
mod roundtrip;
mod split;
mod values;
