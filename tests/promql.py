"""What PromQL expressions refer to: as much of the language as dashboards and alerts here use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SELECTOR = re.compile(r"\b((?:kornel|yunikorn|process|go)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_LABEL_VALUES = re.compile(r"^label_values\((.*),\s*(\w+)\)$")

OF_THE_SCRAPE = frozenset({"job", "instance"})
"""Labels that Prometheus adds to everything."""


class Selector(NamedTuple):
    """A metric, and what its labels are held against: (label, operator, value)."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


def selectors(expression: str) -> Iterator[Selector]:
    """Every metric that *expression* names."""
    for found in _SELECTOR.finditer(re.sub(r"\b(?:by|on)\s*\([^)]*\)", " ", expression)):
        yield Selector(found.group(1), tuple(_MATCHER.findall(found.group(2) or "")))


def grouped_by(expression: str) -> set[str]:
    """Labels that *expression* groups or joins by."""
    return {label.strip() for found in _GROUPING.findall(expression) for label in found.split(",")}


def label_values(query: str) -> tuple[str, str] | None:
    """The selector and the label of a query for a variable; ``None``: it is no such query."""
    found = _LABEL_VALUES.match(query)
    return (found.group(1), found.group(2)) if found is not None else None
