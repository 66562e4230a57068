"""The number of steps that a search for a gang takes where the first plan cannot be beaten."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.preemption.guarantee.gangs import search as gang_search
from kornel.core.state.asks.reservations import reserve_node
from tests.scenarios.stage import Stage

RACKS = 4
NODES = 4


def test_a_rack_with_the_fewest_victims_is_not_sought_in_all_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of twelve members lack room in the last rack, and more in each of the others. Free room there is of no use,
    so no set of fewer victims need be tried."""
    steps = 0
    take_step = gang_search.GangSearch.take_step

    def counted(search: gang_search.GangSearch, *given: Any) -> Any:
        nonlocal steps
        steps += 1
        return take_step(search, *given)

    monkeypatch.setattr(gang_search.GangSearch, "take_step", counted)
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


def test_room_saved_during_a_search_is_no_room_for_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody begins to save the idle core on which the first member counts, while the others are given places: the
    search begins again, and no plan breaks a law."""
    stage = Stage()
    setting = ["partition default", "queue root.a guaranteed={f=4} preemption.delay=1s", "queue root.v"]
    setting += ["queue root.w guaranteed={f=4}", "node n0 f=4", "node n1 f=4"]
    setting += [f"run v{at} queue=root.v node=n{at // 4} f=1" for at in range(1, 8)]
    setting += ["app w queue=root.w", "app g queue=root.a gang={f=4} style=Hard", "ask large app=w f=4"]
    setting += [f"ask k{at} app=g placeholder group=g f=1 other=yes" for at in range(4)]
    stage.play(setting)
    state = stage.engine.partition(next(iter(stage.engine.partition_names())))
    assert state is not None
    take_step = gang_search.GangSearch.take_step

    def interrupted(search: gang_search.GangSearch, *given: Any) -> Any:
        found = take_step(search, *given)
        large = state.requests["large"]
        if search._found and large.reservation is None:
            reserve_node(state, large, state.nodes["n0"], stage.now_ns, by_age=True)
        return found

    monkeypatch.setattr(gang_search.GangSearch, "take_step", interrupted)
    answers = stage.play(["cycle at=1500ms"])
    assert sum(answer.startswith("release v") for answer in answers) == 4, answers
