//! Replies on their way out.
//!
//! While a group of connections is served, replies are appended to one [`Output`], each connection's behind the last
//! one's. They are sent from there. The unsent rest goes into the connection's own [`Unsent`].

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use tidemark_store::PinnedValue;

use crate::limits::SEND_BYTES;

/// Parts given to the system in one call (its own bound is 1,024).
const GATHERED_PARTS: usize = 64;

/// Memory for replies that is kept for the next group.
const KEPT_BYTES: usize = 1 << 20;

/// Replies of the connections of a group.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The copied bytes.
    pub(crate) bytes: Vec<u8>,
    /// Values to be sent between those bytes, each behind so many of them.
    pins: Vec<(usize, PinnedValue)>,
    pinned_bytes: usize,
    /// Values that are not sent after all, until no lock is held: a pin must not end under its shard's lock.
    dropped: Vec<PinnedValue>,
}

impl Output {
    /// Adds a value that is sent from where it lies.
    pub(crate) fn push_pinned(&mut self, value: PinnedValue, bytes: usize) {
        self.pins.push((self.bytes.len(), value));
        self.pinned_bytes += bytes;
    }

    /// Bytes in all; grows with every reply.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.pinned_bytes
    }

    /// Forgets everything and keeps a bounded buffer.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.pins.clear();
        self.pinned_bytes = 0;
        self.dropped.clear();
    }

    /// Drops the bytes added since there were so many copied ones (CLIENT REPLY OFF, a command that failed). Shards may
    /// be locked.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
        while let Some((_, pinned)) = self.pins.pop_if(|(at, _)| *at > bytes) {
            self.pinned_bytes -= pinned.parts().map(<[u8]>::len).sum::<usize>();
            self.dropped.push(pinned);
        }
    }

    /// Moves everything to the end of `to`. No shard may be locked.
    pub(crate) fn move_to(&mut self, to: &mut Vec<u8>) {
        let mut from = 0;
        for (at, value) in std::mem::take(&mut self.pins) {
            to.extend_from_slice(&self.bytes[from..at]);
            value.parts().for_each(|part| to.extend_from_slice(part));
            from = at;
        }
        to.extend_from_slice(&self.bytes[from..]);
        self.clear();
    }

    /// Whether any value in a range of the copied bytes is pinned.
    fn has_pins(&self, begin: usize, end: usize) -> bool {
        self.pins.iter().any(|(at, _)| (begin..=end).contains(at))
    }

    /// As [`Self::send`], to a socket that takes nothing for now.
    pub(crate) fn hold(&mut self, begin: usize, end: usize, unsent: &mut Unsent) -> io::Result<Sent> {
        self.send(begin, end, &mut Shut, unsent)
    }

    /// Sends a range of the copied bytes and the values between them, as much as a visit may. The rest is added to
    /// `unsent`, which must be empty.
    pub(crate) fn send(
        &mut self,
        begin: usize,
        end: usize,
        socket: &mut impl Write,
        unsent: &mut Unsent,
    ) -> io::Result<Sent> {
        debug_assert!(unsent.is_empty(), "what waits is sent before anything else is executed");
        if begin == end {
            return Ok(Sent::default());
        }
        if self.pins.is_empty() || !self.has_pins(begin, end) {
            let given = (end - begin).min(SEND_BYTES);
            let bytes = ignore_would_block(socket.write(&self.bytes[begin..begin + given]))?;
            if end == self.bytes.len() && end - begin > KEPT_BYTES {
                // There is nothing behind it: so long a reply is not held twice.
                let mut all = std::mem::take(&mut self.bytes);
                all.drain(..begin + bytes);
                unsent.push_vec(all);
            } else {
                unsent.push_bytes(&self.bytes[begin + bytes..end]);
            }
            return Ok(Sent {
                bytes,
                is_blocked: bytes < given,
            });
        }
        let mut from = begin;
        let pins = std::mem::take(&mut self.pins);
        for (at, value) in pins {
            if !(begin..=end).contains(&at) {
                self.pins.push((at, value));
                continue;
            }
            unsent.push_bytes(&self.bytes[from..at]);
            unsent.push_pinned(value);
            from = at;
        }
        unsent.push_bytes(&self.bytes[from..end]);
        let sent = unsent.send(socket)?;
        unsent.release_segments();
        Ok(sent)
    }
}

/// Takes nothing.
struct Shut;

