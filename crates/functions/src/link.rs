//! The proxy's view of one function: the paper's Figure 6 with leases and epochs. Pure: times are ms since any fixed moment.
//!
//! ```text
//!                       wanted: invoke                hello of this epoch
//!  Sleeping,Unvalidated ---------------> Sleeping,Validating ----------> Active,Validated
//!        ^   ^                                ^      |                       |      ^
//!        |   +------- returned, broken -------|------+              request  |      | reply with a lease,
//!        |                                    |                        sent  v      | pong
//!        +------ BYE, returned, broken -------|---------------------- Active,Unvalidated
//!        |                                    | no pong in time              |
//!        +-- BYE -- Maybe                     +------- Active,Validating <---+ wanted, lease over: ping
//! ```
//!
//! *Maybe* is *Active* while another instance of the name runs beside this one (a backup). Should this one end, the function is
//! invoked when the other has returned, and that answers: earlier, the cloud would start a third one, which is empty. Every
//! invocation has a higher epoch; what comes from a lower one is refused, so two live instances of a name do no harm.

/// A lease is taken to end so long before it does: a request needs time to arrive.
const LEASE_MARGIN_MS: u64 = 5;
/// After BYE, the next invocation waits so long for the last one to return. Earlier, the cloud would start another instance.
const RETURN_PATIENCE_MS: u64 = 1_000;
/// Patience before anything is measured.
const FIRST_PATIENCE_MS: u64 = 3_000;
/// Patience is at least this: a busy machine takes so long for nothing.
const PATIENCE_MS_MIN: u64 = 250;
/// Patience is at most this: a cold start.
const PATIENCE_MS_MAX: u64 = 15_000;

/// Whether the function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Not, as far as is known.
    Sleeping,
    /// Yes.
    Active,
    /// Yes, and another instance of it, which is brought in step with it.
    Maybe,
}

/// Whether that is certain enough to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No.
    Unvalidated,
    /// An answer is awaited.
    Validating,
    /// Yes.
    Validated,
}

/// The step for a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Invoke the function with this epoch.
    Invoke(u64),
    /// Send a PING.
    Ping,
    /// Send the request.
    Send,
    /// Wait for the next event.
    Wait,
}

/// One function.
#[derive(Clone, Debug)]
pub struct Link {
    run: Run,
    check: Check,
    epoch: u64,
    lease_ends_ms: u64,
    /// The time since which an answer is awaited.
    asked_ms: u64,
    /// An invocation that has not returned, and since when its BYE came.
    in_flight: bool,
    bye_ms: Option<u64>,
    /// Another instance of the name runs.
    has_peer: bool,
    invoking: Patience,
    pinging: Patience,
}

impl Link {
    /// Never invoked in this life of the proxy; epochs begin above `epoch`.
    pub fn new(epoch: u64) -> Self {
        Self {
            run: Run::Sleeping,
            check: Check::Unvalidated,
            epoch,
            lease_ends_ms: 0,
            asked_ms: 0,
            in_flight: false,
            bye_ms: None,
            has_peer: false,
            invoking: Patience::default(),
            pinging: Patience::default(),
        }
    }

    /// A request waits. A function that is still to answer others (`is_serving`) runs.
    pub fn wanted(&mut self, now_ms: u64, is_serving: bool) -> Step {
        match (self.run, self.check) {
            (Run::Sleeping, Check::Validating) | (_, Check::Validating) => Step::Wait,
            (Run::Sleeping, _) => self.invoke(now_ms),
            (_, Check::Validated) => Step::Send,
            (_, Check::Unvalidated) if is_serving || now_ms + LEASE_MARGIN_MS < self.lease_ends_ms => Step::Send,
            (_, Check::Unvalidated) => {
                (self.check, self.asked_ms) = (Check::Validating, now_ms);
                Step::Ping
            }
        }
    }

    fn invoke(&mut self, now_ms: u64) -> Step {
        let waits = self.bye_ms.is_some_and(|bye| now_ms < bye + RETURN_PATIENCE_MS);
        if self.in_flight && waits || self.has_peer {
            return Step::Wait;
        }
        self.epoch += 1;
        (self.run, self.check, self.asked_ms) = (Run::Sleeping, Check::Validating, now_ms);
        (self.in_flight, self.bye_ms) = (true, None);
        Step::Invoke(self.epoch)
    }

    /// A request was sent.
    pub fn sent(&mut self) {
        if self.check == Check::Validated {
            self.check = Check::Unvalidated;
        }
    }

