"""Cases of the contract, and the list of all of them.

A case is a coroutine function with a :class:`~kornel.conformance.bench.Bench` as argument. Its name says what it tests,
and its number is that of the contract. It passes by returning, and fails by raising
:class:`~kornel.conformance.outcome.Mismatch`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kornel.conformance.bench import Bench

Script: TypeAlias = Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """A numbered rule of the contract, and the script that tests it.

    rule     the reference of the rule
    group    the module of :mod:`kornel.conformance.cases` that has the case
    waits_s  the time that must pass at the core; without a test clock, a case that needs too much time is a gap
    """

    number: int
    title: str
    rule: str
    group: str
    script: Script
    waits_s: float = 0.0

    @property
    def id(self) -> str:
        return str(self.number)


_CASES: dict[int, Case] = {}


def case(number: int, title: str, *, rule: str, waits_s: float = 0.0) -> Callable[[Script], Script]:
    """Registers the decorated script as case *number*. Raises ValueError if that number is taken."""

    def enter_case(script: Script) -> Script:
        if number in _CASES:
            raise ValueError(f"two cases have the number {number}")
        group = script.__module__.rpartition(".")[2]
        _CASES[number] = Case(number, title, rule, group, script, waits_s)
        return script

    return enter_case


def all_cases() -> tuple[Case, ...]:
    """Returns every case, by number."""
    from kornel.conformance import cases  # noqa: PLC0415  # the modules of cases import this one

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"{cases.__name__}.{module.name}")
    return tuple(_CASES[number] for number in sorted(_CASES))


def case_numbers(text: str) -> range:
    """Returns the case numbers in a text such as "73" or "73-100". Raises ValueError for any other text."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise ValueError(f"{text!r} is neither a case number nor a range such as 73-100")
    return range(int(first), int(last if dash else first) + 1)


def select_cases(cases: Iterable[Case], chosen: Iterable[str] = (), groups: Iterable[str] = ()) -> tuple[Case, ...]:
    """Returns the cases *chosen* by number or range and those of *groups*, or all cases if neither is given.

    Raises ValueError for a number, range or group in which there is no case.
    """
    known = tuple(cases)
    wanted: set[int] = set()
    for text in chosen:
        found = {each.number for each in known}.intersection(case_numbers(text))
        if not found:
            raise ValueError(f"there is no case {text}")
        wanted |= found
    among = set(groups)
    if missing := among - {each.group for each in known}:
        raise ValueError(f"there is no group {', '.join(sorted(missing))}")
    if not wanted and not among:
        return known
    return tuple(each for each in known if each.number in wanted or each.group in among)
