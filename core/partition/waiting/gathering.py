"""Decides which placeholders of a gang wait for each other, because a gang is placed by one decision or not at all.

Until a member of the gang runs, its placeholders form one unit. From then on each of them is an ask like any other: a
lost member is replaced by itself, and members beyond the minimum come and go one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kornel.core.domain.application_states import AppState
from kornel.core.domain.gangs import HARD, survives_losses
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit
from kornel.core.partition.state import PartitionState


def forms_unit(state: PartitionState, application: Application) -> bool:
    """Tells whether the placeholders of *application* that wait are placed together.

    They are if the gang was announced, some members have to run for any to be useful, and no member runs. Placeholders
    that depend on other placements are not, because the shim could not say for all at once where they may run.
    """
    if not state.gangs.as_units or application.state is AppState.RESUMING or application.asks_in_turn:
        return False
    announced = application.spec.placeholder_ask
    if announced is None or announced.is_zero():
        return False
    if application.spec.gang_style != HARD and not _has_stated_minimum(application):
        return False
    return not runs_any_member(application)


def bind_members(state: PartitionState, application: Application) -> None:
    """Decides whether the members of *application* may be preempted one by one, regardless of what is left of its
    gang."""
    spec = application.spec
    is_gang = spec.gang_style == HARD or spec.placeholder_ask is not None
    application.leaves_whole = state.gangs.as_units and is_gang and not survives_losses(spec.tags)


def runs_any_member(application: Application) -> bool:
    """Tells whether a placeholder of *application* is allocated, or a task of one of its task groups."""
    if application.placeholder_count:
        return True
    task_groups = application.task_groups
    return any(allocation.spec.task_group in task_groups for allocation in application.allocations.values())


def minimum_members(unit: GangUnit) -> list[Allocation]:
    """Returns the asks of *unit* that have to be placed together, in order: of each task group, as many as its
    minimum."""
    application = unit.application
    hard = application.spec.gang_style == HARD
    left = {name: group.minimum(hard=hard) for name, group in application.task_groups.items()}
    found: list[Allocation] = []
    for ask in unit.asks():
        if left[ask.spec.task_group] > 0:
            left[ask.spec.task_group] -= 1
            found.append(ask)
    return found


def covers_minimum(application: Application, members: Collection[Allocation]) -> bool:
    """Tells whether *members* cover the minimum of the gang; members that were asked for after these were chosen may be
    needed too."""
    hard = application.spec.gang_style == HARD
    counts = Counter(member.spec.task_group for member in members)
    return not any(
        ask.spec.placeholder
        and ask not in members
        and counts[ask.spec.task_group] < application.task_groups[ask.spec.task_group].minimum(hard=hard)
        for ask in application.asks.values()
    )


def _has_stated_minimum(application: Application) -> bool:
    return any((group.stated_minimum or 1) > 1 for group in application.task_groups.values())
