//! The promises of docs/design/coherence.md, one cachelet and one sentence at a time.

use super::*;
use crate::config::{Durability, Level, Promise, Replication};
use crate::message::{Fill, Intent, Source};

const LEASE_US: u64 = 2_700_000;

/// A member of the view of epoch 2, changed as the test wants it, whose lease was asked for at time zero.
fn member_of(me: CacheletId, change: impl Fn(&mut View)) -> Cachelet {
    let mut view = view(2);
    change(&mut view);
    let mut cachelet = Cachelet::new(me, view, Settings::default(), 1 << 20);
    cachelet.step(0, Event::Leased { sent_at_us: 0 });
    cachelet
}

fn message(epoch: u64, body: Body) -> Message {
    Message {
        epoch: Epoch(epoch),
        body,
    }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp {
        epoch: Epoch(2),
        sequence,
    }
}

/// Asks for the key; everything that the cachelet does about it.
fn read(reader: &mut Cachelet, now_us: u64) -> Vec<Output> {
    let operation = OperationId(now_us);
    reader.step(now_us, Event::Read { operation, key: key() })
}

/// The request with which a reader asks the home.
fn request(outputs: Vec<Output>) -> RequestId {
    match messages(outputs).as_slice() {
        [
            Message {
                body: Body::Read { request, .. },
                ..
            },
        ] => *request,
        other => panic!("the home is not asked: {other:?}"),
    }
}

/// The home's answer, with the value of this identity.
fn filled(request: RequestId, identity: u64, sequence: u64) -> Message {
    let fill = Fill {
        stamp: stamp(sequence),
        version: Some(Version::Tag(format!("{identity}").into())),
        content: Content::Is(Value::simulated(identity, 10)),
        keep: true,
    };
    message(2, Body::Filled { request, fill })
}

/// Has a reader get a copy at a time.
fn fetch(reader: &mut Cachelet, now_us: u64) {
    let request = request(read(reader, now_us));
    reader.step(now_us, from(HOME, filled(request, 1, 1)));
}

fn served(outputs: &[Output]) -> Option<(u64, Source)> {
    outputs.iter().find_map(|output| match output {
        Output::ReadDone {
            outcome: ReadOutcome::Is(Some(value), source),
            ..
        } => Some((value.identity(), *source)),
        _ => None,
    })
}

fn asks_store(outputs: &[Output]) -> bool {
    let is_call = |output: &Output| matches!(output, Output::Store { .. });
    outputs.iter().any(is_call)
}

fn invalidate(epoch: u64, sequence: u64) -> Message {
    message(
        epoch,
        Body::Invalidate {
            transaction: 7,
            key: key(),
            stamp: stamp(sequence),
            update: None,
            pass_on: false,
        },
    )
}

#[test]
fn unless_a_tenant_says_otherwise_reads_are_linearizable_and_writes_durable() {
    let promise = Promise::default();
    assert_eq!(promise.level, Level::Linearizable);
    assert_eq!(promise.durability, Durability::Strict);
}

#[test]
fn a_copy_is_served_by_the_own_clock_and_while_the_lease_holds() {
    assert_eq!(Settings::default().lease_us, LEASE_US);
    let mut reader = member_of(WRITER, |_| {});
    fetch(&mut reader, 10);
    for at_us in [11, LEASE_US - 1] {
        assert_eq!(served(&read(&mut reader, at_us)), Some((1, Source::Copy)), "at {at_us}");
    }
    // The store has what was acknowledged, whoever writes.
    let outputs = read(&mut reader, LEASE_US);
    assert!(served(&outputs).is_none() && asks_store(&outputs), "{outputs:?}");
    // A renewal counts from when it was asked for, however late the answer is.
    let sent_at_us = LEASE_US - 100;
    reader.step(LEASE_US + 50, Event::Leased { sent_at_us });
    let until_us = sent_at_us + LEASE_US;
    assert_eq!(served(&read(&mut reader, until_us - 1)), Some((1, Source::Copy)));
    assert_eq!(served(&read(&mut reader, until_us)), None);
}

