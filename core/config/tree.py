"""Builds one tree below ``root`` from the listed queues, with paths and inherited properties (V2 to V7, V10)."""

from __future__ import annotations

from typing import Final

from kornel.core.config.keys import properties
from kornel.core.config.keys.declared import DeclaredPartition, DeclaredQueue
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.names import QUEUE_NAME, RECOVERY_QUEUE, is_queue_name

ROOT: Final = "root"


def build_tree(partition: DeclaredPartition) -> DeclaredQueue:
    """Returns the root queue, with the paths and properties of all queues below it. Problems go to the log.

    If there is one top queue and it is called root (in any case), it is the root. Otherwise a root is put above all top
    queues, even if one of them is called root (V3).
    """
    queues = partition.queues
    if not partition.queues_field.given:
        partition.at.error(f"partition {shorten_text(partition.name)} has no queues", "a list of queues")
    if len(queues) == 1 and queues[0].name == ROOT:
        root = queues[0]
    else:
        root = DeclaredQueue(partition.queues_field, ROOT, partition.queues_field, parent=True, children=queues)
    root.parent = True
    _check_root_resources(root)
    _adopt_limits(partition, root)
    _settle_queue(root, ROOT, {})
    return root


def _check_root_resources(root: DeclaredQueue) -> None:
    for amounts in (root.guaranteed, root.max):
        if amounts is not None:
            amounts.at.error("the root queue takes no resources: it has those of the cluster", "no such key")
    root.guaranteed = root.max = None


def _adopt_limits(partition: DeclaredPartition, root: DeclaredQueue) -> None:
    """Give the root the partition's limits, which are another way to write its own (V10)."""
    if not partition.limits:
        return
    if not root.limits:
        root.limits, root.limits_field = partition.limits, partition.limits_field
    elif [limit.values for limit in partition.limits] != [limit.values for limit in root.limits]:
        partition.limits_field.error(
            "the limits of the partition differ from those of its root queue",
            "one of the two, or the same limits in the same order",
        )


def _settle_queue(queue: DeclaredQueue, path: str, passed_on: dict[str, str]) -> None:
    queue.path = path
    queue.effective = {**passed_on, **queue.properties}
    if queue.template is not None and not queue.parent:
        queue.template.at.warning(f"ignored: queue {shorten_text(path)} is a leaf and has no children")
    to_children = properties.inherited_properties(queue.effective)
    if queue.own_delay_only:
        to_children.pop(properties.QUOTA_DELAY, None)
        if properties.QUOTA_DELAY in passed_on:
            to_children[properties.QUOTA_DELAY] = passed_on[properties.QUOTA_DELAY]
    seen: dict[str, DeclaredQueue] = {}
    for child in queue.children:
        _check_name(child, path, seen)
        seen.setdefault(child.name, child)
        _settle_queue(child, f"{path}.{child.name}", to_children)


def _check_name(queue: DeclaredQueue, above: str, siblings: dict[str, DeclaredQueue]) -> None:
    where = queue.name_field
    if not is_queue_name(queue.name):
        where.error(f"queue name {shorten_text(queue.name)} below {shorten_text(above)} is not valid", QUEUE_NAME)
    elif queue.name == RECOVERY_QUEUE:
        where.error(f"queue name {queue.name!r} is reserved for recovered applications", "another name")
    elif queue.name in siblings:
        first = siblings[queue.name].name_field.line
        where.error(f"{shorten_text(above)} has a queue {queue.name!r} already, on line {first}", "a name of its own")
