"""Finds everything that keeps a pending ask from being placed, ranked.

Placement stops at the first blocker; this module names all of them, so that users do not remove one only to find the
next. Blockers that waiting can never end come first; then they are in the order in which placement checks them
(application, user and group, queues from the leaf to the root, reservation, nodes); within a level the greatest
shortage comes first, but nodes that could never hold the ask come behind those that could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace, WaitsFor
from kornel.core.engine.gangs.gang_places import add_up, demand_of
from kornel.core.model.allocations import Allocation, Reservation, together_of
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.model.users import Account, AccountKind
from kornel.core.policies import user_limits
from kornel.core.policies.application_order import newcomer_key
from kornel.core.policies.claim_order import find_savers
from kornel.core.policies.gang_domains import choose_nodes
from kornel.core.policies.gang_nodes import Candidates, Shortfall
from kornel.core.preemption.gang_losses import is_leaving_whole
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.missing_shares import missing_share
from kornel.core.state.waiting.dependence import find_first_judged
from kornel.core.state.waiting.gathering import find_least, minimum_members, minimum_of
from kornel.core.state.waiting.rooms import UNSERVED
from kornel.core.telling.allocations.explanation import PERMANENT, Blocker, BlockerKind, Level, Shortage
from kornel.core.telling.claims.claim_views import describe_claim, describe_own_claim
from kornel.core.telling.nodes.device_blockers import describe_lack, measure_lack
from kornel.core.telling.nodes.domain_blockers import describe_domains, domain_blockers, requires_domain
from kornel.core.telling.nodes.node_blockers import expect_nodes, node_blockers, shortages_on
from kornel.core.telling.queues.above_max import above_max_of
from kornel.shared.readable_amounts import format_count

_LEVELS = {level: at for at, level in enumerate(Level)}
_QUOTAS: Final = {
    AccountKind.USER: BlockerKind.USER_QUOTA,
    AccountKind.GROUP: BlockerKind.GROUP_QUOTA,
    AccountKind.SHARE: BlockerKind.USER_QUOTA,
    AccountKind.ORIGINATORS: BlockerKind.ORIGINATOR_LIMIT,
}
_LATER: Final = "not enough left of the limit"


def find_blockers(state: PartitionState, ask: Allocation) -> tuple[tuple[Blocker, ...], int]:
    """Returns what keeps *ask* waiting, ranked, and how many open nodes have room for it. The cost is linear in
    nodes."""
    found = [*find_causes(state, ask)]
    fitting = 0
    # A member of a gang that holds its place waits for the victims of all members, and for no other node.
    settled = ask.place is AskPlace.HELD or ask.place is AskPlace.POOLED or state.gangs.hold_of(ask) is not None
    if not settled and not isinstance(ask.group, GangUnit):
        if ask.spec.required_node:
            on_node = list(_required_node(state, ask))
            fitting = not on_node
        elif requires_domain(ask):
            on_node, fitting = domain_blockers(state, ask)
        else:
            on_node, fitting = node_blockers(state, ask)
        # If one node has room, the other nodes do not block the ask.
        found += [] if fitting else [*on_node, *_cluster_blockers(state, ask), *_shortfall(ask)]
    return tuple(sorted(found, key=rank_of)), int(fitting)


def find_first_blocker(
    state: PartitionState, ask: Allocation, on_nodes: dict[Shape, tuple[Blocker, ...]]
) -> Blocker | None:
    """Returns what keeps *ask* from being placed first of all; of obstacles on nodes that could hold it, the one on
    most of them.

    Nodes are looked at only if nothing else comes first, and once for each shape, of which *on_nodes* keeps the
    blockers from one ask to the next.
    """
    causes = sorted(find_causes(state, ask), key=rank_of)
    plain = not ask.spec.required_node and not requires_domain(ask)
    first = next(iter(causes), None)
    # Permanent blockers come first, which nodes are only if all of them are too small.
    if (
        first is not None
        and first.level is not Level.NODE
        and (first.permanent or (plain and any(node.could_hold_shape(ask.shape) for node in state.nodes.values())))
    ):
        return first
    alike = plain and first is None and ask.reservation is None and ask.refused is None
    found = on_nodes.get(ask.shape) if alike else None
    if found is None:
        found = find_blockers(state, ask)[0]
        if alike:
            on_nodes[ask.shape] = found
    if found and found[0].level is Level.NODE:
        return max(found, key=lambda blocker: (blocker.permanent, blocker.kind not in PERMANENT, blocker.nodes))
    return next(iter(found), None)


def find_causes(state: PartitionState, ask: Allocation) -> Iterator[Blocker]:
    """Yields what keeps *ask* waiting, except nodes; for a member of a gang that is placed as a whole, also nodes."""
    yield from _application_blockers(ask)
    yield from _line_blockers(state, ask)
    if isinstance(ask.group, GangUnit):
        yield from gang_blockers(state, ask.group)
        return
    yield from _user_blockers(state, ask, [ask])
    yield from _queue_blockers(state, ask)
    yield from _saved_blockers(state, ask, ask.shape.pairs)
    yield from _reservation_blockers(state, ask)


def _shortfall(ask: Allocation) -> Iterator[Blocker]:
    """Yields that the gang of *ask* runs below its minimum as long as such members find no room."""
    application, name = ask.application, ask.spec.task_group
    members = application.members.get(name)
    if members is not None and members.short:
        detail = f"{members.describe_number()} members of {name} run, fewer than the minimum"
        yield Blocker(BlockerKind.GANG_INCOMPLETE, Level.APPLICATION, application.application_id, detail)


def rank_of(blocker: Blocker) -> tuple[bool, int, bool, float, str, str]:
    """Returns the key by which blockers are ranked."""
    vain = blocker.kind in PERMANENT
    return (not blocker.permanent, _LEVELS[blocker.level], vain, -blocker.distance, blocker.kind, blocker.name)


def _application_blockers(ask: Allocation) -> Iterator[Blocker]:
    application = ask.application
    name = application.application_id
    if application.state in UNSERVED:
        detail = f"the application is {application.state}"
        yield Blocker(BlockerKind.APPLICATION_STATE, Level.APPLICATION, name, detail, permanent=True)
    if application.backoff_until_ns:
        if is_leaving_whole(application):
            detail = "all members of its gang that ran are being preempted; it is tried again once they have left"
        else:
            count = application.unschedulable
            detail = f"{count} asks of the application fitted on no node; it is not tried for a while"
        yield Blocker(
            BlockerKind.BACK_OFF, Level.APPLICATION, name, detail, until_ns=application.backoff_until_ns
        )  # fmt: skip
    pool, held_on = ask.pool, ask.held_on
    if pool is not None:
        left = pool.count - pool.replaced - pool.timed_out
        detail = f"takes the place of one of {left} placeholders of task group {pool.name}, none of which runs yet"
        yield Blocker(BlockerKind.WAITING_FOR_PLACEHOLDER, Level.APPLICATION, pool.name, detail)
    if held_on is not None:
        detail = "the shim is asked whether it may run there"
        yield Blocker(BlockerKind.WAITING_FOR_ANSWER, Level.NODE, held_on.node_id, detail)
    if application.state is AppState.ACCEPTED:
        yield from _gate_blockers(ask)


def _gate_blockers(ask: Allocation) -> Iterator[Blocker]:
    """Yields the limits on running applications that keep *ask* waiting (scheduling.md 12)."""
    application = ask.application
    if not application.allocating:
        for queue in ask.queue.lineage():
            if not queue.open():
                count = queue.running + len(queue.allocating)
                running = format_count(count, "application runs or is", "applications run or are")
                detail = f"{running} starting, {queue.max_applications} may"
                numbers = Shortage(
                    "applications", queue.max_applications, count, 1, count + 1 - queue.max_applications
                )  # fmt: skip
                yield Blocker(
                    BlockerKind.QUEUE_APPLICATIONS, Level.APPLICATION, queue.path, detail, (numbers,), distance=1.0
                )  # fmt: skip
    yield from _turn_blockers(application)
    for account in application.accounts:
        if not account.open() and not account.is_used_by(application):
            count, most = account.count_applications(), account.max_applications
            kind = (
                BlockerKind.USER_APPLICATIONS if account.kind is AccountKind.USER else BlockerKind.GROUP_APPLICATIONS
            )  # fmt: skip
            detail = f"{format_count(count, 'application holds', 'applications hold')} something, {most} may"
            numbers = Shortage("applications", most, count, 1, count + 1 - most)
            yield Blocker(kind, Level.USER, str(account), detail, (numbers,), distance=1.0)


def _line_blockers(state: PartitionState, ask: Allocation) -> Iterator[Blocker]:
    """Yields whom the shim has to judge before *ask* (protocol.md 13): somebody before it in its leaf, or as many as
    may stand in line."""
    group, leaf = ask.group, ask.queue
    first = None if group is None else find_first_judged(state.callbacks, ask)
    if first is not None and first is not ask:
        detail = f"waits until the shim has judged {first.spec.key}, which comes before it here"
        yield Blocker(BlockerKind.WAITING_FOR_TURN, Level.QUEUE, leaf.path, detail)
    elif group in leaf.turns:
        detail = f"the shim is asked about {len(state.callbacks.line)} other asks first, which hold room"
        yield Blocker(BlockerKind.WAITING_FOR_TURN, Level.QUEUE, leaf.path, detail)


def _turn_blockers(application: Application) -> Iterator[Blocker]:
    """Yields the application that comes before *application* in a leaf sorted ``stateaware``, where one new application
    at a time may start (preemption.md G)."""
    leaf = application.queue
    if leaf.newcomers is None or application.held_at is not leaf or not leaf.open():
        return
    first = next(iter((*leaf.allocating, *leaf.starting)), None) or min(leaf.newcomers, key=newcomer_key)
    detail = f"one new application at a time may start here (stateaware), and it is the turn of {first.application_id}"
    if first in leaf.starting:
        detail += ", of which only the originator runs"
    numbers = Shortage("new applications", 1, 1, 1, 1)
    yield Blocker(BlockerKind.QUEUE_APPLICATIONS, Level.APPLICATION, leaf.path, detail, (numbers,), distance=1.0)


def gang_blockers(state: PartitionState, unit: GangUnit) -> Iterator[Blocker]:
    """Yields what keeps the gang of *unit* waiting: members that the shim has not asked for, limits that have to admit
    all members together, or room for only some of them."""
    application = unit.application
    name = application.application_id
    if unit.id.task_group and unit.waits_for is WaitsFor.GANG:
        detail = f"{unit.size} of {minimum_of(unit.id)} members so far; further ones are waited for"
        yield Blocker(BlockerKind.WAITING_FOR_GANG, Level.APPLICATION, name, detail)
        return
    announced: Mapping[str, int] = {} if unit.id.task_group else application.spec.placeholder_ask or {}
    missing = unit.find_missing(announced)
    if missing:
        short = tuple(
            Shortage(t, announced[t], unit.amounts.get(t, 0), announced[t], amount) for t, amount in missing.items()
        )
        detail = f"{format_count(unit.size, 'placeholder')} so far, not all that the application announced"
        yield Blocker(BlockerKind.WAITING_FOR_GANG, Level.APPLICATION, name, detail, short)
        return
    members = minimum_members(unit)
    yield from gang_limit_blockers(state, members)
    lack = find_gang_lack(state, members)
    if lack is not None:
        member, topology = lack.member, lack.member.spec.topology
        why = f"none for {member.spec.key}"
        if lack.domains is not None and topology is not None:
            why = f"no {topology.level} has room for the group of {member.spec.key}"
        tried = "" if lack.exhaustive else "; not every way to pack them was tried"
        detail = f"{lack.placed} of {len(members)} places; {why}{tried}"
        never = _find_too_many(state, members)
        blocker = Blocker(BlockerKind.GANG_INCOMPLETE, Level.APPLICATION, name, detail + never, permanent=bool(never))
        yield expect_nodes(state, blocker)
        yield from node_blockers(state, member)[0] if lack.domains is None else [lack.domains]


def gang_limit_blockers(state: PartitionState, members: Sequence[Allocation]) -> Iterator[Blocker]:
    """Yields the limits that do not let all *members* of a gang have what they ask for together."""
    pairs, least = add_up(members), find_least(members)
    yield from _user_blockers(state, least, members)
    for queue in least.queue.lineage()[:-1]:
        yield from _limit_blockers(state, least, BlockerKind.QUEUE_QUOTA, queue, queue_shortages(state, queue, pairs))
    yield from _saved_blockers(state, least, pairs)


def _find_too_many(state: PartitionState, members: Sequence[Allocation]) -> str:
    """Returns a text about equal *members* of which all nodes together would hold too few even if they were empty;
    empty: there are none."""
    for shape, count in Counter(member.shape for member in members).items():
        nodes = [node for node in state.nodes.values() if node.schedulable and node.could_hold_shape(shape)]
        most = sum(min((node.capacity[t] // amount for t, amount in shape.pairs), default=count) for node in nodes)
        if most < count:
            return f"; all nodes together would hold {most} of {count} such members even if they were empty"
    return ""


class GangLack(NamedTuple):
    """The answer if not all members of a gang find places: how many do, and the first *member* that does not.

    *domains*: how far the domains are from room for its group; ``None``: it requires none. *exhaustive*: all ways to
    pack the members were tried.
    """

    placed: int
    member: Allocation
    domains: Blocker | None
    exhaustive: bool


def find_gang_lack(state: PartitionState, members: Sequence[Allocation]) -> GangLack | None:
    """Returns what *members*, the minimum of a gang, lack to be placed now, or ``None`` if all of them find places."""
    demand, alike = demand_of(members)
    found = choose_nodes(Candidates(state.node_order, state.nodes), state.topology, demand)
    if not isinstance(found, Shortfall):
        return None
    member, domains = alike[found.lacking][0], None
    if requires_domain(member):
        group = together_of(member.spec)
        domains = describe_domains(state, member, sum(together_of(ask.spec) == group for ask in members))
    return GangLack(found.placed, member, domains, found.exhaustive)


def _user_blockers(state: PartitionState, ask: Allocation, members: Sequence[Allocation]) -> Iterator[Blocker]:
    """Yields the limits of user and group, and of originators, that do not let *members* have what they ask for: *ask*,
    or those of the gang for which it stands."""
    for account in ask.application.accounts:
        pairs = user_limits.add_counted(account, members)
        short = tuple(
            Shortage(state.types.names[t], most, most - left, asked, asked - left)
            for t, asked, left, most in user_limits.find_shortfalls(account, pairs)
            if asked > left
        )
        for blocker in _limit_blockers(state, ask, _QUOTAS[account.kind], account, short):
            passes = blocker.permanent and account.could_hold(pairs)
            yield blocker._replace(permanent=False, detail=_LATER) if passes else blocker


def _queue_blockers(state: PartitionState, ask: Allocation) -> Iterator[Blocker]:
    swaps = () if ask.victims else ask.swaps_in
    for queue in ask.queue.lineage()[:-1]:  # The root's max is the size of the cluster, which the nodes cover.
        short = queue_shortages(state, queue, ask.shape.pairs) if queue not in swaps else ()
        above = above_max_of(state, queue) if short else None
        why = "" if above is None else f"; the queue is above its max: {'; '.join((above.course, *above.protected))}"
        for blocker in _limit_blockers(state, ask, BlockerKind.QUEUE_QUOTA, queue, short):
            yield blocker._replace(detail=blocker.detail + why)


def _saved_blockers(state: PartitionState, ask: Allocation, pairs: Pairs) -> Iterator[Blocker]:
    """Yields the limits that let *ask*, or the gang for which it stands, have no *pairs* beside what others save there
    (preemption.md B.7)."""
    if not state.reserving.at_limits:
        return
    for limit, claim in find_savers(ask, pairs, state.guarantee_mode):
        detail = f"what is free there {describe_claim(state, claim)}"
        yield Blocker(BlockerKind.LIMIT_RESERVED, *_name_limit(limit), detail)


def _cluster_blockers(state: PartitionState, ask: Allocation) -> Iterator[Blocker]:
    """Yields the types of which all nodes together have too little: a shortage of room and not of quota, which more
    nodes would end."""
    short = queue_shortages(state, state.root, ask.shape.pairs)
    for blocker in _quota_blockers(BlockerKind.CLUSTER_SIZE, Level.NODE, state.root.path, short):
        yield expect_nodes(state, blocker)


def queue_shortages(state: PartitionState, queue: Queue, pairs: Pairs) -> tuple[Shortage, ...]:
    """Returns the types of which *queue*'s own max leaves less than *pairs*."""
    names = state.types.names
    return tuple(
        Shortage(names[t], queue.max[t], queue.used[t], amount, queue.used[t] + amount - queue.max[t])
        for t, amount in pairs
        if t in queue.max and queue.used[t] + amount > queue.max[t]
    )


