"""One core for the attacks that need no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.attacked import AttackedCore, attacked_core


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core as somebody starts it on their own machine: loopback, no identities."""
    with attacked_core(tmp_path_factory.mktemp("core")) as attacked:
        yield attacked
