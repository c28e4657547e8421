//! When functions are kept warm and backed up within a period. Pure.

/// Looks within a period: each function comes in one of them.
pub const LOOKS: u32 = 60;

/// In which look of a round a function comes. Two turns of a function are half a period apart at least.
pub fn turn(member: u16, round: u64) -> u32 {
    let hash = (u64::from(member) ^ (round << 16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let base = u32::from(member).wrapping_mul(7) % LOOKS;
    let jitter = (hash >> 33) as u32 % (LOOKS / 4);
    (base + jitter) % LOOKS
}

/// Whether a function that ran so long ago, or never, is to be kept warm in its turn. One that ran within half a period is not:
/// what it was invoked for has kept it. So at most seven quarters of a period lie between two invocations.
pub fn is_cold(idle_ms: Option<u64>, every_ms: u64) -> bool {
    idle_ms.is_none_or(|idle_ms| idle_ms >= every_ms / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_lately_is_warm() {
        for (idle_ms, cold) in [
            (None, true),
            (Some(0), false),
            (Some(29_999), false),
            (Some(30_000), true),
        ] {
            assert_eq!(is_cold(idle_ms, 60_000), cold, "{idle_ms:?}");
        }
    }

    #[test]
    fn functions_come_at_different_times() {
        let mut most = 0;
        for round in 0..10 {
            let mut counts = [0; LOOKS as usize];
            (0..400).for_each(|member| counts[turn(member, round) as usize] += 1);
            most = most.max(counts.into_iter().max().unwrap());
        }
        assert!(most <= 20, "{most} of 400 at once");
        assert_ne!(turn(3, 1), turn(4, 1));
        assert!((0..20).any(|round| turn(3, round) != turn(3, 0)), "there is jitter");
    }
}
