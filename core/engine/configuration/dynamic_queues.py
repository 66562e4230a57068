"""Makes dynamic queues for placement, limits them by tags, and applies the changes of a reload to them.

The cost of making a queue grows with the length of its path only. Rules: config.md 6.3, 7.7, 7.8, B16, B18, B20.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kornel.core.domain.names import RECOVERY_PATH, RECOVERY_QUEUE
from kornel.core.domain.resources import MAX_TYPES, Resources
from kornel.core.domain.settings import QueueProperties
from kornel.core.engine.configuration import offered_types
from kornel.core.model.queues import DynamicTerms, Queue
from kornel.core.model.shapes import TooManyTypes
from kornel.core.policies.placement.decide import Placed
from kornel.core.policies.placement.namespace_limits import NamespaceLimits
from kornel.core.policies.queue_order import find_fair_max
from kornel.core.state.history.queue_events import settings_of
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.waking import wake_for_account, wake_for_queue

TYPES_LEFT_BY_TAGS: Final = MAX_TYPES // 2
"""The resource types that tags leave to nodes and configurations, because anyone who submits an application writes its
tags."""


class Prospect(NamedTuple):
    """The leaf that an application is about to enter, as it will be then. Nothing has been changed yet.

    parents           the queues above the leaf, nearest first; the root last
    max_applications  0: unlimited
    """

    path: str
    properties: QueueProperties
    guaranteed: Mapping[int, int]
    max: Mapping[int, int]
    max_applications: int
    parents: tuple[Queue, ...]


def find_prospect(state: PartitionState, placed: Placed, limits: NamespaceLimits) -> Prospect:
    """Returns the leaf at *placed* as it is, or as it would be made. *limits* apply to dynamic leaves except the
    recovery queue."""
    guaranteed: Mapping[int, int]
    maximum: Mapping[int, int]
    queue = placed.above
    if placed.exists:
        properties, guaranteed, maximum, most = queue.properties, queue.guaranteed, queue.max, queue.max_applications
        parents = queue.lineage()[1:]
        terms = None if queue.managed else queue.dynamic_terms
    else:
        parents = queue.lineage()
        if placed.path == RECOVERY_PATH:
            return Prospect(placed.path, QueueProperties(), {}, {}, 0, parents)
        terms = _terms_below(queue)
        properties, guaranteed = terms.leaf_properties, terms.guaranteed
        maximum, most = terms.max, terms.max_applications
    if terms is not None:
        maximum = _with_limit(state, maximum, limits.max, terms.max)
        guaranteed = _with_limit(state, guaranteed, limits.guaranteed, terms.guaranteed)
        if limits.max_applications is not None:
            most = limits.max_applications or terms.max_applications
    return Prospect(placed.path, properties, guaranteed, maximum, most, parents)


def enter_leaf(state: PartitionState, placed: Placed, wanted: Prospect) -> Queue:
    """Returns the leaf at *placed*, made if it does not exist, with the limits of *wanted*."""
    leaf = placed.above if placed.exists else _create_leaf(state, placed, wanted)
    if not leaf.managed:
        before = settings_of(leaf) if state.recording and placed.exists else None
        _limit_leaf(state, leaf, wanted)
        if before is not None:
            state.events.queues.amounts_changed(before, leaf)
    return leaf


def take_template_steps(state: PartitionState) -> Iterator[None]:
    """Gives dynamic queues, after a reload, the settings that their parents pass on now, except those that a tag has
    set. Yields after each queue.

    Parents come before their children, so a change reaches every level.
    """
    for queue in sorted(state.queues.values(), key=lambda queue: queue.depth):
        before, parent = queue.dynamic_terms, queue.parent
        if queue.managed or before is None or parent is None:
            continue
        terms = queue.dynamic_terms = _terms_below(parent)
        if not queue.leaf:
            queue.properties = terms.parent_properties
            yield
            continue
        queue.properties = terms.leaf_properties
        guaranteed = terms.guaranteed if queue.guaranteed == before.guaranteed else queue.guaranteed
        maximum = terms.max if queue.max == before.max else queue.max
        queue.set_limits(dict(guaranteed), dict(maximum))
        if queue.max_applications == before.max_applications:
            queue.max_applications = terms.max_applications
        yield


def _terms_below(parent: Queue) -> DynamicTerms:
    assert parent.dynamic_terms is not None, "every parent has terms for queues below it"
    return parent.dynamic_terms


def _with_limit(
    state: PartitionState, now: Mapping[int, int], wanted: Resources | None, template: Mapping[int, int]
) -> Mapping[int, int]:
    if wanted is None:
        return now
    if not wanted:
        return template
    try:
        offered_types.offer_types(state, wanted, leaving=TYPES_LEFT_BY_TAGS)
    except TooManyTypes:
        return now
    return state.types.to_sparse(wanted)


def _create_leaf(state: PartitionState, placed: Placed, wanted: Prospect) -> Queue:
    queue = placed.above
    missing = placed.path.removeprefix(f"{queue.path}.").split(".")
    for name in missing[:-1]:
        terms = _terms_below(queue)
        queue = state.new_queue(name, queue, leaf=False, properties=terms.parent_properties)
        queue.managed = False
        queue.dynamic_terms = terms
        queue.set_fair_max(find_fair_max(queue))
        if state.recording:
            state.events.queues.queue_created(queue)
    leaf = state.new_queue(missing[-1], queue, leaf=True, properties=wanted.properties)
    leaf.managed = False
    leaf.dynamic_terms = _terms_below(queue) if leaf.name != RECOVERY_QUEUE else None
    leaf.set_fair_max(find_fair_max(leaf))
    if state.recording:
        state.events.queues.queue_created(leaf)
    return leaf


def _limit_leaf(state: PartitionState, leaf: Queue, wanted: Prospect) -> None:
    """Puts the amounts of *wanted* into force for *leaf*. Of other queues, only the guarantees with which its ancestors
    count depend on them."""
    leaf.max_applications = wanted.max_applications
    guaranteed = {t: amount for t, amount in wanted.guaranteed.items() if amount}
    if leaf.guaranteed == guaranteed and leaf.max == wanted.max:
        return
    leaf.set_limits(guaranteed, dict(wanted.max))
    state.rules_changed()
    leaf.set_fair_max(find_fair_max(leaf))
    if leaf.parent is not None:
        leaf.mark_turn()
    if leaf.applications:
        wake_for_queue(state, leaf)
        for account in leaf.accounts.values():
            wake_for_account(state, account)
