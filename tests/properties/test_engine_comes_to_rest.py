"""The whole engine under a demand that never lets go: every victim is asked for again at once, for hours.

Guarantees, fences and offsets are random, the governor bounds nothing. The engine must come to rest by the laws alone
(preemption.md A.1 no. 1, 2, 11, 12), also with all kinds of preemption on at once, where victims are asked for again at
once, late or by another application. For a long run:
``python -m tests.properties.test_engine_comes_to_rest --seconds 3600``, with ``--all-kinds`` or without.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec, TerminationType, UpdateConfiguration
from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.resources import Resources
from kornel.core.state.books import audit
from tests.driven_core import DrivenCore
from tests.examples import scale_examples

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
STEP_S: Final = 5
QUIET_STEP_S: Final = 60
DELAYS_S: Final = 180
"""So long every delay of the configurations has passed, after which time goes by in larger steps."""
AT_REST_S: Final = 1_800
"""So long without a victim: every retry and every re-arming (10 minutes at most) has had its chance."""
LONGEST_S: Final = 6 * 3_600
RAISED: Final = "max: {vcore: 100m}"
LOWERED: Final = "max: {vcore: 3m}"
NO_GOVERNOR: Final = (
    "{cluster: {victims: 0}, queue: {victims: 0}, application: {victims: 0}, cooldown_ms: 0, loop: {window_ms: 0}}"
)


class Storm(DrivenCore):
    """A cluster with more demand than room, and a shim that never gives up a task."""

    def __init__(self, seed: int, *, all_kinds: bool = False) -> None:
        self._all_kinds = all_kinds
        self._later: list[tuple[int, AllocationSpec]] = []
        self._dice = dice = random.Random(seed)
        self._types = ["vcore"] if dice.random() < 0.5 else ["vcore", "memory"]
        capacities = [{t: dice.randint(4, 9) for t in self._types} for _ in range(dice.randint(1, 3))]
        self._total = {t: sum(capacity[t] for capacity in capacities) for t in self._types}
        self._text = self._configuration()
        super().__init__(self._text.replace(LOWERED, RAISED))
        for at, capacity in enumerate(capacities):
            self.node(f"n{at}", capacity)
        for leaf in self._leaves:
            for number in range(2):
                self.application(f"{leaf}-{number}", leaf)
        self._incarnations: dict[str, int] = {}
        self._tasks: dict[str, AllocationSpec] = {}
        self.evictions: list[tuple[int, str, str]] = []
        """(second, who took the room, who lost it): tasks, whatever incarnation; nobody took it for a queue."""
        self.kinds: set[str] = set()

    def _configuration(self) -> str:
        """Two parents with two leaves each; what is guaranteed can be held together."""
        dice = self._dice
        self._leaves = [f"root.{parent}.{leaf}" for parent in "pq" for leaf in "ab"]
        parents = []
        for parent in "pq":
            leaves, sums = [], dict.fromkeys(self._types, 0)
            for leaf in "ab":
                share = {t: dice.randint(1, max(1, self._total[t] // 4)) for t in self._types}
                if dice.random() < 0.3:
                    share = {}
                for t, amount in share.items():
                    sums[t] += amount
                leaves.append(self._queue(leaf, share))
            most = {t: amount + dice.randint(0, 2) for t, amount in sums.items()} if dice.random() < 0.5 else {}
            parents.append(self._queue(parent, most, f", queues: [{', '.join(leaves)}]"))
        mode, others = dice.choice(["reach", "strict"]), ""
        if self._all_kinds:
            others = ", quotapreemptionenabled: true, coexist: true"
            others += ", monitor: {enabled: true, max_wait_ms: 0}" if dice.random() < 0.4 else ""
        return (
            f"partitions: [{{name: default, preemption: {{guaranteemode: {mode}, governor: {NO_GOVERNOR}{others}}},"
            f" queues: [{{name: root, submitacl: '*', queues: [{', '.join(parents)}]}}]}}]"
        )

    def _queue(self, name: str, guaranteed: dict[str, int], below: str = "") -> str:
        dice = self._dice
        amounts = ", ".join(f"{t}: {amount}{'m' if t == 'vcore' else ''}" for t, amount in guaranteed.items())
        policy = dice.choice(["default"] * 12 + ["fence", "disabled"])
        offset, priority_policy = dice.choice([0] * 5 + [1]), dice.choice(["default"] * 6 + ["fence"])
        properties = (
            f"preemption.delay: 10s, preemption.policy: {policy},"
            f" priority.offset: '{offset}', priority.policy: {priority_policy}"
        )
        if self._all_kinds and not below and dice.random() < 0.8:
            properties += f", preemption.within: priority, preemption.within.gap: {dice.choice([1, 1, 2])}"
        most = f", {LOWERED}" if self._all_kinds and not below and dice.random() < 0.3 else ""
        if most:
            properties += ", quota.preemption.delay: 60s"
            amounts = ", ".join(f"{t}: 1{'m' if t == 'vcore' else ''}" for t in guaranteed)
        return f"{{name: {name}, resources: {{guaranteed: {{{amounts}}}{most}}}, properties: {{{properties}}}{below}}}"

    def play(self) -> int:
        """Run until nobody has left for a long time. Returns the number of evictions."""
        dice = self._dice
        demand = [
            AllocationSpec(
                f"t{at}",
                f"{dice.choice(self._leaves)}-{dice.randrange(2)}",
                PARTITION,
                Resources({t: dice.randint(1, 3) for t in self._types}),
                dice.choice([0, 0, 1, 2, 3] if self._all_kinds else [0, 0, 1]),
                originator=dice.random() < 0.1,
                allow_preempt_self=dice.random() < 0.9,
                allow_preempt_other=True,
            )
            for at in range(dice.randint(12, 30))
        ]
        if self._all_kinds:
            demand[0] = demand[0]._replace(required_node="n0", allow_preempt_self=False)
        now_s = 0
        least = (0, 2) if self._all_kinds else (0,)  # Who comes first takes all there is.
        for leaf, lowest in [(leaf, p) for p in least for leaf in dice.sample(self._leaves, len(self._leaves))]:
            for task in demand:
                if task.application_id.startswith(leaf) and max(p for p in least if p <= task.priority) == lowest:
                    self._ask(task)
            self._step(now_s)
            now_s += STEP_S
            self.now_ns = now_s * SECOND
        if LOWERED in self._text:
            self.apply(UpdateConfiguration(self.rm_id, self._text))
        while now_s - (self.evictions[-1][0] if self.evictions else 0) < AT_REST_S:
            assert now_s < LONGEST_S, "does not come to rest"
            self._step(now_s)
            quiet_s = now_s - max(DELAYS_S, self.evictions[-1][0] if self.evictions else 0)
            now_s += STEP_S if quiet_s < DELAYS_S else QUIET_STEP_S
            self.now_ns = now_s * SECOND
        self._check_turns()
        return len(self.evictions)

    def _ask(self, task: AllocationSpec) -> None:
        number = self._incarnations[task.key] = self._incarnations.get(task.key, 0) + 1
        again = task._replace(key=f"{task.key}.{number}")
        self._tasks[again.key] = task
        self.send(again)

    def _ask_again(self, task: AllocationSpec, now_s: int) -> None:
        """Asks for a victim again: at once, or if all kinds are on also late, or by the other application."""
        fate = self._dice.random() if self._all_kinds else 1
        if fate < 0.25:
            leaf, _, number = task.application_id.rpartition("-")
            task = task._replace(application_id=f"{leaf}-{1 - int(number)}")
        if fate < 0.5:
            self._later.append((now_s + self._dice.choice([0, 5, 60]), task))
        else:
            self._ask(task)

    def _step(self, now_s: int) -> None:
        for due in [due for due in self._later if due[0] <= now_s]:
            self._later.remove(due)
            self._ask(due[1])
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, 100)
            more = result.more
            for effect in result.effects:
                if isinstance(effect, PreemptionDecided) and effect.victims:
                    for victim in effect.victims:
                        taker = self._tasks[effect.key].key if effect.key else ""
                        loser = self._tasks[victim.key].key
                        self.kinds.add(effect.kind)
                        self.evictions.append((now_s, taker, loser))
                        # Its controller is quicker than the shim's confirmation.
                        self._ask_again(self._tasks[victim.key], now_s)
                        kind = TerminationType.PREEMPTED_BY_SCHEDULER
                        self.release(victim.application_id, victim.key, kind=kind)
                    more = True
        assert audit.check(self.state) == []
        assert self.state.law_violations == 0

    def _check_turns(self) -> None:
        """No two tasks go on taking each other's room: A from B, B from A, A from B."""
        between: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for _, taker, loser in self.evictions:
            turns = between[tuple(sorted((taker, loser)))] if taker else [loser]
            if not turns or turns[-1] != taker:
                turns.append(taker)
        assert all(len(turns) < 3 for turns in between.values()), between


