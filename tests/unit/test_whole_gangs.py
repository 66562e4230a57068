"""The laws of whole gangs, judged by themselves: a gang below its minimum leaves as a whole, and nobody leaves for one
member alone (preemption.md A.1 no. 19 and 20, B.10)."""

from __future__ import annotations

import pytest

from kornel.core.engine.gangs import gang_turns
from kornel.core.laws import whole_gangs
from kornel.core.laws.overkill import Need
from kornel.core.model.allocations import Allocation
from kornel.core.state.waiting import gathering
from tests.scenarios.stage import Stage, Unsound


def _stage_with(style: str = "Hard", minimum: str = "", tags: str = "", mode: str = "units", room: int = 8000) -> Stage:
    """A cluster with a gang of four in one task group, which waits if the node has less *room* than it asks for."""
    stage = Stage()
    stage.play(
        [
            f"partition default gangs={mode}",
            "queue root.a",
            f"node n1 vcore={room} memory=100",
            f"app a queue=root.a gang={{vcore=4000}} timeout=60s style={style} {tags}",
            *_each(f"ask a{{n}} app=a placeholder group=g vcore=1000 memory=0 {minimum}"),
            "cycle",
        ]
    )
    return stage


def _each(line: str, count: int = 4) -> list[str]:
    """Returns *line* for each of *count* members, in one request."""
    return ["+ " * (n > 1) + line.format(n=n) for n in range(1, count + 1)]


def _running(
    style: str = "Hard", minimum: str = "", tags: str = "", mode: str = "units", room: int = 8000
) -> dict[str, Allocation]:
    """The members of the gang of :func:`_stage_with`, by key."""
    state = _stage_with(style, minimum, tags, mode, room).state
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
    ("style", "minimum", "ended", "found"),
    [
        ("Hard", "", 4, 1), ("Hard", "", 3, 0), ("Soft", "", 4, 0), ("Soft", "minimum=3", 4, 1),
        ("Soft", "minimum=3", 3, 0), ("Hard", "minimum=1", 4, 0),
    ],
)  # fmt: skip
def test_nobody_leaves_for_one_task_alone_of_those_that_come_again(
    style: str, minimum: str, ended: int, found: int
) -> None:
    """Tasks that *ended* are asked for again, without placeholders. One may be served by itself while others run."""
    stage = _stage_with(style, minimum)
    stage.play(["cycle", *_each("ask w{n} app=a group=g vcore=1000 memory=0"), "cycle"])
    stage.play([*_each("release a{n} app=a type=PLACEHOLDER_REPLACED"), "cycle", "drain n1"])
    stage.play([*_each("release w{n} app=a", ended), *_each("ask u{n} app=a group=g vcore=1000 memory=0", ended)])
    assert len(list(whole_gangs.check_takers([stage.state.requests["u1"]]))) == found


def test_a_plan_for_a_part_of_those_that_come_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gang without placeholders four ran at once. A search that plans for three of them breaks the law."""
    monkeypatch.setattr(gang_turns, "minimum_members", lambda unit: gathering.minimum_members(unit)[:-1])
    stage = Stage()
    stage.play(["queue root.a guaranteed={vcore=4000} preemption.delay=1s", "queue root.v", "node n1 vcore=4000"])
    stage.play(["app a queue=root.a gang={vcore=4000} style=Hard", "app v queue=root.v"])
    stage.play([*_each("run w{n} app=a group=g node=n1 vcore=1000 memory=0"), "ask x app=a vcore=9000"])
    stage.play([*_each("release w{n} app=a"), *_each("run v{n} app=v node=n1 vcore=1000 memory=0")])
    stage.play(_each("ask u{n} app=a group=g vcore=1000 memory=0 other=yes"))
    with pytest.raises(Unsound, match="laws of preemption"):
        stage.play(["cycles until=20s every=1s"])


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
