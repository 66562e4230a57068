"""Forecasts for a supposed gang: it is placed by one decision, in idle room or after preemption, or it waits.

The engine's own functions choose the nodes and the victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kornel.core.engine.gangs.gang_places import Places, find_places
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.preemption.plan import GangPlan, Refusal
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.blockers import find_gang_lack
from kornel.core.telling.what_if.sandbox import Sandbox, find_moment, find_unit_plan
from kornel.core.telling.what_if.supposed_asks import name_leavers
from kornel.core.telling.what_if.supposition import Forecast, Placed, Preempts, Waits
from kornel.shared.readable_amounts import format_count


def forecast_gang(sandbox: Sandbox, members: Sequence[Allocation]) -> Forecast:
    """Returns the nodes on which *members*, a whole gang, would be placed at once, and the victims that would leave for
    them, or the reason why they wait."""
    state, application, first = sandbox.state, members[0].application, members[0]
    names = first.spec.key, application.application_id, application.queue.path
    notes: list[str] = []
    if sandbox.shim_has_a_say:
        notes.append("the shim, which has the last word, was not asked")
    sandbox.accept_application(application)
    chosen = find_places(state, application, members)
    if isinstance(chosen, Places):
        placed = tuple(
            Placed(ask.spec.key, application.application_id, application.queue.path, node.node_id, application.user)
            for ask, node in chosen.nodes
        )
        notes += _name_domains(state, first, [node for _, node in chosen.nodes])
        return Forecast(placed, notes=tuple(notes))
    found = find_unit_plan(state, members, chosen, sandbox.now_ns)
    due_ns = sandbox.now_ns + application.queue.properties.preemption_delay_ns
    if isinstance(found, GangPlan):
        found, due_ns = find_moment(state, found, due_ns)
    if isinstance(found, Refusal):
        why = f"{found.outcome}: {found.detail}" if found.detail else str(found.outcome)
        reason, packed = _describe_lack(state, members, chosen)
        if not packed:
            notes.append("not every way to pack the members was tried")
        if found.cut_short:
            notes.append("not all ways to make room were tried")
        waits = (Waits(*names, len(members), reason, why, application.user),)
        return Forecast(waits=waits, complete=packed and not found.cut_short, notes=tuple(notes))
    if found.cut_short:
        notes.append("not all ways were tried: milder victims may be enough")
    queue = application.queue.path
    preempts = tuple(
        Preempts(
            place.ask.spec.key, application.application_id, queue, place.node.node_id, due_ns, found.kind,
            name_leavers(place.victims, place.adjusted), application.user,
        )
        for place in found.places
    )  # fmt: skip
    notes += _name_domains(state, first, [place.node for place in found.places])
    notes.append("all members start together, once all victims have left")
    return Forecast(preempts=preempts, notes=tuple(notes))


def _name_domains(state: PartitionState, member: Allocation, nodes: Iterable[Node]) -> list[str]:
    """Returns a note that names the domains of *nodes*, if *member* says something about domains."""
    request, topology = member.spec.topology, state.topology
    depth = topology.depth_of(request.level) if topology is not None and request is not None else None
    if depth is None:
        return []
    names = dict.fromkeys(domain.name for node in nodes for domain in node.domains[depth - 1 : depth])
    return [f"the members would be in {', '.join(names)}"] if names else []


def _describe_lack(state: PartitionState, members: Sequence[Allocation], limited: NotPlaced) -> tuple[str, bool]:
    """Returns why *members* are not placed at once, with the domains that come closest, and whether all ways to pack
    the members were tried."""
    where = limited.account or limited.queue
    if where is not None:
        said = where.path if isinstance(where, Queue) else f"{where.kind} {where.name}"
        return f"{limited.reason} of {said}", True
    lack = find_gang_lack(state, members)
    if lack is None:
        return str(limited.reason), True
    domains = lack.domains
    if domains is None:
        said = f"{lack.placed} of {format_count(len(members), 'place')}"
    else:
        said = f"{domains.name}: {domains.detail}"
    return f"{limited.reason}: {said}", lack.exhaustive
