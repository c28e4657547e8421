"""Libraries that need scripts, unchanged: redis-py's locks, and django-redis with its locks and counters."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from django.conf import settings
from django.core.cache import caches
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError, ResponseError

import harness

if not settings.configured:
    settings.configure()


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request, tenant):
    address = harness.redis_address()
    options = {"username": tenant.name, "password": tenant.secret, "retry": None, "protocol": request.param}
    with redis.Redis(address.host, address.port, socket_timeout=20, **options) as connected:
        yield connected


@pytest.fixture
def cache(tenant):
    """A Django cache of the tenant's, as a project's settings say it."""
    address = harness.redis_address()
    location = f"redis://{tenant.name}:{tenant.secret}@{address.host}:{address.port}/0"
    name = tenant.name
    caches.settings[name] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location}
    yield caches[name]
    caches[name].close()


def test_a_lock_is_released_by_its_owner_alone(client):
    lock = client.lock("lock", timeout=30)
    assert lock.acquire()
    other = client.lock("lock", timeout=30, blocking=False)
    assert not other.acquire()
    assert lock.extend(30) and 30_000 < client.pttl("lock") <= 60_000
    assert lock.reacquire() and client.pttl("lock") <= 30_000
    client.set("lock", "somebody else's", keepttl=True)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    client.delete("lock")
    with client.lock("lock", timeout=30) as again:
        assert again.owned()
    assert not client.exists("lock")
    with pytest.raises(LockError):
        again.release()


def test_registered_scripts_come_back_when_they_are_forgotten(client):
    double = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1]) * 2")
    assert double(keys=["n"], args=[5]) == 10
    assert client.script_exists(double.sha) == [True]
    client.script_flush()
    with pytest.raises(NoScriptError):
        client.evalsha(double.sha, 1, "n", 5)
    assert double(keys=["n"], args=[5]) == 20
    assert client.eval_ro("return {KEYS[1], redis.call('get', KEYS[1])}", 1, "n") == [b"n", b"10"]
    with pytest.raises(ResponseError, match="not in KEYS"):
        client.eval("return redis.call('get', 'other')", 0)


def test_django_counts_every_increment(cache):
    cache.set("n", 0)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: cache.incr("n"), range(400)))
    assert cache.get("n") == 400
    assert cache.decr("n", 100) == 300
    with pytest.raises(ValueError, match="not found"):
        cache.incr("nothing")


def test_django_locks(cache):
    with cache.lock("job", timeout=30) as lock:
        assert not cache.lock("job", timeout=30, blocking=False).acquire()
        assert lock.extend(5)
    assert cache.lock("job", timeout=30, blocking=False).acquire()