#[test]
fn a_tenant_may_choose_reads_that_are_stale_within_a_bound_or_at_all() {
    let bound_us = 2 * LEASE_US;
    for (level, served_at, refused_at) in [
        (Level::Linearizable, Some(LEASE_US - 1), Some(LEASE_US)),
        (Level::Bounded(bound_us), Some(10 + bound_us), Some(11 + bound_us)),
        (Level::Eventual, Some(100 * LEASE_US), None),
    ] {
        let mut reader = member_of(WRITER, |view| view.promise.level = level);
        fetch(&mut reader, 10);
        for (at_us, is_served) in served_at
            .map(|at| (at, true))
            .into_iter()
            .chain(refused_at.map(|at| (at, false)))
        {
            let outputs = read(&mut reader, at_us);
            assert_eq!(served(&outputs).is_some(), is_served, "{level:?} at {at_us}");
            assert_eq!(asks_store(&outputs), !is_served, "{level:?} at {at_us}");
        }
    }
}

#[test]
fn without_coordination_nothing_is_read_from_a_store_that_may_be_behind() {
    let lossy = |view: &mut View| view.promise.durability = Durability::None;
    let mut reader = member_of(WRITER, lossy);
    fetch(&mut reader, 10);
    let from_us = LEASE_US;
    assert_eq!(read(&mut reader, from_us), Vec::new(), "neither the copy nor the store");
    let give_up_at_us = from_us + 4 * Settings::default().patience_us;
    assert_eq!(reader.step(give_up_at_us - 1, Event::Tick), Vec::new());
    let outputs = reader.step(give_up_at_us, Event::Tick);
    let failed = Output::ReadDone {
        operation: OperationId(from_us),
        outcome: ReadOutcome::Unavailable,
        version: None,
    };
    assert_eq!(outputs, [failed]);
    // A write waits, too, and was surely not done.
    let event = Event::Write {
        operation: OperationId(9),
        key: key(),
        value: Some(Value::simulated(3, 1)),
    };
    assert_eq!(reader.step(give_up_at_us, event), Vec::new());
    let outputs = reader.step(give_up_at_us + Settings::default().patience_us, Event::Tick);
    let failed = Output::WriteDone {
        operation: OperationId(9),
        outcome: WriteOutcome::Unavailable,
        version: None,
    };
    assert_eq!(outputs, [failed]);
}

#[test]
fn a_fill_that_an_invalidation_overtook_is_answered_and_not_kept() {
    for (sequence, is_kept) in [(3, false), (5, true), (6, true)] {
        let mut reader = member_of(WRITER, |_| {});
        let request = request(read(&mut reader, 10));
        // There is no copy yet: the tombstone is all that is left of it.
        let answer = messages(reader.step(11, from(HOME, invalidate(2, 5))));
        assert!(
            matches!(answer[0].body, Body::Invalidated { holds: false, .. }),
            "{answer:?}"
        );
        let outputs = reader.step(12, from(HOME, filled(request, 1, sequence)));
        assert_eq!(served(&outputs), Some((1, Source::Home)), "the read began before");
        let again = read(&mut reader, 13);
        assert_eq!(served(&again).is_some(), is_kept, "a fill of stamp {sequence}");
    }
}

#[test]
fn every_message_has_an_epoch_and_one_of_another_is_refused_ignored_or_a_fact() {
    let mut member = member_of(WRITER, |_| {});
    let asked = read(&mut member, 10);
    assert!(messages(asked.clone()).iter().all(|message| message.epoch == Epoch(2)));
    let request = request(asked);
    for epoch in [1, 3] {
        // A read is refused, with the own epoch.
        let body = Body::Read {
            request: RequestId(70),
            key: key(),
            have: None,
            keep: true,
        };
        let refused = message(2, Body::Refused { request: RequestId(70) });
        let outputs = member.step(11, from(HOME, message(epoch, body)));
        assert_eq!(messages(outputs), [refused], "a read of {epoch}");
        // Fills, writes, intents and the second phase are ignored.
        let Message { body: fill, .. } = filled(request, 1, 1);
        let write = Body::Write {
            request: RequestId(71),
            lowest: RequestId(71),
            key: key(),
            value: None,
            known: None,
            keep: true,
        };
        let hold = Body::Hold {
            transaction: 1,
            key: key(),
            intent: Intent {
                stamp: stamp(1),
                replaces: Version::Absent,
                value: None,
                write: crate::types::WriteId {
                    writer: HOME,
                    request: RequestId(1),
                },
                is_dirty: false,
            },
        };
        let validate = Body::Validate {
            key: key(),
            stamp: stamp(1),
            version: None,
            pass_on: false,
        };
        for body in [fill, write, hold, validate] {
            let sent = message(epoch, body);
            assert_eq!(member.step(12, from(HOME, sent.clone())), Vec::new(), "{sent:?}");
        }
    }
    let outputs = member.step(13, from(HOME, filled(request, 1, 1)));
    assert_eq!(served(&outputs), Some((1, Source::Home)), "the same of this epoch");
    // An older invalidation is of a view that is over. A later one is of a view that is in force elsewhere already.
    assert_eq!(member.step(14, from(HOME, invalidate(1, 5))), Vec::new());
    assert_eq!(served(&read(&mut member, 15)), Some((1, Source::Copy)));
    assert_eq!(messages(member.step(16, from(HOME, invalidate(3, 5)))).len(), 1);
    assert_eq!(served(&read(&mut member, 17)), None);
}

