"""Refusals of entries because of their devices: tags that make no sense, and devices that an allocation cannot hold.

Rules: docs/devices.md, "What the core refuses".
"""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import GIVEN_TAG, WHOLE, write_share
from kornel.core.domain.names import show_name
from kornel.core.domain.reasons import Rejection
from kornel.core.model.allocations import Allocation, identity_of
from kornel.core.model.nodes import Node
from kornel.core.state.books.device_books import share_when_running
from kornel.core.state.partition_state import PartitionState


def refuse_devices(state: PartitionState, spec: AllocationSpec, known: Allocation | None) -> str | None:
    """Returns the reason for refusing *spec* because of its devices, or ``None`` if there is none.

    *known* is a request with the same key, if there is one.
    """
    request = spec.devices
    assert request is not None, "the caller has checked"
    if request.flaw:
        return f"{Rejection.INVALID_DEVICES}: {request.flaw}"
    if not spec.node_id or not request.given:
        return None
    if known is not None and spec.instance:
        known = state.requests.get(identity_of(spec.key, spec.instance))
    if known is not None and not known.pending:
        if known.devices and set(known.devices) != set(request.given):
            held = ", ".join(known.devices)
            return f"{Rejection.UNCHANGEABLE}: {spec.key} holds {held}, not {', '.join(request.given)}"
        return None
    return _refuse_given(state.nodes[spec.node_id], spec, {})


def refuse_together(state: PartitionState, node: Node, specs: Sequence[AllocationSpec]) -> str | None:
    """Returns the reason for refusing *specs*, which are to be added to *node* together, if their devices conflict with
    each other or with the node."""
    beside: dict[str, int] = {}
    for spec in specs:
        request = spec.devices
        if request is None or not request.given or identity_of(spec.key, spec.instance) in state.requests:
            continue
        refused = _refuse_given(node, spec, beside)
        if refused is not None:
            return refused
        assert node.devices is not None, "otherwise it would be refused"
        for name in request.given:
            share = share_when_running(node.devices.devices[name].spec, request)
            beside[name] = beside.get(name, 0) + share
    return None


def _refuse_given(node: Node, spec: AllocationSpec, beside: dict[str, int]) -> str | None:
    """Returns the reason why *spec* cannot hold the devices that it names on *node*. *beside* are the shares of the
    entries before it."""
    request = spec.devices
    assert request is not None, "the caller has checked"
    wanted = request.number or 1
    if len(request.given) != wanted:
        number = f"{len(request.given)} devices, and it wants {wanted}"
        return f"{Rejection.INVALID_DEVICES}: {GIVEN_TAG} of {spec.key} names {number}"
    known = {} if node.devices is None else node.devices.devices
    for name in request.given:
        device = known.get(name)
        if device is None:
            return f"{Rejection.INVALID_DEVICES}: node {node.node_id} has no device {show_name(name)}"
        share = share_when_running(device.spec, request)
        if share > device.free - beside.get(name, 0):
            holders = ", ".join(sorted(holder.spec.key for holder in device.holders)) or "another entry"
            part = "all" if share == WHOLE else write_share(share)
            return (
                f"{Rejection.INVALID_DEVICES}: {spec.key} cannot hold {part} of {name} on node {node.node_id},"
                f" which {holders} holds"
            )
    return None
