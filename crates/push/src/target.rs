//! The target of messages: `http://HOST[:PORT]/PATH` or `https://...`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;

/// The longest URL: receivers take as much, too.
const URL_BYTES_MAX: usize = 2048;

/// A receiver's URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The target as it was written.
    text: String,
    pub(crate) is_tls: bool,
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
}

/// A text that is no URL to send to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a URL such as https://alerts.example.com/tidemark: {0}")]
pub struct TargetError(&'static str);

impl Target {
    /// With this path, if none was written.
    pub(crate) fn with_usual_path(mut self, path: &str) -> Self {
        if self.path == "/" {
            path.clone_into(&mut self.path);
        }
        self
    }

    /// The value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.clone(),
        };
        let usual = if self.is_tls { 443 } else { 80 };
        if self.port == usual {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Without path and query, which may hold a secret.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError("it is too long"));
        }
        let uri: Uri = text.parse().map_err(|_| TargetError("this is none"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(TargetError("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or(TargetError("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(TargetError("it must hold no name and no secret"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(TargetError("it has no host"));
        }
        Ok(Self {
            text: text.to_owned(),
            is_tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (text, authority, port, path) in [
            ("http://example.com", "example.com", 80, "/"),
            ("https://example.com/a?b=c", "example.com", 443, "/a?b=c"),
            ("http://127.0.0.1:8080/x", "127.0.0.1:8080", 8080, "/x"),
            ("http://[::1]:8080/x", "[::1]:8080", 8080, "/x"),
            ("https://[2001:db8::1]/", "[2001:db8::1]", 443, "/"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(
                (target.authority().as_str(), target.port, target.path.as_str()),
                (authority, port, path)
            );
            let usual = if path == "/" { "/usual" } else { path };
            assert_eq!(target.clone().with_usual_path("/usual").path, usual);
            assert_eq!(target.to_string(), text);
            assert!(!format!("{target:?}").contains("b=c"));
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        let long = format!("http://example.com/{}", "x".repeat(URL_BYTES_MAX));
        for text in [
            "",
            "example.com",
            "/path",
            "ftp://example.com",
            "http://",
            "http://user:secret@example.com/",
            &long,
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
