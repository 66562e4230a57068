"""A lowered max: some time after it, tasks leave the queue until it is within its max, as far as guarantees allow.

Pending asks, fences, offsets and ``disabled`` play no part. What is judged is usage without those that are leaving,
against the max, type by type; what is over and stays over is unmet.
"""

from __future__ import annotations

from tests.oracles.rules.arithmetic import POOL_SEARCHED_WHOLLY, Victims, breaks_guarantee, subsets, total
from tests.oracles.rules.world import Books, Task


def excess(books: Books, queue: str) -> dict[str, int]:
    """By type, what *queue* uses above its max once everybody who was told to leave has left."""
    maximum = books.queues[queue].maximum
    over = {t: books.net(queue, t) - limit for t, limit in maximum.items()}
    return {t: amount for t, amount in over.items() if amount > 0}


def unmet(over: dict[str, int], victims: Victims) -> dict[str, int]:
    """What stays above the max when *victims* leave."""
    return {t: max(0, amount - total(victims, t)) for t, amount in over.items()}


def objection(books: Books, queue: str, victim: Task) -> str:
    """Why *victim* may not go for the max of *queue*, whoever goes besides; empty: it may."""
    over = excess(books, queue)
    if victim.key in books.leaving:
        return "was told to leave already"
    if victim.queue != queue and not victim.queue.startswith(queue + "."):
        return "runs in another queue"
    if victim.required_node:
        return "is bound to its node"
    if not any(victim.amounts.get(t, 0) for t in over):
        return "has nothing that is above the max"
    return ""


def complaints(books: Books, queue: str, outcome: str, victims: Victims) -> list[str]:
    """What is wrong with *victims* leaving *queue*, and with what is said of it."""
    found = [
        f"lowered max: {victim.key} {said}"
        for victim, _ in victims
        for said in [objection(books, queue, victim)]
        if said
    ]
    broken = breaks_guarantee(books, victims, None)
    if broken:
        found.append(f"law 2: {broken} ends below its guarantee")
    over = excess(books, queue)
    left = unmet(over, victims)
    for victim, _ in victims:
        if unmet(over, [one for one in victims if one[0] is not victim]) == left:
            found.append(f"needless: {victim.key} could stay, {over} above the max of {queue}")
    if outcome in ("FULL", "NOTHING_TO_DO") and any(left.values()):
        found.append(f"outcome: {outcome} is said of {queue}, which stays {left} above its max")
    if outcome in ("PARTIAL", "NONE") and not any(left.values()):
        found.append(f"outcome: {outcome} is said of {queue}, which comes within its max")
    return found


def better_choice(books: Books, queue: str, victims: Victims) -> Victims | None:
    """Victims that are lawful and leave less above the max of some type, and of no type more; ``None``: there are none.

    Of a pool too large to be searched wholly only sets of a few are tried.
    """
    over = excess(books, queue)
    left = unmet(over, victims)
    if not any(left.values()):
        return None
    pool = [one for one in books.inside(queue) if not objection(books, queue, one[0])]
    if len(pool) > POOL_SEARCHED_WHOLLY:
        chosen = {task.key for task, _ in victims}
        grown = [[*victims, one] for one in pool if one[0].key not in chosen]
        found = [*grown, *subsets(pool)]
    else:
        found = list(subsets(pool))
    for other in found:
        after = unmet(over, other)
        if all(after[t] <= left[t] for t in over) and after != left and not breaks_guarantee(books, other, None):
            return other
    return None
