"""redis-py against the server, in RESP2 and RESP3: connect, log in, the common commands, pipelines, transactions, errors."""

import time

import pytest
import redis
from redis.exceptions import AuthenticationError, DataError, NoPermissionError, ResponseError, WatchError

import harness
from harness import MIB, VALUE_BYTES_MAX

# Every byte, so that nothing is taken for text.
ALL_BYTES = bytes(range(256))


def connect(tenant, **options):
    """A client of the tenant. No retries: what goes wrong is to be seen."""
    address = harness.redis_address()
    options = {"username": tenant.name, "password": tenant.secret, "retry": None, **options}
    return redis.Redis(address.host, address.port, socket_timeout=10, **options)


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request, tenant):
    with connect(tenant, protocol=request.param) as connected:
        yield connected


# The calls to one tenant, in order: method, arguments, named arguments, result.
CONVERSATIONS = {
    "strings": [
        ("get", ("k",), {}, None),
        ("set", ("k", "v"), {}, True),
        ("get", ("k",), {}, b"v"),
        ("set", ("k", "w"), {"nx": True}, None),
        ("set", ("other", "w"), {"xx": True}, None),
        ("set", ("k", "w"), {"xx": True, "get": True}, b"v"),
        ("getset", ("k", "x"), {}, b"w"),
        ("append", ("k", "yz"), {}, 3),
        ("strlen", ("k",), {}, 3),
        ("getrange", ("k", 1, -1), {}, b"yz"),
        ("setrange", ("k", 5, "!"), {}, 6),
        ("get", ("k",), {}, b"xyz\0\0!"),
        ("getdel", ("k",), {}, b"xyz\0\0!"),
        ("exists", ("k",), {}, 0),
        ("setnx", ("k", "1"), {}, True),
        ("setnx", ("k", "2"), {}, False),
        ("set", ("", "an empty key"), {}, True),
        ("get", ("",), {}, b"an empty key"),
        ("set", ("empty", ""), {}, True),
        ("get", ("empty",), {}, b""),
    ],
    "many keys": [
        ("mset", ({"a": 1, "b": 2, "c": 3},), {}, True),
        ("mget", (["a", "missing", "c"],), {}, [b"1", None, b"3"]),
        ("msetnx", ({"c": 4, "d": 4},), {}, False),
        ("exists", ("d",), {}, 0),
        ("msetnx", ({"d": 4, "e": 5},), {}, True),
        ("exists", ("a", "a", "d", "missing"), {}, 3),
        ("touch", ("a", "missing"), {}, 1),
        ("dbsize", (), {}, 5),
        ("delete", ("a", "b", "missing"), {}, 2),
        ("unlink", ("c",), {}, 1),
        ("rename", ("d", "renamed"), {}, True),
        ("renamenx", ("renamed", "e"), {}, False),
        ("get", ("renamed",), {}, b"4"),
        ("type", ("renamed",), {}, b"string"),
        ("type", ("missing",), {}, b"none"),
        ("flushdb", (), {}, True),
        ("dbsize", (), {}, 0),
        ("randomkey", (), {}, None),
    ],
    "counters": [
        ("incr", ("n",), {}, 1),
        ("incr", ("n", 41), {}, 42),
        ("decr", ("n",), {}, 41),
        ("decrby", ("n", 50), {}, -9),
        ("incrby", ("n", 2**62), {}, 2**62 - 9),
        ("set", ("f", "10.5"), {}, True),
        ("incrbyfloat", ("f", 0.1), {}, 10.6),
        ("get", ("f",), {}, b"10.6"),
    ],
    "expiry": [
        ("set", ("k", "v"), {"ex": 100}, True),
        ("ttl", ("k",), {}, 100),
        ("persist", ("k",), {}, True),
        ("ttl", ("k",), {}, -1),
        ("ttl", ("missing",), {}, -2),
        ("expire", ("k", 50), {}, True),
        ("expire", ("k", 20), {"gt": True}, False),
        ("expire", ("k", 20), {"nx": True}, False),
        ("expire", ("k", 20), {"lt": True}, True),
        ("ttl", ("k",), {}, 20),
        ("expire", ("missing", 20), {}, False),
        ("getex", ("k",), {"ex": 70}, b"v"),
        ("ttl", ("k",), {}, 70),
        ("getex", ("k",), {"persist": True}, b"v"),
        ("pttl", ("k",), {}, -1),
        ("expireat", ("k", 4_000_000_000), {}, True),
        ("expiretime", ("k",), {}, 4_000_000_000),
        ("pexpiretime", ("k",), {}, 4_000_000_000_000),
        ("set", ("k", "w"), {"keepttl": True}, True),
        ("expiretime", ("k",), {}, 4_000_000_000),
        ("set", ("k", "x"), {}, True),
        ("ttl", ("k",), {}, -1),
        ("expire", ("k", -1), {}, True),
        ("exists", ("k",), {}, 0),
    ],
    "databases": [
        ("set", ("k", "here"), {}, True),
        ("execute_command", ("SELECT", 5), {}, True),
        ("get", ("k",), {}, None),
        ("set", ("k", "there"), {}, True),
        ("execute_command", ("SELECT", 0), {}, True),
        ("get", ("k",), {}, b"here"),
        ("flushall", (), {}, True),
        ("execute_command", ("SELECT", 5), {}, True),
        ("exists", ("k",), {}, 0),
    ],
    "bytes": [
        ("set", (ALL_BYTES, ALL_BYTES[::-1]), {}, True),
        ("get", (ALL_BYTES,), {}, ALL_BYTES[::-1]),
        ("set", (b"\r\n", b"$3\r\nGET\r\n"), {}, True),
        ("mget", ([b"\r\n", ALL_BYTES],), {}, [b"$3\r\nGET\r\n", ALL_BYTES[::-1]]),
        ("keys", (b"\r*",), {}, [b"\r\n"]),
        ("set", (b"k" * 65536, b"a long key"), {}, True),
        ("get", (b"k" * 65536,), {}, b"a long key"),
    ],
    "about the connection": [
        ("ping", (), {}, True),
        ("echo", ("hello",), {}, b"hello"),
        ("client_setname", ("checkout",), {}, True),
        ("client_no_touch", ("ON",), {}, b"OK"),
        ("config_get", ("appendonly",), {}, {"appendonly": "no"}),
    ],
}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(name, protocol, tenant):
    with connect(tenant, protocol=protocol, single_connection_client=True) as client:
        for method, arguments, named, expected in CONVERSATIONS[name]:
            answer = getattr(client, method)(*arguments, **named)
            assert answer == expected, f"{method} {arguments!r:.80} {named}"


