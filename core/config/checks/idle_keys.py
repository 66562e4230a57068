"""Warns of keys that are valid but have no effect where they are written, and says why.

Otherwise the owner of a configuration that only seems to protect or enforce something would find that out on the day it
matters. Rules: preemption.md D.2, G and H.
"""

from __future__ import annotations

from kornel.core.config.keys.declared import DeclaredPartition, DeclaredQueue
from kornel.core.config.keys.properties import (
    MAX_WAIT,
    MIN_RUNTIME,
    MIN_RUNTIME_MOST,
    PREEMPT_WITHIN,
    PREEMPT_WITHIN_GAP,
    PREEMPTION_DELAY,
    PREEMPTION_POLICY,
    PRIORITY_POLICY,
    QUOTA_DELAY,
    QUOTA_MISS,
    QUOTA_TIMER,
    SORT_BY_PRIORITY,
    quota_delay_ns,
    resolve_properties,
)
from kornel.core.domain.settings import PreemptionPolicyKind, PreemptWithin, PriorityPolicy


def warn_of_idle_keys(partition: DeclaredPartition, root: DeclaredQueue) -> None:
    """Warn of every key of *partition* that has no effect."""
    guarded = any(map(_sets_run_times, root.walk_queues()))
    for queue in root.walk_queues():
        _warn_of_delay(queue, enabled=partition.preemption.quota_enabled)
        _warn_of_terms(queue)
        _warn_of_template(queue)
        _warn_of_fence(queue)
        _check_within(queue)
        _warn_of_run_times(queue, guarded=guarded)
        idle = PREEMPTION_DELAY in queue.properties and not partition.preemption.enabled
        if idle and not any(PREEMPT_WITHIN in below.effective for below in queue.walk_queues()):
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


def _check_within(queue: DeclaredQueue) -> None:
    """Refuses preemption within a leaf by priority where priorities do not count there, and warns where it never
    happens. Dynamic leaves are judged by what their parent hands on and their template says."""
    settings = dict(queue.effective)
    if queue.template is not None and queue.parent:
        settings |= queue.template.properties
    if queue.children or not (PREEMPT_WITHIN in settings or PREEMPT_WITHIN_GAP in settings):
        return
    found, fields = resolve_properties(settings, leaf=True), queue.property_fields
    if found.preempt_within is PreemptWithin.NONE:
        if PREEMPT_WITHIN_GAP in fields:
            expected = f"{PREEMPT_WITHIN}: priority"
            fields[PREEMPT_WITHIN_GAP].warning(f"no effect: queue {queue.path} does not preempt within it", expected)
        return
    at = fields.get(PREEMPT_WITHIN) or queue.at
    if not found.sort_by_priority:
        text = f"{PREEMPT_WITHIN} {found.preempt_within} in queue {queue.path} needs {SORT_BY_PRIORITY} enabled"
        at.error(text, f"{SORT_BY_PRIORITY}: enabled, or {PREEMPT_WITHIN}: none")
    elif found.preemption_policy is PreemptionPolicyKind.DISABLED:
        at.warning(f"no effect of {PREEMPT_WITHIN} in queue {queue.path}: {PREEMPTION_POLICY} is disabled there")


def _sets_run_times(queue: DeclaredQueue) -> bool:
    """Tells whether *queue*, or its template, states a minimum run time."""
    given = (queue.properties, {} if queue.template is None else queue.template.properties)
    return any(key in properties for key in (MIN_RUNTIME, MIN_RUNTIME_MOST) for properties in given)


def _warn_of_run_times(queue: DeclaredQueue, *, guarded: bool) -> None:
    """Warns of a longest minimum run time that lengthens nothing, and of one to be respected that no queue has;
    *guarded*: some queue has one."""
    most = queue.property_fields.get(MIN_RUNTIME_MOST)
    if most is not None:
        least_ns = resolve_properties({**queue.effective, MIN_RUNTIME: "0"}, leaf=False).min_runtime_most_ns
        if 0 < least_ns <= resolve_properties(queue.effective, leaf=False).min_runtime_ns:
            most.warning(f"no effect: tasks of queue {queue.path} are protected for as long already")
    if MAX_WAIT in queue.properties and not guarded:
        expected = f"{MIN_RUNTIME} in some queue"
        queue.property_fields[MAX_WAIT].warning("no effect: no queue has a minimum run time", expected)


def _warn_of_root(root: DeclaredQueue) -> None:
    """Warns of a fence at the root, because nothing is outside of it."""
    for key, fence in ((PREEMPTION_POLICY, PreemptionPolicyKind.FENCE), (PRIORITY_POLICY, PriorityPolicy.FENCE)):
        if root.properties.get(key, "").lower() == fence.value:
            root.property_fields[key].warning(f"no effect: {key} {fence.value} on the root fences nothing off")
