"""What keeps an ask back that is not room: maxes, limits of users, groups and applications, and `stateaware`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from tests.oracles.claims.order import keeps_back
from tests.oracles.claims.scene import Claim, Scene, Waiter
from tests.oracles.plain_limits import WrittenLimit
from tests.oracles.rules.world import Amounts, ancestors, is_inside


@dataclass(frozen=True)
class Bound:
    """One limit on a path, with a test for the applications that it counts."""

    name: str
    path: str
    most: Amounts
    applications: int
    counts: Callable[[str], bool]
    of_queue: bool


def bounds(scene: Scene, application: str) -> list[Bound]:
    """Returns all limits that bind *application*, those of the leaf first; root's own max is none."""
    what = f"bounds of {application}"
    if what not in scene.known:
        scene.known[what] = list(_find_bounds(scene, application))
    found: list[Bound] = scene.known[what]
    return found


def _find_bounds(scene: Scene, application: str) -> Iterator[Bound]:
    known, group = scene.applications[application], scene.chosen_group(application)

    def below(path: str, **same: str | None) -> Callable[[str], bool]:
        def counts(name: str) -> bool:
            other = scene.applications[name]
            return (
                is_inside(other.queue, path)
                and same.get("user", other.user) == other.user
                and ("group" not in same or scene.chosen_group(name) == same["group"])
            )

        return counts

    for path in ancestors(known.queue):
        queue = scene.queues[path]
        yield Bound(f"max of {path}", path, queue.maximum, queue.applications, below(path), of_queue=True)
        mine = _first(queue.limits, lambda limit: known.user in limit.users) or _first(
            queue.limits, lambda limit: "*" in limit.users
        )
        if mine:
            name = f"limit of user {known.user} at {path}"
            yield Bound(name, path, mine.most, mine.applications, below(path, user=known.user), of_queue=False)
        ours = _first(queue.limits, lambda limit: group in limit.groups) if group else None
        if ours:
            name = f"limit of group {group} at {path}"
            yield Bound(name, path, ours.most, ours.applications, below(path, group=group), of_queue=False)


def _first(limits: Collection[WrittenLimit], fits: Callable[[WrittenLimit], bool]) -> WrittenLimit | None:
    return next((limit for limit in limits if fits(limit)), None)


def used_below(scene: Scene, bound: Bound, t: str, waiter: Waiter, *, doubt: bool, gone: Collection[str] = ()) -> int:
    """Returns what counts as used below *bound* for *waiter*: what runs, and what others claimed firmly (rule 1).

    Whether what leaves for a claim counts beside it is not said: with *doubt* both count, else the larger. *gone*:
    tasks taken to have left.
    """

    def runs(task_key: str, application: str) -> bool:
        return task_key not in gone and bound.counts(application)

    used = scene.sum_running(t, lambda task, _: runs(task.key, task.application))
    stays = scene.sum_running(t, lambda task, _: task.key not in scene.leaving and runs(task.key, task.application))
    firm = scene.claimed(t, lambda task: bound.counts(task.application), but=waiter.keys, doubt=doubt)
    return used + firm if doubt else max(used, stays + firm)


def saved_below(scene: Scene, bound: Bound, t: str, waiter: Waiter) -> int:
    """Returns what others save of *t* below *bound* and keep *waiter* back from (rule 3)."""
    if scene.holds(waiter, firm=True):
        return 0
    kept = [
        claim
        for claim in scene.claims
        if claim.below == bound.name and claim.key not in waiter.keys and is_kept(scene, claim, waiter)
    ]
    # One claim stands for all members of a gang. Those placed since hold nothing there any more.
    holders = [
        scene.holder(claim) or Waiter((scene.waiting[claim.key],)) for claim in kept if claim.key in scene.waiting
    ]
    return sum(holder.amount(t) for holder in holders)


def is_kept(scene: Scene, claim: Claim, waiter: Waiter) -> bool:
    """Tells whether *claim* keeps *waiter* back: a firm one does, a saved one as rule 3 says."""
    holder = scene.holder(claim)
    return claim.firm or holder is None or not keeps_back(scene, holder, waiter)


def amounts_refused(scene: Scene, waiter: Waiter, *, doubt: bool, gone: Collection[str] = ()) -> list[Bound]:
    """Returns the maxes and limits whose amounts do not admit all of *waiter* now. With *doubt*: that might not."""
    return [
        bound
        for bound in bounds(scene, waiter.application)
        if any(
            t in bound.most
            and used_below(scene, bound, t, waiter, doubt=doubt, gone=gone)
            + (saved_below(scene, bound, t, waiter) if doubt else 0)
            + waiter.amount(t)
            > bound.most[t]
            for t in waiter.types()
        )
    ]


def applications_refused(scene: Scene, waiter: Waiter, *, doubt: bool) -> list[str]:
    """Returns the numbers of applications, and the `stateaware` leaf, that keep the application of *waiter* back.

    An application counts that runs, or that holds something, or for which something is firmly claimed (rule 1): its
    slot is its own, as is that of an application with a claim of an ask that must run there. With *doubt*, one that
    holds saved room counts too, and any other new one holds up a `stateaware` leaf, or one whose originator runs alone.
    """
    name = waiter.application
    holding = {task.application for task, _ in scene.running.values()}
    if not scene.is_new(name) or name in holding:
        return []
    holders = [scene.waiting[c.key] for c in scene.claims if c.key in scene.waiting] if doubt else scene.claimants()
    firm = {task.application for task in holders}
    bound_there = {task.application for c in scene.claims if (task := scene.waiting.get(c.key)) and task.required_node}
    if name in firm | bound_there and not doubt:
        return []
    running = {other for other, state in scene.states.items() if state == "Running" and other in scene.applications}
    found = []
    for bound in bounds(scene, name):
        counted = {o for o in holding | firm | (running if bound.of_queue or doubt else set()) if bound.counts(o)}
        if bound.applications and len(counted - {name}) + 1 > bound.applications:
            found.append(f"maxapplications: {bound.name}")
    leaf = scene.leaf(name)
    if scene.queues[leaf].stateaware:
        asking = {task.application for task in scene.waiting.values()} if doubt else set()
        others = {other for other in (holding | firm | asking) - {name} if scene.leaf(other) == leaf}
        if any(scene.is_new(other) or (doubt and _may_be_starting(scene, other)) for other in others):
            found.append(f"stateaware {leaf}")
    return found


def _may_be_starting(scene: Scene, name: str) -> bool:
    """Tells whether nothing but its originator runs of the application *name*."""
    return all(task.originator for task, _ in scene.running.values() if task.application == name)


def may_be_refused(scene: Scene, waiter: Waiter) -> bool:
    """Tells whether any limit might keep *waiter* back now."""
    return bool(amounts_refused(scene, waiter, doubt=True) or applications_refused(scene, waiter, doubt=True))
