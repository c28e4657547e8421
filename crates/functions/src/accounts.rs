//! The charges of functions' cost to accounts. Pure. An *account* is a number of the caller's.
//!
//! The cost of serving is shared by the bytes that accounts moved since the last settlement; if none did, by those before: an
//! invocation's cost is known when it ends, which is after it has served. The cost of keeping warm
//! and backing up is shared by the bytes that they hold. Cost that nobody can be charged for waits for the next
//! settlement. Invariant: all spending is charged once, to the last whole unit.

use std::collections::HashMap;

/// The charged amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Invocations.
    pub invocations: u64,
    /// MiB of functions times ms for which they ran.
    pub mib_ms: u64,
}

impl Amount {
    fn since(self, before: Self) -> Self {
        Self {
            invocations: self.invocations.saturating_sub(before.invocations),
            mib_ms: self.mib_ms.saturating_sub(before.mib_ms),
        }
    }

    fn plus(self, more: Self) -> Self {
        Self {
            invocations: self.invocations + more.invocations,
            mib_ms: self.mib_ms + more.mib_ms,
        }
    }
}

/// The accounts that are charged for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payers {
    /// Those who use it.
    Users,
    /// One account for all of it, used or not: the pool is its own.
    One(u32),
    /// Nobody: the pool is that of an account that is no more.
    Nobody,
}

/// The use of accounts since the last settlement, and the charges so far.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// Since the last settlement.
    moved: HashMap<u32, u64>,
    /// Before the last settlement at which there were any.
    moved_before: HashMap<u32, u64>,
    moved_total: HashMap<u32, u64>,
    charged_serving: Amount,
    charged_standing: Amount,
}

impl Accounts {
    /// Notes bytes that an account read or wrote.
    pub fn moved(&mut self, account: u32, bytes: u64) {
        *self.moved.entry(account).or_default() += bytes;
        *self.moved_total.entry(account).or_default() += bytes;
    }

    /// Bytes that each account moved since the start.
    pub fn moved_total(&self) -> &HashMap<u32, u64> {
        &self.moved_total
    }

    /// Charges all that was spent so far, less what was charged: on serving, and on all else. `held`: bytes of chunks by account.
    /// Each account is in the result once at most, ascending.
    pub fn settle(
        &mut self,
        payers: Payers,
        serving: Amount,
        standing: Amount,
        held: &HashMap<u32, u64>,
    ) -> Vec<(u32, Amount)> {
        let Payers::Users = payers else {
            let charged = self.charged_serving.plus(self.charged_standing);
            let amount = serving.plus(standing).since(charged);
            (self.charged_serving, self.charged_standing) = (serving, standing);
            return match payers {
                Payers::One(account) if amount != Amount::default() => vec![(account, amount)],
                _ => Vec::new(),
            };
        };
        let mut charges: HashMap<u32, Amount> = HashMap::new();
        if self.moved.values().any(|bytes| *bytes > 0) {
            self.moved_before = std::mem::take(&mut self.moved);
        }
        let parts = [
            (serving, &mut self.charged_serving, &self.moved_before),
            (standing, &mut self.charged_standing, held),
        ];
        for (spent, charged, weights) in parts {
            let shares = shares(spent.since(*charged), weights);
            if !shares.is_empty() {
                *charged = spent;
            }
            for (account, amount) in shares {
                let charge = charges.entry(account).or_default();
                *charge = charge.plus(amount);
            }
        }
        let mut charges: Vec<(u32, Amount)> = charges
            .into_iter()
            .filter(|(_, amount)| *amount != Amount::default())
            .collect();
        charges.sort_unstable_by_key(|(account, _)| *account);
        charges
    }
}

