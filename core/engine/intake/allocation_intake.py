"""Handles allocation requests: asks, recovered allocations, foreign load and resizes (protocol.md 8, 9)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, islice
from operator import itemgetter

from kornel.core.domain.allocation_ids import MOST_INSTANCES, MOST_SHARING
from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import CREATION_TIME_TAG, AllocationSpec
from kornel.core.domain.effects import AllocationRejected
from kornel.core.domain.names import LONGEST_NAME, LONGEST_TAGS, items_length, length_flaw, show_name
from kornel.core.domain.reasons import Ignored, Rejection
from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.domain.topology import TopologyRequest
from kornel.core.engine import lifecycle
from kornel.core.engine.configuration import offered_types
from kornel.core.engine.gangs import pools
from kornel.core.engine.intake import device_faults
from kornel.core.engine.scheduling import placement
from kornel.core.engine.withdrawing import withdraw_ask
from kornel.core.model.allocations import SEPARATOR, Allocation, identity_of
from kornel.core.model.applications import Application
from kornel.core.model.nodes import ForeignLoad, Node
from kornel.core.model.shapes import Shape, TooManyTypes
from kornel.core.preemption import budgets, eviction, slices
from kornel.core.state.asks import instances, moves, questions
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import pausing
from kornel.core.state.waiting.waking import wake_for_node

_CLOSED = frozenset({AppState.FAILING, AppState.FAILED, AppState.COMPLETED})
_RUNNING = AppState.RUNNING
"""Kept as a constant, because reading a member from its class costs as much as a call, and every ask needs it."""
_NS_PER_S = 10**9

_COUNTLESS = ("resources", "node_id", "max_allocations", "instance")
_CONTENT = itemgetter(*(at for at, name in enumerate(AllocationSpec._fields) if name not in _COUNTLESS))
"""Returns the fields of a spec that all requests under its key share, without the size, which is compared as a
shape."""


def handle(state: PartitionState, spec: AllocationSpec, now_ns: int) -> AllocationRejected | None:
    """Handles one entry of ``allocations`` or ``asks`` by the decision table of protocol.md 8.1, of which the first
    match counts.

    Returns the rejection instead of answering with it, because rejections are sent after the request's last entry.
    """
    refused = _find_fault(state, spec)
    known = spec.key in state.requests or spec.key in state.instances
    if known and refused is None:
        refused = _refuse_change(state, spec)
    if refused is not None:
        return reject_allocation(spec, refused)
    amounts = NOTHING if spec.resources is None else spec.resources
    placed = bool(spec.node_id) or (known and _runs_already(state, spec))
    try:
        if placed:
            offered_types.offer_types(state, amounts)
        plain = not known and spec.devices is None
        shape = state.types.shape_of(amounts) if plain else _shape_of(state, spec, amounts)
    except TooManyTypes as error:
        return reject_allocation(spec, f"{Rejection.INVALID_RESOURCE}: {spec.key}: {error}")
    if known or placed or spec.legacy:
        _take_entry(state, spec, shape, now_ns)
    elif spec.devices is not None:
        demand = spec._replace(devices=spec.devices.demand)
        _add_ask(state, state.applications[spec.application_id], demand, shape, now_ns)
    else:  # By far the most entries are new asks, so their path has few tests. Foreign load always names a node.
        _add_ask(state, state.applications[spec.application_id], spec, shape, now_ns)
    return None


def _runs_already(state: PartitionState, spec: AllocationSpec) -> bool:
    """Tells whether the core knows the request that *spec* is about, and has placed it."""
    request = state.requests.get(identity_of(spec.key, spec.instance) if spec.instance else spec.key)
    return request is not None and not request.pending


def _shape_of(state: PartitionState, spec: AllocationSpec, amounts: Resources) -> Shape:
    """Returns the demand of *spec* for *amounts* and devices. A running allocation keeps its devices, whatever the tags
    say now.

    An ask of the older generation refers to the pending ask with its key, even if an allocation with this key runs.
    """
    request = state.requests.get(identity_of(spec.key, spec.instance) if spec.instance else spec.key)
    if request is not None and not request.pending and not spec.legacy:
        return state.types.shape_with(amounts, request.shape.devices)
    return state.types.shape_with(amounts, None if spec.devices is None else spec.devices.demand)


def reject_allocation(spec: AllocationSpec, reason: str) -> AllocationRejected:
    """Returns the rejection of *spec*; *reason* starts with its token."""
    return AllocationRejected(spec.key, spec.application_id, reason, spec.legacy, spec.partition)


def recover_with_node(state: PartitionState, node: Node, existing: Iterable[AllocationSpec], now_ns: int) -> str | None:
    """Adds the allocations that were reported with a node of G2. If one is refused, so is the node (protocol.md 3.4).

    All are checked before the first is added, because a refused node must not change any application.
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
    refused = device_faults.refuse_together(state, node, specs)
    if refused is not None:
        return refused
    for spec in specs:
        # Changes that a known allocation cannot accept are left out; they are no reason to refuse the node.
        _take_entry(state, spec, _shape_of(state, spec, spec.resources or NOTHING), now_ns)
    return None


