//! Tokens beside the admin token, each with a role: for programs that need less than everything, such as a scraper.
//!
//! Invariants: a token's text is in the answer that makes it and nowhere else; the file has its hash. A token that is removed
//! opens nothing from that moment on. Only the socket's owner and the admin token make and remove tokens.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use axum::http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tidemark_control::SecretText;
use tidemark_types::{Clock as _, SystemClock, utc};

use crate::AdminError;
use crate::answer::ApiError;
use crate::token::{bearer, write_private};

/// The file of the tokens' hashes in the data folder.
pub const TOKENS_FILE_NAME: &str = "tokens.json";
/// One for each program that calls the API: every call looks at all of them.
const MAX_TOKENS: usize = 64;
/// The longest name, in characters.
const MAX_NAME_BYTES: usize = 64;
/// The paths at which tokens are made and removed, which no role opens.
pub(crate) const PATH: &str = "/api/v1/tokens";
/// The paths of a node's agent, which shows the secret keys of applications, too.
const AGENT: &str = "/api/v1/agent";

/// The calls that a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// `/metrics`.
    Scraper,
    /// Everything that changes nothing and shows no secret.
    Viewer,
    /// Everything.
    Operator,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Scraper, Self::Viewer, Self::Operator];

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scraper => "scraper",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }

    /// Whether it opens this call. Tokens themselves are the admin token's only: a role that could make one would have all.
    pub(crate) fn opens(self, method: &Method, path: &str, metrics: &str) -> bool {
        let is_reading = *method == Method::GET || *method == Method::HEAD;
        match self {
            Self::Scraper => is_reading && path == metrics,
            _ if path.starts_with(PATH) => false,
            Self::Viewer if !is_without_secrets(path) => false,
            // A preview is asked for with a body, and changes nothing.
            Self::Viewer => is_reading || (*method == Method::POST && path.ends_with("/preview")),
            Self::Operator => true,
        }
    }
}

/// Whether nothing that this path answers is a secret. Of the agent's paths only those that are known to have none.
fn is_without_secrets(path: &str) -> bool {
    let Some(below) = path.strip_prefix(AGENT) else {
        return true;
    };
    let is_app = |name: &str| !name.is_empty() && !name.contains('/');
    matches!(below, "" | "/" | "/apps" | "/instances") || below.strip_prefix("/apps/").is_some_and(is_app)
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a role is scraper, viewer or operator")]
pub struct RoleError;

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(RoleError)
    }
}

/// A token as the file and the API know it: never its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// SHA-256 of its text, in hexadecimal digits.
    #[serde(skip_serializing_if = "String::is_empty")]
    hash: String,
    created_at: String,
}

/// The tokens with roles.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    kept: RwLock<Vec<TokenRecord>>,
}

impl Tokens {
    /// Those of a data folder; none where there is no file.
    pub(crate) fn load(folder: &Path) -> Result<Self, AdminError> {
        let path = folder.join(TOKENS_FILE_NAME);
        let kept = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let kept = kept.map_err(|source| AdminError::Token {
            doing: "read",
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            path,
            kept: RwLock::new(kept),
        })
    }

    /// The role of the token in an `Authorization` header.
    pub(crate) fn role(&self, authorization: &[u8]) -> Option<Role> {
        let text = str::from_utf8(bearer(authorization)?).ok()?;
        let hash = hash_of(&SecretText::given(text).ok()?);
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |record: &&TokenRecord| bool::from(record.hash.as_bytes().ct_eq(hash.as_bytes()));
        kept.iter().find(is_it).map(|record| record.role)
    }

    /// All, without their hashes.
    pub(crate) fn list(&self) -> Vec<TokenRecord> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let shown = kept.iter().map(|record| TokenRecord {
            hash: String::new(),
            ..record.clone()
        });
        shown.collect()
    }

    /// Makes one.
    pub(crate) fn create(&self, name: &str, role: Role) -> Result<SecretText, ApiError> {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_right) {
            let message = format!("a token's name has 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid", message).field("name"));
        }
        let secret = SecretText::generate()?;
        self.change(|kept| {
            if kept.iter().any(|record| record.name == name) {
                let message = format!("there is a token `{name}` already: remove it, or choose another name");
                return Err(ApiError::new(StatusCode::CONFLICT, "name_taken", message).field("name"));
            }
            if kept.len() >= MAX_TOKENS {
                let message = format!("there are {MAX_TOKENS} tokens, which is the most: remove one");
                return Err(ApiError::new(StatusCode::CONFLICT, "over_limit", message));
            }
            kept.push(TokenRecord {
                name: name.to_owned(),
                role,
                hash: hash_of(&secret),
                created_at: utc::rfc3339(SystemClock.now()),
            });
            Ok(())
        })?;
        tracing::info!(name, %role, "token made");
        Ok(secret)
    }

    /// Ends one.
    pub(crate) fn remove(&self, name: &str) -> Result<(), ApiError> {
        self.change(|kept| match kept.iter().position(|record| record.name == name) {
            Some(place) => {
                kept.remove(place);
                Ok(())
            }
            None => {
                let name: String = name.chars().take(MAX_NAME_BYTES).collect();
                let message = format!("there is no token `{name}`");
                Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
            }
        })?;
        tracing::info!(name, "token removed");
        Ok(())
    }

    /// Changes the file, and what is known only when the file has it.
    fn change(&self, change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<(), ApiError>) -> Result<(), ApiError> {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = kept.clone();
        change(&mut changed)?;
        let write = || write_private(&self.path, &serde_json::to_string_pretty(&changed)?);
        write().map_err(|error| {
            let message = format!("can not write {}: {error}", self.path.display());
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "state_failed", message)
        })?;
        *kept = changed;
        Ok(())
    }
}