def _limit_blockers(
    state: PartitionState, ask: Allocation, kind: BlockerKind, limit: Queue | Account, short: tuple[Shortage, ...]
) -> Iterator[Blocker]:
    """Yields the blockers for *limit*, which lets *ask*, or the gang for which it stands, not have what is *short*."""
    claim = limit.saving
    own = "" if claim is None or claim is not ask.limit_claim else f"; {describe_own_claim(state, claim)}"
    for blocker in _quota_blockers(kind, *_name_limit(limit), short):
        yield blocker._replace(detail=blocker.detail + own)


def _name_limit(limit: Queue | Account) -> tuple[Level, str]:
    return (Level.QUEUE, limit.path) if isinstance(limit, Queue) else (Level.USER, str(limit))


def _quota_blockers(kind: BlockerKind, level: Level, name: str, short: tuple[Shortage, ...]) -> Iterator[Blocker]:
    """Yields apart the types that the limit can never grant and those for which waiting may help."""
    limit = "cluster" if kind is BlockerKind.CLUSTER_SIZE else "limit"
    most = "all nodes have" if kind is BlockerKind.CLUSTER_SIZE else "the limit ever allows"
    for never in (True, False):
        part = tuple([shortage for shortage in short if (shortage.asked > shortage.limit) is never])
        if part:
            detail = f"asks for more than {most}" if never else f"not enough left of the {limit}"
            distance = sum(min(1.0, shortage.short / shortage.asked) for shortage in part)
            yield Blocker(kind, level, name, detail, part, distance=distance, permanent=never)


