//! Judges a request's head: nothing is acted on or passed on that the signature does not cover or that can be read in two ways.

use hyper::{HeaderMap, Method, Uri};

use crate::reply::{ErrorCode, Reply};
use crate::sign::query_pairs;

/// Headers that the origin gets, besides those of S3's own that [`is_known_amz`] names.
const PASSED: [&str; 18] = [
    "accept",
    "accept-encoding",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "expires",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "range",
    "user-agent",
];
/// Headers of S3's that are the client's business with this address.
const OF_THE_CLIENT: [&str; 6] = [
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-security-token",
    "x-amz-trailer",
    "x-amz-user-agent",
];
/// Headers of S3's that the origin gets.
const KNOWN: [&str; 18] = [
    "x-amz-acl",
    "x-amz-bypass-governance-retention",
    "x-amz-copy-source",
    "x-amz-expected-bucket-owner",
    "x-amz-max-parts",
    "x-amz-metadata-directive",
    "x-amz-mfa",
    "x-amz-mp-object-size",
    "x-amz-object-attributes",
    "x-amz-optional-object-attributes",
    "x-amz-part-number-marker",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-website-redirect-location",
];
/// Families of them.
const KNOWN_FAMILIES: [&str; 7] = [
    "x-amz-checksum-",
    "x-amz-copy-source-if-",
    "x-amz-copy-source-server-side-encryption-customer-",
    "x-amz-grant-",
    "x-amz-meta-",
    "x-amz-object-lock-",
    "x-amz-server-side-encryption",
];
/// Headers of other stores, and those by which a method becomes another: dropping one would change the request's sense.
const REFUSED_FAMILIES: [&str; 3] = ["x-goog-", "x-http-method", "x-method-override"];
/// Headers by which clients ask this address for what S3 has not.
const OWN_FAMILY: &str = "x-tidemark-";
/// Headers of which a second one would be read by some and not by others.
const SINGLE: [&str; 7] = [
    "authorization",
    "content-encoding",
    "content-md5",
    "content-type",
    "host",
    "if-range",
    "range",
];
/// Query parameters of an object's requests.
const OBJECT_PARAMETERS: [&str; 14] = [
    "acl",
    "attributes",
    "encoding-type",
    "legal-hold",
    "max-parts",
    "part-number-marker",
    "partNumber",
    "restore",
    "retention",
    "select",
    "select-type",
    "tagging",
    "uploadId",
    "uploads",
];

fn refused(message: &str) -> Reply {
    Reply::error(ErrorCode::InvalidArgument, message)
}

fn is_known_amz(name: &str) -> bool {
    KNOWN.contains(&name) || KNOWN_FAMILIES.iter().any(|family| name.starts_with(family))
}

