"""Reads the text format of Prometheus sample by sample, names as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_A-Z]+="(?:\\.|[^"\\])*",?)*)\})? (\S+)$')
_LABEL = re.compile(r'([a-z_A-Z]+)="((?:\\.|[^"\\])*)"')
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(NamedTuple):
    """One line. ``labels``: (name, value), by name."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def types(text: str) -> dict[str, str]:
    """The type of each metric. Fails if one is told of twice."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in found, f"{name} comes twice"
            found[name] = kind
    return found


def parse(text: str) -> Iterator[Sample]:
    """All samples. Fails at a line that is none."""
    for line in text.splitlines():
        if not line.startswith("#"):
            matched = _SAMPLE.match(line)
            assert matched is not None, f"not a sample: {line}"
            name, labels, value = matched.groups()
            pairs = sorted((key, _unescaped(of)) for key, of in _LABEL.findall(labels or ""))
            yield Sample(name, tuple(pairs), float(value))


def by_key(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and values of labels, in the order of their labels. Fails if a sample is there twice."""
    found: dict[tuple[str, ...], float] = {}
    for sample in parse(text):
        key = (sample.name, *(value for _, value in sample.labels))
        assert key not in found, f"{key} is there twice"
        found[key] = sample.value
    return found


def _unescaped(value: str) -> str:
    return re.sub(r'\\[\\"n]', lambda found: _ESCAPED[found.group()], value)