    /// An instance says hello. Whether it is taken; if not, its connection is closed.
    pub fn connected(&mut self, now_ms: u64, epoch: u64) -> bool {
        if epoch != self.epoch || self.run != Run::Sleeping || self.check != Check::Validating {
            return false;
        }
        self.invoking.learn(now_ms.saturating_sub(self.asked_ms));
        (self.run, self.check) = (self.running(), Check::Validated);
        self.lease_ends_ms = now_ms;
        true
    }

    /// A reply came, with a lease.
    pub fn replied(&mut self, now_ms: u64, lease_ms: u32) {
        self.lease_ends_ms = now_ms + u64::from(lease_ms);
    }

    /// A PONG came, with a lease.
    pub fn pong(&mut self, now_ms: u64, lease_ms: u32) {
        if self.check == Check::Validating && self.run != Run::Sleeping {
            self.pinging.learn(now_ms.saturating_sub(self.asked_ms));
            self.check = Check::Validated;
        }
        self.replied(now_ms, lease_ms);
    }

    /// The instance says BYE.
    pub fn bye(&mut self, now_ms: u64) {
        self.sleeps();
        if self.in_flight {
            self.bye_ms = Some(now_ms);
        }
    }

    /// The instance's connection broke.
    pub fn broken(&mut self, now_ms: u64) {
        self.bye(now_ms);
    }

    /// The invocation of this epoch returned, or failed. Whether the function sleeps now, so that waiting requests may
    /// be tried again.
    pub fn returned(&mut self, epoch: u64) -> bool {
        if epoch != self.epoch {
            return false;
        }
        (self.in_flight, self.bye_ms) = (false, None);
        self.sleeps();
        true
    }

    /// Another instance of the name is invoked beside this one, or has returned.
    pub fn set_peer(&mut self, has_peer: bool) {
        self.has_peer = has_peer;
        if self.run != Run::Sleeping {
            self.run = self.running();
        }
    }

    /// Whether another instance of the name runs.
    pub fn has_peer(&self) -> bool {
        self.has_peer
    }

    fn running(&self) -> Run {
        if self.has_peer { Run::Maybe } else { Run::Active }
    }

    /// Whether an answer has been awaited for too long. If so the function is taken to be gone, and is invoked anew when it is
    /// wanted.
    pub fn overdue(&mut self, now_ms: u64) -> bool {
        let Some(ends_ms) = self.patience_ends_ms() else {
            return false;
        };
        if now_ms < ends_ms {
            return false;
        }
        if self.run == Run::Sleeping {
            self.invoking.fail();
        } else {
            self.pinging.fail();
        }
        self.sleeps();
        (self.in_flight, self.bye_ms) = (false, None);
        true
    }

    /// When patience ends, or the next invocation may begin.
    pub fn patience_ends_ms(&self) -> Option<u64> {
        match (self.run, self.check) {
            (Run::Sleeping, Check::Validating) => Some(self.asked_ms + self.invoking.ms()),
            (_, Check::Validating) => Some(self.asked_ms + self.pinging.ms()),
            _ => None,
        }
    }

    /// When a function that said BYE may be invoked although its invocation has not returned.
    pub fn return_patience_ends_ms(&self) -> Option<u64> {
        self.bye_ms.map(|bye| bye + RETURN_PATIENCE_MS)
    }

    /// Whether the function runs, and how certain that is.
    pub fn state(&self) -> (Run, Check) {
        (self.run, self.check)
    }

    /// Whether an invocation has not returned.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// The epoch of the last invocation.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn sleeps(&mut self) {
        (self.run, self.check) = (Run::Sleeping, Check::Unvalidated);
    }
}

/// How long to wait for an answer: mean and deviation of those that came, as TCP does (RFC 6298), doubled after each failure.
#[derive(Clone, Debug, Default)]
struct Patience {
    mean_ms: u64,
    deviation_ms: u64,
    failures: u32,
}

impl Patience {
    fn learn(&mut self, took_ms: u64) {
        let took_ms = took_ms.max(1);
        if self.mean_ms == 0 {
            (self.mean_ms, self.deviation_ms) = (took_ms, took_ms / 2);
        } else {
            self.deviation_ms = (3 * self.deviation_ms + self.mean_ms.abs_diff(took_ms)) / 4;
            self.mean_ms = (7 * self.mean_ms + took_ms).div_ceil(8);
        }
        self.failures = 0;
    }

    fn fail(&mut self) {
        self.failures = (self.failures + 1).min(6);
    }

