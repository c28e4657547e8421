//! The commands of a window: each has one key. Storing a long value takes steps, so that others do not wait.

use std::sync::Arc;

use tidemark_plane::{Moment, Purpose, Throttle, Throttled};
use tidemark_protocol::memcached as mc;
use tidemark_store::{Key, KeyHash, Reservation, TenantStore};
use tidemark_types::UnixMs;

use crate::condition::Condition;
use crate::limits::{COPIED_BYTES, LONG_VALUE_BYTES};
use crate::session::Session;
use crate::{memcached, redis};

/// How far a connection's input was executed.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) bytes: usize,
    pub(crate) commands: u32,
}

/// A command with one key that waits for its window.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    /// Number of its connection in the group.
    pub(crate) member: usize,
    /// The part of the connection's input before it.
    pub(crate) before: Done,
    /// How much of the input it is.
    pub(crate) bytes: usize,
    pub(crate) hash: KeyHash,
    pub(crate) command: StepCommand<'a>,
}

/// The commands that go through windows.
#[derive(Clone, Copy)]
pub(crate) enum StepCommand<'a> {
    Memcached(mc::Command<'a>),
    Redis(redis::OneKey<'a>),
}

/// The memory of an empty window for one of another group: getting it anew for each takes as long as a command.
pub(crate) fn emptied<'a>(mut window: Vec<Step<'_>>) -> Vec<Step<'a>> {
    window.clear();
    // Collected in place.
    window.into_iter().map_while(|_| None).collect()
}

/// How much of a value is where it will lie.
pub(crate) enum Copied {
    /// It is copied when the command is executed.
    Not,
    InPart(Reservation),
    Wholly(Reservation),
}

impl<'a> Step<'a> {
    /// Whether it writes whatever there is of its key, and answers nothing of that.
    pub(crate) fn is_blind(&self) -> bool {
        match &self.command {
            StepCommand::Memcached(command) => memcached::is_blind(command),
            StepCommand::Redis(step) => step.is_blind(),
        }
    }

    /// Whether it is a get.
    pub(crate) fn purpose(&self) -> Purpose {
        match &self.command {
            StepCommand::Memcached(command) => memcached::purpose(command),
            StepCommand::Redis(redis::OneKey::Get { .. }) => Purpose::Get,
            StepCommand::Redis(_) => Purpose::Other,
        }
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        match &self.command {
            StepCommand::Memcached(command) => memcached::only_key(command),
            StepCommand::Redis(step) => step.key(),
        }
    }

    /// The database that its key is in.
    pub(crate) fn db(&self, session: &Session) -> u8 {
        match &self.command {
            StepCommand::Memcached(_) => memcached::DB,
            StepCommand::Redis(_) => session.db,
        }
    }
}

/// Admits a command if it adds no data, or its tenant may add some.
pub(crate) fn admit_data(throttle: &Throttle, adds_data: bool) -> Result<(), Throttled> {
    if adds_data { throttle.admit_write() } else { Ok(()) }
}

