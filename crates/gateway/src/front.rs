//! The kinds of requests: tenants and their keys, buckets and objects, and the part that answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::Extensions;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;
use s3s::auth::{S3Auth, SecretKey};
use s3s::crypto::{Checksum as _, Md5};
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result};

use crate::access::{AccessTable, Deed, Entry, Placing, ServerKey, parse_access_key};
use crate::coded::{CODE_QUESTION, ParitySlot};
use crate::coherent::Caller;
use crate::command::{command_of, outcome_of};
use crate::config::Origin;
use crate::deletion::Deletion;
use crate::fill::Job;
use crate::forward::{DOCUMENT_BYTES_MAX, Forward};
use crate::guard::{after_signature, is_object_parameter, is_plain_key};
use crate::listen::Peer;
use crate::memory::{Altered, TenantMemory, Tenants};
use crate::origin::OriginClient;
use crate::peers::{FORGET, HOME_HEADER, PEER_MARK, forget};
use crate::read::Read;
use crate::reply::{ErrorCode, Reply, escape};
use crate::shared::Shared;
use crate::sign::{decode, query_pairs};
use crate::upload::verify;

/// How often the file with grants is looked at.
const ACCESS_LOOK: Duration = Duration::from_secs(1);

/// Query parameters of a presigned URL's signature.
const SIGNATURE_PARAMETERS: [&str; 7] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];
const HOME: HeaderName = HeaderName::from_static(HOME_HEADER);
/// In its answers to other gateways.
const HERE: HeaderValue = HeaderValue::from_static("here");
/// Headers that make a read another one than of the object's bytes as they are for everybody.
const UNCACHED_HEADERS: [&str; 3] = [
    "x-amz-expected-bucket-owner",
    "x-amz-request-payer",
    "x-amz-server-side-encryption-customer-algorithm",
];

/// The keys of tenants; read anew when the file changes.
pub(crate) struct Keys {
    key: ServerKey,
    folder: PathBuf,
    tenants: Arc<dyn Tenants>,
    /// Whether other gateways pass requests on to this one.
    takes_peers: bool,
    table: Mutex<Seen>,
}

struct Seen {
    table: Arc<AccessTable>,
    stamp: Option<(i64, i64, u64)>,
    at: Instant,
}

impl Keys {
    /// The keys of the data folder's present files.
    ///
    /// # Errors
    /// A file in it cannot be read.
    pub(crate) fn open(
        folder: &Path,
        tenants: Arc<dyn Tenants>,
        takes_peers: bool,
    ) -> Result<Self, crate::access::AccessError> {
        let stamp = AccessTable::stamp(folder);
        Ok(Self {
            key: ServerKey::open(folder)?,
            folder: folder.into(),
            tenants,
            takes_peers,
            table: Mutex::new(Seen {
                table: Arc::new(AccessTable::read(folder)?),
                stamp,
                at: Instant::now(),
            }),
        })
    }

    /// The server's key.
    pub(crate) fn key(&self) -> &ServerKey {
        &self.key
    }

    fn table(&self) -> Arc<AccessTable> {
        let mut seen = self.table.lock();
        if seen.at.elapsed() >= ACCESS_LOOK {
            seen.at = Instant::now();
            let stamp = AccessTable::stamp(&self.folder);
            if stamp != seen.stamp {
                match AccessTable::read(&self.folder) {
                    Ok(table) => {
                        seen.table = Arc::new(table);
                        seen.stamp = stamp;
                    }
                    // The old one stays in force.
                    Err(error) => tracing::error!("access keys: {error}"),
                }
            }
        }
        Arc::clone(&seen.table)
    }

    /// The tenant of an access key, and its grants.
    fn tenant(&self, access_key: &str) -> Option<(Arc<dyn TenantMemory>, Entry)> {
        let (name, generation) = parse_access_key(access_key)?;
        let tenant = self.tenants.tenant(name)?;
        let entry = self.table().of(name, tenant.id(), generation)?.clone();
        let memory: Arc<dyn TenantMemory> = match entry.place {
            Placing::Auto => tenant,
            place => Arc::new(Altered::new(tenant).with_place(place)),
        };
        Some((memory, entry))
    }

