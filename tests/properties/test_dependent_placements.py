"""Whatever the order of events, a shim that enforces rules between pods sees none of them broken by the core.

The shim reads its two streams at its own pace, judges with what it has in place at that moment, and sends answers and
acknowledgements later. The judge of what came out is :mod:`tests.kubernetes_rules`.
"""

from __future__ import annotations

import random
from collections import deque
from enum import StrEnum

import pytest

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    NodeAction,
    PlacementKey,
    PredicatesAnswer,
    TerminationType,
)
from kornel.core.domain.effects import Allocated, Effect, PlacementVoid, PredicatesAsked, Released
from kornel.core.state.books import audit
from kornel.core.state.waiting import pausing
from tests.driven_core import DrivenCore
from tests.examples import scale_examples
from tests.kubernetes_rules import (
    Ended,
    Placed,
    Pod,
    Spread,
    Term,
    depends_on_placements,
    find_idle,
    find_violations,
    random_pods,
    random_rules,
    random_topology,
    refuse_node,
)

RM = "rm"
PARTITION = "[rm]default"
MILLISECOND = 10**6
TIMEOUT_NS = 1_000 * MILLISECOND
APPLICATIONS = 4
REST = 8
SEEDS = scale_examples(60)


class Manner(StrEnum):
    """How the shim makes known what depends on placements."""

    TAGS = "tags"
    """By a tag on the ask; acknowledged when the allocation was read."""
    ANSWERS = "answers"
    """By its answers; acknowledged when the allocation was read."""
    AT_ONCE = "at once"
    """By a tag; in place, and acknowledged, with the answer."""
    AWAITS = "awaits"
    """By a tag. It acknowledges nothing, and judges a question when it has read the allocation that this names."""
    HASTY = "hasty"
    """As if it awaited placements, which it does not."""
    SILENT = "silent"
    """Not at all."""


