"""The laws of whole gangs, judged by themselves: a gang below its minimum leaves as a whole, and nobody leaves for one
member alone (preemption.md A.1 no. 19 and 20, B.10)."""

from __future__ import annotations

import pytest

from kornel.core.laws import whole_gangs
from kornel.core.laws.overkill import Need
from kornel.core.model.allocations import Allocation
from tests.scenarios.stage import Stage


def _running(
    style: str = "Hard", minimum: str = "", tags: str = "", mode: str = "units", room: int = 8000
) -> dict[str, Allocation]:
    """A gang of four that runs in one task group, by key; it waits if the node has less *room* than it asks for."""
    stage = Stage()
    asks = [f"+ ask a{n} app=a placeholder group=g vcore=1000 memory=0 {minimum}" for n in range(1, 5)]
    asks[0] = asks[0].removeprefix("+ ")
    stage.play(
        [
            f"partition default gangs={mode}",
            "queue root.a",
            f"node n1 vcore={room} memory=100",
            f"app a queue=root.a gang={{vcore=4000}} timeout=60s style={style} {tags}",
            *asks,
            "cycle",
        ]
    )
    state = stage.state
    return {key: state.requests[key] for key in ("a1", "a2", "a3", "a4")}


def _breaches(members: dict[str, Allocation], *keys: str) -> int:
    return len(list(whole_gangs.check([members[key] for key in keys])))


def test_a_hard_gang_leaves_whole_or_not_at_all() -> None:
    """Any of its members alone is a breach, all of them are none."""
    members = _running()
    assert [_breaches(members, "a1"), _breaches(members, "a1", "a2", "a3")] == [1, 1]
    assert _breaches(members, "a1", "a2", "a3", "a4") == 0


@pytest.mark.parametrize("style", ["Hard", "Soft"])
def test_what_exceeds_the_minimum_may_leave(style: str) -> None:
    """Of four members three are of use: one may go, a second one takes all along."""
    members = _running(style, minimum="minimum=3")
    assert [_breaches(members, "a4"), _breaches(members, "a3", "a4")] == [0, 1]
    assert _breaches(members, "a1", "a2", "a3", "a4") == 0


@pytest.mark.parametrize(
    ("style", "minimum", "room", "found"),
    [
        ("Hard", "", 3000, 1), ("Hard", "minimum=1", 0, 0), ("Soft", "", 0, 0), ("Hard", "", 8000, 0),
        ("Soft", "minimum=3", 2000, 1), ("Soft", "minimum=3", 8000, 0),
    ],
)  # fmt: skip
def test_nobody_leaves_for_one_member_alone(style: str, minimum: str, room: int, found: int) -> None:
    """No member of the gang runs, and one is not enough. One may be served by itself if it is enough, or once
    others run."""
    members = _running(style, minimum, room=room)
    assert len(list(whole_gangs.check_takers([members["a1"]]))) == found


@pytest.mark.parametrize(
    ("style", "tags", "mode"),
    [("Soft", "", "units"), ("Hard", "tag.kornel.survivesLosses=true", "units"), ("Hard", "", "upstream")],
)
def test_who_is_not_bound(style: str, tags: str, mode: str) -> None:
    """A soft gang without a minimum, one that survives losses, and all gangs of a partition that does as upstream."""
    assert _breaches(_running(style, tags=tags, mode=mode), "a1", "a2") == 0


def test_a_whole_gang_is_needed_as_one() -> None:
    """What it frees counts together, so nobody of it is said to be needless."""
    members = _running()
    victims = list(members.values())
    need = Need("vcore on n1", 2000, dict.fromkeys(members, 1000), frozenset(members))
    merged, keys = whole_gangs.merge_gangs([need], victims)
    assert keys == ["gang a"]
    assert (merged[0].gains, merged[0].mine) == ({"gang a": 4000}, frozenset({"gang a"}))
    part = victims[:2]
    assert whole_gangs.merge_gangs([need], part) == ([need], ["a1", "a2"])
