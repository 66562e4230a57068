"""Nobody who comes later in the order of its leaf passes an ask that waits only until the shim has judged it
(protocol.md 13).

The judge knows the order by the words of scheduling.md 5, and when the shim has reacted. The engine makes one decision
at a time, so that what was free at each of them is known.
"""

from __future__ import annotations

import random
from unittest import mock

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import AnswerCallbacks, AttachCallbacks, NodeAction, PlacementKey, PredicatesAnswer
from kornel.core.domain.effects import Allocated, Effect, PredicatesAsked
from kornel.core.model.allocations import Allocation
from kornel.core.state.asks import finding
from kornel.core.state.books import audit
from kornel.core.state.waiting import dependence, pausing
from kornel.core.state.waiting.inquiries import NO_ANSWER
from tests.driven_core import DrivenCore
from tests.examples import scale_examples

RM, PARTITION = "rm", "[rm]default"
MILLISECOND = 10**6
TIMEOUT_NS = 1_000 * MILLISECOND
LONG_AGO = -TIMEOUT_NS
SEEDS = scale_examples(60)
NODES = [f"n{number}" for number in range(5)]
APPLICATIONS = {f"{leaf}{number}": leaf for leaf in "ab" for number in range(3)}
QUEUES = """
partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [
    {name: a, properties: {application.sort.priority: %s}}, {name: b, resources: {max: {vcore: 8m}}}]}]}]
"""


