"""Hard gangs as a shim sees them: whatever the core decides, nothing of such a gang runs or all of it does.

Written from the words of the rule (scheduling.md 10.7). Only what the shim does leaves a gang between nothing and all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kornel.core.domain.ask_places import WaitsFor
from kornel.core.domain.commands import TerminationType, UpdateAllocations
from kornel.core.domain.effects import Allocated, Effect, PredicatesAsked, PreemptionDecided, Released
from kornel.core.domain.gangs import read_minimum, survives_losses
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import Wish
from kornel.core.engine.gangs.gang_places import add_up
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.state.partition_state import PartitionState
from tests.properties.lending import is_kept_below
from tests.properties.machine.devices import find_devices_together
from tests.properties.machine.quotas import Quotas
from tests.properties.machine.shim_view import ShimView
from tests.properties.machine.topology import lawful_domains
from tests.properties.machine.view import Amounts, ContractBroken, PartitionView, RequestView, add

_PREEMPTED: Final = TerminationType.PREEMPTED_BY_SCHEDULER

Gangs = Mapping[str, frozenset[str]]
"""By partition, the applications nothing of whose gang runs, and of which none may run in part."""


def gangs_at_rest(shim: ShimView) -> Gangs:
    """Returns the hard gangs of which nothing runs."""
    return {
        name: frozenset(a for a in partition.applications if is_at_rest(partition, a))
        for name, partition in shim.partitions.items()
    }


def is_at_rest(partition: PartitionView, application_id: str) -> bool:
    """Tells whether an application is a hard gang that was announced, and nothing of any task group runs."""
    application = partition.applications[application_id]
    announced = application.spec.placeholder_ask
    if announced is None or announced.is_zero() or application.spec.gang_style != "Hard":
        return False
    if application.state == "Resuming":
        return False
    return not any(request.spec.task_group for request in partition.allocations_of(application_id))


def running_members(partition: PartitionView, application: Application) -> list[str]:
    """Returns the names of the members of a gang that run.

    A task whose group never had placeholders is none of them, and only the core knows which groups had some.
    """
    allocations = partition.allocations_of(application.application_id)
    return [request.name for request in allocations if request.spec.task_group in application.task_groups]


def judge_gangs(shim: ShimView, before: Gangs) -> None:
    """Raises for a gang that was at rest *before* and of which now a part runs."""
    for name, applications in before.items():
        partition = shim.partitions[name]
        for application_id in applications & partition.applications.keys():
            running = partition.allocations_of(application_id)
            placed = [r for r in running if r.placeholder]
            if not placed or any(r.spec.task_group and not r.placeholder for r in running):
                continue  # Beside a task whose group had no placeholder left, the others come one by one.
            left = [r for r in partition.asks_of(application_id) if r.placeholder]
            if short_of := _short_of_minimum(partition, placed, left):
                raise ContractBroken("half a gang", f"{application_id}: {left} wait, {short_of}")
            if left:
                continue
            total: Amounts = {}
            for request in placed:
                add(total, request.size)
            announced = partition.applications[application_id].spec.placeholder_ask or {}
            short = {n: most for n, most in announced.items() if total.get(n, 0) < most}
            if short:
                raise ContractBroken("half a gang", f"{application_id} was placed with {total} of {dict(announced)}")


def gangs_leaving(before: Gangs, states: Iterable[PartitionState], effects: Sequence[Effect]) -> Gangs:
    """Returns the hard gangs that were chosen as a whole, and all of whose running members are expected to leave: those
    of *before*, and those the last of whose members *effects* have asked to leave.

    A gang is not chosen as a whole if preemption takes some of its members, and the shim itself the others.
    """
    told = {(e.partition, e.application_id) for e in effects if isinstance(e, Released) and e.termination == _PREEMPTED}
    found: dict[str, frozenset[str]] = {}
    for state in states:
        if state.gangs.as_units:
            found[state.name] = frozenset(
                name
                for name, application in state.applications.items()
                if ((state.name, name) in told or name in before.get(state.name, ()))
                and _leaves_as_a_whole(state, application)
            )
    return found


def _leaves_as_a_whole(state: PartitionState, application: Application) -> bool:
    members = [a for a in application.allocations.values() if a.spec.task_group]
    hard = application.spec.gang_style == "Hard" and not survives_losses(application.spec.tags)
    # What an ask takes from its own application is its own affair.
    own = {key for ask in application.asks.values() for key in ask.victims}
    own |= {a.key for a in members if a.preemptor is not None and a.preemptor.application is application}
    left = [a for a in members if a.preempted and a not in state.stuck]
    return hard and bool(left) and len(left) == len(members) and not any(a.key in own for a in left)


def judge_successors(leaving: Gangs, states: Iterable[PartitionState], effects: Sequence[Effect]) -> None:
    """Raises for a member of a gang that *effects* place although all others of it were *leaving* before and are still
    expected to leave."""
    stuck = {(state.name, victim.application.application_id) for state in states for victim in state.stuck}
    for effect in effects:
        if not isinstance(effect, Allocated):
            continue
        owner = effect.spec.partition, effect.spec.application_id
        if owner[1] in leaving.get(owner[0], ()) and owner not in stuck:
            raise ContractBroken("pointless member", f"{effect.spec.key!r} was placed while all of its gang leave")


def judge_losses(states: Iterable[PartitionState], effects: Sequence[Effect]) -> None:
    """Raises for a hard gang of which *effects*, all of one call, leave some members running and too few.

    What an ask with a required node takes is its own affair, and so is what the shim itself takes away.
    """
    by_name = {state.name: state for state in states}
    lost: dict[tuple[str, str], set[str]] = {}
    exempt = {
        (decision.partition, victim.application_id)
        for decision in effects
        if isinstance(decision, PreemptionDecided) and decision.kind == "required-node"
        for victim in decision.victims
    }
    for effect in effects:
        if isinstance(effect, Released) and effect.termination == _PREEMPTED:
            owner = effect.partition, effect.application_id
            if owner not in exempt:
                lost.setdefault(owner, set()).add(effect.key)
    for (name, application_id), keys in lost.items():
        state = by_name.get(name)
        application = state.applications.get(application_id) if state is not None else None
        if state is None or application is None or application.spec.gang_style != "Hard" or not state.gangs.as_units:
            continue
        if survives_losses(application.spec.tags):
            continue
        members = [a for a in application.allocations.values() if a.spec.task_group in application.task_groups]
        standing = [a for a in members if not a.preempted and not (a.released and a.replaced_by is None)]
        for group_name, group in application.task_groups.items():
            left = sum(a.spec.task_group == group_name for a in standing)
            gone = sum(a.spec.task_group == group_name and a.spec.key in keys and a.preempted for a in members)
            if standing and gone and left < min(group.minimum(hard=True), left + gone):
                raise ContractBroken("torn gang", f"{application_id} keeps {left} of {left + gone} in {group_name}")


def may_still_pass(shim: ShimView, asked: PredicatesAsked) -> bool:
    """Tells whether a yes to *asked* counts until the shim has answered about the other members of a gang.

    It does too if another task of the gang has begun to run meanwhile: the questions about the members are called off
    only if it was one of these (scheduling.md 10.7).
    """
    partition = shim.partitions.get(asked.partition)
    if partition is None or asked.application_id not in partition.applications:
        return False
    request = partition.requests.get(asked.key)
    if request is not None and not request.placeholder:
        group = request.spec.task_group
        runs = any(other.spec.task_group == group for other in partition.allocations_of(asked.application_id))
        return bool(group) and (not runs or is_asked_about(shim, asked.application_id))
    return is_at_rest(partition, asked.application_id) or is_asked_about(shim, asked.application_id)


def is_asked_about(shim: ShimView, application_id: str) -> bool:
    """Tells whether the shim still owes an answer about a member of the gang of an application."""
    for question in shim.questions.values():
        if isinstance(question, PredicatesAsked) and question.allocate and question.application_id == application_id:
            partition = shim.partitions.get(question.partition)
            request = partition.requests.get(question.key) if partition is not None else None
            if request is not None and request.spec.task_group:
                return True
    return False


def check_gang_not_forgotten(state: PartitionState, view: PartitionView, ask: Allocation, limits: Quotas) -> None:
    """Raises for a gang that waits although each of its members finds room one after the other, largest first."""
    members = [r for r in view.asks_of(ask.spec.application_id) if r.placeholder]
    total: Amounts = {}
    for member in members:
        add(total, member.size)
    announced = view.applications[ask.spec.application_id].spec.placeholder_ask or {}
    if any(total.get(name, 0) < most for name, most in announced.items()):
        return
    _check_no_room_for_all(state, [state.requests[member.name] for member in members], total, limits)


def check_members_not_forgotten(state: PartitionState, view: PartitionView, ask: Allocation, limits: Quotas) -> None:
    """Raises for real asks of a task group that wait for each other although one of the group runs, or although each of
    its minimum finds room one after the other."""
    name, application = ask.spec.task_group, ask.application
    running = [r.name for r in view.allocations_of(ask.spec.application_id) if r.spec.task_group == name]
    if running:
        raise ContractBroken("forgotten", f"{ask} waits for others of its group, and {running} run")
    waiting = [r for r in view.asks_of(ask.spec.application_id) if r.spec.task_group == name and not r.placeholder]
    asks = sorted((state.requests[r.name] for r in waiting), key=lambda a: a.order)
    group = application.task_groups.get(name)
    least = len(asks) if group is None else group.minimum(hard=application.spec.gang_style == "Hard")
    gathers = ask.group is not None and ask.group.waits_for is WaitsFor.GANG
    if gathers and (group is None or len(asks) < least):
        return  # Further ones may come.
    asks = asks[: max(1, least)]
    total: Amounts = {}
    for each in asks:
        add(total, each.shape.resources)
    _check_no_room_for_all(state, asks, total, limits)


def _check_no_room_for_all(state: PartitionState, asks: list[Allocation], total: Amounts, limits: Quotas) -> None:
    """Raises if each of *asks*, of one gang, which ask for *total*, finds room one after the other, largest first."""
    ask = asks[0]
    if state.held_count or any(queue.claims for queue in ask.queue.lineage()):
        return
    if len({(a.shape, a.spec.required_node) for a in asks if a.shape.devices is not None}) > 1:
        return  # Parts of several sizes may be packed in more ways than are tried here.
    if limits.exceeded(ask.spec.application_id, Resources(total)) is not None:
        return
    if any(is_kept_below(state, member, add_up(asks)) for member in asks):
        return
    rooms = {
        node.node_id: dict(state.types.to_resources(node.free))
        for node in state.nodes.values()
        if node.schedulable and node.claims is None
    }
    if any(a.spec.topology is not None and a.spec.topology.wish == Wish.REQUIRED for a in asks):
        domains = lawful_domains(state, asks)
    else:
        domains = [frozenset(rooms)]
    for names in domains:
        _check_one_after_the_other(state, asks, {name: dict(rooms[name]) for name in rooms if name in names})


def _check_one_after_the_other(state: PartitionState, asks: list[Allocation], rooms: dict[str, Amounts]) -> None:
    """Raises if each of *asks* finds its place in *rooms*, largest first."""
    left: dict[str, list[Allocation]] = {}
    for waiting in sorted(asks, key=lambda a: -a.shape.resources.get("vcore", 0)):
        for node_id, room in rooms.items():
            if not find_devices_together(state.nodes[node_id], [*left.get(node_id, ()), waiting]):
                continue
            required = waiting.spec.required_node in ("", node_id)
            refused = waiting.refused is not None and node_id in waiting.refused
            size = waiting.shape.resources
            if required and not refused and all(room.get(name, 0) >= amount for name, amount in size.items() if amount):
                add(room, size, -1)
                left.setdefault(node_id, []).append(waiting)
                break
        else:
            return
    raise ContractBroken("forgotten gang", f"{asks[0].application} fits as a whole")


def check_held_gang(state: PartitionState, view: PartitionView, ask: Allocation, limits: Quotas) -> None:
    """Raises where room is held for a part of a gang only, or where all members could run in the room that is held."""
    name = ask.spec.application_id
    theirs = [r for r in view.asks_of(name) if r.placeholder is ask.spec.placeholder]
    theirs = [r for r in theirs if r.placeholder or r.spec.task_group == ask.spec.task_group]
    members = [state.requests[r.name] for r in theirs]
    without = [member.key for member in members if member.reservation is None]
    least = {m.spec.task_group: _stated_minimum(members, m.spec.task_group) for m in members}
    for group, number in least.items():
        there = sum(m.spec.task_group == group and m.reservation is not None for m in members)
        asked = any(m.inquiry is not None or m.held_on is not None for m in members)
        if there < number and not asked and not state.callbacks.open:
            raise ContractBroken("half a gang", f"{name} holds room for {there} of {number}, not for {without}")
    if without or state.held_count or any(queue.ceilings for queue in ask.queue.lineage()[:-1]):
        return
    total: Amounts = {}
    for member in members:
        add(total, member.shape.resources)
    if limits.exceeded(name, Resources(total)) is not None:
        return
    if any(is_kept_below(state, member, add_up(members)) for member in members):
        return
    for node in {m.reservation.node for m in members if m.reservation is not None}:
        here = [m for m in members if m.reservation is not None and m.reservation.node is node]
        wanted: Amounts = {}
        for member in here:
            add(wanted, member.shape.resources)
        free = state.types.to_resources(node.free)
        if len(node.reservations) > len(here) or any(free.get(t, 0) < amount for t, amount in wanted.items() if amount):
            return
        if len({m.shape.devices for m in here} - {None}) > 1 or not find_devices_together(node, here):
            return
    raise ContractBroken("forgotten gang", f"{name} could run where room is held for it")


def note_minima(shim: ShimView, command: UpdateAllocations) -> None:
    """Notes the minima that the placeholders of *command* state, whether they are taken or not."""
    for spec in command.allocations:
        minimum = read_minimum(spec.tags)
        partition = shim.partitions.get(spec.partition)
        if minimum is not None and partition is not None:
            partition.minima.setdefault((spec.application_id, spec.task_group), set()).add(minimum)


def _short_of_minimum(partition: PartitionView, placed: list[RequestView], left: list[RequestView]) -> str:
    """Returns which task group of a gang was placed with fewer members than it needs: all, unless a placeholder has
    stated another number."""
    for group in dict.fromkeys(r.spec.task_group for r in (*placed, *left)):
        members = [r for r in (*placed, *left) if r.spec.task_group == group]
        least = min([len(members), *partition.minima.get((members[0].owner, group), ())])
        there = sum(r.spec.task_group == group for r in placed)
        if there < least:
            return f"{there} of {least} in {group} were placed"
    return ""


def _stated_minimum(members: list[Allocation], group: str) -> int:
    """Returns how many of a task group have to run, as far as they have been asked for: all of a hard gang, and one of
    another one, unless its first placeholder says otherwise."""
    application = members[0].application
    task_group, hard = application.task_groups.get(group), application.spec.gang_style == "Hard"
    if task_group is None:
        return 1  # What was announced, or ran at once, decides.
    return min(sum(m.spec.task_group == group for m in members), task_group.minimum(hard=hard))
