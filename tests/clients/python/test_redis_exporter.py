"""Debian's exporter of Redis's figures, as its users run it: each field that its board shows is there, with the right value."""

import socket
import subprocess
import time
from http.client import HTTPConnection

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

import harness

# Far longer than it takes to start, or to scrape.
PATIENCE_SECONDS = 30


@pytest.fixture
def exporter(tenant):
    """The port of an exporter that logs in as the tenant."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["prometheus-redis-exporter", "-redis.addr", f"redis://{harness.redis_address()}"]
    command += ["-redis.user", tenant.name, "-redis.password", tenant.secret, "-web.listen-address", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield port
    process.kill()
    process.wait()


def scrape(port):
    """Every sample: its value by name and labels."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "the exporter does not listen"
            time.sleep(0.05)
        finally:
            connection.close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


# All that the board shows beside what the test itself expects.
BOARD = [
    "redis_uptime_in_seconds",
    "redis_start_time_seconds",
    "redis_connected_clients",
    "redis_blocked_clients",
    "redis_memory_used_bytes",
    "redis_memory_max_bytes",
    "redis_mem_fragmentation_ratio",
    "redis_commands_processed_total",
    "redis_net_input_bytes_total",
    "redis_net_output_bytes_total",
    "redis_evicted_keys_total",
    "redis_expired_keys_total",
    "redis_rejected_connections_total",
    "redis_connections_received_total",
    "redis_cpu_user_seconds_total",
    "redis_cpu_sys_seconds_total",
]


def test_every_field_of_the_board_is_scraped(exporter, tenant):
    address = harness.redis_address()
    with redis.Redis(address.host, address.port, username=tenant.name, password=tenant.secret) as client:
        client.mset({f"k{number}": "v" for number in range(8)})
        client.set("fleeting", "v", ex=1000)
        for key in ["k1", "k2", "none"]:
            client.get(key)
        with pytest.raises(redis.ResponseError):
            client.incr("k1")
    found = scrape(exporter)
    assert found["redis_up",] == 1
    assert found["redis_exporter_last_scrape_error", ("err", "")] == 0
    assert found["redis_keyspace_hits_total",] == 2
    assert found["redis_keyspace_misses_total",] == 1
    assert found["redis_db_keys", ("db", "db0")] == 9
    assert found["redis_db_keys_expiring", ("db", "db0")] == 1
    assert found["redis_commands_total", ("cmd", "get")] == 3
    assert found["redis_commands_duration_seconds_total", ("cmd", "get")] >= 0
    assert found["redis_errors_total", ("err", "ERR")] >= 1
    assert found["redis_memory_max_bytes",] == 32 * harness.MIB
    assert any(name == "redis_instance_info" for name, *_ in found)
    missing = [name for name in BOARD if (name,) not in found]
    assert not missing, sorted(name for name, *_ in found)