    /// The tenant that another gateway names. That one has judged the key and its grants, and counts the bytes.
    fn passed_on(&self, access_key: &str) -> Option<(Arc<dyn TenantMemory>, Entry)> {
        let (name, _) = parse_access_key(access_key)?;
        let tenant = self.tenants.tenant(name)?;
        let place = self.table().get(name).map_or(Placing::Auto, |entry| entry.place);
        let entry = Entry::first(tenant.id());
        Some((Arc::new(Altered::new(tenant).with_place(place).uncounted()), entry))
    }
}

/// Keys as the signature check asks for them.
pub(crate) struct Auth(pub Arc<Keys>);

#[async_trait::async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if self.0.takes_peers && access_key.starts_with(PEER_MARK) {
            return Ok(SecretKey::from(self.0.key.peer_secret(access_key)));
        }
        let known = parse_access_key(access_key).and_then(|(name, generation)| {
            let (tenant, _) = self.0.tenant(access_key)?;
            Some(self.0.key.secret(tenant.id(), name, generation))
        });
        // A key that does not exist has a secret that nobody knows: whether a tenant exists is nobody else's business.
        let secret = known.unwrap_or_else(|| self.0.key.secret(tidemark_types::TenantId(u32::MAX), access_key, 0));
        Ok(SecretKey::from(secret))
    }
}

/// Answers every request whose signature is right.
pub(crate) struct Route {
    /// The keys of tenants.
    pub(crate) keys: Arc<Keys>,
    /// The state that all requests share.
    pub(crate) shared: Arc<Shared>,
}

#[async_trait::async_trait]
impl S3Route for Route {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        self.shared.stats.requests.fetch_add(1, Ordering::Relaxed);
        let (visit, place) = match self.enter(request).await {
            Ok(entered) => entered,
            Err(reply) => return Ok(reply.into_response()),
        };
        let (tenant, command) = (Arc::clone(&visit.tenant), visit.command(&place));
        let answered = self.dispatch(visit, place).await.unwrap_or_else(Reply::into_response);
        tenant.executed(command, outcome_of(command, answered.status.unwrap_or_default()));
        Ok(answered)
    }
}

/// A request that is allowed to come in.
pub(crate) struct Visit {
    /// The request as it came.
    pub(crate) request: S3Request<Body>,
    /// The memory of whose access key it has.
    pub(crate) tenant: Arc<dyn TenantMemory>,
    entry: Entry,
    query: Vec<(String, String)>,
    pub(crate) caller: Caller,
    pub(crate) access_key: String,
    /// The parity of stripes that comes with its body.
    pub(crate) parity: Option<Arc<ParitySlot>>,
    /// Whether another gateway has passed it on. It is answered here, or its answer would never come.
    pub(crate) is_from_peer: bool,
}

fn denied(message: &str) -> Reply {
    Reply::error(ErrorCode::AccessDenied, message)
}

impl Visit {
    /// The value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let pair = self.query.iter().find(|(one, _)| one == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Whether there is no query.
    pub(crate) fn is_plain(&self) -> bool {
        self.query.is_empty()
    }

    /// Whether this is the only query parameter.
    pub(crate) fn is_only(&self, name: &str) -> bool {
        self.query.len() == 1 && self.parameter(name).is_some()
    }

    /// The command that it is counted as.
    fn command(&self, place: &str) -> &'static str {
        let is_copy = self.request.headers.contains_key("x-amz-copy-source");
        command_of(&self.request.method, place, &self.query, is_copy)
    }

    fn may(&self, bucket: &str, key: &str, deed: Deed) -> Result<(), Reply> {
        if self.entry.allows(bucket, key, deed) {
            return Ok(());
        }
        Err(denied("this access key does not allow it"))
    }

    /// Whether nothing is changed by it.
    pub(crate) fn is_read(&self) -> bool {
        [Method::GET, Method::HEAD].contains(&self.request.method)
    }

    /// Whether it reads what may be cached: an object's bytes as they are for everybody.
    pub(crate) fn is_cached_read(&self) -> bool {
        let headers = &self.request.headers;
        self.is_read()
            && self.query.is_empty()
            && !UNCACHED_HEADERS.iter().any(|name| headers.contains_key(*name))
            && !(self.request.method == Method::HEAD && headers.contains_key("x-amz-checksum-mode"))
            && self.entry.place != Placing::Origin
    }
}

