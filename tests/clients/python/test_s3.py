"""boto3 against the S3 address, with a real S3 server behind it: versitygw where it is installed, else MiniStack."""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

BUCKET = "objects"
ORIGIN_KEYS = {"AWS_ACCESS_KEY_ID": "originkey", "AWS_SECRET_ACCESS_KEY": "originsecret"}
PATIENCE_SECONDS = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def client(address, keys, **config):
    return boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
        region_name="us-east-1",
        config=Config(signature_version="s3v4", retries={"max_attempts": 1}, **config),
    )


@contextlib.contextmanager
def running(command, environment, log):
    with open(log, "wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """The address of an S3 server with an empty bucket, and a client of it."""
    folder = tmp_path_factory.mktemp("origin")
    address = f"127.0.0.1:{free_port()}"
    environment = dict(os.environ, **ORIGIN_KEYS)
    versitygw = shutil.which("versitygw", path=os.environ.get("PATH", "") + ":" + os.path.expanduser("~/go/bin"))
    if versitygw:
        (folder / "objects").mkdir()
        environment |= {"ROOT_ACCESS_KEY": "originkey", "ROOT_SECRET_KEY": "originsecret"}
        command = [versitygw, "--port", address, "posix", str(folder / "objects")]
    else:
        environment |= {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": address.split(":")[1]}
        command = [sys.executable, "-m", "ministack"]
    with running(command, environment, folder / "log"):
        keys = {"access_key": "originkey", "secret_key": "originsecret"}
        direct = client(address, keys)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                direct.create_bucket(Bucket=BUCKET)
                break
            except Exception:
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
        yield address, direct


@pytest.fixture(scope="module")
def gateway(origin, tmp_path_factory):
    """A server with an S3 address: its address, and a function that makes a tenant's keys."""
    folder = tmp_path_factory.mktemp("gateway")
    program = os.environ["TEST_TIDEMARK"]
    data = folder / "data"
    environment = dict(os.environ, **ORIGIN_KEYS)
    command = [program, "serve", "--memcached", "off", "--redis", "127.0.0.1:0", "--admin", "off", "--memory", "256MiB"]
    command += ["--data", str(data), "--s3", "127.0.0.1:0", "--freshness", "0"]
    command += ["--origin", f"s3://{BUCKET}?endpoint=http://{origin[0]}"]
    with running(command, environment, folder / "log") as server:
        ready = server.stdout.readline().decode()
        assert ready.startswith("ready "), (folder / "log").read_text()
        address = dict(word.split("=", 1) for word in ready.split()[1:])["s3"]

        def keys(name, *allow):
            def tidemark(*arguments):
                done = subprocess.run(
                    [program, "--json", "tenant", "--data", str(data), *arguments],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                return json.loads(done.stdout)

            with contextlib.suppress(subprocess.CalledProcessError):
                tidemark("create", name)
            made = tidemark("s3-key", name, *[word for grant in allow for word in ("--allow", grant)])
            # Grants are read anew within a second.
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    client(address, made).list_buckets()
                    return made
                except ClientError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)

        yield address, keys


@pytest.fixture(scope="module")
def s3(gateway):
    address, keys = gateway
    return client(address, keys("shop"))


def content(length, seed=1):
    return random.Random(seed).randbytes(length)


def code(call):
    with pytest.raises(ClientError) as error:
        call()
    return error.value.response["Error"]["Code"]


def cached(answer):
    return answer["ResponseMetadata"]["HTTPHeaders"].get("x-tidemark-cache")


@pytest.mark.parametrize("length", [0, 1, 1 << 20, (3 << 20) + 7])
def test_an_object_is_what_was_put_and_is_in_memory_then(s3, origin, length):
    key, body = f"a folder/\u00e4 & {length}", content(length)
    put = s3.put_object(Bucket=BUCKET, Key=key, Body=body, ContentType="text/x-tide", Metadata={"colour": "blue"})
    direct = origin[1].get_object(Bucket=BUCKET, Key=key)
    assert direct["Body"].read() == body and direct["ETag"] == put["ETag"]
    for _ in range(2):
        got = s3.get_object(Bucket=BUCKET, Key=key)
        assert got["Body"].read() == body
        assert (got["ContentType"], got["Metadata"], got["ETag"]) == ("text/x-tide", {"colour": "blue"}, put["ETag"])
    assert cached(got) == ("memory" if length else None)
    head = s3.head_object(Bucket=BUCKET, Key=key)
    assert head["ContentLength"] == length and head["LastModified"] == direct["LastModified"]


def test_ranges(s3):
    body = content(5 << 20)
    s3.put_object(Bucket=BUCKET, Key="ranges", Body=body)
    for asked, expected in [
        ("bytes=0-0", body[:1]),
        ("bytes=1048575-1048576", body[1048575:1048577]),
        ("bytes=5000000-", body[5000000:]),
        ("bytes=-100", body[-100:]),
        ("bytes=0-99999999", body),
    ]:
        got = s3.get_object(Bucket=BUCKET, Key="ranges", Range=asked)
        assert got["Body"].read() == expected and got["ResponseMetadata"]["HTTPStatusCode"] == 206, asked
    assert code(lambda: s3.get_object(Bucket=BUCKET, Key="ranges", Range="bytes=5242880-")) == "InvalidRange"


def test_conditions(s3):
    etag = s3.put_object(Bucket=BUCKET, Key="conditions", Body=b"1")["ETag"]
    get = lambda **conditions: s3.get_object(Bucket=BUCKET, Key="conditions", **conditions)
    assert get(IfMatch=etag)["Body"].read() == b"1"
    assert code(lambda: get(IfMatch='"x"')) == "PreconditionFailed"
    assert code(lambda: get(IfNoneMatch=etag)) == "304"
    put = lambda **conditions: s3.put_object(Bucket=BUCKET, Key="conditions", Body=b"2", **conditions)
    assert code(lambda: put(IfNoneMatch="*")) == "PreconditionFailed"
    assert get()["Body"].read() == b"1"


def test_errors_are_s3s(s3):
    assert code(lambda: s3.get_object(Bucket=BUCKET, Key="nothing")) == "NoSuchKey"
    assert code(lambda: s3.head_object(Bucket=BUCKET, Key="nothing")) == "404"
    assert code(lambda: s3.get_object(Bucket="elsewhere", Key="k")) == "NoSuchBucket"
    assert code(lambda: s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={})) == "AccessDenied"


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums(s3, algorithm):
    s3.put_object(Bucket=BUCKET, Key="sums", Body=io.BytesIO(b"hello" * 100), ChecksumAlgorithm=algorithm)
    assert s3.get_object(Bucket=BUCKET, Key="sums")["Body"].read() == b"hello" * 100
    wrong = {"ChecksumSHA256": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
    assert code(lambda: s3.put_object(Bucket=BUCKET, Key="sums", Body=b"other", **wrong)) == "BadDigest"
    assert s3.get_object(Bucket=BUCKET, Key="sums")["Body"].read() == b"hello" * 100


def test_multipart_upload_and_download(s3, origin):
    body = content(21_000_000)
    s3.upload_fileobj(io.BytesIO(body), BUCKET, "parts")
    into = io.BytesIO()
    s3.download_fileobj(BUCKET, "parts", into)
    assert hashlib.sha256(into.getvalue()).digest() == hashlib.sha256(body).digest()
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="aborted")["UploadId"]
    s3.upload_part(Bucket=BUCKET, Key="aborted", UploadId=upload, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(Bucket=BUCKET, Key="aborted", UploadId=upload)
    assert code(lambda: origin[1].get_object(Bucket=BUCKET, Key="aborted")) == "NoSuchKey"


def test_writes_are_found_whoever_made_them(s3, origin):
    for writer, body in [(s3, b"mine"), (origin[1], b"another's"), (s3, b"mine again")]:
        writer.put_object(Bucket=BUCKET, Key="written", Body=body)
        assert s3.get_object(Bucket=BUCKET, Key="written")["Body"].read() == body
    s3.copy_object(Bucket=BUCKET, Key="copied", CopySource={"Bucket": BUCKET, "Key": "written"})
    assert s3.get_object(Bucket=BUCKET, Key="copied")["Body"].read() == b"mine again"
    s3.delete_object(Bucket=BUCKET, Key="copied")
    assert code(lambda: s3.get_object(Bucket=BUCKET, Key="copied")) == "NoSuchKey"
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "written"}]})
    assert code(lambda: s3.get_object(Bucket=BUCKET, Key="written")) == "NoSuchKey"


