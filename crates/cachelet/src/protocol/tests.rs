//! Single cachelets, step by step: findings of seeded schedules, and what is promised.

mod promises;

use super::*;
use crate::config::{Config, Promise};
use crate::membership::Document;
use crate::message::Content;
use crate::types::{OperationId, Value};
use crate::view::Member;

const WRITER: CacheletId = CacheletId(1);
const HOME: CacheletId = CacheletId(2);

fn view(epoch: u64) -> View {
    let member = |id| Member { id, cluster: 0 };
    View {
        epoch: Epoch(epoch),
        members: vec![member(WRITER), member(HOME)],
        ..View::empty(Config::CONCORD, Promise::default())
    }
}

/// A key that `HOME` is the home of.
fn key() -> Key {
    let names = (0..).map(|number| Key::new(&format!("k{number}")));
    names.into_iter().find(|key| view(1).home(key) == HOME).unwrap()
}

fn member(me: CacheletId, epoch: u64) -> Cachelet {
    let mut cachelet = Cachelet::new(me, view(epoch), Settings::default(), 1 << 20);
    cachelet.step(0, Event::Leased { sent_at_us: 0 });
    cachelet
}

fn messages(outputs: Vec<Output>) -> Vec<Message> {
    let message = |output| match output {
        Output::Send { message, .. } => Some(message),
        _ => None,
    };
    outputs.into_iter().filter_map(message).collect()
}

/// The write that a writer sends to the home.
fn write(writer: &mut Cachelet) -> Message {
    let event = Event::Write {
        operation: OperationId(1),
        key: key(),
        value: Some(Value::simulated(1, 1)),
    };
    messages(writer.step(0, event)).remove(0)
}

fn from(from: CacheletId, message: Message) -> Event {
    Event::Message { from, message }
}

/// Seeds 108056, 114647, 121872. A writer must not take the refusal of its earlier attempt for one of the attempt under
/// way. It would write again in the next view the value that the home had written.
#[test]
fn a_home_does_not_refuse_writes_of_another_epoch() {
    for (writers, homes) in [(1, 2), (2, 1)] {
        let late = write(&mut member(WRITER, writers));
        let outputs = member(HOME, homes).step(0, from(WRITER, late));
        assert_eq!(outputs, Vec::new(), "a write of {writers} at a home of {homes}");
    }
}

#[test]
fn a_refused_request_is_never_done() {
    let mut writer = member(WRITER, 1);
    let mut home = member(HOME, 1);
    let first = write(&mut writer);
    let after_lease_us = Settings::default().lease_us + 1;
    let refused = messages(home.step(after_lease_us, from(WRITER, first.clone()))).remove(0);
    assert!(matches!(refused.body, Body::Refused { .. }), "{refused:?}");

    // The home has a lease again, and the same message comes once more.
    home.step(
        after_lease_us,
        Event::Leased {
            sent_at_us: after_lease_us,
        },
    );
    let again = home.step(after_lease_us, from(WRITER, first.clone()));
    let is_refusal = |message: &Message| {
        matches!(
            message.body,
            Body::Wrote {
                outcome: Outcome::Refused,
                ..
            }
        )
    };
    assert!(matches!(&messages(again)[..], [one] if is_refusal(one)));

    // The writer's next attempt is another request, and is done.
    writer.step(0, from(HOME, refused));
    let second = messages(writer.step(Settings::default().retry_us, Event::Tick)).remove(0);
    assert_ne!(second, first);
    let outputs = home.step(after_lease_us, from(WRITER, second));
    assert!(
        matches!(
            &outputs[..],
            [Output::Store {
                request: StoreRequest::Put { .. },
                ..
            }]
        ),
        "{outputs:?}"
    );
}

/// A leader that passes one invalidation on passes another one on, too, though both are of no transaction.
#[test]
fn a_leader_passes_on_every_stamp() {
    let mut leader = member(WRITER, 1);
    leader.view.config.domain = crate::config::Domain::Hierarchical;
    let invalidate = |sequence| Message {
        epoch: Epoch(1),
        body: Body::Invalidate {
            transaction: 0,
            key: key(),
            stamp: Stamp {
                epoch: Epoch(1),
                sequence,
            },
            update: Some(crate::message::Update {
                content: Content::Nothing,
                at_once: false,
            }),
            pass_on: true,
        },
    };
    let passed = |leader: &mut Cachelet, sequence| messages(leader.step(0, from(HOME, invalidate(sequence)))).len();
    assert_eq!(
        [passed(&mut leader, 1), passed(&mut leader, 1), passed(&mut leader, 2)],
        [1, 0, 1]
    );
}

/// Seed 1050024: the home does not know of the values that a leader passes on in the next view.
#[test]
fn reads_for_followers_end_with_the_view() {
    let mut leader = member(WRITER, 1);
    leader.view.config.domain = crate::config::Domain::Hierarchical;
    let read = Body::Read {
        request: RequestId(7),
        key: key(),
        have: None,
        keep: true,
    };
    let asked = leader.step(
        0,
        from(
            CacheletId(3),
            Message {
                epoch: Epoch(1),
                body: read,
            },
        ),
    );
    assert_eq!(asked.len(), 1, "the home is asked: {asked:?}");
    let document = Document {
        view: view(2),
        ..Document::new(Config::CONCORD, Promise::default())
    };
    assert_eq!(leader.step(0, Event::Domain(Box::new(document))), Vec::new());
}
