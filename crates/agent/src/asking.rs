//! The core's requests to the store: each is one conditional request to the origin.

use std::sync::Arc;

use bytes::Bytes;
use tidemark_cachelet::message::{StoreReply, StoreRequest};
use tidemark_cachelet::types::{CacheletId, Value, Version, WriteId};
use tidemark_gateway::coherent::{Fence, ObjectStore, Stored};

/// The bytes of a request that say how long a call takes.
pub(crate) fn sent_bytes(request: &StoreRequest) -> u64 {
    match request {
        StoreRequest::Put { value: Some(value), .. } => value.size_bytes,
        _ => 0,
    }
}

/// The bytes of an answer that says how long a call takes.
pub(crate) fn answered_bytes(reply: &StoreReply) -> Option<u64> {
    match reply {
        StoreReply::Object { value: Some(value), .. } => Some(value.size_bytes),
        StoreReply::Lost | StoreReply::Throttled | StoreReply::Denied(_) => None,
        _ => Some(0),
    }
}

fn identity(write: WriteId) -> String {
    format!("{:x}-{:x}", write.writer.0, write.request.0)
}

fn parse_identity(text: &str) -> Option<WriteId> {
    let (writer, request) = text.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(WriteId {
        writer: CacheletId(number(writer)?),
        request: tidemark_cachelet::types::RequestId(number(request)?),
    })
}

fn version(etag: Option<String>) -> Version {
    etag.map_or(Version::Absent, |etag| Version::Tag(etag.into()))
}

fn etag(version: &Version) -> Option<&str> {
    match version {
        Version::Absent => None,
        Version::Tag(etag) => Some(etag),
    }
}

/// The bytes of a value that has them, without copying them.
pub(crate) fn bytes_of(value: &Value) -> Option<Bytes> {
    struct Body(Arc<[u8]>);
    impl AsRef<[u8]> for Body {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Some(Bytes::from_owner(Body(Arc::clone(value.body()?))))
}

/// Makes a request of the core to the store.
pub(crate) async fn ask(store: &ObjectStore, place: &str, request: StoreRequest, fence: Fence) -> StoreReply {
    let stored = match &request {
        StoreRequest::Get { unless } => store.get(place, unless.as_ref().and_then(etag)).await,
        StoreRequest::Head => store.head(place).await,
        StoreRequest::Put { value, replaces, write } => {
            // A value that is to be written is whole.
            let content = value.as_ref().and_then(bytes_of);
            if content.is_none() && value.is_some() {
                return StoreReply::Denied(500);
            }
            store
                .put(place, content, etag(replaces), &identity(*write), fence)
                .await
        }
    };
    match stored {
        Stored::Object { content, etag } => StoreReply::Object {
            value: content.map(|content| Value::new(&content)),
            version: version(etag),
        },
        Stored::NotModified => StoreReply::NotModified,
        Stored::Meta { etag, write } => StoreReply::Meta {
            version: version(etag),
            write: write.and_then(|write| parse_identity(&write)),
        },
        Stored::Written(etag) => StoreReply::Written(version(etag)),
        Stored::Mismatch => StoreReply::Mismatch,
        Stored::Throttled => StoreReply::Throttled,
        Stored::Lost => StoreReply::Lost,
        Stored::Denied(status) => StoreReply::Denied(status),
    }
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::types::RequestId;

    use super::*;

    #[test]
    fn identities_of_writes_are_read_as_they_are_written() {
        let write = WriteId {
            writer: CacheletId(0x1f_ffff_ffff_ffff),
            request: RequestId(17),
        };
        assert_eq!(parse_identity(&identity(write)), Some(write));
        for text in ["", "1", "1-", "x-1", "1-2-3"] {
            assert_eq!(parse_identity(text), None, "{text}");
        }
    }
}
