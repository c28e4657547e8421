//! How long an invocation runs: the function's side of the paper's Figure 7, with its anticipatory billed-duration control
//! (section 3.3). Pure: times are ms since any fixed moment.
//!
//! ```text
//!             invoked                 request
//!  Sleeping ----------> Idling ---------------------> Serving
//!     ^                 |  ^   <---------------------   |
//!     |   end of cycle  |  |           served           |
//!     +------- BYE -----+  +--- PING: runs on for a while
//! ```
//!
//! A *cycle* is billed together: one unit, or [`LINGER_MS`] where units are shorter. An invocation ends just before a
//! cycle does; a request for a second object within a cycle makes it expect more, and run for one cycle more. (In the paper
//! a function has one chunk of an object; here it has one of each stripe, and they are asked for one after another.)
//! It serves from the first bytes of a request on: a chunk that is still arriving is not left behind.

use crate::chunk::ContentId;

/// An invocation with shorter units still waits so long for the next request: a new invocation would cost as much.
pub const LINGER_MS: u64 = 20;
/// An invocation ends so long before its cycle does, so that its end is billed within it. As the paper: 2 to 10 ms.
const MARGIN_MS: u64 = 4;
/// An invocation ends so long before the cloud would end it, whatever is asked.
const DEADLINE_MARGIN_MS: u64 = 500;
/// A PING without a request holds an invocation for at most so long.
const PING_HOLD_MS_MAX: u64 = 1_000;
/// How much of a new measurement goes into the estimate of how long a request takes.
const SERVE_SHARE_DIVISOR: u64 = 8;

/// The state of an instance in Figure 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not run.
    Sleeping,
    /// It runs and waits.
    Idling,
    /// It answers so many requests.
    Serving(u32),
}

/// An instance's clock.
#[derive(Clone, Debug)]
pub struct Lifetime {
    state: State,
    cycle_ms: u64,
    started_ms: u64,
    deadline_ms: u64,
    ends_ms: u64,
    /// The cycle of the last request, for how many objects there were some in it, and the last one.
    cycle: u64,
    objects: u32,
    object: Option<ContentId>,
    /// The time from request to reply, about.
    serve_ms: u64,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self {
            state: State::Sleeping,
            cycle_ms: LINGER_MS,
            started_ms: 0,
            deadline_ms: 0,
            ends_ms: 0,
            cycle: 0,
            objects: 0,
            object: None,
            serve_ms: LINGER_MS,
        }
    }
}

impl Lifetime {
    /// It is invoked; the cloud ends it at `deadline_ms`.
    pub fn invoked(&mut self, now_ms: u64, unit_ms: u32, deadline_ms: u64) {
        self.state = State::Idling;
        self.cycle_ms = u64::from(unit_ms).max(LINGER_MS);
        self.started_ms = now_ms;
        self.deadline_ms = deadline_ms.saturating_sub(DEADLINE_MARGIN_MS);
        (self.cycle, self.objects, self.object) = (0, 0, None);
        self.ends_ms = self.end_of(0);
    }

    /// A request for a part of an object comes; or one that says nothing about what follows.
    pub fn begin(&mut self, now_ms: u64, object: Option<ContentId>) {
        let cycle = now_ms.saturating_sub(self.started_ms) / self.cycle_ms;
        if cycle != self.cycle {
            (self.cycle, self.objects, self.object) = (cycle, 0, None);
        }
        if object.is_some() && object != self.object {
            self.objects += 1;
            self.object = object;
        }
        self.hold();
    }

    /// A request that took so long is answered.
    pub fn served(&mut self, now_ms: u64, took_ms: u64) {
        self.serve_ms = (self.serve_ms * (SERVE_SHARE_DIVISOR - 1) + took_ms) / SERVE_SHARE_DIVISOR;
        self.release(now_ms);
        let cycle = now_ms.saturating_sub(self.started_ms) / self.cycle_ms;
        let expects_more = u64::from(self.objects > 1);
        self.ends_ms = self.ends_ms.max(self.end_of(cycle + expects_more));
    }

    /// Something else than a request is done: it does not end before that does.
    pub fn hold(&mut self) {
        self.state = match self.state {
            State::Serving(requests) => State::Serving(requests + 1),
            _ => State::Serving(1),
        };
    }

    /// That is done: it runs on to the end of its cycle.
    pub fn release(&mut self, now_ms: u64) {
        self.state = match self.state {
            State::Serving(requests) if requests > 1 => State::Serving(requests - 1),
            _ => State::Idling,
        };
        let cycle = now_ms.saturating_sub(self.started_ms) / self.cycle_ms;
        self.ends_ms = self.ends_ms.max(self.end_of(cycle));
    }

    /// A PING announces a request: it runs on long enough to answer one.
    pub fn ping(&mut self, now_ms: u64) {
        let hold_ms = (2 * self.serve_ms + self.cycle_ms).min(PING_HOLD_MS_MAX);
        self.ends_ms = self.ends_ms.max(now_ms + hold_ms);
    }

    /// A lease was sent until now: it holds from now on, since sending took a while.
    pub fn promised(&mut self, now_ms: u64, lease_ms: u32) {
        self.ends_ms = self.ends_ms.max(now_ms + u64::from(lease_ms)).min(self.deadline_ms);
    }

    /// Whether it returns now. If so it is asleep: later requests are not answered.
    pub fn ends(&mut self, now_ms: u64) -> bool {
        let is_over = match self.state {
            State::Sleeping => true,
            State::Idling => now_ms >= self.ends_ms || now_ms >= self.deadline_ms,
            State::Serving(_) => now_ms >= self.deadline_ms,
        };
        if is_over {
            self.state = State::Sleeping;
        }
        is_over
    }