def _reservation_blockers(state: PartitionState, ask: Allocation) -> Iterator[Blocker]:
    reservation = ask.reservation
    if reservation is None or ask.spec.required_node:
        return
    node, pairs = reservation.node, ask.shape.pairs
    fits = node.fits_holder(reservation)
    if ask.triggered:
        kind = BlockerKind.WAITING_FOR_VICTIMS
        there = f"{format_count(len(ask.victims), 'victim is', 'victims are')} still there"
        detail = there if ask.victims else "its victims are gone"
        hold = state.gangs.hold_of(ask)
        if hold is not None:
            left = sum(len(member.victims) for member in hold.members)
            detail = f"{format_count(left, 'victim of its gang is', 'victims of its gang are')} still there"
    else:
        kind = BlockerKind.RESERVED_NODE_FULL
        detail = (
            f"what ends there is kept for this ask, but is not enough yet; {describe_own_claim(state, reservation)}"
        )
        if ask.shape.devices is not None and node.has_amounts_for(ask):
            detail = f"{describe_lack(node, ask.shape.devices)}; {describe_own_claim(state, reservation)}"
    if ask.triggered or not fits:
        short = shortages_on(state, node, pairs)
        yield Blocker(kind, Level.RESERVATION, node.node_id, detail, short, 1, missing_share(node, pairs))


