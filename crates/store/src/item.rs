//! How an item is laid out in a segment.
//!
//! ```text
//! byte 0      what follows: EXPIRES 1, CLIENT_FLAGS 2, TOKEN 4, DB 8, LONG_KEY 16; STUB 32, DEAD 64; FILLER 128
//! byte 1      key length (LONG_KEY: 255, the real one follows)
//! bytes 2..5  value length (21 bits), USED 2^21, STALE 2^22, WON 2^23, little-endian
//! bytes 5..7  second of the last access, modulo 2^16
//! then        DB 1, LONG_KEY 3, EXPIRES 6 (ms since 1970), CLIENT_FLAGS 4, TOKEN 8, each only if it is there
//! then        key, value
//! ```
//!
//! Items follow each other without padding. If an item was overwritten by a shorter one, a filler takes the rest: one
//! byte 0x80, or 0x81 and three bytes with the filler's length. A segment can thus always be walked.
//!
//! Invariant: [`Item`] is made only from the address of a complete item in a segment that the maker may read. Its
//! accessors therefore stay inside that segment.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use tidemark_types::UnixMs;

const EXPIRES: u8 = 1;
const CLIENT_FLAGS: u8 = 2;
const TOKEN: u8 = 4;
const DB: u8 = 8;
const LONG_KEY: u8 = 16;
const STUB: u8 = 32;
const DEAD: u8 = 64;
const FILLER: u8 = 128;
/// The bits that say which optional fields there are.
const OPTIONAL: u8 = EXPIRES | CLIENT_FLAGS | TOKEN | DB | LONG_KEY;

pub(crate) const HEADER_BYTES: usize = 7;
const LENGTH_MASK: u32 = (1 << 21) - 1;
const USED: u32 = 1 << 21;
const STALE: u32 = 1 << 22;
const WON: u32 = 1 << 23;

/// The longest key: 64 KiB, as interfaces.md promises to RESP clients.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Expiry times are kept in 48 bits of milliseconds: up to the year 10889.
pub const EXPIRY_MAX: UnixMs = UnixMs((1 << 48) - 1);

/// Size of each optional field, in the order in which they follow the header.
const FIELDS: [(u8, usize); 5] = [(DB, 1), (LONG_KEY, 3), (EXPIRES, 6), (CLIENT_FLAGS, 4), (TOKEN, 8)];

/// The offset at which the field `field` begins, for each combination of optional fields; the key's for `field` 0.
const fn offsets(field: u8) -> [u8; 32] {
    let mut table = [0; 32];
    let mut combination = 0;
    while combination < 32 {
        let mut offset = HEADER_BYTES;
        let mut i = 0;
        while i < FIELDS.len() {
            if FIELDS[i].0 == field {
                break;
            }
            if combination & FIELDS[i].0 as usize != 0 {
                offset += FIELDS[i].1;
            }
            i += 1;
        }
        table[combination] = offset as u8;
        combination += 1;
    }
    table
}

const KEY_AT: [u8; 32] = offsets(0);
const LONG_KEY_AT: [u8; 32] = offsets(LONG_KEY);
const EXPIRES_AT: [u8; 32] = offsets(EXPIRES);
const CLIENT_FLAGS_AT: [u8; 32] = offsets(CLIENT_FLAGS);
const TOKEN_AT: [u8; 32] = offsets(TOKEN);

/// The attributes of an item besides key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// When it expires; `None` never does.
    pub expiry: Option<UnixMs>,
    /// The memcached client's flags.
    pub client_flags: u32,
    /// The compare-and-swap token, if a client asked for one.
    pub token: Option<u64>,
    /// Marked as out of date by a meta delete with `I`.
    pub stale: bool,
    /// A client was told to fetch the value anew (the meta flags N and R); others need not.
    pub won: bool,
}