/// The headers of a client that the origin gets.
pub(crate) fn passed(headers: &HeaderMap) -> HeaderMap {
    let is_passed = |name: &str| PASSED.contains(&name) || is_known_amz(name);
    let passed = headers.iter().filter(|(name, _)| is_passed(name.as_str()));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a query parameter of an object's request is known. One that stands for a header of S3's is, but for a copy's source.
pub(crate) fn is_object_parameter(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_header = lower == "x-amz-content-sha256"
        || lower == "x-amz-user-agent"
        || is_known_amz(&lower) && !lower.starts_with("x-amz-copy-source");
    OBJECT_PARAMETERS.contains(&name) || name == "versionId" || name.starts_with("response-") || is_header
}

/// Whether a key or prefix can be read in one way only: an origin that keeps files would leave a prefix by `..`.
pub(crate) fn is_plain_key(key: &str) -> bool {
    !key.contains('\0') && !key.split(['/', '\\']).any(|segment| segment == "." || segment == "..")
}

/// The refusals before the signature is looked at. Checking it would read a whole body, or would take another signature
/// than Version 4 of S3.
pub(crate) fn before_signature(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Reply> {
    let not_taken = |message: &str| Err(Reply::error(ErrorCode::NotImplemented, message));
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let is_form = |value: &hyper::header::HeaderValue| text(value).contains("form-data");
    if *method == Method::POST && headers.get_all("content-type").iter().any(is_form) {
        return not_taken("a POST of a form is not taken here");
    }
    let query = query_pairs(uri.query()).ok_or_else(|| refused("the address is not UTF-8"))?;
    let is_old = |name: &str| ["awsaccesskeyid", "signature"].contains(&name.to_ascii_lowercase().as_str());
    let mut authorizations = headers.get_all("authorization").iter();
    if query.iter().any(|(name, _)| is_old(name)) || authorizations.any(|value| text(value).trim().starts_with("aws "))
    {
        return not_taken("only Signature Version 4 is taken here");
    }
    let in_headers = headers.get_all("authorization").iter().filter_map(|value| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let (_, scope) = value.split_once("Credential=")?;
        Some(scope.split(',').next().unwrap_or_default().to_owned())
    });
    let in_query = query
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x-amz-credential"));
    for scope in in_headers.chain(in_query.map(|(_, value)| value.clone())) {
        if scope.trim().rsplit('/').nth(1).is_some_and(|service| service != "s3") {
            return not_taken("only signatures for the service s3 are taken here");
        }
    }
    Ok(())
}

/// Whether all that is acted on was signed, once, and is known. `query` is decoded, with the signature's parameters.
pub(crate) fn after_signature(headers: &HeaderMap, query: &[(String, String)]) -> Result<(), Reply> {
    for (at, (name, _)) in query.iter().enumerate() {
        if query[..at].iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(refused(&format!("the query parameter {name} is there twice")));
        }
    }
    let signed_headers = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("x-amz-signedheaders");
    let in_query = query.iter().find(signed_headers).map(|(_, names)| names.clone());
    let in_header = headers.get("authorization").and_then(|value| {
        let (_, names) = value.to_str().ok()?.split_once("SignedHeaders=")?;
        // A second list could be the one that the signature is checked by.
        if names.to_ascii_lowercase().contains("signedheaders") {
            return None;
        }
        Some(names.split(',').next()?.trim().to_owned())
    });
    let is_presigned = in_query.is_some();
    let ((Some(signed), None) | (None, Some(signed))) = (in_query, in_header) else {
        return Err(refused("one signature is needed, with the names of its headers"));
    };
    let is_signed = |name: &str| signed.split(';').any(|one| one.eq_ignore_ascii_case(name));
    if !is_signed("host") {
        return Err(Reply::error(ErrorCode::AccessDenied, "the header host is not signed"));
    }
    for name in headers.keys().map(hyper::header::HeaderName::as_str) {
        let (is_amz, is_own) = (name.starts_with("x-amz-"), name.starts_with(OWN_FAMILY));
        if (is_amz || is_own || SINGLE.contains(&name)) && headers.get_all(name).iter().count() > 1 {
            return Err(refused(&format!("the header {name} is there twice")));
        }
        if (is_amz || is_own) && !is_signed(name) && !(is_presigned && name == "x-amz-content-sha256") {
            let message = format!("the header {name} is not signed");
            return Err(Reply::error(ErrorCode::AccessDenied, &message));
        }
        let is_unknown = is_amz && !is_known_amz(name) && !OF_THE_CLIENT.contains(&name);
        if is_unknown || REFUSED_FAMILIES.iter().any(|family| name.starts_with(family)) {
            let message = format!("the header {name} is not known here");
            return Err(Reply::error(ErrorCode::NotImplemented, &message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn forms_and_other_signatures_are_refused_unread() {
        let scope = "AWS4-HMAC-SHA256 Credential=a.1/20260101/r/sts/aws4_request, SignedHeaders=host, Signature=1";
        for (method, uri, headers, is_taken) in [
            (
                Method::POST,
                "/b",
                vec![("content-type", "Multipart/Form-Data; boundary=a")],
                false,
            ),
            (
                Method::POST,
                "/b?delete",
                vec![("content-type", "application/xml")],
                true,
            ),
            (Method::GET, "/b/k?AWSAccessKey%49d=a", vec![], false),
            (Method::GET, "/b/k?Signature=a", vec![], false),
            (Method::GET, "/b/k?X-Amz-Signature=a", vec![], true),
            (Method::GET, "/b/k", vec![("authorization", "AWS a:b")], false),
            (Method::GET, "/b/k", vec![("authorization", scope)], false),
            (
                Method::GET,
                "/b/k?X-Amz-Credential=a%2F1%2Fr%2Fsts%2Faws4_request",
                vec![],
                false,
            ),
            (
                Method::GET,
                "/b/k?X-Amz-Credential=a%2F1%2Fr%2Fs3%2Faws4_request",
                vec![],
                true,
            ),
        ] {
            let judged = before_signature(&method, &uri.parse().unwrap(), &map(&headers));
            assert_eq!(judged.is_ok(), is_taken, "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn what_is_acted_on_is_signed_once_and_known() {
        let by = |names: &'static str| ("authorization", names);
        let all = by("AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host;x-amz-acl;x-amz-rename-source, Signature=1");
        let presigned = "x-amz-signedheaders=host";
        for (query, headers, is_taken) in [
            ("", vec![all, ("x-amz-acl", "a")], true),
            ("", vec![all, ("x-amz-acl", "a"), ("x-amz-acl", "b")], false),
            ("", vec![all, ("x-amz-copy-source", "/b/k")], false),
            ("", vec![all, ("x-tidemark-chunks", "yes")], false),
            ("", vec![all, ("x-amz-rename-source", "/b/k")], false),
            ("", vec![all, ("x-goog-copy-source", "/b/k")], false),
            ("", vec![all, ("x-http-method-override", "DELETE")], false),
            (
                "",
                vec![by("AWS4-HMAC-SHA256 SignedHeaders=x-amz-date, Signature=1")],
                false,
            ),
            (
                "",
                vec![by(
                    "AWS4-HMAC-SHA256 SignedHeaders=host, SignedHeaders=host;x-amz-acl, Signature=1",
                )],
                false,
            ),
            ("prefix=a&prefix=b", vec![all], false),
            ("", vec![], false),
            (presigned, vec![], true),
            (presigned, vec![all], false),
            (presigned, vec![("x-amz-content-sha256", "UNSIGNED-PAYLOAD")], true),
            (presigned, vec![("x-amz-acl", "public-read")], false),
        ] {
            let judged = after_signature(&map(&headers), &query_pairs(Some(query)).unwrap());
            assert_eq!(judged.is_ok(), is_taken, "{query} {headers:?}");
        }
    }

    #[test]
    fn keys_and_parameters_are_plain() {
        for (key, is_plain) in [
            ("a/b", true),
            ("a..b/...", true),
            ("a/../b", false),
            (".", false),
            ("a\\..\\b", false),
            ("a\0", false),
        ] {
            assert_eq!(is_plain_key(key), is_plain, "{key:?}");
        }
        for (name, is_known) in [
            ("versionId", true),
            ("response-content-type", true),
            ("X-Amz-Checksum-Mode", true),
            ("x-amz-copy-source", false),
            ("renameObject", false),
            ("policy", false),
        ] {
            assert_eq!(is_object_parameter(name), is_known, "{name}");
        }
        let kept = passed(&map(&[
            ("range", "a"),
            ("x-forwarded-for", "b"),
            ("authorization", "c"),
            ("x-amz-acl", "d"),
            ("x-amz-date", "e"),
        ]));
        assert_eq!(kept, map(&[("range", "a"), ("x-amz-acl", "d")]));
    }
}
