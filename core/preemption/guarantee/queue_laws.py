"""The laws of preemption between queues about queues: what an ask is entitled to, and what it may take from whom
(preemption.md A, A.1, B.2, B.3).

They judge an ask and its victims, wherever these run; a gang that preempts as a unit counts as one ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kornel.core.domain.settings import GuaranteeMode, PreemptionPolicyKind, PreemptWithin, PriorityPolicy
from kornel.core.laws import eligible, limits, overkill
from kornel.core.laws.verdict import Law, Violation, net_of, path_of
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies.view import PartitionView


class Case:
    """An ask and its victims, with what several rules need: the path of the ask, and the amounts that leave each queue.

    Nothing changes while it is judged, so what several rules need is computed once.
    """

    def __init__(
        self, view: PartitionView, ask: Allocation, victims: tuple[Allocation, ...], *, inside: bool = False
    ) -> None:
        """*inside*: the victims leave for an ask of their own leaf, without a guarantee (preemption.md M)."""
        self.ask = ask
        self.inside = inside
        self.view = view
        self.mode = view.guarantee_mode
        self.names = view.types.names
        self.demand = ask.shape.amounts
        self.ask_path = path_of(ask.queue)
        self.victims = victims
        self.inside_victims = victims if inside else None
        """The victims if they leave for an ask of their own leaf; ``None``: for another one."""
        self.takers: list[tuple[Allocation, tuple[Allocation, ...]]] = [(ask, victims)]
        """Each ask, with the victims that leave for it."""
        self.leaving: dict[Queue, dict[int, int]] = {}
        """The amounts that its victims hold, by queue and type."""
        for victim in victims:
            for queue in path_of(victim.queue):
                amounts = self.leaving.setdefault(queue, {})
                for t, amount in victim.shape.pairs:
                    amounts[t] = amounts.get(t, 0) + amount
        self._entitling: dict[int, Queue] | None = None

    def out_of(self, queue: Queue, t: int) -> int:
        """Returns how much of type *t* the victims below *queue* free."""
        return self.leaving.get(queue, {}).get(t, 0)

    def common_queue(self, victim: Allocation) -> Queue:
        """Returns the lowest queue that ask and *victim* share."""
        return next(queue for queue in path_of(victim.queue) if queue in self.ask_path)

    def entitling_queues(self) -> dict[int, Queue]:
        """Returns, by asked type, the lowest queue on the ask's path that guarantees it."""
        if self._entitling is not None:
            return self._entitling
        found = self._entitling = {}
        for t in self.demand if not self.inside else ():
            for queue in self.ask_path:
                if t in queue.guaranteed:
                    found[t] = queue
                    break
        return found


def expected_usage(queue: Queue, t: int) -> int:
    """Returns what *queue* will use of type *t* once its victims have left and their preemptors are placed."""
    return net_of(queue, t) + queue.claimed[t]


def priority_at(queue: Queue, priority: int, top: Queue) -> int:
    """Returns *priority*, of a task in *queue*, as adjusted at *top* (preemption.md B.3)."""
    for step in path_of(queue):
        if step is top:
            break
        offset = step.properties.priority_offset
        fenced = step.properties.priority_policy is PriorityPolicy.FENCE
        priority = offset if fenced else priority + offset
    return priority


def check_eligible(case: Case) -> Iterator[Violation]:
    """Yields victims that no plan may contain (preemption.md A.1 no. 3)."""
    yield from eligible.check_victims(case.victims)
    for victim in case.victims:
        if victim.queue is case.ask.queue and not case.inside:
            yield Violation(Law.ELIGIBLE, f"{victim.key} is in the ask's own queue")


def check_run_times(case: Case) -> Iterator[Violation]:
    """Yields victims that have not run for their minimum run time yet (preemption.md L)."""
    for ask, victims in case.takers:
        yield from eligible.check_run_times(case.view.now_ns, victims, ask)


def check_law_2(case: Case) -> Iterator[Violation]:
    """Yields queues that would end below their guarantee. A queue on the path of the ask that is already below its
    guarantee must not lose anything."""
    for queue, amounts in case.leaving.items():
        for t, leaving in amounts.items():
            guaranteed = queue.guaranteed.get(t)
            if guaranteed is None:
                continue
            net = net_of(queue, t)
            if queue in case.ask_path:
                after, least = net - leaving + case.demand.get(t, 0), min(guaranteed, net)
            else:
                after, least = net - leaving, guaranteed
            if after < least:
                detail = f"{queue.path} would end at {case.names[t]}={after}, below {least}"
                yield Violation(Law.GUARANTEE_KEPT, detail)


