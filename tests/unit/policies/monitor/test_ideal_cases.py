"""The worked amounts of the periodic policy (preemption.md J.5), on the bare calculation."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from kornel.core.preemption.monitor.selection.ideal import Share, amount_to_give_up, assign_shares
from tests.monitor_notation import MonitorCase, parse

HERE: Final = Path(__file__).parents[3] / "scenarios" / "preemption"
CASES: Final = [case for case in parse(HERE.joinpath("monitor.cases").read_text(encoding="utf-8")) if case.ideal]
"""Those that state ideal shares, of which the engine shows only what comes of them."""


def run(steps: Generator[int, None, Any]) -> None:
    deque(steps, maxlen=0)


def shares(case: MonitorCase, t: int) -> dict[str, Share]:
    """The queues of *case* for its type number *t*, by path; the root has none."""
    found = {"": Share("root")}
    disabled = {""} if case.root_disabled else set()
    for queue in case.queues:
        above, _, name = queue.path.rpartition(".")
        if queue.policy == "disabled" or above in disabled:
            disabled.add(queue.path)
        found[queue.path] = Share(
            name,
            guaranteed=queue.guaranteed[t],
            ceiling=queue.maximum[t] if queue.maximum else None,
            used=queue.used[t],
            pending=sum(leaf.pending[t] for leaf in case.leaves() if f"{leaf.path}.".startswith(f"{queue.path}.")),
            priority=queue.priority,
            disabled=queue.path in disabled,
            fenced=queue.policy == "fence",
        )
        found[above].children.append(found[queue.path])
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: MonitorCase) -> None:
    """Ideal shares and the amount each leaf gives up are those of the worked case."""
    per_round = Fraction(str(case.settings["per_round"]))
    dead_zone = Fraction(str(case.settings.get("dead_zone", 0.1)))
    natural = Fraction(str(case.settings["natural_factor"]))
    balance = bool(case.settings.get("balance"))
    taken: dict[str, list[int]] = {}
    for t, capacity in enumerate(case.cluster):
        found = shares(case, t)
        run(assign_shares(found[""], capacity, per_round, balance=balance))
        for share in found.values():
            if share.name in case.ideal:
                assert share.ideal == case.ideal[share.name][t], share.name
        for leaf in case.leaves():
            amount = amount_to_give_up(found[leaf.path], dead_zone, natural)
            taken.setdefault(found[leaf.path].name, []).append(amount)
    amounts = {name: tuple(values) for name, values in taken.items() if any(values)}
    if case.expected is not None:
        assert amounts == case.expected
    assert not amounts.keys() & set(case.spared)


def test_natural_termination_converges_geometrically() -> None:
    """J-Y43: a target of 5 GB is taken as 1, 0.8, 0.64, 0.512, 0.4096 GB."""
    held, turns = 10_000_000, []
    for _ in range(5):
        root = Share("root")
        over = Share("a", guaranteed=5_000_000, used=held)
        root.children += [over, Share("b", guaranteed=5_000_000, used=10_000_000 - held, pending=5_000_000)]
        run(assign_shares(root, 10_000_000, Fraction(1)))
        turns.append(amount_to_give_up(over, Fraction(0), Fraction(1, 5)))
        held -= turns[-1]
    assert turns == [1_000_000, 800_000, 640_000, 512_000, 409_600]
