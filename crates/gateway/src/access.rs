//! The access to requests: access keys, their secrets, and the buckets that they open.
//!
//! An access key is `NAME.GENERATION`; its secret is derived from the server's key, the tenant's number, its name and the
//! generation, and is stored nowhere. Which generations are in force, and which buckets they open, is in
//! `DIR/s3.access.json`. A later tenant of the same name has another number, so that it has none of the old secrets.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tidemark_types::TenantId;

/// The file of the key from which secret keys are derived, in the data folder.
pub const KEY_FILE: &str = "s3.key";
/// The file of the access keys' grants, in the data folder.
pub const ACCESS_FILE: &str = "s3.access.json";
const KEY_BYTES: usize = 32;
/// The limit of grants: as many as S3 allows buckets in an account by default.
const GRANTS_MAX: usize = 100;

/// Why keys or grants cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not what this program writes.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// The fault in it.
        problem: String,
    },
    /// A grant cannot be read.
    #[error("{0}: write BUCKET, BUCKET/PREFIX, or one of these with :read behind it")]
    Grant(String),
    /// A tenant has too many.
    #[error("at most {GRANTS_MAX} buckets or prefixes can be allowed to a tenant")]
    TooManyGrants,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Reads an object, or lists.
    Read,
    /// Changes something.
    Write,
}

/// A bucket, or the keys in it that begin so, that a tenant may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its name, or `*`: every bucket.
    pub bucket: String,
    /// The prefix of keys; empty: all of them.
    #[serde(default)]
    pub prefix: String,
    /// Whether only reading is allowed.
    #[serde(default)]
    pub read_only: bool,
}

impl std::str::FromStr for Grant {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let (place, read_only) = text.strip_suffix(":read").map_or((text, false), |place| (place, true));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b))
        };
        if bucket != "*" && !is_name(bucket) {
            return Err(AccessError::Grant(text.into()));
        }
        Ok(Self {
            bucket: bucket.into(),
            prefix: prefix.into(),
            read_only,
        })
    }
}

impl std::fmt::Display for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let read = if self.read_only { ":read" } else { "" };
        write!(f, "{}{slash}{}{read}", self.bucket, self.prefix)
    }
}

/// The place of a tenant's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placing {
    /// The cheapest place, by size and popularity.
    #[default]
    Auto,
    /// In its memory.
    Memory,
    /// In the place for large objects, whatever their size; in memory where there is no such place.
    Functions,
    /// At the origin only.
    Origin,
}

impl std::str::FromStr for Placing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "memory" => Ok(Self::Memory),
            "functions" => Ok(Self::Functions),
            "origin" => Ok(Self::Origin),
            _ => Err("write auto, memory, functions or origin".into()),
        }
    }
}

impl std::fmt::Display for Placing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
            Self::Functions => "functions",
            Self::Origin => "origin",
        })
    }
}

/// The grants of a tenant, and the generations of its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The tenant's number.
    pub tenant: u32,
    /// The newest generation.
    pub generation: u32,
    /// The oldest one that is still taken.
    pub oldest: u32,
    /// The buckets and prefixes that it may use.
    pub grants: Vec<Grant>,
    /// The place of its objects.
    #[serde(default)]
    pub place: Placing,
}

impl Entry {
    /// A first key, for every bucket of the origin.
    pub fn first(tenant: TenantId) -> Self {
        Self {
            tenant: tenant.0,
            generation: 1,
            oldest: 1,
            grants: vec![Grant {
                bucket: "*".into(),
                prefix: String::new(),
                read_only: false,
            }],
            place: Placing::Auto,
        }
    }

    /// One more generation; the one before it is still taken.
    pub fn rotate(&mut self) {
        self.oldest = self.generation;
        self.generation += 1;
    }

    /// Only the newest generation is valid from now on.
    pub fn finish(&mut self) {
        self.oldest = self.generation;
    }

    /// Replaces the grants.
    ///
    /// # Errors
    /// They are too many.
    pub fn allow(&mut self, grants: Vec<Grant>) -> Result<(), AccessError> {
        if grants.len() > GRANTS_MAX {
            return Err(AccessError::TooManyGrants);
        }
        self.grants = grants;
        Ok(())
    }

    fn takes(&self, tenant: TenantId, generation: u32) -> bool {
        self.tenant == tenant.0 && (self.oldest..=self.generation).contains(&generation)
    }

    /// Whether a key, or the listing of keys that begin so, may be used so.
    pub fn allows(&self, bucket: &str, key_or_prefix: &str, deed: Deed) -> bool {
        self.grants.iter().any(|grant| {
            (grant.bucket == "*" || grant.bucket == bucket)
                && key_or_prefix.starts_with(&grant.prefix)
                && (deed == Deed::Read || !grant.read_only)
        })
    }