#[test]
fn an_intent_is_held_before_the_store_is_asked_to_change() {
    let mut home = member_of(HOME, |view| view.config.replication = Replication::Coherence);
    let body = Body::Write {
        request: RequestId(5),
        lowest: RequestId(5),
        key: key(),
        value: Some(Value::simulated(4, 10)),
        known: None,
        keep: true,
    };
    let outputs = home.step(1, from(WRITER, message(2, body)));
    assert!(!asks_store(&outputs), "{outputs:?}");
    let asked = messages(outputs);
    let [
        Message {
            body: Body::Hold {
                transaction, intent, ..
            },
            ..
        },
    ] = asked.as_slice()
    else {
        panic!("{asked:?}");
    };
    let (transaction, intent) = (*transaction, intent.clone());
    // It is asked again, and nothing else happens, until it is held.
    let again = home.step(1 + Settings::default().retry_us, Event::Tick);
    assert!(!asks_store(&again) && messages(again).len() == 1);
    let body = Body::Held {
        transaction,
        key: key(),
    };
    let outputs = home.step(2 + Settings::default().retry_us, from(WRITER, message(2, body)));
    match outputs.as_slice() {
        [
            Output::Store {
                request: StoreRequest::Put { value, replaces, write },
                ..
            },
        ] => {
            // Whoever finishes it does the same conditional write.
            assert_eq!(
                (value, replaces, write),
                (&intent.value, &intent.replaces, &intent.write)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_without_its_bytes_is_none() {
    let settings = Settings {
        bodies: Bodies::Outside,
        ..Settings::default()
    };
    let mut reader = Cachelet::new(WRITER, view(2), settings, 1 << 20);
    reader.step(0, Event::Leased { sent_at_us: 0 });
    let request = request(read(&mut reader, 10));
    let outputs = reader.step(10, from(HOME, filled(request, 1, 1)));
    let [Output::Keep { name, value }, Output::ReadDone { .. }] = outputs.as_slice() else {
        panic!("bytes are kept before the reader is told: {outputs:?}");
    };
    assert_eq!((value.identity(), served(&outputs)), (1, Some((1, Source::Home))));
    let copy = read(&mut reader, 11);
    let [
        Output::ReadDone {
            outcome: ReadOutcome::Is(Some(value), Source::Copy),
            ..
        },
    ] = copy.as_slice()
    else {
        panic!("{copy:?}");
    };
    assert_eq!(value.outside(), Some(name));
    // Its home is asked for it. Without the bytes that is no answer, and not that there is no object.
    let fetch = Body::Fetch {
        transaction: 3,
        key: key(),
        stamp: stamp(1),
    };
    let mut answer = messages(reader.step(12, from(HOME, message(2, fetch)))).remove(0);
    assert_eq!(
        answer
            .body
            .outside()
            .and_then(|value| value.outside().cloned())
            .as_ref(),
        Some(name)
    );
    assert!(
        matches!(
            answer.body.without_bytes(),
            Body::Fetched {
                content: None,
                may_come: true,
                ..
            }
        ),
        "whoever was asked stays noted"
    );
    assert_eq!(reader.step(13, Event::Gone(name.clone())), Vec::new());
    assert_eq!((reader.copies(), reader.used_bytes()), (0, 0));
    let again = read(&mut reader, 14);
    assert!(
        served(&again).is_none() && messages(again).len() == 1,
        "the home is asked"
    );
}
