//! The object store: conditional reads and writes, each at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::message::{StoreReply, StoreRequest};
use crate::types::{Key, Value, Version, WriteId};

/// Objects with versions. Every write gives another version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Store {
    objects: BTreeMap<Key, Object>,
    versions: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    value: Value,
    version: Version,
    write: Option<WriteId>,
}

impl Store {
    fn version(&self, key: &Key) -> Version {
        self.objects
            .get(key)
            .map_or(Version::Absent, |object| object.version.clone())
    }

    /// Applies a request.
    pub(super) fn apply(&mut self, key: &Key, request: StoreRequest) -> StoreReply {
        let version = self.version(key);
        match request {
            StoreRequest::Get { unless } if unless.as_ref() == Some(&version) => StoreReply::NotModified,
            StoreRequest::Get { .. } => StoreReply::Object {
                value: self.objects.get(key).map(|object| object.value.clone()),
                version,
            },
            StoreRequest::Head => StoreReply::Meta {
                version,
                write: self.objects.get(key).and_then(|object| object.write),
            },
            StoreRequest::Put { replaces, .. } if replaces != version => StoreReply::Mismatch,
            StoreRequest::Put { value, write, .. } => StoreReply::Written(self.write(key, value, Some(write))),
        }
    }

    /// Writes without a condition, as a program outside of the domain does.
    pub(super) fn write(&mut self, key: &Key, value: Option<Value>, write: Option<WriteId>) -> Version {
        let Some(value) = value else {
            self.objects.remove(key);
            return Version::Absent;
        };
        self.versions += 1;
        let version = Version::Tag(Arc::from(self.versions.to_string()));
        let object = Object {
            value,
            version: version.clone(),
            write,
        };
        self.objects.insert(key.clone(), object);
        version
    }
}