class PodShim(DrivenCore):
    """A shim with a random pace. ``history``: what the core decided, and what ended, in order."""

    def __init__(self, seed: int, manner: Manner, pods: int = 60) -> None:
        self.dice = dice = random.Random(seed)
        self.manner = manner
        self.topology = random_topology(dice)
        self.pods = random_pods(dice, pods)
        self.history: list[Placed | Ended] = []
        self.running: dict[str, str] = {}
        """What the shim has in place."""
        self._read: set[tuple[str, str]] = set()
        """The allocations that were read, each with its node."""
        self._unread_questions: deque[PredicatesAsked | PlacementVoid] = deque()
        self._unread_allocations: deque[Allocated | Released] = deque()
        self._unsent: deque[AnswerCallbacks] = deque()
        policy = dice.choice(("fair", "binpacking"))
        queue = "{name: root, submitacl: '*', queues: [{name: a}, {name: b}]}"
        super().__init__(f"partitions: [{{name: default, nodesortpolicy: {{type: {policy}}}, queues: [{queue}]}}]")
        awaits = manner in (Manner.AWAITS, Manner.HASTY)
        self.apply(AttachCallbacks(RM, predicates=True, timeout_ns=TIMEOUT_NS, awaits_placements=awaits))
        size = dice.randint(4, 20)
        for name in self.topology:
            self.node(name, {"vcore": size})
        for n in range(APPLICATIONS):
            self.application(f"app{n}", "root." + "ab"[n % 2])

    def apply(self, command: Command) -> list[Effect]:
        effects = super().apply(command)
        self._hear(effects)
        return effects

    def decide(self) -> None:
        self._hear(self.engine.cycle(self.now_ns, self.dice.randint(1, 40)).effects)

    def ask(self, pod: Pod) -> None:
        dependent = self.manner in (Manner.TAGS, Manner.AT_ONCE, Manner.AWAITS, Manner.HASTY) and self._depends(pod)
        self.submit(self._application(pod.key), [pod.key], {"vcore": 1}, dependent=dependent)

    def end(self, key: str, termination: TerminationType = TerminationType.STOPPED_BY_RM) -> None:
        del self.running[key]
        self.history.append(Ended(key))
        self.release(self._application(key), key, kind=termination)

    def run(self, steps: int) -> None:
        """Submit everything, and do anything in between; then let it come to rest."""
        dice = self.dice
        waiting = deque(self.pods.values())
        for _ in range(steps):
            self.now_ns += dice.randint(0, 3) * MILLISECOND
            what = dice.random()
            if what < 0.2 and waiting:
                for _ in range(min(len(waiting), dice.choice((1, 1, 10)))):
                    self.ask(waiting.popleft())
            elif what < 0.4:
                self.decide()
            elif what < 0.95:
                self._do_something()
            elif self._settled_keys():
                ends = dice.choice((TerminationType.STOPPED_BY_RM, TerminationType.SCHEDULING_FAILED_ON_RM))
                self.end(dice.choice(self._settled_keys()), ends)
        while waiting:
            self.ask(waiting.popleft())
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """Goes on until nothing was placed for longer than the core leaves nodes out after refusals."""
        placed, since_ns = -1, self.now_ns
        while True:
            self.decide()
            if self._do_something():
                continue
            if len(self.history) != placed:
                placed, since_ns = len(self.history), self.now_ns
            wake_ns = self.engine.next_wakeup_ns()
            if wake_ns is None or wake_ns > since_ns + REST * pausing.LEAST_NS:
                return
            self.now_ns = max(self.now_ns + MILLISECOND, wake_ns)

    def violations(self) -> list[str]:
        return list(find_violations(self.history, self.pods, self.topology))

    def _do_something(self) -> bool:
        """Reads or sends one thing; false when there is none."""
        possible = []
        if any(map(self._can_judge, self._unread_questions)):
            possible.append(self._read_question)
        if self._unread_allocations:
            possible.append(self._read_allocation)
        if self._unsent:
            possible.append(self._send_something)
        if not possible:
            return False
        self.dice.choice(possible)()
        return True

    def _can_judge(self, question: PredicatesAsked | PlacementVoid) -> bool:
        after = question.after if isinstance(question, PredicatesAsked) else None
        return after is None or self.manner is Manner.HASTY or (after.key, after.node_id) in self._read

    def _read_question(self) -> None:
        question = next(filter(self._can_judge, self._unread_questions))
        self._unread_questions.remove(question)
        if isinstance(question, PlacementVoid):
            self.running.pop(question.key, None)
            return
        pod = self.pods[question.key]
        self._read -= {(key, node) for key, node in self._read if key == pod.key}  # It is to be placed anew.
        others = {key: node for key, node in self.running.items() if key != pod.key}
        if self.manner is Manner.AT_ONCE and self._depends(pod):
            self.running.pop(pod.key, None)  # A new question: what was in place for it was not acted upon.
        refused = []
        for node in question.node_ids:
            reason = refuse_node(pod, node, others, self.pods, self.topology)
            if reason:
                refused.append((node, reason))
        allowed = [node for node in question.node_ids if node not in dict(refused)]
        says = self.manner is Manner.ANSWERS and self._depends(pod)
        acknowledged: tuple[PlacementKey, ...] = ()
        if self.manner is Manner.AT_ONCE and self._depends(pod) and allowed:
            self.running[pod.key] = allowed[0]
            acknowledged = (PlacementKey(PARTITION, pod.key),)
        answer = PredicatesAnswer(question.question, tuple(refused), says)
        self._unsent.append(AnswerCallbacks(RM, (answer,), acknowledged=acknowledged))

    def _read_allocation(self) -> None:
        effect = self._unread_allocations.popleft()
        if isinstance(effect, Allocated):
            self.running[effect.spec.key] = effect.node_id
            self._read.add((effect.spec.key, effect.node_id))
            if self.manner in (Manner.AWAITS, Manner.HASTY):
                return
            self._unsent.append(AnswerCallbacks(RM, acknowledged=(PlacementKey(PARTITION, effect.spec.key),)))

    def _send_something(self) -> None:
        """Sends what was ready first, or, among answers to what does not depend, any other."""
        if self.manner is Manner.ANSWERS and self.dice.random() < 0.3:
            self._unsent.rotate(-self.dice.randrange(len(self._unsent)))
        self.apply(self._unsent.popleft())

    def _hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PredicatesAsked | PlacementVoid):
                self._unread_questions.append(effect)
            elif isinstance(effect, Allocated):
                self.history.append(Placed(effect.spec.key, effect.node_id))
                self._unread_allocations.append(effect)

    def _settled_keys(self) -> list[str]:
        """What the shim has heard of as running, and so may end."""
        unread = {effect.spec.key for effect in self._unread_allocations if isinstance(effect, Allocated)}
        told: dict[str, None] = {}
        for happened in self.history:
            if isinstance(happened, Placed):
                told[happened.key] = None
            else:
                told.pop(happened.key, None)
        return [key for key in told if key in self.running and key not in unread]

    def _depends(self, pod: Pod) -> bool:
        return depends_on_placements(pod, self.pods.values())

    def _application(self, key: str) -> str:
        return f"app{int(key[1:]) % APPLICATIONS}"


