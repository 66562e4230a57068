"""What the tests of the architecture have read is forgotten behind them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.trees import forget_trees


@pytest.fixture(scope="package", autouse=True)
def _trees_are_forgotten() -> Iterator[None]:
    yield
    forget_trees()
