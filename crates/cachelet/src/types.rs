//! Nouns of the protocol: identities, keys, values, versions and stamps.
//!
//! Invariant: everything here is plain data with a total order and a hash, so that a model checker can compare states.
//! Times are microseconds of the clock of one cachelet; they are never sent to another one.

use std::fmt;
use std::sync::Arc;

/// One incarnation of a cachelet. A process that starts again gets another one, so that statements about the old one
/// cannot be taken for the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CacheletId(pub u64);

/// The number that tells a domain's memberships and configurations apart. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Epoch(pub u64);

/// The place of a value in the order that a key's home gave: later epochs first, then later writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stamp {
    /// The epoch in which the home gave it.
    pub epoch: Epoch,
    /// The home's counter, one for all of its keys.
    pub sequence: u64,
}

/// An object's name at the store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Key(pub Arc<str>);

impl Key {
    /// A key of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// The name of bytes that the shell keeps for a cachelet. No two have the same one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyName {
    /// The key of the copy. The shell keeps one body for a key, the last one.
    pub key: Key,
    /// Which of its bodies, unique for the cachelet.
    pub number: u64,
}

impl fmt::Debug for BodyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}#{}", self.key, self.number)
    }
}

/// The place of a value's bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// Here. A simulated value has an identity of eight bytes and any size.
    Here(Arc<[u8]>),
    /// With the shell, which may have lost them. Such a value leaves a cachelet in an answer and in a message only, and the
    /// shell puts the bytes in its place.
    Outside(BodyName),
}

/// An object's content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    /// The size that counts in budgets and on the wire.
    pub size_bytes: u64,
    /// The bytes, or their place.
    pub held: Held,
}

impl Value {
    /// A value of these bytes.
    #[must_use]
    pub fn new(body: &[u8]) -> Self {
        Self::shared(Arc::from(body))
    }

    /// A value of bytes that are shared.
    #[must_use]
    pub fn shared(body: Arc<[u8]>) -> Self {
        Self {
            size_bytes: body.len() as u64,
            held: Held::Here(body),
        }
    }

    /// A simulated value: `identity` stands for `size_bytes` bytes.
    #[must_use]
    pub fn simulated(identity: u64, size_bytes: u64) -> Self {
        Self {
            size_bytes,
            held: Held::Here(Arc::from(identity.to_be_bytes().as_slice())),
        }
    }

    /// The bytes, if they are here.
    #[must_use]
    pub fn body(&self) -> Option<&Arc<[u8]>> {
        match &self.held {
            Held::Here(body) => Some(body),
            Held::Outside(_) => None,
        }
    }

    /// The name of bytes that the shell keeps.
    #[must_use]
    pub fn outside(&self) -> Option<&BodyName> {
        match &self.held {
            Held::Here(_) => None,
            Held::Outside(name) => Some(name),
        }
    }

    /// The identity of a simulated value; zero if it is none.
    #[must_use]
    pub fn identity(&self) -> u64 {
        let body = self.body().and_then(|body| <[u8; 8]>::try_from(body.as_ref()).ok());
        body.map_or(0, u64::from_be_bytes)
    }
}

#[cfg(feature = "serde")]
mod as_bytes {
    //! A value as its size and its bytes in one piece.

    use std::fmt;
    use std::sync::Arc;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Value;

    struct Bytes(Arc<[u8]>);

    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }

    struct BytesVisitor;

    impl<'de> Visitor<'de> for BytesVisitor {
        type Value = Bytes;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
            Ok(Bytes(Arc::from(bytes)))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Bytes, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = sequence.next_element()? {
                bytes.push(byte);
            }
            Ok(Bytes(bytes.into()))
        }
    }

    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_bytes(BytesVisitor)
        }
    }

    impl Serialize for Value {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            // A value without its bytes is of use to nobody else.
            let body = self.body().ok_or_else(|| S::Error::custom("its bytes are elsewhere"))?;
            (self.size_bytes, Bytes(Arc::clone(body))).serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Value {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let (size_bytes, Bytes(body)) = Deserialize::deserialize(deserializer)?;
            Ok(Self {
                size_bytes,
                held: super::Held::Here(body),
            })
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outside() {
            Some(name) => write!(formatter, "{name:?}({} B)", self.size_bytes),
            None => write!(formatter, "v{}({} B)", self.identity(), self.size_bytes),
        }
    }
}

/// The store's name for one content of an object: its entity tag, or that there is no object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Version {
    /// There is no object of that name.
    Absent,
    /// The entity tag.
    Tag(Arc<str>),
}

/// Identity of a write, kept by the store in the object's metadata. It tells a write that was applied from another one
/// with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WriteId {
    /// The cachelet whose function wrote.
    pub writer: CacheletId,
    /// Its request.
    pub request: RequestId,
}

/// A request of one cachelet to another one, unique for the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestId(pub u64);

/// A read or a write of a function, named by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// A call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Mixes 64 bits so that each bit of the result depends on all of them: the finalizer of `SplitMix64`.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The hash of a key that homes and partitions follow from: FNV-1a, mixed. It is the same on all nodes and in all
/// versions of the program.
#[must_use]
pub fn key_hash(key: &Key) -> u64 {
    let fnv = key.0.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv)
}
