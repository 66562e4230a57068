"""Checks guaranteed and maximum amounts over the queue tree (V31 to V34, V60), and warns about quota delays.

Types are checked one by one. If a queue guarantees fewer types than its children, the guarantees of the children count
on the levels above as well (B13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kornel.core.config.keys.declared import Amounts, DeclaredPartition, DeclaredQueue
from kornel.core.config.keys.properties import (
    PREEMPTION_DELAY,
    PREEMPTION_POLICY,
    PRIORITY_OFFSET,
    PRIORITY_POLICY,
    QUOTA_DELAY,
    quota_delay_ns,
)
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.resources import MAX_TYPES
from kornel.shared.readable_amounts import write_quantity

_FOREIGN_TO_QUOTA: Final = (PREEMPTION_POLICY, PREEMPTION_DELAY, PRIORITY_POLICY, PRIORITY_OFFSET)

Ceilings = Mapping[str, tuple[int, str]]
"""The lowest maximum on the path so far, and the queue that sets it, by resource type."""


def check_types(partition: DeclaredPartition, root: DeclaredQueue) -> None:
    """Report the first resource type beyond the limit of a partition."""
    governor = partition.preemption.governor
    known = set(partition.node_sort.weights)
    for budget in (governor.cluster, governor.queue, governor.application):
        known.update(budget.lost)
    if len(known) > MAX_TYPES:
        partition.name_field.error(
            f"partition {shorten_text(partition.name)} weighs and bounds {len(known)} resource types",
            f"at most {MAX_TYPES} in one partition",
        )
        return
    for queue in root.walk_queues():
        for amounts in amounts_of(queue):
            new = [name for name in amounts.values if name not in known]
            known.update(new)
            if len(known) > MAX_TYPES:
                beyond = new[MAX_TYPES - len(known)]
                amounts.fields[beyond].error(
                    f"queue {queue.path}: {shorten_text(beyond)} is one resource type too many",
                    f"at most {MAX_TYPES} in one partition",
                )
                return


def amounts_of(queue: DeclaredQueue) -> Iterator[Amounts]:
    """Yields all amounts that *queue* declares."""
    template = queue.template
    found = [queue.guaranteed, queue.max, *(limit.max_resources for limit in queue.limits)]
    if template is not None:
        found += [template.guaranteed, template.max]
    return (amounts for amounts in found if amounts is not None)


def check_resources(root: DeclaredQueue, *, owed: bool) -> None:
    """Report contradictions between the amounts below *root*. *owed*: tasks leave for guarantees."""
    _check_queue(root, {}, owed)
    _check_applications(root, 0, "")


def _check_queue(queue: DeclaredQueue, above: Ceilings, owed: bool) -> dict[str, int]:
    """Returns the amounts that the queue's parent has to guarantee for it."""
    guaranteed, maximum = _values(queue.guaranteed), _values(queue.max)
    if queue.guaranteed is not None:
        for name, amount in guaranteed.items():
            if name in maximum and amount > maximum[name]:
                own, most = (write_quantity(name, each) for each in (amount, maximum[name]))
                message = f"queue {queue.path}: guaranteed {name} {own} is above its max {most}"
                queue.guaranteed.fields[name].error(message, f"at most {most}")
    ceilings = dict(above)
    if queue.max is not None:
        for name, amount in maximum.items():
            if name not in above or amount < above[name][0]:
                ceilings[name] = (amount, queue.path)
            elif amount > above[name][0]:
                own, least = (write_quantity(name, each) for each in (amount, above[name][0]))
                message = f"queue {queue.path}: max {name} {own} is above the max {least} of {above[name][1]}"
                queue.max.fields[name].error(message, f"at most {least}")
    needed = _check_sum(queue, guaranteed, ceilings, owed)
    _warn_of_quota_delay(queue, needed, maximum)
    return needed


def _check_sum(queue: DeclaredQueue, guaranteed: Mapping[str, int], ceilings: Ceilings, owed: bool) -> dict[str, int]:
    needed = dict(guaranteed)
    total: dict[str, int] = {}
    below_it = [_check_queue(child, ceilings, owed) for child in queue.children]
    for needs in below_it:
        for name, amount in needs.items():
            total[name] = total.get(name, 0) + amount
    for name, amount in total.items():
        added = write_quantity(name, amount)
        below = f"the queues below {queue.path} have {name} {added} guaranteed"
        if queue.guaranteed is not None and name in guaranteed and amount > guaranteed[name]:
            own = write_quantity(name, guaranteed[name])
            queue.guaranteed.fields[name].error(f"{below}, more than its own {own}", f"at least {added}, or less below")
            continue
        left = guaranteed.get(name, amount) - amount
        if owed and left > (left + amount) // 100 and all(name in needs for needs in below_it):
            assert queue.guaranteed is not None, "it guarantees this type"
            queue.guaranteed.fields[name].warning(
                f"{below}, and nobody leaves for more than that; they get the remaining {write_quantity(name, left)}"
                f" that {queue.path} guarantees only where it is free",
                "a child without a guarantee of this type, or more below",
            )
        needed.setdefault(name, amount)
        if name in ceilings and amount > ceilings[name][0]:
            needed[name], setter = ceilings[name]  # It is reported here; the levels above would only repeat it.
            most = write_quantity(name, needed[name])
            queue.at.error(f"{below}, more than the max {most} of {setter}", f"at most {most} below")
    return needed


def _warn_of_quota_delay(queue: DeclaredQueue, needed: Mapping[str, int], maximum: Mapping[str, int]) -> None:
    """Warn of the combinations that preemption.md D.3 and H accept with a warning.

    *needed*: the queue's guarantee, or the sum of those below for types without one.
    """
    if queue.is_root or quota_delay_ns(queue.effective.get(QUOTA_DELAY, "")) == 0:
        return
    equal = [name for name, amount in maximum.items() if needed.get(name) == amount and amount]
    if equal and queue.max is not None:
        own = queue.guaranteed is not None and all(name in queue.guaranteed.values for name in equal)
        whose = "guaranteed" if own else "what is guaranteed below it"
        queue.max.at.warning(
            f"queue {queue.path}: max equals {whose} for {', '.join(equal)}, so a lowered max can be enforced "
            "by preemption only as far as guarantees allow"
        )
    foreign = [key for key in _FOREIGN_TO_QUOTA if key in queue.properties]
    if foreign:
        queue.property_fields[foreign[0]].warning(
            f"queue {queue.path} also has a {QUOTA_DELAY}: {', '.join(foreign)} play no part in enforcing its max"
        )


def _check_applications(queue: DeclaredQueue, bound: int, setter: str) -> None:
    """Checks the limit on applications; a queue without one is only bounded by the queues above it (V60, B25)."""
    own = queue.max_applications
    if own and bound and own > bound and queue.max_applications_field is not None:
        message = f"queue {queue.path}: maxapplications {own} is above the {bound} of {setter}"
        queue.max_applications_field.error(message, f"at most {bound}")
    if own and (not bound or own < bound):
        bound, setter = own, queue.path
    for child in queue.children:
        _check_applications(child, bound, setter)


def _values(amounts: Amounts | None) -> Mapping[str, int]:
    return {} if amounts is None else amounts.values
