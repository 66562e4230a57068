"""Applies a configuration: builds the queue tree of a new partition, or changes that of a running one (protocol.md
5.4).

Whether it can be applied is checked before anything is changed, so an update happens completely or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from kornel.core.config.comparison import own_settings
from kornel.core.config.model import LimitConfig, PartitionConfig, QueueConfig
from kornel.core.domain.effects import Effect
from kornel.core.domain.settings import GangScheduling, QueueProperties
from kornel.core.domain.topology import TopologyLevel
from kornel.core.engine.configuration import dynamic_queues, offered_types
from kornel.core.engine.gangs.pools import regroup_members
from kornel.core.model.callbacks import Callbacks
from kornel.core.model.domains import Topology
from kornel.core.model.orders.keyed_heap import SORTED_AT_ONCE
from kornel.core.model.queues import DynamicTerms, Queue
from kornel.core.model.shapes import TooManyTypes
from kornel.core.model.users import NO_LIMITS, Account
from kornel.core.policies.node_score import NodeScore
from kornel.core.policies.placement.rules import compile_rules
from kornel.core.preemption import budgets
from kornel.core.preemption.quota import timers as quota_timers
from kornel.core.preemption.quota.timer_rules import Terms, terms_of
from kornel.core.state.asks.limit_claims import end_saving_at_accounts
from kornel.core.state.asks.moves import regroup_originators
from kornel.core.state.books import user_accounting
from kornel.core.state.books.fair_terms import reckon_fair_terms_anew, take_fair_terms_steps
from kornel.core.state.history.queue_events import QueueSettings, settings_of
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission
from kornel.core.state.waiting.gathering import bind_members
from kornel.core.state.waiting.rooms import activate_group, filter_newcomers, look_again, renew_order
from kornel.core.state.waiting.waking import take_review_steps, wake_for_domains, wake_for_queue, wake_waiting
from kornel.shared.readable_amounts import format_count

CLEANER_INTERVAL_NS: Final = 10 * 10**9
CLEANED_AT_ONCE: Final = 1_000
"""Queues of a large tree that the cleaner looks at in one slice."""


def build_partition(
    name: str, config: PartitionConfig, now_ns: int, effects: list[Effect], callbacks: Callbacks | None = None
) -> PartitionState:
    """Returns a new, empty partition called *name* (full form) with the queues of *config*; its effects are appended to
    *effects*.

    *callbacks*: the callbacks of the engine; without them, the shim is never asked anything.
    """
    building = Building(name, config, effects, callbacks)
    for _ in building.take_steps():
        pass
    return building.complete(now_ns)


class Building:
    """A new partition that is being built. It is not visible to anybody yet, has no time, and records no events."""

    def __init__(
        self, name: str, config: PartitionConfig, effects: list[Effect], callbacks: Callbacks | None = None
    ) -> None:
        """Prepares the building of a partition; the parameters are those of :func:`build_partition`, which takes all
        steps at once."""
        self.config = config
        self.state = PartitionState(name, config.root.effective, config.preemption, effects, callbacks)
        self.state.recording = False
        self._root_before = settings_of(self.state.root)
        self._enforced_before = self.state.preemption.quota_enabled
        self._change = _Change()

    def take_steps(self) -> Iterator[None]:
        """Builds the partition, and yields after each queue."""
        self.state.config = self.config
        return _make_changes(self.state, self.config, None, self._change)

    def complete(self, now_ns: int) -> PartitionState:
        """Returns the partition, created at *now_ns*, once all steps are taken."""
        state = self.state
        state.created_ns = now_ns
        state.fair_terms_stale = False
        state.recording = state.callbacks.recording
        if state.recording:
            state.events.queues.queue_created(state.root)
            for _ in state.events.queues.take_record_steps({state.root.path: self._root_before}, state.queues):
                pass
        for _ in quota_timers.take_follow_steps(state, self._enforced_before, self._change.quotas, now_ns):
            pass
        _clean_periodically(state, now_ns + CLEANER_INTERVAL_NS)
        return state


def find_obstacles(state: PartitionState, config: PartitionConfig) -> list[str]:
    """Returns, as sentences, the reasons why *config* cannot be applied to this running partition; an empty list if it
    can."""
    return list(filter(None, look_for_obstacles(state, config)))


def look_for_obstacles(state: PartitionState, config: PartitionConfig) -> Iterator[str]:
    """Yields the same sentences as :func:`find_obstacles`, and an empty text after each step that found none."""
    for path, queue_config in walk_queues(config.root, "root"):
        queue = state.queues.get(path)
        if queue is None or queue.parent is None:
            yield ""
            continue
        if queue.leaf and queue_config.parent and queue.applications:
            count = len(queue.applications)
            yield f"queue {path} has {format_count(count, 'application')} and cannot become a parent"
        if not queue.leaf and not queue_config.parent and queue.children:
            kept = {f"{path}.{name}" for name in queue.children if not _is_empty(queue.children[name])}
            if kept:
                yield f"queue {path} still has {', '.join(sorted(kept))} and cannot become a leaf"
        yield ""
    named: dict[str, None] = {}
    for names in offered_types.names_by_queue(config, state.config):
        named.update(dict.fromkeys(names))
        yield ""
    try:
        state.types.check(named)
    except TooManyTypes as error:
        yield f"partition {config.name}: {error}{_advise_two_steps(state, config)}"


def _advise_two_steps(state: PartitionState, config: PartitionConfig) -> str:
    """Returns the advice to apply *config*, which names too many types, in two steps; empty if it leaves out no type
    that is in use.

    A type that is left out still counts until the cleaner finds that nothing names it, because amounts of it may be
    kept in many places.
    """
    left_out = set(offered_types.named_by(state.config)) if state.config is not None else set()
    left_out -= set(offered_types.named_by(config))
    if not left_out:
        return ""
    return (
        f"; it leaves out {len(left_out)} that the configuration in force names: apply it without the new ones first,"
        f" and with them {CLEANER_INTERVAL_NS // 10**9} s later, when what nothing uses has been forgotten"
    )


def update(state: PartitionState, config: PartitionConfig, now_ns: int) -> None:
    """Makes the partition follow *config*, against which :func:`find_obstacles` has found nothing.

    Only what differs from the former configuration is touched, so the cost depends on the size of the change. Parts
    that both configurations share (:mod:`kornel.core.config.comparison`) need not even be compared.
    """
    for _ in take_update_steps(state, config, now_ns):
        pass


def take_update_steps(state: PartitionState, config: PartitionConfig, now_ns: int) -> Iterator[None]:
    """Does the same as :func:`update` in steps, and yields after each queue. Until the last step, the partition must
    not apply commands or decide anything."""
    before, state.config = state.config, config
    if before is config:
        return
    queues_before: dict[str, QueueSettings] = {}
    for path, queue in state.queues.items() if state.recording else ():
        queues_before[path] = settings_of(queue)
        yield
    enforced_before = state.preemption.quota_enabled
    reckon_fair_terms_anew(state)
    change = _Change()
    yield from _make_changes(state, config, before, change)
    state.reserving.reviewed = ()  # Other priorities and guarantees may lend saved room to others.
    if before is not None and before.preemption != config.preemption:
        yield from _take_watch_steps(state)
    if before is not None and before.gang_scheduling is not config.gang_scheduling:
        for application in list(state.applications.values()):
            bind_members(state, application)
            regroup_members(state, application)
            yield
    if state.recording:
        yield from state.events.queues.take_record_steps(queues_before, state.queues)
    yield from quota_timers.take_follow_steps(state, enforced_before, change.quotas, now_ns)


def _make_changes(
    state: PartitionState, config: PartitionConfig, before: PartitionConfig | None, change: _Change
) -> Iterator[None]:
    """Makes a partition that follows *before* follow *config*, and records in *change* what that touches. Yields after
    each queue."""
    named: dict[str, None] = {}
    for names in offered_types.names_by_queue(config, before):
        named.update(dict.fromkeys(names))
        yield
    offered_types.offer_types(state, named)
    state.resolver = config.resolver
    state.gangs.as_units = config.gang_scheduling is GangScheduling.UNITS
    if before is None or config.placement_rules != before.placement_rules:
        state.placement_rules = compile_rules(config.placement_rules)
    state.preemption = config.preemption
    if before is None or config.node_sort != before.node_sort:
        weights = {state.types.index_of(name): weight for name, weight in config.node_sort.weights.items()}
        state.node_order.rebuild_order(NodeScore(config.node_sort.policy, weights), list(state.node_order))
    if before is None or config.topology != before.topology:
        yield from _take_level_steps(state, config.topology)
    state.rules_changed()
    yield from _follow_config(state, "root", config.root, before.root if before is not None else None, change)
    if change.templates:
        before_template = {queue: queue.properties for queue in state.queues.values() if not queue.managed}
        yield from dynamic_queues.take_template_steps(state)
        for queue, properties in before_template.items():
            if _limits_differ(queue, properties):
                change.limits[queue] = ()
        for queue in state.queues.values():
            if not queue.managed:
                change.queues[queue] = None
                if queue.leaf:
                    change.delayed[queue] = None
    if change.limits:
        end_saving_at_accounts(state)
        yield from user_accounting.take_limit_steps(state, change.limits)
        for queue in change.limits:
            regroup_originators(state, queue)
            yield
        yield from take_review_steps(state)
    yield from _settle_queues(state, change)


@dataclass(slots=True)
class _Change:
    """The queues and settings that an update has touched so far.

    queues     those with new settings, parents before their children; some may have been dropped since
    delayed    leaves whose asks may now preempt at another time
    limits     the queues with new user and group limits, each with these limits
    quotas     the maxima and delays that changed queues had before; none if a queue is new or was dynamic
    templates  tells whether a parent now passes other settings on to dynamic queues
    """

    queues: dict[Queue, None] = field(default_factory=dict)
    delayed: dict[Queue, None] = field(default_factory=dict)
    limits: dict[Queue, tuple[LimitConfig, ...]] = field(default_factory=dict)
    quotas: dict[Queue, Terms] = field(default_factory=dict)
    templates: bool = False


def _follow_config(
    state: PartitionState, path: str, new: QueueConfig, old: QueueConfig | None, change: _Change
) -> Iterator[None]:
    if new is old:
        return
    if old is None or own_settings(new) != own_settings(old):
        queue = _apply_queue(state, path, new, change)
        known = old.limits if old is not None and old.parent == new.parent else ()
        if new.limits != known:
            change.limits[queue] = new.limits
        yield
    gone: dict[str, QueueConfig] = {}
    for child in old.children if old is not None else ():
        gone[child.name] = child
        yield
    for child in new.children:
        yield from _follow_config(state, f"{path}.{child.name}", child, gone.pop(child.name, None), change)
    for name in gone:
        _drain(state.queues.get(f"{path}.{name}"), change)
        yield


def _drain(queue: Queue | None, change: _Change) -> None:
    """Marks *queue* and all managed queues below it as draining, because the configuration no longer lists them, and
    removes their limits."""
    if queue is not None and queue.managed:
        queue.draining = True
        if queue.limits is not NO_LIMITS:
            change.limits[queue] = ()
        for child in queue.children.values():
            _drain(child, change)


def _settle_queues(state: PartitionState, change: _Change) -> Iterator[None]:
    """Works out again what depends on the settings of changed queues: shares, orders, priorities, and which asks have
    to wait.

    Yields after each queue.
    """
    touched: list[Queue] = []
    refreshed: set[Queue] = set()
    for queue in change.queues:
        yield
        if state.queues.get(queue.path) is not queue:
            continue
        touched.append(queue)
        if refreshed.isdisjoint(queue.lineage()):
            refreshed.add(queue)
            for below in take_fair_terms_steps(queue):
                user_accounting.offer_limits(state, below)
                yield
    if touched:
        state.in_line.mark_all()  # The priorities that asks lend may have changed.
        for room in list(state.root.rooms):
            yield from room.take_line_steps()
    for _ in range(0, len(state.in_line.marked), SORTED_AT_ONCE):
        if state.reserving.line is None:
            state.in_line.sort_many()
        yield
    for queue in touched:
        renew_order(queue)
        queue.refresh_priorities()
        filter_newcomers(queue)
        yield
    for queue in touched:  # Who comes before whom is known once all are in order.
        wake_for_queue(state, queue)
        yield
    wake_waiting(state)
    for queue in change.delayed:
        for application in queue.applications.values():
            for ask in application.asks.values():
                budgets.watch_age(state, ask)
        yield


def _apply_queue(state: PartitionState, path: str, config: QueueConfig, change: _Change) -> Queue:
    queue = state.queues.get(path)
    if queue is not None and queue.parent is not None and queue.leaf == config.parent:
        # A leaf keeps its applications in order, a parent its children. So an empty queue that changes from one to the
        # other is made anew.
        _drop_queue(state, queue)
        queue = None
    if queue is None:
        parent_path, _, name = path.rpartition(".")
        queue = state.new_queue(name, state.queues[parent_path], leaf=not config.parent, properties=config.effective)
        change.quotas[queue] = quota_timers.NO_TERMS
    change.queues[queue] = None
    listed = queue.managed and not queue.draining
    change.quotas.setdefault(queue, terms_of(queue) if listed else quota_timers.NO_TERMS)
    if queue.leaf and queue.properties.preemption_delay_ns != config.effective.preemption_delay_ns:
        change.delayed[queue] = None
    if _limits_differ(queue, config.effective):
        change.limits[queue] = config.limits
    queue.properties = config.effective
    queue.draining = False
    queue.managed = True
    queue.submit_acl, queue.admin_acl = config.submit_acl, config.admin_acl
    admission.set_max_applications(queue, config.max_applications)
    terms = _dynamic_terms(state, config) if config.parent else None
    change.templates = change.templates or terms != queue.dynamic_terms
    queue.dynamic_terms = terms
    if queue.parent is not None:
        queue.set_limits(state.types.to_sparse(config.guaranteed), state.types.to_sparse(config.max))
    return queue


def _limits_differ(queue: Queue, properties: QueueProperties) -> bool:
    """Tells whether other limits of originators and users follow from *properties* than from those of *queue*."""
    before, now = (
        (each.originator_max, each.user_factor, each.user_minimum) for each in (queue.properties, properties)
    )
    return queue.leaf and before != now


def _dynamic_terms(state: PartitionState, config: QueueConfig) -> DynamicTerms:
    template = config.dynamic_template
    return DynamicTerms(
        config.dynamic_parent,
        config.dynamic_leaf,
        state.types.to_sparse(template.guaranteed if template is not None else None),
        state.types.to_sparse(template.max if template is not None else None),
        template.max_applications if template is not None else 0,
    )


def _take_watch_steps(state: PartitionState) -> Iterator[None]:
    """Determines again which asks are due to preempt, because the settings of preemption have changed. Yields after
    each application.

    Asks with reservations are tried again, because they may now be allowed to preempt on the node that they require.
    """
    state.attempts_due.clear()
    for record in state.records.values():
        record.forget_asks()
    for application in state.applications.values():
        for group in application.groups.values():
            group.no_attempt_is_due()
        for ask in application.asks.values():
            budgets.watch_age(state, ask)
        for group in application.groups.values():
            if group.parked_at is not None:
                activate_group(group)
        yield
    for reservation in list(state.reservations.values()):
        look_again(state, reservation)


def walk_queues(config: QueueConfig, path: str) -> Iterator[tuple[str, QueueConfig]]:
    """Yields *config*, the queue at *path*, and all queues below it, each with its path, parents first."""
    yield path, config
    for child in config.children:
        yield from walk_queues(child, f"{path}.{child.name}")


def _is_empty(queue: Queue) -> bool:
    return not queue.applications and all(_is_empty(child) for child in queue.children.values())


def _clean_periodically(state: PartitionState, at_ns: int) -> None:
    state.run_at(at_ns, partial(_clean_again, state))


def _clean_again(state: PartitionState, now_ns: int) -> None:
    if state.cleaning is None:
        state.cleaning = _clean_queues(state)
    advance_cleaning(state)
    _clean_periodically(state, now_ns + CLEANER_INTERVAL_NS)


def advance_cleaning(state: PartitionState) -> bool:
    """Looks at some queues and removes those that are no longer needed. Returns whether any are left to be looked
    at."""
    if state.cleaning is not None and sum(1 for _ in islice(state.cleaning, CLEANED_AT_ONCE)) < CLEANED_AT_ONCE:
        state.cleaning = None
    return state.cleaning is not None


def _clean_queues(state: PartitionState) -> Iterator[None]:
    """Removes draining and dynamic queues that are empty, children first (scheduling.md 19), and what is kept for empty
    queues.

    Yields after each queue; in the meantime, other queues may be added, removed or filled.
    """
    yield from _clean_below(state, state.root)
    leaves = {queue for queue in state.queues.values() if queue.applications}
    state.victim_index.keep_only(leaves)
    for record in state.records.values():
        record.forget_unused(state.queues.values())
    offered_types.forget_demands(state)


def _clean_below(state: PartitionState, queue: Queue) -> Iterator[None]:
    left = list(reversed(queue.children.values()))
    while left:  # If the list kept all queues until the end, the memory of all removed ones would be freed at once.
        child = left.pop()
        if child.children:
            yield from _clean_below(state, child)
        yield
        if state.queues.get(child.path) is not child:
            continue
        if (child.draining or not child.managed) and not child.applications and not child.children:
            _drop_queue(state, child)
            if state.recording:
                state.events.queues.queue_removed(child)


def _drop_queue(state: PartitionState, queue: Queue) -> None:
    for child in list(queue.children.values()):
        _drop_queue(state, child)
    assert queue.parent is not None, "the root stays as long as its partition"
    queue.parent.order.discard(queue)
    queue.set_limits({}, {})  # Its ancestors no longer count with its guarantee.
    del queue.parent.children[queue.name]
    del state.queues[queue.path]
    limits: tuple[Queue | Account, ...] = (queue, *queue.accounts.values())
    for limit in limits:
        state.reserving.lapsed.pop(limit, None)
        state.reserving.short.pop(limit, None)
    queue.dissolve()


def _take_level_steps(state: PartitionState, levels: tuple[TopologyLevel, ...]) -> Iterator[None]:
    """Assigns every node to its domains of *levels*, and tries asks again that wait for a domain; without levels, the
    partition has no domains. Yields after each node."""
    before, state.topology = state.topology, Topology(levels) if levels else None
    for node in state.nodes.values():
        if before is not None:
            before.remove_node(node)
        if state.topology is not None:
            state.topology.add_node(node, len(state.types.names))
        yield
    wake_for_domains(state)
