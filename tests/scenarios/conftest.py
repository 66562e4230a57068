"""The flag that rewrites what scenarios expect."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/scenarios --rewrite``: write down what the core answers now, to be read as a diff."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected lines of text scenarios")
