//! Which version of each object is the current one, as far as is known; one question to the origin however many ask.
//!
//! Invariant: a known version was asked for after the last write to the object through this gateway had ended. A write
//! moves the *count* of the object's stripe before it is sent and after it is answered. An answer counts only if the
//! count is still the one that it was asked at.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::object::Object;
use crate::reply::Reply;

/// Parts with a lock each.
const STRIPES: usize = 64;
/// The memory for known objects, in all stripes: a few hundred thousand of them.
const KNOWN_BYTES_MAX: usize = 64 << 20;
/// An entry's own, besides names and headers.
const ENTRY_BYTES: usize = 160;

/// Why there is no version to read.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The origin has another one by now.
    Changed,
    /// This is the answer instead.
    Reply(Arc<Reply>),
}

impl From<Reply> for Fault {
    fn from(reply: Reply) -> Self {
        Self::Reply(Arc::new(reply))
    }
}

/// The result of asking.
pub(crate) type Outcome = Result<Arc<Object>, Fault>;
type Answer = watch::Receiver<Option<Outcome>>;

/// A version that was checked against the origin.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The version.
    pub(crate) object: Arc<Object>,
    /// When.
    pub(crate) checked: Instant,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Versions {
    stripes: Vec<Mutex<Stripe>>,
    stripe_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Stripe {
    entries: HashMap<Box<str>, Entry>,
    /// In the order in which CLOCK looks at them; those that are gone are passed over.
    hand: VecDeque<Box<str>>,
    bytes: usize,
    /// Moved by writes.
    count: u64,
    asked: HashMap<Box<str>, (u64, Answer)>,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    bytes: usize,
    is_used: bool,
}

/// The turn to ask the origin.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Somebody has asked: the answer will be here.
    Wait(Answer),
    /// The caller, who must answer.
    Ask(Question),
}

/// A question that others may be waiting for.
#[derive(Debug)]
pub(crate) struct Question {
    versions: Arc<Versions>,
    place: Box<str>,
    count: u64,
    answer: watch::Sender<Option<Outcome>>,
}

impl Default for Versions {
    fn default() -> Self {
        Self::with_bytes(KNOWN_BYTES_MAX)
    }
}

impl Versions {
    fn with_bytes(bytes: usize) -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            stripe_bytes_max: bytes / STRIPES,
        }
    }

    fn stripe(&self, place: &str) -> &Mutex<Stripe> {
        // FNV-1a: clients can make one stripe busy by it, and gain nothing.
        let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        &self.stripes[(hash >> 32) as usize % STRIPES]
    }

    /// The known version of `bucket/key`.
    pub(crate) fn get(&self, place: &str) -> Option<Known> {
        let mut stripe = self.stripe(place).lock();
        let entry = stripe.entries.get_mut(place)?;
        entry.is_used = true;
        Some(entry.known.clone())
    }

    /// To ask the origin about an object, or to wait for the one that has.
    pub(crate) fn turn(self: &Arc<Self>, place: &str) -> Turn {
        let mut stripe = self.stripe(place).lock();
        let count = stripe.count;
        if let Some((asked_at, answer)) = stripe.asked.get(place)
            && *asked_at == count
        {
            return Turn::Wait(answer.clone());
        }
        let (answer, waiting) = watch::channel(None);
        stripe.asked.insert(place.into(), (count, waiting));
        Turn::Ask(Question {
            versions: Arc::clone(self),
            place: place.into(),
            count,
            answer,
        })
    }

    /// A write to `bucket/key` begins, or has ended: nothing is known of it any more.
    pub(crate) fn forget(&self, place: &str) {
        let mut stripe = self.stripe(place).lock();
        stripe.count += 1;
        stripe.remove(place);
    }

    /// The same of all objects.
    pub(crate) fn forget_all(&self) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.count += 1;
            stripe.entries.clear();
            stripe.hand.clear();
            stripe.bytes = 0;
        }
    }

    /// A version turned out not to be the current one.
    pub(crate) fn forget_version(&self, place: &str, object: &Object) {
        let mut stripe = self.stripe(place).lock();
        let is_it = |entry: &Entry| entry.known.object.has_same_content(object);
        if stripe.entries.get(place).is_some_and(is_it) {
            stripe.remove(place);
        }
    }

    /// How many objects something is known of.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().entries.len()).sum()
    }
}

impl Stripe {
    fn remove(&mut self, place: &str) {
        if let Some(entry) = self.entries.remove(place) {
            self.bytes -= entry.bytes;
        }
    }

    fn insert(&mut self, place: &str, known: Known, bytes_max: usize) {
        self.remove(place);
        let bytes = ENTRY_BYTES + 2 * place.len() + known.object.held_bytes();
        while self.bytes + bytes > bytes_max && self.evict_one() {}
        if self.bytes + bytes > bytes_max {
            return;
        }
        self.bytes += bytes;
        let entry = Entry {
            known,
            bytes,
            is_used: false,
        };
        self.entries.insert(place.into(), entry);
        self.hand.push_back(place.into());
        // Names of objects that are gone are swept before they are more than the rest.
        if self.hand.len() > 2 * self.entries.len() + 16 {
            let mut seen = std::collections::HashSet::new();
            self.hand
                .retain(|place| self.entries.contains_key(place) && seen.insert(place.clone()));
        }
    }