impl Write for Shut {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The outcome of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Bytes that the system took.
    pub(crate) bytes: usize,
    /// It does not take more for now.
    pub(crate) is_blocked: bool,
}

/// Replies of one connection that the system has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    pieces: VecDeque<Piece>,
    /// The bytes of the first piece that are sent already.
    sent: usize,
}

#[derive(Debug)]
enum Piece {
    Copied(Vec<u8>),
    Pinned(PinnedValue),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Pinned(value) => value.parts().map(<[u8]>::len).sum(),
        }
    }
}

impl Unsent {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Memory that copied replies take.
    pub(crate) fn copied_bytes(&self) -> usize {
        let copied = |piece: &Piece| {
            if let Piece::Copied(bytes) = piece {
                bytes.capacity()
            } else {
                0
            }
        };
        self.pieces.iter().map(copied).sum()
    }

    /// Length of the values that are sent from where they lie: they are held in place meanwhile.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let pinned = |piece: &Piece| match piece {
            Piece::Copied(_) => 0,
            Piece::Pinned(_) => piece.len(),
        };
        self.pieces.iter().map(pinned).sum()
    }

    /// Sends as much as the system takes and a visit may.
    pub(crate) fn send(&mut self, socket: &mut impl Write) -> io::Result<Sent> {
        let mut all = Sent::default();
        while !self.pieces.is_empty() && all.bytes < SEND_BYTES {
            let (given, sent) = {
                let mut slices = Vec::with_capacity(GATHERED_PARTS);
                let given = self.gather(&mut slices, SEND_BYTES - all.bytes);
                (given, ignore_would_block(socket.write_vectored(&slices))?)
            };
            all.bytes += sent;
            self.advance(sent);
            if sent < given {
                all.is_blocked = true;
                break;
            }
        }
        if self.pieces.is_empty() {
            // An idle connection owns no buffer.
            *self = Self::default();
        }
        Ok(all)
    }

    /// Copies values in the log: a connection that is not sent all at once must not hold a whole segment for a value.
    /// Values outside of the log hold no more than themselves.
    fn release_segments(&mut self) {
        for piece in &mut self.pieces {
            if let Piece::Pinned(value) = piece
                && value.holds_segment()
            {
                *piece = Piece::Copied(value.parts().flatten().copied().collect());
            }
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.pieces.push_back(Piece::Copied(bytes.to_vec()));
        }
    }

    fn push_vec(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.pieces.push_back(Piece::Copied(bytes));
        }
    }

    fn push_pinned(&mut self, value: PinnedValue) {
        self.pieces.push_back(Piece::Pinned(value));
    }

    /// The next bytes, at most so many. Returns how many.
    fn gather<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>, most: usize) -> usize {
        let (mut skip, mut bytes) = (self.sent, 0);
        let mut add = |part: &'a [u8]| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            let taken = (part.len() - skipped).min(most - bytes);
            if taken > 0 && slices.len() < GATHERED_PARTS {
                slices.push(IoSlice::new(&part[skipped..skipped + taken]));
                bytes += taken;
            }
        };
        for piece in &self.pieces {
            match piece {
                Piece::Copied(bytes) => add(bytes),
                Piece::Pinned(value) => value.parts().for_each(&mut add),
            }
        }
        bytes
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(first) = self.pieces.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// It is not an error that a socket takes or gives nothing now.
pub(crate) fn ignore_would_block(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores;
    use std::sync::Arc;
    use tidemark_store::{Attributes, TenantStore};
    use tidemark_types::{MIB, UNIT_BYTES, UnixMs};

    /// Takes so many bytes per call, then would block until told.
    struct Slow {
        taken: Vec<u8>,
        per_call: usize,
        left: usize,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.per_call).min(self.left);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.left -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn store() -> Arc<TenantStore> {
        stores::store(1, 32 * MIB)
    }

    fn pinned(store: &Arc<TenantStore>, values: &[&[u8]]) -> Vec<PinnedValue> {
        let pin = |value: &&[u8]| {
            let name = value.len().to_string();
            let key = store.key(0, name.as_bytes());
            let mut shard = store.lock(0);
            shard.put(&key, value, Attributes::default(), UnixMs(1)).unwrap();
            shard.pin(&key, value.len()).unwrap()
        };
        values.iter().map(pin).collect()
    }

    #[test]
    fn copied_and_pinned_parts_keep_their_order_however_little_the_system_takes() {
        let small = vec![b's'; 20_000];
        let large: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        for (per_call, per_turn) in [(usize::MAX, usize::MAX), (1, 100_000), (7_000, 9_000), (65_537, 1)] {
            if per_turn == 1 && per_call == 1 {
                continue;
            }
            let mut output = Output::default();
            output.bytes.extend_from_slice(b"other connection");
            let begin = output.bytes.len();
            output.bytes.extend_from_slice(b"<");
            let mut pins = pinned(&store(), &[&small, &large]);
            output.push_pinned(pins.remove(0), small.len());
            output.bytes.extend_from_slice(b"|");
            output.push_pinned(pins.remove(0), large.len());
            output.bytes.extend_from_slice(b">");
            let end = output.bytes.len();
            assert_eq!(output.len(), end + small.len() + large.len());
            let mut socket = Slow {
                taken: Vec::new(),
                per_call,
                left: per_turn,
            };
            let mut unsent = Unsent::default();
            output.send(begin, end, &mut socket, &mut unsent).unwrap();
            while !unsent.is_empty() {
                socket.left = per_turn.max(4_000);
                assert!(unsent.send(&mut socket).unwrap().bytes > 0);
            }
            let expected = [b"<", &small[..], b"|", &large[..], b">"].concat();
            assert!(socket.taken == expected, "{per_call} {per_turn}");
        }
    }

    #[test]
    fn what_a_slow_reader_leaves_unsent_holds_no_segment() {
        let store = store();
        let (in_log, outside) = (vec![1; 20_000], vec![2; 600_000]);
        let mut output = Output::default();
        output.bytes.extend_from_slice(b"<");
        for (pin, bytes) in pinned(&store, &[&in_log, &outside])
            .into_iter()
            .zip([in_log.len(), outside.len()])
        {
            output.push_pinned(pin, bytes);
        }
        output.bytes.extend_from_slice(b">");
        let end = output.bytes.len();
        let mut socket = Slow {
            taken: Vec::new(),
            per_call: 100,
            left: 100,
        };
        let mut unsent = Unsent::default();
        let sent = output.send(0, end, &mut socket, &mut unsent).unwrap();
        assert!(sent.is_blocked && !unsent.is_empty());
        store.clear();
        assert_eq!(
            store.usage_bytes(),
            10 * UNIT_BYTES,
            "the value outside of the log, and nothing else"
        );
        socket.left = usize::MAX;
        (0..10_000)
            .take_while(|_| unsent.send(&mut socket).unwrap().bytes > 0)
            .count();
        assert!(unsent.is_empty() && socket.taken == [&b"<"[..], &in_log, &outside, b">"].concat());
        assert_eq!(store.usage_bytes(), 0);
    }

    #[test]
    fn truncation_takes_pins_along() {
        let mut output = Output::default();
        output.bytes.extend_from_slice(b"kept");
        let mark = output.bytes.len();
        output.bytes.extend_from_slice(b"$20000\r\n");
        output.push_pinned(pinned(&store(), &[&[1; 20_000]]).remove(0), 20_000);
        output.truncate(mark);
        let mut taken = Vec::new();
        let mut unsent = Unsent::default();
        output.send(0, mark, &mut taken, &mut unsent).unwrap();
        assert!(unsent.is_empty());
        assert_eq!(taken, b"kept");
    }

    #[test]
    fn a_visit_sends_so_much_and_no_more() {
        let store = store();
        let long: Vec<u8> = (0..900_000_u32).map(|n| (n / 7) as u8).collect();
        let all = [b"<", &long[..]].concat();
        for pin in [pinned(&store, &[&long]).pop(), None] {
            let mut output = Output::default();
            output.bytes.push(b'<');
            match pin {
                Some(pin) => output.push_pinned(pin, long.len()),
                None => output.bytes.extend_from_slice(&long),
            }
            let (mut taken, mut unsent) = (Vec::new(), Unsent::default());
            let end = output.bytes.len();
            let mut sent = output.send(0, end, &mut taken, &mut unsent).unwrap();
            for visit in all.chunks(SEND_BYTES) {
                let expected = Sent {
                    bytes: visit.len(),
                    is_blocked: false,
                };
                assert_eq!(sent, expected);
                sent = unsent.send(&mut taken).unwrap();
            }
            assert_eq!(sent, Sent::default());
            assert!(unsent.is_empty() && taken == all);
        }
    }
}
