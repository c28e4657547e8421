//! Which names a request over TCP may call the server by, and which pages may send it.
//!
//! A page of a stranger can have its own name point to this machine (DNS rebinding), and a browser then takes the
//! server for that page's. The name in `Host` tells. A listener on loopback therefore answers to addresses and
//! `localhost` only. One for other machines also answers to names if the request carries the token, which no page has.
//! A page's `Origin` must be that of `Host`.

use axum::http::{HeaderMap, HeaderName, Uri, Version, header};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Host,
    Origin,
}

impl Foreign {
    /// The message for people.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Host => "the request's Host is neither an address nor `localhost`: call the server by one of these",
            Self::Origin => "the request comes from a page of another origin",
        }
    }
}

/// Judges a request. `are_names_known`: it may call the server by any name.
pub(crate) fn check(version: Version, uri: &Uri, headers: &HeaderMap, are_names_known: bool) -> Result<(), Foreign> {
    let host = only(headers, header::HOST).map_err(|()| Foreign::Host)?;
    // If a request line has a whole address, that counts.
    let host = uri.authority().map(|authority| authority.as_str()).or(host);
    match host {
        Some(host) => {
            if !(are_names_known || is_own(host)) {
                return Err(Foreign::Host);
            }
        }
        // Browsers always say it.
        None if version <= Version::HTTP_10 => {}
        None => return Err(Foreign::Host),
    }
    match only(headers, header::ORIGIN).map_err(|()| Foreign::Origin)? {
        None => Ok(()),
        Some(origin) => {
            let authority = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"));
            match (authority, host) {
                (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
                _ => Err(Foreign::Origin),
            }
        }
    }
}

/// The header's one value; an error if it has several, or one that is no text.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(()),
    }
}

/// Whether a `Host` is an address or `localhost`, with any port: a tunnel has another one.
fn is_own(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
        return is_port && address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_known = name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::Ipv4Addr>().is_ok();
    is_known && is_number(port)
}

fn is_number(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a request with these headers.
    fn judge(headers: &[(&'static str, &'static str)], are_names_known: bool) -> Result<(), Foreign> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            });
        check(
            Version::HTTP_11,
            &Uri::from_static("/healthz"),
            &headers,
            are_names_known,
        )
    }

    #[test]
    fn strangers_names_are_refused() {
        for (host, is_known) in [
            ("127.0.0.1", true),
            ("127.0.0.1:7070", true),
            ("localhost:7070", true),
            ("LOCALHOST", true),
            ("[::1]:7070", true),
            ("[::1]", true),
            ("10.1.2.3:80", true),
            ("evil.example", false),
            ("evil.example:7070", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:7070", false),
            ("127.0.0.1:7070:1", false),
            ("127.0.0.1:x", false),
            ("[::1", false),
            ("[::1]x", false),
            ("user@127.0.0.1", false),
            ("2130706433", false),
            ("", false),
        ] {
            let expected = if is_known { Ok(()) } else { Err(Foreign::Host) };
            assert_eq!(judge(&[("host", host)], false), expected, "{host}");
            assert_eq!(judge(&[("host", host)], true), Ok(()), "{host} with the token");
        }
        assert_eq!(judge(&[], false), Err(Foreign::Host));
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(judge(&twice, false), Err(Foreign::Host));
        let none = HeaderMap::new();
        let path = Uri::from_static("/healthz");
        assert_eq!(check(Version::HTTP_10, &path, &none, false), Ok(()));
        let whole = Uri::from_static("http://evil.example/healthz");
        let mut local = HeaderMap::new();
        local.insert(header::HOST, "localhost".parse().unwrap());
        assert_eq!(check(Version::HTTP_11, &whole, &local, false), Err(Foreign::Host));
    }

    #[test]
    fn pages_of_others_are_refused() {
        for (origin, is_own) in [
            ("http://127.0.0.1:7070", true),
            ("https://127.0.0.1:7070", true),
            ("http://127.0.0.1", false),
            ("http://127.0.0.1:8080", false),
            ("http://evil.example", false),
            ("null", false),
            ("file://", false),
            ("", false),
        ] {
            let expected = if is_own { Ok(()) } else { Err(Foreign::Origin) };
            let headers = [("host", "127.0.0.1:7070"), ("origin", origin)];
            for are_names_known in [false, true] {
                assert_eq!(judge(&headers, are_names_known), expected, "{origin}");
            }
        }
    }
}