# A command as it is sent, and the error that Redis answers. The tenant has a string `text` and a number `number`.
ERRORS = [
    (("NOSUCH", "a"), "unknown command 'NOSUCH', with args beginning with: 'a' "),
    (("GET",), "wrong number of arguments for 'get' command"),
    (("CLIENT", "NOSUCH"), "unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
    (("SET", "k", "v", "EX"), "syntax error"),
    (("SET", "k", "v", "EX", "0"), "invalid expire time in 'set' command"),
    (("SET", "k", "v", "EX", "soon"), "value is not an integer or out of range"),
    (("SET", "k", "v", "NX", "XX"), "syntax error"),
    (("INCR", "text"), "value is not an integer or out of range"),
    (("INCRBY", "number", "9223372036854775807"), "increment or decrement would overflow"),
    (("INCRBYFLOAT", "text", "1"), "value is not a valid float"),
    (("SETRANGE", "k", "-1", "v"), "offset is out of range"),
    (("EXPIRE", "text", "10", "NX", "GT"), "NX and XX, GT or LT options at the same time are not compatible"),
    (("RENAME", "missing", "k"), "no such key"),
    (("SELECT", "16"), "DB index is out of range"),
    (("SCAN", "0", "COUNT", "0"), "syntax error"),
    (("SCAN", "first"), "invalid cursor"),
    (("MSET", "a", "1", "b"), "wrong number of arguments for 'mset' command"),
    (("EXEC",), "EXEC without MULTI"),
    (("DISCARD",), "DISCARD without MULTI"),
]


@pytest.mark.parametrize("command,message", ERRORS, ids=[" ".join(command) for command, _ in ERRORS])
def test_errors(command, message, client):
    client.mset({"text": "words", "number": 10})
    with pytest.raises((ResponseError, DataError)) as refused:
        client.execute_command(*command)
    assert message in str(refused.value)
    # The connection goes on, and nothing was changed.
    assert client.mget("text", "number", "k") == [b"words", b"10", None]


def test_commands_that_are_not_offered_say_so(client):
    for command in [("HSET", "h", "f", "v"), ("XADD", "s", "*", "f", "v"), ("SUBSCRIBE", "c"), ("LPUSH", "l", "v")]:
        with pytest.raises(ResponseError, match="is not offered by Tidemark"):
            client.execute_command(*command)


@pytest.mark.parametrize("size", [0, 1, 16 << 10, 64 << 10, 256 << 10, VALUE_BYTES_MAX])
def test_values_of_all_sizes(size, client):
    value = (ALL_BYTES * (size // len(ALL_BYTES) + 1))[:size]
    assert client.set("large", value)
    assert client.strlen("large") == size
    assert client.get("large") == value
    assert client.mget(["large", "large"]) == [value, value]
    assert client.getrange("large", size // 2, size // 2 + 9) == value[size // 2 : size // 2 + 10]


def test_a_value_that_is_too_large_is_refused_and_changes_nothing(client):
    client.set("k", "before")
    with pytest.raises(ResponseError):
        client.set("k", bytes(VALUE_BYTES_MAX + 1))
    assert client.get("k") == b"before"
    client.set("k", bytes(VALUE_BYTES_MAX))
    with pytest.raises(ResponseError, match="maximum allowed size"):
        client.append("k", "x")
    assert client.strlen("k") == VALUE_BYTES_MAX


def test_a_key_that_is_too_long_is_refused(client):
    with pytest.raises(ResponseError):
        client.set(b"k" * 65537, "v")
    assert client.dbsize() == 0


def test_items_expire(client):
    client.set("k", "v", px=80)
    client.set("stays", "v", px=60_000)
    deadline = time.monotonic() + 10
    while client.exists("k"):
        assert time.monotonic() < deadline, "it never expired"
        time.sleep(0.01)
    assert client.get("k") is None
    assert client.mget("k", "stays") == [None, b"v"]


def test_a_pipeline_answers_in_order(client):
    with client.pipeline(transaction=False) as pipeline:
        for number in range(3000):
            pipeline.set(f"k{number}", number).get(f"k{number}").get("missing")
        answers = pipeline.execute()
    assert answers == [answer for number in range(3000) for answer in (True, str(number).encode(), None)]


def test_an_error_in_a_pipeline_is_the_answer_of_its_command_only(client):
    with client.pipeline(transaction=False) as pipeline:
        pipeline.set("k", "words").incr("k").get("k")
        answers = pipeline.execute(raise_on_error=False)
    assert answers[0] is True and isinstance(answers[1], ResponseError) and answers[2] == b"words"


def test_large_values_in_a_pipeline(client):
    values = {f"k{number}": bytes([number]) * (200 << 10) for number in range(20)}
    with client.pipeline(transaction=False) as pipeline:
        for key, value in values.items():
            pipeline.set(key, value)
        for key in values:
            pipeline.get(key)
        answers = pipeline.execute()
    assert answers == [True] * len(values) + list(values.values())


def test_a_transaction_is_done_or_not(client, tenant):
    with client.pipeline(transaction=True) as transaction:
        assert transaction.set("a", 1).incr("a").get("a").execute() == [True, 2, b"2"]
    with connect(tenant) as other, client.pipeline() as transaction:
        transaction.watch("a")
        other.set("a", "changed")
        transaction.multi()
        transaction.set("a", "lost")
        with pytest.raises(WatchError):
            transaction.execute()
    assert client.get("a") == b"changed"
    with client.pipeline() as transaction:
        transaction.watch("a", "missing")
        read = transaction.get("a")
        transaction.multi()
        transaction.set("copy", read)
        assert transaction.execute() == [True]
    assert client.get("copy") == b"changed"


def test_a_transaction_with_a_wrong_command_does_nothing(client):
    with client.pipeline(transaction=True) as transaction:
        transaction.set("k", "v")
        transaction.execute_command("GET", "k", "k")
        with pytest.raises(ResponseError):
            transaction.execute()
    assert client.get("k") is None


def test_counting_from_several_connections_loses_nothing(tenant):
    clients = [connect(tenant) for _ in range(5)]
    pipelines = [client.pipeline(transaction=False) for client in clients]
    for pipeline in pipelines:
        for _ in range(400):
            pipeline.incr("n")
    for pipeline in pipelines:
        pipeline.execute()
    assert clients[0].get("n") == b"2000"
    for client in clients:
        client.close()


def test_scan_finds_every_key(client):
    keys = {f"key:{number}".encode() for number in range(3000)}
    client.mset({key: "v" for key in keys})
    client.set("other", "v")
    assert set(client.scan_iter(match="key:*", count=100)) == keys
    beginnings = tuple(b"key:29%d" % digit for digit in range(5))
    assert set(client.keys("key:29[0-4]*")) == {key for key in keys if key.startswith(beginnings)}
    assert client.randomkey() in keys | {b"other"}


def test_who_and_what(client, tenant):
    assert client.acl_whoami() in (tenant.name, tenant.name.encode())
    info = client.info()
    assert info["loading"] == 0 and info["redis_mode"] == "standalone"
    assert client.client_id() in [int(listed["id"]) for listed in client.client_list()]
    # A list has subcommands, too, written `container|command`.
    commands = [name for name in client.command_list() if b"|" not in name]
    assert client.command_count() == len(commands)
    client.client_setname("checkout")
    assert client.client_getname() in ("checkout", b"checkout")
    seconds, microseconds = client.time()
    assert abs(time.time() - seconds - microseconds / 1e6) < 60
    assert client.role()[0] in ("master", b"master")


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_wrong_secret_opens_nothing(protocol, tenant):
    for options in [{"password": tenant.wrong_secret}, {"username": "nobody"}]:
        with connect(tenant, protocol=protocol, **options) as client, pytest.raises(AuthenticationError):
            client.ping()


def test_the_open_tenant_needs_no_login():
    address = harness.redis_address()
    with redis.Redis(address.host, address.port) as client:
        assert client.acl_whoami() in ("default", b"default")
        client.set("python-open", "v", ex=60)
        assert client.get("python-open") == b"v"


def test_tenants_do_not_see_each_other(client):
    other_tenant = harness.new_tenant()
    with connect(other_tenant) as other:
        client.set("k", "mine")
        assert other.get("k") is None
        other.set("k", "theirs")
        other.flushall()
        assert client.get("k") == b"mine"
        assert other.dbsize() == 0
        assert {entry["user"] for entry in other.client_list()} == {other_tenant.name}
    harness.remove_tenant(other_tenant)


def test_rotation_and_permissions(tenant):
    def rotate(*arguments):
        return harness.tidemark("tenant", "rotate", tenant.name, *arguments)["secret"]

    with connect(tenant) as writer, connect(tenant, password=rotate("--permissions", "read")) as reader:
        writer.set("k", "v")
        assert reader.get("k") == b"v"
        for method, arguments in [("set", ("k", "w")), ("delete", ("k",)), ("incr", ("n",)), ("flushall", ())]:
            with pytest.raises(NoPermissionError):
                getattr(reader, method)(*arguments)
        assert writer.get("k") == b"v"
    harness.tidemark("tenant", "rotate", tenant.name, "--finish")
    with connect(tenant) as client, pytest.raises(AuthenticationError):
        client.ping()


def test_a_removed_tenant_s_connections_end(client):
    made = harness.new_tenant()
    with connect(made, single_connection_client=True) as removed:
        removed.set("k", "v")
        harness.remove_tenant(made)
        with pytest.raises((redis.ConnectionError, ResponseError)):
            removed.get("k")
    assert client.ping()


def test_a_cap_is_kept(tenant):
    value = bytes(64 << 10)
    with connect(tenant) as client:
        for number in range(1024):
            client.set(number, value)
        newest = [client.get(number) is not None for number in range(1000, 1024)]
    shown = harness.tidemark("tenant", "show", tenant.name)
    assert shown["usage_bytes"] <= 32 * MIB
    assert all(newest), "what was written last was evicted"
    assert 0 < shown["items"] < 32 * MIB // len(value)
