"""Describes queues that hold more than their max: by how much, since when, what is done about it, and what protects the
rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.model.queues import Queue
from kornel.core.preemption.quota.above_max import say_protection
from kornel.core.preemption.quota.shares import Amounts, net_usage
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.enforcement import Overuse, ProtectedBy, Protection
from kornel.shared.readable_amounts import format_count


class AboveMax(NamedTuple):
    """A configured queue that holds more than its max, since ``since_ns``.

    above      how much more it holds, including victims that have not left yet
    leaving    the part of ``above`` that such victims hold
    due_ns     when the max is to be enforced; ``None``: no time is set
    course     what is done about it, in words
    protected  what protects the rest, in words
    """

    path: str
    since_ns: int
    above: Resources
    leaving: Resources
    due_ns: int | None
    course: str
    protected: tuple[str, ...]


def above_max_of(state: PartitionState, queue: Queue) -> AboveMax | None:
    """Describes by how much *queue* is above its max, and what is done about it; ``None``: it is not above its max."""
    enforcement = state.enforcement
    overuse = enforcement.above.get(queue)
    over = queue.above_max()
    if overuse is None or not over:
        return None
    resources = state.types.to_resources
    leaving = {t: min(amount, queue.preempting[t]) for t, amount in over.items() if queue.preempting[t]}
    rest = {t: net_usage(queue, t) - queue.max[t] for t in over if net_usage(queue, t) > queue.max[t]}
    return AboveMax(
        queue.path,
        overuse.since_ns,
        resources(over),
        resources(leaving),
        enforcement.armed.get(queue),
        _describe_course(state, queue, overuse, rest),
        tuple(_find_protections(state, queue, overuse, rest)),
    )


def _describe_course(state: PartitionState, queue: Queue, overuse: Overuse, rest: Amounts) -> str:
    """Returns a text about what is done about a queue above its max."""
    enforcement = state.enforcement
    if enforcement.run is not None and enforcement.run.queue is queue:
        return "it is being enforced"
    if not rest:
        stuck = sum(victim.preempted and queue in victim.queue.lineage() for victim in state.stuck)
        return f"{format_count(stuck, 'victim does', 'victims do')} not leave" if stuck else "victims are leaving"
    if switch := switched_off_by(state, queue):
        return f"nothing is preempted: {switch}"
    if queue in enforcement.armed:
        again = "its delay began again when the core was restarted; " if overuse.began_again else ""
        return f"{again}it is to be enforced"
    if overuse.rest is not None:
        return "it was enforced as far as the laws allow, and is tried again when that changes"
    if overuse.reached is Outcome.BEST_EFFORT:
        return "it was enforced; the rest is within its quota.preemption.miss"
    return "it is not enforced until its max or its delay changes"


def switched_off_by(state: PartitionState, queue: Queue) -> str:
    """Returns the setting that keeps the max of *queue* from ever being enforced; empty: none does."""
    if not state.preemption.quota_enabled:
        return "quotapreemptionenabled is off"
    if not queue.properties.quota_preemption_delay_ns:
        return "it has no quota.preemption.delay"
    if not queue.managed:
        return "it is not in the configuration"
    return ""


def _find_protections(state: PartitionState, queue: Queue, overuse: Overuse, rest: Amounts) -> Iterator[str]:
    """Yields what protects the amounts above the max: as found by the last run, or before any run the guarantees above
    the queue."""
    if not rest:
        return
    if overuse.rest is not None:
        yield from (say_protection(state, protection) for protection in overuse.rest.protected)
        return
    for t, amount in rest.items():
        for level in queue.lineage():
            guaranteed = level.guaranteed.get(t)
            if guaranteed is not None and net_usage(level, t) - amount < guaranteed:
                yield say_protection(state, Protection(ProtectedBy.GUARANTEE, t, amount, level, t, guaranteed))
                break
