//! Keys: as they are, several on one line, and in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::KEY_BYTES_MAX;
use super::line::{trim_spaces, trim_start};
use crate::scan::word_end;

/// Whether these bytes can be a key: 1 to 250, none of them a control character or white space.
#[inline]
pub fn is_key(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() <= KEY_BYTES_MAX && word_end(bytes, 0) == bytes.len()
}

/// One key or more, checked, as they stand on a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keys<'a> {
    /// The input from the first key's first byte to the last key's last byte.
    region: &'a [u8],
    count: usize,
}

impl<'a> Keys<'a> {
    /// A single checked key.
    #[inline]
    pub(super) fn one(key: &'a [u8]) -> Self {
        Self { region: key, count: 1 }
    }

    /// No key, as may follow the last full part of a long line.
    pub(super) const NONE: Self = Self { region: &[], count: 0 };

    /// The keys on a line; `None` if one of them is no key or there is none.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let region = trim_spaces(text);
        let mut rest = region;
        let mut count = 0;
        while !rest.is_empty() {
            let length = word_end(rest, 0);
            let ends_well = rest.get(length).is_none_or(|byte| *byte == b' ');
            if length == 0 || length > KEY_BYTES_MAX || !ends_well {
                return None;
            }
            count += 1;
            rest = trim_start(&rest[length..]);
        }
        (count > 0).then_some(Self { region, count })
    }

    /// How many keys; zero only at the end of a line that came in parts.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is nearly always a key")]
    pub fn len(self) -> usize {
        self.count
    }

    /// The first key, which is the only one if [`Keys::len`] is 1.
    #[inline]
    pub fn first(self) -> &'a [u8] {
        if self.count == 1 {
            return self.region;
        }
        &self.region[..word_end(self.region, 0)]
    }
}

impl<'a> IntoIterator for Keys<'a> {
    type Item = &'a [u8];
    type IntoIter = KeysIter<'a>;

    #[inline]
    fn into_iter(self) -> KeysIter<'a> {
        KeysIter {
            rest: self.region,
            left: self.count,
        }
    }
}

/// Walks over [`Keys`].
#[derive(Clone, Debug)]
pub struct KeysIter<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for KeysIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        if self.left == 0 {
            return Some(self.rest);
        }
        let (key, behind) = self.rest.split_at(word_end(self.rest, 0));
        self.rest = trim_start(behind);
        Some(key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for KeysIter<'_> {}

/// The key of a meta command as it was sent: plain, or binary in base64 (flag `b`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetaKey<'a> {
    /// The key as sent, and as it is sent back.
    pub sent: &'a [u8],
    /// Whether the sent text is base64 of the key.
    pub encoded: bool,
}

impl<'a> MetaKey<'a> {
    /// A checked key that was sent as it is.
    pub(super) fn plain(sent: &'a [u8]) -> Self {
        Self { sent, encoded: false }
    }

    /// A key as sent; `None` if it is said to be base64 and is not.
    pub(super) fn parse(sent: &'a [u8], encoded: bool) -> Option<Self> {
        let key = Self { sent, encoded };
        if encoded && key.bytes(&mut KeyBuffer::new()).is_empty() {
            return None;
        }
        Some(key)
    }

    /// The key's own bytes; those of an encoded one are written to `buffer`.
    #[inline]
    pub fn bytes<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.encoded {
            return self.sent;
        }
        match STANDARD.decode_slice(self.sent, &mut buffer.0) {
            Ok(length) => &buffer.0[..length],
            Err(_) => &[],
        }
    }
}

/// Room for a decoded key.
#[derive(Clone, Debug)]
pub struct KeyBuffer([u8; Self::BYTES]);

impl KeyBuffer {
    /// The longest decoded key: 250 bytes of base64 hold 62 groups of three.
    pub const BYTES: usize = KEY_BYTES_MAX.div_ceil(4) * 3;

    /// Empty room.
    #[inline]
    pub fn new() -> Self {
        Self([0; Self::BYTES])
    }
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self::new()
    }
}