def test_lists(s3):
    assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    for key in ["list/a", "list/b/c", "list/b/d"]:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", Delimiter="/")
    assert [one["Key"] for one in listed["Contents"]] == ["list/a"]
    assert [one["Prefix"] for one in listed["CommonPrefixes"]] == ["list/b/"]
    s3.head_bucket(Bucket=BUCKET)


def test_tenants_see_what_they_are_allowed(gateway, s3):
    address, keys = gateway
    s3.put_object(Bucket=BUCKET, Key="shared/k", Body=b"1")
    reader = client(address, keys("reader", f"{BUCKET}/shared/:read"))
    assert reader.get_object(Bucket=BUCKET, Key="shared/k")["Body"].read() == b"1"
    assert code(lambda: reader.get_object(Bucket=BUCKET, Key="written")) == "AccessDenied"
    assert code(lambda: reader.put_object(Bucket=BUCKET, Key="shared/k", Body=b"2")) == "AccessDenied"
    assert code(lambda: reader.list_objects_v2(Bucket=BUCKET)) == "AccessDenied"
    stranger = client(address, {"access_key": "shop.1", "secret_key": "wrong"})
    assert code(lambda: stranger.list_buckets()) == "SignatureDoesNotMatch"


def test_presigned_addresses(s3):
    s3.put_object(Bucket=BUCKET, Key="signed", Body=b"1")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "signed"})
    assert urllib.request.urlopen(url).read() == b"1"
    for broken in [url.replace("signed?", "other?"), url[:-1] + ("0" if url[-1] != "0" else "1")]:
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(broken)
        assert error.value.code == 403


