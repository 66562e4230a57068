"""What the core may decide by itself, judged by what the view says of nodes, asks and victims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kornel.core.domain.commands import AnswerCallbacks, TerminationType
from kornel.core.domain.effects import Allocated, AskReleased, PredicatesAsked, Released
from kornel.core.model.allocations import identity_of
from tests.properties.machine import devices, topology
from tests.properties.machine.answers import Answers
from tests.properties.machine.gangs import gangs_at_rest, is_asked_about, judge_gangs, may_still_pass
from tests.properties.machine.shim_view import Known, ShimView, placed
from tests.properties.machine.view import Amounts, ContractBroken, PartitionView, RequestView, add


class Allowed(NamedTuple):
    """What one answer of the shim lets happen: the ask may run on any of ``nodes``, the first was kept for it."""

    key: str
    first: str
    nodes: frozenset[str]


def take_answers(shim: ShimView, command: AnswerCallbacks) -> list[Allowed]:
    """Which placements *command* may lead to; its questions are open no more."""
    allowed: list[Allowed] = []
    for answer in command.predicates:
        asked = shim.questions.get(answer.question)
        if isinstance(asked, PredicatesAsked):
            del shim.questions[answer.question]
            nodes = frozenset(asked.node_ids) - dict(answer.refused).keys()
            if asked.allocate:
                permit = Allowed(asked.key, asked.node_ids[0], nodes)
                allowed.append(permit)
                if may_still_pass(shim, asked):
                    shim.standing.setdefault(asked.application_id, []).append(permit)
    for verdict in command.preemption_predicates:
        if not isinstance(shim.questions.get(verdict.question), PredicatesAsked):
            shim.questions.pop(verdict.question, None)
    return allowed


def judge(shim: ShimView, answers: Answers, known: Known, allowed: list[Allowed] | None = None) -> None:
    """Take in everything that was decided. *allowed*: by an answer of the shim; ``None``: by a slice or a round."""
    at_rest = gangs_at_rest(shim)
    if allowed is not None:
        # What the shim said about one member of a gang counts once it has answered about all of them.
        standing = [permit for permits in shim.standing.values() for permit in permits]
        allowed = [*(permit for permit in allowed if not any(permit is other for other in standing)), *standing]
    if answers.any(Allocated):
        free = {name: partition.free() for name, partition in shim.partitions.items()}
        lacked = {name: _lacked(partition, known.held) for name, partition in shim.partitions.items()}
        quota = known.quota()
    while (effect := answers.take()) is not None:
        match effect:
            case Allocated(spec):
                if allowed is None and shim.attached is not None and shim.attached.predicates:
                    raise ContractBroken("unasked", f"{effect} without a question")
                partition = shim.partitions[spec.partition]
                permit = _permit(allowed, effect, answers.coming(Allocated)) if allowed is not None else None
                if (full := quota(effect, permit is not None)) is not None:
                    raise ContractBroken("quota", f"{effect} over {full}")
                request = placed(partition, effect)
                _judge_place(shim, partition, request, free[spec.partition], known, permit, lacked[spec.partition])
                add(free[spec.partition][request.node], request.size, -1)
                devices.judge_devices(partition, request, checked=True)
            case Released():
                _told_to_leave(shim, effect)
            case AskReleased(name, _, key):
                # The G2 list for pending placeholders that the core drops (protocol.md 3.4).
                asks = [r for r in shim.known_by_key(name, key) if not r.node and r.spec.legacy]
                if not asks:
                    raise ContractBroken("released", f"{effect} of no older ask")
                _told_to_leave(shim, Released(*effect, asks[0].spec.instance))
            case _:
                raise ContractBroken("decision", f"{effect} answers nobody")
    judge_gangs(shim, at_rest)
    shim.standing = {
        name: permits
        for name, permits in shim.standing.items()
        if any(name in g for g in at_rest.values()) or is_asked_about(shim, name)
    }


def _permit(allowed: list[Allowed], effect: Allocated, coming: Iterable[Allocated]) -> Allowed:
    """The answer that let *effect* happen; each does so once.

    Of several about requests that share a key, which no question tells apart, the one for which the node was kept comes
    first, if the others are enough for what is *coming*.
    """
    siblings = [other.node_id for other in coming if other.spec.key == effect.spec.key]
    fitting = [permit for permit in allowed if permit.key == effect.spec.key and effect.node_id in permit.nodes]
    for permit in sorted(fitting, key=lambda permit: permit.first != effect.node_id):
        left = allowed.copy()
        left.remove(permit)
        if _suffices([other for other in left if other.key == permit.key], siblings):
            allowed.remove(permit)
            return permit
    raise ContractBroken("refused node", f"{effect}, before {siblings}, although the shim allowed only {allowed}")


def _suffices(allowed: Sequence[Allowed], node_ids: Sequence[str]) -> bool:
    """Whether each of *node_ids* has an answer of its own among *allowed*."""
    if not node_ids:
        return True
    return any(
        node_ids[0] in permit.nodes and _suffices([*allowed[:at], *allowed[at + 1 :]], node_ids[1:])
        for at, permit in enumerate(allowed)
    )


def _judge_place(
    shim: ShimView,
    partition: PartitionView,
    request: RequestView,
    room: Mapping[str, Amounts],
    known: Known,
    permit: Allowed | None,
    lacked: Lacked,
) -> None:
    """A placement of the core's own goes to an open node with room."""
    node, required = partition.nodes[request.node], request.spec.required_node
    holders = known.before.get(request.node, frozenset())
    if required and required != request.node:
        raise ContractBroken("required node", f"{request.name!r} requires {required}, is on {request.node}")
    if node.draining and not required and request.name not in holders:
        raise ContractBroken("draining", f"{request.name!r} was placed on {request.node}, which drains")
    promised = request.name in holders or (permit is not None and request.node == permit.first)
    if not promised and not required:
        _judge_held_room(partition, request, room[request.node], known, lacked)
    if partition.applications[request.owner].state in ("Failing", "New"):
        raise ContractBroken("unserved", f"{request.name!r} of {partition.applications[request.owner]} was placed")
    if not request.placeholder and partition.placeholders(request.owner, request.spec.task_group):
        raise ContractBroken("replaceable", f"{request.name!r} was placed while it could replace a placeholder")
    if not required and (not promised or (request.placeholder and request.name in holders)):
        topology.judge_place(shim, partition, request)
    for name, amount in request.size.items():
        if amount and amount > room[request.node].get(name, 0):
            raise ContractBroken("node room", f"{request.name!r} needs {amount} {name}: {room[request.node]}")


