"""Orders those who wait for room: who comes before whom, and who may use room that is saved for another one
(preemption.md B.7).

Shares play no part here: they change with every placement, and whoever has waited for room must not lose its turn to
somebody who is no more important.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

from kornel.core.domain.ask_places import AskPlace, WaitsFor
from kornel.core.domain.priorities import REPAIR, exposed_priority
from kornel.core.domain.settings import GuaranteeMode, PriorityPolicy
from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim, Reservation, sum_amounts
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.orders.waiting_rooms import ClassedLine
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.model.users import Account
from kornel.core.policies.guarantees import list_guarantees, project_usage
from kornel.core.policies.user_limits import list_binding

LEVELS: Final = 16
"""The number of levels of queues for which priorities count in the line, whether a leaf has so many or not."""

_IN_LINE: Final = frozenset({None, WaitsFor.ROOM, WaitsFor.DOMAIN})
"""The lacks of groups that stand in the line; ``None``: they are about to be tried."""

_Turn = tuple[int, Reservation]
"""A claim with its number among those that are given."""


def comes_before(ask: Allocation, other: Allocation) -> bool:
    """Tells whether *ask* is more important than *other*: by their own priorities inside a leaf, and by those that they
    lend to the children of their lowest common queue otherwise; of the same priority, whether it alone repairs a gang.

    Between applications of a leaf, and between children of a queue, nobody is where ``application.sort.priority`` is
    disabled.
    """
    return _lead_over(ask, other) > 0


def _lead_over(ask: Allocation, other: Allocation) -> float:
    """Returns by how much the rank of *ask* exceeds that of *other* where the two meet: ``REPAIR`` if only because it
    repairs a gang, more by priority; 0 or less if it does not come before the other one."""
    leaf, other_leaf = ask.queue, other.queue
    if leaf is other_leaf:
        if ask.application is not other.application and not leaf.properties.sort_by_priority:
            return 0
        return ask.turn_priority - other.turn_priority
    above = set(other_leaf.lineage())
    common = next(queue for queue in leaf.lineage() if queue in above)
    if not common.properties.sort_by_priority:
        return 0
    return rank_below(ask, common) - rank_below(other, common)


def importance_of(ask: Allocation) -> tuple[float, ...]:
    """Returns a key that puts whoever comes before others first: the priorities that *ask* lends from the root down.

    It is an order of all asks, unlike :func:`comes_before`: where two priorities are equal at the lowest common queue,
    those further down decide. Of levels that a leaf does not have it counts 0, so that its depth decides nothing.
    """
    lent = _lend_from_root(ask)
    return (*lent, *[0] * (LEVELS - len(lent)))


def _lend_from_root(ask: Allocation) -> tuple[float, ...]:
    rank = ask.turn_priority
    lent = [rank if ask.queue.properties.sort_by_priority else 0]
    for queue, parent in pairwise(ask.queue.lineage()):
        fenced = queue.properties.priority_policy is PriorityPolicy.FENCE
        rank = exposed_priority(rank, queue.properties.priority_offset, fenced=fenced)
        lent.append(rank if parent.properties.sort_by_priority else 0)
    return tuple([-rank for rank in reversed(lent)])


def in_line(claims: Iterable[Reservation]) -> list[Reservation]:
    """Returns *claims* in the order in which their holders are tried: at each queue that of the highest priority, of
    equals from the child in which one of that priority is given first, an application in a leaf."""
    below: dict[Queue, dict[Queue | Application, list[_Turn]]] = {}
    for turn in sorted(enumerate(claims), key=lambda turn: -turn[1].waiter.turn_priority):
        below.setdefault(turn[1].waiter.queue, {}).setdefault(turn[1].waiter.application, []).append(turn)
    line: list[_Turn] = []
    while below:
        queue = max(below, key=lambda queue: queue.depth)
        line = _merge_lines(queue, list(below.pop(queue).values()))
        if queue.parent is not None and below:
            below.setdefault(queue.parent, {})[queue] = line
    return [claim for _, claim in line]


def _merge_lines(queue: Queue, lines: list[list[_Turn]]) -> list[_Turn]:
    """Merges the *lines* below the children of *queue*."""
    if len(lines) == 1:
        return lines[0]
    keys: dict[_Turn, tuple[float, int]] = {}
    for line in lines:
        first: dict[float, int] = {}
        for turn in reversed(line):
            rank = rank_below(turn[1].waiter, queue) if queue.properties.sort_by_priority else 0
            first[rank] = min(first.get(rank, turn[0]), turn[0])
            keys[turn] = -rank, first[rank]
    return sorted((turn for line in lines for turn in line), key=keys.__getitem__)


def line_key(ask: Allocation) -> tuple[object, ...]:
    """Returns the sort key of *ask* in the line in which room is saved. It is flat, because many are kept."""
    return (_share_importance(importance_of(ask)), line_since(ask), *ask.order)


def line_since(ask: Allocation) -> int:
    """Returns the time from which the wait of *ask* counts in that line: in a leaf in which priorities count only
    within applications, not before all more important ones of its own have come that wait for room."""
    since = ask.waits_since_ns
    if ask.queue.properties.sort_by_priority:
        return since
    first = [other for other in ask.application.asks.values() if other.turn_priority > ask.turn_priority]
    waits = [other for other in first if other.group is None or other.group.waits_for in _IN_LINE]
    return max([since, *(other.waits_since_ns + 1 for other in waits)])


def place_in_line(group: AskGroup) -> tuple[object, ...]:
    """Returns the sort key of *group* in that line, which is that of its first ask, but for :func:`line_since`: where
    others of its application stand before it, it is found too early, and saves nothing that is theirs."""
    first = group.first_ask()
    return (_share_importance(importance_of(first)), first.waits_since_ns, *first.order)


def class_in_line(group: AskGroup) -> tuple[float, ...]:
    """Returns the importance of *group*: among those of one importance, age decides."""
    return _share_importance(importance_of(group.first_ask()))


def age_in_line(group: AskGroup) -> tuple[int, ...]:
    """Returns the sort key of *group* among those of its importance. Of equal asks, the one that has waited longest
    counts."""
    return min(map(_age_of, group.list_longest()))


def _age_of(ask: Allocation) -> tuple[int, ...]:
    return (ask.waits_since_ns, *ask.order)


def list_older(line: ClassedLine, holder: Allocation) -> list[AskGroup]:
    """Returns the groups in *line* that have waited longer than *holder*, without those classes of which nobody stands
    before it, because it comes before them wherever they meet."""
    own = _lend_from_root(holder)
    return line.list_before(
        _age_of(holder), lambda other: any(rank <= mine for rank, mine in zip(other, own, strict=False))
    )


@lru_cache(maxsize=1_024)
def _share_importance(importance: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the same object for equal keys, of which there are few, so that each waiter does not keep its own."""
    return importance


