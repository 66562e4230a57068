"""Turns capacities of YARN, which are parts of what the parent has, into amounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from kornel.cli.yarn.capacity_file import Term

Amounts = Mapping[str, Fraction]
"""Amounts in base units by resource type, not rounded yet, so that those of children add up."""

_SHARE: Final = "a capacity is a percentage or a weight; say of what with --cluster vcore=100,memory=400Gi"
_UNITS: Final = ((1 << 30, "Gi"), (1 << 20, "Mi"))


def share_guarantee(parent: Amounts, siblings: Sequence[Mapping[str, Term]]) -> list[dict[str, Fraction]]:
    """Returns the guarantees of *siblings*, in order: amounts come first, percentages are of what these leave, and
    weights share the rest. Raises ``ValueError`` for a part of something unknown."""
    types = {name for terms in siblings for name in terms if name} | set(parent)
    if any(term.unit and term.number for terms in siblings for name, term in terms.items() if name not in parent):
        if not parent:
            raise ValueError(_SHARE)
        types.discard("")
    found: list[dict[str, Fraction]] = [{} for _ in siblings]
    for kind in types:
        terms = [each.get(kind) or each.get("") for each in siblings]
        amount, percent, weight = (_add_up(terms, unit) for unit in ("", "%", "w"))
        left = parent.get(kind, Fraction(0)) - amount
        shared = left * (1 - percent / 100)
        for amounts, term in zip(found, terms, strict=True):
            if term is None or not term.number:
                continue
            match term.unit:
                case "%":
                    amounts[kind] = left * term.number / 100
                case "w":
                    amounts[kind] = shared * term.number / weight
                case _:
                    amounts[kind] = term.number
    return found


def _add_up(terms: Sequence[Term | None], unit: str) -> Fraction:
    return sum((term.number for term in terms if term is not None and term.unit == unit), Fraction(0))


def find_max(parent: Amounts, terms: Mapping[str, Term]) -> dict[str, Fraction]:
    """Returns the max of a queue whose parent's is *parent*, for all types that are limited. Raises ``ValueError`` for
    a part of something unknown."""
    found: dict[str, Fraction] = dict(parent)
    for kind in (set(parent) | set(terms)) - {""}:
        term = terms.get(kind) or terms.get("")
        if term is not None and not term.unit:
            found[kind] = min(term.number, parent.get(kind, term.number))
        elif term is not None and kind in parent:
            found[kind] = parent[kind] * min(term.number, Fraction(100)) / 100
    whole = terms.get("")
    if not parent and whole is not None and whole.unit and whole.number < 100:
        raise ValueError(_SHARE)
    return found


def write_amounts(amounts: Amounts) -> dict[str, int | str]:
    """Returns *amounts* as a configuration writes them, rounded down: memory to MiB, cores to thousandths."""
    return {kind: _write_amount(kind, amounts[kind]) for kind in sorted(amounts, reverse=True)}


def _write_amount(kind: str, amount: Fraction) -> int | str:
    if kind == "vcore":
        cores, thousandths = divmod(int(amount), 1000)
        return f"{int(amount)}m" if thousandths else cores
    if kind == "memory":
        whole = int(amount) >> 20 << 20
        return next((f"{whole // size}{unit}" for size, unit in _UNITS if whole % size == 0), whole)
    return int(amount)
