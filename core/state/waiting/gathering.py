"""Decides which members of a gang wait for each other, because a gang is placed by one decision or not at all.

The placeholders of an application form one unit until a member of the gang runs. The real asks of a task group without
placeholders, such as members that were lost and are asked for again, form one while nothing of that group runs. From
then on each of them is an ask like any other: a lost member is replaced by itself, and members beyond the minimum come
and go one by one. Rules: scheduling.md 10.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain

from kornel.core.domain.application_states import AppState
from kornel.core.domain.gangs import HARD, survives_losses
from kornel.core.domain.resources import NOTHING
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit, UnitId
from kornel.core.state.partition_state import PartitionState
from kornel.shared.readable_amounts import format_quantities


def forms_unit(state: PartitionState, unit_id: UnitId) -> bool:
    """Tells whether the members *unit_id* that wait are placed together.

    They are if some have to run for any to be useful, and none runs. Placeholders have to have been announced, and real
    asks must have no placeholder left to replace. Members that depend on other placements are not, because the shim
    could not say for all at once where they may run.
    """
    application, task_group = unit_id
    if not state.gangs.as_units or application.state is AppState.RESUMING or application.asks_in_turn:
        return False
    if task_group:
        members, group = application.members.get(task_group), application.task_groups.get(task_group)
        if members is None or members.running or members.in_turn or (group is not None and group.open):
            return False
        return minimum_of(unit_id) > 1
    announced = application.spec.placeholder_ask
    if announced is None or announced.is_zero():
        return False
    if application.spec.gang_style != HARD and not application.states_minimum:
        return False
    return not runs_any_member(application)


def bind_members(state: PartitionState, application: Application) -> None:
    """Decides whether the members of *application* may be preempted one by one, regardless of what is left of its
    gang."""
    spec = application.spec
    is_gang = spec.gang_style == HARD or spec.placeholder_ask is not None
    application.leaves_whole = state.gangs.as_units and is_gang and not survives_losses(spec.tags)


def runs_any_member(application: Application) -> bool:
    """Tells whether a placeholder of *application* is allocated, or a task of a task group that has had
    placeholders."""
    members = application.members
    return any(members[name].running for name in application.task_groups if name in members)


def minimum_of(unit_id: UnitId) -> int:
    """Returns how many real asks of the task group of *unit_id* have to run for any of them to be useful, at least 1.

    If the core has seen no placeholder of the group of a Hard gang, it is what was announced if there is no other
    group, and otherwise as many as ran at once.
    """
    application, task_group = unit_id
    hard = application.spec.gang_style == HARD
    group = application.task_groups.get(task_group)
    if group is not None:
        return max(1, group.minimum(hard=hard))
    if not hard or task_group not in application.members:
        return 1
    announced = application.spec.placeholder_ask
    if announced is not None and len(application.members) == 1:
        requests = chain(application.asks.values(), application.allocations.values())
        size = next((each.shape.resources for each in requests if each.spec.task_group == task_group), NOTHING)
        times = [announced[name] // amount for name, amount in size.items() if amount and announced.get(name, 0)]
        if times:
            return max(1, min(times))
    return max(1, application.members[task_group].most)


def minimum_by_group(unit_id: UnitId) -> dict[str, int]:
    """Returns how many members of each task group of the gang *unit_id* have to run for any to be useful."""
    application, task_group = unit_id
    if task_group:
        return {task_group: minimum_of(unit_id)}
    hard = application.spec.gang_style == HARD
    return {name: group.minimum(hard=hard) for name, group in application.task_groups.items()}


def minimum_members(unit: GangUnit) -> list[Allocation]:
    """Returns the asks of *unit* that have to be placed together, in order: of each task group, as many as its minimum,
    or all of them if there are fewer."""
    left = minimum_by_group(unit.id)
    found: list[Allocation] = []
    for ask in unit.asks():
        if left[ask.spec.task_group] > 0:
            left[ask.spec.task_group] -= 1
            found.append(ask)
    return found


def find_least(members: Iterable[Allocation]) -> Allocation:
    """Returns the least important of *members*, by whose importance their gang is judged."""
    return max(members, key=lambda ask: (-ask.spec.priority, ask.order))


def came_ns(members: Iterable[Allocation]) -> int:
    """Returns the time from which the wait of a gang counts: when the last of its *members* came, or when its last
    claims lapsed."""
    return max(ask.waits_since_ns for ask in members)


def covers_minimum(unit_id: UnitId, members: Collection[Allocation]) -> bool:
    """Tells whether *members* cover the minimum of the gang *unit_id*; members that were asked for after these were
    chosen may be needed too."""
    least = minimum_by_group(unit_id)
    counts = Counter(member.spec.task_group for member in members)
    return not any(
        unit_id.includes_ask(ask) and ask not in members and counts[ask.spec.task_group] < least[ask.spec.task_group]
        for ask in unit_id.application.asks.values()
    )


def describe_missing(unit_id: UnitId, now_ns: int) -> str:
    """Returns, in words, which members *unit_id* have still to be asked for before they can be placed, whether those
    that were hold places or not; an empty text: none has."""
    application, task_group = unit_id
    waiting = [ask for ask in application.asks.values() if unit_id.includes_ask(ask)]
    if task_group:
        least = minimum_of(unit_id)
        short = is_gathering(unit_id, len(waiting), now_ns)
        return f"members are missing: {len(waiting)} of {least} were asked for" if short else ""
    total: dict[str, int] = {}
    for ask in waiting:
        for name, amount in ask.shape.resources.items():
            total[name] = total.get(name, 0) + amount
    announced = application.spec.placeholder_ask or NOTHING
    missing = {name: most for name, most in announced.items() if total.get(name, 0) < most}
    return f"members are missing: {format_quantities(missing)} of the announced is short" if missing else ""


def is_gathering(unit_id: UnitId, size: int, now_ns: int) -> bool:
    """Tells whether further real asks of *unit_id* may still come, of which *size* wait: they are fewer than the
    minimum, and the last of them came only a short while ago."""
    if size >= minimum_of(unit_id):
        return False
    until_ns = unit_id.application.members_in(unit_id.task_group).gather_until_ns
    return until_ns is None or now_ns < until_ns
