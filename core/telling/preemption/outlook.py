"""Forecasts whether preemption could make room for an ask, and what stands against it: a dry run by each kind of
preemption.

Nothing is decided, counted or asked of the shim; the answer is what an attempt would come to without the shim's word.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.effects import VictimRecord
from kornel.core.domain.readable_amounts import format_count
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.partition.state import PartitionState
from kornel.core.preemption import eviction
from kornel.core.preemption.foresight import Circumstances, PreemptionOutlook, PreemptionVerdict
from kornel.core.preemption.governor import governing
from kornel.core.preemption.kind import Kind
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.registry import KINDS
from kornel.core.preemption.victim_index import RankedLeaf, VictimIndex

_NO_HELP: Final = frozenset({PreemptionVerdict.FORBIDDEN, PreemptionVerdict.NO_VICTIMS})
_NO_KIND: Final = PreemptionOutlook(PreemptionVerdict.FORBIDDEN, "preemption.policies", "", "no kind serves this ask")


class ReadingIndex(VictimIndex):
    """Rankings for questions, kept for the next one: those of the partition are put in order by looking at them.

    During one answer allocations do not come or go, so each leaf is compared with its ranking once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[Queue, RankedLeaf] = {}

    def begin_answer(self) -> None:
        """Begins a new answer, in which no ranking is trusted unseen."""
        self._checked.clear()
        self._leaves = {leaf: ranked for leaf, ranked in self._leaves.items() if leaf.applications}

    def rank_leaf(self, leaf: Queue) -> RankedLeaf:
        """Returns the ranking of *leaf*, compared with what is there once in each answer."""
        checked = self._checked.get(leaf)
        if checked is None:
            checked = self._checked[leaf] = super().rank_leaf(leaf)
        return checked

    def forget_leaf(self, leaf: Queue) -> None:
        """Drops the ranking of *leaf*, where something is supposed to be different."""
        self._leaves.pop(leaf, None)
        self._checked.pop(leaf, None)


def find_outlook(
    state: PartitionState, ask: Allocation, now_ns: int, *, limited: NotPlaced | None, index: ReadingIndex
) -> PreemptionOutlook:
    """Returns what preemption can do for a pending *ask* that *limited* keeps back (``None``: no limit does)."""
    verdict = PreemptionVerdict
    if ask.triggered:
        left = tuple(eviction.victim_record(victim, victim.priority) for victim in ask.victims.values())
        node_id = ask.reservation.node.node_id if ask.reservation is not None else ""
        leaving = f"{format_count(len(left), 'victim is', 'victims are')} still to leave"
        detail = leaving if left else "its victims are gone, the room is being given"
        return PreemptionOutlook(verdict.UNDER_WAY, "", Outcome.TRIGGERED, detail, ask.rearm_ns or None, node_id, left)
    if limited is not None and not limited.preemption_may_help:
        what = f"{limited.account}" if limited.account is not None else f"{limited.queue}"
        return PreemptionOutlook(
            verdict.FORBIDDEN, f"{limited.reason}: preemption cannot help", "", f"victims make no room in {what}"
        )
    if ask.group is not None and ask.group.is_unit:
        blocked_by, detail = "it is placed together with its gang", "nobody leaves for a part of a gang"
        return PreemptionOutlook(verdict.FORBIDDEN, blocked_by, Outcome.GANG_INCOMPLETE, detail)
    if ask.place is AskPlace.POOLED:
        return PreemptionOutlook(verdict.FORBIDDEN, "it waits for a placeholder", "", "placeholders preempt, not this")
    return _ask_kinds(state, ask, Circumstances(limited, index, now_ns))


def _ask_kinds(state: PartitionState, ask: Allocation, asked: Circumstances) -> PreemptionOutlook:
    """Returns the answer of the first kind that helps *ask*; if none does, that of the first that says why not."""
    refused: PreemptionOutlook | None = None
    for kind in KINDS:
        found = kind.foresee(state, ask, asked)
        if found is None:
            continue
        found = _only_watched(state, kind, _in_words(kind, found))
        if found.verdict not in _NO_HELP:
            return found
        refused = refused or found
    return refused or _NO_KIND


def _in_words(kind: Kind, found: PreemptionOutlook) -> PreemptionOutlook:
    """Returns *found*, with what its outcome means by the record of *kind* if it names nothing that stands against
    it."""
    if found.blocked_by or not found.outcome:
        return found
    return found._replace(blocked_by=kind.ending_of(Outcome(found.outcome)).words)


def _only_watched(state: PartitionState, kind: Kind, found: PreemptionOutlook) -> PreemptionOutlook:
    """Returns *found*, unless nothing but its being watched only keeps *kind* from helping: then it says so."""
    if found.verdict is not PreemptionVerdict.WOULD_HELP or not governing.is_shadowed(state, kind.name):
        return found
    return found._replace(
        verdict=PreemptionVerdict.FORBIDDEN,
        blocked_by="governor: shadow",
        outcome=Outcome.SHADOW,
        detail=f"preemption.governor.shadow lists {kind.name}, which only watches",
        not_before_ns=None,
    )


def victim_records(plan: PreemptionPlan) -> tuple[VictimRecord, ...]:
    """Returns the victims of *plan* as decisions name them."""
    return eviction.victim_records(plan)
