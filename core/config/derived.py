"""The guarantees that the periodic monitor derives for queues that declare none, in words (preemption.md E.3).

A level counts at least what its children declare; of what a queue is owed and its children do not declare, those
without a guarantee have a share. Said by ``kornel config check``; nothing here is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kornel.core.config.model import Configuration, PartitionConfig, QueueConfig
from kornel.core.preemption.registry import KINDS

_Amounts = Mapping[str, int]


def derived_guarantees(configuration: Configuration) -> list[str]:
    """Returns one sentence for each queue with a derived guarantee, in partitions whose monitor is on."""
    return [line for partition in configuration.partitions if _is_on(partition) for line in _of_partition(partition)]


def _is_on(partition: PartitionConfig) -> bool:
    sections = partition.preemption.sections
    return any(kind.keys.derives and sections.get(kind.name, {}).get(kind.keys.switch) for kind in KINDS)


def _of_partition(partition: PartitionConfig) -> Iterator[str]:
    for child in partition.root.children:
        yield from _of_queue(child, partition.root.name, {})


def _of_queue(queue: QueueConfig, above: str, shared: Mapping[str, tuple[str, list[str]]]) -> Iterator[str]:
    """Yields remarks on *queue* and those below. *shared*: by type, whose guarantee is shared out here, and by which
    queues."""
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
    """Returns what *queue* guarantees, and for other types what its children are guaranteed."""
    owed: dict[str, int] = {}
    for child in queue.children:
        for name, amount in _owed_amounts(child).items():
            owed[name] = owed.get(name, 0) + amount
    return {**owed, **(queue.guaranteed or {})}
