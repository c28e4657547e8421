//! How many connections a listener has, and which one goes when another comes.
//!
//! A connection is *busy* while a request of it is being answered, and idle otherwise. If all places are taken, the
//! connection that has been idle for the longest ends, so that idle ones keep nobody out. If all are busy, a few more
//! are let in for the health checks alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// Per listener. A person, a console and a few scrapers need ten; each takes at most a body, a header and an answer.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Further ones for health checks alone, while all others are busy: an orchestrator's checks must not fail then.
pub(crate) const HEALTH_CONNECTIONS: usize = 16;

/// A listener's connections.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<Vec<Taken>>,
    next: std::sync::atomic::AtomicU64,
    /// A place was given back, or its connection became idle.
    freed: Notify,
}

/// The state of a connection.
#[derive(Debug)]
struct Taken {
    number: u64,
    access: Access,
    /// `None`: a request is being answered.
    idle_since: Option<Instant>,
    end: Arc<Notify>,
}

/// The requests that a connection may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    All,
    /// Health checks.
    Health,
}

/// A connection's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    pub(crate) access: Access,
    end: Arc<Notify>,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, Vec<Taken>> {
        // The data counts even after a panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a connection can be let in.
    pub(crate) async fn wait(&self) {
        loop {
            // This is before the look, so that a place that is freed behind it is not missed.
            let freed = self.freed.notified();
            let has_room = {
                let taken = self.taken();
                let is_idle = |taken: &Taken| taken.idle_since.is_some();
                taken.len() < MAX_CONNECTIONS + HEALTH_CONNECTIONS || taken.iter().any(is_idle)
            };
            if has_room {
                return;
            }
            freed.await;
        }
    }

    /// Lets a connection in, and ends another one where that is needed.
    pub(crate) fn enter(self: &Arc<Self>, now: Instant) -> Place {
        let mut taken = self.taken();
        let access = if make_room(&mut taken, Access::All, MAX_CONNECTIONS) {
            Access::All
        } else {
            make_room(&mut taken, Access::Health, HEALTH_CONNECTIONS);
            Access::Health
        };
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let end = Arc::new(Notify::new());
        taken.push(Taken {
            number,
            access,
            idle_since: Some(now),
            end: Arc::clone(&end),
        });
        Place {
            places: Arc::clone(self),
            number,
            access,
            end,
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn empty(&self) {
        loop {
            let freed = self.freed.notified();
            if self.taken().is_empty() {
                return;
            }
            freed.await;
        }
    }
}

/// Ends the one that has been idle for the longest of those with this access, if there are `most` of them. Whether there is room
/// then.
fn make_room(taken: &mut Vec<Taken>, access: Access, most: usize) -> bool {
    let of_kind = || taken.iter().enumerate().filter(|(_, taken)| taken.access == access);
    if of_kind().count() < most {
        return true;
    }
    let longest = of_kind().filter_map(|(at, taken)| Some((taken.idle_since?, at))).min();
    if let Some((_, at)) = longest {
        taken.swap_remove(at).end.notify_one();
    }
    longest.is_some()
}

impl Place {
    /// Notes since when the connection is idle, or that it is busy.
    pub(crate) fn set_idle(&self, since: Option<Instant>) {
        if let Some(taken) = self.places.taken().iter_mut().find(|taken| taken.number == self.number) {
            taken.idle_since = since;
        }
        if since.is_some() {
            self.places.freed.notify_waiters();
        }
    }

    /// Waits until the connection must end to make room.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().retain(|taken| taken.number != self.number);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_idle_connection_makes_room_and_busy_ones_leave_room_for_health() {
        let places = Arc::new(Places::default());
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut all: Vec<Place> = (0..MAX_CONNECTIONS as u64)
            .map(|second| places.enter(at(second)))
            .collect();
        assert!(all.iter().all(|place| place.access == Access::All));
        // The first is busy, the second was asked something lately: the third goes.
        all[0].set_idle(None);
        all[1].set_idle(Some(at(1000)));
        let next = places.enter(at(100));
        assert_eq!(next.access, Access::All);
        let numbers: Vec<u64> = places.taken().iter().map(|taken| taken.number).collect();
        assert!(
            numbers.contains(&0) && numbers.contains(&1) && !numbers.contains(&2),
            "{numbers:?}"
        );
        // Dropping the one that went gives back nobody else's place.
        all.remove(2);
        assert_eq!(places.taken().len(), MAX_CONNECTIONS);
        all.push(next);
        all.iter().for_each(|place| place.set_idle(None));
        let health: Vec<Place> = (0..HEALTH_CONNECTIONS).map(|_| places.enter(at(200))).collect();
        assert!(health.iter().all(|place| place.access == Access::Health));
        // One of those makes room for another of them.
        assert_eq!(places.enter(at(300)).access, Access::Health);
        drop(all.pop());
        assert_eq!(places.enter(at(400)).access, Access::All, "one is over");
        assert_eq!(places.taken().len(), MAX_CONNECTIONS - 1 + HEALTH_CONNECTIONS - 1);
    }
}