def stands_before(ask: Allocation, other: Allocation) -> bool:
    """Tells whether *ask* comes before *other*, or has waited longer while neither comes before the other."""
    lead = _lead_over(ask, other)
    return lead > 0 or (lead == 0 and (ask.waits_since_ns, ask.order) < (other.waits_since_ns, other.order))


class Dues:
    """Finds who is owed a guarantee, and who is more important, as long as nothing is booked: once for all of one size
    in a leaf, and once for all of one priority in two leaves. *marks*: numbers that tell when something is booked."""

    def __init__(self, mode: GuaranteeMode, marks: tuple[int, ...] = ()) -> None:
        self._mode = mode
        self.marks: Final = marks
        self._owing: dict[object, tuple[Queue, ...]] = {}
        self._leads: dict[tuple[Queue, float, Queue, float], float] = {}
        self._surveyed: tuple[list[Allocation], list[Reservation]] | None = None

    def find_owing(self, ask: Allocation, pairs: Pairs | None = None) -> tuple[Queue, ...]:
        """Returns the queues that owe *ask* their guarantee, or *pairs* to its whole gang: for all together, guarantees
        have to be enough (B.11)."""
        key = ask if ask.triggered else ask.queue, ask.shape if pairs is None else pairs
        if key not in self._owing:
            self._owing[key] = owing_queues(ask, self._mode if pairs is None else GuaranteeMode.STRICT, pairs)
        return self._owing[key]

    def is_owed(self, claim: Reservation | LimitClaim) -> bool:
        """Tells whether the holder of *claim* is owed its guarantee; a gang is if the guarantee is enough for all
        members together."""
        holder = claim.waiter
        pairs = holder.shape.pairs
        if isinstance(claim, LimitClaim):
            pairs = claim.pairs
        elif claim.least is not None:
            members = [ask for ask in holder.application.savers if (saved := ask.reservation) and saved.least]
            pairs = tuple(sum_amounts(members).items())
        return bool(self.find_owing(holder, None if pairs == holder.shape.pairs else pairs))

    def find_lead(self, ask: Allocation, other: Allocation) -> float:
        """Returns by how much the rank of *ask* exceeds that of *other* where the two meet."""
        if ask.queue is other.queue:
            return _lead_over(ask, other)
        key = ask.queue, ask.turn_priority, other.queue, other.turn_priority
        if key not in self._leads:
            self._leads[key] = _lead_over(ask, other)
        return self._leads[key]

    def list_lenders(self, ask: Allocation, saved: Collection[Reservation]) -> Collection[Reservation]:
        """Returns *saved*, which are all claims of the partition, without most of those that *ask* may not pass: if it
        comes before no holder, only those whose holders are owed nothing."""
        if self._surveyed is None:
            standings: dict[object, Allocation] = {}
            for holder in [claim.waiter for claim in saved]:
                among = holder.queue if holder.queue.properties.sort_by_priority else holder.application
                standings.setdefault((among, holder.turn_priority), holder)
            self._surveyed = list(standings.values()), [claim for claim in saved if not self.is_owed(claim)]
        holders, unowed = self._surveyed
        return saved if any(self.find_lead(ask, holder) > 0 for holder in holders) else unowed