fn hash_of(secret: &SecretText) -> String {
    secret.hash().0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_role_opens_no_more_than_it_says() {
        for (method, path, opens) in [
            (Method::GET, "/metrics", [true, true, true]),
            (Method::HEAD, "/metrics", [true, true, true]),
            (Method::POST, "/metrics", [false, false, true]),
            (Method::GET, "/api/v1/tenants", [false, true, true]),
            (Method::PATCH, "/api/v1/tenants/shop", [false, false, true]),
            (Method::POST, "/api/v1/tenants/shop/preview", [false, true, true]),
            (Method::DELETE, "/api/v1/tenants/preview", [false, false, true]),
            (Method::DELETE, "/api/v1/tenants/shop", [false, false, true]),
            (Method::GET, "/api/v1/agent", [false, true, true]),
            (Method::GET, "/api/v1/agent/", [false, true, true]),
            (Method::GET, "/api/v1/agent/apps", [false, true, true]),
            (Method::GET, "/api/v1/agent/apps/key", [false, true, true]),
            (Method::GET, "/api/v1/agent/instances", [false, true, true]),
            (Method::POST, "/api/v1/agent/instances", [false, false, true]),
            (Method::GET, "/api/v1/agent/apps/shop/key", [false, false, true]),
            (Method::HEAD, "/api/v1/agent/apps/shop/key", [false, false, true]),
            (Method::GET, "/api/v1/agent/apps/preview/key/", [false, false, true]),
            (Method::GET, "/api/v1/agent/apps//key", [false, false, true]),
            (
                Method::POST,
                "/api/v1/agent/apps/shop/key/preview",
                [false, false, true],
            ),
            (Method::GET, "/api/v1/tokens", [false, false, false]),
            (Method::POST, "/api/v1/tokens", [false, false, false]),
            (Method::DELETE, "/api/v1/tokens/a", [false, false, false]),
        ] {
            let found = Role::ALL.map(|role| role.opens(&method, path, "/metrics"));
            assert_eq!(found, opens, "{method} {path}");
        }
        assert_eq!("root".parse::<Role>(), Err(RoleError));
    }

    #[test]
    fn tokens_are_kept_as_hashes_and_end_when_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load(folder.path()).unwrap();
        let secret = tokens.create("prometheus", Role::Scraper).unwrap();
        let header = format!("Bearer {}", secret.expose());
        assert_eq!(tokens.role(header.as_bytes()), Some(Role::Scraper));
        for wrong in [
            "Bearer ",
            "Bearer x",
            &header[..header.len() - 1],
            &format!("{header}x"),
            "",
        ] {
            assert_eq!(tokens.role(wrong.as_bytes()), None, "{wrong}");
        }
        let path = folder.path().join(TOKENS_FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains(secret.expose()));
        assert!(tokens.list().iter().all(|record| record.hash.is_empty()));
        // Another start knows it, too.
        let again = Tokens::load(folder.path()).unwrap();
        assert_eq!(again.role(header.as_bytes()), Some(Role::Scraper));
        assert!(again.create("prometheus", Role::Viewer).is_err());
        again.remove("prometheus").unwrap();
        assert_eq!(again.role(header.as_bytes()), None);
        assert!(again.remove("prometheus").is_err());
        assert!(again.list().is_empty());
        fs::write(&path, "not JSON").unwrap();
        let error = Tokens::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains(TOKENS_FILE_NAME), "{error}");
    }

    #[test]
    fn names_and_numbers_of_tokens_have_limits() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load(folder.path()).unwrap();
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "a b", "a/b", "\u{e9}", &long] {
            assert!(tokens.create(name, Role::Viewer).is_err(), "{name}");
        }
        for number in 0..MAX_TOKENS {
            tokens.create(&number.to_string(), Role::Viewer).unwrap();
        }
        assert!(tokens.create("more", Role::Viewer).is_err());
        tokens.remove("0").unwrap();
        tokens.create("more", Role::Viewer).unwrap();
    }
}