def _find_fault(state: PartitionState, spec: AllocationSpec) -> str | None:
    """Returns the rejection of a single entry, in the order of protocol.md 8.1 with the rows added by DB-5, DB-6 and
    DB-15; ``None``: there is none."""
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
        return f"{Rejection.INVALID_KEY}: U+FFFF is not a character, and a key may not contain it"
    if spec.foreign:
        return _refuse_foreign(state, spec)
    application = state.applications.get(spec.application_id)
    if application is None:
        ended = state.past.describe_end(spec.application_id, state.callbacks.now_ns)
        return f"{Rejection.APPLICATION_NOT_FOUND}: no application {show_name(spec.application_id)}{ended}"
    if spec.node_id and spec.node_id not in state.nodes:
        return f"{Rejection.NODE_NOT_FOUND}: no node {show_name(spec.node_id)}"
    if spec.max_allocations != 1 and not 1 <= spec.max_allocations <= MOST_INSTANCES:
        return f"{Rejection.MAX_ALLOCATIONS}: maxAllocations is {spec.max_allocations}, not 1 to {MOST_INSTANCES:,}"
    if amounts is None or not amounts.is_something():
        if amounts is not None and amounts.has_negative():
            return f"{Rejection.NEGATIVE_RESOURCES}: {key} asks for a negative amount"
        return f"{Rejection.NO_RESOURCES}: {key} asks for nothing"
    known = state.requests.get(key)
    if known is None and state.instances:
        known = instances.any_of(state, key)
    if known is not None and known.application is not application:
        holder = known.application.application_id
        return f"{Rejection.KEY_IN_USE}: key {key} belongs to application {holder}"
    if spec.max_allocations > 1 and _shares_too_many(state, spec):
        return f"{Rejection.MAX_ALLOCATIONS}: more than {MOST_SHARING:,} allocations of a partition would share a key"
    if spec.topology is not None:
        refused = refuse_topology(state, spec.topology)
        if refused is not None:
            return refused
    if spec.devices is not None:
        refused = device_faults.refuse_devices(state, spec, known)
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


def refuse_topology(state: PartitionState, request: TopologyRequest) -> str | None:
    """Returns the rejection of the topology in the tags of an ask. It applies to an allocation that runs already as
    well, because the tags are a mistake of the shim."""
    levels = state.topology.levels if state.topology is not None else ()
    flaw = request.flaw
    if not flaw and all(level.name != request.level for level in levels):
        known = ", ".join(level.name for level in levels) or "none"
        flaw = f"no level {show_name(request.level)} in the topology of the partition, which has {known}"
    return f"{Rejection.INVALID_TOPOLOGY}: {flaw}" if flaw else None


def _too_long(what: str, length: int, most: int) -> str:
    return f"{Rejection.NAME_TOO_LONG}: {length_flaw(what, length, most)}"


def _wants_more(state: PartitionState, spec: AllocationSpec) -> bool:
    """Tells whether a repeated ask is for more allocations than its key has."""
    return spec.legacy and instances.count_requests(state, spec.key) < spec.max_allocations


def _shares_too_many(state: PartitionState, spec: AllocationSpec) -> bool:
    """Tells whether an ask for several allocations under one key is for more than a partition may have of such
    allocations."""
    more = spec.max_allocations - max(1, instances.count_requests(state, spec.key))
    return more > 0 and state.sharing_count + more > MOST_SHARING


