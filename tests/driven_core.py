"""An engine, and what everybody says to one: nodes, applications, asks and releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    Command,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Effect
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.snapshot.engines import has_work_under_way, restore_engine, write_engine
from kornel.core.state.partition_state import PartitionState
from kornel.v1.snapshot_pb2 import SnapshotState

Amounts = Mapping[str, int]


class DrivenCore:
    """An engine with one manager, whose default partition is spoken to. Time stands still until *now_ns* is set."""

    def __init__(self, config: str = "", *, rm_id: str = "rm", now_ns: int = 0, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()
        self.now_ns = now_ns
        self.restarts = False
        self.rm_id = rm_id
        self.partition = f"[{rm_id}]default"
        self.apply(RegisterManager(rm_id, config))

    @property
    def state(self) -> PartitionState:
        """The default partition."""
        found = self.engine.partition(self.partition)
        assert found is not None
        return found

    def apply(self, command: Command) -> list[Effect]:
        """Has the engine apply *command* now."""
        return self.engine.apply(command, self.now_ns)

    def node(
        self, name: str, capacity: Amounts | None = None, action: NodeAction = NodeAction.CREATE, **details: Any
    ) -> list[Effect]:
        """Adds a node, or does *action* to it."""
        offered = None if capacity is None else Resources(capacity)
        return self.apply(
            UpdateNodes(self.rm_id, (NodeSpec(name, action, self.partition, capacity=offered, **details),))
        )

    def application(self, name: str, queue: str = "", user: str = "tester", **details: Any) -> list[Effect]:
        """Adds an application; *queue* is the whole path."""
        spec = ApplicationSpec(name, queue, self.partition, user, **details)
        return self.apply(UpdateApplications(self.rm_id, (spec,)))

    def submit(self, application: str, keys: Iterable[str], size: Amounts, **details: Any) -> list[Effect]:
        """Asks for an allocation under each of *keys*, or with ``node_id`` reports that they run."""
        amounts = Resources(size)
        return self.send(*(AllocationSpec(key, application, self.partition, amounts, **details) for key in keys))

    def send(self, *specs: AllocationSpec) -> list[Effect]:
        """Sends asks, and what runs, in one message."""
        return self.apply(UpdateAllocations(self.rm_id, specs))

    def release(self, application: str, *keys: str, kind: int = TerminationType.STOPPED_BY_RM) -> list[Effect]:
        """Ends allocations, or withdraws asks."""
        specs = (ReleaseSpec(self.partition, application, key, kind) for key in keys)
        return self.apply(UpdateAllocations(self.rm_id, releases=tuple(specs)))

    def restart(self) -> None:
        """Has another engine go on, made of a snapshot of this one."""
        if has_work_under_way(self.engine):
            return
        state = SnapshotState.FromString(write_engine(self.engine).SerializeToString())
        self.engine = Engine()
        assert restore_engine(self.engine, state) == []

    def cycle(self, budget: int = 1_000) -> list[Effect]:
        """Runs slices until nothing is left to do now, and returns what came of them. With ``restarts`` another engine
        does."""
        if self.restarts:
            self.restart()
        effects: list[Effect] = []
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, budget)
            effects += result.effects
            more = result.more
        return effects
