"""Counts the entries of commands."""

from __future__ import annotations

from kornel.core.domain.allocation_ids import MOST_INSTANCES
from kornel.core.domain.commands import Command, StreamCommand, UpdateAllocations, UpdateApplications, UpdateNodes


def size_of_command(command: StreamCommand) -> int:
    """Returns the number of entries of *command* plus 1."""
    if isinstance(command, UpdateAllocations):
        return 1 + _allocations_meant(command) + len(command.ask_releases) + len(command.releases)
    if isinstance(command, UpdateNodes):
        return 1 + len(command.nodes)
    return 1 + len(command.add) + len(command.remove)


def _allocations_meant(command: UpdateAllocations) -> int:
    """Returns how many asks and allocations *command* stands for. One ask of the older generation may stand for many;
    such asks come last."""
    specs = command.allocations
    if not specs or not specs[-1].legacy:
        return len(specs)
    return sum(min(max(1, spec.max_allocations), MOST_INSTANCES) for spec in specs)


def count_entries(command: Command) -> int:
    """Returns the number of entries of the request from which *command* was made; 0 for one that no stream carries."""
    if isinstance(command, UpdateAllocations):
        return len(command.allocations) + len(command.ask_releases) + len(command.releases)
    if isinstance(command, UpdateNodes):
        return len(command.nodes)
    if isinstance(command, UpdateApplications):
        return len(command.add) + len(command.remove)
    return 0
