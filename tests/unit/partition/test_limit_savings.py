"""Below limits, what comes free is saved for a large ask (preemption.md B.7, "Below limits")."""

from __future__ import annotations

import pytest

from kornel.core.domain.effects import Allocated
from kornel.core.engine.engine import Engine
from kornel.core.engine.scheduling import limit_savings
from kornel.core.state.options import EngineOptions
from tests.driven_core import DrivenCore
from tests.properties.test_snapshots import restore

S = 10**9
LIMITS = {
    "the max of the leaf": "{name: a, resources: {max: {vcore: 2000m}}}, {name: b}",
    "the max of the parent": "{name: p, resources: {max: {vcore: 2000m}}, queues: [{name: a}, {name: b}]}",
    "the limit of the user": "{name: a, limits: [{users: ['*'], maxresources: {vcore: 2000m}}]}",
    "the limit of the group": "{name: a, limits: [{groups: [dev], maxresources: {vcore: 2000m}}]}",
}


class Stream(DrivenCore):
    """A limit of 2 under which tasks of 1 end every five seconds, always with three more that wait, and one ask of
    2."""

    def __init__(self, queues: str, engine: Engine | None = None) -> None:
        text = f"partitions: [{{name: default, queues: [{{name: root, submitacl: '*', queues: [{queues}]}}]}}]"
        super().__init__(text, engine=engine)
        self.running: list[str] = []
        self.asked = 0
        self.leaf = "root.p.a" if "name: p" in queues else "root.a"
        self.node("n", {"vcore": 10_000})
        for name in ("small", "large"):
            self.application(name, self.leaf, groups=("dev",))

    def ask(self, key: str, vcore: int, application: str = "small", priority: int = 0) -> None:
        self.submit(application, [key], {"vcore": vcore}, priority=priority)

    def refill(self) -> None:
        for _ in range(5):
            self.ask(f"s{self.asked}", 1000)
            self.asked += 1

    def run_until(self, until_s: int) -> bool:
        """Returns whether the large ask has been placed by then."""
        while self.now_ns < until_s * S:
            for effect in self.engine.cycle(self.now_ns, 1000).effects:
                if isinstance(effect, Allocated):
                    if effect.spec.key == "large":
                        return True
                    self.running.append(effect.spec.key)
            self.now_ns += S
            if self.now_ns % (5 * S) == 0 and self.running:
                self.release("small", self.running.pop(0))
                self.ask(f"s{self.asked}", 1000)
                self.asked += 1
        return False


@pytest.mark.parametrize("queues", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("priority", [0, 1000])
def test_a_large_ask_is_placed_while_small_ones_come_and_go(queues: str, priority: int) -> None:
    stream = Stream(queues)
    stream.refill()
    assert not stream.run_until(3)
    stream.ask("large", 2000, "large", priority)
    assert stream.run_until(60)


def test_it_is_not_where_reservations_are_disabled() -> None:
    stream = Stream(LIMITS["the max of the leaf"], Engine(EngineOptions(reservation_delay_ns=None)))
    stream.refill()
    assert not stream.run_until(3)
    stream.ask("large", 2000, "large", 1000)
    assert not stream.run_until(600)
    state = stream.state
    assert not state.reserving.at_limits


@pytest.mark.parametrize("queues", LIMITS.values(), ids=LIMITS)
def test_what_is_saved_survives_a_restart(queues: str) -> None:
    stream = Stream(queues)
    stream.refill()
    assert not stream.run_until(3)
    stream.ask("large", 2000, "large", 1000)
    assert not stream.run_until(11)
    stream.engine = restore(stream.engine)
    state = stream.state
    assert [claim.ask.key for claim in state.reserving.at_limits] == ["large"]
    assert stream.run_until(16)


def test_a_restart_without_reservations_ends_what_is_saved() -> None:
    stream = Stream(LIMITS["the max of the leaf"])
    stream.refill()
    assert not stream.run_until(3)
    stream.ask("large", 2000, "large", 1000)
    assert not stream.run_until(11)
    state = stream.state
    stream.engine.begin_epoch(EngineOptions(None, 5), stream.now_ns)
    stream.node("m", {"vcore": 1000})
    assert not stream.run_until(14)
    assert not state.reserving.at_limits


def test_after_a_restart_without_reservations_nobody_is_asked_who_may_save() -> None:
    """Those who might have saved before long take no turn from others."""
    stream = Stream(LIMITS["the max of the leaf"])
    stream.ask("first", 1000)
    assert not stream.run_until(1)
    stream.ask("large", 2000, "large", 1000)
    assert not stream.run_until(2)
    state = stream.state
    assert state.reserving.short
    stream.engine.begin_epoch(EngineOptions(None, 5), stream.now_ns)
    stream.now_ns = 4 * S
    stream.ask("second", 1000)
    assert not stream.run_until(5)
    assert "second" in stream.running


def test_nodes_are_looked_at_once_for_all_who_ask_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may save below the limit, because no node has room and the bound on claims by age is reached."""
    stream = Stream(LIMITS["the max of the leaf"])
    fill_nodes(stream)
    looks, choices = count_calls(monkeypatch, "_could_save"), count_calls(monkeypatch, "choose_savers")
    for number in range(50):
        name = f"w{number}"
        stream.application(name, "root.a")
        stream.ask(name, 2000, name)
    assert not stream.run_until(14)
    assert 0 < len(looks) <= len(choices)
    state = stream.state
    assert [len(room) for room in state.queues["root.a"].parked.values()] == [50]
    assert state.reserving.short


def test_more_waiters_than_one_choice_looks_at_are_asked_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who may save, the one that has waited longest does in the end, wherever it stands among the others."""
    monkeypatch.setattr(limit_savings, "WAITERS_PER_CHOICE", 10)
    stream = Stream(LIMITS["the max of the leaf"])
    stream.ask("first", 1000)
    assert not stream.run_until(1)
    for number in range(35):
        name = f"w{number}"
        stream.application(name, "root.a")
        stream.ask(name, 2000, name, 1 if number == 25 else 0)
    choices = count_calls(monkeypatch, "choose_savers")
    assert not stream.run_until(5)
    state = stream.state
    assert [claim.ask.key for claim in state.reserving.at_limits] == ["w25"]
    assert state.reserving.asked == (0, 0, False)
    assert len(choices) >= 4


def fill_nodes(stream: Stream) -> None:
    """Leaves room for one below the limit and on one node; a large ask of another queue saves room on another node."""
    stream.application("b", "root.b")
    stream.ask("wide", 10_000, "b")
    stream.engine.cycle(0, 1000)
    stream.node("m", {"vcore": 2000})
    stream.ask("first", 1000)
    stream.engine.cycle(0, 1000)
    stream.ask("holder", 2000, "b")
    assert not stream.run_until(4)


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[None]:
    """Returns a list that grows with each call of the function *name* of the room that is tested."""
    calls: list[None] = []
    function = getattr(limit_savings, name)

    def call(*args: object) -> object:
        calls.append(None)
        return function(*args)

    monkeypatch.setattr(limit_savings, name, call)
    return calls
