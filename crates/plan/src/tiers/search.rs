//! The price at which something is just used up.
//!
//! For any price there is a best answer. Its excess over the limit falls as the price rises, and its value is `base +
//! price * excess`. The largest value over all prices is that of the best answer within the limit (Lagrange duality).
//! It is found by walking along tangents: the values are a concave function made of lines, so that the search ends at
//! the corner itself. Two answers are equally good there, one above and one below the limit. The mixture that meets the
//! limit exactly is the best of all.

/// The best answer at a price.
pub(super) trait Answer: Clone {
    /// By how much it passes the limit that the price is for.
    fn excess(&self) -> f64;
    /// Its value without the price's part.
    fn base(&self) -> f64;
    /// A mixture with this share of the other; both are best at one price.
    fn mixed(&self, other: &Self, share: f64) -> Self;
}

/// Steps at most. Tangents end the search after about as many as an answer has corners near the price; the rest is for
/// rounding.
const STEPS_MAX: usize = 60;
/// Doublings of the first price at most, before the target is taken to be impossible at any price.
const DOUBLINGS_MAX: usize = 200;
/// Values this close, relative to their parts, are equal.
const ROUNDING: f64 = 1e-12;

/// The best answer within the limit, and its price. The first price is a guess; the answer passes the limit where no price
/// brings it within.
pub(super) fn price<A: Answer>(first: f64, mut best: impl FnMut(f64) -> A) -> (f64, A) {
    let free = best(0.0);
    if free.excess() <= 0.0 {
        return (0.0, free);
    }
    let (mut low, mut low_price) = (free, 0.0);
    let mut high_price = first;
    let mut high = best(high_price);
    let mut doublings = 0;
    while high.excess() > 0.0 {
        if doublings == DOUBLINGS_MAX {
            return (high_price, high);
        }
        (low, low_price) = (high, high_price);
        high_price *= 2.0;
        high = best(high_price);
        doublings += 1;
    }
    for step in 0..STEPS_MAX {
        let bend = (high.base() - low.base()) / (low.excess() - high.excess());
        // Every third step halves, in case that many corners lie between.
        let is_halving = step % 3 == 2;
        let price = if is_halving {
            (low_price + high_price) / 2.0
        } else {
            bend.clamp(low_price, high_price)
        };
        let answer = best(price);
        let on_tangent = low.base() + bend * low.excess();
        let value = answer.base() + bend * answer.excess();
        let scale = answer.base().abs() + (bend * answer.excess()).abs() + on_tangent.abs();
        if !is_halving && value >= on_tangent - ROUNDING * scale {
            break;
        }
        if answer.excess() > 0.0 {
            (low, low_price) = (answer, price);
        } else {
            (high, high_price) = (answer, price);
        }
        if high_price - low_price <= f64::EPSILON * high_price {
            break;
        }
    }
    let share = low.excess() / (low.excess() - high.excess());
    (high_price, low.mixed(&high, share))
}
