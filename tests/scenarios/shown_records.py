"""What ``show`` tells of the records of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kornel.core.domain.priorities import NOTHING_WAITS, PRIORITY_MIN
from kornel.core.model.allocations import Allocation, identity_of
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Vector
from kornel.core.model.users import Account
from kornel.core.service.wire.scheduler_wire import PARTITION_ATTRIBUTE
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.partitions.partition_status import partition_status
from kornel.core.telling.queues.above_max import above_max_of
from kornel.core.telling.queues.queue_views import wasted_of
from tests.scenarios.language import shown


def _rank(priority: int) -> str:
    return {NOTHING_WAITS: "none", PRIORITY_MIN: "MIN"}.get(priority, str(priority))


def _fields(known: dict[str, Callable[[], object]], asked: list[str], default: str) -> str:
    return " ".join(f"{name}={known[name]()}" for name in asked or default.split())


def _show_queue(state: PartitionState, path: str, fields: list[str]) -> str:
    queue = state.queues.get(path)
    if queue is None:
        return f"queue {path} absent"

    def vector(amounts_: Vector | dict[int, int]) -> Callable[[], str]:
        return lambda: shown(state.types.to_resources(amounts_))

    known: dict[str, Callable[[], object]] = {
        "used": vector(queue.used),
        "pending": vector(queue.pending),
        "preempting": vector(queue.preempting),
        "claimed": vector(queue.claimed),
        "preempted": vector(queue.preempted_total),
        "wasted": lambda: ";".join(f"{kind}:{shown(sums)}" for kind, sums in wasted_of(state, queue)) or "-",
        "max": vector(queue.max),
        "guaranteed": vector(queue.guaranteed),
        "fair": vector(dict(queue.fair_terms)),
        "priority": lambda: _rank(queue.priority),
        "draining": lambda: "yes" if queue.draining else "no",
        "apps": lambda: len(queue.applications),
        "kind": lambda: ("managed" if queue.managed else "dynamic") + (" leaf" if queue.leaf else " parent"),
        "maxapplications": lambda: queue.max_applications,
        "running": lambda: queue.running,
        "allocating": lambda: len(queue.allocating),
        "sort": lambda: queue.properties.sort_policy,
        "due": lambda: f"{due_ns / 10**9:g}s" if (due_ns := state.enforcement.armed.get(queue)) is not None else "-",
        "victims": lambda: queue.properties.preemption_policy,
        "above": lambda: _above(state, queue),
    }
    return f"queue {path} {_fields(known, fields, 'used pending')}"


def _above(state: PartitionState, queue: Queue) -> str:
    """How much the queue holds above its max, since when, what is done about it and what protects it."""
    found = above_max_of(state, queue)
    if found is None:
        return "-"
    leaving = f" leaving={shown(found.leaving)}" if found.leaving else ""
    why = "".join(f" | {reason}" for reason in found.protected)
    return f"{shown(found.above)} since={found.since_ns / 10**9:g}s{leaving} | {found.course}{why}"


def _show_node(state: PartitionState, node_id: str, fields: list[str]) -> str:
    node = state.nodes.get(node_id)
    if node is None:
        return f"node {node_id} absent"

    def vector(amounts_: Vector) -> Callable[[], str]:
        return lambda: shown(state.types.to_resources(amounts_))

    known: dict[str, Callable[[], object]] = {
        "capacity": vector(node.capacity),
        "free": vector(node.free),
        "allocated": vector(node.allocated),
        "occupied": vector(node.occupied),
        "score": lambda: f"{node.score:g}",
        "schedulable": lambda: "yes" if node.schedulable else "no",
        "reserved": lambda: ",".join(node.reservations) or "-",
        "devices": lambda: _devices(node),
        # Over the wire a node has its partition among its attributes.
        "attributes": lambda: (
            ",".join(f"{key}:{value}" for key, value in node.attributes if key != PARTITION_ATTRIBUTE) or "-"
        ),
    }
    return f"node {node_id} {_fields(known, fields, 'free')}"


def _devices(node: Node) -> str:
    """The devices with what is free of them, and who holds the rest."""
    shown_: list[str] = []
    for device in node.devices or ():
        holders = "".join(f" {holder.key}={share}" for holder, share in device.holders.items())
        leaving = " leaving" if device.leaving else ""
        shown_.append(f"{device.spec.device_id}:{device.free}{holders}{leaving}")
    return ",".join(shown_) or "-"


def _show_domain(state: PartitionState, path: str, _: list[str]) -> str:
    domain = state.topology.domains.get(tuple(path.split("/"))) if state.topology is not None else None
    if domain is None:
        return f"domain {path}: none"
    amounts_ = (state.types.to_resources(vector) for vector in (domain.capacity, domain.free, domain.held))
    capacity, free, held = map(shown, amounts_)
    return f"domain {domain.name}: nodes={len(domain.nodes)} capacity={capacity} free={free} held={held}"


def _show_app(state: PartitionState, application_id: str, fields: list[str]) -> str:
    application = state.applications.get(application_id)
    if application is None:
        return f"app {application_id} absent"
    known: dict[str, Callable[[], object]] = {
        "state": lambda: application.state,
        "queue": lambda: application.queue.path,
        "user": lambda: application.user,
        "group": lambda: application.limit_group or "-",
        "headroom": lambda: _headroom(state, application),
        "pending": lambda: shown(state.types.to_resources(application.pending)),
        "real": lambda: shown(state.types.to_resources(application.real)),
        "placeholder": lambda: shown(state.types.to_resources(application.placeholder)),
        "priority": lambda: _rank(application.priority),
        "groups": lambda: (
            ",".join(f"{g.name}:{g.replaced}+{g.timed_out}/{g.count}" for g in application.task_groups.values()) or "-"
        ),
        "deadline": lambda: (
            "-" if application.placeholder_deadline_ns is None else f"{application.placeholder_deadline_ns / 10**9:g}s"
        ),
    }
    return f"app {application_id} {_fields(known, fields, 'state')}"


def headroom_of(accounts: Iterable[Account]) -> dict[int, int]:
    """Returns the headroom that all limits together leave, by type; a missing type is not limited."""
    least: dict[int, int] = {}
    for account in accounts:
        for t, left in account.find_headroom().items():
            least[t] = min(left, least.get(t, left))
    return least


def _headroom(state: PartitionState, application: Application) -> str:
    """What the limits of its user and group leave; ``unlimited`` without any."""
    left = headroom_of(application.accounts)
    return shown(state.types.to_resources(left)) if left else "unlimited"


def _show_user(state: PartitionState, user: str, _: list[str]) -> str:
    """What the status says of a user."""
    found = next((each for each in partition_status(state, audited=False).users if each.user == user), None)
    return f"user {user} absent" if found is None else f"user {user} used={shown(found.used)} apps={found.applications}"


def _show_request(state: PartitionState, key: str, fields: list[str]) -> str:
    visible, _, instance = key.partition("#")
    request = state.requests.get(identity_of(visible, int(instance or 0)))
    if request is None:
        return f"request {key} absent"

    def yes(value: bool) -> Callable[[], str]:
        return lambda: "yes" if value else "no"

    known: dict[str, Callable[[], object]] = {
        "node": lambda: request.node.node_id if request.node is not None else "-",
        "reserved": lambda: request.reservation.node.node_id if request.reservation is not None else "-",
        "size": lambda: shown(request.shape.resources),
        "priority": lambda: request.priority,
        "self": yes(request.spec.allow_preempt_self),
        "other": yes(request.spec.allow_preempt_other),
        "preempted": yes(request.preempted),
        "released": yes(request.released),
        "replaces": lambda: request.replaces.key if request.replaces is not None else "-",
        "triggered": yes(request.triggered),
        "waits": lambda: _waiting_room(state, request),
        "rearms": lambda: request.rearms,
        "missed": lambda: request.missed,
        "held": lambda: request.held_on.node_id if request.held_on is not None else "-",
        "failures": lambda: _failures(request),
        "refused": lambda: _refusal_of_gang(state, request),
    }
    return f"request {key} {_fields(known, fields, 'node')}"


def _refusal_of_gang(state: PartitionState, request: Allocation) -> str:
    """Why the last attempt of its gang to preempt had nobody leave."""
    gang = request.group if isinstance(request.group, GangUnit) else state.gangs.hold_of(request)
    refusal = None if gang is None else gang.refusal
    return "-" if refusal is None else f"{refusal.outcome} ({refusal.detail})"


def _failures(request: Allocation) -> str:
    """Why it was not placed, each with how often."""
    return ", ".join(f"{entry.message} x{entry.times}" for entry in reversed(request.failures)) or "-"


def _waiting_room(state: PartitionState, request: Allocation) -> str:
    """What a pending request waits for: a queue's max, room on any node or on one, its victims, or just its turn."""
    if request.reservation is not None:
        return f"reserved:{request.reservation.node.node_id}"
    if request.pool is not None:
        return f"placeholder:{request.pool.name}"
    room = request.group.parked_at if request.group is not None else None
    if room is None:
        return "turn" if request.pending else "-"
    if room is state.gangs.gathering:
        return "gang"
    if any(gang_room.waiters is room for gang_room in state.gangs.rooms.values()):
        return "room-for-gang"
    for queue in state.queues.values():
        if any(groups is room for groups in queue.parked.values()):
            return queue.path
        for account in queue.accounts.values():
            if any(groups is room for groups in account.parked.values()):
                return f"{account.kind}:{account.name}@{queue.path}"
    if room is request.application.backoff_room:
        return "back-off"
    gate = request.application.held_at
    if gate is not None and room is request.application.held_groups:
        where = gate.path if isinstance(gate, Queue) else f"{gate.kind}:{gate.name}@{gate.queue.path}"
        return f"applications:{where}"
    return "room" if any(groups is room for groups in state.no_room.values()) else request.spec.required_node


def _show_attempts(state: PartitionState, _: str, __: list[str]) -> str:
    return f"attempts {state.preemption_attempts} preemptions {state.preemptions}"


def _show_total(state: PartitionState, _: str, __: list[str]) -> str:
    return f"total {shown(state.types.to_resources(state.root.max))}"


SHOWN: Final[dict[str, Callable[[PartitionState, str, list[str]], str]]] = {
    "queue": _show_queue,
    "node": _show_node,
    "app": _show_app,
    "request": _show_request,
    "user": _show_user,
    "total": _show_total,
    "attempts": _show_attempts,
    "domain": _show_domain,
}
