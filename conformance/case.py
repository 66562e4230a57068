"""What a case is, and the list of all of them.

A case is a coroutine function that takes a :class:`~conformance.bench.Bench`, named after what it shows and numbered as
in the contract. It passes by returning, and fails by raising :class:`~conformance.outcome.Mismatch`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from conformance.bench import Bench

Script: TypeAlias = Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """A numbered rule of the contract and the script that tries it.

    group    module of :mod:`conformance.cases` it is in
    waits_s  time that must pass for the core; what a real clock will not wait for is skipped
    """

    number: int
    title: str
    group: str
    script: Script
    waits_s: float = 0.0


_CASES: dict[int, Case] = {}


def case(number: int, title: str, *, waits_s: float = 0.0) -> Callable[[Script], Script]:
    """Enter the decorated script as case *number*. Raises ValueError when that number is taken."""

    def enter(script: Script) -> Script:
        if number in _CASES:
            raise ValueError(f"two cases have the number {number}")
        group = script.__module__.rpartition(".")[2]
        _CASES[number] = Case(number, title, group, script, waits_s)
        return script

    return enter


def all_cases() -> tuple[Case, ...]:
    """Every case, by number."""
    from conformance import cases  # noqa: PLC0415  # the modules of cases import this one

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"{cases.__name__}.{module.name}")
    return tuple(_CASES[number] for number in sorted(_CASES))
