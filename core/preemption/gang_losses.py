"""Preemption takes members of gangs beyond the minimum one by one, and the rest together or not at all.

A gang is what runs in the task groups of one application. Up to the surplus of a task group its members are victims
like any others. Whoever needs more takes all of the gang.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.gangs import HARD
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.preemption.victim_index import age_of

_PREEMPTED: Final = AskPlace.PREEMPTED
_RELEASED: Final = AskPlace.RELEASED
_PLACED: Final = AskPlace.PLACED


def is_bound(allocation: Allocation) -> bool:
    """Tells whether *allocation* is a member of a gang that is of no use below its minimum."""
    return allocation.application.leaves_whole and bool(allocation.spec.task_group)


class GangLosses:
    """The gangs looked at in one attempt, as they are now."""

    def __init__(self) -> None:
        self._surplus: dict[Application, dict[str, int]] = {}

    def surplus_of(self, member: Allocation) -> int:
        """Returns how many members the task group of *member* may lose one by one; 0: only the whole gang may leave."""
        application = member.application
        found = self._surplus.get(application)
        if found is None:
            found = self._surplus[application] = _find_surplus(application)
        return found.get(member.spec.task_group, 0)


class SpareMembers:
    """The members of gangs that may leave one by one, chosen beforehand: those in excess of each task group's minimum,
    the least important and youngest first."""

    def __init__(self) -> None:
        self._spare: dict[Application, dict[Allocation, None]] = {}

    def may_leave(self, allocation: Allocation) -> bool:
        """Tells whether *allocation* is no member of a gang that is of no use below its minimum, or is in excess of
        that."""
        if not is_bound(allocation):
            return True
        application = allocation.application
        spare = self._spare.get(application)
        if spare is None:
            spare = self._spare[application] = _choose_spare(application)
        return allocation in spare


def _choose_spare(application: Application) -> dict[Allocation, None]:
    left = _find_surplus(application)
    chosen: dict[Allocation, None] = {}
    for member in sorted(members_of(application), key=lambda m: (m.standing, age_of(m), m.key)):
        if left.get(member.spec.task_group, 0) > 0 and member.place is _PLACED:
            left[member.spec.task_group] -= 1
            chosen[member] = None
    return chosen


def members_of(application: Application) -> list[Allocation]:
    """Returns what runs of the gang of *application*: a placeholder whose place is being taken stands for the one that
    takes it."""
    return [
        allocation
        for allocation in application.allocations.values()
        if allocation.spec.task_group
        and allocation.place is not _PREEMPTED
        and (allocation.place is not _RELEASED or allocation.where is not None)
    ]


def describe_torn(victims: Sequence[Allocation]) -> dict[Application, str]:
    """Returns, in words, the gangs that are of no use any more once *victims*, who still run, have left as nobody but
    an ask with a required node may have them."""
    found: dict[Application, str] = {}
    leaving = set(victims)
    for application in dict.fromkeys(victim.application for victim in victims if is_bound(victim)):
        surplus, running = _find_surplus(application), members_of(application)
        if leaving.issuperset(running):
            continue
        for name in dict.fromkeys(member.spec.task_group for member in running):
            here = [member for member in running if member.spec.task_group == name]
            left = sum(member not in leaving for member in here)
            least = len(here) - surplus[name]
            if left < min(least, len(here)) and any(member in leaving for member in here):
                found[application] = (
                    f"gang {application.application_id} is left with {left} of {len(here)} in {name}, and needs {least}"
                )
    return found


def can_leave_whole(members: list[Allocation]) -> bool:
    """Tells whether all *members* of a gang may leave now: none must run on its node, or is changing places."""
    return all(member.place is _PLACED and not member.spec.required_node for member in members)


def _find_surplus(application: Application) -> dict[str, int]:
    """Returns, by task group, how many members are there beyond the minimum."""
    hard = application.spec.gang_style == HARD
    counts: dict[str, int] = {}
    for member in members_of(application):
        counts[member.spec.task_group] = counts.get(member.spec.task_group, 0) + 1
    surplus: dict[str, int] = {}
    for name, count in counts.items():
        group = application.task_groups.get(name)
        if group is None:
            # No placeholder was ever seen, as after a restart of the core: nobody knows the minimum of a hard gang.
            surplus[name] = 0 if hard else count
        elif hard or group.stated_minimum is not None:
            surplus[name] = max(0, count - group.minimum(hard=hard))
        else:
            surplus[name] = count
    return surplus
