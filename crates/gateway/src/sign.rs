//! AWS Signature Version 4 of requests to the origin (AWS documentation, "Create a signed AWS API request"). Pure.

use hmac::{Hmac, Mac};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use sha2::{Digest, Sha256};
use tidemark_types::{UnixMs, utc};

/// The hash of a body that is not signed.
pub(crate) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
/// The same for a body in chunks with checksums behind them.
pub(crate) const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The credentials that sign.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key's id.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// The token of temporary ones.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret is nobody's business, not even a log's.
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// The service, and the time: `20130524T000000Z`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// `us-east-1`
    pub(crate) region: &'a str,
    /// `s3`, `lambda`
    pub(crate) service: &'a str,
    /// Date and time, UTC, in the basic form of ISO 8601.
    pub(crate) at: &'a str,
}

/// A request as far as it is signed. All of its headers are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsigned<'a> {
    /// `GET`
    pub(crate) method: &'a str,
    /// Decoded.
    pub(crate) path: &'a str,
    /// Names and values, decoded.
    pub(crate) query: &'a [(String, String)],
    /// The headers, with `host` and `x-amz-date`.
    pub(crate) headers: &'a HeaderMap,
    /// The body's SHA-256 in hexadecimal, or its placeholder.
    pub(crate) payload: &'a str,
}

/// A call of a service of AWS's, with a body and without a query.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `lambda`, `s3`
    pub service: &'a str,
    /// `us-east-1`
    pub region: &'a str,
    /// `POST`
    pub method: &'a str,
    /// Its path: letters, digits, `-`, `_` and slashes.
    pub path: &'a str,
    /// Its body.
    pub body: &'a [u8],
}

/// Signs a call: adds the headers of the signature to those that it has, with `host`.
pub fn sign_call(credentials: &Credentials, call: Call<'_>, headers: &mut HeaderMap, now: UnixMs) {
    let (at, payload) = (utc::basic(now), payload_hash(call.body));
    let mut set = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    };
    set("x-amz-date", &at);
    if call.service == "s3" {
        set("x-amz-content-sha256", &payload);
    }
    if let Some(token) = &credentials.session_token {
        set("x-amz-security-token", token);
    }
    let scope = Scope {
        region: call.region,
        service: call.service,
        at: &at,
    };
    let unsigned = Unsigned {
        method: call.method,
        path: call.path,
        query: &[],
        headers,
        payload: &payload,
    };
    let authorization = authorization(credentials, scope, &unsigned);
    if let Ok(value) = HeaderValue::try_from(authorization) {
        headers.insert(AUTHORIZATION, value);
    }
}

/// The value of the `Authorization` header.
pub(crate) fn authorization(credentials: &Credentials, scope: Scope<'_>, request: &Unsigned<'_>) -> String {
    let Scope { region, service, at } = scope;
    let date = at.get(..8).unwrap_or(at);
    let (canonical, signed) = canonical(request);
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("{ALGORITHM}\n{at}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let mut key = mac(format!("AWS4{}", credentials.secret_key).as_bytes(), date);
    for part in [region, service, "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hex(&mac(&key, &text));
    let id = &credentials.access_key;
    format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={signed}, Signature={signature}")
}

/// The canonical request, and the names of its headers.
fn canonical(request: &Unsigned<'_>) -> (String, String) {
    let mut pairs: Vec<(String, String)> = request
        .query
        .iter()
        .map(|(name, value)| (encode(name, true), encode(value, true)))
        .collect();
    pairs.sort_unstable();
    let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut names: Vec<&str> = request.headers.keys().map(hyper::header::HeaderName::as_str).collect();
    names.sort_unstable();
    let mut headers = String::new();
    for name in &names {
        let values: Vec<String> = request.headers.get_all(*name).iter().map(trimmed).collect();
        headers.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    let (path, query, signed) = (encode(request.path, false), query.join("&"), names.join(";"));
    let text = format!(
        "{}\n{path}\n{query}\n{headers}\n{signed}\n{}",
        request.method, request.payload
    );
    (text, signed)
}

/// A header's value without spaces around it, and with one where there were several.
fn trimmed(value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Percent-encodes as AWS does: all but letters, digits and `-._~`; slashes too, unless it is a path.
pub(crate) fn encode(text: &str, with_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (byte == b'/' && !with_slashes);
        if is_plain {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Undoes percent-encoding; `None` if that is no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

/// Names and values of a query string, decoded; `+` is a space.
pub(crate) fn query_pairs(query: Option<&str>) -> Option<Vec<(String, String)>> {
    let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decode(&name.replace('+', "%20"))?, decode(&value.replace('+', "%20"))?))
    };
    parts.map(pair).collect()
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a body, in hexadecimal.
pub(crate) fn payload_hash(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

pub(crate) fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of any length; the error cannot occur.
    let Ok(mut mac) = <Hmac<Sha256> as Mac>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    /// "Authenticating Requests: Using the Authorization Header", the examples of the S3 API reference.
    #[test]
    fn signatures_are_those_of_the_reference() {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let body = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        for (method, path, query, more, payload, signature) in [
            (
                "GET",
                "/test.txt",
                None,
                vec![("range", "bytes=0-9")],
                empty,
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test$file.text",
                None,
                vec![
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                body,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/",
                Some("lifecycle"),
                vec![],
                empty,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "GET",
                "/",
                Some("max-keys=2&prefix=J"),
                vec![],
                empty,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let mut headers = HeaderMap::new();
            let common = [
                ("host", "examplebucket.s3.amazonaws.com"),
                ("x-amz-date", "20130524T000000Z"),
                ("x-amz-content-sha256", payload),
            ];
            for (name, value) in common.iter().chain(&more) {
                headers.insert(
                    HeaderName::try_from(*name).unwrap(),
                    HeaderValue::try_from(*value).unwrap(),
                );
            }
            let request = Unsigned {
                method,
                path,
                query: &query_pairs(query).unwrap(),
                headers: &headers,
                payload,
            };
            let scope = Scope {
                region: "us-east-1",
                service: "s3",
                at: "20130524T000000Z",
            };
            let signed = authorization(&credentials, scope, &request);
            assert!(signed.ends_with(signature), "{method} {path} {query:?}: {signed}");
        }
    }

    #[test]
    fn encoding_can_be_undone() {
        for (text, path, query) in [
            ("a/b c", "a/b%20c", "a%2Fb%20c"),
            ("~-._", "~-._", "~-._"),
            ("\u{e4}+%", "%C3%A4%2B%25", "%C3%A4%2B%25"),
        ] {
            assert_eq!(encode(text, false), path);
            assert_eq!(encode(text, true), query);
            assert_eq!(decode(path).as_deref(), Some(text));
        }
        for broken in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
        let pairs = query_pairs(Some("a=b+c&d&e=%26")).unwrap();
        let expected = [("a", "b c"), ("d", ""), ("e", "&")];
        assert!(
            pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).eq(expected),
            "{pairs:?}"
        );
    }
}
