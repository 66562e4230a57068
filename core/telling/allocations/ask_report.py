"""Explains one ask, allocation or application: its state, what keeps it waiting, and what is tried before it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation, together_of
from kornel.core.model.applications import Application
from kornel.core.policies.application_order import application_key
from kornel.core.policies.queue_order import queue_key
from kornel.core.preemption.foresight import PreemptionOutlook, PreemptionVerdict
from kornel.core.preemption.registry import allowed_by
from kornel.core.state.asks import finding
from kornel.core.state.history.recent_victims import RecentVictim
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import failing
from kornel.core.telling.allocations.blockers import find_blockers
from kornel.core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    EqualAsks,
    LostWork,
    Position,
    PreemptedWork,
    Report,
)
from kornel.core.telling.encoding.values import write_second
from kornel.core.telling.preemption.outlook import ReadingIndex, find_outlook
from kornel.shared.readable_amounts import format_count

MOST_KINDS: Final = 10
"""The most groups of equal asks of one application that are explained, beginning with those tried first."""
MOST_LOST: Final = 20
"""The most victims of one application that are listed."""


def explain_work(state: PartitionState, index: ReadingIndex, name: str, now_ns: int) -> Report | None:
    """Explains the ask, allocation or application called *name*; keys are searched before application IDs. ``None``:
    nothing has that name. Changes nothing.

    The cost is linear in nodes and, if preemption finds no victims, in allocations; for an application, once for each
    group of equal asks.
    """
    index.begin_answer()
    request = state.requests.get(name)
    if request is not None:
        return _explain_ask(state, index, request, now_ns)
    application = state.applications.get(name)
    if application is not None:
        return _explain_application(state, index, application, now_ns)
    lost = _find_preempted(state, name)
    return LostWork(name, lost) if lost is not None else None


def ask_standing(ask: Allocation) -> AskReport:
    """Returns where *ask* waits and why its attempts failed, at constant cost, without a search for blockers."""
    stands, node_id = _describe_standing(ask)
    return AskReport(
        ask.spec.key,
        ask.application.application_id,
        ask.queue.path,
        stands,
        node_id,
        ask.priority,
        ask.shape.resources,
        ask.created_ns,
        failures=failing.failures_of(ask),
    )


def _describe_standing(ask: Allocation) -> tuple[str, str]:
    """Returns the name of the state of *ask*, and the node that belongs to it."""
    if ask.node is not None:
        return "Allocated", ask.node.node_id
    held_on = ask.held_on
    if held_on is not None:
        return "Held", held_on.node_id
    if ask.reservation is not None:
        return "Reserved", ask.reservation.node.node_id
    return "Pending", ""


def _explain_ask(state: PartitionState, index: ReadingIndex, ask: Allocation, now_ns: int) -> AskReport:
    """Explains *ask* as a whole. An allocation has neither blockers nor a position."""
    report = ask_standing(ask)
    if not ask.pending:
        return report._replace(preempted=_find_preempted(state, ask.spec.key) if ask.preempted else None)
    found, fitting = find_blockers(state, ask)
    needless = PreemptionOutlook(PreemptionVerdict.NOT_NEEDED, "", "", "nothing keeps it from being placed")
    return report._replace(
        blockers=found,
        fitting_nodes=fitting,
        position=find_position(state, ask),
        preemption=find_outlook(state, ask, now_ns, limited=finding.exceeded_limit(state, ask), index=index)
        if found
        else needless,
        preempted=_find_preempted(state, ask.spec.key),
    )


def _find_preempted(state: PartitionState, key: str) -> PreemptedWork | None:
    victim = state.recent_victims.find_victim(key)
    return _preempted_work(victim) if victim is not None else None


def _preempted_work(victim: RecentVictim) -> PreemptedWork:
    """Returns the decision by which *victim* was preempted, for what, and by which rule."""
    record, decided = victim
    reason, _, alternatives = decided.detail.partition("; weighed: ")
    return PreemptedWork(
        record,
        decided.at_ns,
        decided.kind,
        decided.key,
        decided.application_id,
        decided.queue,
        allowed_by(decided.kind),
        reason,
        alternatives,
    )


def _explain_application(
    state: PartitionState, index: ReadingIndex, application: Application, now_ns: int
) -> ApplicationReport:
    heads: dict[tuple[object, ...], list[Allocation]] = {}
    for ask in sorted((a for a in application.asks.values() if a.pending), key=lambda a: a.order):
        heads.setdefault(_kind_of(state, ask), []).append(ask)
    held = [a + b for a, b in zip(application.real, application.placeholder, strict=True)]
    lost = state.recent_victims.of_application(application.application_id)
    return ApplicationReport(
        application.application_id,
        application.queue.path,
        str(application.state),
        application.user,
        sum(map(len, heads.values())),
        len(application.allocations),
        state.types.to_resources(held),
        len(heads),
        tuple(
            EqualAsks(len(asks), _explain_ask(state, index, asks[0], now_ns))
            for asks in list(heads.values())[:MOST_KINDS]
        ),
        tuple(map(_preempted_work, islice(lost, MOST_LOST))),
        tuple(_find_remarks(application)),
    )


def _find_remarks(application: Application) -> Iterator[str]:
    """Yields what its asks do not tell about *application*: placeholders that waited too long, and that nothing is
    asked for."""
    for name, group in sorted(application.task_groups.items()):
        if group.timed_out:
            count = format_count(group.timed_out, "placeholder")
            yield f"{count} of task group {name} timed out: no ask took their places in time"
    if not application.asks:
        said, last_ns = "has been asked for since", application.submitted_ns
        if application.entered:
            said, last_ns = "has waited or run since", application.entered[-1].at_ns
        if application.allocations:
            said = "waits; the latest of what runs was asked for at"
            last_ns = max(held.created_ns for held in application.allocations.values())
        yield f"nothing {said} {write_second(last_ns)}"


def _kind_of(state: PartitionState, ask: Allocation) -> tuple[object, ...]:
    """Returns the key of asks that have the same blockers; an ask that holds room has a key of its own, unless it holds
    it together with its gang or saves it by age."""
    held = ask.reservation
    alone = ask.key if held is not None or ask.place is AskPlace.HELD or ask.refused is not None else ""
    if held is not None and (state.gangs.hold_of(ask) is not None or (held.by_age and ask.refused is None)):
        alone = "with its gang" if not held.by_age else "by age"
    pool = ask.pool.name if ask.pool is not None else ""
    together = together_of(ask.spec)
    return (ask.shape, ask.spec.required_node, ask.priority, ask.spec.allow_preempt_other, pool, alone, together)


def find_position(state: PartitionState, ask: Allocation) -> Position:
    """Returns the place of a pending *ask*, from 1, in the order in which everything that waits would be tried now.

    The order of queues and applications changes with every placement, so the place is valid only now. The cost is
    linear in the asks that wait in the leaf, and in the siblings on the path to the root.
    """
    application, leaf = ask.application, ask.queue
    mine = _waiting_asks(application)
    before = sum(1 for other in mine if other.order < ask.order)
    # Asks that are held or in a pool are pending too, so an ask always finds itself.
    in_leaf, leaf_of = before, len(mine)
    key = application_key(application)
    for other in leaf.applications.values():
        if other is not application:
            count = len(_waiting_asks(other))
            leaf_of += count
            if count and application_key(other) < key:
                in_leaf += count
    overall = in_leaf
    for queue in leaf.lineage():
        if queue.parent is not None:
            own = queue_key(queue)
            siblings = queue.parent.children.values()
            overall += sum(s.waiting for s in siblings if s is not queue and s.waiting and queue_key(s) < own)
    return Position(before + 1, len(mine), in_leaf + 1, leaf_of, overall + 1, max(overall + 1, state.root.waiting))


def _waiting_asks(application: Application) -> list[Allocation]:
    return [ask for ask in application.asks.values() if ask.pending]
