"""Guarantee-driven preemption: an ask without room, in a queue below its guarantee, takes from queues above theirs.

Says of a decision what is wrong with it, and of an ask whether there is a lawful plan for it. Open in the words:

* an amount held by age comes after the claim of a preempting ask. That ask may count free room that is held by age, or
  frees its whole amount beside it;
* a task that runs nowhere else waits on the node for room that nobody frees, because nobody there may go for it. An ask
  frees its own amount, or also what that one lacks and would take from it, or does not preempt on that node;
* where a guarantee is at or over for a type, victims are needed inside it. An ask held by age may count as claimed.
  Callers pass books with and without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.oracles.rules.arithmetic import (
    Need,
    Victims,
    adjusted,
    breaks_guarantee,
    covers,
    is_disabled,
    is_outranked,
    needless,
    search,
)
from tests.oracles.rules.world import Books, Task, ancestors, below, is_inside, lowest_common

ROOT = "root"

READINGS = ("beside claims", "beside all", "after first")
"""Which amounts on a node are no room for a preempting ask.

beside claims  those of claims that come before its own, as far as there is or will be room for them
beside all     those held by age too
after first    those of claims before its own, also those that nobody has made room for
"""


@dataclass(frozen=True)
class Entitlement:
    """What law 4 says of an ask. ``refused`` empty: it may preempt, if victims cover ``needs`` too.

    ``queues``: by asked type, the lowest queue on the path that guarantees it; a type nobody guarantees is missing.
    """

    refused: str = ""
    queues: dict[str, str] | None = None
    needs: tuple[Need, ...] = ()


def entitlement(books: Books, ask: Task) -> Entitlement:
    """Law 4: the queue of *ask* has to be under its guarantee for every type that is asked for and guaranteed."""
    queues = {
        t: path
        for t, amount in ask.amounts.items()
        if amount
        for path in [next((p for p in ancestors(ask.queue) if t in books.queues[p].guaranteed), "")]
        if path
    }
    if not queues:
        return Entitlement("nobody on its path guarantees what it asks for")
    own = any(path == ask.queue for path in queues.values())
    needs: list[Need] = []
    for t, path in queues.items():
        amount, guaranteed = ask.amounts[t], books.queues[path].guaranteed[t]
        held = books.net(path, t) + books.claimed(path, t, but=ask.key)
        if amount > guaranteed:
            return Entitlement(f"{amount} {t} are more than {path} is guaranteed")
        if held + amount <= guaranteed if books.strict else held < guaranteed:
            continue
        if path == ask.queue:
            return Entitlement(f"{path} holds {held} of {guaranteed} {t} and is not under its guarantee")
        if own:
            needs.append(Need(t, min(amount, held + amount - guaranteed), queue=path))
        elif held <= guaranteed:
            needs.append(Need(t, held + amount - guaranteed, queue=path))
        else:
            return Entitlement(f"{path} holds {held} of {guaranteed} {t}, above the guarantee that {ask.queue} shares")
    return Entitlement("", queues, tuple(need for need in needs if need.amount > 0))


def quota_needs(books: Books, ask: Task) -> list[Need]:
    """What each max on the path needs freed inside its queue: what the ask lacks, and never more than it asks for."""
    needs = []
    for path in ancestors(ask.queue):
        for t, maximum in books.queues[path].maximum.items():
            amount = ask.amounts.get(t, 0)
            lacking = books.net(path, t) + books.claimed(path, t, but=ask.key) + amount - maximum
            if amount and lacking > 0 and path != ROOT:
                needs.append(Need(t, min(amount, lacking), queue=path))
    return needs


def node_needs(books: Books, ask: Task, node: str, *, reading: str) -> list[Need]:
    """What *node* lacks, by one of :data:`READINGS`."""
    seen = books
    if reading != "beside all":
        first = {k: where for k, where in books.holds.items() if k in books.claims or books.asks[k].required_node}
        seen = replace(books, holds=first)
    coming = {t: seen.coming(node, t, ask.key) for t, amount in ask.amounts.items() if amount}
    if reading != "after first":
        coming = {t: max(0, amount) for t, amount in coming.items()}
    return [Need(t, ask.amounts[t] - amount, node=node) for t, amount in coming.items() if ask.amounts[t] > amount]


def fence_root(books: Books, ask: Task) -> str:
    """The highest queue whose tasks *ask* may take: victims outside a fence, or outside a full max, are of no use."""
    full = {need.queue for need in quota_needs(books, ask)}
    for path in ancestors(ask.queue):
        if path == ROOT or books.queues[path].preemption == "fence" or path in full:
            return path
    raise AssertionError("every path ends at root")


def candidates(books: Books, ask: Task, entitled: Entitlement) -> list[tuple[Task, str]]:
    """Everybody who may go for *ask* as far as one task alone can be judged."""
    fence = fence_root(books, ask)
    if fence == ask.queue:
        return []
    return [one for one in books.inside(fence) if not objection(books, ask, entitled, one[0])]


def objection(books: Books, ask: Task, entitled: Entitlement, victim: Task) -> str:
    """Why *victim* may not go for *ask*, whoever goes besides; empty: it may."""
    fence = fence_root(books, ask)
    if victim.key in books.leaving:
        return "was told to leave already"
    if victim.queue == ask.queue:
        return "runs in the ask's own queue"
    if victim.application == ask.application:
        return "law 3: belongs to the ask's own application"
    if not is_inside(victim.queue, fence) or fence == ask.queue:
        return f"law 7: runs outside the fence {fence}"
    if victim.required_node:
        return "is bound to its node"
    if is_disabled(books, victim.queue):
        return "runs in a queue that is disabled"
    if not is_outranked(books, victim, ask):
        return "law 6: is more important than the ask"
    if not any(victim.amounts.get(t, 0) for t, amount in ask.amounts.items() if amount):
        return "has nothing that the ask wants"
    meeting = lowest_common(victim.queue, ask.queue)
    own = any(path in below(ask.queue, meeting) for path in (entitled.queues or {}).values())
    if not own and not shares_of_its_own(books, ask, victim, meeting):
        return "J-B14: the guarantee is shared, and its queues have no share of their own"
    return ""


def shares_of_its_own(books: Books, ask: Task, victim: Task, meeting: str) -> bool:
    """Whether a queue of *victim* below where it meets *ask* declares a guarantee for an asked type that it uses."""
    return any(
        t in books.queues[path].guaranteed and victim.amounts.get(t, 0)
        for path in below(victim.queue, meeting)
        for t, amount in ask.amounts.items()
        if amount
    )


def goes_without_guarantee(books: Books, ask: Task, entitled: Entitlement, victims: Victims, needs: list[Need]) -> str:
    """The victim that goes for a type nobody guarantees the ask, without going for one that is; empty: none.

    It may go for such a type if a queue below where they meet declares a guarantee for that type, which law 2 keeps.
    """
    guaranteed = [need for need in needs if need.t in (entitled.queues or {})]
    for victim, _ in victims:
        rest = [one for one in victims if one[0] is not victim]
        if not covers(rest, guaranteed):
            continue
        meeting = lowest_common(victim.queue, ask.queue)
        goes_for = {need.t for need in needs if not covers(rest, [need])}
        declared = {t for path in below(victim.queue, meeting) for t in books.queues[path].guaranteed}
        if not goes_for & declared:
            return victim.key
    return ""


def needs_on(books: Books, ask: Task, entitled: Entitlement, node: str, *, reading: str) -> list[Need]:
    """Everything that has to be freed so that *ask* may run on *node*."""
    return [*node_needs(books, ask, node, reading=reading), *quota_needs(books, ask), *entitled.needs]


def is_usable(books: Books, ask: Task, node: str) -> bool:
    """Whether *node* takes *ask* in at all: it is open, and large enough when empty."""
    capacity = books.nodes[node].capacity
    return not books.nodes[node].drained and all(
        capacity.get(t, 0) >= amount for t, amount in ask.amounts.items() if amount
    )


def is_waited_for(books: Books, node: str) -> bool:
    """Whether tasks that run on *node* only lack room there, whoever leaves of those who were told to."""
    required = {key: where for key, where in books.holds.items() if books.asks[key].required_node}
    seen = replace(books, holds=required)
    return any(
        seen.coming(node, t, "") < 0
        for key, where in required.items()
        if where == node
        for t in books.asks[key].amounts
    )


def complaints(books: Books, ask: Task, node: str, victims: Victims, *, reading: str) -> list[str]:
    """What is wrong with *victims* leaving *node*, or other nodes, so that *ask* can run on *node*."""
    found: list[str] = []
    if not ask.may_preempt:
        found.append("may not preempt: the ask said so itself")
    if ask.required_node:
        found.append("required node: such an ask preempts on its own node only")
    entitled = entitlement(books, ask)
    if entitled.refused:
        found.append(f"law 4: {entitled.refused}")
    for victim, _ in victims:
        said = objection(books, ask, entitled, victim)
        if said:
            found.append(f"{said.partition(':')[0] if ':' in said else 'victim'}: {victim.key} {said}")
    broken = breaks_guarantee(books, victims, ask)
    if broken:
        found.append(f"law 2: {broken} ends below its guarantee")
    if not is_usable(books, ask, node):
        found.append(f"node: {node} is closed or too small")
    if found:
        return found
    needs = needs_on(books, ask, entitled, node, reading=reading)
    said = ", ".join(map(str, needs)) or "nothing"
    if any(need.node for need in needs) and any(where != node for _, where in victims):
        found.append(f"node: victims leave other nodes than {node}")
    if not covers(victims, needs):
        found.append(f"too few: {said} needed")
    spare = needless(victims, needs)
    if spare:
        found.append(f"needless: {', '.join(spare)} could stay, {said} needed")
    else:
        unguaranteed = goes_without_guarantee(books, ask, entitled, victims, needs)
        if unguaranteed:
            found.append(f"unguaranteed type: {unguaranteed} goes for it alone, {said} needed")
    return found


def is_lent(books: Books, holder: Task, ask: Task) -> bool:
    """Whether *ask* may use what *holder*, for whom nobody leaves, holds: it comes before it, or is owed a guarantee
    that *holder* has no part in, which is owed none itself and may run elsewhere."""
    meeting = lowest_common(ask.queue, holder.queue)
    if adjusted(books, ask, meeting) > adjusted(books, holder, meeting):
        return True
    owed, owed_too = entitlement(books, ask), entitlement(books, holder)
    if holder.required_node or owed.refused or owed.needs or not (owed_too.refused or owed_too.needs):
        return False
    return any(not is_inside(holder.queue, path) for path in (owed.queues or {}).values())


def lawful_plan(
    books: Books, ask: Task, *, reading: str, milder_than: int = 4, nodes: list[str] | None = None
) -> tuple[str, Victims] | None:
    """A node, and victims all more willing than *milder_than* that let *ask* run there; ``None``: there are none.

    Nobody at all is no plan: where nothing is needed, placing is not the business of preemption.
    """
    if not ask.may_preempt or ask.required_node:
        return None
    entitled = entitlement(books, ask)
    if entitled.refused:
        return None
    pool = [one for one in candidates(books, ask, entitled) if one[0].reluctance() < milder_than]
    if not pool:
        return None
    for node in nodes or books.nodes:
        if not is_usable(books, ask, node) or (reading == "after first" and is_waited_for(books, node)):
            continue
        needs = needs_on(books, ask, entitled, node, reading=reading)
        here = [one for one in pool if one[1] == node] if any(need.node for need in needs) else pool
        victims = search(
            here,
            needs,
            lambda chosen, needs=needs: (
                not breaks_guarantee(books, chosen, ask)
                and not goes_without_guarantee(books, ask, entitled, chosen, needs)
            ),
        )
        if victims is not None:
            return node, victims
    return None


def takes_back(books: Books, ask: Task, node: str, victims: Victims, victim: Task) -> bool:
    """Whether *victim*, asking again once *ask* runs in its place, could take *ask* in its turn (A.1 no. 11)."""
    gone = {task.key for task, _ in victims}
    again = replace(victim, key=f"{victim.key} again", may_preempt=True)
    later = replace(
        books,
        running={key: one for key, one in books.running.items() if key not in gone} | {ask.key: (ask, node)},
        leaving={key: whom for key, whom in books.leaving.items() if key not in gone},
        asks={key: one for key, one in books.asks.items() if key != ask.key} | {again.key: again},
        claims={key: at for key, at in books.claims.items() if key != ask.key},
        holds={key: where for key, where in books.holds.items() if key != ask.key},
    )
    return not complaints(later, again, node, [(ask, node)], reading=READINGS[0])