@pytest.mark.parametrize("manner", [Manner.TAGS, Manner.ANSWERS, Manner.AT_ONCE, Manner.AWAITS])
def test_no_rule_between_pods_is_broken(manner: Manner) -> None:
    for seed in range(SEEDS):
        shim = PodShim(seed, manner)
        shim.run(400)
        assert shim.violations() == [], f"seed {seed}"
        state = shim.engine.partition(PARTITION)
        assert state is not None
        assert audit.check(state) == [], f"seed {seed}"


@pytest.mark.parametrize("manner", [Manner.SILENT, Manner.HASTY])
def test_a_shim_that_keeps_no_order_sees_rules_broken(manner: Manner) -> None:
    """So the test above can fail: the same shim without marks places pods side by side that must not be, and so does
    one that does not await what it said it would."""
    broken = 0
    for seed in range(20):
        shim = PodShim(seed, manner)
        shim.run(400)
        broken += bool(shim.violations())
    assert broken > 5


@pytest.mark.parametrize("manner", [Manner.TAGS, Manner.ANSWERS, Manner.AT_ONCE, Manner.AWAITS])
@pytest.mark.parametrize(
    ("rule", "most"),
    [
        (Pod("", ("web",), anti_affinity=(Term("web", "hostname"),)), 6),
        (Pod("", ("web",), host_port=8080), 6),
        (Pod("", ("web",), spread=(Spread("web", "zone", 1),)), 30),
    ],
    ids=["anti-affinity", "port", "spread"],
)
def test_as_many_run_as_the_rule_allows(manner: Manner, rule: Pod, most: int) -> None:
    """Waiting for one another loses nothing: every pod that may run does."""
    shim = PodShim(1, manner, pods=0)
    shim.topology = {f"m{n}": {"hostname": f"m{n}", "zone": f"z{n % 3}"} for n in range(6)}
    for name in shim.topology:
        shim.node(name, {"vcore": 5})
    for node in [name for name in shim.state.nodes if name not in shim.topology]:
        shim.node(node, action=NodeAction.DECOMISSION)
    shim.pods = {f"p{n}": Pod(f"p{n}", rule.labels, rule.anti_affinity, rule.spread, rule.host_port) for n in range(40)}
    for pod in shim.pods.values():
        shim.ask(pod)
    shim.come_to_rest()
    assert shim.violations() == []
    assert len(shim.running) == most


def test_a_no_that_is_older_than_an_end_is_doubted_in_time() -> None:
    """What has ended before the answer came may have been in place when the shim judged."""
    core = DrivenCore("partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]")
    core.apply(AttachCallbacks(RM, predicates=True, awaits_placements=True))
    core.node("m0", {"vcore": 1})
    core.node("m1", {"vcore": 2})
    core.application("app", "root.a")
    core.submit("app", ["near"], {"vcore": 1}, node_id="m0", dependent=True)
    core.submit("app", ["large"], {"vcore": 2}, dependent=True)
    (question,) = [effect for effect in core.cycle() if isinstance(effect, PredicatesAsked)]
    core.release("app", "near")
    core.apply(AnswerCallbacks(RM, (PredicatesAnswer(question.question, (("m1", "too near"),), True),)))
    core.now_ns = pausing.LEAST_NS
    assert [effect.key for effect in core.cycle() if isinstance(effect, PredicatesAsked)] == ["large"]


@pytest.mark.parametrize("manner", [Manner.TAGS, Manner.ANSWERS, Manner.AT_ONCE, Manner.AWAITS])
def test_random_rules_hold_and_nobody_waits_for_nothing(manner: Manner) -> None:
    for seed in range(scale_examples(4)):
        shim = PodShim(seed, manner, pods=0)
        dice = random.Random(seed)
        shim.topology = {f"m{n}": {"hostname": f"m{n}", "zone": f"z{n % 3}"} for n in range(8)}
        for name in shim.topology:
            shim.node(name, {"vcore": 20})
        for node in [name for name in shim.state.nodes if name not in shim.topology]:
            shim.node(node, action=NodeAction.DECOMISSION)
        shim.pods = random_rules(dice, 80, 12)
        for pod in shim.pods.values():
            shim.ask(pod)
        shim.come_to_rest()
        assert shim.violations() == [], f"seed {seed}"
        waiting = shim.pods.keys() - shim.running.keys()
        room = [node.node_id for node in shim.state.nodes.values() if node.free[0] > 0]
        assert list(find_idle(sorted(waiting), room, shim.running, shim.pods, shim.topology)) == [], f"seed {seed}"
        assert len(shim.running) > 10, f"seed {seed}"
