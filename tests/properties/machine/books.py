"""The books, reckoned again from what the shim was told, and compared with the engine's (scheduling.md 3, 21).

:mod:`kornel.core.state.books.audit` adds up the engine's own records; this adds up the view's, so that a record
which is wrong or missing shows too. While a replacement is on its way only the core knows which real ask it is for
and which node that one occupies already, and while it asks about a placement, for which ask: those totals are bounds
then.
"""

from __future__ import annotations

from typing import Literal

from kornel.core.domain.resources import Resources
from kornel.core.model.shapes import Vector
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from tests.properties.machine.view import Amounts, ContractBroken, PartitionView, add, without_zeros

_SAID = (
    "priority", "task_group", "placeholder", "originator", "allow_preempt_self", "allow_preempt_other", "required_node",
    "tags", "topology", "devices",
)  # fmt: skip

Relation = Literal["is", "at most", "at least"]


def check(state: PartitionState, view: PartitionView) -> None:
    """Everything the view and the partition both know must be the same, and every amount the sum of its parts."""
    if broken := audit.check(state):
        raise ContractBroken(f"audit {broken[0].rule}", f"{broken}")
    if state.law_violations:
        raise ContractBroken("law", f"{state.law_violations} laws were broken")
    undecided = _undecided(state)
    exact = not view.replacing() and not undecided
    _check_records(state, view)
    _check_applications(state, view, waits="is" if exact else "at most", holds="at least" if undecided else "is")
    _check_nodes(state, view, exact=exact)
    _check_task_groups(state, view)


def _undecided(state: PartitionState) -> bool:
    """Whether an ask waits for an answer of the shim, on a node that is kept for it until then."""
    return any(node.held for node in state.nodes.values())


def _differ(rule: str, where: str, engine: object, shim: object) -> None:
    if engine != shim:
        raise ContractBroken(rule, f"{where}: the engine has {engine}, the shim {shim}")


def _check_records(state: PartitionState, view: PartitionView) -> None:
    replacing = view.replacing()
    known = {
        key: request.node
        for key, request in view.requests.items()
        if request.node or (request.owner, request.spec.task_group) not in replacing
    }
    held = {
        key: request.node.node_id if request.node is not None else ""
        for key, request in state.requests.items()
        if key in known or key not in view.requests
    }
    if held != known:
        differing = {k: (held.get(k), known.get(k)) for k in held.keys() | known.keys() if held.get(k) != known.get(k)}
        raise ContractBroken("I8 requests", f"(engine, shim) by key: {differing}")
    for key in held.keys() & view.requests.keys():
        # Whatever was sent last has taken effect, or was refused.
        theirs, ours = state.requests[key].spec, view.requests[key].spec
        for name in _SAID:
            _differ("last said", f"{name} of {key}", getattr(theirs, name), getattr(ours, name))
    victims = {key for key, request in state.requests.items() if request.preempted}
    _differ("victims", "told to leave", victims, {key for key, r in view.requests.items() if r.leaves_as == 3})
    states = {name: str(application.state) for name, application in state.applications.items()}
    _differ("states", "applications", states, {name: app.state for name, app in view.applications.items()})
    foreign = {key: node.node_id for key, node in state.foreign.items()}
    _differ("foreign", "load", foreign, {key: load.node for key, load in view.foreign.items()})
    drains = {name: not node.schedulable for name, node in state.nodes.items()}
    _differ("nodes", "draining", drains, {name: node.draining for name, node in view.nodes.items()})


def _check_applications(state: PartitionState, view: PartitionView, *, waits: Relation, holds: Relation) -> None:
    """I1, I3, I6, I9: pending, real and placeholder amounts of applications and of every queue above them."""
    sums = _Sums(state)
    held = {name: (sums.zero(), sums.zero(), sums.zero()) for name in view.applications}
    for request in view.requests.values():
        pending, real, placeholder = held[request.owner]
        sums.add(
            placeholder if request.node and request.placeholder else real if request.node else pending, request.size
        )
    used = {path: sums.zero() for path in state.queues}
    waiting = {path: sums.zero() for path in state.queues}
    for name, (pending, real, placeholder) in held.items():
        application = state.applications[name]
        if state.queues.get(application.queue.path) is not application.queue:
            raise ContractBroken("I1", f"{name} is in {application.queue}, which is gone")
        _compare("I9 pending", name, application.pending, waits, pending)
        _compare("I1 real", name, application.real, holds, real)
        _compare("I1 placeholder", name, application.placeholder, holds, placeholder)
        for queue in application.queue.lineage():
            total, asked = used[queue.path], waiting[queue.path]
            for t in range(len(total)):
                total[t] += real[t] + placeholder[t]
                asked[t] += pending[t]
    for path, queue in state.queues.items():
        _compare("I1 used", path, queue.used, holds, used[path])
        _compare("I1 pending", path, queue.pending, waits, waiting[path])