def list_lent(
    ask: Allocation, saved: Iterable[Reservation], dues: Dues, pairs: Pairs | None = None
) -> list[Reservation]:
    """Returns those of the claims *saved* that *ask* may pass. *pairs*: as for :func:`may_pass`."""
    one_each = {claim.waiter: claim for claim in saved}  # A gang may have hundreds of claims.
    passed = {waiter for waiter, claim in one_each.items() if may_pass(ask, claim, dues, pairs)}
    return [claim for claim in saved if claim.waiter in passed]


def find_lent(
    ask: Allocation, saved: Collection[Reservation], dues: Dues, pairs: Pairs | None = None
) -> dict[Node, list[Reservation]]:
    """Finds the claims of others whose room *ask* may use in a plan, by node: those of *saved* that it may pass, where
    some of what it asks for is idle or leaves (preemption.md B.7); none if it wants devices. *pairs*: as for
    :func:`may_pass`."""
    sought = ask.shape.pairs if pairs is None else pairs
    found: dict[Node, list[Reservation]] = {}
    for claim in dues.list_lenders(ask, saved) if ask.shape.devices is None else ():
        claims = claim.node.claims
        if claim.ask is ask or claims is None or not claims.saves_room(claim.node.free, sought):
            continue
        if may_pass(ask, claim, dues, pairs):
            found.setdefault(claim.node, []).append(claim)
    return found


def may_pass(ask: Allocation, claim: Reservation | LimitClaim, dues: Dues, pairs: Pairs | None = None) -> bool:
    """Tells whether *ask* may use room that is saved by *claim*: it comes before the holder, or a queue that the
    holder is not in owes it its guarantee, and the holder is owed none and may run elsewhere. *pairs*: of its gang."""
    holder = claim.waiter
    lead = dues.find_lead(ask, holder)
    if lead > REPAIR:
        return True
    owing = dues.find_owing(ask, pairs)
    if lead > 0 and (owing or not dues.is_owed(claim)):
        return True
    if holder.spec.required_node or not owing:
        return False
    return any(queue not in holder.queue.lineage() for queue in owing) and not dues.is_owed(claim)


def limits_of(ask: Allocation) -> list[Queue | Account]:
    """Returns all limits on amounts that bind *ask*: those of its user and group, then its queues."""
    return [*list_binding(ask), *ask.queue.lineage()]


def find_savers(ask: Allocation, pairs: Pairs, mode: GuaranteeMode) -> Iterator[tuple[Queue | Account, LimitClaim]]:
    """Yields the limits that let *ask* have no *pairs* beside what is saved there for another waiter, each with the
    claim of that one."""
    for limit in limits_of(ask):
        claim = limit.saving
        if not (claim is None or admits_beside(limit, pairs, claim) or is_let_through(ask, claim, mode)):
            yield limit, claim


def admits_beside(limit: Queue | Account, pairs: Pairs, claim: LimitClaim) -> bool:
    """Tells whether *pairs* fit under *limit* if what *claim* saves there counts as used."""
    kept = dict(claim.pairs)
    if isinstance(limit, Account):
        return limit.admits(pairs, kept)
    return limit.admits(tuple([(t, amount + kept.get(t, 0)) for t, amount in pairs]))


def is_let_through(ask: Allocation, claim: LimitClaim, mode: GuaranteeMode) -> bool:
    """Tells whether what *claim* saves below a limit does not count against *ask*: it is the holder or its equal, it
    has a firm claim, it stands before the holder in the line, or saved room is lent to it."""
    holder, firm = claim.ask, ask.reservation
    if ask.triggered or (firm is not None and not firm.comes_last) or holder.place is AskPlace.HELD:
        return True  # What is held for the holder while the shim is asked counts as used already.
    group = ask.group
    if ask is holder or (group is not None and group is holder.group):
        return True
    if stands_before(ask, holder) or may_pass(ask, claim, Dues(mode)):
        return True
    # Of equal asks, the one that has waited longest counts.
    if group is None or group.is_unit:
        return False
    return any(stands_before(equal, holder) for equal in group.list_longest() if equal is not ask)


def owing_queues(ask: Allocation, mode: GuaranteeMode, pairs: Pairs | None = None) -> tuple[Queue, ...]:
    """Returns the queues that owe *ask* their guarantee: law 4 lets it have room although somebody would have to leave,
    but nobody inside these queues (preemption.md A); none: it is owed nothing. *pairs*: of its whole gang."""
    own = dict(pairs or ask.shape.pairs) if ask.triggered else {}  # A firm claim does not count against its own waiter.
    found: list[Queue] = []
    for guarantee in list_guarantees(ask, lambda queue, t: project_usage(queue, t) - own.get(t, 0), pairs):
        if guarantee.asked > guarantee.most or not guarantee.has_room(mode):
            return ()
        found.append(guarantee.queue)
    return tuple(dict.fromkeys(found))


def rank_below(ask: Allocation, common: Queue) -> float:
    """Returns the rank that *ask* gives the child of *common* on its path, or its application if *common* is its
    leaf."""
    rank = ask.turn_priority
    for queue in ask.queue.lineage():
        if queue is common:
            break
        fenced = queue.properties.priority_policy is PriorityPolicy.FENCE
        rank = exposed_priority(rank, queue.properties.priority_offset, fenced=fenced)
    return rank
