"""The common part of the tests: the address of the server, and tenants made for one test each through the command line.

The server is started by scripts/with-server, which says where it is in the environment.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from itertools import count
from pathlib import Path

MIB = 1 << 20
# The largest value that the server takes by default.
VALUE_BYTES_MAX = MIB

_numbers = count(1)


@dataclass(frozen=True)
class Address:
    """The address of a listener."""

    host: str
    port: int

    @classmethod
    def of(cls, variable):
        """The address in an environment variable of scripts/with-server, IP:port."""
        host, _, port = os.environ[variable].rpartition(":")
        return cls(host, int(port))

    def __str__(self):
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Tenant:
    """A tenant as its clients know it."""

    name: str
    secret: str

    @property
    def wrong_secret(self):
        """A secret of the right form that is not this tenant's."""
        return self.secret[:-1] + ("A" if self.secret[-1] != "A" else "B")


def redis_address():
    return Address.of("TEST_REDIS")


def memcached_address():
    return Address.of("TEST_MEMCACHED")


def admin_address():
    return Address.of("TEST_ADMIN")


def admin_token():
    """The token that calls of the admin API over TCP carry."""
    return (Path(os.environ["TIDEMARK_DATA"]) / "admin.token").read_text().strip()


def tidemark(*arguments):
    """Runs the command line; what it prints, as JSON."""
    command = [os.environ["TEST_TIDEMARK"], "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return json.loads(done.stdout) if done.stdout.strip() else None


def new_tenant():
    """A tenant that no other test knows."""
    name = f"python-{os.getpid()}-{next(_numbers)}"
    return Tenant(name, tidemark("tenant", "create", name, "--cap", "32MiB")["secret"])


def remove_tenant(tenant):
    tidemark("tenant", "remove", tenant.name, "--yes")