class Judge(DrivenCore):
    """A shim that answers when it pleases, or never, and what is wrong with what it hears."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.by_priority = dice.random() < 0.7
        self.wrong: list[str] = []
        self.open: dict[int, tuple[PredicatesAsked, int]] = {}
        """The questions that the shim has not answered, each with the time when it came."""
        self.unread: list[str] = []
        """The placements that it has not acknowledged."""
        self.reacted_ns = LONG_AGO
        """The time of its last reaction, or when somebody began to wait for one."""
        self.asks = 0
        self.speaks = True
        super().__init__(QUEUES % ("enabled" if self.by_priority else "disabled"))
        awaits = dice.random() < 0.4
        self.apply(AttachCallbacks(RM, predicates=True, timeout_ns=TIMEOUT_NS, awaits_placements=awaits))
        for name in NODES:
            self.node(name, {"vcore": dice.randint(1, 6)})
        for name, leaf in APPLICATIONS.items():
            self.application(name, f"root.{leaf}")

    def ask(self) -> None:
        application = self.dice.choice(list(APPLICATIONS))
        dependent = self.dice.random() < 0.5
        self.asks += 1
        self._hear(
            self.submit(
                application,
                [f"{'d' if dependent else 'p'}{self.asks}"],
                {"vcore": self.dice.randint(1, 2)},
                dependent=dependent,
                priority=self.dice.choice((0, 0, 1, 2)),
            )
        )

    def decide(self) -> bool:
        """Has the engine make one decision, and judges it."""
        held, with_room = self._held(), self._with_room()
        result = self.engine.cycle(self.now_ns, 1)
        if not any(ask.dependent for ask in held) and any(ask.dependent for ask in self._held()):
            self.reacted_ns = self.now_ns
        for ask in self._held():
            if ask not in held:
                self._judge(ask, with_room, by_line=not ask.dependent)
        for effect in result.effects:
            if isinstance(effect, PredicatesAsked) and effect.dependent:
                self._judge(self.state.requests[effect.key], None, by_line=True)
        self._hear(result.effects)
        broken = audit.check(self.state)
        assert broken == [], str(broken)
        return result.more

    def settle(self) -> None:
        while self.decide():
            pass

    def answer(self, number: int, *, kindly: bool = False) -> None:
        question, came_ns = self.open.pop(number)
        refusing = 0 if kindly else self.dice.choice((0, 0, 0.5, 1))
        refused = tuple((node, "no") for node in question.node_ids if self.dice.random() < refusing)
        if question.dependent and self.now_ns < came_ns + TIMEOUT_NS and self._waits(question.key):
            self.reacted_ns = self.now_ns
        self._hear(self.apply(AnswerCallbacks(RM, (PredicatesAnswer(number, refused),))))

    def acknowledge(self) -> None:
        key = self.unread.pop(0)
        self._hear(self.apply(AnswerCallbacks(RM, acknowledged=(PlacementKey(PARTITION, key),))))

    def end(self) -> None:
        gone = self.dice.choice(list(self.state.requests.values()))
        self._hear(self.release(gone.application.application_id, gone.key))

    def step(self) -> None:
        dice = self.dice
        self.now_ns += dice.choice((0, 1, 1, 20, 300)) * MILLISECOND
        what = dice.random()
        if what < 0.02:
            self.speaks = not self.speaks
        elif what < 0.25:
            self.ask()
        elif what < 0.55:
            self.decide()
        elif what < 0.8 and self.open and self.speaks:
            self.answer(dice.choice(list(self.open)))
        elif what < 0.9 and self.unread and self.speaks:
            self.acknowledge()
        elif what < 0.95 and self.state.requests:
            self.end()
        elif what < 0.96:
            name = dice.choice(NODES)
            drains = dice.random() < 0.5
            self._hear(self.node(name, action=NodeAction.DRAIN_NODE if drains else NodeAction.DRAIN_TO_SCHEDULABLE))
        elif what < 0.97:
            self.restart()

    def _held(self) -> list[Allocation]:
        """Lists the asks that were given room and wait for the shim."""
        return [ask for ask in self.state.requests.values() if ask.place is AskPlace.HELD]

    def _waits(self, key: str) -> bool:
        ask = self.state.requests.get(key)
        return ask is not None and ask.place is AskPlace.HELD

    def _judge(self, ask: Allocation, with_room: set[Allocation] | None, *, by_line: bool) -> None:
        """Judges that *ask* was given room, or has its turn (*with_room* is ``None``): nobody before it was *with_room*
        and was not tried, and with *by_line* nobody before it waits for the shim."""
        if self.now_ns >= self.reacted_ns + TIMEOUT_NS:
            return  # The shim is late: everybody passes.
        if ask.reservation is not None and with_room is not None:
            return  # Whoever holds room comes first in every cycle.
        for other in self.state.requests.values():
            before = other.queue is ask.queue and other.pending and self._place(other) < self._place(ask)
            if not before or not other.dependent or self._unanswered(other):
                continue
            waits = by_line and other.place is AskPlace.HELD
            if waits or (other in (with_room or ()) and other.place is not AskPlace.HELD):
                self.wrong.append(f"{ask.key} passes {other.key} at {self.now_ns / 10**9} s")

    def _place(self, ask: Allocation) -> tuple[object, ...]:
        name = ask.application.application_id
        if self.by_priority or ask.queue.path == "root.b":
            return (-ask.priority, name, ask.created_ns, ask.arrival)
        return (name, -ask.priority, ask.created_ns, ask.arrival)

    def _unanswered(self, ask: Allocation) -> bool:
        return any(refusal.reason == NO_ANSWER for refusal in (ask.refused or {}).values())

    def _with_room(self) -> set[Allocation]:
        """Returns the asks that could be given room now."""
        return {ask for ask in self.state.requests.values() if ask.pending and self._has_room(ask)}

    def _has_room(self, ask: Allocation) -> bool:
        size = ask.shape.pairs[0][1]
        if ask.held_on is not None or finding.exceeded_limit(self.state, ask) is not None:
            return False
        nodes = [node for node in self.state.nodes.values() if node.node_id not in (ask.refused or ())]
        return any(node.schedulable and min(node.free[0], node.open[0]) >= size for node in nodes)

    def _hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PredicatesAsked):
                self.open[effect.question] = effect, self.now_ns
            elif isinstance(effect, Allocated):
                self.unread.append(effect.spec.key)


@pytest.mark.parametrize("longest", [2, 64])
def test_nobody_passes_who_comes_later(longest: int) -> None:
    with mock.patch.object(dependence, "LONGEST_LINE", longest):
        for seed in range(SEEDS):
            judge = Judge(seed)
            for _ in range(400):
                judge.step()
                assert judge.wrong == [], f"seed {seed}: {judge.wrong}"


@pytest.mark.parametrize("longest", [2, 64])
def test_nobody_waits_for_ever(longest: int) -> None:
    """Once the shim answers and agrees, only those wait for whom there is no room."""
    with mock.patch.object(dependence, "LONGEST_LINE", longest):
        for seed in range(SEEDS):
            judge = Judge(seed)
            for _ in range(200):
                judge.step()
            judge.settle()
            for _ in range(2_000):
                if judge.open:
                    judge.answer(min(judge.open), kindly=True)
                elif judge.unread:
                    judge.acknowledge()
                elif judge.engine.next_wakeup_ns() is None:
                    break
                else:
                    judge.now_ns = max(judge.now_ns + MILLISECOND, judge.engine.next_wakeup_ns() or 0)
                judge.settle()
            idle = [
                ask.key
                for ask in judge.state.requests.values()
                if ask.pending and ask.place is not AskPlace.REFUSED and judge._has_room(ask)
            ]
            assert idle == [], f"seed {seed}: {idle}"
            assert not any(queue.set_back or queue.turns for queue in judge.state.queues.values()), f"seed {seed}"


def test_a_silent_shim_holds_up_nobody_for_longer_than_its_timeout() -> None:
    """It answers about everybody but those who depend on others, of whom a hundred come first."""
    judge = Judge(0)
    for node in NODES:
        judge.node(node, action=NodeAction.DECOMISSION)
    judge.node("large", {"vcore": 1_000})
    judge.submit("a0", [f"d{number}" for number in range(100)], {"vcore": 1}, dependent=True)
    judge.submit("a1", [f"p{number}" for number in range(20)], {"vcore": 1})
    placed: dict[str, int] = {}
    while judge.now_ns < 2 * TIMEOUT_NS:
        judge.settle()
        for number in [number for number, (question, _) in judge.open.items() if not question.dependent]:
            judge.answer(number, kindly=True)
        for key in judge.unread:
            placed.setdefault(key, judge.now_ns)
        judge.now_ns += 50 * MILLISECOND
    assert len(placed) == 20
    assert set(placed.values()) == {TIMEOUT_NS}, "before that, everybody waits; from then on, nobody"
    assert pausing.LEAST_NS > TIMEOUT_NS


def test_a_leaf_that_left_a_waiting_room_while_it_was_set_back_is_tried_there_again() -> None:
    """Two of it wait for room, and one comes to stand behind a dependent ask when there is some; both are withdrawn
    before the shim has judged that. Who waits in the same room later gets its turn."""
    core = DrivenCore(QUEUES % "enabled")
    core.apply(AttachCallbacks(RM, predicates=True, timeout_ns=TIMEOUT_NS))

    def place() -> list[str]:
        asked = [effect for effect in core.cycle() if isinstance(effect, PredicatesAsked)]
        agreed = tuple(PredicatesAnswer(each.question, ()) for each in asked if not each.dependent)
        return [each.spec.key for each in core.apply(AnswerCallbacks(RM, agreed)) if isinstance(each, Allocated)]

    core.node("large", {"vcore": 4})
    core.node("small", {"vcore": 1})
    for name, leaf in APPLICATIONS.items():
        core.application(name, f"root.{leaf}")
    core.submit("b0", ["whole"], {"vcore": 4})
    assert place() == ["whole"]
    core.submit("a0", ["p0"], {"vcore": 2})
    core.submit("a1", ["p1"], {"vcore": 2})
    core.submit("b0", ["q0", "q1", "q2"], {"vcore": 2})
    assert place() == []
    core.submit("a2", ["d"], {"vcore": 1}, dependent=True, priority=5)
    asked = [effect for effect in core.cycle() if isinstance(effect, PredicatesAsked)]
    core.release("b0", "whole")
    assert place() == ["q0", "q1"], "those of the other leaf behind d"
    core.release("a1", "p1")
    core.release("a0", "p0")
    core.apply(AnswerCallbacks(RM, (PredicatesAnswer(asked[0].question, ()),)))
    core.submit("a0", ["p2"], {"vcore": 2})
    assert place() == []
    core.release("b0", "q0")
    core.release("b0", "q1")
    assert sorted(place()) == ["p2", "q2"]
    assert audit.check(core.state) == []


def test_who_may_join_the_line_does_once_nobody_before_it_has_to_wait() -> None:
    """Whoever stands behind an ask that has to wait stays out of the line, until that one is withdrawn."""
    core = DrivenCore(QUEUES % "enabled")
    core.apply(AttachCallbacks(RM, predicates=True, timeout_ns=TIMEOUT_NS))
    core.node("large", {"vcore": 8})
    for name in ("a0", "a1", "a2"):
        core.application(name, "root.a")
    core.submit("a0", ["d1"], {"vcore": 1}, dependent=True)
    core.cycle()
    core.submit("a1", ["p"], {"vcore": 1})
    core.submit("a2", ["d2"], {"vcore": 1}, dependent=True)
    core.cycle()
    assert core.state.requests["d2"].place is AskPlace.WAITING
    core.release("a1", "p")
    core.cycle()
    assert core.state.requests["d2"].place is AskPlace.HELD
    assert audit.check(core.state) == []


def test_who_comes_first_when_there_is_room_again_is_tried_although_its_leaf_was_set_back() -> None:
    """By fair shares an application comes to stand before a dependent ask, once something of it has ended."""
    fair = QUEUES.replace("{application.sort.priority: %s}", "{application.sort.policy: fair}").replace(
        "max: {vcore: 8m}", ""
    )
    core = DrivenCore(fair)
    core.node("large", {"vcore": 4})
    core.node("other", {"vcore": 4})
    core.node("more", {"vcore": 9})
    for name in ("a1", "a5", "a7", "b0"):
        core.application(name, f"root.{name[0]}")
    core.submit("a1", ["x"], {"vcore": 4}, node_id="other")
    core.submit("b0", ["y"], {"vcore": 8}, node_id="more")
    core.submit("b0", ["whole"], {"vcore": 4}, node_id="large")
    core.apply(AttachCallbacks(RM, predicates=True, timeout_ns=TIMEOUT_NS))
    core.submit("a1", ["p1"], {"vcore": 4})
    core.submit("a7", ["p7"], {"vcore": 4})
    core.submit("b0", ["q"], {"vcore": 4})
    core.cycle()
    core.submit("a5", ["d"], {"vcore": 1}, dependent=True)
    core.cycle()
    core.release("b0", "whole")
    core.cycle()
    places = {key: core.state.requests[key].place for key in ("d", "q", "p1", "p7")}
    waiting = dict.fromkeys(("p1", "p7"), AskPlace.WAITING)
    assert places == dict.fromkeys(("d", "q"), AskPlace.HELD) | waiting, "those of a stand behind d"
    core.release("a1", "x")
    core.cycle()
    assert core.state.requests["p1"].place is AskPlace.HELD
    assert core.state.requests["p7"].place is AskPlace.WAITING
    assert audit.check(core.state) == []
