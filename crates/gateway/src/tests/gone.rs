//! An origin that is not there.

use super::*;

#[test]
fn an_origin_that_is_gone_is_a_failure_that_may_be_tried_again() {
    let bench = bench("0", false);
    bench.origin.stop(&bench.runtime);
    let (got, put) = (bench.get("/bucket/k", &[]), bench.put("/bucket/k", &bytes(100, 1), &[]));
    for answer in [got, put] {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
        assert!(answer.text().contains("ServiceUnavailable"), "{}", answer.text());
    }
}