def test_a_presigned_address_expires(s3):
    s3.put_object(Bucket=BUCKET, Key="expires", Body=b"1")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "expires"}, ExpiresIn=2)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with pytest.raises(urllib.error.HTTPError) as error:
        while time.monotonic() < deadline:
            assert urllib.request.urlopen(url).read() == b"1"
    assert error.value.code == 403 and b"<Code>AccessDenied</Code>" in error.value.read()


def command(gateway, environment):
    """Runs a command of a client for the address, and gives its output."""
    address, keys = gateway
    made = keys("shop")
    nothing = {name: os.devnull for name in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "RCLONE_CONFIG"]}
    made = {name: value.format(address=address, **made) for name, value in environment.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}

    def run(*arguments):
        done = subprocess.run(arguments, env=kept | nothing | made, capture_output=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, (arguments, done.stderr.decode())
        return done.stdout

    return run


def folder_of_files(folder):
    """Files, one of them longer than commands send at once."""
    files = {"small.txt": content(10), "a folder/large": content((17 << 20) + 5, 2), "a folder/empty": b""}
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return files


def same(folder, files):
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return found == files


@pytest.mark.skipif(not shutil.which("rclone"), reason="the rclone command is not installed")
def test_the_rclone_command(gateway, origin, tmp_path):
    settings = {
        "PROVIDER": "Other",
        "ENDPOINT": "http://{address}",
        "REGION": "us-east-1",
        "ACCESS_KEY_ID": "{access_key}",
        "SECRET_ACCESS_KEY": "{secret_key}",
        # The bucket is there; making one is not for this address.
        "NO_CHECK_BUCKET": "true",
        "CHUNK_SIZE": "8M",
        "UPLOAD_CUTOFF": "10M",
    }
    run = command(gateway, {f"RCLONE_S3_{name}": value for name, value in settings.items()})
    files = folder_of_files(tmp_path / "files")
    place = f":s3:{BUCKET}/by rclone"
    run("rclone", "sync", str(tmp_path / "files"), place)
    for name, body in files.items():
        assert origin[1].get_object(Bucket=BUCKET, Key=f"by rclone/{name}")["Body"].read() == body
    run("rclone", "check", "--download", str(tmp_path / "files"), place)
    for fresh in ["first", "from memory"]:
        run("rclone", "copy", place, str(tmp_path / fresh))
        assert same(tmp_path / fresh, files)
    assert run("rclone", "cat", "--offset", "5", "--count", "5", f"{place}/a folder/large") == files["a folder/large"][5:10]
    listed = run("rclone", "lsf", "-R", "--files-only", place).decode().split("\n")
    assert sorted(listed[:-1]) == sorted(files)
    run("rclone", "moveto", f"{place}/small.txt", f"{place}/moved.txt")
    assert run("rclone", "cat", f"{place}/moved.txt") == files["small.txt"]
    run("rclone", "purge", place)
    assert "Contents" not in origin[1].list_objects_v2(Bucket=BUCKET, Prefix="by rclone/")


@pytest.mark.skipif(not shutil.which("aws"), reason="the aws command is not installed")
def test_the_aws_command(gateway, origin, tmp_path):
    keys = {"AWS_ACCESS_KEY_ID": "{access_key}", "AWS_SECRET_ACCESS_KEY": "{secret_key}"}
    run = command(gateway, keys | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"})
    aws = lambda *arguments: run("aws", "--endpoint-url", f"http://{gateway[0]}", *arguments)
    files = folder_of_files(tmp_path / "files")
    place = f"s3://{BUCKET}/by aws"
    aws("s3", "sync", str(tmp_path / "files"), place)
    for name, body in files.items():
        assert origin[1].get_object(Bucket=BUCKET, Key=f"by aws/{name}")["Body"].read() == body
    for fresh in ["first", "from memory"]:
        aws("s3", "cp", "--recursive", place, str(tmp_path / fresh))
        assert same(tmp_path / fresh, files)
    assert aws("s3", "cp", f"{place}/small.txt", "-") == files["small.txt"]
    part = tmp_path / "part"
    aws("s3api", "get-object", "--bucket", BUCKET, "--key", "by aws/a folder/large", "--range", "bytes=5-9", str(part))
    assert part.read_bytes() == files["a folder/large"][5:10]
    assert b"small.txt" in aws("s3", "ls", place + "/") and BUCKET.encode() in aws("s3", "ls")
    aws("s3", "mv", f"{place}/small.txt", f"{place}/moved.txt")
    assert aws("s3", "cp", f"{place}/moved.txt", "-") == files["small.txt"]
    aws("s3", "rm", "--recursive", place)
    assert "Contents" not in origin[1].list_objects_v2(Bucket=BUCKET, Prefix="by aws/")
