"""In which racks a task may stand whose group requires one (docs/topology.md, "The choice"; preemption.md B.7).

Everybody of one application and task group who requires a rack is one group. A rack with an empty name is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.oracles.claims.scene import Claim, Scene, Task


def members_of(scene: Scene, task: Task) -> tuple[list[Task], dict[str, str]]:
    """Returns of the group of *task* who waits, *task* itself included, and the nodes of those who run, by key."""

    def belongs(other: Task) -> bool:
        return task.in_rack and other.in_rack and (other.application, other.group) == (task.application, task.group)

    waits = [other for other in scene.waiting.values() if belongs(other)]
    return waits, {key: node for key, (other, node) in scene.running.items() if belongs(other)}


def racks_of(scene: Scene, nodes: Collection[str]) -> set[str]:
    """Returns the racks of *nodes*; of one that is gone, or in no rack, an empty name."""
    return {scene.nodes[name].rack if name in scene.nodes else "" for name in nodes}


def nodes_by_rack(scene: Scene) -> Iterator[tuple[str, list[str]]]:
    """Yields each rack with the names of its nodes."""
    for rack in sorted(racks_of(scene, scene.nodes) - {""}):
        yield rack, [name for name, node in scene.nodes.items() if node.rack == rack]


def claims_of_others(scene: Scene, task: Task) -> list[Claim]:
    """Returns what others of the group of *task* claim on nodes, if it requires a rack."""
    waits, _ = members_of(scene, task)
    return scene.claims_of(other for other in waits if other.key != task.key)