impl Attributes {
    /// Those of an item that expires after so long, if it ever does. A time that a clock cannot tell from none is the next
    /// one that it can.
    pub fn expiring(now: UnixMs, lifetime: Option<Duration>) -> Self {
        let at_least = Duration::from_millis(1);
        Self {
            expiry: lifetime.map(|lifetime| now.plus(lifetime.max(at_least))),
            ..Self::default()
        }
    }

    /// The bits of the optional fields that they need.
    fn optional_fields(&self) -> u8 {
        let flag = |present: bool, bit: u8| if present { bit } else { 0 };
        flag(self.expiry.is_some(), EXPIRES)
            | flag(self.client_flags != 0, CLIENT_FLAGS)
            | flag(self.token.is_some(), TOKEN)
    }

    /// Whether an item with these attributes is laid out as one with the others, so that they can be changed in place.
    pub(crate) fn has_layout_of(&self, other: &Self) -> bool {
        self.optional_fields() == other.optional_fields()
    }
}

/// An item about to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) db: u8,
    pub(crate) key: &'a [u8],
    /// The value, or for a stub the list of units that hold it.
    pub(crate) value: &'a [u8],
    pub(crate) is_stub: bool,
    pub(crate) attributes: Attributes,
    /// Second of the last access.
    pub(crate) accessed: u16,
}

impl Draft<'_> {
    fn kind(&self) -> u8 {
        let flag = |present: bool, bit: u8| if present { bit } else { 0 };
        self.attributes.optional_fields()
            | flag(self.db != 0, DB)
            | flag(self.key.len() >= 255, LONG_KEY)
            | flag(self.is_stub, STUB)
    }

    /// Bytes that the item takes in a segment.
    pub(crate) fn bytes(&self) -> usize {
        KEY_AT[(self.kind() & OPTIONAL) as usize] as usize + self.key.len() + self.value.len()
    }

    /// Writes the item.
    ///
    /// # Safety
    /// `at` must be the beginning of [`Self::bytes`] bytes that the caller may write and nobody else reads. They must
    /// not overlap the draft's key and value.
    pub(crate) unsafe fn write(&self, at: *mut u8) {
        let kind = self.kind();
        let attributes = &self.attributes;
        let flag = |present: bool, bit: u32| if present { bit } else { 0 };
        let length = self.value.len() as u32 | flag(attributes.stale, STALE) | flag(attributes.won, WON);
        // SAFETY: every write lies within the `bytes()` bytes that the caller vouches for. These are the header, the
        // optional fields in the order of FIELDS (`kind` says which are there), then key and value.
        unsafe {
            at.write(kind);
            at.add(1).write(self.key.len().min(255) as u8);
            write_le(at.add(2), u64::from(length), 3);
            write_le(at.add(5), u64::from(self.accessed), 2);
            let mut to = at.add(HEADER_BYTES);
            if kind & OPTIONAL != 0 {
                for (bit, value) in [
                    (DB, u64::from(self.db)),
                    (LONG_KEY, self.key.len() as u64),
                    (EXPIRES, attributes.expiry.unwrap_or_default().0.min(EXPIRY_MAX.0)),
                    (CLIENT_FLAGS, u64::from(attributes.client_flags)),
                    (TOKEN, attributes.token.unwrap_or_default()),
                ] {
                    if kind & bit != 0 {
                        let bytes = field_bytes(bit);
                        write_le(to, value, bytes);
                        to = to.add(bytes);
                    }
                }
            }
            std::ptr::copy_nonoverlapping(self.key.as_ptr(), to, self.key.len());
            std::ptr::copy_nonoverlapping(self.value.as_ptr(), to.add(self.key.len()), self.value.len());
        }
    }
}