def _refuse_change(state: PartitionState, spec: AllocationSpec) -> str | None:
    """Returns the rejection of an entry that changes something of a known key that can no longer change; ``None``: it
    does not.

    An ask of G2 is accepted if its key has pending allocations too, or is to have more, which it then changes.
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
            return f"{Rejection.UNCHANGEABLE}: {spec.key} is allocated, so its task group stays {before.task_group!r}"
        if spec.required_node not in ("", before.required_node, _node_id(request)):
            return f"{Rejection.UNCHANGEABLE}: {spec.key} is allocated, but not on its new required node"
        if spec.devices is not None and spec.devices.demand != request.shape.devices:
            return f"{Rejection.UNCHANGEABLE}: {spec.key} is allocated, so what it wants of devices stays as it is"
    return None


def _node_id(request: Allocation) -> str:
    """Returns the node on which *request* runs; empty while *request* is about to take the place of a placeholder,
    because the shim may not know that."""
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
    """Applies an entry that has passed all checks."""
    if spec.foreign:
        _occupy_node(state, spec, shape, now_ns)
        return
    application = state.applications[spec.application_id]
    given: tuple[str, ...] = ()
    if spec.devices is not None:
        given, spec = spec.devices.given, spec._replace(devices=spec.devices.demand)
    if spec.legacy:
        _take_older(state, application, spec, shape, now_ns)
        return
    request = state.requests.get(identity_of(spec.key, spec.instance) if spec.instance else spec.key)
    if request is None:
        if spec.node_id:
            request = _record_request(state, application, spec, shape, _created_ns(spec, now_ns))
            request.devices = given
            lifecycle.allocation_recovered(state, application, now_ns)
            placement.place_unchecked(state, request, state.nodes[spec.node_id], now_ns)
            if spec.task_group:
                pools.member_placed(state, request, now_ns)
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
        request.devices = given
        placement.bind(state, request, state.nodes[spec.node_id], now_ns)
        if request.spec.task_group:
            pools.member_placed(state, request, now_ns)
    if resized or placed:
        _note_unchecked(state, request, now_ns)
    elif not changed:
        elsewhere = spec.node_id and request.node is not state.nodes[spec.node_id]
        state.ignore_entry(Ignored.OTHER_NODE if elsewhere else Ignored.NO_CHANGE, spec.key)


def _note_unchecked(state: PartitionState, request: Allocation, now_ns: int) -> None:
    """Updates quotas and claims after *request* was added on a node without any check."""
    if request.node is not None:
        eviction.review_claims(state, request.node, now_ns)
        slices.note_arrival(state, request, now_ns)


def _record_request(
    state: PartitionState, application: Application, spec: AllocationSpec, shape: Shape, created_ns: int
) -> Allocation:
    if spec.resources is not shape.resources:
        spec = spec._replace(resources=shape.resources)  # Equal demands keep one set of amounts, whoever read them.
    request = Allocation(spec, application, shape, created_ns, state.next_number())
    if spec.dependent:
        request.dependent = True
    state.requests[request.key] = request
    if spec.instance or spec.key in state.instances:
        instances.join_siblings(state, request)
    if spec.placeholder:
        pools.placeholder_appears(state, request)
    elif spec.task_group:
        pools.member_asked(state, request)
    if created_ns < application.submitted_ns:
        application.submitted_ns = created_ns
        application.mark_turn()
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
    if spec.allow_preempt_other:  # Most allocations may not preempt, and a call for each one would only find that out.
        budgets.watch_age(state, request)


def _take_older(
    state: PartitionState, application: Application, spec: AllocationSpec, shape: Shape, now_ns: int
) -> None:
    """Applies a G2 ask: changes the pending asks with its key accordingly, and the allocations as far as possible
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
    """Returns those of *requests* that *spec* changes. If it changes only their number, there are none, however many
    requests there are."""
    said = _CONTENT(spec)
    return [request for request in requests if request.shape is not shape or _CONTENT(request.spec) != said]


