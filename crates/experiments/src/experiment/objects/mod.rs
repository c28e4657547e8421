//! The parts of experiments about objects: clients of an S3 address and of Redis, an origin, and servers whose functions are processes.

mod cloud;
mod http;
mod origin;
mod reads;
mod resp;
mod s3;

pub(super) use cloud::{BUCKET, Cloud, Gateway, Pool};
pub(super) use origin::{Origin, Slowness};
pub(super) use reads::{Client, Found, Limits, Pace, repeat};
pub(super) use resp::Resp;
pub(super) use s3::{AccessKey, Place, S3};
