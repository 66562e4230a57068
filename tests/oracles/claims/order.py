"""Who comes before whom, and who is owed a guarantee."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracles.claims import built
from tests.oracles.claims.scene import Scene, Task, Waiter
from tests.oracles.rules.world import ancestors, below, is_inside, lowest_common

LOWEST, HIGHEST = -(2**31), 2**31 - 1


def priority_at(scene: Scene, waiter: Waiter, above: str) -> int:
    """Returns the priority of *waiter* at the child of *above* that it is in, with offsets and fences, clamped (G)."""
    value = waiter.priority
    for path in below(scene.leaf(waiter.application), above):
        queue = scene.queues[path]
        value = queue.offset if queue.fence else max(LOWEST, min(HIGHEST, value + queue.offset))
    return value


def priorities(scene: Scene, one: Waiter, other: Waiter) -> tuple[int, int] | None:
    """Returns both priorities where they meet; ``None``: priority plays no part between them (rule 4)."""
    common = _meet(scene, one, other)
    if not scene.queues[common].by_priority and one.application != other.application:
        return None
    return priority_at(scene, one, common), priority_at(scene, other, common)


def comes_before(scene: Scene, one: Waiter, other: Waiter) -> bool:
    """Tells whether *one* comes before *other* by their own priorities (rule 4)."""
    met = priorities(scene, one, other)
    return met is not None and met[0] > met[1]


def shown_from_root(scene: Scene, waiter: Waiter) -> list[int]:
    """Returns the priorities that *waiter* has at the queues of its path, root first, 0 where they do not count, and
    for levels that its leaf does not have."""
    path = list(reversed(ancestors(scene.leaf(waiter.application))))
    shown = [priority_at(scene, waiter, above) if scene.queues[above].by_priority else 0 for above in path]
    return shown + [0] * (max(path.count(".") for path in scene.queues) + 1 - len(shown))


def repairs_first(scene: Scene, one: Waiter, other: Waiter) -> bool:
    """Tells whether *one* repairs a gang and so comes before *other* of the same priority (rule 7). A fence between
    them hides that a gang is repaired."""
    if not built.MEMBERS_REPAIR:
        return False
    met, common = priorities(scene, one, other), _meet(scene, one, other)
    same = met is not None and met[0] == met[1]
    shown, shown_too = [
        waiter.repairs and not any(scene.queues[path].fence for path in below(scene.leaf(waiter.application), common))
        for waiter in (one, other)
    ]
    return same and shown and not shown_too and not (is_owed(scene, other) and not is_owed(scene, one))


def ignores_priorities(scene: Scene, one: Waiter, other: Waiter) -> bool:
    """Tells whether below the place where the two meet a queue of *other* ignores priorities.

    The words leave open whether *other* may then go on the rank of a more important task of its queue.
    """
    leaf = scene.leaf(other.application)
    return any(not scene.queues[path].by_priority for path in below(leaf, _meet(scene, one, other)))


def _meet(scene: Scene, one: Waiter, other: Waiter) -> str:
    return lowest_common(scene.leaf(one.application), scene.leaf(other.application))


def entitlements(scene: Scene, waiter: Waiter) -> dict[str, str]:
    """Returns by asked type the lowest queue on the path that guarantees it, where there is one (E of law 4)."""
    found: dict[str, str] = {}
    for t in waiter.types():
        for path in ancestors(scene.leaf(waiter.application)):
            if scene.queues[path].guaranteed.get(t):
                found[t] = path
                break
    return found


def is_owed(scene: Scene, waiter: Waiter) -> bool:
    """Tells whether *waiter* passes law 4 by the declared guarantees, without a swap; a gang as one ask (B.11)."""
    entitled = entitlements(scene, waiter)
    for t, path in entitled.items():
        guaranteed, asked = scene.queues[path].guaranteed[t], waiter.amount(t)
        inside = scene.inside(path)
        net = scene.sum_running(t, lambda task, at: task.key not in scene.leaving and inside(task, at))  # noqa: B023
        held = net + scene.claimed(t, lambda task: inside(task, ""), but=waiter.keys)  # noqa: B023
        whole = scene.strict or len(waiter.tasks) > 1
        if asked > guaranteed or (held + asked > guaranteed if whole else held >= guaranteed):
            return False
    return bool(entitled)


def is_owed_against(scene: Scene, waiter: Waiter, holder: Waiter) -> bool:
    """Tells whether *waiter* is owed his guarantee by queues that *holder* is not in, and *holder* is owed none."""
    if not is_owed(scene, waiter) or is_owed(scene, holder) or holder.required:
        return False
    leaf = scene.leaf(holder.application)
    return not any(is_inside(leaf, path) for path in entitlements(scene, waiter).values())


def keeps_back(scene: Scene, holder: Waiter, waiter: Waiter) -> str:
    """Returns why what *holder* saves does not keep *waiter* back (rule 3), or nothing if it does.

    That the holder must run there keeps only those back who are owed their guarantee.
    """
    if comes_before(scene, waiter, holder):
        return "priority"
    if repairs_first(scene, waiter, holder):
        return "repair"
    return "guarantee" if is_owed_against(scene, waiter, holder) else ""


def standing(scene: Scene, path: str) -> set[bool]:
    """Returns for the types that *path* is guaranteed whether used + firmly claimed is below that (rule 4)."""
    inside = scene.inside(path)
    return {
        scene.sum_running(t, inside) + scene.claimed(t, lambda task: inside(task, "")) < amount
        for t, amount in guarantee_of(scene, path).items()
    }


def may_have_less(scene: Scene, one: Waiter, other: Waiter) -> bool:
    """Tells whether the queue of *one* may have a smaller share than that of *other*, below the queue where they meet.

    What is firmly claimed counts only against *other*: it may have gone since.
    """
    common = _meet(scene, one, other)
    if common in (scene.leaf(one.application), scene.leaf(other.application)):
        return False
    ours, theirs = [below(scene.leaf(waiter.application), common)[-1] for waiter in (one, other)]
    return share_of(scene, ours, scene.sum_running) < share_of(
        scene, theirs, lambda t, inside: scene.sum_running(t, inside) + scene.claimed(t, lambda task: inside(task, ""))
    )


def share_of(scene: Scene, path: str, sum_up: Callable[[str, Callable[[Task, str], bool]], int]) -> float:
    """Returns the fair share of the queue *path* (scheduling.md 2.5), of what *sum_up* counts as used."""
    inside, counted = scene.inside(path), guarantee_of(scene, path)
    pending = {t for task in scene.waiting.values() if inside(task, "") for t, amount in task.amounts.items() if amount}
    guaranteed = bool(pending & counted.keys())
    most = {t: sum(node.capacity.get(t, 0) for node in scene.nodes.values()) for t in scene.types()}
    for queue in reversed(ancestors(path)):
        most |= scene.queues[queue].maximum
    ratios = [0.0]
    for t in most:
        of = counted[t] if guaranteed and t in counted else most[t]
        used = sum_up(t, inside)
        ratios += [used / of if of > 0 else 1.0] if used > 0 else []
    return max(ratios) + (not guaranteed)


def guarantee_of(scene: Scene, path: str) -> dict[str, int]:
    """Returns by type what *path* declares; if that is nothing, the sum of what its children declare, theirs likewise.

    Whether a queue that declares a guarantee of one type has one of the others, too, is not said: it counts.
    """
    total: dict[str, int] = {}
    for child in scene.queues:
        if child.rpartition(".")[0] == path:
            for t, amount in guarantee_of(scene, child).items():
                total[t] = total.get(t, 0) + amount
    return total | {t: amount for t, amount in scene.queues[path].guaranteed.items() if amount}