    /// Whether anything in a bucket may be used.
    pub fn opens(&self, bucket: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.bucket == "*" || grant.bucket == bucket)
    }
}

/// The server's key.
#[derive(Clone)]
pub struct ServerKey([u8; KEY_BYTES]);

impl std::fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerKey")
    }
}

impl ServerKey {
    /// The key in a data folder; made there if there is none.
    ///
    /// # Errors
    /// The file cannot be had, is not a key, or others than its owner may read it.
    pub fn open(folder: &Path) -> Result<Self, AccessError> {
        let path = folder.join(KEY_FILE);
        let fails = |source| AccessError::File {
            path: path.clone(),
            source,
        };
        match fs::read(&path) {
            Ok(bytes) => {
                let mode = fs::metadata(&path).map_err(fails)?.mode();
                let problem = |problem: &str| AccessError::Content {
                    path: path.clone(),
                    problem: problem.into(),
                };
                if mode & 0o077 != 0 {
                    return Err(problem("others than its owner may read it: chmod 600 it"));
                }
                let key = bytes.try_into();
                key.map(Self).map_err(|_| problem("it is not a key of 32 bytes"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; KEY_BYTES];
                getrandom::fill(&mut key).map_err(|error| fails(io::Error::other(error.to_string())))?;
                match write_new(&path, &key) {
                    // Somebody else was faster: there is one key only.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::open(folder),
                    written => written.map(|()| Self(key)).map_err(fails),
                }
            }
            Err(error) => Err(fails(error)),
        }
    }

    /// The key that all nodes share, put into a data folder.
    ///
    /// # Errors
    /// The folder has another one, or it cannot be written.
    pub fn adopt(folder: &Path, shared: &[u8]) -> Result<Self, AccessError> {
        let path = folder.join(KEY_FILE);
        let problem = |problem: &str| AccessError::Content {
            path: path.clone(),
            problem: problem.into(),
        };
        if let Err(source) = write_new(&path, shared)
            && source.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(AccessError::File { path, source });
        }
        let key = Self::open(folder)?;
        if key.0 != shared {
            return Err(problem("it is another key than the other nodes have: remove it"));
        }
        Ok(key)
    }

    /// The secret of a tenant's generation.
    pub fn secret(&self, tenant: TenantId, name: &str, generation: u32) -> String {
        let (tenant, generation) = (tenant.0.to_le_bytes(), generation.to_le_bytes());
        self.derive(&[b"tidemark s3 secret 1\0", &tenant, &generation, name.as_bytes()])
    }

    /// The secret by which gateways sign what they pass on to each other for an access key.
    pub(crate) fn peer_secret(&self, access_key: &str) -> String {
        self.derive(&[b"tidemark s3 gateway 1\0", access_key.as_bytes()])
    }

    fn derive(&self, parts: &[&[u8]]) -> String {
        let Ok(mut mac) = <Hmac<Sha256> as Mac>::new_from_slice(&self.0) else {
            return String::new();
        };
        parts.iter().for_each(|part| mac.update(part));
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }
}

/// Writes a file that must not be there yet, whole, readable by its owner only.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    linked
}

/// `NAME.GENERATION` of a tenant.
pub fn access_key(name: &str, generation: u32) -> String {
    format!("{name}.{generation}")
}

/// Name and generation of an access key.
pub fn parse_access_key(access_key: &str) -> Option<(&str, u32)> {
    let (name, generation) = access_key.rsplit_once('.')?;
    let is_number = generation.bytes().all(|b| b.is_ascii_digit()) && !generation.starts_with('0');
    Some((name, generation.parse().ok().filter(|_| is_number)?))
}

/// The grants of all tenants, as in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessTable(BTreeMap<String, Entry>);

impl AccessTable {
    /// Reads it; without a file, nobody may use anything.
    ///
    /// # Errors
    /// The file cannot be read, or is something else.
    pub fn read(folder: &Path) -> Result<Self, AccessError> {
        let path = folder.join(ACCESS_FILE);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| AccessError::Content {
                path,
                problem: error.to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(AccessError::File { path, source }),
        }
    }

    /// Writes it; readers see the old one or the new one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), AccessError> {
        let path = folder.join(ACCESS_FILE);
        let temporary = folder.join(format!("{ACCESS_FILE}.new"));
        let written = serde_json::to_vec_pretty(self)
            .map_err(io::Error::other)
            .and_then(|bytes| fs::write(&temporary, bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| AccessError::File { path, source })
    }

    /// When the file was last written, to see whether it must be read again.
    pub fn stamp(folder: &Path) -> Option<(i64, i64, u64)> {
        let data = fs::metadata(folder.join(ACCESS_FILE)).ok()?;
        Some((data.mtime(), data.mtime_nsec(), data.ino()))
    }

