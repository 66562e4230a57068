"""A server of kornel-local, and who has run what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.local.harness import Local, running_local


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A machine of four cores with the built-in queues."""
    with running_local(tmp_path / "s", "--name", "here", "--vcore", "4", "--memory", "64Gi", real=True) as local:
        yield local