@settings(max_examples=scale_examples(40), deadline=None)
@given(st.integers(0, 2**32))
def test_comes_to_rest(seed: int) -> None:
    """After finitely many evictions nobody leaves any more, no law was broken, and no two tasks took turns."""
    Storm(seed).play()


@settings(max_examples=scale_examples(500), deadline=None)
@given(st.integers(0, 2**32))
def test_all_kinds_together_come_to_rest(seed: int) -> None:
    """No kind undoes another without end (preemption.md H, M)."""
    Storm(seed, all_kinds=True).play()


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 1])
def test_there_is_something_to_come_to_rest_from(first: int) -> None:
    """The demand really makes victims, some of which take the room of others when they come back."""
    assert sum(Storm(seed).play() for seed in range(first, 40, 2)) > 10


def main() -> None:
    """As many seeds as fit into the given number of seconds."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.test_engine_comes_to_rest", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--all-kinds", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    seed, evictions = options.seed, 0
    while time.monotonic() < ends:
        try:
            evictions += Storm(seed, all_kinds=options.all_kinds).play()
        except AssertionError:
            print(f"seed {seed}")
            raise
        seed += 1
    print(f"{seed - options.seed:,} clusters came to rest after {evictions:,} evictions")


if __name__ == "__main__":
    main()