impl Route {
    /// The caller, and the place (`BUCKET/KEY`) that is asked for.
    async fn enter(&self, request: S3Request<Body>) -> Result<(Visit, String), Reply> {
        let unsigned = || denied("a signature is needed");
        let by = request.credentials.as_ref().map(|by| by.access_key.clone());
        let by = by.ok_or_else(unsigned)?;
        let passed_on = by.strip_prefix(PEER_MARK).filter(|_| self.keys.takes_peers);
        let access_key = passed_on.unwrap_or(&by).to_owned();
        let known = match passed_on {
            Some("") => return Err(self.hear(request).await),
            Some(access_key) => self.keys.passed_on(access_key),
            None => self.keys.tenant(&by),
        };
        let (tenant, entry) = known.ok_or_else(unsigned)?;
        let name = parse_access_key(&access_key).map(|(name, _)| name.to_owned());
        let unreadable = || Reply::error(ErrorCode::InvalidArgument, "the address is not UTF-8");
        let path = decode(request.uri.path()).ok_or_else(unreadable)?;
        let mut query = query_pairs(request.uri.query()).ok_or_else(unreadable)?;
        after_signature(&request.headers, &query)?;
        query.retain(|(name, _)| name != "x-id" && !SIGNATURE_PARAMETERS.contains(&name.to_ascii_lowercase().as_str()));
        let caller = Caller {
            tenant: name.unwrap_or_default(),
            address: request.extensions.get::<Peer>().map(|peer| peer.0),
        };
        let visit = Visit {
            request,
            tenant,
            entry,
            query,
            caller,
            access_key,
            parity: None,
            is_from_peer: passed_on.is_some(),
        };
        if self.shared.read_only && !visit.is_read() {
            return Err(denied("this address is for reading only"));
        }
        Ok((visit, path.trim_start_matches('/').to_owned()))
    }

    /// Another gateway's message.
    async fn hear(&self, request: S3Request<Body>) -> Reply {
        let query = query_pairs(request.uri.query()).unwrap_or_default();
        let unreadable = || Reply::error(ErrorCode::InvalidArgument, "this is no message of a gateway");
        let Some((_, tenant)) = query.iter().find(|(name, _)| name == FORGET) else {
            return unreadable();
        };
        let heard = match document(request.input).await {
            Ok(message) => forget(&self.shared.versions, &message),
            Err(reply) => return reply,
        };
        let is_known = tenant.is_empty() || self.keys.tenants.tenant(tenant).is_some();
        let status = match heard {
            Some(()) if is_known => StatusCode::NO_CONTENT,
            Some(()) => StatusCode::NOT_FOUND,
            None => return unreadable(),
        };
        Reply::bare(status, [(HOME, HERE)].into_iter().collect())
    }

    async fn dispatch(&self, visit: Visit, place: String) -> Result<S3Response<Body>, Reply> {
        let (bucket, key) = place.split_once('/').unwrap_or((&place, ""));
        if bucket.is_empty() {
            return self.root(&visit);
        }
        let no_bucket = || Reply::error(ErrorCode::NoSuchBucket, "there is no such bucket behind this address");
        let origin = self.shared.origins.get(bucket).cloned();
        let origin = origin.filter(|_| visit.entry.opens(bucket)).ok_or_else(no_bucket)?;
        let unclear = || Reply::error(ErrorCode::InvalidArgument, "a key has no segment . or .. here");
        if !is_plain_key(&place) || !is_plain_key(visit.parameter("prefix").unwrap_or_default()) {
            return Err(unclear());
        }
        if key.is_empty() {
            return self.bucket(visit, origin).await;
        }
        if let Some((name, _)) = visit.query.iter().find(|(name, _)| !is_object_parameter(name)) {
            let message = format!("the query parameter {name} is not known here");
            return Err(Reply::error(ErrorCode::NotImplemented, &message));
        }
        visit.may(bucket, key, if visit.is_read() { Deed::Read } else { Deed::Write })?;
        let visit = self.unframed(visit)?;
        if let Some(home) = self.home_of(&visit, &place) {
            return self.relay(visit, origin, place, home).await;
        }
        let is_from_peer = visit.is_from_peer;
        let mut answered = self
            .object(visit, origin, place)
            .await
            .unwrap_or_else(Reply::into_response);
        if is_from_peer {
            answered.headers.insert(HOME, HERE);
        }
        Ok(answered)
    }

