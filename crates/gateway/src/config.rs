//! The configuration of a gateway, and the form of an origin: `s3://BUCKET?endpoint=URL&region=R&freshness=T`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use tidemark_types::{format_duration, parse_duration};

use crate::peers::PeersConfig;
use crate::sign::{Credentials, query_pairs};

/// After this time a version is validated before it is served again, unless a bucket says otherwise.
pub const DEFAULT_FRESHNESS: Freshness = Freshness::For(Duration::from_secs(5));
/// Threads of the gateway, unless something else is said.
pub const DEFAULT_WORKERS: usize = 2;

/// The configuration that a gateway is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address for clients.
    pub address: SocketAddr,
    /// The buckets and where they are.
    pub origins: Origins,
    /// The credentials that sign requests to them.
    pub credentials: Option<Credentials>,
    /// Threads.
    pub workers: usize,
    /// Whether everything but reading is refused.
    pub read_only: bool,
    /// The data folder, with `s3.key` and `s3.access.json`.
    pub folder: PathBuf,
    /// The gateways that have the other objects, if there are several.
    pub peers: Option<PeersConfig>,
}

/// How long a version is served without asking the origin whether it is the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Versions stay valid for so long; zero: never.
    For(Duration),
    /// Nobody else writes.
    Forever,
}

impl Freshness {
    /// Whether a version that was checked so long ago is good.
    pub fn covers(self, age: Duration) -> bool {
        match self {
            Self::For(time) => age < time,
            Self::Forever => true,
        }
    }
}

impl std::str::FromStr for Freshness {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forever" => Ok(Self::Forever),
            "0" => Ok(Self::For(Duration::ZERO)),
            _ => parse_duration(text)
                .map(Self::For)
                .map_err(|_| "write a time such as 5s, 0, or forever".to_owned()),
        }
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => f.write_str("forever"),
            Self::For(Duration::ZERO) => f.write_str("0"),
            Self::For(time) => f.write_str(&format_duration(*time)),
        }
    }
}

/// A bucket, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its name, here and there.
    pub bucket: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Host, with its port if that is another than usual.
    pub authority: String,
    /// The region, for signatures.
    pub region: String,
    /// Unless the server's is in force.
    pub freshness: Option<Freshness>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket,
            scheme,
            authority,
            region,
            freshness,
        } = self;
        write!(f, "s3://{bucket}?endpoint={scheme}://{authority}&region={region}")?;
        freshness.map_or(Ok(()), |freshness| write!(f, "&freshness={freshness}"))
    }
}

impl std::str::FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("s3://")
            .ok_or("write s3://BUCKET?endpoint=URL; other kinds of origins are not available")?;
        let (bucket, query) = rest.split_once('?').unwrap_or((rest, ""));
        let bucket = bucket.trim_end_matches('/');
        if bucket.is_empty() || bucket.contains('/') {
            return Err("a bucket's name is needed, without a key: s3://BUCKET?endpoint=URL".into());
        }
        let mut origin = Self {
            bucket: bucket.into(),
            scheme: String::new(),
            authority: String::new(),
            region: "us-east-1".into(),
            freshness: None,
        };
        for (name, value) in query_pairs(Some(query)).ok_or("it is not UTF-8")? {
            match name.as_str() {
                "endpoint" => origin.set_endpoint(&value)?,
                "region" => origin.region = value,
                "freshness" => origin.freshness = Some(value.parse()?),
                _ => return Err(format!("{name} is not known: allowed are endpoint, region, freshness")),
            }
        }
        if origin.authority.is_empty() {
            origin.scheme = "https".into();
            origin.authority = format!("s3.{}.amazonaws.com", origin.region);
        }
        Ok(origin)
    }
}

impl Origin {
    fn set_endpoint(&mut self, endpoint: &str) -> Result<(), String> {
        let wrong = || "endpoint: write http://HOST[:PORT] or https://HOST[:PORT]".to_owned();
        let uri: Uri = endpoint.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let is_bare = uri.path() == "/" && uri.query().is_none() && !authority.as_str().contains('@');
        if !["http", "https"].contains(&scheme) || !is_bare {
            return Err(wrong());
        }
        self.scheme = scheme.into();
        self.authority = authority.to_string();
        Ok(())
    }
}

