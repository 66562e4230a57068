"""Refuses entries on which the engine has failed, without calling the engine.

The core continues as if such an entry had never arrived (docs/journal.md). The refusal that its sender gets is recorded
in the journal like everything else that is sent, so that a replay counts it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kornel.core.domain.commands import (
    Command,
    NodeAction,
    StreamCommand,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import AllocationRejected, ApplicationRejected, Effect, NodeRejected

REASON: Final = "set-aside: the core failed on this entry and goes on without it; its log says more"


def split_command(command: StreamCommand) -> Iterator[StreamCommand]:
    """Yields *command* entry by entry, in the order in which an engine handles them."""
    if isinstance(command, UpdateAllocations):
        for spec in command.allocations:
            yield UpdateAllocations(command.rm_id, (spec,))
        for withdrawn in command.ask_releases:
            yield UpdateAllocations(command.rm_id, ask_releases=(withdrawn,))
        for released in command.releases:
            yield UpdateAllocations(command.rm_id, releases=(released,))
    elif isinstance(command, UpdateNodes):
        for node in command.nodes:
            yield UpdateNodes(command.rm_id, (node,))
    else:
        for added in command.add:
            yield UpdateApplications(command.rm_id, (added,))
        for removed in command.remove:
            yield UpdateApplications(command.rm_id, (), (removed,))


def refuse_entries(command: Command) -> list[Effect]:
    """Returns the refusals of those entries of *command* that get an answer: asks, new applications and nodes."""
    if isinstance(command, UpdateAllocations):
        return [
            AllocationRejected(spec.key, spec.application_id, REASON, spec.legacy, spec.partition)
            for spec in command.allocations
        ]
    if isinstance(command, UpdateApplications):
        return [
            ApplicationRejected(spec.application_id, REASON, spec.partition, spec.queue, spec.user)
            for spec in command.add
        ]
    if isinstance(command, UpdateNodes):
        return [
            NodeRejected(spec.node_id, REASON, spec.partition)
            for spec in command.nodes
            if spec.action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN)
        ]
    return []
