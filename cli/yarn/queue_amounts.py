"""Turns capacities of YARN, which are parts of what the parent has, into amounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from kornel.cli.yarn.capacity_file import Term
from kornel.shared.quantities import INT64_MAX
from kornel.shared.readable_amounts import write_quantity

Amounts = Mapping[str, int]
"""Amounts in base units by resource type: memory in whole MiB, cores in thousandths, others in whole ones."""

_SHARE: Final = "a capacity is a percentage or a weight; say of what with --cluster vcore=100,memory=400Gi"


def round_down(kind: str, amount: Fraction | int) -> int:
    """Returns *amount* without the part that a configuration does not write."""
    unit = 1 << 20 if kind == "memory" else 1
    return int(amount // unit) * unit


def share_guarantee(parent: Amounts, siblings: Sequence[Mapping[str, Term]]) -> list[dict[str, int]]:
    """Returns the guarantees of *siblings*, in order: amounts come first, percentages are of what these leave, and
    weights share the rest. They are rounded so that they add up. Raises ``ValueError`` for a part of something
    unknown."""
    types = {name for terms in siblings for name in terms if name} | set(parent)
    if any(term.unit and term.number for terms in siblings for name, term in terms.items() if name not in parent):
        if not parent:
            raise ValueError(_SHARE)
        types.discard("")
    found: list[dict[str, int]] = [{} for _ in siblings]
    for kind in types:
        terms = [each.get(kind) or each.get("") for each in siblings]
        amount, percent, weight = (_add_up(terms, unit) for unit in ("", "%", "w"))
        left = max(parent.get(kind, 0) - amount, Fraction(0))
        whole = percent if abs(100 - percent) < 1 else 100  # YARN takes 33.3 three times for the whole.
        shared = left * (1 - percent / whole)
        total = Fraction(0)
        for amounts, term in zip(found, terms, strict=True):
            if term is None or not term.number:
                continue
            parts = {"%": left * term.number / whole, "w": shared * term.number / (weight or 1), "": term.number}
            share = parts[term.unit]
            amounts[kind] = round_down(kind, total + share) - round_down(kind, total)
            total += share
    return found


def _add_up(terms: Sequence[Term | None], unit: str) -> Fraction:
    return sum((term.number for term in terms if term is not None and term.unit == unit), Fraction(0))


def find_max(parent: Amounts, terms: Mapping[str, Term]) -> dict[str, int]:
    """Returns the max of a queue whose parent's is *parent*, rounded up, for all types that are limited. Raises
    ``ValueError`` for a part of something unknown."""
    found = dict(parent)
    for kind in (set(parent) | set(terms)) - {""}:
        term = terms.get(kind) or terms.get("")
        if term is not None and not term.unit:
            found[kind] = min(-round_down(kind, -term.number), parent.get(kind, INT64_MAX))
        elif term is not None and kind in parent:
            found[kind] = -round_down(kind, -parent[kind] * min(term.number, Fraction(100)) / 100)
    whole = terms.get("")
    if not parent and whole is not None and whole.unit and whole.number < 100:
        raise ValueError(_SHARE)
    return found


def write_amounts(amounts: Amounts) -> dict[str, int | str]:
    """Returns *amounts* as a configuration writes them."""
    texts = {kind: write_quantity(kind, amounts[kind]) for kind in sorted(amounts, reverse=True)}
    return {kind: int(text) if text.isdigit() else text for kind, text in texts.items()}
