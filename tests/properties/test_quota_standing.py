"""Maxima through random histories of a whole engine: what is said of them, and what becomes of what a run left."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.reasons import Outcome
from kornel.core.model.queues import Queue
from kornel.core.preemption.quota import planner as quota
from kornel.core.state.partition_state import PartitionState
from tests.examples import scale_examples
from tests.scenarios.stage import Stage

SEEDS = st.integers(0, 2**32)
PATHS = ("p", "p.a", "p.b", "q", "q.c")
LEAVES = ("p.a", "p.b", "q.c")


@dataclass
class Settings:
    guaranteed: int = 0
    most: int | None = None
    delay: int = 0


@dataclass
class Cluster:
    """An engine, the configuration in force, and the tasks that run by their queue."""

    rng: random.Random
    stage: Stage = field(default_factory=Stage)
    enabled: bool = True
    listed: dict[str, Settings] = field(default_factory=lambda: {path: Settings() for path in PATHS})
    tasks: dict[str, str] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)
    made: int = 0
    stubborn: bool = False
    """Victims do not leave for the time being."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The placeholders that give way to real tasks, each with its application, until the shim confirms it."""

    @property
    def state(self) -> PartitionState:
        return self.stage.state

    def configure(self, *, begin: bool = False) -> None:
        lines = [f"partition default quota={'on' if self.enabled else 'off'} 'victim={{timeout: 20s}}'"]
        for path, terms in self.listed.items():
            parts = [f"queue root.{path}"]
            if terms.guaranteed:
                parts.append(f"guaranteed={{f={terms.guaranteed}}}")
            if terms.most is not None:
                parts.append(f"max={{f={terms.most}}}")
            if terms.delay:
                parts.append(f"quota.preemption.delay={terms.delay}")
            lines.append(" ".join(parts))
        if begin:
            lines += ["node n1 f=10000", *(f"app {path} queue=root.{path}" for path in LEAVES)]
        else:
            lines.append("update-config")
        self.play(lines)

    def run(self) -> None:
        leaf = self.rng.choice([path for path in LEAVES if path in self.listed] or ["p.a"])
        if leaf not in self.listed:
            return
        self.made += 1
        key = f"k{self.made:03}"
        bound = " required=n1" if self.rng.random() < 0.1 else ""
        self.play([f"run {key} app={leaf} node=n1 f={self.rng.randint(1, 9)}{bound}"])
        self.tasks[key] = leaf

    def run_gang(self) -> None:
        """Place a gang whose placeholders give way at once, or when real tasks come, as far as there is room."""
        leaf = self.rng.choice([path for path in LEAVES if path in self.listed] or ["p.a"])
        if leaf not in self.listed:
            return
        self.made += 1
        size, count, name = self.rng.randint(1, 9), self.rng.randint(1, 4), f"g{self.made:03}"
        style = self.rng.choice(["Soft", "Hard"])
        asks = [f"ask {name}-p{at} placeholder app={name} f={size} group=g" for at in range(count)]
        real = [f"ask {name}-r{at} app={name} f={size} group=g" for at in range(self.rng.randint(0, count))]
        self.play([f"app {name} queue=root.{leaf} gang={{f={size * count}}} style={style}", *asks, "cycle", *real])
        self.play(["cycle"])

    def play(self, lines: list[str]) -> list[str]:
        """Play *lines*, and note which tasks of gangs run, and which placeholders give way."""
        answers = self.stage.play(lines)
        for words in map(str.split, answers):
            if words[0].startswith("@"):
                del words[0]
            if words[0] == "allocate" and words[1] not in self.tasks:
                self.tasks[words[1]] = words[1].partition("-")[0]
            elif words[0] == "release" and words[2] == "PLACEHOLDER_REPLACED":
                self.replaced[words[1]] = self.tasks.pop(words[1])
        return answers

    def confirm(self) -> None:
        """Confirm that some placeholders are gone, so that the real tasks run in their places."""
        for key in self.rng.sample(sorted(self.replaced), self.rng.randint(0, len(self.replaced))):
            self.play([f"release {key} app={self.replaced.pop(key)} type=PLACEHOLDER_REPLACED"])

    def end(self) -> None:
        if self.tasks:
            key = self.rng.choice(sorted(self.tasks))
            self._gone(key)

    def _gone(self, key: str) -> None:
        kind = " type=PREEMPTED_BY_SCHEDULER" if key in self.leaving else ""
        self.play([f"release {key} app={self.tasks.pop(key)}{kind}"])
        if key in self.leaving:
            self.leaving.remove(key)

    def change(self) -> None:
        terms = self.listed[self.rng.choice(sorted(self.listed))] if self.listed else Settings()
        held = {path: self.used(path) for path in self.listed}
        path = next((path for path, found in self.listed.items() if found is terms), "")
        roll = self.rng.random()
        if roll < 0.5:
            # At least what is guaranteed below, as a configuration has to be.
            terms.most = max(self._least(path), self.rng.randint(0, held.get(path, 0) + 3))
        elif roll < 0.9:
            terms.guaranteed = self.rng.choice([0, self.rng.randint(0, held.get(path, 0) + 3)])
        else:
            terms.delay = self.rng.choice([0, 1, 1, 2])
        self._mend()
        self.configure()

    def _least(self, path: str) -> int:
        return sum(terms.guaranteed for other, terms in self.listed.items() if other.startswith(f"{path}."))

    def _mend(self) -> None:
        """Make the settings a configuration that is taken: no guarantee above its max or that of a queue above."""
        for path in sorted(self.listed, key=lambda path: -path.count(".")):
            terms = self.listed[path]
            above = self.listed.get(path.rpartition(".")[0])
            if terms.guaranteed and terms.guaranteed < self._least(path):
                terms.guaranteed = self._least(path)
            needed = max(terms.guaranteed, self._least(path))
            if terms.most is not None:
                terms.most = max(terms.most, needed)
            if above is not None and above.most is not None and terms.most is not None:
                above.most = max(above.most, terms.most)
        for path, terms in self.listed.items():
            if terms.most is not None:
                terms.most = max(terms.most, terms.guaranteed, self._least(path))

    def used(self, path: str) -> int:
        queue = self.state.queues.get(f"root.{path}")
        return sum(queue.used) if queue is not None else 0

    def drop(self) -> None:
        gone = self.rng.choice(["p.b", "q"])
        for path in [path for path in self.listed if path == gone or path.startswith(f"{gone}.")]:
            del self.listed[path]
        self.configure()

    def switch(self) -> None:
        self.enabled = not self.enabled
        self.configure()

    def pass_time(self, seconds: int) -> None:
        """Second by second; whoever is told to leave does, unless nobody does for now. Each decision is checked."""
        for _ in range(seconds):
            unlisted = {queue.path for queue in self.state.queues.values() if queue.draining}
            lines = self.play([f"cycle at={self.stage.now_ns // 10**9 + 1}s"])
            for line in lines:
                words = line.split()
                if words[0] == "release" and words[2] == "PREEMPTED_BY_SCHEDULER":
                    assert words[3].removeprefix("for=") not in unlisted, "enforced, and not configured"
                    self.leaving.append(words[1])
                elif words[0] == "enforce" and words[2] == "FULL:":
                    assert not self.over(self.state.queues[words[1]], gone=self.stuck()), line
            if not self.stubborn:
                for key in list(self.leaving):
                    self._gone(key)

    def stuck(self) -> int:
        return sum(sum(amount for _, amount in victim.shape.pairs) for victim in self.state.stuck)

    @staticmethod
    def over(queue: Queue, gone: int = 0) -> bool:
        return any(queue.used[t] - queue.preempting[t] - gone > most for t, most in queue.max.items())


