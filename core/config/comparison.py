"""Compares two configurations of the same partitions, queue by queue.

A new text usually differs from the old one in a few queues. :func:`share_equal_parts` makes equal parts of both the
same objects, so that applying the change can skip whole subtrees by identity (protocol.md 5.4).
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from kornel.core.config.model import Configuration, PartitionConfig, QueueConfig

own_settings: Final[Any] = attrgetter(*(item.name for item in fields(QueueConfig) if item.name != "children"))
"""Returns all settings of a queue except its children, as one comparable value."""


def share_equal_parts(new: Configuration, old: Configuration | None) -> Configuration:
    """Returns *new* with every queue that is equal to one of *old* replaced by that one."""
    if old is None:
        return new
    before = {partition.name: partition for partition in old.partitions}
    partitions = tuple(_share_partition(partition, before.get(partition.name)) for partition in new.partitions)
    return replace(new, partitions=partitions)


def _share_partition(new: PartitionConfig, old: PartitionConfig | None) -> PartitionConfig:
    return new if old is None else replace(new, root=_share_queue(new.root, old.root))


def _share_queue(new: QueueConfig, old: QueueConfig) -> QueueConfig:
    if new is old:
        return old
    before = {child.name: child for child in old.children}
    children = tuple(
        _share_queue(child, before[child.name]) if child.name in before else child for child in new.children
    )
    same = len(children) == len(old.children) and all(a is b for a, b in zip(children, old.children, strict=True))
    if same and own_settings(new) == own_settings(old):
        return old
    as_it_is = all(a is b for a, b in zip(children, new.children, strict=True))
    return new if as_it_is else replace(new, children=children)