impl Step<'_> {
    /// Admits it within its tenant's limits.
    pub(crate) fn admit(&self, throttle: &Throttle, now: Moment) -> Result<(), Throttled> {
        let adds_data = match &self.command {
            StepCommand::Memcached(command) => memcached::adds_data(command),
            StepCommand::Redis(step) => step.adds_data(),
        };
        admit_data(throttle, adds_data)?;
        throttle.admit(1, self.bytes as u64, now)
    }

    /// The value that it stores as it is, and the condition, as far as it depends on whether there is an item.
    fn stored(&self) -> Option<(&[u8], Condition)> {
        match &self.command {
            StepCommand::Memcached(command) => memcached::stored_value(command),
            StepCommand::Redis(step) => step.stored_value(),
        }
    }

    /// Copies the next piece of a long value to where it will lie, going on in `room` if it was begun before.
    #[cold]
    pub(crate) fn copy_value(
        &self,
        room: Option<Reservation>,
        store: &Arc<TenantStore>,
        db: u8,
        now: UnixMs,
    ) -> Copied {
        let stored = self.stored().filter(|(value, _)| value.len() >= LONG_VALUE_BYTES);
        let Some((value, condition)) = stored else {
            return Copied::Not;
        };
        let begin = || {
            // Nothing is to be evicted for a value that will not be stored.
            let may_be = self.is_met(condition, store, db, now);
            may_be.then(|| store.begin(self.hash, value.len())).flatten()
        };
        let Some(mut room) = room.or_else(begin) else {
            return Copied::Not;
        };
        let from = room.written_bytes();
        let to = value.len().min(from + COPIED_BYTES);
        // Without memory for a piece there may be some for the whole: the begun reservation is put back first.
        if room.write(&value[from..to], now).is_err() {
            Copied::Not
        } else if to < value.len() {
            Copied::InPart(room)
        } else {
            Copied::Wholly(room)
        }
    }

    fn is_met(&self, condition: Condition, store: &Arc<TenantStore>, db: u8, now: UnixMs) -> bool {
        let key = Key {
            db,
            bytes: match &self.command {
                StepCommand::Memcached(command) => memcached::stored_key(command),
                StepCommand::Redis(step) => step.key(),
            },
            hash: self.hash,
        };
        let is_there = || store.lock(store.shard_of(self.hash)).peek(&key, now).is_some();
        match condition {
            Condition::None => true,
            Condition::Absent => !is_there(),
            Condition::Present => is_there(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::store;
    use mc::{Parsed, parse};
    use tidemark_store::Attributes;
    use tidemark_types::MIB;

    const NOW: UnixMs = UnixMs(1_000);
    const VALUE_BYTES: usize = 14 * COPIED_BYTES - 1;

    /// How many pieces a command's value is copied in before it is executed; `None`: it is not.
    fn pieces(store: &Arc<TenantStore>, request: &[u8]) -> Option<usize> {
        let Parsed::Complete { command, consumed } = parse(request, &mc::Limits::default()) else {
            panic!("no command")
        };
        let step = Step {
            member: 0,
            before: Done { bytes: 0, commands: 0 },
            bytes: consumed,
            hash: store.key(0, b"k").hash,
            command: StepCommand::Memcached(command),
        };
        let (mut room, mut count) = (None, 0);
        loop {
            room = match step.copy_value(room, store, 0, NOW) {
                Copied::Not => return None,
                Copied::InPart(room) => Some(room),
                Copied::Wholly(room) => {
                    let value = [b'v'; VALUE_BYTES];
                    assert_eq!(room.value_bytes(), value.len());
                    room.commit(&store.key(0, b"k"), Attributes::default(), NOW).unwrap();
                    let mut shard = store.lock(0);
                    assert!(shard.peek(&store.key(0, b"k"), NOW).unwrap().value().to_vec() == value);
                    return Some(count + 1);
                }
            };
            count += 1;
            assert_eq!(room.as_ref().unwrap().written_bytes(), count * COPIED_BYTES);
        }
    }

    fn request(head: &str) -> Vec<u8> {
        let value = [b'v'; VALUE_BYTES];
        [format!("{head}\r\n").as_bytes(), &value, b"\r\n"].concat()
    }

    #[test]
    fn a_windows_memory_is_used_again() {
        let bytes = b"get k\r\n".to_vec();
        let Parsed::Complete { command, consumed } = parse(&bytes, &mc::Limits::default()) else {
            panic!("no command")
        };
        let mut window = Vec::with_capacity(16);
        window.push(Step {
            member: 0,
            before: Done { bytes: 0, commands: 0 },
            bytes: consumed,
            hash: store(1, MIB).key(0, b"k").hash,
            command: StepCommand::Memcached(command),
        });
        let (place, room) = (window.as_ptr() as usize, window.capacity());
        let again: Vec<Step<'static>> = emptied(window);
        assert_eq!(
            (again.as_ptr() as usize, again.capacity(), again.len()),
            (place, room, 0)
        );
    }

    #[test]
    fn a_long_value_is_copied_piece_by_piece_if_it_may_be_stored() {
        let store = store(1, 8 * MIB);
        let storing = |verb: &str| request(&format!("{verb} k 0 0 {VALUE_BYTES}"));
        assert_eq!(pieces(&store, &storing("replace")), None, "there is none");
        assert_eq!(store.usage_bytes(), 0, "nothing was taken for it");
        for verb in ["add", "set", "replace"] {
            assert_eq!(pieces(&store, &storing(verb)), Some(14), "{verb}");
        }
        assert_eq!(pieces(&store, &request(&format!("ms k {VALUE_BYTES}"))), Some(14));
        let before = store.usage_bytes();
        for head in [
            storing("add"),
            storing("append"),
            request(&format!("ms k {VALUE_BYTES} ME")),
        ] {
            assert_eq!(pieces(&store, &head), None);
        }
        assert_eq!(store.usage_bytes(), before);
        let short = [&b"set k 0 0 9\r\n"[..], b"123456789\r\n"].concat();
        assert_eq!(pieces(&store, &short), None);
    }
}