/// An amount in proportion to weights; nothing is left over unless there is no weight.
fn shares(amount: Amount, weights: &HashMap<u32, u64>) -> Vec<(u32, Amount)> {
    let total: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
    if total == 0 {
        return Vec::new();
    }
    let mut ordered: Vec<(u32, u64)> = weights.iter().map(|(account, weight)| (*account, *weight)).collect();
    ordered.sort_unstable();
    // The amount that all accounts up to one pay, rounded down: rounding is not lost, and hits nobody twice.
    let up_to = |all: u64, weight: u128| u64::try_from(u128::from(all) * weight / total).unwrap_or(u64::MAX);
    let (mut weight, mut before) = (0, Amount::default());
    let mut shares = Vec::with_capacity(ordered.len());
    for (account, own) in ordered {
        weight += u128::from(own);
        let now = Amount {
            invocations: up_to(amount.invocations, weight),
            mib_ms: up_to(amount.mib_ms, weight),
        };
        shares.push((account, now.since(before)));
        before = now;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(invocations: u64, mib_ms: u64) -> Amount {
        Amount { invocations, mib_ms }
    }

    #[test]
    fn serving_goes_by_bytes_moved_and_the_rest_by_bytes_held() {
        let mut accounts = Accounts::default();
        accounts.moved(1, 300);
        accounts.moved(2, 100);
        let held = HashMap::from([(2, 50), (3, 50)]);
        let charges = accounts.settle(Payers::Users, amount(8, 800), amount(10, 1_001), &held);
        assert_eq!(charges, [(1, amount(6, 600)), (2, amount(7, 700)), (3, amount(5, 501))]);
        assert_eq!(
            accounts.settle(Payers::Users, amount(8, 800), amount(10, 1_001), &held),
            []
        );
    }

    #[test]
    fn what_nobody_can_be_charged_for_waits() {
        let mut accounts = Accounts::default();
        assert_eq!(
            accounts.settle(Payers::Users, amount(5, 50), amount(7, 70), &HashMap::new()),
            []
        );
        accounts.moved(9, 1);
        let held = HashMap::from([(4, 10)]);
        let charges = accounts.settle(Payers::Users, amount(6, 60), amount(7, 70), &held);
        assert_eq!(charges, [(4, amount(7, 70)), (9, amount(6, 60))]);
    }

    #[test]
    fn who_was_served_last_pays_for_what_ends_later() {
        let mut accounts = Accounts::default();
        let settle = |accounts: &mut Accounts, count| {
            accounts.settle(Payers::Users, amount(count, 0), amount(0, 0), &HashMap::new())
        };
        accounts.moved(1, 100);
        assert_eq!(settle(&mut accounts, 0), [], "its invocations run");
        assert_eq!(settle(&mut accounts, 6), [(1, amount(6, 0))], "they have ended");
        accounts.moved(2, 100);
        assert_eq!(
            settle(&mut accounts, 9),
            [(2, amount(3, 0))],
            "the next one does not pay for them"
        );
    }

    #[test]
    fn a_pool_of_ones_own_is_paid_whole_and_by_nobody_else() {
        let mut accounts = Accounts::default();
        let nothing = HashMap::new();
        let mut settle =
            |payers, serving, standing| accounts.settle(payers, amount(serving, 0), amount(standing, 5), &nothing);
        assert_eq!(
            settle(Payers::One(3), 2, 4),
            [(3, amount(6, 5))],
            "also if it was not used"
        );
        assert_eq!(settle(Payers::One(3), 2, 4), []);
        assert_eq!(settle(Payers::Nobody, 9, 9), []);
        assert_eq!(
            settle(Payers::One(8), 10, 9),
            [(8, amount(1, 0))],
            "a later account does not pay for the time without one"
        );
    }

    #[test]
    fn nothing_is_lost_by_rounding() {
        let mut accounts = Accounts::default();
        let (mut spent, mut sum) = (Amount::default(), Amount::default());
        for round in 1..200_u64 {
            (0..7).for_each(|account| accounts.moved(account, round * 31 % (11 + u64::from(account))));
            spent = spent.plus(amount(round % 5, round * 7 % 13));
            let charges = accounts.settle(Payers::Users, spent, Amount::default(), &HashMap::new());
            sum = charges.iter().fold(sum, |sum, (_, charge)| sum.plus(*charge));
        }
        accounts.moved(1, 1);
        let last = accounts.settle(Payers::Users, spent, Amount::default(), &HashMap::new());
        sum = last.iter().fold(sum, |sum, (_, charge)| sum.plus(*charge));
        assert_eq!(sum, spent);
    }
}
