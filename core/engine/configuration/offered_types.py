"""Adds resource types to a partition for good. All such additions are checked here before anything is applied.

A type is *offered* by nodes, configurations, limits and running work. An ask for a type that is not offered waits, and
can be served once it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain
from typing import Final

from kornel.core.config.model import PartitionConfig, QueueConfig
from kornel.core.domain.resources import MAX_TYPES, Resources
from kornel.core.model.shapes import Shape, TooManyTypes
from kornel.core.preemption import budgets
from kornel.core.state.asks import moves
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.governor_books import VICTIMS

DEMANDS_KEPT: Final = 10_000
"""The number of demands that are kept although no ask may have them any more."""

BYTES_KEPT: Final = 16 * 1024 * 1024
"""The estimated size of all such demands together."""

BYTES_PER_REQUEST: Final = 80
"""The further bytes for each ask and allocation of the partition. To forget demands, all of these are looked at, so it
is done the more rarely the more there are."""


def offer_types(state: PartitionState, names: Iterable[str], *, leaving: int = 0) -> None:
    """Add the types *names* to the partition. Raises :class:`kornel.core.model.shapes.TooManyTypes` without changing
    anything.

    *leaving*: the number of types that must still be possible to add afterwards.
    """
    types = state.types
    named = dict.fromkeys(names)
    new = types.find_unoffered(named)
    if not new:
        return
    try:
        types.check(new, leaving=leaving)
    except TooManyTypes:
        if leaving:
            raise
        give_back(state)
        new = types.find_unoffered(named)  # Types that are no longer used were given back as well.
        types.check(new)
    for name in new:
        types.index_of(name)
    renamed = set(types.forget_shapes_with(new))
    if not renamed:
        return
    for application in state.applications.values():
        for ask in [ask for ask in application.asks.values() if ask.shape in renamed]:
            for record in state.records.values():
                record.forget_ask(ask)
            moves.resize_request(state, ask, types.shape_of(ask.shape.resources))
            budgets.watch_age(state, ask)


def give_back(state: PartitionState) -> None:
    """Remove types that nodes, the configuration or running work once named and nothing names now.

    Nothing is removed during a round of the monitor or the enforcement of a max, which use type indexes.
    """
    if state.notices.steps is None and not state.enforcement.busy:
        remembered = _remembered_types(state)
        root = state.root
        state.types.give_back(
            lambda t: bool(t in remembered or root.used[t] or root.pending[t] or root.claimed[t] or t in root.max)
        )


def _remembered_types(state: PartitionState) -> set[int]:
    """Returns the types of which amounts are kept elsewhere than in the totals used, pending, claimed and offered."""
    configured = named_by(state.config) if state.config is not None else ()
    found = {t for t in map(state.types.known_index, configured) if t is not None}
    found.update(t for t, amount in enumerate(state.root.preempted_total) if amount)
    for node in state.nodes.values():
        for pairs in node.foreign.values():
            found.update(t for t, _ in pairs)
    for queue in state.queues.values():
        found.update(queue.guaranteed, queue.max)
        if queue.dynamic_terms is not None:
            found.update(queue.dynamic_terms.guaranteed, queue.dynamic_terms.max)
        for account in queue.accounts.values():
            found.update(account.limit.max)
    for application in state.applications.values():
        found.update(t for t, amount in enumerate(application.peak) if amount)
        for spent in application.spent.values():
            found.update(spent)
    for taken in state.notices.taken.values():
        found.update(taken.held)
    for amounts in (*state.notices.lacking.values(), *state.notices.held.values()):
        found.update(amounts)
    for amounts in state.governor.interval.totals.values():
        found.update(t for t, amount in amounts.items() if amount and t != VICTIMS)
    return found


def forget_demands(state: PartitionState) -> None:
    """Removes types that are no longer used, and unused demands once they outnumber the others. It is called from time
    to time."""
    if state.types.offered > MAX_TYPES // 2:
        give_back(state)
    few = len(state.types.known_shapes()) <= max(DEMANDS_KEPT, 2 * len(state.requests))
    if not few or state.types.made_bytes + state.types.kept_bytes > _find_bound(state):
        _keep_used(state)


def forget_excess(state: PartitionState) -> None:
    """Removes unused demands if those that were made since the last time take much memory. It is called after each
    command."""
    if state.types.made_bytes > _find_bound(state):
        _keep_used(state)


def _find_bound(state: PartitionState) -> int:
    """Returns how large unused demands may be together, estimated."""
    return BYTES_KEPT + BYTES_PER_REQUEST * len(state.requests)


def _keep_used(state: PartitionState) -> None:
    """Removes the demands of which there is no ask and no allocation."""
    kept = dict.fromkeys(request.shape for request in state.requests.values())
    _forget_findings(state, kept)
    kept |= dict.fromkeys((*state.too_large, *state.no_room, *state.refused))
    kept |= dict.fromkeys(shape for held in state.holders.values() for shape in held)
    state.types.keep_only(kept)


def _forget_findings(state: PartitionState, wanted: Container[Shape]) -> None:
    """Removes what was found out about demands other than those *wanted*: that no node can hold them, or which can, and
    that no node has room. It would be found out again."""
    for shape in [shape for shape in state.too_large if shape not in wanted]:
        del state.too_large[shape]
    for held in state.holders.values():
        for shape in [shape for shape in held if shape not in wanted]:
            del held[shape]
            shape.has_holder = False
    for shape in [shape for shape, room in state.no_room.items() if not room and shape not in wanted]:
        del state.no_room[shape]
        shape.no_room = False


def named_by(config: PartitionConfig, before: PartitionConfig | None = None) -> Iterator[str]:
    """Yields the resource types that *config* names, some of them many times.

    Queues that it shares with *before* are left out with all below them, because their types are known.
    """
    return chain.from_iterable(names_by_queue(config, before))


def names_by_queue(config: PartitionConfig, before: PartitionConfig | None = None) -> Iterator[list[str]]:
    """Yields the names of :func:`named_by` a few at a time, often as an empty list, because there may be tens of
    thousands of queues."""
    governor = config.preemption.governor
    yield [
        *config.node_sort.weights,
        *(name for budget in (governor.cluster, governor.queue, governor.application) for name in budget.lost),
    ]
    queues: list[tuple[QueueConfig, QueueConfig | None]] = [(config.root, before.root if before is not None else None)]
    for queue, old in queues:
        if queue is old:
            continue
        known: dict[str, QueueConfig] = {}
        for child in old.children if old is not None else ():
            known[child.name] = child
            yield []
        for child in queue.children:
            queues.append((child, known.get(child.name)))
            yield []
        template = queue.child_template
        amounts = [queue.guaranteed, queue.max, *(limit.max_resources for limit in queue.limits)]
        of_originators = (queue.effective.originator_max, queue.dynamic_leaf.originator_max)
        amounts += [most for most in of_originators if isinstance(most, Resources)]
        if template is not None:
            amounts += [template.guaranteed, template.max]
        yield [name for named in amounts if named for name in named]
