//! The limits of a tenant in a time, and its share while others ask as well.

/// Limits of a tenant; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Operations per second: commands, each key of one with several keys counted.
    pub ops_per_second: Option<u64>,
    /// Application bytes per second, requests and replies together, before TLS.
    pub bytes_per_second: Option<u64>,
    /// Connections open at a time.
    pub connections: Option<u64>,
}

/// The most weight. A tenant of weight 1 beside one of this weight still has a hundredth of a worker: it waits for
/// milliseconds, not for seconds.
const WEIGHT_MAX: u8 = 100;

/// A tenant's part of shared things, in proportion to the others': 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u8);

impl Weight {
    /// The least, and the default: all tenants are alike.
    pub const LEAST: Self = Self(1);
    /// The most.
    pub const MOST: Self = Self(WEIGHT_MAX);

    /// A weight from a number; `None` outside of the range.
    pub fn new(weight: u64) -> Option<Self> {
        let weight = u8::try_from(weight).ok().map(Self)?;
        (Self::LEAST..=Self::MOST).contains(&weight).then_some(weight)
    }

    /// The weight as a number.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_bounds() {
        for (number, is_one) in [
            (0, false),
            (1, true),
            (100, true),
            (101, false),
            (256, false),
            (257, false),
            (u64::MAX, false),
        ] {
            assert_eq!(
                Weight::new(number).map(Weight::get),
                is_one.then_some(number),
                "{number}"
            );
        }
        assert_eq!(Weight::default(), Weight::LEAST);
    }
}
