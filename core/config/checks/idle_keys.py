"""Warns of keys that are valid but have no effect where they are written, and says why.

Otherwise the owner of a configuration that only seems to protect or enforce something would find that out on the day it
matters. Rules: preemption.md D.2, G and H.
"""

from __future__ import annotations

from kornel.core.config.keys.declared import DeclaredPartition, DeclaredQueue
from kornel.core.config.keys.properties import (
    PREEMPTION_DELAY,
    PREEMPTION_POLICY,
    PRIORITY_POLICY,
    QUOTA_DELAY,
    QUOTA_MISS,
    QUOTA_TIMER,
    quota_delay_ns,
)
from kornel.core.domain.settings import PreemptionPolicyKind, PriorityPolicy


def warn_of_idle_keys(partition: DeclaredPartition, root: DeclaredQueue) -> None:
    """Warn of every key of *partition* that has no effect."""
    for queue in root.walk_queues():
        _warn_of_delay(queue, enabled=partition.preemption.quota_enabled)
        _warn_of_terms(queue)
        _warn_of_template(queue)
        _warn_of_fence(queue)
        if PREEMPTION_DELAY in queue.properties and not partition.preemption.enabled:
            queue.property_fields[PREEMPTION_DELAY].warning(
                "no effect: preemption for guarantees is off in this partition", "preemption: {enabled: true}"
            )
    _warn_of_root(root)


def _warn_of_delay(queue: DeclaredQueue, *, enabled: bool) -> None:
    """Warns of a delay that enforces no max."""
    if quota_delay_ns(queue.properties.get(QUOTA_DELAY, "")) == 0:
        return
    at = queue.property_fields[QUOTA_DELAY]
    reached = [queue] if queue.own_delay_only else list(queue.walk_queues())
    if not any(below.max is not None and below.max.values for below in reached):
        where = "it has no max" if queue.own_delay_only else "neither it nor a queue below has a max"
        at.warning(f"no effect: queue {queue.path} is never above a max, {where}")
    elif not enabled:
        at.warning(
            "no effect: lowered maxima are enforced only where the partition says so",
            "preemption: {quotapreemptionenabled: true}",
        )


def _warn_of_terms(queue: DeclaredQueue) -> None:
    """Warns of settings for the enforcement of a max that is never enforced."""
    for key in (QUOTA_TIMER, QUOTA_MISS):
        if key in queue.properties and not any(
            quota_delay_ns(below.effective.get(QUOTA_DELAY, "")) for below in queue.walk_queues()
        ):
            queue.property_fields[key].warning(
                f"no effect: neither queue {queue.path} nor one below has a {QUOTA_DELAY}", f"a {QUOTA_DELAY}"
            )


def _warn_of_template(queue: DeclaredQueue) -> None:
    template = queue.template
    if template is None or not queue.parent:
        return
    for key in (QUOTA_TIMER, QUOTA_MISS):
        if key in template.properties:
            template.at.warning(f"no effect of {key} in a template: quotas of dynamic queues are not enforced")


def _warn_of_fence(queue: DeclaredQueue) -> None:
    """Warns of a fence that keeps a leaf from what it is owed, where it was probably meant to protect the leaf."""
    fenced = queue.properties.get(PREEMPTION_POLICY, "").lower() == PreemptionPolicyKind.FENCE.value
    if fenced and not queue.parent and queue.guaranteed is not None and any(queue.guaranteed.values.values()):
        queue.property_fields[PREEMPTION_POLICY].warning(
            f"queue {queue.path} can never take its guarantee back from others: a fence on a leaf keeps its asks from"
            " preempting outside of it, and protects nobody",
            "disabled, which protects, or the fence on its parent, which confines",
        )


def _warn_of_root(root: DeclaredQueue) -> None:
    """Warns of a fence at the root, because nothing is outside of it."""
    for key, fence in ((PREEMPTION_POLICY, PreemptionPolicyKind.FENCE), (PRIORITY_POLICY, PriorityPolicy.FENCE)):
        if root.properties.get(key, "").lower() == fence.value:
            root.property_fields[key].warning(f"no effect: {key} {fence.value} on the root fences nothing off")
