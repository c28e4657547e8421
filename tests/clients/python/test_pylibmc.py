"""pylibmc (libmemcached, as Django and Flask use it) in text mode against a tenant's listener: an address, and no login."""

from concurrent.futures import ThreadPoolExecutor

import pylibmc
import pytest

import harness
from harness import VALUE_BYTES_MAX


def connect(listener, **behaviors):
    return pylibmc.Client([str(listener)], binary=False, behaviors={"tcp_nodelay": True, **behaviors})


@pytest.fixture
def client(listener):
    connected = connect(listener, cas=True)
    yield connected
    connected.disconnect_all()


# The calls to one tenant, in order: method, arguments, result.
CALLS = [
    ("get", ("k",), None),
    ("set", ("k", b"v"), True),
    ("get", ("k",), b"v"),
    ("add", ("k", b"w"), False),
    ("add", ("new", "w", 60), True),
    ("get", ("new",), "w"),
    ("replace", ("k", b"x"), True),
    ("replace", ("missing", b"x"), False),
    ("append", ("k", b"y"), True),
    ("prepend", ("k", b"w"), True),
    ("get", ("k",), b"wxy"),
    ("touch", ("k", 60), True),
    ("touch", ("missing", 60), False),
    ("delete", ("k",), True),
    ("delete", ("k",), False),
    ("set", ("n", 41), True),
    ("incr", ("n",), 42),
    ("decr", ("n", 2), 40),
    ("get", ("n",), 40),
    ("set", ("list", [1, "two", None]), True),
    ("get", ("list",), [1, "two", None]),
    ("set_multi", ({"a": "1", "b": "2"}, 60, "p:"), []),
    ("get_multi", (["a", "b", "none"], "p:"), {"a": "1", "b": "2"}),
    ("delete_multi", (["p:a", "p:b"],), True),
    ("get_multi", (["p:a", "p:b"],), {}),
    ("flush_all", (), True),
    ("get", ("n",), None),
]


def test_usual_operations(client):
    for step, (method, arguments, result) in enumerate(CALLS):
        assert getattr(client, method)(*arguments) == result, f"{step}: {method}{arguments}"


def test_compare_and_swap(client):
    client.set("k", "first")
    value, token = client.gets("k")
    assert value == "first"
    assert client.cas("k", "second", token)
    assert not client.cas("k", "lost", token)
    assert client.get("k") == "second"


@pytest.mark.parametrize("size", [0, 1, 64 << 10, VALUE_BYTES_MAX])
def test_values_are_binary_and_of_all_sizes(client, size):
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert client.set("large", value)
    assert client.get("large") == value


def test_what_is_refused_is_an_error_of_the_library_s(client):
    with pytest.raises(pylibmc.NotFound):
        client.incr("missing")
    with pytest.raises(pylibmc.Error):
        client.set("k", bytes(VALUE_BYTES_MAX + 1))
    assert client.set("k", "after") and client.get("k") == "after"


def test_many_threads_share_a_pool(listener):
    pool = pylibmc.ThreadMappedPool(connect(listener))
    with pool.reserve() as client:
        client.set("n", 0)

    def add(_):
        with pool.reserve() as client:
            return client.incr("n")

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(add, range(400))) == list(range(1, 401))


def test_the_keys_and_the_figures_are_the_tenant_s(client, listener):
    client.set("of-the-listener-alone", "v")
    client.get("of-the-listener-alone")
    [(_, statistics)] = client.get_stats()
    assert (statistics["curr_items"], statistics["get_hits"]) == (b"1", b"1")
    address = harness.memcached_address()
    elsewhere = connect(address)
    assert elsewhere.get("of-the-listener-alone") is None
