"""Describes the guarantees that the periodic monitor derives for queues that declare none (preemption.md E.3).

A queue has at least the sum of what its children declare. The part of its guarantee that its children do not declare is
shared among the children without a guarantee. ``kornel config check`` prints these sentences, which are no warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kornel.core.config.model import Configuration, PartitionConfig, QueueConfig
from kornel.core.domain.preemption_kinds import KINDS

_Amounts = Mapping[str, int]


def derived_guarantees(configuration: Configuration) -> list[str]:
    """Returns one sentence for each queue with a derived guarantee, in partitions where the monitor is on."""
    return [line for partition in configuration.partitions if _is_on(partition) for line in _of_partition(partition)]


def _is_on(partition: PartitionConfig) -> bool:
    sections = partition.preemption.sections
    return any(kind.derives and sections.get(kind.name, {}).get(kind.switch) for kind in KINDS)


def _of_partition(partition: PartitionConfig) -> Iterator[str]:
    for child in partition.root.children:
        yield from _of_queue(child, partition.root.name, {})


def _of_queue(queue: QueueConfig, above: str, shared: Mapping[str, tuple[str, list[str]]]) -> Iterator[str]:
    """Yields the sentences about *queue* and all queues below it. *shared*: by type, the queue whose guarantee is
    shared here, and the queues that share it."""
    path = f"{above}.{queue.name}"
    declared, own = queue.guaranteed or {}, _owed_amounts(queue)
    for name, amount in own.items():
        if name not in declared:
            yield f"{path}: guaranteed {name} {amount}, which is what the queues below it declare"
    for name, (giver, members) in shared.items():
        if name not in declared:
            others = ", ".join(member for member in members if member != path)
            beside = f" with {others}" if others else ""
            yield f"{path}: has a share of what {giver} is guaranteed of {name} and no queue below it declares{beside}"
    given: dict[str, tuple[str, list[str]]] = {}
    for name in dict.fromkeys((*own, *shared)):
        below = [child for child in queue.children if name not in (child.guaranteed or {})]
        total = sum(_owed_amounts(child).get(name, 0) for child in queue.children)
        if below and (name in shared or own.get(name, 0) > total):
            giver = path if name in declared else shared.get(name, (path, []))[0]
            given[name] = (giver, [f"{path}.{child.name}" for child in below])
    for child in queue.children:
        yield from _of_queue(child, path, given)


def _owed_amounts(queue: QueueConfig) -> _Amounts:
    """Returns the guarantee of *queue*; for types that it does not declare, the sum of its children's."""
    owed: dict[str, int] = {}
    for child in queue.children:
        for name, amount in _owed_amounts(child).items():
            owed[name] = owed.get(name, 0) + amount
    return {**owed, **(queue.guaranteed or {})}
