//! The meaning of expiration times (protocol.txt, "Expiration times").

use tidemark_types::UnixMs;

/// Up to this number of seconds (30 days) an expiration time counts from now, beyond it from 1970.
pub const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// When an item ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// Not by time.
    Never,
    /// The item expires at this moment, which may have passed.
    At(UnixMs),
    /// It already has (a negative time was sent).
    Already,
}

/// When an item with this expiration time ends if it is written now. Times beyond the end of the clock stop there.
#[inline]
pub fn expires(exptime: i64, now: UnixMs) -> Expires {
    let Ok(seconds) = u64::try_from(exptime) else {
        return Expires::Already;
    };
    if seconds == 0 {
        return Expires::Never;
    }
    let milliseconds = seconds.saturating_mul(1000);
    Expires::At(UnixMs(if exptime <= RELATIVE_SECONDS_MAX {
        now.0.saturating_add(milliseconds)
    } else {
        milliseconds
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_days_divide_relative_from_absolute() {
        let now = UnixMs(1_700_000_000_500);
        for (exptime, meaning) in [
            (0, Expires::Never),
            (-1, Expires::Already),
            (i64::MIN, Expires::Already),
            (1, Expires::At(UnixMs(1_700_000_001_500))),
            (2_592_000, Expires::At(UnixMs(1_702_592_000_500))),
            (2_592_001, Expires::At(UnixMs(2_592_001_000))),
            (1_800_000_000, Expires::At(UnixMs(1_800_000_000_000))),
            (i64::MAX, Expires::At(UnixMs(u64::MAX))),
        ] {
            assert_eq!(expires(exptime, now), meaning, "{exptime}");
        }
    }
}