def _replace_ask(state: PartitionState, ask: Allocation, spec: AllocationSpec, shape: Shape, now_ns: int) -> bool:
    """Changes a pending *ask* to *spec*. It keeps its age and, if only its size changes, also what is held for it.

    Returns false if nothing changes. Unless only the size changes, a new request takes its place under the same key.
    """
    former = ask.shape
    resized = former is not shape
    if resized:
        questions.cancel_question(state, ask)
        for record in state.records.values():
            record.forget_ask(ask)
        pausing.forgive_refusals(state, ask)  # The shim refused nodes for the former size.
        moves.resize_request(state, ask, shape)
        budgets.watch_age(state, ask)
        eviction.review_size(state, ask, former, now_ns)
    before = ask.spec
    spec = _keep_age(before, spec)._replace(instance=before.instance, node_id="")
    if before == _as_known(before, spec):
        ask.spec = before._replace(legacy=spec.legacy)  # It is answered in the generation of the latest message.
        return resized
    withdraw_ask(state, ask)
    changed = _record_request(state, ask.application, spec, shape, _created_ns(spec, ask.created_ns))
    if state.recording:
        state.events.ask_added(changed)
    moves.add_ask(state, changed)
    budgets.watch_age(state, changed)
    return True


def _amend_allocation(state: PartitionState, allocation: Allocation, spec: AllocationSpec, now_ns: int) -> bool:
    """Gives *allocation* the priority, tags and preemption policy of *spec*, which apply from now on.

    Returns false if it has these already. Its age and what it wants of devices stay the same, and so does its size,
    which other code changes.
    """
    before = allocation.spec
    after = _as_known(before, spec)._replace(
        placeholder=before.placeholder,
        task_group=before.task_group,
        created_s=before.created_s,
        devices=before.devices,
    )
    if after.required_node != _node_id(allocation):
        after = after._replace(required_node=before.required_node)
    if after == before:
        return False
    moves.amend_allocation(state, allocation, after)
    allocation.version = state.next_number()
    state.rules_changed()
    if allocation.node is not None:
        allocation.node.touch()
    state.victim_index.drop_ranking(allocation.queue)
    slices.note_amendment(state, allocation, now_ns)
    return True


def _keep_age(before: AllocationSpec, spec: AllocationSpec) -> AllocationSpec:
    """Returns *spec* with the creation time of *before* if the shim sends the same date as before.

    If the wall clock was set in between, the same date corresponds to another one of the core's time, but the request
    is as old as before.
    """
    if spec.created_s == before.created_s:
        return spec
    date = dict(spec.tags).get(CREATION_TIME_TAG)
    if date is None or date != dict(before.tags).get(CREATION_TIME_TAG):
        return spec
    return spec._replace(created_s=before.created_s)


def _as_known(before: AllocationSpec, spec: AllocationSpec) -> AllocationSpec:
    """Returns *spec* with the fields of *before* that say nothing about the request itself."""
    return spec._replace(
        resources=before.resources,
        max_allocations=before.max_allocations,
        node_id=before.node_id,
        instance=before.instance,
        legacy=before.legacy,
    )


def _occupy_node(state: PartitionState, spec: AllocationSpec, shape: Shape, now_ns: int) -> None:
    """Books foreign load on its node, and moves it if the node has changed; never answers (protocol.md 9, DB-8)."""
    node = state.nodes[spec.node_id]
    if state.recording:
        state.events.foreign_load_set(spec.key, state.foreign.get(spec.key), node, shape)
    at = state.foreign.get(spec.key)
    if at is not None:
        spec = _keep_age(at.foreign_loads[spec.key].spec, spec)
    vacate_node(state, spec.key)
    node.book_foreign(spec.key, shape.pairs, ForeignLoad(spec, shape, _created_ns(spec, now_ns)))
    state.foreign[spec.key] = node
    state.changes += 1
    state.node_order.refresh_node(node)
    eviction.review_claims(state, node, now_ns)


def vacate_node(state: PartitionState, key: str) -> bool:
    """Remove foreign load. Returns false if there is none under *key*."""
    node = state.foreign.pop(key, None)
    if node is None:
        return False
    node.unbook_foreign(key)
    state.changes += 1
    state.node_order.refresh_node(node)
    wake_for_node(state, node)
    return True
