"""Checks the accounting invariants: computes every amount again from the records whose sum it should be.

It shares no code with the ledger on purpose. Rules: scheduling.md 21, preemption.md A.1 no. 1. The cost is linear in
the size of the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace, WaitsFor
from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.allocations import LEAVING, Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.leaf_accounts import ShareAccount
from kornel.core.model.nodes import Node
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Vector
from kornel.core.model.users import NO_AMOUNTS, WILDCARD, Account, AccountKind, Limit
from kornel.core.policies.application_order import newcomer_key
from kornel.core.policies.claim_order import class_in_line, place_in_line
from kornel.core.state.books import device_audit, domain_audit
from kornel.core.state.books import gang_audit as gangs_audit
from kornel.core.state.books.findings import Broken
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.places import refused_asks
from kornel.core.state.waiting.rooms import UNSERVED, Gate


def check(state: PartitionState) -> list[Broken]:
    """Returns every invariant that *state* violates; an empty list for a sound partition."""
    return [
        *_check_nodes(state),
        *_check_applications(state),
        *_check_queue(state, state.root),
        *_check_reservations(state),
        *_check_requests(state),
        *_check_places(state),
        *_check_line(state),
        *gangs_audit.check(state),
        *_check_users(state),
        *_check_admission(state),
        *_check_waiting_for_limits(state),
        *_check_notices(state),
        *domain_audit.check(state),
        *device_audit.check(state),
        *[Broken("20", str(what), "was gained, and nobody who waits for it was woken") for what in state.gained],
    ]


def _sum_amounts(state: PartitionState, requests: Iterable[Allocation]) -> Vector:
    total = [0] * len(state.types.names)
    for request in requests:
        for t, amount in request.shape.pairs:
            total[t] += amount
    return total


def _compare_amounts(rule: str, where: str, what: str, booked: Vector, actual: Vector) -> list[Broken]:
    return [] if booked == actual else [Broken(rule, where, f"{what} is booked as {booked}, adds up to {actual}")]


def _check_nodes(state: PartitionState) -> list[Broken]:
    broken: list[Broken] = []
    total = [0] * len(state.types.names)
    for node in state.nodes.values():
        charged = (*node.allocations.values(), *node.held.values())
        broken += _compare_amounts("I4", node.node_id, "allocated", node.allocated, _sum_amounts(state, charged))
        if any(ask.held_on is not node for ask in node.held.values()):
            broken.append(Broken("I4", node.node_id, "charged for an ask that is held elsewhere"))
        occupied = [0] * len(state.types.names)
        for pairs in node.foreign.values():
            for t, amount in pairs:
                occupied[t] += amount
        broken += _compare_amounts("I4", node.node_id, "occupied", node.occupied, occupied)
        free = [c - a - o for c, a, o in zip(node.capacity, node.allocated, node.occupied, strict=True)]
        broken += _compare_amounts("I4", node.node_id, "free", node.free, free)
        broken += _check_claims(state, node)
        if node.schedulable != (node in state.node_order):
            broken.append(Broken("I7", node.node_id, "open nodes and node order differ"))
        total = [sum_ + c for sum_, c in zip(total, node.capacity, strict=True)]
    booked = [state.root.max.get(t, 0) for t in range(len(total))]
    broken += _compare_amounts("I5", "root", "max", booked, total)
    return broken


def _check_claims(state: PartitionState, node: Node) -> list[Broken]:
    """Checks the unclaimed room on *node* against the sums of the claims and of the leaving victims."""
    holders = [reservation.ask for reservation in node.reservations.values() if reservation.ask.held_on is not node]
    leaving = [a for a in node.allocations.values() if a.preempted and a not in state.stuck]
    needed = [0] * len(node.free)
    owned: set[str] = set()
    for ask in holders:
        own = [a for a in leaving if a.preemptor is ask and not (ask.reservation and ask.reservation.comes_last)]
        owned.update(a.key for a in own)
        missing = zip(_sum_amounts(state, [ask]), _sum_amounts(state, own), strict=True)
        needed = [sum_ + max(0, amount - comes) for sum_, (amount, comes) in zip(needed, missing, strict=True)]
    coming = _sum_amounts(state, [a for a in leaving if a.key not in owned])
    left = [min(f, f + comes - needs) for f, comes, needs in zip(node.free, coming, needed, strict=True)]
    return _compare_amounts("I7", node.node_id, "open room", node.open, left)


def _check_applications(state: PartitionState) -> list[Broken]:
    broken: list[Broken] = []
    for application in state.applications.values():
        name = application.application_id
        held = application.allocations.values()
        pending = {
            key: ask for key, ask in application.asks.items() if ask.place not in (AskPlace.REPLACING, AskPlace.HELD)
        }
        vetted = [ask for ask in application.asks.values() if ask.place is AskPlace.HELD]
        broken += _compare_amounts("I9", name, "pending", application.pending, _sum_amounts(state, pending.values()))
        real = _sum_amounts(state, (a for a in (*held, *vetted) if not a.spec.placeholder))
        broken += _compare_amounts("I1", name, "real", application.real, real)
        placeholder = _sum_amounts(state, (a for a in held if a.spec.placeholder))
        broken += _compare_amounts("I1", name, "placeholder", application.placeholder, placeholder)
        if any(group.due for group in application.groups.values()) and application not in state.root.with_due:
            broken.append(Broken("I9", name, "no round will look at its asks whose attempt to preempt is due"))
        count = sum(a.spec.placeholder for a in held)
        if count != application.placeholder_count:
            broken.append(Broken("I1", name, f"counts {application.placeholder_count} placeholders, has {count}"))
        if len(vetted) != application.held_count:
            broken.append(Broken("I9", name, f"counts {application.held_count} held asks, has {len(vetted)}"))
        highest = max((ask.priority for ask in pending.values() if _lends_priority(state, ask)), default=NOTHING_WAITS)
        if highest != application.priority and application.state not in UNSERVED:
            broken.append(Broken("I9", name, f"priority is {application.priority}, asks give {highest}"))
        missing = sum(members.short for members in application.members.values())
        if missing != application.missing:
            broken.append(Broken("I9", name, f"lacks {application.missing} members, its groups lack {missing}"))
        offered = sorted((ask for group in application.order for ask in group.asks()), key=lambda ask: ask.order)
        rank = offered[0].turn_priority if offered else NOTHING_WAITS
        if rank != application.rank:
            broken.append(Broken("I9", name, f"rank is {application.rank}, asks left to try give {rank}"))
        resting = application.held_at is not None or application.backoff_until_ns or application.state in UNSERVED
        if application.set_back is not bool(resting):
            broken.append(Broken("I9", name, f"lends its queue {'nothing' if application.set_back else 'a priority'}"))
        waiting = [ask.key for group in application.groups.values() for ask in group.asks()]
        waiting += [ask.key for task_group in application.task_groups.values() for ask in task_group.asks]
        waiting += [a.key for a in refused_asks(state) if a.application is application and a.reservation is None]
        unreserved = sorted(key for key, ask in pending.items() if ask.reservation is None)
        if sorted(waiting) != unreserved:
            odd = sorted(set(waiting) ^ set(unreserved))
            broken.append(Broken("I9", name, f"asks {odd} wait nowhere, or some wait twice"))
    return broken


def _check_line(state: PartitionState) -> list[Broken]:
    """Checks that all whom no node or domain has room for, and nobody else, stand in the line in which room is saved,
    in their order, and that a round leaves nothing behind."""
    line, round_ = state.in_line, state.reserving
    if round_.candidates and round_.line is None and not round_.left:
        return [Broken("I9", "root", "a round of saving is over, and the nodes that it has not tried are left")]
    waiting = {group for room in state.no_room.values() for group in room if isinstance(group, AskGroup)}
    waiting |= {group for group in state.waiting_for_domain if isinstance(group, AskGroup)}
    if waiting != set(line):
        return [Broken("I9", "root", f"{len(line)} groups are in line, {len(waiting)} wait for room")]
    known = [(group, entry or ()) for group, entry in line.members.items() if group not in line.marked]
    wrong = [group for group, entry in known if entry[:-2] != place_in_line(group)]
    at_limits = [room for room in state.root.rooms if room.line is not None]
    for room in at_limits:
        classes = {} if room.line is None else room.line.classes
        wrong += [group for group in room.groups if classes.get(group) != class_in_line(group)]
        wrong += [group for group in classes if group not in room.groups]
    return [Broken("I9", group.application.application_id, "stands at another place in line") for group in wrong]


def _lends_priority(state: PartitionState, ask: Allocation) -> bool:
    """Tells whether the priority of a pending *ask* counts for its application: it waits for its turn, for its gang, or
    for nothing but room (preemption.md G)."""
    group = ask.group
    if group is None:
        return ask.place is AskPlace.POOLED
    at = group.parked_at
    if at is None or any(
        at is room for room in (group.application.held_groups, group.application.backoff_room, state.waiting_for_turn)
    ):
        return True
    waits_for_room = at is state.no_room.get(group.shape) or at is state.root.parked.get(group.shape)
    return waits_for_room and any(n.schedulable and n.could_hold_shape(group.shape) for n in state.nodes.values())


def _check_turns(queue: Queue) -> list[Broken]:
    """Checks that nobody keeps others of the leaf *queue* back whom the shim is not about to judge, and that nobody is
    set back without somebody to wait for."""
    odd = [
        waiter
        for waiter in queue.turns
        if not (waiter.waits_for is WaitsFor.TURN if isinstance(waiter, AskGroup) else waiter.place is AskPlace.HELD)
        or waiter.application.queue is not queue
    ]
    broken = [Broken("I9", queue.path, f"{waiter} keeps others back and waits for no turn") for waiter in odd]
    if queue.set_back and not queue.turns:
        broken.append(Broken("I9", queue.path, "is set back, and nobody there waits for a turn"))
    if not queue.set_back and any(queue in room.set_back for room in queue.lineage()[-1].rooms):
        broken.append(Broken("I9", queue.path, "is not set back, but where its asks wait it is"))
    offered = bool(queue.leaf and queue.order.members and not queue.set_back)
    if queue.leaf and queue.siblings is not None and offered is not (queue in queue.siblings.members):
        broken.append(Broken("I9", queue.path, "is tried and has nobody to try, or the other way round"))
    return broken


def _queues_below(queue: Queue) -> Iterable[Queue]:
    yield queue
    for child in queue.children.values():
        yield from _queues_below(child)


def _check_queue(state: PartitionState, queue: Queue) -> list[Broken]:
    """Checks *queue* against the sums of the applications in all leaves below it."""
    applications = [a for below in _queues_below(queue) for a in below.applications.values()]
    allocations = [a for application in applications for a in application.allocations.values()]
    asks = [
        ask for application in applications for ask in application.asks.values() if ask.place is not AskPlace.REPLACING
    ]
    waiting = [ask for ask in asks if ask.place is not AskPlace.HELD]
    vetted = [ask for ask in asks if ask.place is AskPlace.HELD]
    marked = [a for a in allocations if a.preempted]
    claims = [ask for ask in asks if ask.triggered]
    saved = [ask for ask in asks if ask.reservation is not None and ask.reservation.by_age]
    broken = [
        *_compare_amounts("I1", queue.path, "used", queue.used, _sum_amounts(state, (*allocations, *vetted))),
        *_compare_amounts("I1", queue.path, "pending", queue.pending, _sum_amounts(state, waiting)),
        *_compare_amounts("A.1-1", queue.path, "preempting", queue.preempting, _sum_amounts(state, marked)),
        *_compare_amounts("A.1-1", queue.path, "claimed", queue.claimed, _sum_amounts(state, claims)),
        *_compare_amounts("I7", queue.path, "saved", queue.saved, _sum_amounts(state, saved)),
    ]
    if queue.leaf and queue.claimants.keys() != set(claims):
        broken.append(Broken("A.1-1", queue.path, f"knows the claims of {list(queue.claimants)}, has {claims}"))
    if queue.waiting != len(waiting):
        broken.append(Broken("I1", queue.path, f"counts {queue.waiting} asks, has {len(waiting)}"))
    below = queue.applications.values() if queue.leaf else queue.children.values()
    priority = queue.expose_priority([member.priority for member in below if not (queue.leaf and member.set_back)])
    if priority != queue.priority:
        broken.append(Broken("I9", queue.path, f"priority is {queue.priority}, should be {priority}"))
    broken += _check_turns(queue)
    rank = NOTHING_WAITS if queue.set_back else queue.expose_priority([member.rank for member in below])
    if rank != queue.rank:
        broken.append(Broken("I9", queue.path, f"rank is {queue.rank}, should be {rank}"))
    counted = {**_sum_counted(queue), **queue.guaranteed}
    if counted != queue.counted and queue.parent is not None:
        broken.append(Broken("I1", queue.path, f"counts with a guarantee of {queue.counted}, should be {counted}"))
    for child in queue.children.values():
        broken += _check_queue(state, child)
    return broken


def _sum_counted(queue: Queue) -> dict[int, int]:
    """Returns the guarantee with which the children of *queue* count together."""
    sums: dict[int, int] = {}
    for child in queue.children.values():
        for t, amount in child.counted.items():
            sums[t] = sums.get(t, 0) + amount
    return sums


def _check_reservations(state: PartitionState) -> list[Broken]:
    broken: list[Broken] = []
    on_nodes = {key for node in state.nodes.values() for key in node.reservations}
    if on_nodes != state.reservations.keys():
        broken.append(Broken("I7", state.name, "reservations of nodes and partition differ"))
    saved = {reservation for reservation in state.reservations.values() if reservation.comes_last}
    if sum(claim.by_age and claim.least is None for claim in saved) != state.reserving.aged:
        broken.append(Broken("I7", state.name, f"counts {state.reserving.aged} claims saved by age, has {saved}"))
    if saved != state.reserving.saved.keys():
        broken.append(Broken("I7", state.name, f"knows the saved claims {list(state.reserving.saved)}, has {saved}"))
    known = {limit: claim for claim in state.reserving.at_limits for limit in claim.limits}
    accounts = [account for queue in state.queues.values() for account in queue.accounts.values()]
    limits: list[Queue | Account] = [*state.queues.values(), *accounts]
    if known != {limit: limit.saving for limit in limits if limit.saving is not None}:
        broken.append(Broken("I7", state.name, f"knows that others save below {list(known)}"))
    for claim in state.reserving.at_limits:
        ask = claim.ask
        if ask.limit_claim is not claim or not ask.pending or state.requests.get(ask.key) is not ask:
            broken.append(Broken("I7", ask.key, "saves below limits without waiting"))
    for key, reservation in state.reservations.items():
        ask = reservation.ask
        held = () if ask.held_on is reservation.node else ask.shape.pairs
        if reservation.pairs != held or reservation.node.reservations.get(key) is not reservation:
            broken.append(Broken("I7", key, "what is held for an ask is not what it asks for, or held elsewhere"))
        if ask.reservation is not reservation or not ask.pending or state.requests.get(key) is not ask:
            broken.append(Broken("I7", key, "a reservation without its pending ask"))
    return broken


def _check_requests(state: PartitionState) -> list[Broken]:
    broken: list[Broken] = []
    held = {
        key: request
        for application in state.applications.values()
        for key, request in (*application.asks.items(), *application.allocations.items())
    }
    if held != state.requests:
        broken.append(Broken("I8", state.name, f"keys {sorted(held.keys() ^ state.requests.keys())} have no owner"))
    shared = {
        (key, number): request.key for key, siblings in state.instances.items() for number, request in siblings.items()
    }
    actual = {
        (request.spec.key, request.spec.instance): request.key
        for request in state.requests.values()
        if request.spec.instance or request.spec.key in state.instances
    }
    if shared != actual:
        broken.append(Broken("I8", state.name, f"shared keys {sorted(shared.keys() ^ actual.keys())} differ"))
    sharing = sum(request.spec.instance > 0 for request in state.requests.values())
    if sharing != state.sharing_count:
        broken.append(Broken("I8", state.name, f"counts {state.sharing_count} sharing a key, has {sharing}"))
    for key, request in state.requests.items():
        if request.node is not None and state.nodes.get(request.node.node_id) is not request.node:
            broken.append(Broken("I8", key, "an allocation on a node that is gone"))
    count = sum(
        request.node is not None and request.place is not AskPlace.REPLACING for request in state.requests.values()
    )
    if count != state.allocation_count:
        broken.append(Broken("I1", state.name, f"counts {state.allocation_count} allocations, has {count}"))
    return broken


def _recorded_places(state: PartitionState) -> Iterator[tuple[Allocation, AskPlace]]:
    """Yields each request with the place in which the records of the partition have it, regardless of the place that
    the request itself names."""
    for application in state.applications.values():
        for group in application.groups.values():
            yield from ((ask, AskPlace.WAITING) for ask in group.asks())
        for task_group in application.task_groups.values():
            yield from ((ask, AskPlace.POOLED) for ask in task_group.asks)
        for ask in application.asks.values():
            if ask.node is not None:
                yield ask, AskPlace.REPLACING
        for allocation in application.allocations.values():
            # An allocation that is leaving is recorded nowhere else as leaving; whether it is booked so is checked with
            # the amounts.
            yield allocation, allocation.place if allocation.place in LEAVING else AskPlace.PLACED
    for node in state.nodes.values():
        yield from ((ask, AskPlace.HELD) for ask in node.held.values())
    yield from ((ask, AskPlace.REFUSED) for ask in refused_asks(state))


def _check_places(state: PartitionState) -> list[Broken]:
    """Checks that every request is in exactly one place, namely the place that it names
    (:mod:`kornel.core.domain.ask_places`).

    A request with a reservation may be in another place. Only if it is in no other place does it wait by its
    reservation.
    """
    broken: list[Broken] = []
    found: dict[Allocation, list[AskPlace]] = {}
    for request, place in _recorded_places(state):
        found.setdefault(request, []).append(place)
    for reservation in state.reservations.values():
        found.setdefault(reservation.ask, [AskPlace.RESERVED])
    for key, request in state.requests.items():
        places = found.pop(request, [])
        if places != [request.place]:
            names = ", ".join(place.name for place in places) or "nowhere"
            broken.append(Broken("I9", key, f"says that it is {request.place.name}, and is {names}"))
    broken += [
        Broken("I9", request.key, f"is {places}, and is no request any more") for request, places in found.items()
    ]
    return broken


_NO_LIMIT: Final = Limit(NO_AMOUNTS, 0)
"""Stands for a limit that follows from the properties of a leaf."""


def _bound_accounts(queue: Queue) -> dict[tuple[AccountKind, str], tuple[Limit, list[Application]]]:
    """Returns every user and group that a limit of *queue* binds, with that limit and the applications that count
    towards it (config.md 10.2)."""
    found: dict[tuple[AccountKind, str], tuple[Limit, list[Application]]] = {}
    users, groups = queue.limits
    for application in [a for below in _queues_below(queue) for a in below.applications.values()]:
        user, group = application.user, application.limit_group
        limit = users[user] if user in users else users.get(WILDCARD)
        if limit is not None:
            found.setdefault((AccountKind.USER, user), (limit, []))[1].append(application)
        if group is not None and group in groups:
            found.setdefault((AccountKind.GROUP, group), (groups[group], []))[1].append(application)
        if application.queue is queue and queue.properties.limits_users:
            found.setdefault((AccountKind.SHARE, user), (_NO_LIMIT, []))[1].append(application)
        if application.queue is queue and queue.properties.originator_max is not None:
            found.setdefault((AccountKind.ORIGINATORS, ""), (_NO_LIMIT, []))[1].append(application)
    return found


def _check_users(state: PartitionState) -> list[Broken]:
    broken: list[Broken] = []
    for queue in state.queues.values():
        active = sum(isinstance(each, ShareAccount) and each.asks > 0 for each in queue.accounts.values())
        if queue.active_users != active:
            broken.append(Broken("I3", queue.path, f"counts {queue.active_users} active users, has {active}"))
        bound = _bound_accounts(queue)
        if bound.keys() != queue.accounts.keys():
            strays = sorted(bound.keys() ^ queue.accounts.keys())
            broken.append(Broken("I3", queue.path, f"accounts {strays} are missing or too many"))
        for key, account in queue.accounts.items():
            limit, applications = bound.get(key, (account.limit, []))
            where = repr(account)
            held = [allocation for application in applications for allocation in application.allocations.values()]
            held += [a for application in applications for a in application.asks.values() if a.place is AskPlace.HELD]
            held = [allocation for allocation in held if account.counts_ask(allocation)]
            broken += _compare_amounts("I3", where, "used", account.used, _sum_amounts(state, held))
            asks = [ask for application in applications for ask in application.asks.values() if account.counts_ask(ask)]
            claims = [ask for ask in asks if ask.triggered]
            broken += _compare_amounts("I3", where, "claimed", account.claimed, _sum_amounts(state, claims))
            if account.claimants != Counter(ask.application for ask in claims):
                broken.append(Broken("I3", where, f"counts the claims of {list(account.claimants)}, has {claims}"))
            saved = [ask for ask in asks if ask.reservation is not None and ask.reservation.by_age]
            broken += _compare_amounts("I3", where, "saved", account.saved, _sum_amounts(state, saved))
            served = (AskPlace.HELD, AskPlace.REPLACING)
            if isinstance(account, ShareAccount) and account.asks != sum(ask.place not in served for ask in asks):
                broken.append(Broken("I3", where, f"counts {account.asks} asks that wait"))
            if limit is not _NO_LIMIT and account.limit != limit:
                broken.append(Broken("I3", where, f"limited to {account.limit}, should be {limit}"))
            if account.applications.keys() != set(applications):
                broken.append(Broken("I3", where, f"counts for {list(account.applications)}, not {applications}"))
            holders = {application for application in applications if application.allocations or application.held_count}
            if account.holders.keys() != holders:
                broken.append(Broken("I3", where, f"{list(account.holders)} hold something, not {holders}"))
            if any(account not in application.accounts for application in applications):
                broken.append(Broken("I3", where, "an application does not know that it is bound"))
    return broken


def _check_admission(state: PartitionState) -> list[Broken]:
    """Checks the counters of running and starting applications, which have to be exact whatever the limits are
    (scheduling.md 12, S-10, S-22)."""
    broken: list[Broken] = []
    for queue in state.queues.values():
        applications = [a for below in _queues_below(queue) for a in below.applications.values()]
        running = sum(application.state is AppState.RUNNING for application in applications)
        if running != queue.running:
            broken.append(Broken("S-22", queue.path, f"counts {queue.running} running applications, has {running}"))
        if queue.allocating.keys() != {application for application in applications if application.allocating}:
            broken.append(Broken("S-10", queue.path, f"counts {list(queue.allocating)} as starting"))
    reserving = {r.ask.application for r in state.reservations.values() if not r.by_age}
    for application in state.applications.values():
        started = bool(application.allocations) or application in reserving
        if application.state is AppState.ACCEPTED and started and not application.allocating:
            broken.append(Broken("S-10", application.application_id, "holds something and is not counted"))
        if application.allocating and not started and not application.held_count:
            broken.append(Broken("S-10", application.application_id, "holds nothing and is counted as starting"))
        if application.allocating and application.state not in (AppState.ACCEPTED, AppState.RESUMING):
            broken.append(Broken("S-10", application.application_id, f"is {application.state} and counted as starting"))
    return broken


def _check_waiting_for_limits(state: PartitionState) -> list[Broken]:
    """Checks that no ask or application waits for a limit that would admit it, unless an application before it was just
    offered the slot."""
    broken: list[Broken] = []
    held: dict[Application, Gate] = {}
    for queue in state.queues.values():
        for account in queue.accounts.values():
            for shape, room in account.parked.items():
                asleep = room.at_once if room.awake else room
                if account.saving is None and asleep and account.admits(shape.pairs):
                    broken.append(Broken("W", repr(account), f"keeps back {shape}, which fits"))
        gates: list[Gate] = [queue, *queue.accounts.values()]
        for gate in gates:
            for leaf, waiting in gate.held_back.items():
                offered = any(a.offered_by is gate and a.order for a in leaf.applications.values())
                if gate is leaf and leaf.newcomers is not None:
                    broken += _check_newcomers(leaf, waiting)
                elif gate.open() and not offered:
                    broken.append(Broken("W", repr(gate), f"holds back {list(waiting)} without need"))
                held.update(dict.fromkeys(waiting, gate))
    for application in state.applications.values():
        if application.held_at is not held.pop(application, None):
            detail = f"waits for {application.held_at}, which does not know"
            broken.append(Broken("W", application.application_id, detail))
    if held:
        broken.append(Broken("W", state.name, f"{list(held)} left and are still held back"))
    return broken


def _check_newcomers(leaf: Queue, held: KeyedHeap[Application]) -> list[Broken]:
    """Checks that *leaf* does not hold back the one application that may start now (``stateaware``), nor any longer
    than while another one is starting."""
    if leaf.starting:
        late = [other for other in leaf.starting if other.settled or other.timer_ns is None]
        return [Broken("W", repr(leaf), f"holds back {list(held)} for {late}, and no time ends that")] if late else []
    if leaf.allocating or not leaf.open():
        return []
    first = min((a for a in leaf.applications.values() if _could_start(a)), key=newcomer_key, default=None)
    waits = first is not None and first in held
    return [Broken("W", repr(leaf), f"holds back {first}, whose turn it is")] if waits else []


def _could_start(application: Application) -> bool:
    return (
        application.state is AppState.ACCEPTED
        and (application.priority != NOTHING_WAITS or bool(application.savers))
        and not application.backoff_until_ns
        and not isinstance(application.held_at, Account)
    )


def _check_notices(state: PartitionState) -> list[Broken]:
    """Checks that notices and the allocations at risk refer to each other (preemption.md E.6)."""
    broken: list[Broken] = []
    notices = state.notices
    at_risk = {key: entry for notice in notices.open.values() for key, entry in notice.entries.items()}
    if at_risk != notices.entries:
        odd = sorted(at_risk.keys() ^ notices.entries.keys())
        broken.append(Broken("E.6", state.name, f"{odd} are at risk without a notice, or the other way round"))
    if any(not notice.entries for notice in notices.open.values()):
        broken.append(Broken("E.6", state.name, "an open notice that concerns nobody"))
    listed = {number for theirs in notices.of_application.values() for number in theirs}
    if listed != notices.open.keys() or notices.held.keys() != notices.of_application.keys():
        broken.append(Broken("E.6", state.name, "open notices and those of the applications differ"))
    return broken
