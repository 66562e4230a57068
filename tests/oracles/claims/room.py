"""What of the nodes a waiter may have, beside what is claimed for others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tests.oracles.claims.limits import is_kept
from tests.oracles.claims.scene import Scene, Task, Waiter


def is_usable(scene: Scene, task: Task, name: str) -> bool:
    """Tells whether *task* may run on the node at all: it is in service, and neither shim nor task excludes it."""
    node = scene.nodes.get(name)
    if node is None or name in task.refused or task.required_node not in ("", name):
        return False
    return not node.drained or task.required_node == name


def emptied(scene: Scene, gang: str = "", *, asks: bool = False) -> Scene:
    """Returns *scene* when all have ended but those that must run there and those of the application *gang*.

    With *asks*, those who wait and must run somewhere have their room, too.
    """
    stays = {k: v for k, v in scene.running.items() if v[0].required_node or v[0].application == gang}
    if asks:
        stays |= {key: (task, task.required_node) for key, task in scene.waiting.items() if task.required_node}
    return replace(scene, running=stays, claims=())


def free_on(scene: Scene, name: str, t: str) -> int:
    """Returns what is idle on the node."""
    node = scene.nodes[name]
    return node.capacity.get(t, 0) - node.foreign.get(t, 0) - scene.sum_running(t, lambda _, at: at == name)


def open_on(scene: Scene, name: str, t: str, waiter: Waiter, *, saved: Collection[str] = ()) -> int:
    """Returns, at the least, what *waiter* may have of *t* on the node now.

    Idle room without what others claim there firmly, apart from what their victims still hold, and without what is
    saved by those who keep *waiter* back (rule 3), or whose keys are in *saved*.
    """
    left = free_on(scene, name, t)
    for claim in scene.claims:
        if claim.node != name or claim.key in waiter.keys or claim.key not in scene.waiting:
            continue
        amount = scene.waiting[claim.key].amounts.get(t, 0)
        if claim.firm:
            own = scene.sum_running(t, lambda task, at: at == name and scene.leaving.get(task.key) == claim.key)  # noqa: B023
            left -= max(0, amount - own)
        elif claim.key in saved or is_kept(scene, claim, waiter):
            left -= amount
    return left


def find_places(
    scene: Scene, waiter: Waiter, *, saved: Collection[str] = (), among: Collection[str] = ()
) -> dict[str, str] | None:
    """Returns a node, *among* these if given, for each task of *waiter* in room that it may have now.

    ``None``: there is no such choice. *saved*: as in :func:`open_on`.
    """
    left = {(name, t): open_on(scene, name, t, waiter, saved=saved) for name in scene.nodes for t in waiter.types()}
    tasks = sorted(waiter.tasks, key=lambda task: (-sum(task.amounts.values()), task.key))

    def place(at: int, chosen: dict[str, str]) -> dict[str, str] | None:
        if at == len(tasks):
            return chosen
        task = tasks[at]
        tried = set()
        for name in among or scene.nodes:
            room = tuple(left[name, t] for t in waiter.types())
            if room in tried or not is_usable(scene, task, name):
                continue
            if any(amount and amount > left[name, t] for t, amount in task.amounts.items()):
                continue
            if not task.refused and not task.required_node:
                tried.add(room)
            for t, amount in task.amounts.items():
                left[name, t] -= amount
            found = place(at + 1, chosen | {task.key: name})
            if found is not None:
                return found
            for t, amount in task.amounts.items():
                left[name, t] += amount
        return None

    return place(0, {})
