"""pymemcache against the server: log in, the common commands, many keys at once, flags and compare-and-swap, errors."""

import socket
import time

import pytest
import redis
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

import harness
from harness import VALUE_BYTES_MAX


def connect(tenant, secret=None, **options):
    """A client of the tenant: memcached's login is a `set` whose value is name and secret, as the first command."""
    address = harness.memcached_address()
    client = Client((address.host, address.port), timeout=10, default_noreply=False, **options)
    client.set("auth", f"{tenant.name} {secret or tenant.secret}".encode())
    return client


def test_a_tenant_s_listener_needs_no_login():
    """As an application is configured that knows no logins: an address, and no more."""
    made = harness.tidemark("tenant", "create", "listener", "--cap", "32MiB")
    try:
        address = harness.Address.of("TEST_LISTENER")
        client = Client((address.host, address.port), timeout=10, default_noreply=False)
        assert client.set("k", b"v")
        assert client.get("k") == b"v"
        assert client.stats()[b"curr_items"] == 1
        client.close()
        logged_in = connect(harness.Tenant("listener", made["secret"]))
        assert logged_in.get("k") == b"v"
        logged_in.close()
    finally:
        harness.tidemark("tenant", "remove", "listener", "--yes")


@pytest.fixture
def client(tenant):
    connected = connect(tenant)
    yield connected
    connected.close()


