"""Determines which members of a gang preemption may take: members beyond the minimum one by one, the others all
together or not at all.

A gang is what runs in the task groups of one application. Up to the surplus of a task group, its members are victims
like any others. A plan that needs more has to take the whole gang.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.gangs import HARD
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.state.records.victim_index import age_of
from kornel.shared.readable_amounts import format_count

_PREEMPTED: Final = AskPlace.PREEMPTED
_RELEASED: Final = AskPlace.RELEASED
_PLACED: Final = AskPlace.PLACED


def is_bound(allocation: Allocation) -> bool:
    """Tells whether *allocation* is a member of a gang that is of no use below its minimum."""
    return allocation.application.leaves_whole and bool(allocation.spec.task_group)


class GangLosses:
    """Counts the surplus of gangs for one attempt."""

    def __init__(self) -> None:
        self._surplus: dict[Application, dict[str, int]] = {}

    def surplus_of(self, member: Allocation) -> int:
        """Returns how many members the task group of *member* may lose one by one; 0: only the whole gang may leave."""
        return self.surplus_in(member.application, member.spec.task_group)

    def surplus_in(self, application: Application, task_group: str) -> int:
        """Returns how many members *task_group* of *application* may lose one by one."""
        found = self._surplus.get(application)
        if found is None:
            found = self._surplus[application] = _find_surplus(application)
        return found.get(task_group, 0)


class SpareMembers:
    """Chooses the members of gangs that may leave one by one: those beyond the minimum of their task group, the least
    important and youngest first."""

    def __init__(self, *, torn: bool = False) -> None:
        """Begins with no gang looked at. *torn* tells whether members may leave without regard to the minimum."""
        self._torn = torn
        self._spare: dict[Application, dict[Allocation, None]] = {}

    def may_leave(self, allocation: Allocation) -> bool:
        """Tells whether *allocation* may leave by itself: it is beyond the minimum of its task group, or its gang needs
        no minimum."""
        if self._torn or not is_bound(allocation):
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
    """Returns the running allocations of the gang of *application*. A placeholder that is being replaced counts for its
    replacement."""
    return list(filter(_goes_on, application.allocations.values()))


def _goes_on(allocation: Allocation) -> bool:
    stays = allocation.place is not _RELEASED or allocation.where is not None
    return bool(allocation.spec.task_group) and allocation.place is not _PREEMPTED and stays


def is_leaving_whole(application: Application) -> bool:
    """Tells whether all members of the gang of *application* that ran were asked to leave and have not left yet."""
    return (
        application.leaves_whole
        and not any(map(_goes_on, application.allocations.values()))
        and any(allocation.preempted and allocation.spec.task_group for allocation in application.allocations.values())
    )


def find_whole_gangs(victims: Sequence[Allocation]) -> dict[Application, tuple[Allocation, ...]]:
    """Returns the gangs all of whose running members are among *victims*, each with its members in the order of
    *victims*."""
    bound = [victim for victim in victims if is_bound(victim)]
    if not bound:
        return {}
    chosen = set(bound)
    return {
        application: tuple(victim for victim in bound if victim.application is application)
        for application in dict.fromkeys(victim.application for victim in bound)
        if chosen.issuperset(members_of(application))
    }


def list_parcels(victims: Sequence[Allocation]) -> list[tuple[Allocation, ...]]:
    """Returns *victims* as they leave: each alone, except for the members of a gang that leaves as a whole, which stand
    together where the first of them stood."""
    whole = find_whole_gangs(victims)
    if not whole:
        return [(victim,) for victim in victims]
    parcels: dict[object, tuple[Allocation, ...]] = {}
    for victim in victims:
        if is_bound(victim) and victim.application in whole:
            parcels[victim.application] = whole[victim.application]
        else:
            parcels[victim] = (victim,)
    return list(parcels.values())


def describe_whole(victims: Sequence[Allocation]) -> dict[Application, str]:
    """Returns a sentence for each gang of several members that leaves as a whole with *victims*, which still run."""
    return {
        application: f"gang {application.application_id} leaves as a whole: {format_count(len(members), 'member')}"
        for application, members in find_whole_gangs(victims).items()
        if len(members) > 1
    }


def describe_torn(victims: Sequence[Allocation]) -> dict[Application, str]:
    """Returns a sentence for each gang that is left with too few members once *victims*, which still run, have left.
    Only an ask with a required node may cause this."""
    found: dict[Application, str] = {}
    leaving, whole = set(victims), find_whole_gangs(victims)
    for application in dict.fromkeys(victim.application for victim in victims if is_bound(victim)):
        if application in whole:
            continue
        surplus, running = _find_surplus(application), members_of(application)
        for name in dict.fromkeys(member.spec.task_group for member in running):
            here = [member for member in running if member.spec.task_group == name]
            left = sum(member not in leaving for member in here)
            least = len(here) - surplus[name]
            if left < min(least, len(here)) and any(member in leaving for member in here):
                found[application] = (
                    f"gang {application.application_id} is left with {left} of {len(here)} in {name}, and needs {least}"
                )
    return found


def list_whole(application: Application, *, bound: bool = True) -> list[Allocation]:
    """Returns the running members of the gang of *application* if all of them may leave now; empty: they may not, or
    nobody runs. *bound*: as in :func:`can_leave_whole`."""
    members = members_of(application) if application.leaves_whole else []
    return members if can_leave_whole(members, bound=bound) else []


def can_leave_whole(members: Sequence[Allocation], *, bound: bool = True) -> bool:
    """Tells whether all *members* of a gang may leave now: none is being replaced or released and, unless they are not
    *bound* by it, none has a required node."""
    return all(member.place is _PLACED and not (bound and member.spec.required_node) for member in members)


def _find_surplus(application: Application) -> dict[str, int]:
    """Returns the number of members beyond the minimum, by task group."""
    hard = application.spec.gang_style == HARD
    counts: dict[str, int] = {}
    for member in members_of(application):
        counts[member.spec.task_group] = counts.get(member.spec.task_group, 0) + 1
    surplus: dict[str, int] = {}
    for name, count in counts.items():
        group = application.task_groups.get(name)
        if group is None:
            # No placeholder was ever seen, as after a restart of the core, so the minimum of a Hard gang is not known.
            surplus[name] = 0 if hard else count
        elif hard or group.stated_minimum is not None:
            surplus[name] = max(0, count - group.minimum(hard=hard))
        else:
            surplus[name] = count
    return surplus
