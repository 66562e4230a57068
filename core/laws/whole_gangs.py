"""Checks the law of whole gangs: a gang is useless below its minimum, so a plan that takes more than its surplus takes
all of it, and nobody leaves for a part of one.

The law binds every kind of preemption except that on a required node. It counts the running members itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.gangs import HARD
from kornel.core.laws.overkill import Need
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application


def check(victims: Sequence[Allocation]) -> Iterator[Violation]:
    """Yields gangs of which too few members would be left for any of them to be of use."""
    for application, losses in _group_losses(victims).items():
        if not all(member in losses for member in _list_running(application)):
            yield from _find_shortfalls(application, losses)


def check_takers(asks: Iterable[Allocation]) -> Iterator[Violation]:
    """Yields those of *asks*, each served by itself, that are of use only together with others: placeholders of a gang
    that is Hard, or states a minimum above one, and needs more than one, while none runs; and tasks of a group that
    needs more than one and has no placeholder, while none of that group runs."""
    for ask in asks:
        gang, name = ask.application, ask.spec.task_group
        if not gang.leaves_whole or gang.asks_in_turn or gang.state is AppState.RESUMING:
            continue
        if ask.spec.placeholder:
            least = sum(count_together(gang, group) for group in gang.task_groups)
            alone = (gang.spec.gang_style == HARD or gang.states_minimum) and not _list_running(gang)
        else:
            least, ran = count_together(gang, name), gang.members.get(name)
            theirs = [o for o in (*gang.asks.values(), *gang.allocations.values()) if o.spec.task_group == name]
            alone = not (ran and ran.in_turn) and not any(o.spec.placeholder or o.node is not None for o in theirs)
        if alone and least > 1:
            yield Violation(Law.UNIT_WHOLE, f"{ask.key} alone of {least} members of {gang.application_id}")


def count_together(application: Application, name: str) -> int:
    """Returns how many members of a task group, of which none runs, are at least of use together only."""
    hard, group, ran = application.spec.gang_style == HARD, application.task_groups.get(name), application.members
    return group.minimum(hard=hard) if group else ran[name].most * hard if name in ran else 0


def keep_minimum(victims: Sequence[Allocation]) -> bool:
    """Tells whether *victims* may leave one by one: each task group keeps its minimum, so no gang leaves as a whole."""
    return not any(any(_find_shortfalls(gang, losses)) for gang, losses in _group_losses(victims).items())


def list_minimum_members(tasks: Sequence[Allocation]) -> set[Allocation]:
    """Returns those of *tasks* that belong to the minimum of their task group. Beyond it are the least important
    members, of equals the idle placeholders, then the newest."""
    found: set[Allocation] = set()
    for application in _group_losses(tasks):
        running = sorted(_list_running(application), key=_least_important)
        for name in dict.fromkeys(member.spec.task_group for member in running):
            members = [member for member in running if member.spec.task_group == name]
            spare = [member for member in members if member.place is AskPlace.PLACED]
            beyond = spare[: len(members) - _find_minimum(application, name, len(members))]
            found.update(member for member in members if member not in beyond)
    return found


def _least_important(member: Allocation) -> tuple[int, bool, bool, bool, bool, int, str]:
    spec = member.spec
    return (
        spec.priority, bool(spec.required_node), spec.originator, not spec.allow_preempt_self, not spec.placeholder,
        -member.created_ns, member.key,
    )  # fmt: skip


def _find_shortfalls(application: Application, losses: Mapping[Allocation, None]) -> Iterator[Violation]:
    """Yields the task groups of *application* that would keep too few members without *losses*."""
    running = _list_running(application)
    for name in dict.fromkeys(victim.spec.task_group for victim in losses):
        before = [member for member in running if member.spec.task_group == name]
        after = [member for member in before if member not in losses]
        least = _find_minimum(application, name, len(before))
        if len(after) < least:
            detail = f"{application.application_id} would keep {len(after)} of {len(before)} in {name}, needs {least}"
            yield Violation(Law.GANG_WHOLE, detail)


def merge_gangs(needs: Sequence[Need], victims: Sequence[Allocation]) -> tuple[list[Need], list[str]]:
    """Returns *needs* and the keys of *victims*, in which each gang that leaves as a whole counts as one victim.

    A gang is needed or not as a whole.
    """
    names: dict[str, str] = {}
    for application, losses in _group_losses(victims).items():
        if all(member in losses for member in _list_running(application)):
            names.update((victim.key, f"gang {application.application_id}") for victim in losses)
    if not names:
        return list(needs), [victim.key for victim in victims]
    merged: list[Need] = []
    for need in needs:
        gains: dict[str, int] = {}
        for key, gain in need.gains.items():
            name = names.get(key, key)
            gains[name] = gains.get(name, 0) + gain
        merged.append(replace(need, gains=gains, mine=frozenset(names.get(key, key) for key in need.mine)))
    return merged, list(dict.fromkeys(names.get(victim.key, victim.key) for victim in victims))


def leave_whole(victims: Sequence[Allocation]) -> dict[Allocation, Application]:
    """Returns the victims whose gang leaves as a whole, each with its application."""
    return {
        victim: application
        for application, losses in _group_losses(victims).items()
        if all(member in losses for member in _list_running(application))
        for victim in losses
    }


def leave_minimum(victims: Sequence[Allocation]) -> dict[Allocation, Application]:
    """Returns the victims whose gang leaves as a whole and not one by one, because it has a minimum, each with its
    application."""
    losses = _group_losses(victims)
    return {v: gang for v, gang in leave_whole(victims).items() if any(_find_shortfalls(gang, losses[gang]))}


def _group_losses(victims: Sequence[Allocation]) -> dict[Application, dict[Allocation, None]]:
    """Returns the members of gangs among *victims*, by application."""
    found: dict[Application, dict[Allocation, None]] = {}
    for victim in victims:
        if victim.application.leaves_whole and victim.spec.task_group:
            found.setdefault(victim.application, {})[victim] = None
    return found


def _list_running(application: Application) -> list[Allocation]:
    """Returns the members that run and are not being released or replaced."""
    return [
        member
        for member in application.allocations.values()
        if member.spec.task_group
        and (member.place is AskPlace.PLACED or (member.place is AskPlace.RELEASED and member.replaced_by is not None))
    ]


def _find_minimum(application: Application, name: str, running: int) -> int:
    """Returns how many members of a task group have to run; for a hard gang without known placeholders, all of them."""
    hard = application.spec.gang_style == HARD
    group = application.task_groups.get(name)
    if group is None:
        return running if hard else 0
    if not hard and group.stated_minimum is None:
        return 0
    return min(running, group.minimum(hard=hard))
