"""What an update leaves alone."""

from __future__ import annotations

import pytest

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.loader import load
from kornel.core.config.model import PartitionConfig
from kornel.core.engine.configuration import configure
from kornel.core.model.queues import Queue
from kornel.core.state.partition_state import PartitionState
from tests.unit.config.reading import only, partition_text, queue, root
from tests.unit.telling.test_what_if import SECOND, Core, amounts


def config(*queues: object, **keys: object) -> PartitionConfig:
    return only(load(partition_text(root(*queues), **keys)))


@pytest.mark.parametrize("sharing", [True, False])
def test_one_change_costs_one_queue(monkeypatch: pytest.MonkeyPatch, sharing: bool) -> None:
    """A changed max is set on that queue alone, and shares are reckoned below it alone."""
    queues = [queue(f"p{p}", *(queue(f"q{q}") for q in range(10))) for p in range(10)]
    old = load(partition_text(root(*queues)))
    state = configure.build_partition("[rm]default", only(old), 0, [])
    touched: list[str] = []
    reckoned: list[str] = []
    set_limits, set_fair_max = Queue.set_limits, Queue.set_fair_max

    def spy(queue: Queue, guaranteed: dict[int, int], maximum: dict[int, int]) -> None:
        touched.append(queue.path)
        set_limits(queue, guaranteed, maximum)

    def counted(queue: Queue, fair_max: dict[int, int]) -> None:
        reckoned.append(queue.path)
        set_fair_max(queue, fair_max)

    monkeypatch.setattr(Queue, "set_limits", spy)
    monkeypatch.setattr(Queue, "set_fair_max", counted)
    queues[3]["queues"][4] = queue("q4", m={"vcore": "5"})
    new = load(partition_text(root(*queues)))
    configure.update(state, only(share_equal_parts(new, old) if sharing else new), 0)
    assert touched == ["root.p3.q4"]
    assert reckoned == ["root.p3.q4"]


def test_the_same_configuration_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is touched, not even by text written anew."""
    queues = [queue("a", queue("b")), queue("c")]
    state = configure.build_partition("[rm]default", config(*queues), 0, [])
    monkeypatch.setattr(PartitionState, "new_queue", None)
    monkeypatch.setattr(Queue, "set_limits", None)
    configure.update(state, config(*queues), 0)
    assert [path for path, found in state.queues.items() if found.draining] == []


def test_a_dropped_subtree_drains_whole() -> None:
    """Managed queues below a dropped one drain too, and come back with it (T47 to T49)."""
    state = configure.build_partition("[rm]default", config(queue("a", queue("b", queue("c"))), queue("d")), 0, [])
    configure.update(state, config(queue("d")), 0)
    assert [path for path, found in state.queues.items() if found.draining] == ["root.a", "root.a.b", "root.a.b.c"]
    configure.update(state, config(queue("a", queue("b", parent=True)), queue("d")), 0)
    assert [path for path, found in state.queues.items() if found.draining] == ["root.a.b.c"]


def test_t55_the_size_of_the_root_is_that_of_the_cluster() -> None:
    """A reload leaves it alone; a type that no node offers never fits, with limits on the root or without."""
    core = Core(partition_text(root(queue("a"), submitacl="*")))
    limited = partition_text(
        root(queue("a"), submitacl="*", limits=[{"users": ["ann"], "maxresources": {"vcore": "9"}}])
    )
    for config in (None, limited):
        if config is not None:
            core.update(config)
        assert core.queues()["root"].max == amounts(vcore=100_000)
    core.application("gpu", "root.a")
    core.now_ns = 3 * SECOND
    core.submit("gpu", ["gpu-1"], {"gpu": 1})
    core.cycle()
    assert core.queues()["root.a"].used == amounts()
    assert core.queues()["root.a"].pending == amounts(gpu=1)


def test_t58_a_raised_number_of_applications() -> None:
    """Who waits for a slot is let in by the reload that makes one."""

    def config(most: int) -> str:
        return partition_text(root(queue("p", queue("a"), maxapplications=most), submitacl="*"))

    core = Core(config(1))
    for name in ("one", "two"):
        core.application(name, "root.p.a", "ann")
        core.ask(name, 1)
    core.engine.cycle(3 * SECOND, 100)
    assert core.queues()["root.p.a"].used == amounts(vcore=1_000)
    core.update(config(2))
    core.engine.cycle(4 * SECOND, 100)
    assert core.queues()["root.p.a"].used == amounts(vcore=2_000)
