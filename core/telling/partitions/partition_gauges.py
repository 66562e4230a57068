"""Reads the gauges of a partition for one scrape. The cost is linear in queues, applications, nodes and claims, and
small for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from kornel.core.domain.application_states import AppState
from kornel.core.domain.settings import Budget
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.governor_books import Scope, Window
from kornel.core.telling.claims.claim_views import CLAIM_SORTS, ClaimKind, ClaimReason, claims_progress
from kornel.core.telling.partitions.device_gauges import DeviceCount, DeviceGauges

Amounts = Sequence[int]
"""Amounts by the index of the resource type."""


class QueueGauges(NamedTuple):
    """One queue. ``guaranteed`` and ``max`` are by type index, and a missing type has none; ``max_applications`` 0: not
    limited.

    ``applications``: the numbers of live applications in the queue itself, by state; ``allocations``: how many run.
    """

    path: str
    guaranteed: Mapping[int, int]
    max: Mapping[int, int]
    used: Amounts
    pending: Amounts
    preempting: Amounts
    max_applications: int
    applications: Mapping[AppState, int]
    allocations: int = 0


class BudgetUse(NamedTuple):
    """The largest part of a budget that one scope of a kind has used; 1 is the whole budget.

    scope     ``cluster``, ``queue`` or ``application``
    resource  ``victims``, or the resource type of which resource-seconds are counted
    """

    scope: str
    resource: str
    used: float


class GovernorGauges(NamedTuple):
    """The gauges of the governor. ``denied``: the number of plans denied so far. ``paused``: the number of scopes in
    which preemption pauses, by kind of scope."""

    denied: int
    paused: Mapping[str, int]
    budgets: tuple[BudgetUse, ...]


class DomainGauges(NamedTuple):
    """One domain of the topology. ``name``: the values of its attributes, the outermost first, such as ``a/r7``."""

    level: str
    name: str
    capacity: Amounts
    free: Amounts
    held: Amounts


class ClaimGauges(NamedTuple):
    """The claims of a partition. ``counts``: their numbers by kind and reason, of all that occur together; a claim on
    several limits counts once. ``longest_idle_ns``: how long the one has made no progress that has made none for the
    longest time; 0: there is none."""

    counts: Mapping[tuple[str, str], int]
    longest_idle_ns: int


class PartitionGauges(NamedTuple):
    """One partition.

    types           the names of the resource types, by index
    usage           by resource type, how many nodes use 0 to 10 %, over 10 to 20 %, ... over 90 % of it; nodes that do
                    not offer the type are left out (scheduling.md 16)
    nodes_removed   the number of nodes removed since the partition was made
    stuck           the number of victims that have not left in time
    quotas_due      the number of queues whose lowered max is due or being enforced
    drained         the number of nodes that operators drain, registered or not
    above_max       by path, what each configured queue holds above its max, by type index, each above 0
    queues_omitted  the number of queues that are not in ``queues``
    domains         the domains of the outer levels of the topology, all or none of each level
    wasted          the work lost by preemption, in resource-seconds, by queue, kind and index of the type
    domains_omitted the number of domains that are not in ``domains``
    gangs_placed    the number of gangs that were placed as a whole; the two after it: plans of gangs that were called
                    off, and members of gangs that were preempted
    """

    name: str
    types: tuple[str, ...]
    queues: tuple[QueueGauges, ...]
    usage: Mapping[str, Sequence[int]]
    nodes: int
    unschedulable: int
    nodes_removed: int
    applications: Mapping[AppState, int]
    asks: int
    allocations: int
    reservations: int
    law_checks: int
    law_violations: int
    preemption_attempts: int
    preemptions: int
    stuck: int
    quotas_due: int
    governor: GovernorGauges
    drained: int = 0
    above_max: Mapping[str, Mapping[int, int]] = MappingProxyType({})
    wasted: Mapping[tuple[str, str], Mapping[int, int]] = MappingProxyType({})
    queues_omitted: int = 0
    domains: tuple[DomainGauges, ...] = ()
    domains_omitted: int = 0
    gangs_placed: int = 0
    gang_plans_called_off: int = 0
    gang_members_preempted: int = 0
    gangs_below_minimum: int = 0
    """Task groups that run with fewer members than their minimum because some were lost."""
    claims: ClaimGauges = ClaimGauges(MappingProxyType({}), 0)
    devices: tuple[DeviceGauges, ...] = ()
    """The devices of nodes, by type."""


DECILES: Final = 10

LOOKED_AT_ONCE: Final = 128
"""The number of queues or nodes read between two pauses for other tasks."""

MOST_DOMAIN_AMOUNTS: Final = 1_000
"""The most domains times resource types that are shown. Beyond that, levels are left out, the innermost, such as hosts,
first."""

_NO_STATES: Final[Mapping[AppState, int]] = MappingProxyType({})


def look_at_gauges(state: PartitionState, now_ns: int, most_queues: int) -> Iterator[PartitionGauges | None]:
    """Yields ``None`` as pauses for other tasks, and at the end the gauges of the partition at *now_ns*, with at most
    *most_queues* queues."""
    queues: list[QueueGauges] = []
    everywhere: Counter[AppState] = Counter()
    wasted: dict[tuple[str, str], Mapping[int, int]] = {}
    names = list(state.queues)
    for number, path in enumerate(names):
        if not number % LOOKED_AT_ONCE:
            yield None
        queue = state.queues.get(path)
        if queue is None:
            continue
        states: Mapping[AppState, int] = _NO_STATES
        if queue.applications:
            states = _count_states(queue.applications.values())
            for app_state, count in states.items():
                everywhere[app_state] += count
        if len(queues) < most_queues:
            running = sum([len(application.allocations) for application in queue.applications.values()])
            wasted.update({(path, kind): dict(sums) for kind, sums in queue.wasted.items()})
            bounds = (queue.guaranteed, queue.max)
            amounts = (queue.used, queue.pending, queue.preempting)
            queues.append(QueueGauges(path, *bounds, *amounts, queue.max_applications, states, running))
    usage, unschedulable, devices = _Usage(state.types.names), 0, DeviceCount()
    nodes = list(state.nodes.values())
    for start in range(0, len(nodes), LOOKED_AT_ONCE):
        yield None
        some = nodes[start : start + LOOKED_AT_ONCE]
        usage.add_nodes(some)
        devices.add_nodes(some)
        unschedulable += sum([not node.schedulable for node in some])
    above: dict[str, Mapping[int, int]] = {}
    for number, queue in enumerate(list(state.enforcement.above)):
        if not number % LOOKED_AT_ONCE:
            yield None
        if over := queue.above_max():
            above[queue.path] = over
    counts: dict[tuple[str, str], int] = dict.fromkeys(CLAIM_SORTS, 0)
    longest_idle_ns = 0
    counts[ClaimKind.FIRM, ClaimReason.ASKED] = state.held_count
    for number, claim in enumerate(claims_progress(state, now_ns)):
        if not number % LOOKED_AT_ONCE:
            yield None
        counts[claim.kind, claim.reason] += 1
        longest_idle_ns = max(longest_idle_ns, claim.idle_ns)
    yield None
    domains, domains_omitted = _look_at_domains(state)
    yield None
    governor = _governor_gauges(state, now_ns)
    yield None
    yield PartitionGauges(
        name=state.name,
        types=tuple(state.types.names),
        queues=tuple(queues),
        usage=usage.by_type(),
        nodes=len(state.nodes),
        unschedulable=unschedulable,
        nodes_removed=state.nodes_removed,
        applications=everywhere,
        asks=state.root.waiting + state.held_count,
        allocations=state.allocation_count,
        reservations=len(state.reservations),
        law_checks=state.law_checks,
        law_violations=state.law_violations,
        preemption_attempts=state.preemption_attempts,
        preemptions=state.preemptions,
        gangs_placed=state.gangs.placed,
        gang_plans_called_off=state.gangs.called_off,
        gang_members_preempted=state.gangs.lost,
        gangs_below_minimum=len(state.gangs.below),
        stuck=len(state.stuck),
        quotas_due=len(state.enforcement.armed),
        drained=len(state.operator_drains),
        above_max=above,
        wasted=wasted,
        governor=governor,
        queues_omitted=max(0, len(names) - len(queues)),
        domains=tuple(domains),
        domains_omitted=domains_omitted,
        claims=ClaimGauges(counts, longest_idle_ns),
        devices=devices.by_type(),
    )


def _look_at_domains(state: PartitionState) -> tuple[list[DomainGauges], int]:
    """Returns the domains of as many outer levels as may be shown, and the number of all others."""
    topology = state.topology
    if topology is None:
        return [], 0
    counts = Counter(map(len, topology.domains))
    most = MOST_DOMAIN_AMOUNTS // max(1, len(state.types.names))
    shown = depth = 0
    # A level is shown completely or not at all, because sums over a part of it would be misleading.
    while counts[depth + 1] and shown + counts[depth + 1] <= most:
        depth += 1
        shown += counts[depth]
    found = [
        DomainGauges(domain.level.name, "/".join(path), domain.capacity, domain.free, domain.held)
        for path, domain in topology.domains.items()
        if len(path) <= depth
    ]
    return found, len(topology.domains) - len(found)


def _count_states(applications: Iterable[Application]) -> dict[AppState, int]:
    """Counts *applications* by state: a ``Counter`` would take several times as long for the few of a queue."""
    found: dict[AppState, int] = {}
    for application in applications:
        state = application.state
        found[state] = found.get(state, 0) + 1
    return found


class _Usage:
    """Counts nodes by the part of each type that is allocated, for the types called *names*."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts = [[0] * DECILES for _ in self._names]

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        counts = self._counts
        for node in nodes:
            for capacity, allocated, deciles in zip(node.capacity, node.allocated, counts):  # noqa: B905 - a new type
                if capacity > 0:
                    if not allocated:
                        deciles[0] += 1
                    elif allocated >= capacity:
                        deciles[-1] += 1
                    elif allocated > 0:
                        deciles[(DECILES * allocated + capacity - 1) // capacity - 1] += 1
                    else:
                        deciles[0] += 1

    def by_type(self) -> Mapping[str, list[int]]:
        return {name: deciles for name, deciles in zip(self._names, self._counts, strict=True) if any(deciles)}


def _governor_gauges(state: PartitionState, now_ns: int) -> GovernorGauges:
    books, settings = state.governor, state.preemption.governor
    window = books.lately.as_of(now_ns - settings.window_ns)
    paused = Counter(scope.kind for scope, until_ns in books.paused.items() if until_ns > now_ns)
    scopes: dict[str, list[Scope]] = {kind: [] for kind in settings.budgets}
    for scope in window.totals:
        scopes[scope.kind].append(scope)
    used = [use for kind in scopes for use in _budget_uses(state, window, kind, settings.budgets[kind], scopes[kind])]
    return GovernorGauges(books.denied, {kind: paused[kind] for kind in scopes}, tuple(used))


def _budget_uses(
    state: PartitionState, window: Window, kind: str, budget: Budget, scopes: Iterable[Scope]
) -> Iterator[BudgetUse]:
    """Yields, for every bound of *budget*, the part used by the one of *scopes* that uses most."""
    if budget.victims:
        yield BudgetUse(kind, "victims", max(map(window.count_amount, scopes), default=0) / budget.victims)
    for name, limit in sorted(budget.lost.items()):
        t = state.types.known_index(name)
        lost = max((window.count_amount(scope, t) for scope in scopes), default=0) if t is not None else 0
        yield BudgetUse(kind, name, lost / limit if limit else float(lost > 0))
