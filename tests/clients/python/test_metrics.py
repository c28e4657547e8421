"""GET /metrics, read by Prometheus' own parser of its format, which refuses what the format does not allow."""

import time
from http.client import HTTPConnection

import pytest
import redis
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import harness

# Far longer than a round takes.
PATIENCE_SECONDS = 30


def scrape():
    """Every sample: its value by name and labels."""
    address = harness.admin_address()
    connection = HTTPConnection(address.host, address.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {harness.admin_token()}"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "a sample is there twice"
    return found


def test_what_a_tenant_did_is_scraped(tenant):
    def key(name, **labels):
        return f"tidemark_tenant_{name}", frozenset({"tenant": tenant.name, **labels}.items())

    harness.tidemark("tenant", "set", tenant.name, "--hit-ratio", "0.9")
    address = harness.redis_address()
    with redis.Redis(address.host, address.port, username=tenant.name, password=tenant.secret) as client:
        client.mset({f"k{number}": "v" * 1000 for number in range(100)})
        assert client.get("k1")
        # So many misses are no chance: the goal is not met.
        assert not any(client.get("none") for _ in range(99))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := scrape()).get(key("gets_total")) != 100:
            assert time.monotonic() < deadline, "its gets never came"
    expected = {"hits_total": 1, "items": 100, "goal_met": 0, "sets_total": 100, "evictions_total": 0}
    expected |= {"expirations_total": 0, "cap_bytes": 32 * harness.MIB, "goal_hit_ratio": 0.9}
    assert {name: found[key(name)] for name in expected} == expected
    assert found[key("grant_bytes")] >= found[key("usage_bytes")] >= 100_000
    assert found[key("network_bytes_total", direction="in")] > 100_000
    assert found[key("refused_total", reason="ops_per_second")] == 0
    assert found["tidemark_pool_bytes", frozenset()] == pytest.approx(256 * harness.MIB, rel=0.01)
    assert found["tidemark_connections", frozenset()] >= 1
    assert found[key("moves_total", reason="join")] >= 1
    assert found["tidemark_request_duration_seconds_count", frozenset()] >= 101
    assert found["tidemark_request_duration_seconds_sum", frozenset()] > 0
    assert found["process_resident_memory_bytes", frozenset()] > harness.MIB
    assert found["process_start_time_seconds", frozenset()] < time.time()
    assert any(name == "tidemark_build_info" for name, _ in found)
