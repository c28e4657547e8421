//! Formats of fixed records.

use super::source::Source;
use super::{Request, TraceError};

/// Time, object, size, next access; see [`super::Format::OracleGeneral`].
const ORACLE_RECORD_BYTES: usize = 4 + 8 + 4 + 8;

pub(super) fn oracle_general(source: &mut Source) -> Result<Option<Request>, TraceError> {
    let record = source.record::<ORACLE_RECORD_BYTES>()?;
    Ok(record.map(|bytes| {
        let [t0, t1, t2, t3, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, s2, s3, ..] = bytes;
        Request {
            key: u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]),
            size_bytes: Some(u64::from(u32::from_le_bytes([s0, s1, s2, s3]))),
            time_seconds: Some(f64::from(u32::from_le_bytes([t0, t1, t2, t3]))),
        }
    }))
}

/// A negative key is taken by its bits: keys only have to differ.
pub(super) fn i32be(source: &mut Source) -> Result<Option<Request>, TraceError> {
    let record = source.record()?;
    Ok(record.map(|bytes| Request::of_key(u64::from(u32::from_be_bytes(bytes)))))
}

/// The same as [`i32be`].
pub(super) fn i64be(source: &mut Source) -> Result<Option<Request>, TraceError> {
    let record = source.record()?;
    Ok(record.map(|bytes| Request::of_key(u64::from_be_bytes(bytes))))
}