def history(seed: int) -> Cluster:
    rng = random.Random(seed)
    cluster = Cluster(rng)
    for terms in cluster.listed.values():
        terms.delay = rng.choice([0, 1, 1])
    cluster.configure(begin=True)
    for _ in range(rng.randint(6, 16)):
        rng.choice([cluster.run, cluster.run, cluster.run_gang])()
    acts = [cluster.run, cluster.run_gang, cluster.end, *[cluster.change] * 4, cluster.switch, *[cluster.confirm] * 2]
    for _ in range(rng.randint(4, 14)):
        cluster.stubborn = rng.random() < 0.15
        rng.choice([*acts, cluster.drop] if rng.random() < 0.5 else acts)()
        cluster.pass_time(rng.choice([3, 25]) if cluster.stubborn else rng.randint(1, 4))
    cluster.stubborn = False
    return cluster


@settings(max_examples=scale_examples(80), deadline=None)
@given(SEEDS)
def test_maxima_through_a_history(seed: int) -> None:
    """FULL is true, what is not configured loses nobody, the sign stands for exactly the queues above their max, and
    when all guarantees fall and gangs have changed places nothing is left that a run would still free."""
    cluster = history(seed)
    cluster.pass_time(3)
    for terms in cluster.listed.values():
        terms.guaranteed, terms.most, terms.delay = 0, None, 1
    cluster.enabled = True
    cluster.configure()
    cluster.run_gang()
    for path, terms in cluster.listed.items():
        terms.most = cluster.rng.choice([terms.most, cluster.rng.randint(0, cluster.used(path))])
    cluster.configure()
    while cluster.replaced:
        cluster.pass_time(3)
        cluster.confirm()
    cluster.pass_time(70)
    state = cluster.state
    assert state.law_violations == 0
    above = {
        queue.path
        for queue in state.queues.values()
        if queue.managed and not queue.draining and queue.parent is not None
        if any(queue.used[t] > most for t, most in queue.max.items())
    }
    assert {queue.path for queue in state.enforcement.above} == above
    for queue, standing in state.enforcement.above.items():
        if standing.reached in (Outcome.PARTIAL, Outcome.NONE):
            assert quota.plan_enforcement(queue, 0).victims == (), f"{queue.path} is left although somebody may go"
    quiet = cluster.stage.play([f"cycles until={cluster.stage.now_ns // 10**9 + 100}s every=1s"])
    assert not [line for line in quiet if "enforce" in line or "release" in line], "it does not go quiet"
