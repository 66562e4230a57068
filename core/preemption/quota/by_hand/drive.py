"""Carries out what a person asks to preempt, in one step (preemption.md N)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from kornel.core.domain.commands import PreemptByHand, PreemptTarget
from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.gang_losses import describe_torn, describe_whole
from kornel.core.preemption.quota.above_max import say_protection
from kornel.core.preemption.quota.by_hand import laws
from kornel.core.preemption.quota.by_hand.plan import KIND, HandPlan
from kornel.core.preemption.quota.by_hand.planner import plan_amount, plan_named, refuse_call
from kornel.core.preemption.quota.victims import is_out_of_reach
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.shared.readable_amounts import format_quantities

MOST_SAID: Final = 8
"""The most tasks, or reasons, that a record names of what stays."""


def foresee_order(state: PartitionState, order: PreemptByHand, now_ns: int) -> PreemptionDecided:
    """Returns the decision that *order* would lead to at *now_ns*, and changes nothing. Raises
    :class:`CommandRefused` if it names nothing that may be named."""
    return _make_decision(state, _find_plan(state, order, now_ns), now_ns)


def preempt(state: PartitionState, order: PreemptByHand, now_ns: int) -> None:
    """Asks those to leave whom *order* names and no law keeps, and records the decision. Raises what
    :func:`foresee_order` does, before anything is changed."""
    plan = _find_plan(state, order, now_ns)
    # This precedes the marking, because marked allocations count as gone.
    decided = _make_decision(state, plan, now_ns)
    refusal = eviction.judge_plan(state, laws.check(state, plan))
    if refusal is not None:
        detail = f"{decided.detail}; {refusal.detail}"
        state.report_decision(decided._replace(outcome=refusal.outcome, detail=detail, victims=()))
        return
    victims = plan.victims
    if victims:
        said = _say_person(order)
        budgets.note_taken(state, KIND, victims, None, (), now_ns)
        eviction.evict_victims(state, victims, None, f"preempted {said}", now_ns)
        state.preemptions += 1
        if state.recording:
            state.events.preempted_by_hand(victims, said)
        look_ns = now_ns + state.preemption.victim_timeout_ns
        state.run_at(look_ns, partial(_look_at_victims, state, victims, decided.queue, said))
    state.report_decision(decided)


def _find_plan(state: PartitionState, order: PreemptByHand, now_ns: int) -> HandPlan:
    """Returns the plan for *order*. Raises :class:`CommandRefused` if it names nothing that may be named."""
    if order.target is not PreemptTarget.QUEUE:
        return plan_named(order, state.root, _find_named(state, order), now_ns)
    queue = state.queues.get(order.name.lower())
    if queue is None:
        raise refuse_call(f"there is no queue {order.name!r}")
    return plan_amount(order, queue, state.types, now_ns)


def _find_named(state: PartitionState, order: PreemptByHand) -> list[Allocation]:
    """Returns what runs of what *order* names."""
    name, found = order.name, list[Allocation]()
    if order.target is PreemptTarget.NODE:
        node = state.nodes.get(name)
        if node is None:
            raise refuse_call(f"there is no node {name!r}")
        if node.schedulable:
            raise refuse_call(f"node {name} takes new work: drain it first")
        found = list(node.allocations.values())
    elif order.target is PreemptTarget.APPLICATION:
        application = state.applications.get(name)
        if application is None:
            raise refuse_call(f"there is no application {name!r}")
        found = list(application.allocations.values())
    else:
        alike = state.instances.get(name, {}).values()
        named = dict.fromkeys([*filter(None, [state.requests.get(name)]), *alike])
        found = [task for task in named if task.node is not None]
        if not found:
            raise refuse_call(f"no allocation {name!r} runs")
    return [task for task in found if not is_out_of_reach(task)]


def _make_decision(state: PartitionState, plan: HandPlan, now_ns: int) -> PreemptionDecided:
    order, victims = plan.order, plan.victims
    records = tuple(eviction.victim_record(victim, victim.priority) for victim in victims)
    node_id = order.name if order.target is PreemptTarget.NODE else ""
    leaves = dict.fromkeys(task.queue.path for task in (*victims, *plan.kept))
    below = len(leaves) == 1 and order.target is not PreemptTarget.QUEUE
    queue = next(iter(leaves)) if below else plan.enforced.queue.path
    parts = [_say_person(order), f"{order.target} {order.name}", *_say_result(state, plan)]
    parts += describe_whole(victims).values()
    parts += describe_torn(victims).values()
    return PreemptionDecided(now_ns, state.name, KIND, "", "", queue, plan.outcome, "; ".join(parts), node_id, records)


def _say_person(order: PreemptByHand) -> str:
    """Describes who gave *order*, why, and against which laws."""
    waived = f", {', '.join(sorted(set(order.waived)))} waived" if order.waived else ""
    return f"by hand by {order.by or 'somebody'}{waived}{f': {order.reason}' if order.reason else ''}"


def _say_result(state: PartitionState, plan: HandPlan) -> list[str]:
    if plan.outcome is Outcome.NOTHING_TO_DO:
        return ["nothing runs there that is not leaving already"]
    enforced, named = plan.enforced, state.types.to_resources
    found = [f"asked to leave {len(plan.victims)}"]
    if plan.order.target is PreemptTarget.QUEUE:
        wanted, unmet = (format_quantities(named(amounts)) for amounts in (enforced.target, enforced.unmet))
        found.append(f"target {wanted}, unmet {unmet}")
        found += [say_protection(state, each) for each in enforced.protected[:MOST_SAID]]
    counts = sorted(Counter(plan.kept.values()).items())
    for reason, count in counts[:MOST_SAID]:
        keys = [task.spec.key for task, why in plan.kept.items() if why == reason]
        more = ", ..." if count > MOST_SAID else ""
        found.append(f"kept {count} ({reason}): {', '.join(keys[:MOST_SAID])}{more}")
    if counts[MOST_SAID:]:
        found.append(f"kept {sum(count for _, count in counts[MOST_SAID:])} more, until later")
    return found


def _look_at_victims(state: PartitionState, victims: Sequence[Allocation], queue: str, said: str, now_ns: int) -> None:
    """Counts no longer on those of *victims* that have not left in time, and reports them (preemption.md K14)."""
    stuck = [victim for victim in victims if victim.preempted and victim not in state.stuck]
    if not stuck:
        return
    for victim in stuck:
        state.stuck[victim] = victim.queue
        ledger.expect_no_exit(state, victim)
    detail = f"{said}; not gone after {state.preemption.victim_timeout_ns / 10**9:g} s"
    records = tuple(eviction.victim_record(victim, victim.priority) for victim in stuck)
    outcome = Outcome.VICTIM_STUCK
    state.report_decision(PreemptionDecided(now_ns, state.name, KIND, "", "", queue, outcome, detail, "", records))