/// An item in a segment, readable for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    at: NonNull<u8>,
    segment: PhantomData<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// The item at an address.
    ///
    /// # Safety
    /// `at` must be the beginning of a complete item, written by [`Draft::write`] or copied whole. During `'a` nobody
    /// else may write to it, and it must not be freed.
    #[inline]
    pub(crate) unsafe fn at(at: *mut u8) -> Self {
        Self {
            // SAFETY: the beginning of an item is not null.
            at: unsafe { NonNull::new_unchecked(at) },
            segment: PhantomData,
        }
    }

    #[inline]
    fn byte(&self, offset: usize) -> u8 {
        // SAFETY: callers pass offsets inside of the item, which `at` vouches for.
        unsafe { self.at.add(offset).read() }
    }

    #[inline]
    fn le(&self, offset: usize, bytes: usize) -> u64 {
        let mut value = [0; 8];
        // SAFETY: callers pass offsets and sizes of fields inside of the item; at most 8 bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr().add(offset), value.as_mut_ptr(), bytes) };
        u64::from_le_bytes(value)
    }

    #[inline]
    fn fields(&self) -> usize {
        (self.byte(0) & OPTIONAL) as usize
    }

    #[inline]
    fn length_word(&self) -> u32 {
        self.le(2, 3) as u32
    }

    #[inline]
    fn key_bytes(&self) -> usize {
        let short = self.byte(1);
        if short == 255 {
            self.le(LONG_KEY_AT[self.fields()] as usize, 3) as usize
        } else {
            short as usize
        }
    }

    /// The key, without its database.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        // SAFETY: the key lies inside of the item, which is readable for 'a.
        unsafe { std::slice::from_raw_parts(self.at.add(KEY_AT[self.fields()] as usize).as_ptr(), self.key_bytes()) }
    }

    /// The value; for a stub the list of units.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        let offset = KEY_AT[self.fields()] as usize + self.key_bytes();
        // SAFETY: the value lies inside of the item, which is readable for 'a.
        unsafe {
            std::slice::from_raw_parts(
                self.at.add(offset).as_ptr(),
                (self.length_word() & LENGTH_MASK) as usize,
            )
        }
    }

    /// The database, 0 to 15.
    #[inline]
    pub(crate) fn db(&self) -> u8 {
        // DB is the first of the optional fields.
        if self.byte(0) & DB == 0 {
            0
        } else {
            self.byte(HEADER_BYTES)
        }
    }

    /// Bytes that the item takes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        KEY_AT[self.fields()] as usize + self.key_bytes() + (self.length_word() & LENGTH_MASK) as usize
    }

    /// Whether the value lies outside of the log.
    #[inline]
    pub(crate) fn is_stub(&self) -> bool {
        self.byte(0) & STUB != 0
    }

    /// Whether the item was deleted or overwritten.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.byte(0) & DEAD != 0
    }

    /// Whether it was ever read.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.length_word() & USED != 0
    }

    /// When it expires.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<UnixMs> {
        let fields = self.fields();
        (fields & EXPIRES as usize != 0).then(|| UnixMs(self.le(EXPIRES_AT[fields] as usize, 6)))
    }

    /// Second of the last access, modulo 2^16.
    #[inline]
    pub(crate) fn accessed(&self) -> u16 {
        self.le(5, 2) as u16
    }

    pub(crate) fn client_flags(&self) -> u32 {
        let fields = self.fields();
        if fields & CLIENT_FLAGS as usize == 0 {
            0
        } else {
            self.le(CLIENT_FLAGS_AT[fields] as usize, 4) as u32
        }
    }

    pub(crate) fn token(&self) -> Option<u64> {
        let fields = self.fields();
        (fields & TOKEN as usize != 0).then(|| self.le(TOKEN_AT[fields] as usize, 8))
    }

    /// Everything besides key and value.
    pub(crate) fn attributes(&self) -> Attributes {
        let word = self.length_word();
        Attributes {
            expiry: self.expiry(),
            client_flags: self.client_flags(),
            token: self.token(),
            stale: word & STALE != 0,
            won: word & WON != 0,
        }
    }

    /// Marks the item as dead, so that a walk passes it over.
    ///
    /// # Safety
    /// The caller may write to the item's segment, and nobody reads this header meanwhile.
    pub(crate) unsafe fn kill(&self) {
        // SAFETY: byte 0 is the item's; the caller vouches for the rest.
        unsafe { self.at.write(self.byte(0) | DEAD) };
    }

    /// Notes a read.
    ///
    /// # Safety
    /// The conditions of [`Self::kill`].
    pub(crate) unsafe fn note_access(&self, second: u16) {
        // SAFETY: bytes 2 to 6 are the item's; the caller vouches for the rest.
        unsafe {
            write_le(self.at.as_ptr().add(2), u64::from(self.length_word() | USED), 3);
            write_le(self.at.as_ptr().add(5), u64::from(second), 2);
        }
    }

    /// Sets attributes whose layout is that of the item's ([`Attributes::has_layout_of`]).
    ///
    /// # Safety
    /// The conditions of [`Self::kill`].
    pub(crate) unsafe fn set_attributes(&self, attributes: &Attributes) {
        debug_assert!(self.attributes().has_layout_of(attributes));
        let fields = self.fields();
        let flag = |present: bool, bit: u32| if present { bit } else { 0 };
        let marks = flag(attributes.stale, STALE) | flag(attributes.won, WON);
        let at = self.at.as_ptr();
        // SAFETY: the header and the fields that `fields` says are there are the item's; the caller vouches for the rest.
        unsafe {
            write_le(at.add(2), u64::from(self.length_word() & !(STALE | WON) | marks), 3);
            if let Some(expiry) = attributes.expiry {
                write_le(at.add(EXPIRES_AT[fields] as usize), expiry.0.min(EXPIRY_MAX.0), 6);
            }
            if attributes.client_flags != 0 {
                write_le(
                    at.add(CLIENT_FLAGS_AT[fields] as usize),
                    u64::from(attributes.client_flags),
                    4,
                );
            }
            if let Some(token) = attributes.token {
                write_le(at.add(TOKEN_AT[fields] as usize), token, 8);
            }
        }
    }
}

