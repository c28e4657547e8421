"""redis-benchmark, as Redis's users run it."""

import re
import subprocess

import pytest

import harness


@pytest.mark.parametrize("pipeline", [1, 16, 100])
@pytest.mark.parametrize("resp3", [False, True], ids=["resp2", "resp3"])
def test_redis_benchmark(pipeline, resp3, tenant):
    address = harness.redis_address()
    tests = ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET"]
    command = ["redis-benchmark", "-h", address.host, "-p", str(address.port), "--user", tenant.name, "-a", tenant.secret]
    command += ["-t", "ping,set,get,incr,mset", "-n", "20000", "-r", "10000", "-P", str(pipeline), "--csv"]
    command += ["-3"] if resp3 else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert not re.search(r"(?i)error|warning: could not fetch", said), said
    finished = [line.split(",")[0].strip('"').split(" ")[0] for line in done.stdout.splitlines()[1:]]
    assert finished == tests, said