    /// A tenant's entry, whatever its number.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }

    /// Replaces a tenant's entry.
    pub fn set(&mut self, name: &str, entry: Entry) {
        self.0.insert(name.to_owned(), entry);
    }

    /// A tenant's entry, if this generation of its key is in force.
    pub fn of(&self, name: &str, tenant: TenantId, generation: u32) -> Option<&Entry> {
        self.get(name).filter(|entry| entry.takes(tenant, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let key = ServerKey::open(folder.path()).unwrap();
        let path = folder.path().join(KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = ServerKey::open(folder.path()).unwrap();
        assert_eq!(key.secret(TenantId(1), "shop", 1), again.secret(TenantId(1), "shop", 1));
        fs::write(&path, "short").unwrap();
        assert!(matches!(
            ServerKey::open(folder.path()),
            Err(AccessError::Content { .. })
        ));
        fs::remove_file(&path).unwrap();
        ServerKey::open(folder.path()).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(
            ServerKey::open(folder.path()),
            Err(AccessError::Content { .. })
        ));
    }

    #[test]
    fn every_secret_is_another() {
        let key = ServerKey([7; KEY_BYTES]);
        let secrets = [
            key.secret(TenantId(1), "a", 1),
            key.secret(TenantId(2), "a", 1),
            key.secret(TenantId(1), "a", 2),
            key.secret(TenantId(1), "b", 1),
            ServerKey([8; KEY_BYTES]).secret(TenantId(1), "a", 1),
        ];
        for (i, one) in secrets.iter().enumerate() {
            assert_eq!(one.len(), 43);
            assert!(secrets[i + 1..].iter().all(|other| other != one), "{i}");
        }
    }

    #[test]
    fn access_keys_are_read() {
        for (text, read) in [
            ("shop.1", Some(("shop", 1))),
            ("my.shop.12", Some(("my.shop", 12))),
            ("shop", None),
            ("shop.", None),
            ("shop.0", None),
            ("shop.01", None),
            ("shop.+1", None),
            ("shop.99999999999", None),
        ] {
            assert_eq!(parse_access_key(text), read, "{text}");
        }
    }

    #[test]
    fn grants_are_read_and_written() {
        for text in ["bucket", "bucket/some/prefix", "*", "bucket:read", "b/p:read"] {
            assert_eq!(text.parse::<Grant>().unwrap().to_string(), text);
        }
        for broken in ["", "/prefix", "Bucket", "a b", ":read"] {
            assert!(broken.parse::<Grant>().is_err(), "{broken}");
        }
    }

    #[test]
    fn grants_allow_what_they_name() {
        let mut entry = Entry::first(TenantId(3));
        let grants = ["open", "part/mine/", "look:read"];
        entry
            .allow(grants.iter().map(|text| text.parse().unwrap()).collect())
            .unwrap();
        for (bucket, key, deed, is_allowed) in [
            ("open", "any", Deed::Write, true),
            ("part", "mine/x", Deed::Write, true),
            ("part", "mine/", Deed::Read, true),
            ("part", "other", Deed::Read, false),
            ("part", "", Deed::Read, false),
            ("look", "x", Deed::Read, true),
            ("look", "x", Deed::Write, false),
            ("else", "x", Deed::Read, false),
        ] {
            assert_eq!(entry.allows(bucket, key, deed), is_allowed, "{bucket}/{key} {deed:?}");
        }
        assert!(entry.opens("part") && !entry.opens("else"));
        let too_many = vec![entry.grants[0].clone(); GRANTS_MAX + 1];
        assert!(matches!(entry.allow(too_many), Err(AccessError::TooManyGrants)));
    }

    #[test]
    fn generations_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = AccessTable::read(folder.path()).unwrap();
        assert_eq!(table, AccessTable::default());
        let mut entry = Entry::first(TenantId(3));
        let mut check = |entry: &Entry, taken: &[u32]| {
            table.set("shop", entry.clone());
            table.write(folder.path()).unwrap();
            let read = AccessTable::read(folder.path()).unwrap();
            let takes = |generation: &u32| read.of("shop", TenantId(3), *generation).is_some();
            assert_eq!((0..5).filter(takes).collect::<Vec<_>>(), taken);
            assert!(read.of("shop", TenantId(4), entry.generation).is_none());
            assert!(read.of("other", TenantId(3), entry.generation).is_none());
        };
        check(&entry, &[1]);
        entry.rotate();
        check(&entry, &[1, 2]);
        entry.rotate();
        check(&entry, &[2, 3]);
        entry.finish();
        check(&entry, &[3]);
        fs::write(folder.path().join(ACCESS_FILE), "[").unwrap();
        assert!(matches!(
            AccessTable::read(folder.path()),
            Err(AccessError::Content { .. })
        ));
    }
}
