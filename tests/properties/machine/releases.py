"""What is due for releases: the shim's own, its confirmations, and plain mistakes (protocol.md 3.4, 3.6, 10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kornel.core.domain.allocation_ids import taken_apart
from kornel.core.domain.commands import ReleaseSpec, TerminationType
from kornel.core.domain.effects import Allocated, Released
from kornel.core.model.allocations import identity_of
from tests.properties.machine.answers import Answers
from tests.properties.machine.shim_view import Known, ShimView, placed
from tests.properties.machine.view import ContractBroken, PartitionView, RequestView

_CONFIRMATIONS: Final = (
    TerminationType.TIMEOUT,
    TerminationType.PREEMPTED_BY_SCHEDULER,
    TerminationType.PLACEHOLDER_REPLACED,
)


def withdraw(shim: ShimView, entry: ReleaseSpec) -> None:
    """The older list: asks only."""
    partition = shim.partitions.get(entry.partition)
    if partition is None or entry.termination == TerminationType.TIMEOUT:
        return
    for ask in partition.asks_of(entry.application_id):
        if entry.key in ("", ask.key):
            del partition.requests[ask.name]


def release(shim: ShimView, entry: ReleaseSpec, answers: Answers, known: Known) -> None:
    """Section 10.1 and 10.2; 3.4 for what shares a key; 3.6 for what could not start; 10.4 for the odd cases."""
    partition = shim.partitions.get(entry.partition)
    if partition is None:
        return
    if not entry.application_id:
        partition.foreign.pop(entry.key or entry.allocation_id.removesuffix("-0"), None)
    elif not entry.key and not entry.allocation_id:
        _release_all(partition, entry, answers)
    else:
        for name in _named(partition, entry, known):
            request = partition.requests.get(name)
            if request is not None and request.owner == entry.application_id:
                _release_one(partition, request, entry.termination, answers)


def _named(partition: PartitionView, entry: ReleaseSpec, known: Known) -> list[str]:
    """The names of what an ID or a key means."""
    key = entry.key
    parts = taken_apart(entry.allocation_id) if entry.allocation_id else None
    if parts is not None and key in ("", parts[0]):
        name = identity_of(*parts)
        if key or name in partition.requests:
            return [name]
    found = partition.of_key(key or entry.allocation_id)
    if len(found) > 1:
        allocated = [request for request in found if request.node or request.name in known.in_flight]
        if entry.termination in _CONFIRMATIONS:
            allocated = [request for request in allocated if request.leaves_as is not None] or allocated
        found = allocated or found
    return [request.name for request in found]


def _release_one(partition: PartitionView, request: RequestView, kind: int, answers: Answers) -> None:
    if kind == TerminationType.SCHEDULING_FAILED_ON_RM:
        answers.pass_asides()
        running = partition.applications[request.owner].state in ("Accepted", "Running")
        if request.node and request.leaves_as is None and running:
            request.node = ""
    elif kind == TerminationType.PLACEHOLDER_REPLACED and not request.placeholder:
        return
    elif request.node:
        _leave(partition, [request], kind, answers)
    elif kind != TerminationType.TIMEOUT:
        del partition.requests[request.name]


def _release_all(partition: PartitionView, entry: ReleaseSpec, answers: Answers) -> None:
    kind = entry.termination
    if kind in (TerminationType.PLACEHOLDER_REPLACED, TerminationType.SCHEDULING_FAILED_ON_RM):
        return
    if kind != TerminationType.TIMEOUT:
        for ask in partition.asks_of(entry.application_id):
            del partition.requests[ask.name]
    _leave(partition, partition.allocations_of(entry.application_id), kind, answers)


def _leave(partition: PartitionView, gone: list[RequestView], kind: int, answers: Answers) -> None:
    """*gone* leave with a release of *kind*; a real ask that one of them was replaced by may be announced."""
    for request in gone:
        del partition.requests[request.name]
    if kind not in _CONFIRMATIONS:
        confirmed_gone(gone, answers)
    replacing = {(r.owner, r.spec.task_group) for r in gone if r.leaves_as == TerminationType.PLACEHOLDER_REPLACED}
    replacement(partition, replacing, answers)


def confirmed_gone(gone: Iterable[RequestView], answers: Answers) -> None:
    """The core confirms that all of *gone* are released, in any order, and nobody else."""
    due = {request.name: request.owner for request in gone}
    while due:
        answer = answers.next(Released)
        if due.pop(identity_of(answer.key, answer.instance), None) != answer.application_id:
            raise ContractBroken("released", f"{answer}, still due are {due}")
        if answer.termination != TerminationType.STOPPED_BY_RM:
            raise ContractBroken("released", f"{answer} confirms a release of the shim")


def replacement(partition: PartitionView, replacing: set[tuple[str, str]], answers: Answers) -> RequestView | None:
    """The real ask that replaces a placeholder of one of these task groups, if one is announced now."""
    if not replacing or not answers.at(Allocated):
        return None
    request = placed(partition, answers.next(Allocated))
    if request.placeholder or (request.owner, request.spec.task_group) not in replacing:
        raise ContractBroken("replacement", f"{request} replaces nothing of {replacing}")
    return request