def _required_node(state: PartitionState, ask: Allocation) -> Iterator[Blocker]:
    """Yields what keeps *ask* off the only node on which it may run (scheduling.md 9). A drain does not."""
    name, pairs = ask.spec.required_node, ask.shape.pairs
    node = state.nodes.get(name)
    if node is None:
        detail = "the node it must run on is not registered"
        yield Blocker(BlockerKind.REQUIRED_NODE_UNKNOWN, Level.NODE, name, detail, permanent=True)
        return
    if not node.could_hold(pairs):
        short = shortages_on(state, node, pairs, empty=True)
        detail = "the node it must run on is smaller than the ask even when empty"
        distance = sum(min(1.0, shortage.short / shortage.asked) for shortage in short)
        yield Blocker(BlockerKind.NODE_TOO_SMALL, Level.NODE, name, detail, short, 1, distance, permanent=True)
        return
    if ask.shape.devices is not None and not node.could_hold_shape(ask.shape):
        detail = describe_lack(node, ask.shape.devices, empty=True)
        yield Blocker(BlockerKind.NODE_WITHOUT_DEVICES, Level.NODE, name, detail, (), 1, 1.0, permanent=True)
        return
    if ask.shape.devices is not None and node.has_amounts_for(ask) and not node.has_devices(ask.shape.devices):
        detail = describe_lack(node, ask.shape.devices)
        distance = measure_lack(node, ask.shape.devices)
        yield Blocker(BlockerKind.NODE_DEVICES, Level.NODE, name, detail, (), 1, distance)
    elif not node.fits_ask(ask):
        first = next((r for r in _claims_of(node) if r.ask is not ask and r.ask.spec.required_node), None)
        if first is not None:
            detail = f"room there {describe_claim(state, first)}"
            yield Blocker(BlockerKind.REQUIRED_NODE_TAKEN, Level.NODE, name, detail, (), 1)
        detail = "the node it must run on does not have enough room"
        short = shortages_on(state, node, pairs)
        yield Blocker(BlockerKind.NODE_FULL, Level.NODE, name, detail, short, 1, missing_share(node, pairs))
    elif ask.refused is not None and name in ask.refused:
        detail = f"refused by the shim: {ask.refused[name].reason}"
        yield Blocker(BlockerKind.NODE_REFUSED, Level.NODE, name, detail, (), 1, until_ns=ask.refused[name].until_ns)


def _claims_of(node: Node) -> list[Reservation]:
    """Returns the reservations that hold room on *node*, the first to be served first."""
    return [] if node.claims is None else node.claims.in_order()