/// The record at a place in a segment.
pub(crate) enum Record<'a> {
    Item(Item<'a>),
    /// Nothing, for this many bytes.
    Filler(usize),
}

/// Reads what lies at an address.
///
/// # Safety
/// The conditions of [`Item::at`], with the beginning of an item or filler.
#[inline]
pub(crate) unsafe fn record<'a>(at: *mut u8) -> Record<'a> {
    // SAFETY: the caller vouches for an item or a filler; a filler of 0x81 has three more bytes.
    unsafe {
        match at.read() {
            0x80 => Record::Filler(1),
            kind if kind & FILLER != 0 => {
                let mut length = [0; 4];
                std::ptr::copy_nonoverlapping(at.add(1), length.as_mut_ptr(), 3);
                Record::Filler(u32::from_le_bytes(length) as usize)
            }
            _ => Record::Item(Item::at(at)),
        }
    }
}

/// Fills `bytes` bytes so that a walk passes them over.
///
/// # Safety
/// The range must be the caller's to write.
pub(crate) unsafe fn write_filler(at: *mut u8, bytes: usize) {
    // SAFETY: all writes are inside of the range.
    unsafe {
        if bytes < 4 {
            std::ptr::write_bytes(at, FILLER, bytes);
        } else {
            at.write(FILLER | 1);
            write_le(at.add(1), bytes as u64, 3);
        }
    }
}

fn field_bytes(bit: u8) -> usize {
    FIELDS
        .iter()
        .find(|(field, _)| *field == bit)
        .map_or(0, |(_, bytes)| *bytes)
}

