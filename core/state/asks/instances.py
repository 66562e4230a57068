"""Handles several requests under one key, which an ask of the older generation makes by ``maxAllocations`` (protocol.md
3.4).

Each is a separate request, which is kept under an internal name. ``maxAllocations`` is how many allocations the key is
to have in total: sending an ask again changes nothing, and one that was released is asked for again when the shim
repeats the ask.

A release that names an ID means one instance. A release that names a key means all allocations under it or, if there
are none, all asks under it. If a release with a key alone confirms what the core asked for, it means only the
allocations that the core wants to end.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.allocation_ids import taken_apart
from kornel.core.domain.commands import ReleaseSpec, TerminationType
from kornel.core.model.allocations import Allocation, identity_of
from kornel.core.state.partition_state import PartitionState

_CONFIRMATIONS: Final = (
    TerminationType.TIMEOUT,
    TerminationType.PREEMPTED_BY_SCHEDULER,
    TerminationType.PLACEHOLDER_REPLACED,
)


def join_siblings(state: PartitionState, request: Allocation) -> None:
    """Adds *request* to the list of the requests that share its key."""
    spec = request.spec
    siblings = state.instances.get(spec.key)
    if siblings is None:
        # While a request is the only one under its key, there is no list: the first request is added together with the
        # second one.
        first = state.requests.get(spec.key)
        siblings = state.instances[spec.key] = {} if first is None else {0: first}
    siblings[spec.instance] = request
    state.sharing_count += spec.instance > 0


def forget_request(state: PartitionState, request: Allocation) -> None:
    """Removes *request*, which is gone, from those known by their key, so that another one can have the key."""
    del state.requests[request.key]
    spec = request.spec
    siblings = state.instances.get(spec.key)
    if siblings is not None:
        del siblings[spec.instance]
        state.sharing_count -= spec.instance > 0
        if not siblings:
            del state.instances[spec.key]


def of_key(state: PartitionState, key: str) -> list[Allocation]:
    """Returns all requests under *key*, by instance."""
    siblings = state.instances.get(key)
    if siblings is not None:
        return [siblings[number] for number in sorted(siblings)]
    only = state.requests.get(key)
    return [] if only is None else [only]


def count_requests(state: PartitionState, key: str) -> int:
    """Returns how many requests there are under *key*."""
    siblings = state.instances.get(key)
    return len(siblings) if siblings is not None else int(key in state.requests)


def any_of(state: PartitionState, key: str) -> Allocation | None:
    """Returns one of the requests under *key*, ``None`` if there is none; all are of one application."""
    found = state.requests.get(key)
    if found is None and key in state.instances:
        found = next(iter(state.instances[key].values()))
    return found


def named_requests(state: PartitionState, spec: ReleaseSpec) -> list[str]:
    """Returns the names of all requests that a release means, given by ID or by a key that several share."""
    key = spec.key
    if spec.allocation_id:
        parts = taken_apart(spec.allocation_id)
        if parts is not None and key in ("", parts[0]):
            name = identity_of(*parts)
            if name in state.requests or key:
                return [name]
        # An ID that this core did not make: shims up to 1.4 may call an allocation that they report by its own key.
        key = key or spec.allocation_id
    found = of_key(state, key)
    if len(found) <= 1:
        return [found[0].key if found else key]
    allocated = [request for request in found if not request.pending]
    if spec.termination in _CONFIRMATIONS:
        allocated = [request for request in allocated if request.preempted or request.released] or allocated
    return [request.key for request in allocated or found]
