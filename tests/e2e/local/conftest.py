"""One server for the tests that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.local.harness import Local, running_local


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """A server whose machine offers four cores, an amount of memory, and two made-up GPUs."""
    folder = tmp_path_factory.mktemp("local")
    with running_local(folder / "s", "--name", "here", "--vcore", "4", "--memory", "8Gi", "--gpu", "2") as local:
        yield local
