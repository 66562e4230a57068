"""Configuration into a partition: build its queue tree, or change a running one (protocol.md 5.4).

What cannot be applied is found out before anything is touched, so an update happens whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from core.config.model import PartitionConfig, QueueConfig
from core.domain.effects import Effect
from core.model.callbacks import Callbacks
from core.model.queues import DynamicTerms, Queue
from core.partition import admission, dynamic_queues, preempting, user_accounting
from core.partition.state import PartitionState
from core.partition.waiting import activate, queue_gained
from core.policies.node_score import NodeScore
from core.policies.placement.rules import compile_rules

CLEANER_INTERVAL_NS: Final = 10 * 10**9


def build(
    name: str, config: PartitionConfig, now_ns: int, effects: list[Effect], callbacks: Callbacks | None = None
) -> PartitionState:
    """A new, empty partition called *name* (full form) with the queues of *config*; it answers into *effects*.

    *callbacks*: those of the engine; without, nobody is ever asked.
    """
    state = PartitionState(name, config.root.effective, config.preemption, effects, callbacks)
    update(state, config)
    _clean_periodically(state, now_ns + CLEANER_INTERVAL_NS)
    return state


def obstacles(state: PartitionState, config: PartitionConfig) -> list[str]:
    """What stands against applying *config* to this running partition; empty: nothing."""
    found: list[str] = []
    for path, queue_config in _walk(config.root, "root"):
        queue = state.queues.get(path)
        if queue is None or queue.parent is None:
            continue
        if queue.leaf and queue_config.parent and queue.applications:
            count = len(queue.applications)
            found.append(f"queue {path} has {count} applications and cannot become a parent")
        if not queue.leaf and not queue_config.parent and queue.children:
            kept = {f"{path}.{name}" for name in queue.children if not _empties(queue.children[name])}
            if kept:
                found.append(f"queue {path} still has {', '.join(sorted(kept))} and cannot become a leaf")
    return found


def update(state: PartitionState, config: PartitionConfig) -> None:
    """Make the partition follow *config*, which :func:`obstacles` has no objection to."""
    listed = dict(_walk(config.root, "root"))
    state.placement_rules = compile_rules(config.placement_rules)
    state.preemption = config.preemption
    weights = {state.types.index(name): weight for name, weight in config.node_sort.weights.items()}
    state.node_order.rebuild(NodeScore(config.node_sort.policy, weights), list(state.node_order))
    for path, queue_config in listed.items():
        _apply_queue(state, path, queue_config)
    for path, queue in list(state.queues.items()):
        if path not in listed and queue.managed:
            queue.draining = True
    dynamic_queues.follow_templates(state)
    user_accounting.change_limits(state, listed)
    state.fair_terms_stale = True
    for queue in state.queues.values():
        queue.order.rekey()
        queue.refresh_priority()
        queue_gained(state, queue)
    _watch_again(state)


def _apply_queue(state: PartitionState, path: str, config: QueueConfig) -> None:
    queue = state.queues.get(path)
    if queue is not None and queue.parent is not None and queue.leaf == config.parent:
        # Leaf and parent order different things: an empty queue that changes its kind starts afresh.
        _drop(state, queue)
        queue = None
    if queue is None:
        parent_path, _, name = path.rpartition(".")
        queue = state.new_queue(name, state.queues[parent_path], leaf=not config.parent, properties=config.effective)
    queue.properties = config.effective
    queue.draining = False
    queue.managed = True
    queue.submit_acl, queue.admin_acl = config.submit_acl, config.admin_acl
    admission.set_max_applications(queue, config.max_applications)
    queue.dynamic_terms = _dynamic_terms(state, config) if config.parent else None
    if queue.parent is not None:
        queue.set_limits(state.types.sparse(config.guaranteed), state.types.sparse(config.max))


def _dynamic_terms(state: PartitionState, config: QueueConfig) -> DynamicTerms:
    template = config.dynamic_template
    return DynamicTerms(
        config.dynamic_parent,
        config.dynamic_leaf,
        state.types.sparse(template.guaranteed if template is not None else None),
        state.types.sparse(template.max if template is not None else None),
        template.max_applications if template is not None else 0,
    )


def _watch_again(state: PartitionState) -> None:
    """Delays may have changed, and with them the time from which each waiting ask may preempt."""
    state.attempts_due.clear()
    for application in state.applications.values():
        for group in application.groups.values():
            group.due.clear()
        for ask in application.asks.values():
            preempting.watch(state, ask)
        for group in application.groups.values():
            if group.parked_at is not None:
                activate(group)


def _walk(config: QueueConfig, path: str) -> Iterator[tuple[str, QueueConfig]]:
    yield path, config
    for child in config.children:
        yield from _walk(child, f"{path}.{child.name}")


def _empties(queue: Queue) -> bool:
    return not queue.applications and all(_empties(child) for child in queue.children.values())


def _clean_periodically(state: PartitionState, at_ns: int) -> None:
    def clean(now_ns: int) -> None:
        _clean(state)
        _clean_periodically(state, now_ns + CLEANER_INTERVAL_NS)

    state.at(at_ns, clean)


def _clean(state: PartitionState) -> None:
    """Remove drained and dynamic queues that are empty, children first (scheduling.md 19), and what empty ones held."""
    _clean_below(state, state.root)
    state.victim_index.keep_only({queue for queue in state.queues.values() if queue.applications})


def _clean_below(state: PartitionState, queue: Queue) -> None:
    for child in list(queue.children.values()):
        if child.children:
            _clean_below(state, child)
        if (child.draining or not child.managed) and not child.applications and not child.children:
            _drop(state, child)


def _drop(state: PartitionState, queue: Queue) -> None:
    for child in list(queue.children.values()):
        _drop(state, child)
    assert queue.parent is not None, "the root stays as long as its partition"
    queue.parent.order.discard(queue)
    del queue.parent.children[queue.name]
    del state.queues[queue.path]
