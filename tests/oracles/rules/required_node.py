"""A task that can run on one node only: others leave that node for it, whatever their queues are guaranteed.

Laws 2 to 5 and 7 do not bind it, law 6 does with raw priorities. The maxima of its path do: nobody goes for an ask that
its queue could not take in. Readings, which callers try one after the other: other tasks that run nowhere else come
before this one or after it, and the room that leaves for a preempting ask counts as room or belongs to that ask.
"""

from __future__ import annotations

from dataclasses import replace

from tests.oracles.rules.arithmetic import Need, Victims, admits, covers, needless, search
from tests.oracles.rules.world import Books, Task

READINGS = ("nobody", "required", "all", "after required")
"""Whose amounts on the node are no room for the ask, as far as there is or will be room for them.

after required  those of others that run nowhere else, also if nobody has made room for them
"""


def needs_on(books: Books, ask: Task, *, reading: str) -> list[Need]:
    """What the node lacks where the amounts of those are kept who count by *reading*."""
    kept = {
        key: where
        for key, where in books.holds.items()
        if reading == "all" or (reading.endswith("required") and books.asks[key].required_node)
    }
    seen = replace(books, holds=kept)
    node = ask.required_node
    coming = {t: seen.coming(node, t, ask.key) for t, amount in ask.amounts.items() if amount}
    if reading != "after required":
        coming = {t: max(0, amount) for t, amount in coming.items()}
    return [Need(t, ask.amounts[t] - amount, node=node) for t, amount in coming.items() if ask.amounts[t] > amount]


def objection(books: Books, ask: Task, victim: Task, where: str) -> str:
    """Why *victim* on node *where* may not go for *ask*; empty: it may."""
    if victim.key in books.leaving:
        return "was told to leave already"
    if where != ask.required_node:
        return "runs on another node"
    if victim.required_node:
        return "is bound to its node"
    if victim.priority > ask.priority:
        return "law 6: is more important than the ask"
    if not any(victim.amounts.get(t, 0) for t, amount in ask.amounts.items() if amount):
        return "has nothing that the ask wants"
    return ""


def complaints(books: Books, ask: Task, victims: Victims, *, reading: str) -> list[str]:
    """What is wrong with *victims* leaving the node of *ask*."""
    found = [
        f"required node: {victim.key} {said}"
        for victim, where in victims
        for said in [objection(books, ask, victim, where)]
        if said
    ]
    needs = needs_on(books, ask, reading=reading)
    said = ", ".join(map(str, needs)) or "nothing"
    if not covers(victims, needs):
        found.append(f"too few: {said} needed")
    spare = needless(victims, needs)
    if spare:
        found.append(f"needless: {', '.join(spare)} could stay, {said} needed")
    if not admits(books, ask, books.net):
        found.append("required node: a max on the path of the ask has no room for it")
    return found


def lawful_plan(books: Books, ask: Task, *, reading: str, milder_than: int = 4) -> Victims | None:
    """Victims, all more willing than *milder_than*, that let *ask* run on its node; ``None``: there are none."""
    node = books.nodes.get(ask.required_node)
    if node is None or any(node.capacity.get(t, 0) < amount for t, amount in ask.amounts.items()):
        return None
    pool = [
        one for one in books.running.values() if one[0].reluctance() < milder_than and not objection(books, ask, *one)
    ]
    return search(pool, needs_on(books, ask, reading=reading), lambda _: True)
