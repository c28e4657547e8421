"""boto3 through two agents of one application: each client finds what the other one wrote, at once."""

import io
import json
import os
import subprocess
import time
import urllib.request
from contextlib import ExitStack

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from test_s3 import (
    BUCKET,
    ORIGIN_KEYS,
    PATIENCE_SECONDS,
    client,
    free_port,
    origin,  # noqa: F401, a fixture
    running,
)

MIB = 1 << 20


def eventually(attempt):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return attempt()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def tidemark(data, *arguments):
    command = [os.environ["TEST_TIDEMARK"], "--json", *arguments, "--data", data]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.fixture(scope="module")
def agents(origin, tmp_path_factory):  # noqa: F811
    """A client of each of two agents, with the agent's data folder."""
    folder = tmp_path_factory.mktemp("agents")
    listens, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd = ["etcd", "--data-dir", str(folder / "etcd"), "--initial-cluster", f"default={peers}"]
    etcd += ["--listen-client-urls", listens, "--advertise-client-urls", listens]
    etcd += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
    with ExitStack() as stack:
        stack.enter_context(running(etcd, None, folder / "etcd.log"))
        eventually(lambda: urllib.request.urlopen(f"{listens}/health").read())
        made = []
        for number in range(2):
            data, log = str(folder / f"n{number}"), folder / f"n{number}.log"
            command = [os.environ["TEST_TIDEMARK"], "agent", "--origin", f"s3://{BUCKET}?endpoint=http://{origin[0]}"]
            command += ["--etcd", listens.removeprefix("http://"), "--peer", "127.0.0.1:0", "--domain", "shop"]
            command += ["--node", f"n{number}", "--s3", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--memory", "64MiB"]
            command += ["--data", data, "--chooser", "off"]
            agent = stack.enter_context(running(command, dict(os.environ, **ORIGIN_KEYS), log))
            ready = agent.stdout.readline().decode()
            assert ready.startswith("ready "), log.read_text()
            address = dict(word.split("=", 1) for word in ready.split()[1:])["s3"]
            keys = tidemark(data, "tenant", "s3-key", "shop")
            made.append((client(address, keys), data))
        for s3, data in made:
            eventually(lambda s3=s3: s3.list_objects_v2(Bucket=BUCKET))
            eventually(lambda data=data: is_settled(data) or 1 / 0)
        yield made


def is_settled(data):
    shown = tidemark(data, "agent", "show", "shop")
    return len(shown["members"]) == 2 and all(one["is_leased"] and one["is_member"] for one in shown["cachelets"])


def read(s3, key):
    try:
        return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchKey", error
        return None


def copies(data):
    return tidemark(data, "agent", "show", "shop")["counts"]["reads"]["copy"]


def test_each_client_finds_what_the_other_one_wrote(agents):
    clients = [s3 for s3, _ in agents]
    for turn in range(20):
        body = f"turn {turn} ".encode() * 500
        clients[turn % 2].put_object(Bucket=BUCKET, Key="k", Body=body)
        for reader in (1 - turn % 2, turn % 2, 1 - turn % 2):
            assert read(clients[reader], "k") == body, f"turn {turn} at {reader}"
    clients[0].delete_object(Bucket=BUCKET, Key="k")
    assert [read(s3, "k") for s3 in clients] == [None, None]


def test_copies_answer_at_both(agents):
    agents[0][0].put_object(Bucket=BUCKET, Key="read", Body=b"much")
    for s3, data in agents:
        before = copies(data)
        for _ in range(10):
            assert read(s3, "read") == b"much"
        assert copies(data) >= before + 9


def test_a_condition_is_about_what_the_other_one_wrote(agents):
    (one, _), (other, _) = agents
    first = one.put_object(Bucket=BUCKET, Key="c", Body=b"1")["ETag"]
    second = other.put_object(Bucket=BUCKET, Key="c", Body=b"2", IfMatch=first)["ETag"]
    with pytest.raises(ClientError) as refused:
        one.put_object(Bucket=BUCKET, Key="c", Body=b"3", IfMatch=first)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    with pytest.raises(ClientError) as refused:
        other.put_object(Bucket=BUCKET, Key="c", Body=b"4", IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    one.put_object(Bucket=BUCKET, Key="c", Body=b"5", IfMatch=second)
    assert [read(s3, "c") for s3 in (one, other)] == [b"5", b"5"]


def test_an_upload_in_parts_is_one_write(agents):
    (one, _), (other, _) = agents
    other.put_object(Bucket=BUCKET, Key="long", Body=b"short")
    assert read(one, "long") == b"short"
    body = os.urandom(11 * MIB + 1)
    parts = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    one.upload_fileobj(io.BytesIO(body), BUCKET, "long", Config=parts)
    assert read(other, "long") == body
    assert read(one, "long") == body
