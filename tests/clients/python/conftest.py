"""Fixtures: a tenant for each test."""

import pytest

import harness


@pytest.fixture
def tenant():
    """A new tenant, removed afterwards."""
    made = harness.new_tenant()
    yield made
    harness.remove_tenant(made)
