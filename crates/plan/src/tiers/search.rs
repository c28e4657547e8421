//! The price at which something is just used up.
//!
//! For any price there is a best answer. Its excess over the limit falls as the price rises, and its value is `base +
//! price * excess`. The largest value over all prices is that of the best answer within the limit (Lagrange duality).
//! It is found by walking along tangents: the values are a concave function made of lines, so that the search ends at
//! the corner itself. Two answers are equally good there, one above and one below the limit. The mixture that meets the
//! limit exactly is the best of all.

use std::cell::Cell;

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
/// A search begins so near to the price that was found last, relative to it.
const NEAR: f64 = 1.0 / 8.0;
/// Values this close, relative to their parts, are equal.
const ROUNDING: f64 = 1e-12;

/// The price that was found last, from which a search for nearly the same begins: `None` before the first one.
#[derive(Clone, Debug, Default)]
pub(super) struct Near(Cell<Option<f64>>);

/// An answer with its price.
type Priced<A> = (A, f64);

/// The best answer within the limit, and its price. The first price is a guess; the answer passes the limit where no price
/// brings it within.
pub(super) fn price<A: Answer>(first: f64, near: &Near, mut best: impl FnMut(f64) -> A) -> (f64, A) {
    let around = near.0.get().and_then(|price| around(price, &mut best));
    let ends = match around {
        Some(ends) => Ok(ends),
        None => ends(first, &mut best),
    };
    let (price, answer) = match ends {
        Ok((low, high)) => between(low, high, best),
        Err((answer, price)) => (price, answer),
    };
    near.0.set((price > 0.0).then_some(price));
    (price, answer)
}

/// Answers a little below and above a price, if the limit lies between.
fn around<A: Answer>(price: f64, best: &mut impl FnMut(f64) -> A) -> Option<(Priced<A>, Priced<A>)> {
    let (below, above) = (price * (1.0 - NEAR), price * (1.0 + NEAR));
    let low = best(below);
    if low.excess() <= 0.0 {
        return None;
    }
    let high = best(above);
    (high.excess() <= 0.0).then_some(((low, below), (high, above)))
}

/// Answers above the limit and within it; the only one if there are not both.
fn ends<A: Answer>(first: f64, best: &mut impl FnMut(f64) -> A) -> Result<(Priced<A>, Priced<A>), Priced<A>> {
    let free = best(0.0);
    if free.excess() <= 0.0 {
        return Err((free, 0.0));
    }
    let mut low = (free, 0.0);
    let mut high = (best(first), first);
    let mut doublings = 0;
    while high.0.excess() > 0.0 {
        if doublings == DOUBLINGS_MAX {
            return Err(high);
        }
        let doubled = 2.0 * high.1;
        low = std::mem::replace(&mut high, (best(doubled), doubled));
        doublings += 1;
    }
    Ok((low, high))
}

/// The best answer where the limit lies between these two.
fn between<A: Answer>(
    (mut low, mut low_price): Priced<A>,
    (mut high, mut high_price): Priced<A>,
    mut best: impl FnMut(f64) -> A,
) -> (f64, A) {
    let mut at_bend = None;
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
            // Both are best at this price.
            at_bend = Some(price);
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
    (at_bend.unwrap_or(high_price), low.mixed(&high, share))
}