def check_law_3(case: Case) -> Iterator[Violation]:
    """Yields victims of the ask's own application."""
    own = case.ask.application.application_id
    for victim in case.victims:
        if victim.application.application_id == own:
            yield Violation(Law.OTHER_APPLICATION, f"{victim.key} belongs to {own}, as the ask does")


def check_law_4(case: Case) -> Iterator[Violation]:
    """Yields a breach for each type unless the queue is below its guarantee before (mode ``reach``) or within it
    afterwards (mode ``strict``, and for gangs), or the victims inside the guarantee make up for the ask: the queue ends
    within its guarantee or, if the leaf has a guarantee of its own, holds no more than before."""
    entitling = case.entitling_queues()
    if not entitling:
        yield Violation(Law.ENTITLED, f"no guarantee on the path of {case.ask.queue.path} for any type asked for")
    own = any(queue is case.ask.queue for queue in entitling.values())
    for t, queue in entitling.items():
        asked, guaranteed, held = case.demand[t], queue.guaranteed[t], expected_usage(queue, t)
        after = held + asked - case.out_of(queue, t)
        numbers = f"{queue.path} {case.names[t]}: asked {asked}, guaranteed {guaranteed}, held or claimed {held}"
        if asked > guaranteed:
            yield Violation(Law.ENTITLED, numbers)
        elif _is_under(case, queue, t):
            continue
        elif queue is case.ask.queue or (held > guaranteed and not own):
            yield Violation(Law.ENTITLED, numbers)
        elif after > max(held, guaranteed):
            yield Violation(Law.ENTITLED, f"{numbers}, {after} afterwards")


def check_law_5(case: Case) -> Iterator[Violation]:
    """Yields victims whose queues are not above their guarantees. If the entitlement is inherited, one of these queues
    must have a guarantee of its own."""
    entitling = set(case.entitling_queues().values())
    for victim in case.victims:
        common = case.common_queue(victim)
        below = [queue for queue in path_of(victim.queue) if queue.depth > common.depth]
        types = [t for t, _ in victim.shape.pairs]
        for queue in below:
            for t in types:
                if net_of(queue, t) <= queue.guaranteed.get(t, 0):
                    detail = (
                        f"{victim.key}: {queue.path} has {case.names[t]}={net_of(queue, t)},"
                        f" guaranteed {queue.guaranteed.get(t, 0)}"
                    )
                    yield Violation(Law.OVER_GUARANTEE, detail)
        inherited = not any(queue.depth > common.depth for queue in entitling)
        if inherited and not any(t in queue.guaranteed for queue in below for t in types if t in case.demand):
            detail = f"{victim.key}: inherited entitlement, and no guarantee of its own below {common.path}"
            yield Violation(Law.OVER_GUARANTEE, detail)


def check_law_6(case: Case) -> Iterator[Violation]:
    """Yields victims with a higher priority than the ask, both as adjusted at the lowest queue that they share."""
    for victim in case.victims:
        common = case.common_queue(victim)
        theirs = priority_at(victim.queue, victim.priority, common)
        ours = priority_at(case.ask.queue, case.ask.priority, common)
        if theirs > ours:
            yield Violation(Law.PRIORITY, f"{victim.key} has {theirs} at {common.path}, the ask {ours}")


def check_law_7(case: Case) -> Iterator[Violation]:
    """Yields victims outside the lowest fence around the ask."""
    fence = find_fence(case)
    for victim in case.victims:
        if fence not in path_of(victim.queue):
            yield Violation(Law.FENCE, f"{victim.key} in {victim.queue.path} is outside {fence.path}")


