"""A cluster that lives: victims take their time to leave, ReplicaSets send what they lost again, tasks end.

It drives an engine as the service does, by a clock of its own: a slice whenever something was said, whenever the engine
asked to be woken, and a round of the preemption cycle each interval. Books and laws are checked as time passes.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from kornel.core.domain.commands import (
    AllocationSpec,
    AttachCallbacks,
    Command,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
)
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.domain.resources import Resources
from kornel.core.state.books import audit
from tests.driven_core import Amounts, DrivenCore
from tests.reading import status_of
from tests.scenarios.preemption.monitor_stage import queue_tree

RM: Final = "rm"
PARTITION: Final = "[rm]default"
SECOND_NS: Final = 10**9
TICK_NS: Final = 1_000_000
START_NS: Final = 100_000 * SECOND_NS

Queues = Mapping[str, dict[str, Any]]


class BusyCluster(DrivenCore):
    """An engine, its shim and the controllers behind the shim. ``now_s`` counts seconds since registration.

    Every queue has one application, named after it. Tasks and asks of these are as old as their order says, unless
    told otherwise.
    """

    def __init__(self, queues: Queues, *, leave_s: float = 0.0, recreates: bool = False, **preemption: Any) -> None:
        """*leave_s*: how long a victim takes to leave. *recreates*: what left is asked for again at once.

        *queues*: by path below root; *preemption*: that section of the partition.
        """
        self.leave_ns = round(leave_s * SECOND_NS)
        self.recreates = recreates
        self.specs: dict[str, AllocationSpec] = {}
        """Everything ever said, by key."""
        self.victims: list[str] = []
        self.placed_s: dict[str, float] = {}
        """When an ask was placed, by key."""
        self.engine_s = 0.0
        """Processor time that the engine used."""
        self._preemption = preemption
        self._leaving: list[tuple[int, int, str]] = []
        self._gone: set[str] = set()
        self._lives: dict[str, int] = {}
        self._applications: set[str] = set()
        self._tick = 0
        self._next_round_ns: int | None = None
        super().__init__(self._configuration(queues), rm_id=RM, now_ns=START_NS)

    @property
    def now_s(self) -> float:
        return (self.now_ns - START_NS) / SECOND_NS

    @property
    def attempts(self) -> int:
        return status_of(self.engine).partitions[0].preemption_attempts

    def used(self, path: str, kind: str = "f") -> int:
        """What is used in the queue at *path* below root, victims that have not left included."""
        queue = self.state.queues[f"root.{path}"]
        return self.state.types.to_resources(queue.used).get(kind, 0)

    def claimed(self, path: str, kind: str = "f") -> int:
        """What asks of the queue at *path* below root have preempted for and not received yet."""
        return self.state.types.to_resources(self.state.queues[f"root.{path}"].claimed).get(kind, 0)

    def freed(self, kind: str = "f") -> int:
        """Sum of what all victims so far were made of."""
        sizes = (self.specs[key].resources for key in self.victims)
        return sum(size.get(kind, 0) for size in sizes if size is not None)

    def unplaced(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if key not in self.placed_s]

    def run(self, queue: str, keys: Iterable[str], size: Amounts, node: str, **details: Any) -> None:
        """Tasks that are running already."""
        self._submit(queue, keys, size, node_id=node, **details)

    def ask(self, queue: str, keys: Iterable[str], size: Amounts, **details: Any) -> list[str]:
        """Asks that may preempt, unless *details* say otherwise. Returns *keys*."""
        asked = list(keys)
        self._submit(queue, asked, size, **{"allow_preempt_other": True, **details})
        return asked

    def end(self, key: str) -> None:
        """A task ends by itself, or an ask is withdrawn."""
        self._gone.add(key)
        self.release(self.specs[key].application_id, key)

    def hear_of_scaling(self) -> None:
        """Hear of the asks that more nodes would help."""
        self.apply(AttachCallbacks(RM, scheduling_states=True))

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and happen what then happens."""
        self.run_to(self.now_s + seconds)

    def run_to(self, until_s: float) -> None:
        """Let time pass until *until_s*. Books and laws are checked at the end."""
        until_ns = START_NS + round(until_s * SECOND_NS)
        self._settle()
        while (next_ns := self._next_ns()) <= until_ns:
            self.now_ns = max(next_ns, self.now_ns + TICK_NS)
            self._let_leave()
            self._settle()
        self.now_ns = max(self.now_ns, until_ns)
        self._let_leave()
        self._settle()
        self.check()

    def run_until_placed(self, keys: Iterable[str], most_s: float) -> float | None:
        """Seconds from now until all of *keys* are placed; ``None``: some are not after *most_s*."""
        began_s, wanted = self.now_s, list(keys)
        while self.unplaced(wanted):
            if self.now_s - began_s >= most_s:
                return None
            self.pass_s(0.1)
        return max(self.placed_s[key] for key in wanted) - began_s

    def check(self) -> None:
        """The books add up and no law was broken."""
        assert audit.check(self.state) == []
        assert self.state.law_violations == 0

    def apply(self, command: Command) -> list[Effect]:
        began = time.process_time()
        effects = super().apply(command)
        self.engine_s += time.process_time() - began
        assert not [effect for effect in effects if "Rejected" in type(effect).__name__], effects
        self._take(effects)
        return effects

    def _configuration(self, queues: Queues) -> str:
        partition = {"name": "default", "preemption": self._preemption, "queues": [queue_tree(queues)]}
        return yaml.safe_dump({"partitions": [partition]})

    def _submit(self, queue: str, keys: Iterable[str], size: Amounts, **details: Any) -> None:
        specs = []
        application = details.pop("application", queue)
        self._know(application, queue)
        for key in keys:
            self._tick += 1
            about = {"created_s": self._tick, **details}
            spec = AllocationSpec(key, application, PARTITION, Resources(size), **about)
            self.specs[key] = spec
            specs.append(spec)
        self.apply(UpdateAllocations(RM, tuple(specs)))

    def _know(self, application: str, queue: str) -> None:
        if application not in self._applications:
            self._applications.add(application)
            tags = (("application.creationtime", str(len(self._applications))),)
            self.application(application, f"root.{queue}", tags=tags)

    def _next_ns(self) -> int:
        """When something falls due next: a wake-up of the engine, a round, or a victim that leaves."""
        interval_ns = self.engine.preemption_interval_ns
        if self._next_round_ns is None and interval_ns is not None:
            self._next_round_ns = self.now_ns + interval_ns
        due = [self.engine.next_wakeup_ns(), self._next_round_ns, self._leaving[0][0] if self._leaving else None]
        return min((at_ns for at_ns in due if at_ns is not None), default=1 << 63)

    def _settle(self) -> None:
        """Rounds and slices until nothing is left to do at this time; a victim without a grace leaves at once."""
        interval_ns = self.engine.preemption_interval_ns
        if interval_ns is None:  # While nothing waits no round is due, and one that was is not made up for.
            self._next_round_ns = None
        elif self._next_round_ns is not None and self.now_ns >= self._next_round_ns:
            self._next_round_ns = self.now_ns + interval_ns
            self._take(self._timed(lambda: self.engine.preempt(self.now_ns)))
        busy = True
        while busy:
            result = self._timed(lambda: self.engine.cycle(self.now_ns, 250))
            self._take(result.effects)
            busy = result.more or self._let_leave()

    def _timed(self, call: Any) -> Any:
        began = time.process_time()
        result = call()
        self.engine_s += time.process_time() - began
        return result

    def _take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Released(key=key, termination=TerminationType.PREEMPTED_BY_SCHEDULER):
                    self.victims.append(key)
                    heapq.heappush(self._leaving, (self.now_ns + self.leave_ns, len(self.victims), key))
                case Allocated(spec=spec):
                    self.placed_s.setdefault(spec.key, self.now_s)

    def _let_leave(self) -> bool:
        """Confirm the victims whose time is over, and ask for them again where a controller would."""
        left = []
        while self._leaving and self._leaving[0][0] <= self.now_ns:
            key = heapq.heappop(self._leaving)[2]
            if key not in self._gone:
                self._gone.add(key)
                left.append(self.specs[key])
        if not left:
            return False
        kind = TerminationType.PREEMPTED_BY_SCHEDULER
        ended = tuple(ReleaseSpec(PARTITION, spec.application_id, spec.key, kind) for spec in left)
        self.apply(UpdateAllocations(RM, releases=ended))
        if self.recreates:
            again = tuple(self._again(spec) for spec in left)
            self.specs.update((spec.key, spec) for spec in again)
            self.apply(UpdateAllocations(RM, again))
        return True

    def _again(self, spec: AllocationSpec) -> AllocationSpec:
        """The next pod of the same ReplicaSet."""
        name = spec.key.partition("~")[0]
        self._lives[name] = self._lives.get(name, 0) + 1
        created_s = self.now_ns // SECOND_NS
        key = f"{name}~{self._lives[name]}"
        return spec._replace(key=key, node_id="", created_s=created_s, allow_preempt_other=True)


def keys(prefix: str, count: int) -> list[str]:
    """``a0000``, ``a0001`` and so on."""
    return [f"{prefix}{at:04}" for at in range(count)]


def full_of_work(nodes: int, per_node: int, asks: int, *, leave_s: float = 0.0) -> tuple[BusyCluster, list[str]]:
    """*nodes* full of tasks of one core, all of a queue without a guarantee; *asks* of one core are owed to another.

    The cluster may be preempted as a whole in one interval, so that nothing but the order of things takes time.
    """
    queues = {"v": {}, "a": {"resources": {"guaranteed": {"f": asks}}}}
    cluster = BusyCluster(queues, leave_s=leave_s, cycle={"limit": 1.0})
    for at in range(nodes):
        cluster.node(f"n{at:03}", {"f": per_node})
        cluster.run("v", keys(f"v{at:03}-", per_node), {"f": 1}, f"n{at:03}")
    return cluster, cluster.ask("a", keys("a", asks), {"f": 1})
