"""What is due for nodes, applications and allocations that a shim reports, entry by entry (protocol.md 6 to 9)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count, islice
from typing import Final

from kornel.core.domain.allocation_ids import MOST_INSTANCES
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationRef,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    SetOperatorDrain,
    TerminationType,
    UpdateAllocations,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    NodeAccepted,
    NodeRejected,
)
from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.model.allocations import identity_of
from tests.properties.machine import devices, topology
from tests.properties.machine.answers import Answers, token
from tests.properties.machine.application_states import on_removal
from tests.properties.machine.releases import confirmed_gone, replacement
from tests.properties.machine.shim_view import Known, ShimView, placed
from tests.properties.machine.view import (
    EXPIRES_AFTER_NS,
    ApplicationView,
    ContractBroken,
    ForeignView,
    Grave,
    NodeView,
    PartitionView,
    RequestView,
)

_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
_NOT_BURIED: Final = ("application-exists", "invalid-id", "partition-not-found")
_PLACEMENT: Final = frozenset(
    {"no-queue", "queue-not-leaf", "queue-create-failed", "gang-needs-fifo", "gang-too-large", "invalid-resource"}
)


def node(shim: ShimView, spec: NodeSpec, answers: Answers, known: Known) -> None:
    partition = shim.partitions.get(spec.partition)
    if spec.action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN):
        _create(shim, spec, partition, answers, known)
        return
    found = partition.nodes.get(spec.node_id) if partition is not None else None
    if partition is None or found is None:
        return
    if spec.action == NodeAction.UPDATE and not devices.is_readable(spec):
        return
    negative = any(amounts is not None and amounts.has_negative() for amounts in (spec.capacity, spec.occupied))
    if spec.action == NodeAction.UPDATE:
        # Of the attributes only those change that say where a node stands.
        named = set(topology.levels_of(shim, spec.partition).values())
        devices.update(found, spec)
        found.attributes = {**found.attributes, **{k: v for k, v in spec.attributes if k in named}}
    if spec.action == NodeAction.UPDATE and not negative:
        if spec.capacity is not None:
            found.capacity = dict(spec.capacity)
        if spec.occupied is not None:
            partition.foreign[f"occupied/{spec.node_id}"] = ForeignView(spec.node_id, spec.occupied)
    elif spec.action in (NodeAction.DRAIN_NODE, NodeAction.DRAIN_TO_SCHEDULABLE):
        found.drained = spec.action == NodeAction.DRAIN_NODE
    elif spec.action == NodeAction.DECOMISSION:
        _decommission(partition, spec.node_id, answers)


def operator_drain(shim: ShimView, command: SetOperatorDrain) -> None:
    """Outlives the node, and every registration of the same manager."""
    name = (command.partition, command.node_id)
    if command.drained:
        shim.kept_out.add(name)
    else:
        shim.kept_out.discard(name)
    node = shim.partitions[command.partition].nodes.get(command.node_id)
    if node is not None:
        node.kept_out = command.drained


def _create(shim: ShimView, spec: NodeSpec, partition: PartitionView | None, answers: Answers, known: Known) -> None:
    refusal = _node_refusal(shim, spec, partition)
    if refusal is not None or partition is None:
        rejected = answers.next(NodeRejected)
        if rejected.node_id != spec.node_id or token(rejected.reason) != refusal:
            raise ContractBroken("node refusal", f"{rejected} instead of {refusal}")
        return
    if answers.next(NodeAccepted).node_id != spec.node_id:
        raise ContractBroken("node answer", f"{spec.node_id} was not accepted")
    for existing in spec.existing:
        _take(partition, existing._replace(node_id=spec.node_id), answers, known)


def _node_refusal(shim: ShimView, spec: NodeSpec, partition: PartitionView | None) -> str | None:
    """Why the node is not created; otherwise it is in the view now."""
    if partition is None:
        return "partition-not-found"
    if not spec.node_id:
        return "invalid-id"
    if spec.node_id in partition.nodes:
        return "node-exists"
    if any(amounts is not None and amounts.has_negative() for amounts in (spec.capacity, spec.occupied)):
        return "invalid-resource"
    if not devices.is_readable(spec):
        return "invalid-devices"
    drained = spec.action == NodeAction.CREATE_DRAIN
    kept_out = (spec.partition, spec.node_id) in shim.kept_out
    attributes = dict(spec.attributes)
    partition.nodes[spec.node_id] = NodeView(spec.node_id, dict(spec.capacity or {}), drained, attributes, kept_out)
    devices.update(partition.nodes[spec.node_id], spec)
    owners: dict[str, str] = {}
    for existing in spec.existing:
        refusal = _refusal(shim, existing._replace(node_id=spec.node_id))
        if refusal is None and owners.setdefault(existing.key, existing.application_id) != existing.application_id:
            refusal = "key-in-use"
        if refusal is not None:
            del partition.nodes[spec.node_id]
            return refusal
    if spec.occupied is not None:
        partition.foreign[f"occupied/{spec.node_id}"] = ForeignView(spec.node_id, spec.occupied)
    return None


def _decommission(partition: PartitionView, node_id: str, answers: Answers) -> None:
    """Everything on the node is released; replacements on their way elsewhere are confirmed (7.2)."""
    gone = partition.on(node_id)
    for request in gone:
        del partition.requests[request.name]
    del partition.nodes[node_id]
    for key in [key for key, foreign in partition.foreign.items() if foreign.node == node_id]:
        del partition.foreign[key]
    confirmed_gone(gone, answers)
    replacing = {(r.owner, r.spec.task_group) for r in gone if r.leaves_as == TerminationType.PLACEHOLDER_REPLACED}
    while replacement(partition, replacing, answers):
        pass


def application(shim: ShimView, spec: ApplicationSpec, answers: Answers) -> None:
    partition = shim.partitions.get(spec.partition)
    refusal = _application_refusal(spec, partition)
    answer = answers.take()
    if not isinstance(answer, ApplicationAccepted | ApplicationRejected):
        raise ContractBroken("application answer", f"{answer} to {spec}")
    if answer.application_id != spec.application_id:
        raise ContractBroken("application answer", f"{answer} to {spec}")
    if isinstance(answer, ApplicationAccepted):
        if refusal is not None or partition is None:
            raise ContractBroken("application answer", f"{spec} was accepted in spite of {refusal}")
        partition.applications[spec.application_id] = ApplicationView(spec)
        partition.silence(shim.now_ns)
        return
    why = token(answer.reason)
    if why != refusal if refusal is not None else why not in _PLACEMENT:
        raise ContractBroken("application refusal", f"{answer} instead of {refusal}")
    if partition is not None and why not in _NOT_BURIED:
        partition.graves.append(Grave(spec.application_id, shim.now_ns + EXPIRES_AFTER_NS))


def _application_refusal(spec: ApplicationSpec, partition: PartitionView | None) -> str | None:
    """The first of rows 1 to 4 of 6.1 that applies."""
    forced = any(k.lower() == "application.create.force" and v.lower() == "true" for k, v in spec.tags)
    if partition is None:
        return "partition-not-found"
    if not spec.application_id:
        return "invalid-id"
    if not _USER.fullmatch(spec.user) and (spec.user or not forced):
        return "user-invalid"
    return "application-exists" if spec.application_id in partition.applications else None


def remove_applications(shim: ShimView, refs: Iterable[ApplicationRef], answers: Answers) -> None:
    leaving: dict[str, tuple[PartitionView, str, list[str], list[RequestView]]] = {}
    for application_id, name in refs:
        partition = shim.partitions.get(name)
        found = partition.applications.get(application_id) if partition is not None else None
        if partition is None or found is None or application_id in leaving:
            continue
        gone, asks = partition.allocations_of(application_id), partition.asks_of(application_id)
        leaving[application_id] = (partition, found.state, on_removal(found.state, allocated=bool(gone)), gone)
        shim.removing.add(application_id)
        for request in (*gone, *asks):
            del partition.requests[request.name]
    for *_, gone in leaving.values():
        confirmed_gone(gone, answers)
    answers.pass_asides()
    for application_id, (partition, before, expected, _) in leaving.items():
        told = shim.updates.get(application_id, [])
        if told != expected:
            raise ContractBroken("removal", f"{application_id} reported {told}, expected {expected}")
        unfinished = application_id in partition.applications
        if shim.closed.get(application_id) != (before if unfinished else None):
            raise ContractBroken("closing record", f"{application_id} was {before}: {shim.closed.get(application_id)}")
        partition.applications.pop(application_id, None)


def allocations(shim: ShimView, command: UpdateAllocations, answers: Answers, known: Known) -> None:
    """Allocations and asks; refusals are answered after all that was taken."""
    refused: list[tuple[AllocationSpec, str]] = []
    for spec in command.allocations:
        why = _refusal(shim, spec) or _change_refusal(shim.partitions[spec.partition], spec, known)
        if why is not None:
            refused.append((spec, why))
        else:
            _take(shim.partitions[spec.partition], spec, answers, known)
    for spec, why in refused:
        answer = answers.next(AllocationRejected)
        if answer[:2] != (spec.key, spec.application_id) or answer.legacy != spec.legacy:
            raise ContractBroken("rejection", f"{answer} instead of {why} for {spec}")
        if token(answer.reason) != why:
            raise ContractBroken("rejection", f"{answer} instead of {why}")


def _refusal(shim: ShimView, spec: AllocationSpec) -> str | None:
    """The decision table of 8.1 with the rows of DB-5, DB-6 and DB-15; ``None``: it is taken."""
    partition = shim.partitions.get(spec.partition)
    size = spec.resources
    if partition is None:
        return "partition-not-found"
    if spec.placeholder and not spec.task_group:
        return "placeholder-without-group"
    if not spec.key:
        return "invalid-key"
    if spec.foreign:
        if not spec.node_id:
            return "foreign-without-node"
        if spec.node_id not in partition.nodes:
            return "node-not-found"
        return "negative-resources" if size is not None and size.has_negative() else None
    owner = partition.applications.get(spec.application_id)
    if owner is None:
        return "application-not-found"
    if spec.node_id and spec.node_id not in partition.nodes:
        return "node-not-found"
    if not 1 <= spec.max_allocations <= MOST_INSTANCES:
        return "max-allocations"
    if size is None or size.is_zero():
        return "no-resources"
    if size.has_negative():
        return "negative-resources"
    known = partition.of_key(spec.key)
    if known and known[0].owner != spec.application_id:
        return "key-in-use"
    if spec.topology is not None:
        levels = topology.levels_of(shim, spec.partition)
        if spec.topology.flaw or spec.topology.level not in levels:
            return "invalid-topology"
    if spec.devices is not None and spec.devices.flaw:
        return "invalid-devices"
    more = not known or (spec.legacy and len(known) < spec.max_allocations)
    return "application-state" if more and not spec.node_id and owner.state == "Failing" else None


def _change_refusal(partition: PartitionView, spec: AllocationSpec, known: Known) -> str | None:
    """What is allocated becomes no placeholder, changes no task group and moves to no other node (8.1)."""
    if spec.foreign:
        return None
    if spec.legacy:
        requests = partition.of_key(spec.key)
        if len(requests) < spec.max_allocations or any(_waits(request, known) for request in requests):
            return None
    else:
        request = partition.requests.get(identity_of(spec.key, spec.instance))
        requests = [] if request is None or _waits(request, known) else [request]
    for request in requests:
        before = request.spec
        if (
            (spec.placeholder and not before.placeholder)
            or spec.task_group not in ("", before.task_group)
            or spec.required_node not in ("", before.required_node, request.node)
            or (spec.devices is not None and spec.devices.demand != request.wants)
        ):
            return "unchangeable"
    return None


def _waits(request: RequestView, known: Known) -> bool:
    return not request.node and request.name not in known.in_flight


def _amend(request: RequestView, spec: AllocationSpec) -> None:
    """What runs takes over the rest."""
    before = request.spec
    bound = spec.required_node if spec.required_node == request.node else before.required_node
    request.spec = spec._replace(
        placeholder=before.placeholder,
        task_group=before.task_group,
        required_node=bound,
        instance=before.instance,
        node_id=before.node_id,
        devices=before.devices,
    )


def _take(partition: PartitionView, spec: AllocationSpec, answers: Answers, known: Known) -> None:
    size = spec.resources if spec.resources is not None else NOTHING
    if spec.foreign:
        partition.foreign[spec.key] = ForeignView(spec.node_id, size)
        return
    if spec.legacy:
        _take_older(partition, spec, size, known)
        return
    name = identity_of(spec.key, spec.instance)
    request = partition.requests.get(name)
    if request is None:
        request = partition.requests[name] = RequestView(spec, size)
    elif _waits(request, known):
        request.spec = spec
    else:
        _amend(request, spec)
    request.size = size
    if spec.node_id and not request.node and name not in known.in_flight:
        request = placed(partition, answers.next(Allocated), node_id=spec.node_id, name=name)
        devices.judge_devices(partition, request, checked=False)


def _take_older(partition: PartitionView, spec: AllocationSpec, size: Resources, known: Known) -> None:
    """What is pending becomes what is asked for, as many as are missing; what is allocated as far as it can (3.4).

    A real ask that is about to replace a placeholder is allocated already, which only the core knows.
    """
    requests = partition.of_key(spec.key)
    pending = [request for request in requests if not request.node and request.name not in known.in_flight]
    wanted = max(0, spec.max_allocations - (len(requests) - len(pending)))
    for request in pending[wanted:]:
        del partition.requests[request.name]
    for request in pending[:wanted]:
        request.spec, request.size = spec._replace(instance=request.spec.instance), size
    for request in requests:
        if not _waits(request, known):
            _amend(request, spec)
    used = {request.spec.instance for request in requests}
    for number in islice((n for n in count() if n not in used), max(0, wanted - len(pending))):
        request = RequestView(spec._replace(instance=number), size)
        partition.requests[request.name] = request
