"""Finds nodes for all members of a gang, or the reason why there are none, and places all members at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.domain.application_states import AppEvent, AppState
from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.resources import NOTHING
from kornel.core.engine import lifecycle
from kornel.core.engine.gangs import pools
from kornel.core.engine.scheduling import placement
from kornel.core.model.allocations import Allocation, Together, sum_amounts, together_of
from kornel.core.model.applications import Application
from kornel.core.model.devices import NodeDevices
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.model.users import Account
from kornel.core.policies import user_limits
from kornel.core.policies.claim_order import list_lent
from kornel.core.policies.device_choice import choose_devices
from kornel.core.policies.device_packing import Budget
from kornel.core.policies.device_sharing import DevicesOf, share_on_nodes
from kornel.core.policies.gang_domains import choose_nodes
from kornel.core.policies.gang_nodes import NONE_REFUSED, Candidates, Members, Shortfall
from kornel.core.state.asks import finding, savings
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import Demand
from kornel.core.state.waiting import admission
from kornel.core.state.waiting.gathering import find_least

MOST_TOTALS: Final = 1_024
"""The most sums of gangs that are remembered."""


class Places(NamedTuple):
    """The members of a gang, in order, each with the node chosen for it, and the *devices* of those who do not simply
    get the ones that would be chosen for them one after the other."""

    nodes: Sequence[tuple[Allocation, Node]]
    devices: DevicesOf

    def name_devices(self) -> None:
        """Names the devices of members, which are going to be placed, where the order of placements would not leave
        some for all of them."""
        for ask, names in self.devices.items():
            ask.devices = names


def find_places(
    state: PartitionState,
    application: Application,
    members: Sequence[Allocation],
    budget: Budget | None = None,
    *,
    known_full: bool = False,
) -> Places | NotPlaced:
    """Returns a node for each of *members*, or what keeps the gang back: a limit, or the lack of places for all. If it
    is *known_full*, only limits are looked at. *budget*: as for :func:`choose_places`."""
    limited = exceeded_limit(state, application, members)
    if state.recording:
        for ask in members:
            state.events.limits_checked(ask, limited)
    if limited is not None:
        return limited
    # If there is a waiting room for this demand, a gang with the same demand found no places, and no node has gained
    # enough room since.
    in_room = known_full or demand_of(members)[0] in state.gangs.rooms
    places = None if in_room else choose_places(state, members, budget=budget)
    if places is None and not known_full and state.reserving.saved:
        places = find_lent_places(state, members)
    return NotPlaced(Unschedulable.GANG_INCOMPLETE) if places is None else places


def find_lent_places(state: PartitionState, members: Sequence[Allocation]) -> Places | None:
    """Returns places for all *members* in room that nobody holds, in what is saved for them and, where that is not
    enough, in what is saved for those whom their gang may pass; ``None``: they find none."""
    own = [ask.reservation for ask in members if ask.reservation is not None]
    lent = list_lent(find_least(members), state.reserving.saved, state.dues, add_up(members))
    sizes = {ask.shape.pairs for ask in members if not ask.spec.required_node}
    for lifted in filter(None, (own, lent and own + lent)):
        with savings.lift_saved(state, lifted):
            # Most often one of them has no room at all, which is much cheaper to see.
            if all(state.node_order.first_fit(pairs) is not None for pairs in sizes):
                places = choose_places(state, members)
                if places is not None:
                    return places
    return None


def choose_places(
    state: PartitionState,
    members: Sequence[Allocation],
    among: Sequence[Node] | None = None,
    budget: Budget | None = None,
) -> Places | None:
    """Returns nodes with room for all *members*, ``None`` if there are not enough. *among* restricts the choice to some
    open nodes. *budget*: the steps that may be taken to pack different members."""
    demand, alike = demand_of(members)
    chosen = choose_nodes(Candidates(state.node_order, state.nodes, among), state.topology, demand, budget)
    if isinstance(chosen, Shortfall):
        return None
    nodes: dict[Allocation, Node] = {}
    for asks, places in zip(alike, chosen, strict=True):
        nodes.update(zip(asks, places, strict=True))
    return find_devices([(ask, nodes[ask]) for ask in members])


def find_devices(nodes: Sequence[tuple[Allocation, Node]]) -> Places | None:
    """Returns the places of members on the *nodes* chosen for them, with their devices; ``None``: not all members have
    some.

    The order matters: members with different wishes may fit only if none of them gets its devices without regard to the
    others. What is kept for a member is free for the others once it is placed.
    """
    left: dict[Node, NodeDevices] = {}
    crowded: set[Node] = set()
    for ask, node in nodes:
        request = ask.shape.devices
        if request is None:
            continue
        if node.devices is None:
            return None
        devices = left.get(node)
        if devices is None:
            devices = left[node] = node.devices.copy()
        taken = choose_devices(devices, request, ask)
        if taken is None:
            crowded.add(node)
            continue
        devices.keep(ask, ())
        devices.put_on_paper(taken)
    if not crowded:
        return Places(nodes, {})
    shared = ((ask, node) for ask, node in nodes if node in crowded)
    found = share_on_nodes(shared, lambda node, members: node.devices and node.devices.copy_unkept(members))
    return None if found is None else Places(nodes, found)


def exceeded_limit(
    state: PartitionState, application: Application, members: Sequence[Allocation], priority: int | None = None
) -> NotPlaced | None:
    """Returns the limit that all *members* together would exceed now: of applications, then of user and group, then of
    queues. *priority*: of the least important member, if none is to be placed now."""
    gate = admission.may_run(state, application, priority)
    if isinstance(gate, Queue):
        return NotPlaced(Unschedulable.APPLICATION_LIMIT, queue=gate)
    if gate is not None:
        return NotPlaced(Unschedulable.APPLICATION_LIMIT, account=gate)
    pairs = add_up(members)
    if application.accounts:
        account = user_limits.find_exceeded_by(members, claimed=True)
        unclaimed = [ask for ask in members if not ask.triggered]
        if account is None and unclaimed:
            account = user_limits.find_exceeded_by(unclaimed)
        if account is not None:
            return NotPlaced(Unschedulable.USER_QUOTA, account=account)
    full = ledger.queue_path_admits(application.queue, pairs)
    if full is not None:
        return NotPlaced(Unschedulable.QUEUE_QUOTA, full)
    return finding.saved_for_another(state, find_least(members), pairs) if state.reserving.at_limits else None


def add_up(members: Sequence[Allocation]) -> Pairs:
    """Returns the sum of the amounts that *members* ask for."""
    return tuple(sorted(sum_amounts(members).items()))


def shape_together(state: PartitionState, members: Sequence[Allocation], gate: Queue | Account) -> Shape:
    """Returns the sum of what those of *members* ask for whom *gate* counts, as the same object for all gangs with an
    equal sum, so that these wait together."""
    pairs = add_up(members) if isinstance(gate, Queue) else user_limits.add_counted(gate, members)
    known = state.gangs.totals
    found = known.get(pairs)
    if found is None:
        if len(known) >= MOST_TOTALS:
            known.clear()
        found = known[pairs] = Shape(NOTHING, pairs)
    return found


def demand_of(members: Sequence[Allocation]) -> tuple[Demand, list[list[Allocation]]]:
    """Returns the demand of *members*, with equal members counted together, and the members of each entry."""
    alike: dict[tuple[Shape, str, frozenset[str], Together | None], list[Allocation]] = {}
    for ask in members:
        refused = NONE_REFUSED if ask.refused is None else frozenset(ask.refused)
        key = ask.shape, ask.spec.required_node, refused, together_of(ask.spec)
        alike.setdefault(key, []).append(ask)
    demand = tuple(Members(key[0].pairs, len(asks), *key[1:], key[0].devices) for key, asks in alike.items())
    return demand, list(alike.values())


def place_gang(state: PartitionState, application: Application, places: Places, now_ns: int) -> None:
    """Places the members of a gang, all at once."""
    places.name_devices()
    for ask, node in places.nodes:
        placement.bind(state, ask, node, now_ns)
    begin_gang(state, application, now_ns)


def begin_gang(state: PartitionState, application: Application, now_ns: int) -> None:
    """Moves *application* to Running, because all members of its minimum are placed. Further members wait one by one
    from now on."""
    state.gangs.placed += 1
    pools.regroup_members(state, application)
    if application.state is AppState.ACCEPTED and any(
        group.stated_minimum is not None for group in application.task_groups.values()
    ):
        # With its minimum it is useful already, so it need not wait for everything that it announced.
        lifecycle.fire_event(state, application, AppEvent.RUN, now_ns)