/// Buckets by their names, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    all: Vec<Origin>,
    freshness: Freshness,
}

impl Origins {
    /// Reads origins with commas between them. `freshness` is that of those that say nothing of it.
    ///
    /// # Errors
    /// One cannot be read, or two are the same bucket.
    pub fn parse(text: &str, freshness: Freshness) -> Result<Self, String> {
        let all: Vec<Origin> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        for (i, origin) in all.iter().enumerate() {
            if all[..i].iter().any(|other| other.bucket == origin.bucket) {
                return Err(format!("the bucket {} is there twice", origin.bucket));
            }
        }
        Ok(Self { all, freshness })
    }

    /// The origin of a bucket.
    pub fn get(&self, bucket: &str) -> Option<&Origin> {
        self.all.iter().find(|origin| origin.bucket == bucket)
    }

    /// The buckets' names, in order.
    pub fn buckets(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.all.iter().map(|origin| origin.bucket.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// How long versions of a bucket's objects are fresh.
    pub fn freshness(&self, origin: &Origin) -> Freshness {
        origin.freshness.unwrap_or(self.freshness)
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.all.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(","))
    }
}

/// The credentials in an environment, as AWS's tools name them; `None` if there are none.
pub fn credentials_of(variable: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    Some(Credentials {
        access_key: set("AWS_ACCESS_KEY_ID")?,
        secret_key: set("AWS_SECRET_ACCESS_KEY")?,
        session_token: set("AWS_SESSION_TOKEN"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read() {
        for (text, read) in [
            (
                "s3://b?endpoint=http://127.0.0.1:9000",
                "s3://b?endpoint=http://127.0.0.1:9000&region=us-east-1",
            ),
            (
                "s3://b",
                "s3://b?endpoint=https://s3.us-east-1.amazonaws.com&region=us-east-1",
            ),
            (
                "s3://b?region=eu-west-1",
                "s3://b?endpoint=https://s3.eu-west-1.amazonaws.com&region=eu-west-1",
            ),
            (
                "s3://b/?endpoint=https://h&freshness=forever",
                "s3://b?endpoint=https://h&region=us-east-1&freshness=forever",
            ),
            (
                "s3://b?freshness=0",
                "s3://b?endpoint=https://s3.us-east-1.amazonaws.com&region=us-east-1&freshness=0",
            ),
        ] {
            let origin: Origin = text.parse().unwrap();
            assert_eq!(origin.to_string(), read);
            assert_eq!(read.parse::<Origin>().unwrap(), origin, "what is printed can be read");
        }
        for broken in [
            "gs://b",
            "s3://",
            "s3://b/key",
            "s3://b?endpoint=ftp://h",
            "s3://b?endpoint=http://h/path",
            "s3://b?endpoint=http://u:p@h",
            "s3://b?colour=blue",
            "s3://b?freshness=soon",
        ] {
            assert!(broken.parse::<Origin>().is_err(), "{broken}");
        }
    }

    #[test]
    fn buckets_are_told_apart() {
        let origins = Origins::parse("s3://a?freshness=0,s3://b", Freshness::Forever).unwrap();
        assert_eq!(origins.buckets(), ["a", "b"]);
        let freshness = |bucket| origins.freshness(origins.get(bucket).unwrap());
        assert_eq!(freshness("a"), Freshness::For(Duration::ZERO));
        assert_eq!(freshness("b"), Freshness::Forever);
        assert!(origins.get("c").is_none());
        assert!(Origins::parse("s3://a,s3://a", Freshness::Forever).is_err());
    }

    #[test]
    fn freshness_ends() {
        let seconds = Duration::from_secs;
        for (freshness, age, is_covered) in [
            ("5s", 4, true),
            ("5s", 5, false),
            ("0", 0, false),
            ("forever", 1 << 40, true),
        ] {
            let freshness: Freshness = freshness.parse().unwrap();
            assert_eq!(freshness.covers(seconds(age)), is_covered, "{freshness} after {age} s");
        }
    }
}
