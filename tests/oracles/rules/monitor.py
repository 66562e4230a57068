"""The periodic policy, judged from outside: who was told in time, and whom does it help.

What a queue should hold is not worked out a second time, but for the part of a guarantee that it shares with others.
Whoever is taken has to serve somebody to whom the round gives a place: an ask of a queue that is below a guarantee of
its path, that may preempt, that outranks the victim, and that runs once the victims of the round have left, but not
without this one. Each ask lets victims go for its own amount only, once. Nobody is taken where milder ones of the same
leaves on the same node would have done when notice was given.

Readings: a queue above its max takes in what leaves it, whoever it left for, or each ask takes the place of victims of
its own there, or it takes in nothing before it is within its max; a queue is starved if any queue of the ask's path is
below its guarantee, its children's, or its part of its parent's, for a type that the ask wants; what is held by age on
a node is no obstacle, or victims leave beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.oracles.rules.arithmetic import (
    Need,
    Victims,
    breaks_guarantee,
    covers,
    is_disabled,
    is_outranked,
    needless,
    subsets,
    total,
)
from tests.oracles.rules.world import Books, Task, ancestors, is_inside

MAX_WAIT_S = 15


@dataclass
class Watch:
    """Who has been told that it may have to go, and since when."""

    since: dict[str, int] = field(default_factory=dict)
    then: dict[str, Books] = field(default_factory=dict)
    """The books at the time of the notice. Whoever is told stays chosen, whatever comes later."""

    def follow(self, outcome: str, keys: Iterable[str], books: Books, now_s: int) -> None:
        copied = books.copied()
        for key in keys:
            if outcome == "NOTIFIED" and key not in self.since:
                self.since[key], self.then[key] = now_s, copied
            elif outcome in ("WITHDRAWN", "TRIGGERED"):
                self.since.pop(key, None)

    def is_told(self, key: str, now_s: int) -> bool:
        """Whether *key* has had notice, and all the time that it is due."""
        return key in self.since and now_s - self.since[key] >= MAX_WAIT_S


def is_starved(books: Books, ask: Task) -> bool:
    """Whether some queue on the path of *ask* is below what it is due of a type that *ask* wants."""
    return any(
        amount and books.net(path, t) + books.claimed(path, t, but=ask.key) < due(books, path, t)
        for path in ancestors(ask.queue)
        for t, amount in ask.amounts.items()
    )


def due(books: Books, path: str, t: str) -> int:
    """What the queue at *path* declares; else what those below it are due, and its part of the rest of its parent's.

    That rest belongs to the queues that declare nothing themselves: to each what it uses and wants, and no more than an
    equal part of it while others want more.
    """
    own = owed(books, path, t)
    parent = path.rpartition(".")[0]
    if not parent or t in books.queues[path].guaranteed:
        return own
    siblings = [other for other in books.queues if other.rpartition(".")[0] == parent]
    rest = max(0, due(books, parent, t) - sum(owed(books, other, t) for other in siblings))
    wanting = {
        other: wants(books, other, t) - owed(books, other, t)
        for other in siblings
        if t not in books.queues[other].guaranteed
    }
    wanting = {other: amount for other, amount in wanting.items() if amount > 0}
    for shared, other in enumerate(sorted(wanting, key=lambda other: (wanting[other], other))):
        part = min(wanting[other], rest // (len(wanting) - shared))
        if other == path:
            return own + part
        rest -= part
    return own


def wants(books: Books, path: str, t: str) -> int:
    """What the queue at *path* uses once everybody has left and come, and what asks that may be served there want."""
    waiting = sum(
        ask.amounts.get(t, 0)
        for ask in books.asks.values()
        if is_inside(ask.queue, path)
        and ask.may_preempt
        and not ask.required_node
        and ask.key not in books.claims
        and all(
            any(not node.drained and node.capacity.get(u, 0) >= amount for node in books.nodes.values())
            for u, amount in ask.amounts.items()
            if amount
        )
    )
    return books.net(path, t) + books.claimed(path, t) + waiting


def helps(books: Books, victim: Task, ask: Task) -> bool:
    """Whether *victim* may go for *ask* at all."""
    return (
        ask.may_preempt
        and not ask.required_node
        and is_starved(books, ask)
        and is_outranked(books, victim, ask)
        and ask.queue != victim.queue
        and any(victim.amounts.get(t, 0) for t in ask.amounts)
    )


Plan = Sequence[tuple[Task, str]]
"""Asks with the nodes that they are to run on."""


def is_feasible(books: Books, victims: Victims, plan: Plan, *, swaps: bool, beside: bool = False) -> bool:
    """Whether all asks of *plan* run on their nodes, under the maxima of their paths, once *victims* have left.

    *swaps*: a queue above its max takes in as much as leaves it. *beside*: what others hold on a node is theirs.
    """
    for node in {node for _, node in plan}:
        asks = [one for one in plan if one[1] == node]
        freed = [one for one in victims if one[1] == node]
        for t in {t for ask, _ in asks for t in ask.amounts}:
            room = books.free(node, t) + books.parting(node, t)
            if beside:
                served = {ask.key for ask, _ in asks}
                holders = [k for k, where in books.holds.items() if where == node and k in books.asks]
                held = sum(books.asks[key].amounts.get(t, 0) for key in holders if key not in served)
                room = max(min(0, room), room - held)
            if total(asks, t) > room + total(freed, t):
                return False
    for path in {path for ask, _ in plan for path in ancestors(ask.queue)}:
        asks = [one for one in plan if is_inside(one[0].queue, path)]
        freed = [one for one in victims if is_inside(one[0].queue, path)]
        for t, maximum in books.queues[path].maximum.items():
            after = books.net(path, t) - total(freed, t) + total(asks, t)
            if total(asks, t) and after > (max(maximum, books.net(path, t)) if swaps else maximum):
                return False
    return True


def serving(
    books: Books, victims: Victims, asks: Sequence[Task], plan: Plan = (), *, swaps: bool, beside: bool
) -> Plan | None:
    """A plan for which each of *victims* has to leave, and may; ``None``: there is none.

    Each ask is taken into the plan on every node in turn, or left out.
    """
    if plan and all(any(helps(books, task, ask) for ask, _ in plan) for task, _ in victims):
        spare = [
            task.key
            for task, _ in victims
            if is_feasible(books, [one for one in victims if one[0] is not task], plan, swaps=swaps, beside=beside)
        ]
        if not spare or (swaps and are_swapped(books, victims, [ask for ask, _ in plan], spare)):
            return plan
    for at, ask in enumerate(asks):
        for node in books.nodes.values():
            longer = [*plan, (ask, node.name)]
            if not node.drained and is_feasible(books, victims, longer, swaps=swaps, beside=beside):
                found = serving(books, victims, asks[at + 1 :], longer, swaps=swaps, beside=beside)
                if found is not None:
                    return found
    return None


def are_swapped(books: Books, victims: Victims, asks: Sequence[Task], spare: Sequence[str]) -> bool:
    """Whether each of *spare* can be one of those whose place one of *asks* takes in a queue above its max.

    An ask takes the place of victims of its own there, all of which its amount takes. What they leave over is nobody's.
    """
    if not asks:
        return not any(task.key in spare for task, _ in victims)
    ask, *others = asks
    needs = [
        Need(t, amount, queue=path)
        for path in ancestors(ask.queue)
        for t, amount in ask.amounts.items()
        if amount and books.net(path, t) > books.queues[path].maximum.get(t, books.net(path, t))
    ]
    if not needs:
        return are_swapped(books, victims, others, spare)
    return any(
        are_swapped(books, [one for one in victims if one not in own], others, spare)
        for own in subsets(victims)
        if covers(own, needs) and not needless(own, needs)
    )


def serving_somehow(books: Books, victims: Victims, asks: Sequence[Task]) -> Plan | None:
    """A plan by any reading of what a queue above its max takes in, and of what is held by age on a node."""
    for swaps in (True, False):
        for beside in (False, True):
            found = serving(books, victims, asks, swaps=swaps, beside=beside)
            if found is not None:
                return found
    return None


def serving_one(books: Books, victims: Victims, asks: Sequence[Task], victim: Task) -> Task | None:
    """An ask that *victim* may go for and that runs once all *victims* have left; ``None``: there is none.

    It runs where *victim* did, or anywhere if their common queue is full.
    """
    where = next(node for task, node in victims if task is victim)
    for ask in asks:
        for node in books.nodes.values():
            shared = node.name == where or any(
                is_inside(victim.queue, path) and books.queues[path].maximum for path in ancestors(ask.queue)
            )
            if (
                shared
                and not node.drained
                and helps(books, victim, ask)
                and is_feasible(books, victims, [(ask, node.name)], swaps=True)
            ):
                return ask
    return None


def complaints(books: Books, victims: Victims, asks: Sequence[Task]) -> list[str]:
    """What is wrong with all *victims* of a round being taken now for *asks*."""
    found = []
    for task, node in victims:
        if task.required_node:
            found.append(f"monitor: {task.key} is bound to its node")
        if is_disabled(books, task.queue):
            found.append(f"monitor: {task.key} runs in a queue that is disabled")
        if serving_one(books, victims, asks, task) is None:
            found.append(f"futile: {task.key} of {task.queue} is taken on {node}, and nobody starved can use that room")
    if not found and serving_somehow(books, victims, asks) is None:
        wanting = ", ".join(f"{ask.key} {dict(ask.amounts)}" for ask in asks)
        found.append(f"needless: not all of the monitor's victims are needed for {wanting}")
    served = {path for ask in asks for path in ancestors(ask.queue)}
    for path in {path for task, _ in victims for path in ancestors(task.queue)} - served:
        for t, guaranteed in books.queues[path].guaranteed.items():
            freed = total([one for one in victims if is_inside(one[0].queue, path)], t)
            if freed and books.net(path, t) - freed < guaranteed:
                found.append(f"law 2: {path} ends below its guarantee")
    return found


def milder_choice(books: Books, victims: Victims, ask: Task) -> Victims | None:
    """Tasks of milder classes that would do for *ask* beyond doubt, where *victims* leave for it alone; ``None``: there
    are none. *books*: at the time of the notice.

    On the victims' node, of the victims' leaves, and of as many types: whoever has a leaf give up *victims* may take
    these instead. All of them together break no guarantee and make enough room, so every walk over them succeeds.
    """
    node, worst = victims[0][1], max(task.reluctance() for task, _ in victims)
    lacking = [t for t, amount in ask.amounts.items() if amount > books.free(node, t) + books.parting(node, t)]
    known = all(books.running.get(task.key) == (task, node) for task, _ in victims)
    plan = [(ask, node)]
    if not known or ask.key not in books.asks or not is_feasible(books, victims, plan, swaps=False, beside=True):
        return None
    leaves = {task.queue for task, _ in victims}
    pool = [
        (task, where)
        for task, where in books.running.values()
        if where == node
        and task.queue in leaves
        and task.reluctance() < worst
        and not task.originator
        and not task.required_node
        and task.key not in books.leaving
        and helps(books, task, ask)
        and all(task.amounts.get(t, 0) for t in lacking)
    ]
    if not lacking or breaks_guarantee(books, pool, ask):
        return None
    for path in leaves:
        mine = [one for one in pool if one[0].queue == path]
        if any(total(mine, t) and books.net(path, t) - total(mine, t) < due(books, path, t) for t in ask.amounts):
            return None
    return pool if is_feasible(books, pool, plan, swaps=False, beside=True) else None


def served(books: Books, victims: Victims, asks: Sequence[Task]) -> dict[str, int]:
    """By type, what of the victims' amounts the *asks* that they go for lack."""
    plan = serving_somehow(books, victims, asks)
    if plan is None:
        return {}
    needed: dict[str, int] = {}
    for t in {t for ask, _ in plan for t in ask.amounts}:
        for node in {node for _, node in plan}:
            asked = total([one for one in plan if one[1] == node], t)
            lacking = asked - max(0, books.free(node, t) + books.parting(node, t))
            needed[t] = needed.get(t, 0) + max(0, lacking)
        needed[t] = min(needed[t] or total(plan, t), total(victims, t))
    return {t: amount for t, amount in needed.items() if amount}


def has_to_act_for(books: Books, ask: Task) -> bool:
    """Whether *ask* is beyond doubt the policy's business.

    Its own leaf guarantees all it wants and has room for it under that, and the cluster is large enough for all
    guarantees.
    """
    leaf = books.queues[ask.queue]
    if not ask.may_preempt or any(
        books.net(ask.queue, t) + books.claimed(ask.queue, t, but=ask.key) + amount > leaf.guaranteed.get(t, 0)
        for t, amount in ask.amounts.items()
    ):
        return False
    return all(owed(books, "root", t) <= sum(n.capacity.get(t, 0) for n in books.nodes.values()) for t in ask.amounts)


def owed(books: Books, path: str, t: str) -> int:
    """What the queue at *path* is guaranteed, or else what those below it are."""
    declared = books.queues[path].guaranteed.get(t)
    if declared is not None:
        return declared
    return sum(owed(books, child, t) for child in books.queues if child.rpartition(".")[0] == path)