# The calls to one tenant, in order: method, arguments, result.
CONVERSATIONS = {
    "storing": [
        ("get", ("k",), None),
        ("set", ("k", b"v"), True),
        ("get", ("k",), b"v"),
        ("add", ("k", b"w"), False),
        ("add", ("new", b"w"), True),
        ("replace", ("k", b"x"), True),
        ("replace", ("missing", b"x"), False),
        ("append", ("k", b"y"), True),
        ("prepend", ("k", b"w"), True),
        ("get", ("k",), b"wxy"),
        ("append", ("missing", b"y"), False),
        ("delete", ("k",), True),
        ("delete", ("k",), False),
        ("set", ("empty", b""), True),
        ("get", ("empty",), b""),
        ("get", ("missing", b"instead"), b"instead"),
        ("set", ("k" * 250, b"the longest key"), True),
        ("get", ("k" * 250,), b"the longest key"),
    ],
    "many keys": [
        ("set_many", ({"a": b"1", "b": b"2"},), []),
        ("get_many", (["a", "missing", "b"],), {"a": b"1", "b": b"2"}),
        ("delete_many", (["a", "missing"],), True),
        ("get_many", (["a", "b"],), {"b": b"2"}),
        ("flush_all", (), True),
        ("get_many", (["a", "b"],), {}),
    ],
    "counters": [
        ("set", ("n", b"41"), True),
        ("incr", ("n", 1), 42),
        ("decr", ("n", 50), 0),
        ("incr", ("missing", 1), None),
        ("set", ("n", b"18446744073709551615"), True),
        ("incr", ("n", 1), 0),
    ],
    "expiry": [
        ("set", ("k", b"v", 100), True),
        ("touch", ("k", 200), True),
        ("touch", ("missing", 200), False),
        ("touch", ("k", -1), True),
        ("get", ("k",), None),
        ("set", ("k", b"v", -1), True),
        ("get", ("k",), None),
        ("set", ("k", b"v", 4_000_000_000), True),
        ("get", ("k",), b"v"),
    ],
    "compare and swap": [
        ("gets", ("missing",), (None, None)),
        ("cas", ("missing", b"v", b"1"), None),
        ("set", ("k", b"v"), True),
    ],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(name, client):
    for method, arguments, expected in CONVERSATIONS[name]:
        assert getattr(client, method)(*arguments) == expected, f"{method} {arguments!r:.80}"


def test_a_swap_fails_after_another_write(client, tenant):
    client.set("k", b"first")
    value, token = client.gets("k")
    assert value == b"first"
    assert client.cas("k", b"second", token) is True
    assert client.cas("k", b"third", token) is False
    other = connect(tenant)
    _, token = client.gets("k")
    other.set("k", b"second")
    assert client.cas("k", b"third", token) is False
    assert client.get("k") == b"second"
    other.close()


class Flagged:
    """Keeps the type of a value in its flags, as pymemcache's users do."""

    def serialize(self, _key, value):
        return (value, 0xFFFFFFFF) if isinstance(value, bytes) else (str(value).encode(), 7)

    def deserialize(self, _key, value, flags):
        assert flags in (0xFFFFFFFF, 7)
        return value if flags == 0xFFFFFFFF else int(value)


def test_flags_come_back(tenant):
    client = connect(tenant)
    # From here on: the login's own value is none of ours.
    client.serde = Flagged()
    assert client.set_many({"text": b"12", "number": 12}) == []
    assert client.get_many(["text", "number"]) == {"text": b"12", "number": 12}
    client.close()


def test_values_are_binary(client):
    value = bytes(range(256)) + b"\r\nEND\r\n"
    assert client.set("k", value)
    assert client.get_many(["k", "missing"]) == {"k": value}


@pytest.mark.parametrize("size", [0, 1, 16 << 10, 64 << 10, 256 << 10, VALUE_BYTES_MAX])
def test_values_of_all_sizes(size, client):
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert client.set("large", value)
    assert client.get("large") == value
    client.set("small", b"v")
    assert client.get_many(["large", "missing", "small"]) == {"large": value, "small": b"v"}


def test_a_value_that_is_too_large_is_refused(client, tenant):
    client.set("k", b"before")
    with pytest.raises(MemcacheServerError, match="too large"):
        client.set("k", bytes(VALUE_BYTES_MAX + 1))
    # The client closes its connection on such an error, and would go on without a login. That the server keeps the
    # connection is shown to the byte below.
    again = connect(tenant)
    assert again.get("k") is None, "nothing stale is served after a refusal"
    assert again.set("k", b"after") and again.get("k") == b"after"
    again.close()


# The bytes that a client sends, and the bytes of the answer.
BYTES = {
    "wrong commands": [
        (b"nonsense\r\n", b"ERROR\r\n"),
        (b"get\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"set text 0 0 5\r\nwords\r\n", b"STORED\r\n"),
        (b"incr text 1\r\n", b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        (b"incr text much\r\n", b"CLIENT_ERROR invalid numeric delta argument\r\n"),
        (b"touch text soon\r\n", b"CLIENT_ERROR invalid exptime argument\r\n"),
        (b"get " + b"k" * 251 + b"\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        # Words too many are ignored; the body is a value, never a command.
        (b"set text 0 0 9 a b\r\nflush_all\r\n", b"STORED\r\n"),
        (b"get text\r\n", b"VALUE text 0 9\r\nflush_all\r\nEND\r\n"),
    ],
    "a value that is too large": [
        (b"set k 0 0 6\r\nbefore\r\n", b"STORED\r\n"),
        (
            b"set k 0 0 %d\r\n%s\r\nget k\r\n" % (VALUE_BYTES_MAX + 1, bytes(VALUE_BYTES_MAX + 1)),
            b"SERVER_ERROR object too large for cache\r\nEND\r\n",
        ),
        (b"ms k 5\r\nafter\r\nget k\r\n", b"HD\r\nVALUE k 0 5\r\nafter\r\nEND\r\n"),
    ],
    "get and touch": [
        (b"set k 7 100 1\r\nv\r\n", b"STORED\r\n"),
        (b"gat 200 k missing\r\n", b"VALUE k 7 1\r\nv\r\nEND\r\n"),
        (b"mg k t\r\n", b"HD t200\r\n"),
        (b"gat -1 k\r\n", b"VALUE k 7 1\r\nv\r\nEND\r\n"),
        (b"get k\r\n", b"END\r\n"),
    ],
    "meta commands": [
        (b"mn\r\n", b"MN\r\n"),
        (b"ms k 2 T100 F5\r\nab\r\n", b"HD\r\n"),
        (b"mg k s v t f\r\n", b"VA 2 s2 t100 f5\r\nab\r\n"),
        (b"mg missing v\r\n", b"EN\r\n"),
        (b"mg missing v q\r\nmg k Oq1 k\r\nmn\r\n", b"HD Oq1 kk\r\nMN\r\n"),
        (b"ms n 1\r\n5\r\n", b"HD\r\n"),
        (b"ma n v\r\n", b"VA 1\r\n6\r\n"),
        (b"ma n v D4 MD\r\n", b"VA 1\r\n2\r\n"),
        (b"ms a2V5 2 b\r\nab\r\n", b"HD\r\n"),
        (b"get key\r\n", b"VALUE key 0 2\r\nab\r\nEND\r\n"),
        (b"md k q\r\nmd k\r\n", b"NF\r\n"),
        (b"mg fresh v N30\r\n", b"VA 0 W\r\n\r\n"),
        (b"mg fresh v N30\r\n", b"VA 0 Z\r\n\r\n"),
    ],
}


@pytest.mark.parametrize("name", BYTES)
def test_answers_to_the_byte(name, tenant):
    address = harness.memcached_address()
    login = f"{tenant.name} {tenant.secret}".encode()
    steps = [(b"set auth 0 0 %d\r\n%s\r\n" % (len(login), login), b"STORED\r\n"), *BYTES[name]]
    with socket.create_connection((address.host, address.port), timeout=10) as connection:
        answers = connection.makefile("rb")
        for sent, expected in steps:
            connection.sendall(sent)
            assert answers.read(len(expected)) == expected, sent
        connection.sendall(b"quit\r\n")
        assert answers.read() == b""


def test_noreply_is_the_answer_of_nothing(tenant):
    client = connect(tenant)
    for number in range(500):
        client.set("n", str(number).encode(), noreply=True)
        client.incr("n", 1, noreply=True)
        client.touch("n", 60, noreply=True)
        client.append("missing", b"x", noreply=True)
        client.delete("missing", noreply=True)
    assert client.get("n") == b"500"
    client.flush_all(noreply=True)
    assert client.get("n") is None
    client.close()


def test_a_thousand_keys_at_once(client):
    values = {f"k{number}": b"%d" % number for number in range(1000)}
    assert client.set_many(values) == []
    assert client.get_many([*values, "missing"]) == values


def test_items_expire(client):
    client.set("k", b"v", expire=1)
    client.set("stays", b"v", expire=60)
    deadline = time.monotonic() + 10
    while client.get("k") is not None:
        assert time.monotonic() < deadline, "it never expired"
        time.sleep(0.02)
    assert client.get("stays") == b"v"


def test_statistics_are_the_tenant_s(client):
    client.set("k", b"v")
    client.get("k")
    client.get("missing")
    statistics = client.stats()
    assert statistics[b"get_hits"] == 1 and statistics[b"get_misses"] == 1 and statistics[b"curr_items"] == 1
    assert statistics[b"limit_maxbytes"] == 32 << 20
    assert client.stats("settings")[b"item_size_max"] == VALUE_BYTES_MAX
    assert client.version()


def test_a_wrong_secret_opens_nothing(tenant):
    with pytest.raises(MemcacheClientError, match="authentication failure"):
        connect(tenant, tenant.wrong_secret)
    address = harness.memcached_address()
    open_client = Client((address.host, address.port), timeout=10)
    assert open_client.get("auth") is None
    open_client.close()


def test_both_protocols_see_the_same_keys(client, tenant):
    address = harness.redis_address()
    login = {"username": tenant.name, "password": tenant.secret}
    with redis.Redis(address.host, address.port, **login) as redis_client:
        client.set("k", b"from memcached", expire=100)
        assert redis_client.get("k") == b"from memcached"
        assert 0 < redis_client.ttl("k") <= 100
        redis_client.set("k", "from redis")
        assert client.get("k") == b"from redis"
        redis_client.incr("n")
        assert client.incr("n", 1) == 2
        redis_client.delete("k")
        assert client.get("k") is None
        redis_client.execute_command("SELECT", 1)
        redis_client.set("elsewhere", "v")
    assert client.get("elsewhere") is None
