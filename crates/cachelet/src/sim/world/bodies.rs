//! The bytes of copies, which the world keeps for its cachelets as an agent does, and loses as the faults say.

use super::{Occurrence, World};
use crate::message::{Event, Message, ReadOutcome};
use crate::types::{BodyName, CacheletId, OperationId, Value};

impl World {
    /// Keeps the bytes of a copy in place of those before.
    pub(super) fn keep_body(&mut self, id: CacheletId, name: BodyName, value: Value) {
        self.bodies.insert((id, name.key), (name.number, value));
    }

    /// They are not needed any more, if they are still those.
    pub(super) fn drop_body(&mut self, id: CacheletId, name: BodyName) {
        let place = (id, name.key);
        if self
            .bodies
            .get(&place)
            .is_some_and(|(number, _)| *number == name.number)
        {
            self.bodies.remove(&place);
        }
    }

    /// The value with these bytes, unless they were lost.
    fn body(&mut self, id: CacheletId, name: &BodyName) -> Option<Value> {
        // Without that fault no chance is drawn, so that worlds without it are as they were.
        let is_lost = self.faults.evicted > 0 && self.rng.happens(self.faults.evicted);
        let place = (id, name.key.clone());
        if is_lost {
            self.bodies.remove(&place);
        }
        let (number, value) = self.bodies.get(&place)?;
        (*number == name.number).then(|| value.clone())
    }

    /// The outcome of a read with its bytes. If they are gone, the cachelet hears of it, and the read begins again.
    pub(super) fn with_body(
        &mut self,
        place: usize,
        operation: OperationId,
        outcome: ReadOutcome,
    ) -> Option<ReadOutcome> {
        let ReadOutcome::Is(Some(value), source) = &outcome else {
            return Some(outcome);
        };
        let Some(name) = value.outside().cloned() else {
            return Some(outcome);
        };
        let id = self.nodes[place].cachelet.id();
        if let Some(value) = self.body(id, &name) {
            return Some(ReadOutcome::Is(Some(value), *source));
        }
        let key = name.key.clone();
        self.schedule(0, Occurrence::Deliver(place, id, Event::Gone(name)));
        self.schedule(0, Occurrence::Deliver(place, id, Event::Read { operation, key }));
        None
    }

    /// A message with its bytes, or the one that is sent in its place.
    pub(super) fn with_bytes(&mut self, place: usize, mut message: Message) -> Message {
        let Some(name) = message.body.outside().and_then(|value| value.outside().cloned()) else {
            return message;
        };
        let id = self.nodes[place].cachelet.id();
        if let Some(value) = self.body(id, &name) {
            if let Some(outside) = message.body.outside() {
                *outside = value;
            }
            return message;
        }
        self.schedule(0, Occurrence::Deliver(place, id, Event::Gone(name)));
        Message {
            body: message.body.without_bytes(),
            ..message
        }
    }
}
