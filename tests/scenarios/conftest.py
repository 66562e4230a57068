"""The flag that rewrites what scenarios expect, and a look at what applications share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kornel.core.model import applications
from kornel.core.model.orders import group_order

SHARED = (
    applications.NOBODY_WAITS, applications.NOTHING_LENT, applications.NOTHING_SPENT, applications.NO_GROUPS,
    applications.NO_REQUESTS, applications.NO_TASK_GROUPS, group_order.NONE_OFFERED, group_order.NO_ENTRIES,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _shared_containers_stay_empty() -> Iterator[None]:
    """Whatever is put into one of them would be in all applications."""
    yield
    assert not any(SHARED)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/scenarios --rewrite``: write down what the core answers now, to be read as a diff."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected lines of text scenarios")