def _check_nodes(state: PartitionState, view: PartitionView, *, exact: bool) -> None:
    """I4, I5: load of every node, and the sum of all capacities as the root's max."""
    sums = _Sums(state)
    loads = {name: sums.zero() for name in view.nodes}
    occupied = {name: sums.zero() for name in view.nodes}
    for request in view.requests.values():
        if request.node:
            sums.add(loads[request.node], request.size)
    for foreign in view.foreign.values():
        sums.add(occupied[foreign.node], foreign.size)
    total: Amounts = {}
    for name, node in view.nodes.items():
        engine, capacity = state.nodes[name], sums.zero()
        for kind, amount in node.capacity.items():
            capacity[sums.index(kind)] = amount
        _compare("I4 capacity", name, engine.capacity, "is", capacity)
        _compare("I4 occupied", name, engine.occupied, "is", occupied[name])
        if exact:
            _compare("I4 allocated", name, engine.allocated, "is", loads[name])
        add(total, node.capacity)
    _differ("I5 total", "root max", dict(state.types.to_resources(state.root.max)), without_zeros(total))


def _check_task_groups(state: PartitionState, view: PartitionView) -> None:
    """I10: every placeholder ever known was replaced, went another way, or is there."""
    for name, application in state.applications.items():
        for group, counts in application.task_groups.items():
            there = len(view.placeholders(name, group))
            if counts.count - counts.replaced - counts.timed_out != there:
                raise ContractBroken("I10", f"{name}: {counts}, {there} placeholders are there")


class _Sums:
    """Amounts of the view as vectors of the engine's width, so that they can be compared quickly."""

    def __init__(self, state: PartitionState) -> None:
        self._types = state.types
        self._width = len(state.types.names)
        self._pairs: dict[Resources, list[tuple[int, int]]] = {}

    def zero(self) -> Vector:
        return [0] * self._width

    def index(self, name: str) -> int:
        found = self._types.known_index(name)
        if found is None:
            raise ContractBroken("types", f"the engine never heard of {name}")
        return found

    def add(self, vector: Vector, size: Resources) -> None:
        pairs = self._pairs.get(size)
        if pairs is None:
            pairs = self._pairs[size] = [(self.index(name), amount) for name, amount in size.items() if amount]
        for t, amount in pairs:
            vector[t] += amount


def _compare(rule: str, where: str, engine: Vector, relation: Relation, shim: Vector) -> None:
    """*engine* is what the shim reckons, or at least or at most that. Nothing is negative (I6)."""
    if min(engine, default=0) < 0:
        raise ContractBroken("I6", f"{where}: {rule} is {engine}")
    if engine == shim:
        return
    pairs = list(zip(engine, shim, strict=True))
    if (
        relation == "is"
        or (relation == "at most" and any(has > most for has, most in pairs))
        or (relation == "at least" and any(has < least for has, least in pairs))
    ):
        raise ContractBroken(rule, f"{where}: the engine has {engine}, {relation} {shim} was expected")


def check_nothing_left(state: PartitionState) -> None:
    """Every application, node and foreign load was removed: no amount, ask or hold survives, nobody waits."""
    left = {
        "requests": state.requests, "applications": state.applications, "nodes": state.nodes,
        "foreign": state.foreign, "reservations": state.reservations,
        "no_room": [groups for groups in state.no_room.values() if groups],
        "waiting_for_node": [groups for groups in state.waiting_for_node.values() if groups],
        "waiting_for_domain": state.waiting_for_domain,
        "domains": state.topology.domains if state.topology is not None else (),
    }  # fmt: skip
    for what, records in left.items():
        if records:
            raise ContractBroken("left over", f"{what}: {records}")
    for path, queue in state.queues.items():
        amounts = {
            "used": queue.used,
            "pending": queue.pending,
            "preempting": queue.preempting,
            "claimed": queue.claimed,
        }
        for what, vector in amounts.items():
            if any(vector):
                raise ContractBroken("left over", f"{path}: {what} {vector}")
        if (
            queue.waiting
            or queue.order
            or any(queue.parked.values())
            or (queue.parent is not None and queue.applications)
        ):
            raise ContractBroken("left over", f"{path}: {queue.waiting} asks, {list(queue.applications)}")
    if any(state.root.max.values()):
        raise ContractBroken("left over", f"root max {state.root.max}")


def check_nothing_remembered(state: PartitionState) -> None:
    """Long after everything was removed only the queue cleaner and the autoscaling signal want to be called."""
    if state.attempts_due:
        raise ContractBroken("timers", f"attempts to preempt are due: {state.attempts_due}")
    if len(state.timers) > 2:
        raise ContractBroken("timers", f"{len(state.timers)} timers are left: {state.timers}")
