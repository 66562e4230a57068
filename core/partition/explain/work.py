"""One ask, allocation or application, explained as a whole."""

from __future__ import annotations

from typing import Final

from core.domain.explanation import (
    ApplicationReport,
    AskReport,
    EqualAsks,
    LostWork,
    PreemptedWork,
    PreemptionOutlook,
    PreemptionVerdict,
    Report,
)
from core.model.allocations import Allocation
from core.model.applications import Application
from core.partition.asks import finding
from core.partition.explain import standing
from core.partition.explain.blockers import blockers
from core.partition.explain.history import PreemptionHistory
from core.partition.explain.outlook import ReadingIndex, outlook
from core.partition.explain.position import position
from core.partition.state import PartitionState

MOST_KINDS: Final = 10
"""Groups of equal asks of one application that are explained, those tried first."""
MOST_LOST: Final = 20
"""Victims of one application that are listed."""


def explain_work(
    state: PartitionState, history: PreemptionHistory, index: ReadingIndex, name: str, now_ns: int
) -> Report | None:
    """What is known of the key or application ID *name*, keys first; ``None``: nothing. Changes nothing.

    Cost: linear in nodes and, if preemption finds nobody, in allocations; an application costs that per kind of ask.
    """
    index.begin()
    request = state.requests.get(name)
    if request is not None:
        return explain_ask(state, history, index, request, now_ns)
    application = state.applications.get(name)
    if application is not None:
        return _application(state, history, index, application, now_ns)
    work = history.of(name)
    return LostWork(name, work) if work is not None else None


def explain_ask(
    state: PartitionState, history: PreemptionHistory, index: ReadingIndex, ask: Allocation, now_ns: int
) -> AskReport:
    """Where *ask* stands. An allocation has neither blockers nor a position."""
    basics = standing.explain(state, ask.key)
    assert basics is not None, "a request of the partition is known to it"
    report = AskReport(
        ask.spec.key,
        basics.application_id,
        basics.queue,
        basics.state,
        basics.node_id,
        ask.priority,
        ask.shape.resources,
        ask.created_ns,
        failures=basics.failures,
    )
    if not ask.pending:
        return report._replace(preempted=_preempted(history, ask) if ask.preempted else None)
    found, fitting = blockers(state, ask)
    needless = PreemptionOutlook(PreemptionVerdict.NOT_NEEDED, "", "", "nothing is in its way")
    return report._replace(
        blockers=found,
        fitting_nodes=fitting,
        position=position(state, ask),
        preemption=outlook(state, ask, now_ns, limited=finding.kept_back(state, ask), index=index)
        if found
        else needless,
        preempted=history.of(ask.spec.key),
    )


def _preempted(history: PreemptionHistory, victim: Allocation) -> PreemptedWork | None:
    return history.of(victim.spec.key)


def _application(
    state: PartitionState, history: PreemptionHistory, index: ReadingIndex, application: Application, now_ns: int
) -> ApplicationReport:
    heads: dict[tuple[object, ...], list[Allocation]] = {}
    for ask in sorted((a for a in application.asks.values() if a.pending), key=lambda a: a.order):
        heads.setdefault(_kind(ask), []).append(ask)
    held = [a + b for a, b in zip(application.real, application.placeholder, strict=True)]
    return ApplicationReport(
        application.application_id,
        application.queue.path,
        str(application.state),
        application.user,
        sum(map(len, heads.values())),
        len(application.allocations),
        state.types.resources(held),
        len(heads),
        tuple(
            EqualAsks(len(asks), explain_ask(state, history, index, asks[0], now_ns))
            for asks in list(heads.values())[:MOST_KINDS]
        ),
        history.of_application(application.application_id, MOST_LOST),
    )


def _kind(ask: Allocation) -> tuple[object, ...]:
    """Asks of the same kind have the same blockers; one with a node kept or held for it stands alone."""
    alone = ask.key if ask.reservation is not None or ask.held_on is not None or ask.refused is not None else ""
    pool = ask.pool.name if ask.pool is not None else ""
    return (ask.shape, ask.spec.required_node, ask.priority, ask.spec.allow_preempt_other, pool, alone)