def check_within(case: Case) -> Iterator[Violation]:
    """Yields victims outside the leaf of the ask, and those whose own priority is not lower than that of the ask by the
    gap of the leaf (preemption.md M)."""
    settings = case.ask.queue.properties
    if settings.preempt_within is not PreemptWithin.PRIORITY or not settings.sort_by_priority:
        yield Violation(Law.ENTITLED, f"{case.ask.queue.path} does not preempt within itself")
    for victim in case.victims:
        if victim.queue is not case.ask.queue:
            yield Violation(Law.FENCE, f"{victim.key} in {victim.queue.path} is outside {case.ask.queue.path}")
        if case.ask.priority - victim.priority < settings.preempt_within_gap:
            numbers = f"{victim.key} has {victim.priority}, the ask {case.ask.priority}"
            yield Violation(Law.PRIORITY, f"{numbers}, the gap is {settings.preempt_within_gap}")


def find_fence(case: Case) -> Queue:
    """Returns the lowest queue on the ask's path that is the root, is fenced, or would end above its effective max
    (preemption.md B.2); for victims of its own leaf, that leaf."""
    if case.inside:
        return case.ask.queue
    for at, queue in enumerate(case.ask_path):
        if queue.parent is None or queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return queue
        for t, asked in case.demand.items():
            ceilings = [max(above.max[t], expected_usage(above, t)) for above in case.ask_path[at:-1] if t in above.max]
            if ceilings and expected_usage(queue, t) + asked > min(ceilings):
                return queue
    raise AssertionError("a path ends at the root")


def check_maxima(case: Case) -> Iterator[Violation]:
    """Yields maxima on the path that the ask would exceed once all victims are gone.

    A queue that is above its max already may stay above it, but must not hold more than before.
    """
    for t, asked in case.demand.items():
        for queue in case.ask_path[:-1]:
            most = queue.max.get(t)
            if most is not None:
                before = expected_usage(queue, t)
                after = before + asked - case.out_of(queue, t)
                if after > max(most, before):
                    detail = f"{queue.path} would reach {case.names[t]}={after} of {most}"
                    yield Violation(Law.SUFFICIENT, detail)


def list_queue_needs(case: Case, victims: Collection[Allocation]) -> list[overkill.Need]:
    """Returns the amounts that have to be freed in queues and guarantees, with what each of *victims* contributes."""
    found: list[overkill.Need] = []
    entitling = case.entitling_queues()
    for t, asked in case.demand.items():
        for queue in case.ask_path:
            before = expected_usage(queue, t)
            needed = 0
            if t in queue.max and queue.parent is not None:
                needed = before + asked - max(queue.max[t], before)
            if entitling.get(t) is queue and not _is_under(case, queue, t):
                needed = max(needed, before + asked - max(queue.guaranteed[t], before))
            if needed > 0:
                below = {v.key: v.shape.amounts.get(t, 0) for v in victims if queue in path_of(v.queue)}
                mine = may_be_taken_for(case, t, victims)
                found.append(overkill.Need(f"{case.names[t]} in {queue.path}", needed, below, mine))
    for account in case.ask.accounts if case.inside else ():
        theirs = [victim for victim in victims if account in victim.application.accounts]
        for t, over in limits.list_lacking(case.ask, account, case.names):
            below = {victim.key: victim.shape.amounts.get(t, 0) for victim in theirs}
            found.append(overkill.Need(f"{case.names[t]} of {account}", over, below, frozenset(below)))
    return found


def may_be_taken_for(case: Case, t: int, victims: Collection[Allocation]) -> frozenset[str]:
    """Returns the keys of those of *victims* that may be taken for type *t*: where no guarantee on the ask's path
    covers it, only those from a queue with a guarantee of that type; what others free of it counts as well."""
    owed = case.inside or t in case.entitling_queues()
    return frozenset(victim.key for victim in victims if owed or _declares_share(case, victim, t))


def _declares_share(case: Case, victim: Allocation, t: int) -> bool:
    """Tells whether a queue of *victim*, below the lowest queue that it shares with the ask, has a guarantee of type
    *t*, which law 2 protects."""
    common = case.common_queue(victim)
    return any(t in queue.guaranteed for queue in path_of(victim.queue) if queue.depth > common.depth)


def _is_under(case: Case, queue: Queue, t: int) -> bool:
    """Tells whether the guarantee of *queue* entitles the ask to type *t* without a swap."""
    held, guaranteed = expected_usage(queue, t), queue.guaranteed[t]
    return held < guaranteed if case.mode is GuaranteeMode.REACH else held + case.demand[t] <= guaranteed