/// # Safety
/// `bytes` (at most 8) bytes at `at` must be the caller's to write.
#[inline]
unsafe fn write_le(at: *mut u8, value: u64, bytes: usize) {
    // SAFETY: the caller vouches for the target; the source has 8 bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes a draft into a buffer of exactly its size.
    fn written(draft: &Draft<'_>) -> Vec<u8> {
        let mut buffer = vec![0xEE; draft.bytes()];
        // SAFETY: the buffer has `bytes()` bytes and belongs to this test.
        unsafe { draft.write(buffer.as_mut_ptr()) };
        buffer
    }

    fn item(buffer: &mut [u8]) -> Item<'_> {
        // SAFETY: the buffer holds one complete item.
        unsafe { Item::at(buffer.as_mut_ptr()) }
    }

    #[test]
    fn a_plain_item_costs_seven_bytes() {
        let draft = Draft {
            db: 0,
            key: b"0123456789abcdef",
            value: &[7; 100],
            is_stub: false,
            attributes: Attributes::default(),
            accessed: 9,
        };
        assert_eq!(draft.bytes(), 7 + 16 + 100);
    }

    #[test]
    fn marks_and_times_change_in_place() {
        let expiry = Some(UnixMs(1_700_000_000_123));
        let attributes = Attributes {
            expiry,
            token: Some(5),
            ..Attributes::default()
        };
        let draft = Draft {
            db: 3,
            key: b"k",
            value: b"value",
            is_stub: false,
            attributes,
            accessed: 1,
        };
        let mut buffer = written(&draft);
        let item = item(&mut buffer);
        assert!(!item.is_used() && !item.is_dead());
        // SAFETY: the buffer belongs to this test.
        unsafe {
            item.note_access(65_535);
            item.set_attributes(&Attributes {
                expiry: Some(UnixMs(42)),
                stale: true,
                ..attributes
            });
            item.kill();
        }
        assert!(item.is_used() && item.is_dead());
        assert_eq!(item.accessed(), 65_535);
        let expected = Attributes {
            expiry: Some(UnixMs(42)),
            stale: true,
            ..attributes
        };
        assert_eq!(item.attributes(), expected);
        assert_eq!((item.db(), item.key(), item.value()), (3, &b"k"[..], &b"value"[..]));
    }

    #[test]
    fn fillers_of_every_size_are_walked() {
        for bytes in 1..300_usize {
            let mut buffer = vec![0; bytes];
            // SAFETY: the buffer has that many bytes.
            unsafe { write_filler(buffer.as_mut_ptr(), bytes) };
            let mut walked = 0;
            while walked < bytes {
                // SAFETY: fillers were written over the whole buffer.
                match unsafe { record(buffer.as_mut_ptr().add(walked)) } {
                    Record::Filler(length) => walked += length,
                    Record::Item(_) => panic!("an item in a filler of {bytes}"),
                }
            }
            assert_eq!(walked, bytes);
        }
    }

    proptest! {
        #[test]
        fn everything_written_is_read_back(
            key in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 65_000..=KEY_BYTES_MAX)],
            value in prop::collection::vec(any::<u8>(), 0..2000),
            db in 0_u8..16,
            expiry in prop::option::of(0..=EXPIRY_MAX.0),
            client_flags in prop_oneof![Just(0), any::<u32>()],
            token in prop::option::of(any::<u64>()),
            (stale, won, is_stub) in any::<(bool, bool, bool)>(),
            accessed in any::<u16>(),
        ) {
            let attributes = Attributes { expiry: expiry.map(UnixMs), client_flags, token, stale, won };
            let draft = Draft { db, key: &key, value: &value, is_stub, attributes, accessed };
            let mut buffer = written(&draft);
            let item = item(&mut buffer);
            prop_assert_eq!(item.bytes(), draft.bytes());
            prop_assert_eq!(item.key(), &key[..]);
            prop_assert_eq!(item.value(), &value[..]);
            prop_assert_eq!((item.db(), item.is_stub(), item.accessed()), (db, is_stub, accessed));
            prop_assert_eq!(item.attributes(), attributes);
            prop_assert_eq!((item.is_dead(), item.is_used()), (false, false));
        }
    }
}
