"""A second reader of queue configurations, independent of the core's. The core is checked against the guarantees and
limits that it reads.

It does not judge the configuration: for a text that is not valid YAML it returns no queues, and the core refuses such a
text at registration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import yaml

from kornel.shared.quantities import parse_quantity

_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """A queue's own guarantee and limit in base units. A missing type has no guarantee or no limit."""

    guaranteed: Mapping[str, int] = field(default_factory=dict)
    maximum: Mapping[str, int] = field(default_factory=dict)


def read_queues(config: str) -> dict[str, QueueLimits]:
    """Returns the limits by full path of every queue of the default partition in *config*, parents first."""
    try:
        root = yaml.compose(config, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return {}
    found: dict[str, QueueLimits] = {}
    for partition in _list_entries(_find_entry(root, "partitions")):
        if (_text_of(_find_entry(partition, "name")) or "default").lower() != "default":
            continue
        top = list(_list_entries(_find_entry(partition, "queues")))
        if len(top) == 1 and _text_of(_find_entry(top[0], "name")).lower() == "root":
            _read_queue(top[0], "", found, 0)
        else:
            # A configuration may omit root; its queues are then the children of root.
            found["root"] = QueueLimits()
            for queue in top:
                _read_queue(queue, "root", found, 1)
        break
    return found


def ancestors(path: str) -> list[str]:
    """Returns *path* and the paths of all queues above it, lowest first."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def _read_queue(queue: yaml.Node, parent: str, found: dict[str, QueueLimits], depth: int) -> None:
    name = _text_of(_find_entry(queue, "name")).lower()
    if not name or depth > _DEEPEST:
        return
    path = f"{parent}.{name}" if parent else name
    resources = _find_entry(queue, "resources")
    found[path] = QueueLimits(
        _read_amounts(_find_entry(resources, "guaranteed")), _read_amounts(_find_entry(resources, "max"))
    )
    for child in _list_entries(_find_entry(queue, "queues")):
        _read_queue(child, path, found, depth + 1)


def _read_amounts(node: yaml.Node | None) -> dict[str, int]:
    found = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            try:
                found[_text_of(key)] = parse_quantity(_text_of(key), _text_of(value))
            except ValueError:
                return {}
    return found


def _find_entry(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            if _text_of(key_node) == key and isinstance(value, yaml.Node):
                return value
    return None


def _list_entries(node: yaml.Node | None) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value


def _text_of(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