Lacked = Mapping[str, Mapping[str, int]]
"""By node and type, how much more was held before the call than was free there or leaving."""


def _lacked(partition: PartitionView, held: Mapping[str, Mapping[str, Amounts]]) -> Lacked:
    free = partition.free()
    found: dict[str, dict[str, int]] = {}
    for node_id, claims in held.items():
        if node_id in free:
            names = {name for size in claims.values() for name in size}
            found[node_id] = {name: _lack(partition, node_id, free[node_id], claims, name) for name in names}
    return found


def _lack(
    partition: PartitionView, node_id: str, room: Mapping[str, int], held: Mapping[str, Amounts], name: str
) -> int:
    leaving = sum(
        other.size.get(name, 0)
        for other in partition.requests.values()
        if other.node == node_id and other.leaves_as is TerminationType.PREEMPTED_BY_SCHEDULER
    )
    return max(0, sum(size.get(name, 0) for size in held.values()) - room.get(name, 0) - leaving)


def _judge_held_room(
    partition: PartitionView, request: RequestView, room: Amounts, known: Known, lacked: Lacked
) -> None:
    """Nobody is placed on room that is held: those who held some before the call lack no more of it afterwards."""
    everybody = known.throughout.get(request.node, {})
    held = {name: size for name, size in everybody.items() if not known.lends(name, request.name)}
    for name, amount in request.size.items():
        left = {name: room.get(name, 0) - amount}
        lacks = _lack(partition, request.node, left, held, name)
        if amount and lacks > lacked.get(request.node, {}).get(name, 0):
            raise ContractBroken("held room", f"{request.name!r} leaves {left} on {request.node}, held: {dict(held)}")


def _told_to_leave(shim: ShimView, effect: Released) -> None:
    """The core wants an allocation gone, or drops a pending placeholder. Nobody is told twice (I11)."""
    name = identity_of(effect.key, effect.instance)
    request = shim.known(effect.partition, name)
    if request.owner != effect.application_id:
        raise ContractBroken("released", f"{effect} names the wrong application")
    if request.leaves_as is not None:
        raise ContractBroken("told twice", f"{effect}, told before: {request.leaves_as}")
    match effect.termination:
        case TerminationType.PREEMPTED_BY_SCHEDULER if request.node:
            request.leaves_as = effect.termination
        case TerminationType.TIMEOUT if request.placeholder:
            if request.node:
                request.leaves_as = effect.termination
            else:
                del shim.partitions[effect.partition].requests[name]
        case TerminationType.PLACEHOLDER_REPLACED if request.placeholder and request.node:
            request.leaves_as = effect.termination
        case _:
            raise ContractBroken("released", f"{effect} of {request}")