    /// How long it still runs for certain.
    pub fn lease_ms(&self, now_ms: u64) -> u32 {
        let ends_ms = self.ends_ms.min(self.deadline_ms);
        u32::try_from(ends_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX)
    }

    /// The lease that a reply with a body carries. It is read when the body has arrived, which takes about as long as the last ones
    /// took: what is promised for later than that would move the end beyond the cycle, and be billed.
    pub fn reply_lease_ms(&self, now_ms: u64) -> u32 {
        self.lease_ms(now_ms + 2 * self.serve_ms)
    }

    /// When to look again whether it ends.
    pub fn wakes_ms(&self) -> u64 {
        match self.state {
            State::Serving(_) => self.deadline_ms,
            State::Sleeping | State::Idling => self.ends_ms.min(self.deadline_ms),
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    fn end_of(&self, cycle: u64) -> u64 {
        let end = self.started_ms + (cycle + 1) * self.cycle_ms;
        end.saturating_sub(MARGIN_MS).min(self.deadline_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<ContentId> = Some([1; 16]);
    const OTHER: Option<ContentId> = Some([2; 16]);

    fn invoked(unit_ms: u32) -> Lifetime {
        let mut lifetime = Lifetime::default();
        lifetime.invoked(1000, unit_ms, 1_000_000);
        lifetime
    }

    #[test]
    fn it_ends_just_before_a_cycle_does() {
        for (unit_ms, ends_ms) in [(100, 1096), (1, 1016), (0, 1016)] {
            let mut lifetime = invoked(unit_ms);
            assert!(!lifetime.ends(ends_ms - 1), "{unit_ms}");
            assert_eq!(lifetime.lease_ms(ends_ms - 1), 1);
            assert!(lifetime.ends(ends_ms));
            assert_eq!(lifetime.state(), State::Sleeping);
        }
    }

    #[test]
    fn a_second_request_in_a_cycle_adds_one() {
        let mut lifetime = invoked(100);
        lifetime.begin(1010, ONE);
        assert_eq!(lifetime.state(), State::Serving(1));
        lifetime.served(1020, 10);
        assert_eq!(lifetime.wakes_ms(), 1096, "one request: the current cycle");
        lifetime.begin(1030, OTHER);
        lifetime.served(1040, 10);
        assert_eq!(lifetime.wakes_ms(), 1196, "two: one more");
        lifetime.begin(1150, ONE);
        lifetime.served(1160, 10);
        assert_eq!(lifetime.wakes_ms(), 1196, "the first of the next cycle");
    }

    #[test]
    fn chunks_of_one_object_are_one_request() {
        let mut lifetime = invoked(100);
        for (at_ms, object) in [(1010, ONE), (1020, ONE), (1030, None), (1080, ONE)] {
            lifetime.begin(at_ms, object);
            lifetime.served(at_ms + 5, 5);
        }
        assert_eq!(lifetime.wakes_ms(), 1096);
        lifetime.begin(1094, ONE);
        lifetime.served(1105, 11);
        assert_eq!(lifetime.wakes_ms(), 1196, "the cycle that it came into, and no other");
    }

    #[test]
    fn a_lease_does_not_move_the_end_of_a_cycle() {
        let mut lifetime = invoked(100);
        for at_ms in [1010, 1025, 1040, 1055] {
            lifetime.begin(at_ms, ONE);
            let lease_ms = lifetime.reply_lease_ms(at_ms);
            lifetime.served(at_ms + 10, 10);
            lifetime.promised(at_ms + 10, lease_ms);
            assert_eq!(lifetime.wakes_ms(), 1096, "at {at_ms}");
        }
        let lease_ms = lifetime.reply_lease_ms(1060);
        assert!(lease_ms > 0);
        lifetime.promised(1090, lease_ms);
        assert!(
            lifetime.wakes_ms() >= 1090 + u64::from(lease_ms),
            "but what was said holds"
        );
    }

    #[test]
    fn it_does_not_end_while_it_serves() {
        let mut lifetime = invoked(100);
        lifetime.begin(1090, ONE);
        lifetime.begin(1091, OTHER);
        assert!(!lifetime.ends(1500));
        lifetime.served(1500, 410);
        assert_eq!(lifetime.state(), State::Serving(1));
        lifetime.served(1510, 419);
        assert_eq!(lifetime.state(), State::Idling);
        assert!(!lifetime.ends(1511) && lifetime.ends(1696));
        let mut late = Lifetime::default();
        late.invoked(0, 100, 2_000);
        late.begin(10, ONE);
        assert!(!late.ends(1_499) && late.ends(1_500), "but before the cloud ends it");
    }

    #[test]
    fn what_is_done_beside_requests_holds_it() {
        let mut lifetime = invoked(100);
        lifetime.hold();
        lifetime.begin(1010, ONE);
        lifetime.served(1020, 10);
        assert!(
            !lifetime.ends(5_000) && lifetime.wakes_ms() > 100_000,
            "nothing is to be looked at until then"
        );
        lifetime.release(5_010);
        assert_eq!((lifetime.state(), lifetime.wakes_ms()), (State::Idling, 5_096));
    }

    #[test]
    fn a_ping_holds_it_for_a_request_and_no_longer() {
        let mut lifetime = invoked(100);
        lifetime.ping(1090);
        assert!(!lifetime.ends(1100));
        assert!(lifetime.wakes_ms() <= 1090 + PING_HOLD_MS_MAX);
        assert!(lifetime.ends(lifetime.wakes_ms()));
    }
}
