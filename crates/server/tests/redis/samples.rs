//! The records of sampled keys.

use tidemark_types::SampleKind::{self, Delete, Fill, Flush, GetHit, GetMiss, Overwrite, Retime};
use tidemark_types::{Sample, SamplingThreshold, TenantPlan};

use crate::harness::{Harness, open_tenant};

#[test]
fn commands_make_the_records_of_what_they_did() {
    let sampled = TenantPlan {
        sampling_threshold: SamplingThreshold::ALL,
        ..open_tenant()
    };
    let harness = Harness::with(2, vec![sampled]);
    let mut client = harness.connect();
    let cases: &[(&str, &[SampleKind])] = &[
        ("GET k", &[GetMiss]),
        ("SET k v", &[Fill]),
        ("GET k", &[GetHit]),
        ("MGET k x k", &[GetHit, GetMiss, GetHit]),
        ("CLIENT NO-TOUCH on", &[]),
        ("GET k", &[GetHit]),
        ("EXISTS k x", &[]),
        ("TTL k", &[]),
        ("STRLEN k", &[]),
        ("TOUCH k", &[]),
        ("GETEX k", &[GetHit]),
        ("GETEX k EX 100", &[GetHit, Retime]),
        ("EXPIRE k 200", &[Retime]),
        ("PERSIST k", &[Retime]),
        ("PERSIST k", &[]),
        ("SETEX k 100 w", &[Overwrite]),
        ("SET k v XX GET", &[Overwrite]),
        ("SET k v NX", &[]),
        ("APPEND k v", &[Overwrite]),
        ("RENAME k l", &[Fill, Delete]),
        ("GETDEL l", &[GetHit, Delete]),
        ("GETDEL l", &[GetMiss]),
        ("MSET a 1 b 2", &[Fill, Fill]),
        ("INCR a", &[Overwrite]),
        ("DEL a x", &[Delete]),
        ("EXPIRE b -1", &[Delete]),
        ("MULTI", &[]),
        ("SET a 1", &[]),
        ("GET a", &[]),
        ("EXEC", &[Fill, GetHit]),
        ("FLUSHDB", &[Flush]),
        ("SELECT 3", &[]),
        ("SET a 1", &[Fill]),
        ("FLUSHDB", &[Flush]),
        ("FLUSHALL", &[Flush]),
    ];
    harness.sampled();
    let mut flushed = Vec::new();
    for (command, expected) in cases {
        let reply = client.ask(command);
        let samples = harness.sampled();
        let kinds: Vec<_> = samples.iter().map(|sample| sample.kind).collect();
        assert_eq!(kinds, *expected, "{command}: {reply}");
        flushed.extend(
            samples
                .iter()
                .filter(|sample| sample.kind == Flush)
                .map(|sample| sample.db),
        );
    }
    assert_eq!(flushed, [0, 3, Sample::ALL_DATABASES]);
}
