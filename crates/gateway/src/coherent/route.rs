//! Which requests cachelets answer: reads and writes of whole objects. All that changes an object's bytes goes to them, or is
//! refused; settings of objects and parts of uploads go to the origin.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use hyper::Method;
use s3s::{Body, S3Response};

use super::door::{Door, deleted, is_for_everybody};
use crate::config::Origin;
use crate::deletion::Deletion;
use crate::fill::Job;
use crate::front::{Route, Visit, document};
use crate::reply::{ErrorCode, Reply};

/// Deletions of one request that are under way at a time.
const DELETIONS_AT_ONCE: usize = 16;

impl Route {
    /// The way of a request to the cachelets, if there are some and they can answer it.
    pub(crate) fn door(&self, visit: &Visit, origin: &Origin, place: &str) -> Option<Door> {
        let coherent = self.shared.coherent.clone()?;
        Some(Door {
            coherent,
            shared: Arc::clone(&self.shared),
            caller: visit.caller.clone(),
            job: Job {
                client: self.shared.client.clone(),
                origin: origin.clone(),
                place: place.into(),
                memory: Arc::clone(&visit.tenant),
            },
        })
    }

    /// A write where there are cachelets.
    pub(crate) async fn write_coherently(
        &self,
        mut visit: Visit,
        origin: Origin,
        place: String,
    ) -> Result<S3Response<Body>, Reply> {
        let refused = |message: &str| Err(Reply::error(ErrorCode::NotImplemented, message));
        if visit.parameter("versionId").is_some() {
            return refused("single versions of an object are written at the origin");
        }
        if !is_for_everybody(&visit.request.headers) {
            return refused("objects with a client's own encryption key are not kept coherent");
        }
        let Some(door) = self.door(&visit, &origin, &place) else {
            return self.write(visit, origin, place).await;
        };
        let is_completion = visit.request.method == Method::POST && visit.is_only("uploadId");
        if is_completion {
            let upload = visit.parameter("uploadId").unwrap_or_default().to_owned();
            let body = document(std::mem::take(&mut visit.request.input)).await?;
            return Ok(door.complete(&visit.request.headers, upload, body).await);
        }
        if !visit.is_plain() {
            // Parts of an upload, and other requests that are not for the object's bytes.
            return self.write(visit, origin, place).await;
        }
        let source = self.copy_source(&visit, &origin)?;
        match (visit.request.method.clone(), source) {
            (Method::PUT, Some(source)) => Ok(door.copy(&source, &visit.request.headers).await),
            (Method::PUT, None) => {
                let (headers, trailers) = (visit.request.headers, visit.request.trailing_headers);
                Ok(door.put(headers, visit.request.input, trailers).await)
            }
            (Method::DELETE, _) if visit.request.headers.contains_key("if-match") => {
                refused("a deletion with a condition is not possible here")
            }
            (Method::DELETE, _) => Ok(door.delete().await),
            _ => refused("this method is not known"),
        }
    }

    /// DeleteObjects where there are cachelets: each object by itself.
    pub(crate) async fn delete_coherently(
        &self,
        visit: &Visit,
        origin: &Origin,
        deletion: &Deletion,
    ) -> Result<S3Response<Body>, Reply> {
        if !deletion.is_plain() {
            let message = "only keys can be listed for deletion here";
            return Err(Reply::error(ErrorCode::NotImplemented, message));
        }
        let keys = deletion.keys().map(str::to_owned);
        let doors = keys.filter_map(|key| {
            let door = self.door(visit, origin, &format!("{}/{key}", origin.bucket))?;
            Some((key, door))
        });
        let ended = stream::iter(doors)
            .map(|(key, door)| async move { (key, door.delete_one().await) })
            .buffered(DELETIONS_AT_ONCE);
        Ok(deleted(&ended.collect::<Vec<_>>().await))
    }
}
