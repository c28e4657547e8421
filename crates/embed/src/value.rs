//! Values where they lie: to be read without a copy, held or looked at, and to be filled in place.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use tidemark_store::{PinnedValue, Reservation as Room, Value as Stored};

use crate::error::Error;
use crate::tenant::Tenant;

/// A value. A long one lies outside of the log because it is longer than 256 KiB or half a segment, and is read in its
/// place. Shorter ones are copied, because holding one in place would hold the segment around it. A value stays what it
/// was for as long as it is held, whatever becomes of its key, and its memory stays taken as long. A tenant's values
/// are held in place up to 16 MiB at a time, or one of any length; more are copied.
pub struct Value(Held);

enum Held {
    InPlace(PinnedValue),
    Copied(Vec<u8>),
}

impl Value {
    pub(crate) fn in_place(pinned: PinnedValue) -> Self {
        Self(Held::InPlace(pinned))
    }

    pub(crate) fn copied(copy: Vec<u8>) -> Self {
        Self(Held::Copied(copy))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its parts in order: one, or of a long value one for every 64 KiB.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (pinned, copied) = match &self.0 {
            Held::InPlace(pinned) => (Some(pinned.parts()), None),
            Held::Copied(copy) => (None, Some(copy.as_slice())),
        };
        pinned.into_iter().flatten().chain(copied)
    }

    /// All of it in one piece: borrowed where it lies in one, else copied.
    pub fn as_bytes(&self) -> Cow<'_, [u8]> {
        in_one_piece(|| self.parts())
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.parts().for_each(|part| copy.extend_from_slice(part));
        copy
    }

    /// Whether it is read where it lies, and not a copy already.
    pub fn is_in_place(&self) -> bool {
        matches!(self.0, Held::InPlace(_))
    }
}

/// A value that is being read where it lies: see [`Tenant::get_with`].
pub struct ValueRef<'a>(Seen<'a>);

enum Seen<'a> {
    Locked(Stored<'a>),
    Pinned(&'a PinnedValue),
}

impl<'a> ValueRef<'a> {
    pub(crate) fn locked(value: Stored<'a>) -> Self {
        Self(Seen::Locked(value))
    }

    pub(crate) fn pinned(value: &'a PinnedValue) -> Self {
        Self(Seen::Pinned(value))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its parts in order: one, or of a value that is longer than 256 KiB or half a segment one for every 64 KiB.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (locked, pinned) = match self.0 {
            Seen::Locked(value) => (Some(value.parts()), None),
            Seen::Pinned(value) => (None, Some(value.parts())),
        };
        locked.into_iter().flatten().chain(pinned.into_iter().flatten())
    }

    /// All of it in one piece: borrowed where it lies in one, else copied.
    pub fn as_bytes(&self) -> Cow<'a, [u8]> {
        in_one_piece(|| self.parts())
    }
}

impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueRef").field("bytes", &self.len()).finish()
    }
}

/// These parts as one: borrowed if there is one, else copied.
fn in_one_piece<'a, P: Iterator<Item = &'a [u8]>>(parts: impl Fn() -> P) -> Cow<'a, [u8]> {
    let mut some = parts();
    match (some.next(), some.next()) {
        (None, _) => Cow::Borrowed(&[]),
        (Some(whole), None) => Cow::Borrowed(whole),
        (Some(_), Some(_)) => Cow::Owned(parts().collect::<Vec<_>>().concat()),
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        *self.as_bytes() == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        *self == other[..]
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value")
            .field("bytes", &self.len())
            .field("is_in_place", &self.is_in_place())
            .finish()
    }
}

/// Room for a value that is being made. Nobody sees anything of it before [`Reservation::commit`]; dropped without that, it
/// never was. A long value is written where it will lie, one that belongs into the log (see [`Value`]) into a buffer first.
pub struct Reservation {
    tenant: Tenant,
    key: Box<[u8]>,
    place: Place,
}

pub(crate) enum Place {
    Final(Room),
    Buffer(Vec<u8>),
}

impl Reservation {
    pub(crate) fn new(tenant: Tenant, key: &[u8], place: Place) -> Self {
        Self {
            tenant,
            key: key.into(),
            place,
        }
    }

    /// The room, in parts in order, as long as the value together. It is one part, or for a long value one for every 64
    /// KiB. Parts that are not written to have any content.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (room, buffer) = match &mut self.place {
            Place::Final(room) => (Some(room.parts()), None),
            Place::Buffer(buffer) => (None, Some(buffer.as_mut_slice())),
        };
        room.into_iter().flatten().chain(buffer)
    }

    /// Fills it from the beginning. The number of bytes that were copied: as many as there are, or as there is room for.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        for part in self.parts() {
            let (piece, behind) = rest.split_at(part.len().min(rest.len()));
            part[..piece.len()].copy_from_slice(piece);
            rest = behind;
        }
        bytes.len() - rest.len()
    }

    /// Makes it the key's value.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn commit(self) -> Result<(), Error> {
        self.commit_with(None)
    }

    /// Makes it the key's value for so long.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn commit_for(self, lifetime: Duration) -> Result<(), Error> {
        self.commit_with(Some(lifetime))
    }

    fn commit_with(self, lifetime: Option<Duration>) -> Result<(), Error> {
        let Self { tenant, key, place } = self;
        match place {
            // It was let in when it was reserved.
            Place::Buffer(value) => tenant.store(&key, &value, lifetime),
            Place::Final(room) => tenant.commit(room, &key, lifetime),
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("is_in_place", &matches!(self.place, Place::Final(_)))
            .finish_non_exhaustive()
    }
}