    fn ms(&self) -> u64 {
        let learnt = self.mean_ms + 8 * self.deviation_ms;
        let base = if self.mean_ms == 0 { FIRST_PATIENCE_MS } else { learnt };
        (base << self.failures).clamp(PATIENCE_MS_MIN, PATIENCE_MS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(now_ms: u64) -> Link {
        let mut link = Link::new(7);
        assert_eq!(link.wanted(now_ms, false), Step::Invoke(8));
        assert!(link.connected(now_ms + 5, 8));
        link
    }

    #[test]
    fn the_way_of_figure_6() {
        let mut link = Link::new(7);
        assert_eq!(link.state(), (Run::Sleeping, Check::Unvalidated));
        assert_eq!(link.wanted(0, false), Step::Invoke(8));
        assert_eq!(link.state(), (Run::Sleeping, Check::Validating));
        assert_eq!(link.wanted(1, false), Step::Wait);
        assert!(link.connected(5, 8));
        assert_eq!(
            (link.state(), link.wanted(5, false)),
            ((Run::Active, Check::Validated), Step::Send)
        );
        link.sent();
        assert_eq!(link.state(), (Run::Active, Check::Unvalidated));
        assert_eq!(link.wanted(6, false), Step::Ping);
        assert_eq!(
            (link.state(), link.wanted(6, false)),
            ((Run::Active, Check::Validating), Step::Wait)
        );
        link.pong(7, 0);
        assert_eq!(link.wanted(8, false), Step::Send);
        link.bye(20);
        assert_eq!(link.state(), (Run::Sleeping, Check::Unvalidated));
    }

    #[test]
    fn a_lease_spares_the_ping() {
        let mut link = active(0);
        link.sent();
        link.replied(10, 100);
        assert_eq!(link.wanted(100, false), Step::Send);
        assert_eq!(link.wanted(105, false), Step::Ping);
    }

    #[test]
    fn an_old_epoch_is_refused() {
        let mut link = active(0);
        assert!(!link.connected(6, 8), "a second one of the same invocation");
        link.broken(10);
        assert_eq!(
            link.wanted(11, false),
            Step::Wait,
            "the last invocation has not returned"
        );
        assert!(link.returned(8));
        assert_eq!(link.wanted(12, false), Step::Invoke(9));
        assert!(!link.connected(13, 8) && link.connected(13, 9));
        assert!(!link.returned(8), "what an old one says changes nothing");
        assert_eq!(link.state(), (Run::Active, Check::Validated));
    }

    #[test]
    fn patience_ends_and_grows() {
        let mut link = Link::new(0);
        link.wanted(0, false);
        assert!(!link.overdue(FIRST_PATIENCE_MS - 1) && link.overdue(FIRST_PATIENCE_MS));
        assert_eq!(link.state(), (Run::Sleeping, Check::Unvalidated));
        assert_eq!(link.wanted(4000, false), Step::Invoke(2));
        assert_eq!(link.patience_ends_ms(), Some(4000 + 2 * FIRST_PATIENCE_MS));
        link.connected(4010, 2);
        link.sent();
        assert_eq!(
            (link.wanted(4020, false), link.overdue(4020 + FIRST_PATIENCE_MS)),
            (Step::Ping, true)
        );
        assert_eq!(
            link.wanted(9000, false),
            Step::Invoke(3),
            "a node that does not answer is invoked"
        );
    }

    #[test]
    fn who_said_bye_is_waited_for_but_not_for_ever() {
        let mut link = active(0);
        link.bye(50);
        assert_eq!(link.wanted(60, false), Step::Wait);
        assert_eq!(link.return_patience_ends_ms(), Some(50 + RETURN_PATIENCE_MS));
        assert_eq!(link.wanted(50 + RETURN_PATIENCE_MS, false), Step::Invoke(9));
    }

    #[test]
    fn while_a_peer_runs_no_third_one_is_started() {
        let mut link = active(0);
        link.set_peer(true);
        assert_eq!((link.state().0, link.wanted(6, false)), (Run::Maybe, Step::Send));
        link.bye(7);
        assert!(link.returned(8));
        assert_eq!(link.state(), (Run::Sleeping, Check::Unvalidated));
        assert_eq!(link.wanted(8, false), Step::Wait);
        link.set_peer(false);
        assert_eq!(link.wanted(9, false), Step::Invoke(9));
        assert!(link.connected(10, 9) && link.state().0 == Run::Active);
    }
}
