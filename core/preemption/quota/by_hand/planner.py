"""Plans what a person asks to preempt, with the order and the walk of lowered maxima (preemption.md N, D.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Final

from kornel.core.domain.commands import CommandRefused, Fault, PreemptByHand, Waivable
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import ResourceTypes
from kornel.core.preemption.gang_losses import GangLosses, is_bound, list_whole
from kornel.core.preemption.quota.by_hand.plan import HandPlan
from kornel.core.preemption.quota.plan import QuotaPlan
from kornel.core.preemption.quota.planner import finish_plan, outcome_of, plan_in_steps
from kornel.core.preemption.quota.shares import net_usage
from kornel.core.preemption.quota.victims import Choice, VictimOrder
from kornel.core.preemption.run_times import last_end, say_until
from kornel.shared.readable_amounts import format_quantities

LONGEST_REASON: Final = 1_000
"""The most characters of a reason, which each of its records repeats."""


def refuse_call(message: str) -> CommandRefused:
    """Returns the refusal of a wrong call, with *message*."""
    return CommandRefused(Fault.INVALID_ARGUMENT, message)


def _read_waived(order: PreemptByHand) -> frozenset[Waivable]:
    unknown = [name for name in order.waived if name not in tuple(Waivable)]
    if unknown:
        raise refuse_call(f"there is no law {unknown[0]!r} to waive, only {', '.join(Waivable)}")
    if order.waived and not order.reason.strip():
        raise refuse_call("whoever waives a law has to give a reason")
    if len(order.reason) > LONGEST_REASON:
        raise refuse_call(f"a reason has at most {LONGEST_REASON} characters")
    return frozenset(map(Waivable, order.waived))


def plan_amount(order: PreemptByHand, queue: Queue, types: ResourceTypes, now_ns: int) -> HandPlan:
    """Returns the plan to free the amount of *order* in *queue*. Raises :class:`CommandRefused` if the queue does not
    hold so much, or the call is wrong."""
    waived, amount = _read_waived(order), order.amount
    indexes = {name: types.known_index(name) for name in amount or ()}
    if amount is None or not amount.is_something() or amount.has_negative():
        raise refuse_call("an amount of a queue has to be above 0")
    held = {name: 0 if t is None else net_usage(queue, t) for name, t in indexes.items()}
    if any(amount[name] > held[name] for name in held):
        raise refuse_call(f"queue {queue.path} holds only {format_quantities(held)}")
    ceilings = {t: held[name] - amount[name] for name, t in indexes.items() if t is not None and amount[name]}
    steps = plan_in_steps(queue, 0, ceilings=ceilings, now_ns=now_ns, waived=waived)
    return HandPlan(order, waived, finish_plan(steps))


def plan_named(order: PreemptByHand, root: Queue, tasks: Sequence[Allocation], now_ns: int) -> HandPlan:
    """Returns the plan for *tasks*, which run and are those that *order* names. Raises :class:`CommandRefused` if the
    call is wrong."""
    waived, wanted, kept = _read_waived(order), sum_amounts(tasks), dict[Allocation, str]()
    ceilings = {t: net_usage(root, t) - amount for t, amount in wanted.items()}
    if not wanted:
        return HandPlan(order, waived, QuotaPlan(root, ceilings, {}, (), {}, Outcome.NOTHING_TO_DO))
    ranks = VictimOrder(root, wanted, ceilings, now_ns, waived)
    choice = Choice(wanted, guarded=Waivable.GUARANTEE not in waived)
    for unit, why in _find_units(sorted(tasks, key=ranks.key_of), choice.victims, waived, now_ns):
        # Everything that is named is wanted, so only law 2 can refuse it here.
        if why or not choice.take_gang(unit, wanted):
            kept.update((task, why or Waivable.GUARANTEE) for task in unit if task not in choice.victims)
    unmet = choice.unmet_amounts()
    reached = outcome_of(wanted, unmet, 0, any_victims=bool(choice.victims))
    plan = QuotaPlan(root, ceilings, wanted, tuple(choice.victims), unmet, reached)
    return HandPlan(order, waived, plan, kept)


def _find_units(
    tasks: Sequence[Allocation], taken: Container[Allocation], waived: frozenset[Waivable], now_ns: int
) -> Iterator[tuple[tuple[Allocation, ...], str]]:
    """Yields *tasks*, in order, as they may leave: each alone, then gangs as a whole. With each: why it stays; empty:
    it need not. *taken*: those that have been taken by then, which count as members beyond the minimum."""
    named, spare = set(tasks), GangLosses()
    gangs: dict[object, tuple[Allocation, ...]] = {}
    given: Counter[tuple[object, str]] = Counter()
    for task in tasks:
        application, why = task.application, _find_reason((task,), waived, now_ns)
        group = application, task.spec.task_group
        if is_bound(task) and Waivable.GANG not in waived and given[group] >= spare.surplus_of(task):
            if application not in gangs:
                members = set(list_whole(application, bound=Waivable.REQUIRED_NODE not in waived))
                gangs[application] = tuple(filter(members.__contains__, tasks)) if members <= named else ()
            if gangs[application]:
                continue
            why = why or Waivable.GANG
        yield (task,), why
        given[group] += task in taken
    for gang in filter(None, gangs.values()):
        yield gang, _find_reason(gang, waived, now_ns)


def _find_reason(unit: Sequence[Allocation], waived: frozenset[Waivable], now_ns: int) -> str:
    """Returns why the tasks of *unit*, which leave together, stay, whatever they free; empty: nothing is known."""
    if Waivable.REQUIRED_NODE not in waived and any(task.spec.required_node for task in unit):
        return Waivable.REQUIRED_NODE
    until_ns = 0 if Waivable.RUN_TIME in waived else max(last_end((task,), task.queue) for task in unit)
    return f"{Waivable.RUN_TIME}, {say_until(until_ns)}" if until_ns > now_ns else ""