    async fn object(&self, visit: Visit, origin: Origin, place: String) -> Result<S3Response<Body>, Reply> {
        if visit.is_read() {
            return Ok(self.read(visit, origin, place).await);
        }
        if self.shared.coherent.is_some() {
            return self.write_coherently(visit, origin, place).await;
        }
        self.write(visit, origin, place).await
    }

    /// The buckets that the tenant may use.
    fn root(&self, visit: &Visit) -> Result<S3Response<Body>, Reply> {
        if visit.request.method == Method::GET && visit.is_only(CODE_QUESTION) {
            return self.say_code(visit);
        }
        if visit.request.method != Method::GET || !visit.query.iter().all(|(name, _)| name == "max-buckets") {
            return Err(Reply::error(
                ErrorCode::NotImplemented,
                "only listing buckets is possible here",
            ));
        }
        let buckets = self.shared.origins.buckets().into_iter();
        let bucket = |name: &str| {
            let name = escape(name);
            format!("<Bucket><Name>{name}</Name><CreationDate>1970-01-01T00:00:00.000Z</CreationDate></Bucket>")
        };
        let buckets: String = buckets.filter(|name| visit.entry.opens(name)).map(bucket).collect();
        let document = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Owner><ID>tidemark</ID></Owner><Buckets>{buckets}</Buckets></ListAllMyBucketsResult>"
        );
        Ok(Reply::xml(StatusCode::OK, document).into_response())
    }

    /// Lists, and deletes several objects; a bucket's own settings are the origin's.
    async fn bucket(&self, visit: Visit, origin: Origin) -> Result<S3Response<Body>, Reply> {
        let bucket = origin.bucket.clone();
        if visit.request.method == Method::POST && visit.is_only("delete") {
            return self.delete_several(visit, origin).await;
        }
        let is_head = visit.request.method == Method::HEAD && visit.query.is_empty();
        if is_head || visit.is_only("location") && visit.request.method == Method::GET {
            return Ok(self.forward(visit, origin).0.read().await);
        }
        let is_list = visit.request.method == Method::GET
            && visit
                .query
                .iter()
                .all(|(name, _)| LIST_PARAMETERS.contains(&name.as_str()));
        if !is_list {
            return Err(denied("a bucket's own settings are changed and looked at where it is"));
        }
        visit.may(&bucket, visit.parameter("prefix").unwrap_or_default(), Deed::Read)?;
        Ok(self.forward(visit, origin).0.read().await)
    }

    async fn delete_several(&self, mut visit: Visit, origin: Origin) -> Result<S3Response<Body>, Reply> {
        let body = std::mem::take(&mut visit.request.input);
        let body = document(body).await?;
        verify(
            body.clone(),
            &visit.request.headers,
            visit.request.trailing_headers.take(),
        )
        .await?;
        let unreadable = || Reply::error(ErrorCode::InvalidArgument, "the list of keys can not be read");
        let deletion = Deletion::read(&body).ok_or_else(unreadable)?;
        for key in deletion.keys() {
            visit.may(&origin.bucket, key, Deed::Write)?;
            if !is_plain_key(key) {
                return Err(unreadable());
            }
        }
        let places: Vec<String> = deletion.keys().map(|key| format!("{}/{key}", origin.bucket)).collect();
        if self.shared.coherent.is_some() {
            return self.delete_coherently(&visit, &origin, &deletion).await;
        }
        // The judged body is sent, not the received one; its checksum is another.
        let body = bytes::Bytes::from(deletion.write());
        let mut md5 = Md5::new();
        md5.update(&body);
        let md5 = HeaderValue::try_from(STANDARD.encode(md5.finalize())).map_err(|_| unreadable())?;
        let headers = std::mem::take(&mut visit.request.headers);
        let is_of_body = |name: &str| {
            name.starts_with("content-")
                || name.starts_with("x-amz-checksum-")
                || name == "x-amz-sdk-checksum-algorithm"
        };
        let kept = headers.iter().filter(|(name, _)| !is_of_body(name.as_str()));
        visit.request.headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        visit.request.headers.insert("content-md5", md5);
        let homes = self.homes_of(&places);
        let answered = self.forward(visit, origin).0.document(body, places).await;
        self.have_forgotten(homes, answered).await
    }

    async fn read(&self, visit: Visit, origin: Origin, place: String) -> S3Response<Body> {
        let is_head = visit.request.method == Method::HEAD;
        if !visit.is_cached_read() {
            return self.forward(visit, origin).0.read().await;
        }
        if let Some(door) = self.door(&visit, &origin, &place) {
            return door.read(visit.request.headers, is_head).await;
        }
        let read = Read {
            job: Job {
                client: self.shared.client.clone(),
                origin,
                place: place.into(),
                memory: visit.tenant,
            },
            shared: Arc::clone(&self.shared),
            headers: Arc::new(visit.request.headers),
            is_head,
        };
        read.answer().await
    }

    /// The object `bucket/key` that a request copies, if it may.
    pub(crate) fn copy_source(&self, visit: &Visit, origin: &Origin) -> Result<Option<String>, Reply> {
        let Some(source) = visit.request.headers.get("x-amz-copy-source") else {
            return Ok(None);
        };
        let source = source
            .to_str()
            .ok()
            .and_then(|source| decode(source.split('?').next()?));
        let source = source.unwrap_or_default();
        let source = source.strip_prefix('/').unwrap_or(&source);
        let (bucket, key) = source.split_once('/').unwrap_or_default();
        if !is_plain_key(key) {
            return Err(Reply::error(
                ErrorCode::InvalidArgument,
                "a key has no segment . or .. here",
            ));
        }
        visit.may(bucket, key, Deed::Read)?;
        let there = self.shared.origins.get(bucket).map(|there| &there.authority);
        if there != Some(&origin.authority) {
            let message = "an object can be copied within one origin only";
            return Err(Reply::error(ErrorCode::NotImplemented, message));
        }
        Ok(Some(source.to_owned()))
    }

    /// Passes a write on.
    pub(crate) async fn write(&self, visit: Visit, origin: Origin, place: String) -> Result<S3Response<Body>, Reply> {
        self.copy_source(&visit, &origin)?;
        self.pass_on(visit, origin, self.shared.client.clone(), place).await
    }

    /// The same where all of it is judged, and somebody else may have to sign.
    pub(crate) async fn pass_on(
        &self,
        visit: Visit,
        origin: Origin,
        client: OriginClient,
        place: String,
    ) -> Result<S3Response<Body>, Reply> {
        let is_document = visit.request.method == Method::POST;
        let (forward, body, trailers) = self.forward(visit, origin);
        let forward = Forward { client, ..forward };
        if is_document || forward.method == Method::DELETE {
            let body = document(body).await?;
            return Ok(forward.document(body, vec![place]).await);
        }
        if forward.method != Method::PUT {
            return Err(Reply::error(ErrorCode::NotImplemented, "this method is not known"));
        }
        Ok(forward.stream(place, body, trailers).await)
    }

    /// The request for an origin, its body, and the headers behind that.
    pub(crate) fn forward(&self, visit: Visit, origin: Origin) -> (Forward, Body, Option<s3s::TrailingHeaders>) {
        let request = visit.request;
        let forward = Forward {
            shared: Arc::clone(&self.shared),
            client: self.shared.client.clone(),
            origin,
            memory: visit.tenant,
            method: request.method,
            path: format!(
                "/{}",
                decode(request.uri.path()).unwrap_or_default().trim_start_matches('/')
            ),
            query: visit.query,
            headers: request.headers,
            parity: visit.parity,
        };
        (forward, request.input, request.trailing_headers)
    }
}

/// The parameters of ListObjects, ListObjectsV2, ListObjectVersions and ListMultipartUploads.
const LIST_PARAMETERS: [&str; 16] = [
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-uploads",
    "prefix",
    "start-after",
    "upload-id-marker",
    "uploads",
    "version-id-marker",
    "versions",
    "allow-unordered",
];

/// A body that is looked into, whole.
pub(crate) async fn document(body: Body) -> Result<bytes::Bytes, Reply> {
    let patience = crate::origin::READ_PATIENCE;
    match tokio::time::timeout(patience, Limited::new(body, DOCUMENT_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Reply::error(ErrorCode::EntityTooLarge, "the document is too long"))
        }
        Ok(Err(_)) => Err(Reply::error(
            ErrorCode::IncompleteBody,
            "the document is not what was signed",
        )),
        Err(_) => Err(Reply::error(ErrorCode::RequestTimeout, "the document does not come")),
    }
}
