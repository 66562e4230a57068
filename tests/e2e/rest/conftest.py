"""Clusters to ask over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.rest.shim import TREE, Cluster, rest_cluster


@pytest.fixture
async def fresh() -> AsyncIterator[Cluster]:
    """A core of which nobody has made anything yet."""
    async with rest_cluster() as cluster:
        yield cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Manager rm-1 with the queues root.default and root.a.a1."""
    async with rest_cluster() as cluster:
        await cluster.register(TREE)
        yield cluster
