//! The commands of S3, as they are counted for bills: the operation's name in lower case, and what came of it.

use hyper::{Method, StatusCode};
use tidemark_types::Outcome;

/// Requests for anything but what has a name here: settings of objects and buckets.
const OTHER: &str = "other";

/// The command that a request is, by its method, its place `BUCKET/KEY`, its query and whether it names a source to copy.
pub(crate) fn command_of(method: &Method, place: &str, query: &[(String, String)], is_copy: bool) -> &'static str {
    let (bucket, key) = place.split_once('/').unwrap_or((place, ""));
    let has = |name: &str| query.iter().any(|(one, _)| one == name);
    let is_get = method == Method::GET;
    if bucket.is_empty() {
        return if is_get { "list_buckets" } else { OTHER };
    }
    if key.is_empty() {
        return match *method {
            Method::GET if has("uploads") => "list_multipart_uploads",
            Method::GET if has("versions") => "list_object_versions",
            Method::GET if !has("location") => "list_objects",
            Method::HEAD => "head_bucket",
            Method::POST if has("delete") => "delete_objects",
            _ => OTHER,
        };
    }
    if [
        "acl",
        "attributes",
        "legal-hold",
        "restore",
        "retention",
        "select",
        "tagging",
    ]
    .into_iter()
    .any(has)
    {
        return OTHER;
    }
    match (method, has("uploadId")) {
        (&Method::GET, false) => "get_object",
        (&Method::GET, true) => "list_parts",
        (&Method::HEAD, false) => "head_object",
        (&Method::PUT, false) if is_copy => "copy_object",
        (&Method::PUT, false) => "put_object",
        (&Method::PUT, true) if is_copy => "upload_part_copy",
        (&Method::PUT, true) => "upload_part",
        (&Method::POST, true) => "complete_multipart_upload",
        (&Method::POST, false) if has("uploads") => "create_multipart_upload",
        (&Method::DELETE, false) => "delete_object",
        (&Method::DELETE, true) => "abort_multipart_upload",
        _ => OTHER,
    }
}

/// The outcome of a command, by the status of its answer. A read of an object that is not there is a miss.
pub(crate) fn outcome_of(command: &str, status: StatusCode) -> Outcome {
    let is_read = ["get_object", "head_object"].contains(&command);
    match status {
        StatusCode::NOT_FOUND if is_read => Outcome::Miss,
        status if status.is_client_error() || status.is_server_error() => Outcome::Error,
        _ => Outcome::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_a_command() {
        let query = |names: &[&str]| {
            names
                .iter()
                .map(|name| ((*name).into(), "1".into()))
                .collect::<Vec<_>>()
        };
        for (method, place, names, is_copy, expected) in [
            (Method::GET, "", &[][..], false, "list_buckets"),
            (Method::GET, "photos", &["prefix"], false, "list_objects"),
            (Method::GET, "photos/", &[], false, "list_objects"),
            (Method::GET, "photos", &["location"], false, OTHER),
            (Method::HEAD, "photos", &[], false, "head_bucket"),
            (Method::POST, "photos", &["delete"], false, "delete_objects"),
            (Method::GET, "photos/a/b", &["versionId"], false, "get_object"),
            (Method::HEAD, "photos/a", &["partNumber"], false, "head_object"),
            (Method::GET, "photos/a", &["tagging"], false, OTHER),
            (Method::PUT, "photos/a", &[], false, "put_object"),
            (Method::PUT, "photos/a", &[], true, "copy_object"),
            (
                Method::PUT,
                "photos/a",
                &["partNumber", "uploadId"],
                false,
                "upload_part",
            ),
            (Method::POST, "photos/a", &["uploads"], false, "create_multipart_upload"),
            (
                Method::POST,
                "photos/a",
                &["uploadId"],
                false,
                "complete_multipart_upload",
            ),
            (Method::DELETE, "photos/a", &[], false, "delete_object"),
            (
                Method::DELETE,
                "photos/a",
                &["uploadId"],
                false,
                "abort_multipart_upload",
            ),
            (Method::PATCH, "photos/a", &[], false, OTHER),
        ] {
            let found = command_of(&method, place, &query(names), is_copy);
            assert_eq!(found, expected, "{method} {place} {names:?}");
        }
    }

    #[test]
    fn outcomes_follow_from_the_status() {
        for (command, status, expected) in [
            ("get_object", 200, Outcome::Ok),
            ("get_object", 206, Outcome::Ok),
            ("head_object", 304, Outcome::Ok),
            ("head_object", 404, Outcome::Miss),
            ("put_object", 404, Outcome::Error),
            ("put_object", 412, Outcome::Error),
            ("get_object", 503, Outcome::Error),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(outcome_of(command, status), expected, "{command} {status}");
        }
    }
}
