"""Fixtures: a tenant for each test."""

import pytest

import harness


@pytest.fixture
def tenant():
    """A new tenant, removed afterwards."""
    made = harness.new_tenant()
    yield made
    harness.remove_tenant(made)


@pytest.fixture
def listener():
    """The address at which memcached clients are the tenant `listener` without a login; the tenant is removed afterwards."""
    harness.tidemark("tenant", "create", "listener", "--cap", "32MiB")
    yield harness.Address.of("TEST_LISTENER")
    harness.tidemark("tenant", "remove", "listener", "--yes")