    /// CLOCK: the first one that was not used since it was looked at. Whether there was one.
    fn evict_one(&mut self) -> bool {
        while let Some(place) = self.hand.pop_front() {
            match self.entries.get_mut(&place) {
                None => {}
                Some(entry) if entry.is_used => {
                    entry.is_used = false;
                    self.hand.push_back(place);
                }
                Some(_) => {
                    self.remove(&place);
                    return true;
                }
            }
        }
        false
    }
}

impl Question {
    /// Answers those who wait. The version is known from now on, unless the object was written meanwhile.
    /// `since` is from before the origin was asked.
    pub(crate) fn answer(self, outcome: Outcome, since: Instant) {
        let mut stripe = self.versions.stripe(&self.place).lock();
        self.end(&mut stripe);
        if stripe.count == self.count {
            match &outcome {
                Ok(object) => {
                    let known = Known {
                        object: Arc::clone(object),
                        checked: since,
                    };
                    stripe.insert(&self.place, known, self.versions.stripe_bytes_max);
                }
                Err(_) => stripe.remove(&self.place),
            }
        }
        drop(stripe);
        self.answer.send_replace(Some(outcome));
    }

    /// Nobody is to wait for it any more.
    fn end(&self, stripe: &mut Stripe) {
        let is_this = |(_, waiting): &(u64, Answer)| waiting.same_channel(&self.answer.subscribe());
        if stripe.asked.get(&self.place).is_some_and(is_this) {
            stripe.asked.remove(&self.place);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // One that was not answered: those who wait see the sender go.
        self.end(&mut self.versions.stripe(&self.place).lock());
    }
}

/// Waits for an answer; `None` if the one that asked is gone.
pub(crate) async fn wait(mut answer: Answer) -> Option<Outcome> {
    answer.wait_for(Option::is_some).await.ok()?.clone()
}

/// Whether something checked then is older than that.
pub(crate) fn age(known: &Known, now: Instant) -> Duration {
    now.saturating_duration_since(known.checked)
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;

    use super::*;

    fn object(etag: &str) -> Arc<Object> {
        Arc::new(Object {
            etag: etag.into(),
            size_bytes: 1,
            last_modified: None,
            headers: HeaderMap::new(),
            content: [0; 16],
        })
    }

    fn ask(versions: &Arc<Versions>, place: &str) -> Question {
        match versions.turn(place) {
            Turn::Ask(question) => question,
            Turn::Wait(_) => panic!("somebody else asks for {place}"),
        }
    }

    fn known(versions: &Versions, place: &str) -> Option<String> {
        versions.get(place).map(|known| known.object.etag.clone())
    }

    #[test]
    fn one_asks_and_all_are_answered() {
        let versions = Arc::new(Versions::default());
        let question = ask(&versions, "b/k");
        let Turn::Wait(waiting) = versions.turn("b/k") else {
            panic!("two ask");
        };
        let _other = ask(&versions, "b/other");
        question.answer(Ok(object("1")), Instant::now());
        assert_eq!(waiting.borrow().as_ref().unwrap().as_ref().unwrap().etag, "1");
        assert_eq!(known(&versions, "b/k").as_deref(), Some("1"));
        // Without an answer the next one asks.
        drop(ask(&versions, "b/k"));
        drop(ask(&versions, "b/k"));
    }

    #[test]
    fn an_answer_from_before_a_write_does_not_count() {
        let versions = Arc::new(Versions::default());
        let before = ask(&versions, "b/k");
        versions.forget("b/k");
        // A caller that comes after the write does not wait for an answer from before it.
        let after = ask(&versions, "b/k");
        before.answer(Ok(object("old")), Instant::now());
        assert_eq!(known(&versions, "b/k"), None);
        assert!(
            matches!(versions.turn("b/k"), Turn::Wait(_)),
            "the later question stands"
        );
        after.answer(Ok(object("new")), Instant::now());
        assert_eq!(known(&versions, "b/k").as_deref(), Some("new"));
        versions.forget("b/k");
        assert_eq!(known(&versions, "b/k"), None);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let versions = Arc::new(Versions::default());
        ask(&versions, "b/k").answer(Ok(object("1")), Instant::now());
        versions.forget_version("b/k", &object("2"));
        assert_eq!(known(&versions, "b/k").as_deref(), Some("1"));
        versions.forget_version("b/k", &object("1"));
        assert_eq!(known(&versions, "b/k"), None);
        ask(&versions, "b/k").answer(Ok(object("1")), Instant::now());
        ask(&versions, "b/k").answer(Err(Fault::Changed), Instant::now());
        assert_eq!(known(&versions, "b/k"), None);
        assert_eq!(versions.len(), 0);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let versions = Arc::new(Versions::with_bytes(STRIPES * (8 << 10)));
        let used = "b/used";
        ask(&versions, used).answer(Ok(object("1")), Instant::now());
        for i in 0..100_000 {
            let place = format!("b/{i}");
            ask(&versions, &place).answer(Ok(object("1")), Instant::now());
            assert!(known(&versions, used).is_some(), "after {i}");
        }
        for stripe in &versions.stripes {
            let stripe = stripe.lock();
            assert!(stripe.bytes <= 8 << 10 && stripe.hand.len() <= 2 * stripe.entries.len() + 16);
            assert_eq!(
                stripe.bytes,
                stripe.entries.values().map(|entry| entry.bytes).sum::<usize>()
            );
            assert!(stripe.asked.is_empty());
        }
    }
}
