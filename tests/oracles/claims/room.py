"""What of the nodes a waiter may have, beside what is claimed for others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tests.oracles.claims.domains import claims_of_others, members_of, nodes_by_rack, racks_of
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

    ``None``: there is no such choice. *saved*: as in :func:`open_on`. A unit that requires a rack has all its places in
    one. A single task stands in one of :func:`find_racks`, or where it saves itself: the first of a group starts where
    it saved room (B.7).
    """
    if not waiter.in_rack:
        return find_nodes(scene, waiter, saved, among or scene.nodes)
    if len(waiter.tasks) > 1:
        choices = [nodes for _, nodes in nodes_by_rack(scene)]
    else:
        racks = find_racks(scene, waiter.tasks[0], saved=saved)
        choices = [nodes for rack, nodes in nodes_by_rack(scene) if rack in racks]
        follows = members_of(scene, waiter.tasks[0])[1]
        choices += [[claim.node] for claim in scene.holds(waiter, firm=False) if claim.node and not follows]
    for nodes in choices:
        usable = [name for name in nodes if not among or name in among]
        found = find_nodes(scene, waiter, saved, usable)
        if found is not None:
            return found
    return None


def find_racks(scene: Scene, task: Task, *, saved: Collection[str] = ()) -> set[str]:
    """Returns the racks in which *task* may be placed now, beyond doubt.

    Those where others of its group run; if nobody does, those with room for all of the group that wait. Whether others
    of it with a firm claim decide that is not said, nor where it goes if one of them runs in no rack: then none.
    """
    waits, runs = members_of(scene, task)
    if runs:
        racks = racks_of(scene, runs.values())
        return set() if "" in racks else racks
    if any(claim.firm for claim in claims_of_others(scene, task)):
        return set()
    group = Waiter(tuple(waits))
    return {rack for rack, nodes in nodes_by_rack(scene) if find_nodes(scene, group, saved, nodes) is not None}


def find_nodes(scene: Scene, waiter: Waiter, saved: Collection[str], among: Collection[str]) -> dict[str, str] | None:
    """Returns one of the nodes *among* for each task of *waiter* as :func:`find_places` does, whatever their racks."""
    left = {(name, t): open_on(scene, name, t, waiter, saved=saved) for name in among for t in waiter.types()}
    tasks = sorted(waiter.tasks, key=lambda task: (-sum(task.amounts.values()), task.key))

    def place(at: int, chosen: dict[str, str]) -> dict[str, str] | None:
        if at == len(tasks):
            return chosen
        task = tasks[at]
        tried = set()
        for name in among:
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
