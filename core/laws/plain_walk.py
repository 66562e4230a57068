"""Checks the law for every kind of preemption that nobody leaves where milder ones would do (preemption.md A, law 8).

A plan is held against the plain walk over the same node or leaf: in order, the mildest first, take each who lowers an
unmet need and whom the other laws let go after those already taken; stop when the needs are met; then, last taken
first, give back whoever is not needed. Sorted worst first, the victims of the plan must nowhere be worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kornel.core.laws.verdict import Law, Violation

Order = tuple[Any, ...]
"""The sort key of a victim by the rules of a kind, unique in a plan; the smaller one is milder."""


class Need(Protocol):
    """Something that has to be freed."""

    def left_after(self, gone: Sequence[str]) -> int:
        """Returns how much is still missing once the tasks *gone*, by key, have left; 0 or less: it is met."""

    def may_serve(self, key: str) -> bool:
        """Tells whether the task called *key* frees some of it, and may be taken for it."""


def check(
    needs: Sequence[Need],
    orders: Mapping[str, Order],
    may_go: Callable[[Sequence[str]], bool],
    victims: Mapping[str, Order],
) -> Iterator[Violation]:
    """Yields a breach if the walk over the tasks in *orders*, by key, ends with milder ones than *victims*. Whether one
    of these could be left out is another law.

    *may_go* tells whether the other laws let some of these tasks go together. Tasks worse than all victims may be
    missing: a walk that reaches them is worse than the plan. The cost is the number of milder tasks times that of the
    victims.
    """
    worst = max(victims.values())
    taken: list[str] = []
    for key in sorted([key for key, order in orders.items() if order <= worst], key=orders.__getitem__):
        if any(need.may_serve(key) and need.left_after(taken) > 0 for need in needs) and may_go([*taken, key]):
            taken.append(key)
            if not _is_short(needs, taken):
                break
    else:
        return
    for key in reversed(taken.copy()):
        rest = [other for other in taken if other != key]
        if not _is_short(needs, rest):
            taken = rest
    for key in taken:
        rest = [other for other in taken if other != key]
        if not any(need.may_serve(key) and need.left_after(rest) > 0 for need in needs):
            return  # Somebody would leave only for what nobody may leave for, so the walk has failed.
    milder = sorted([orders[key] for key in taken], reverse=True) < sorted(victims.values(), reverse=True)
    if milder and not victims.keys() >= set(taken):
        yield Violation(Law.MILDEST, f"{', '.join(sorted(taken))} would do")


def _is_short(needs: Sequence[Need], gone: Sequence[str]) -> bool:
    return any(need.left_after(gone) > 0 for need in needs)
