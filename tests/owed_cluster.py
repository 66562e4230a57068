"""Full clusters in which queues are owed room: the engine alone, and a shim that confirms each victim at once.

Time is simulated, and every run is bounded in slices, so that an engine which never serves anybody shows as asks that
were not placed and not as a test that hangs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kornel.core.domain.commands import (
    AllocationSpec,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
)
from kornel.core.domain.effects import Allocated, Released
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish
from tests.driven_core import DrivenCore

RM: Final = "owed"
PARTITION: Final = f"[{RM}]default"
SECOND_NS: Final = 10**9
SLICE_NS: Final = 2_000_000
"""The least simulated time from one slice to the next one."""
BUDGET: Final = 250
LOADS: Final = 10
"""The number of applications that share what runs."""


@dataclass
class Played:
    """The results of one run of slices. Times of the processor are in seconds."""

    placed: dict[str, str] = field(default_factory=dict)
    """The node of each ask that was placed, by its key."""
    victims: int = 0
    slices: int = 0
    idle: int = 0
    """The number of slices after the last effect."""
    took_s: float = 0.0
    first_s: float = 0.0
    """The time until the first victim."""
    longest_s: float = 0.0
    standing: str = ""
    """What stood still, as the engine says; empty: nothing did."""
    quiet: bool = False
    """Tells whether the engine had nothing more to do at the end."""


class OwedCluster(DrivenCore):
    """An engine with *nodes*, the queue ``root.low`` in which everything runs, and *queues* that are guaranteed *owed*
    each."""

    def __init__(
        self,
        nodes: Sequence[Resources],
        queues: int,
        owed: Resources,
        delay_s: int,
        racks: int = 0,
        preemption: str = "{governor: {victims: {guarantee: {ask: 0, interval: 0}}}}",
    ) -> None:
        amounts = ", ".join(f"{name}: {amount}{'m' if name == 'vcore' else ''}" for name, amount in owed.items())
        terms = f"resources: {{guaranteed: {{{amounts}}}}}, properties: {{preemption.delay: {delay_s}s}}"
        children = ", ".join(["{name: low}", *(f"{{name: o{at}, {terms}}}" for at in range(queues))])
        levels = "topology: [rack], " if racks else ""
        root = f"{{name: root, submitacl: '*', queues: [{children}]}}"
        config = f"partitions: [{{name: default, {levels}preemption: {preemption}, queues: [{root}]}}]"
        super().__init__(config, rm_id=RM)
        for at, capacity in enumerate(nodes):
            self.node(f"n{at:05}", capacity, attributes=(("rack", f"r{at % racks}"),) if racks else ())
        names = [(f"l{at}", "root.low") for at in range(LOADS)] + [(f"h{at}", f"root.o{at}") for at in range(queues)]
        for name, queue in names:
            self.application(name, queue)
        self.now_ns = SECOND_NS

    def run(self, tasks: Iterable[tuple[int, Resources, int]]) -> None:
        """Has *tasks* run: the number of the node, the size and the priority of each."""
        running = (
            AllocationSpec(
                f"k{at}", f"l{at % LOADS}", PARTITION, size, node_id=f"n{node:05}", priority=priority, created_s=1
            )
            for at, (node, size, priority) in enumerate(tasks)
        )
        self.send(*running)
        self.cycle(BUDGET)

    def ask(
        self, wave: str, sizes: Sequence[Resources], queues: int, asks: int, priorities: Sequence[int] = (0,)
    ) -> None:
        """Has *asks* tasks ask, of each size and for each queue in turn. Their keys begin with *wave*."""
        specs = (
            AllocationSpec(
                f"{wave}{at}",
                f"h{at % queues}",
                PARTITION,
                sizes[at % len(sizes)],
                priority=priorities[at % len(priorities)],
                allow_preempt_other=True,
            )
            for at in range(asks)
        )
        self.send(*specs)

    def ask_for_gang(self, sizes: Sequence[Resources]) -> None:
        """Has a hard gang of the first queue ask with one member of each of *sizes*, all of which require one rack.
        The keys of its members begin with ``g``."""
        whole = Resources({"vcore": sum(size["vcore"] for size in sizes)})
        self.application("g", "root.o0", placeholder_ask=whole, gang_style="Hard")
        about: dict[str, Any] = {"task_group": "g", "placeholder": True, "allow_preempt_other": True}
        wish = TopologyRequest(Wish.REQUIRED, "rack")
        members = (
            AllocationSpec(f"g{at}", "g", PARTITION, size, **about, topology=wish) for at, size in enumerate(sizes)
        )
        self.send(*members)

    def play(
        self,
        most_slices: int,
        *,
        until_placed: int | None = None,
        until_ns: int | None = None,
        until_victim: bool = False,
        patience_s: int = 60,
    ) -> Played:
        """Runs slices, and time between them, until *until_placed* asks are placed, *until_ns* has come, a victim was
        found, nothing has happened for *patience_s* simulated seconds, the engine stands still by its own law, or
        *most_slices* were run."""
        found = Played()
        heard_ns = self.now_ns
        while found.slices < most_slices:
            if until_placed is not None and len(found.placed) >= until_placed:
                break
            if until_victim and found.victims:
                break
            if until_ns is not None and self.now_ns >= until_ns:
                break
            began = time.process_time()
            result = self.engine.cycle(self.now_ns, BUDGET)
            effects = result.effects
            gone = tuple(
                ReleaseSpec(PARTITION, effect.application_id, effect.key, TerminationType.PREEMPTED_BY_SCHEDULER)
                for effect in effects
                if isinstance(effect, Released)
            )
            took = time.process_time() - began
            found.longest_s = max(found.longest_s, took)
            if gone:
                began = time.process_time()
                effects = effects + self.engine.apply(UpdateAllocations(RM, releases=gone), self.now_ns)
                took += time.process_time() - began
            found.took_s += took
            found.slices += 1
            if gone and not found.victims:
                found.first_s = found.took_s
            found.victims += len(gone)
            placed = {effect.spec.key: effect.node_id for effect in effects if isinstance(effect, Allocated)}
            found.placed |= placed
            if gone or placed:
                heard_ns, found.idle = self.now_ns, 0
            else:
                found.idle += 1
            found.standing = " ".join(result.standing.values())
            if found.standing:
                break
            if result.more or gone:
                self.now_ns += SLICE_NS
                continue
            wakeup_ns = self.engine.next_wakeup_ns()
            if wakeup_ns is None or wakeup_ns > heard_ns + patience_s * SECOND_NS:
                found.quiet = True
                break
            self.now_ns = max(min(wakeup_ns, until_ns or wakeup_ns), self.now_ns + SLICE_NS)
        return found


def slices_for(nodes: int, questions: int, asks: int) -> int:
    """Returns a bound for the slices in which *asks* asks with *questions* different questions are served on *nodes*
    nodes: each question is answered twice at most, in steps of no fewer than 250 nodes, and each ask is tried, preempts
    and is placed."""
    return 2 * min(questions, asks) * (1 + nodes // 250) + 4 * asks + 100
