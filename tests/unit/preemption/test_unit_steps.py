"""The number of steps that a search for a gang takes where the first plan cannot be beaten."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.preemption.guarantee.gangs import search as gang_search
from tests.scenarios.stage import Stage

RACKS = 4
NODES = 4


def test_a_rack_with_the_fewest_victims_is_not_sought_in_all_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of twelve members lack room in the last rack, and more in each of the others. Free room there is of no use,
    so no set of fewer victims need be tried."""
    steps = 0
    take_step = gang_search.UnitSearch.take_step

    def counted(search: gang_search.UnitSearch, *given: Any) -> Any:
        nonlocal steps
        steps += 1
        return take_step(search, *given)

    monkeypatch.setattr(gang_search.UnitSearch, "take_step", counted)
    stage = Stage()
    setting = ["partition default topology=rack", "queue root.a guaranteed={f=40} preemption.delay=1s", "queue root.v"]
    setting += [f"node r{r}n{n} f=4 attr.rack=r{r}" for r in range(RACKS) for n in range(NODES)]
    for rack, running in enumerate((15, 14, 13, 12)):
        setting += [f"run v{rack}-{at} queue=root.v node=r{rack}n{at // 4} f=1" for at in range(running)]
    setting += ["app g queue=root.a gang={f=12} style=Hard"]
    setting += [f"ask k{at} app=g placeholder group=g topology=required:rack f=1 other=yes" for at in range(12)]
    stage.play(setting)
    answers = stage.play(["cycle at=2s"])
    assert sum(answer.startswith("release v3-") for answer in answers) == 8
    assert steps < 60
