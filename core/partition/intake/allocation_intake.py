"""Allocation requests: asks, recovered allocations, foreign load, resizes and releases (protocol.md 8, 9, 10)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, islice
from operator import itemgetter

from kornel.core.domain.allocation_ids import MOST_INSTANCES, MOST_SHARING
from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import CREATION_TIME_TAG, AllocationSpec, ReleaseSpec, TerminationType
from kornel.core.domain.effects import AllocationRejected
from kornel.core.domain.names import LONGEST_NAME, LONGEST_TAGS, items_length, length_flaw, show_name
from kornel.core.domain.reasons import Ignored, Rejection
from kornel.core.domain.resources import NOTHING
from kornel.core.domain.topology import TopologyRequest
from kornel.core.model.allocations import SEPARATOR, Allocation, identity_of, standing_of
from kornel.core.model.applications import Application
from kornel.core.model.nodes import ForeignLoad, Node
from kornel.core.model.shapes import Shape, TooManyTypes
from kornel.core.partition import lifecycle
from kornel.core.partition.asks import instances, moves, questions
from kornel.core.partition.asks.answers import answer_release
from kornel.core.partition.configuration import offered_types
from kornel.core.partition.gangs import pools
from kornel.core.partition.intake import handshake, removal
from kornel.core.partition.scheduling import placement
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.waking import wake_for_node
from kornel.core.partition.withdrawing import withdraw_ask
from kornel.core.preemption import attempts, eviction, slices

_CLOSED = frozenset({AppState.FAILING, AppState.FAILED, AppState.COMPLETED})
_RUNNING = AppState.RUNNING
"""Names a member once: reading it from its class costs as much as a call, and every ask comes by."""
_NS_PER_S = 10**9

_COUNTLESS = ("resources", "node_id", "max_allocations", "instance")
_CONTENT = itemgetter(*(at for at, name in enumerate(AllocationSpec._fields) if name not in _COUNTLESS))
"""The fields that a spec says of every request under its key, whatever their number, but for its size, which is a
shape."""


def handle(state: PartitionState, spec: AllocationSpec, now_ns: int) -> AllocationRejected | None:
    """Takes one entry of ``allocations`` or ``asks`` by the decision table of protocol.md 8.1, in which the first match
    wins.

    Returns the rejection instead of answering it: rejections leave after the request's last entry.
    """
    refused = _find_fault(state, spec)
    known = spec.key in state.requests or spec.key in state.instances
    if known and refused is None:
        refused = _refuse_change(state, spec)
    if refused is not None:
        return reject_allocation(spec, refused)
    amounts = NOTHING if spec.resources is None else spec.resources
    try:
        if spec.node_id or (known and _is_placed(state, spec)):
            offered_types.offer_types(state, amounts)
        shape = state.types.shape_of(amounts)
    except TooManyTypes as error:
        return reject_allocation(spec, f"{Rejection.INVALID_RESOURCE}: {spec.key}: {error}")
    _take_entry(state, spec, shape, now_ns)
    return None


def _is_placed(state: PartitionState, spec: AllocationSpec) -> bool:
    """Tells whether *spec* speaks of something that runs: what it names is there."""
    request = state.requests.get(identity_of(spec.key, spec.instance) if spec.instance else spec.key)
    return request is not None and not request.pending


def reject_allocation(spec: AllocationSpec, reason: str) -> AllocationRejected:
    """Returns the answer that turns *spec* away; *reason* starts with its token."""
    return AllocationRejected(spec.key, spec.application_id, reason, spec.legacy, spec.partition)


def recover_with_node(state: PartitionState, node: Node, existing: Iterable[AllocationSpec], now_ns: int) -> str | None:
    """Takes the allocations that a node of G2 was reported with. The first that is refused refuses the node
    (protocol.md 3.4).

    All are looked at before the first is taken: a refused node must leave no trace in the applications.
    """
    specs = [spec._replace(node_id=node.node_id) for spec in existing]
    owners: dict[str, str] = {}
    for spec in specs:
        refused = _find_fault(state, spec)
        if refused is None and not spec.foreign:
            owner = owners.setdefault(spec.key, spec.application_id)
            if owner != spec.application_id:
                refused = f"{Rejection.KEY_IN_USE}: key {spec.key} belongs to application {owner}"
        if refused is not None:
            return refused
    try:
        offered_types.offer_types(
            state, (name for spec in specs if spec.resources is not None for name in spec.resources)
        )
    except TooManyTypes as error:
        return f"{Rejection.INVALID_RESOURCE}: what runs on {node.node_id}: {error}"
    for spec in specs:
        # What a known one cannot become is left out: that is no reason to refuse the node.
        _take_entry(state, spec, state.types.shape_of(NOTHING if spec.resources is None else spec.resources), now_ns)
    return None


def _find_fault(state: PartitionState, spec: AllocationSpec) -> str | None:
    """Returns what is wrong with a single entry, in the order of protocol.md 8.1 with the rows that DB-5, DB-6 and
    DB-15 add; ``None``: nothing."""
    key, amounts = spec.key, spec.resources
    if len(key) > LONGEST_NAME:
        return _too_long("the key", len(key), LONGEST_NAME)
    if spec.task_group and len(spec.task_group) > LONGEST_NAME:
        return _too_long("the task group", len(spec.task_group), LONGEST_NAME)
    if spec.tags:
        refused = _refuse_tags(spec)
        if refused is not None:
            return refused
    if spec.placeholder and not spec.task_group:
        return f"{Rejection.PLACEHOLDER_WITHOUT_GROUP}: placeholder {key} names no task group"
    if not key:
        return f"{Rejection.INVALID_KEY}: an allocation needs a key"
    if SEPARATOR in key:
        return f"{Rejection.INVALID_KEY}: U+FFFF stands for no character, a key may not contain it"
    if spec.foreign:
        return _refuse_foreign(state, spec)
    application = state.applications.get(spec.application_id)
    if application is None:
        return f"{Rejection.APPLICATION_NOT_FOUND}: no application {show_name(spec.application_id)}"
    if spec.node_id and spec.node_id not in state.nodes:
        return f"{Rejection.NODE_NOT_FOUND}: no node {show_name(spec.node_id)}"
    if not 1 <= spec.max_allocations <= MOST_INSTANCES:
        return f"{Rejection.MAX_ALLOCATIONS}: maxAllocations is {spec.max_allocations}, not 1 to {MOST_INSTANCES:,}"
    if amounts is None or amounts.is_zero():
        return f"{Rejection.NO_RESOURCES}: {key} asks for nothing"
    if amounts.has_negative():
        return f"{Rejection.NEGATIVE_RESOURCES}: {key} asks for a negative amount"
    known = state.requests.get(key)
    if known is None and state.instances:
        known = instances.any_of(state, key)
    if known is not None and known.application is not application:
        holder = known.application.application_id
        return f"{Rejection.KEY_IN_USE}: key {key} belongs to application {holder}"
    if spec.max_allocations > 1 and _shares_too_many(state, spec):
        return f"{Rejection.MAX_ALLOCATIONS}: more than {MOST_SHARING:,} allocations of a partition would share a key"
    if spec.topology is not None:
        refused = _refuse_topology(state, spec.topology)
        if refused is not None:
            return refused
    if application.state in _CLOSED and not spec.node_id and (known is None or _wants_more(state, spec)):
        return f"{Rejection.APPLICATION_STATE}: application {spec.application_id} is {application.state}"
    return None


def _refuse_tags(spec: AllocationSpec) -> str | None:
    length = items_length(spec.tags)
    if length > LONGEST_TAGS:
        return _too_long("the list of tags", length, LONGEST_TAGS)
    if len(spec.required_node) > LONGEST_NAME:
        return _too_long("the required node", len(spec.required_node), LONGEST_NAME)
    for key, _ in spec.tags:
        if len(key) > LONGEST_NAME:
            return _too_long("a tag's key", len(key), LONGEST_NAME)
    return None


def _refuse_topology(state: PartitionState, request: TopologyRequest) -> str | None:
    """Returns what is wrong with what the tags of an ask say about the topology. What runs already is where it is, and
    refused all the same: whoever sends it made a mistake."""
    levels = state.topology.levels if state.topology is not None else ()
    flaw = request.flaw
    if not flaw and all(level.name != request.level for level in levels):
        known = ", ".join(level.name for level in levels) or "none"
        flaw = f"no level {show_name(request.level)} in the topology of the partition, which has {known}"
    return f"{Rejection.INVALID_TOPOLOGY}: {flaw}" if flaw else None


def _too_long(what: str, length: int, most: int) -> str:
    return f"{Rejection.NAME_TOO_LONG}: {length_flaw(what, length, most)}"


def _wants_more(state: PartitionState, spec: AllocationSpec) -> bool:
    """Tells whether a repeated ask means more allocations than its key has."""
    return spec.legacy and instances.count_requests(state, spec.key) < spec.max_allocations


def _shares_too_many(state: PartitionState, spec: AllocationSpec) -> bool:
    """Tells whether an ask for several allocations under one key means more of these than a partition keeps."""
    more = spec.max_allocations - max(1, instances.count_requests(state, spec.key))
    return more > 0 and state.sharing_count + more > MOST_SHARING


def _refuse_change(state: PartitionState, spec: AllocationSpec) -> str | None:
    """Returns what an entry for a known key says that cannot come true any more; what it leaves out stays as it is.

    An older ask whose key has pending allocations too, or is to have more, takes effect on those.
    """
    if spec.foreign:
        return None
    if spec.legacy:
        known = instances.of_key(state, spec.key)
        if any(request.pending for request in known) or len(known) < spec.max_allocations:
            return None
    else:
        request = state.requests.get(identity_of(spec.key, spec.instance))
        known = [] if request is None or request.pending else [request]
    for request in known:
        before = request.spec
        if spec.placeholder and not before.placeholder:
            return f"{Rejection.UNCHANGEABLE}: {spec.key} is allocated and cannot become a placeholder"
        if spec.task_group not in ("", before.task_group):
            return f"{Rejection.UNCHANGEABLE}: {spec.key} is allocated, its task group stays {before.task_group!r}"
        if spec.required_node not in ("", before.required_node, _node_id(request)):
            return f"{Rejection.UNCHANGEABLE}: {spec.key} is allocated, not on its new required node"
    return None


def _node_id(request: Allocation) -> str:
    """Returns the node on which *request* runs; empty while it only is to take the place of a placeholder, which the
    shim may not know."""
    return "" if request.node is None or request.place is AskPlace.REPLACING else request.node.node_id


def _refuse_foreign(state: PartitionState, spec: AllocationSpec) -> str | None:
    if not spec.node_id:
        return f"{Rejection.FOREIGN_WITHOUT_NODE}: foreign allocation {spec.key} names no node"
    if spec.node_id not in state.nodes:
        return f"{Rejection.NODE_NOT_FOUND}: no node {show_name(spec.node_id)}"
    if spec.resources is not None and spec.resources.has_negative():
        return f"{Rejection.NEGATIVE_RESOURCES}: foreign allocation {spec.key} holds a negative amount"
    return None


def _take_entry(state: PartitionState, spec: AllocationSpec, shape: Shape, now_ns: int) -> None:
    """Apply an entry that nothing speaks against."""
    if spec.foreign:
        _occupy_node(state, spec, shape, now_ns)
        return
    application = state.applications[spec.application_id]
    if spec.legacy:
        _take_older(state, application, spec, shape, now_ns)
        return
    request = state.requests.get(identity_of(spec.key, spec.instance) if spec.instance else spec.key)
    if request is None:
        if spec.node_id:
            request = _record_request(state, application, spec, shape, _created_ns(spec, now_ns))
            lifecycle.allocation_recovered(state, application, now_ns)
            placement.place_unchecked(state, request, state.nodes[spec.node_id], now_ns)
            if spec.task_group:
                pools.member_placed(state, request)
            _note_unchecked(state, request, now_ns)
        else:
            _add_ask(state, application, spec, shape, now_ns)
        return
    placed = bool(spec.node_id) and request.pending
    resized = request.shape is not shape
    if request.pending:
        if placed:
            questions.cancel_question(state, request)
        changed = _replace_ask(state, request, spec, shape, now_ns)
        request = state.requests[request.key]
    else:
        if resized:
            moves.resize_request(state, request, shape)
        changed = _amend_allocation(state, request, spec, now_ns)
    if placed:
        placement.bind(state, request, state.nodes[spec.node_id], now_ns)
        if request.spec.task_group:
            pools.member_placed(state, request)
    if resized or placed:
        _note_unchecked(state, request, now_ns)
    elif not changed:
        elsewhere = spec.node_id and request.node is not state.nodes[spec.node_id]
        state.ignore_entry(Ignored.OTHER_NODE if elsewhere else Ignored.NO_CHANGE, spec.key)


def _note_unchecked(state: PartitionState, request: Allocation, now_ns: int) -> None:
    """Has others cope with what *request* may hold on a node without any check."""
    if request.node is not None:
        slices.note_arrival(state, request, now_ns)


def _record_request(
    state: PartitionState, application: Application, spec: AllocationSpec, shape: Shape, created_ns: int
) -> Allocation:
    request = Allocation(spec, application, shape, created_ns, state.next_number())
    if spec.dependent:
        request.dependent = True
    instances.remember_request(state, request)
    if spec.placeholder:
        pools.placeholder_appears(state, request)
    if created_ns < application.submitted_ns:
        application.submitted_ns = created_ns
        application.queue.order.mark_changed(application)
    return request


def _created_ns(spec: AllocationSpec, otherwise_ns: int) -> int:
    return otherwise_ns if spec.created_s is None else spec.created_s * _NS_PER_S


def _add_ask(state: PartitionState, application: Application, spec: AllocationSpec, shape: Shape, now_ns: int) -> None:
    created_ns = now_ns if spec.created_s is None else spec.created_s * _NS_PER_S
    request = _record_request(state, application, spec, shape, created_ns)
    if application.state is not _RUNNING:
        lifecycle.ask_added(state, application, now_ns)
    if state.recording:
        state.events.ask_added(request)
    moves.add_ask(state, request)
    attempts.watch(state, request)


def _take_older(
    state: PartitionState, application: Application, spec: AllocationSpec, shape: Shape, now_ns: int
) -> None:
    """Takes a G2 ask: what is pending under its key becomes what the ask says, what is allocated as far as it can
    (protocol.md 3.4)."""
    known = instances.of_key(state, spec.key)
    pending = [request for request in known if request.pending]
    allocated = [request for request in known if not request.pending]
    wanted = max(0, spec.max_allocations - len(allocated))
    for ask in pending[wanted:]:
        withdraw_ask(state, ask)
    replaced = [
        ask for ask in _select_changed(pending[:wanted], spec, shape) if _replace_ask(state, ask, spec, shape, now_ns)
    ]
    replaced += [
        request
        for request in _select_changed(allocated, spec, shape)
        if _amend_allocation(state, request, spec, now_ns)
    ]
    if wanted == len(pending) and not replaced:
        state.ignore_entry(Ignored.NO_CHANGE, spec.key)
    elif wanted > len(pending):
        used = {request.spec.instance for request in known}
        free = (number for number in count() if number not in used)
        for number in islice(free, wanted - len(pending)):
            _add_ask(state, application, spec._replace(instance=number), shape, now_ns)


def _select_changed(requests: Iterable[Allocation], spec: AllocationSpec, shape: Shape) -> list[Allocation]:
    """Returns those of *requests* that *spec* may change: of ten thousand none, where it only changes their number."""
    said = _CONTENT(spec)
    return [request for request in requests if request.shape is not shape or _CONTENT(request.spec) != said]


def _replace_ask(state: PartitionState, ask: Allocation, spec: AllocationSpec, shape: Shape, now_ns: int) -> bool:
    """Make a pending *ask* what *spec* says. It keeps its age; with a new size alone also what is held for it.

    False: it is that already. Else the request is another one under the same key, unless only its size changed.
    """
    resized = ask.shape is not shape
    if resized:
        questions.cancel_question(state, ask)
        state.guarantee.refusals.forget_ask(ask)  # With another size it asks another question.
        moves.resize_request(state, ask, shape)
        attempts.watch(state, ask)
        if ask.reservation is not None:
            eviction.leave_too_small(state, ask.reservation.node, now_ns)
    before = ask.spec
    spec = _keep_age(before, spec)._replace(instance=before.instance, node_id="")
    if before == _as_known(before, spec):
        ask.spec = before._replace(legacy=spec.legacy)  # It is answered in the generation that spoke last.
        return resized
    withdraw_ask(state, ask)
    changed = _record_request(state, ask.application, spec, shape, _created_ns(spec, ask.created_ns))
    if state.recording:
        state.events.ask_added(changed)
    moves.add_ask(state, changed)
    attempts.watch(state, changed)
    return True


def _amend_allocation(state: PartitionState, allocation: Allocation, spec: AllocationSpec, now_ns: int) -> bool:
    """Give *allocation* the priority, tags and preemption policy of *spec*: they count from now on.

    False: it has these already. Its age stays, and so does its size, which changes by itself.
    """
    before = allocation.spec
    after = _as_known(before, spec)._replace(
        placeholder=before.placeholder, task_group=before.task_group, created_s=before.created_s
    )
    if after.required_node != _node_id(allocation):
        after = after._replace(required_node=before.required_node)
    if after == before:
        return False
    allocation.spec = after
    allocation.standing = standing_of(after)
    allocation.version = state.next_number()
    state.rules_changed()
    if allocation.node is not None:
        allocation.node.version += 1
    state.victim_index.forget_leaf(allocation.queue)
    slices.note_amendment(state, allocation, now_ns)
    return True


def _keep_age(before: AllocationSpec, spec: AllocationSpec) -> AllocationSpec:
    """Returns *spec* with the creation time of *before* where the shim states the same date as then.

    When the wall clock was set in between, the same date has been brought to another one of the core's time, and the
    request is as old as it was.
    """
    if spec.created_s == before.created_s:
        return spec
    date = dict(spec.tags).get(CREATION_TIME_TAG)
    if date is None or date != dict(before.tags).get(CREATION_TIME_TAG):
        return spec
    return spec._replace(created_s=before.created_s)


def _as_known(before: AllocationSpec, spec: AllocationSpec) -> AllocationSpec:
    """Returns *spec* without what says nothing about the request itself: that is as in *before*."""
    return spec._replace(
        resources=before.resources,
        max_allocations=before.max_allocations,
        node_id=before.node_id,
        instance=before.instance,
        legacy=before.legacy,
    )


def _occupy_node(state: PartitionState, spec: AllocationSpec, shape: Shape, now_ns: int) -> None:
    """Books foreign load on its node; it is moved when the node changed, and never answered (protocol.md 9, DB-8)."""
    node = state.nodes[spec.node_id]
    if state.recording:
        state.events.foreign_load_set(spec.key, state.foreign.get(spec.key), node, shape)
    at = state.foreign.get(spec.key)
    if at is not None:
        spec = _keep_age(at.foreign_loads[spec.key].spec, spec)
    _vacate_node(state, spec.key)
    node.book_foreign(spec.key, shape.pairs, ForeignLoad(spec, shape, _created_ns(spec, now_ns)))
    state.foreign[spec.key] = node
    state.node_order.refresh_node(node)


def _vacate_node(state: PartitionState, key: str) -> bool:
    """Take foreign load away; False: there is none of that key."""
    node = state.foreign.pop(key, None)
    if node is None:
        return False
    node.unbook_foreign(key)
    state.changes += 1
    state.node_order.refresh_node(node)
    wake_for_node(state, node)
    return True


def withdraw(state: PartitionState, spec: ReleaseSpec, now_ns: int) -> None:
    """Takes one entry of the G2 list ``allocationAsksToRelease``; TIMEOUT is a confirmation and ignored (protocol.md
    3.4)."""
    application = state.applications.get(spec.application_id)
    if application is None:
        state.ignore_entry(Ignored.UNKNOWN_APPLICATION, spec.application_id)
        return
    if spec.termination == TerminationType.TIMEOUT:
        state.ignore_entry(Ignored.CONFIRMATION, spec.key)
        return
    named = application.asks.values() if not spec.key else instances.of_key(state, spec.key)
    asks = [ask for ask in named if application.asks.get(ask.key) is ask]
    for ask in asks:
        withdraw_ask(state, ask)
    if asks:
        lifecycle.asks_withdrawn(state, application, now_ns)
    else:
        state.ignore_entry(Ignored.UNKNOWN_KEY if spec.key else Ignored.NO_CHANGE, spec.key or spec.application_id)


def release(state: PartitionState, spec: ReleaseSpec, now_ns: int) -> None:
    """Takes one entry of ``allocationsToRelease``: whatever it names goes; unknown names are ignored (protocol.md
    10.1)."""
    if not spec.application_id:
        key = spec.key or spec.allocation_id.removesuffix("-0")
        if state.recording:
            state.events.foreign_load_set(key, state.foreign.get(key), None, None)
        if not _vacate_node(state, key):
            state.ignore_entry(Ignored.UNKNOWN_KEY, spec.key)
        return
    if not spec.allocation_id and spec.key not in state.instances:
        _release(state, spec, now_ns)
        return
    for name in instances.named_requests(state, spec):
        _release(state, spec._replace(key=name, allocation_id=""), now_ns)


def _release(state: PartitionState, spec: ReleaseSpec, now_ns: int) -> None:
    application = state.applications.get(spec.application_id)
    if application is None:
        state.ignore_entry(Ignored.UNKNOWN_APPLICATION, spec.application_id)
        return
    if not spec.key:
        _release_all(state, application, spec, now_ns)
        return
    allocation = application.allocations.get(spec.key)
    if allocation is not None:
        _release_one(state, allocation, spec, now_ns)
        return
    ask = application.asks.get(spec.key)
    if ask is None:
        state.ignore_entry(Ignored.UNKNOWN_KEY, spec.key)
    elif not _ends_ask(ask, spec.termination):
        confirms = spec.termination == TerminationType.TIMEOUT
        state.ignore_entry(Ignored.CONFIRMATION if confirms else Ignored.NOT_APPLICABLE, spec.key)
    else:
        withdraw_ask(state, ask)
        lifecycle.asks_withdrawn(state, application, now_ns)


def _release_one(state: PartitionState, allocation: Allocation, spec: ReleaseSpec, now_ns: int) -> None:
    if spec.termination == TerminationType.PLACEHOLDER_REPLACED and not allocation.spec.placeholder:
        state.ignore_entry(Ignored.NOT_APPLICABLE, spec.key)
        return
    if spec.termination == TerminationType.SCHEDULING_FAILED_ON_RM:
        if not removal.return_to_pending(state, allocation, now_ns):
            state.ignore_entry(Ignored.NOT_APPLICABLE, spec.key)
        return
    if allocation.replaced_by is not None:
        # However the placeholder ended, its place is free for the one that waits for it (DB-10).
        if _is_echoed(spec.termination):
            state.effects.append(answer_release(state, allocation, TerminationType.STOPPED_BY_RM, spec.message))
        handshake.confirm_replacement(state, allocation, now_ns)
        return
    removal.release_allocation(state, allocation, spec.termination, now_ns)
    if _is_echoed(spec.termination):
        state.effects.append(answer_release(state, allocation, TerminationType.STOPPED_BY_RM, spec.message))


def _release_all(state: PartitionState, application: Application, spec: ReleaseSpec, now_ns: int) -> None:
    """Releases everything of the application; its asks stay when the shim merely confirms a timeout."""
    if spec.termination in (TerminationType.PLACEHOLDER_REPLACED, TerminationType.SCHEDULING_FAILED_ON_RM):
        state.ignore_entry(Ignored.NOT_APPLICABLE, application.application_id)
        return
    asks = [] if spec.termination == TerminationType.TIMEOUT else list(application.asks.values())
    for ask in asks:
        withdraw_ask(state, ask)
    gone = list(application.allocations.values())
    if not asks and not gone:
        state.ignore_entry(Ignored.NO_CHANGE, application.application_id)
    for allocation in gone:
        removal.remove_allocation(state, allocation, spec.termination, now_ns)
    lifecycle.allocations_removed(state, application, gone, now_ns)
    if asks and not gone:
        lifecycle.asks_withdrawn(state, application, now_ns)
    if _is_echoed(spec.termination):
        state.effects.extend(
            answer_release(state, allocation, TerminationType.STOPPED_BY_RM, spec.message) for allocation in gone
        )


def _ends_ask(ask: Allocation, termination: int) -> bool:
    """Tells whether a release withdraws a pending ask; one that speaks of an allocation does not (protocol.md 3.6,
    10.1, 10.4).

    A shim may say twice that it could not start what the core placed: the second time it is an ask already.
    """
    if termination == TerminationType.PLACEHOLDER_REPLACED:
        return ask.spec.placeholder
    return termination not in (TerminationType.TIMEOUT, TerminationType.SCHEDULING_FAILED_ON_RM)


def _is_echoed(termination: int) -> bool:
    """Tells whether the release is the shim's own wish, which the core confirms, and not itself a confirmation
    (protocol.md 10.2)."""
    return termination not in (
        TerminationType.TIMEOUT,
        TerminationType.PREEMPTED_BY_SCHEDULER,
        TerminationType.PLACEHOLDER_REPLACED,
    )
