"""Gangs that each require one rack: the domain is chosen, and the members are placed in it (docs/topology.md)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.engine.engine import Engine
from tests.bench import core_process
from tests.bench.core_process import RM

PARTITION = f"[{RM}]default"
AMOUNTS = Resources({"vcore": 4_000, "memory": 8 << 30})
CAPACITY = Resources({"vcore": 16_000, "memory": 64 << 30})
SLICE = 500


@dataclass(frozen=True, slots=True)
class Workload:
    """*gangs* of *members* placeholders each; *wish* ``None``: the same gangs without any topology, to compare."""

    gangs: int = 1_000
    members: int = 8
    nodes: int = 5_000
    racks: int = 200
    wish: Wish | None = Wish.REQUIRED

    def members_per_second(self) -> float:
        """The processor time from the asks to the placements of all members."""
        engine = Engine()
        levels = "    topology: [zone, rack]\n" if self.wish is not None else ""
        configuration = core_process.flat_queues(2).replace("    queues:", f"{levels}    queues:", 1)
        engine.apply(RegisterManager(RM, configuration), 0)
        engine.apply(UpdateNodes(RM, tuple(self._node(number) for number in range(self.nodes))), 0)
        whole = Resources({name: amount * self.members for name, amount in AMOUNTS.items()})
        gangs = (
            ApplicationSpec(f"app-{n}", f"root.q{n % 2}", PARTITION, "bench", placeholder_ask=whole, gang_style="Hard")
            for n in range(self.gangs)
        )
        engine.apply(UpdateApplications(RM, tuple(gangs)), 0)
        asks = UpdateAllocations(
            RM, tuple(self._ask(gang, n) for gang in range(self.gangs) for n in range(self.members))
        )
        began = time.process_time()
        engine.apply(asks, 1)
        placed: dict[str, set[str]] = {}
        count, more = 0, True
        while more:
            result = engine.cycle(1, SLICE)
            for effect in result.effects:
                if isinstance(effect, Allocated):
                    count += 1
                    placed.setdefault(effect.spec.application_id, set()).add(self._rack_of(effect.node_id))
            more = result.more
        took = time.process_time() - began
        if count != self.gangs * self.members:
            raise AssertionError(f"{count} of {self.gangs * self.members} members were placed")
        if self.wish is Wish.REQUIRED and any(len(racks) > 1 for racks in placed.values()):
            raise AssertionError("a gang stands in several racks")
        return count / took

    def _node(self, number: int) -> NodeSpec:
        rack = number % self.racks
        attributes = (("rack", f"r{rack}"), ("zone", f"z{rack % 4}"))
        return NodeSpec(f"node-{number:05}", NodeAction.CREATE, PARTITION, attributes, CAPACITY)

    def _rack_of(self, node_id: str) -> str:
        return f"r{int(node_id.removeprefix('node-')) % self.racks}"

    def _ask(self, gang: int, number: int) -> AllocationSpec:
        wanted = TopologyRequest(self.wish, "rack") if self.wish is not None else None
        return AllocationSpec(
            f"p-{gang}-{number}", f"app-{gang}", PARTITION, AMOUNTS, task_group="g", placeholder=True, topology=wanted
        )
