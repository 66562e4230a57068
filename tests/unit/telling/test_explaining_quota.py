"""Headroom level by level (config.md 7.3, T56 and T57)."""

from __future__ import annotations

from kornel.core.config.loader import load
from kornel.core.engine.configuration import configure
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.queues.headroom import Bound, explain_queue
from tests.unit.config.reading import only, partition_text, queue, root


def partition(*queues: object) -> PartitionState:
    return configure.build_partition("[rm]default", only(load(partition_text(root(*queues)))), 0, [])


def use(state: PartitionState, path: str, **amounts: int) -> None:
    for level in state.queues[path].lineage():
        for name, amount in amounts.items():
            level.used[state.types.index_of(name)] += amount


def offer(state: PartitionState, **amounts: int) -> None:
    state.root.set_limits({}, {state.types.index_of(name): amount for name, amount in amounts.items()})


def headroom(state: PartitionState, path: str) -> dict[str, int]:
    return dict(explain_queue(state, state.queues[path]).headroom)


def test_t56_the_least_of_all_levels() -> None:
    """Root 20/10, parent 20/8, leaves without: what both leaves use counts on the levels above."""
    state = partition(queue("p", queue("leaf1"), queue("leaf2"), m={"a": "20", "b": "8"}))
    offer(state, a=20, b=10)
    use(state, "root.p.leaf1", a=5, b=3)
    use(state, "root.p.leaf2", a=5, b=3)
    assert headroom(state, "root") == {"a": 10, "b": 4}
    for path in ("root.p", "root.p.leaf1", "root.p.leaf2"):
        assert headroom(state, path) == {"a": 10, "b": 2}


def test_t57_each_type_from_its_own_level() -> None:
    """Levels that limit different types are combined type by type; without nodes the root limits nothing."""
    state = partition(
        queue("p", queue("leaf1", m={"a": "10", "c": "10"}), queue("leaf2", m={"d": "10"}), m={"a": "20", "b": "10"})
    )
    use(state, "root.p.leaf1", a=5, b=5, c=5)
    use(state, "root.p.leaf2", c=5, d=5)
    assert headroom(state, "root") == {}
    assert headroom(state, "root.p") == {"a": 15, "b": 5}
    assert headroom(state, "root.p.leaf1") == {"a": 5, "b": 5, "c": 5}
    assert headroom(state, "root.p.leaf2") == {"a": 15, "b": 5, "d": 5}


def test_the_level_and_type_that_bind() -> None:
    """The smallest part of a max left is the tightest; of equal amounts the level further down is named."""
    state = partition(queue("p", queue("leaf", m={"a": "100", "b": "10"}), m={"a": "100", "b": "40"}))
    use(state, "root.p.leaf", a=60, b=7)
    found = explain_queue(state, state.queues["root.p.leaf"])
    assert found.bounds == (Bound("a", "root.p.leaf", 40, 100), Bound("b", "root.p.leaf", 3, 10))
    assert found.tightest == Bound("b", "root.p.leaf", 3, 10)
    assert [level.path for level in found.levels] == ["root.p.leaf", "root.p", "root"]


def test_above_a_max_and_a_max_of_zero() -> None:
    """Use above a max leaves less than nothing, which is tighter than a type that is not available at all."""
    state = partition(queue("leaf", m={"a": "10", "gpu": "0"}))
    use(state, "root.leaf", a=12)
    found = explain_queue(state, state.queues["root.leaf"])
    assert dict(found.headroom) == {"a": -2, "gpu": 0}
    assert found.tightest == Bound("a", "root.leaf", -2, 10)


def test_nothing_binds() -> None:
    """No level has a max."""
    state = partition(queue("leaf"))
    found = explain_queue(state, state.queues["root.leaf"])
    assert (dict(found.headroom), found.bounds, found.tightest) == ({}, (), None)
