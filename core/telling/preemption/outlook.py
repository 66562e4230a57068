"""Forecasts whether preemption could make room for an ask, and what prevents it, by a dry run of each kind of
preemption.

Nothing is decided or counted, and the shim is not asked; the answer is the result of an attempt that the shim would not
object to.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.policies.guarantees import list_guarantees, project_usage
from kornel.core.preemption import eviction
from kornel.core.preemption.budgets import is_shadowed
from kornel.core.preemption.foresight import Circumstances, PreemptionOutlook, PreemptionVerdict
from kornel.core.preemption.kind import Kind
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.registry import KINDS
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.victim_index import RankedLeaf, VictimIndex
from kornel.shared.readable_amounts import format_count, format_quantity

_NO_HELP: Final = frozenset({PreemptionVerdict.FORBIDDEN, PreemptionVerdict.NO_VICTIMS})
_NO_KIND: Final = PreemptionOutlook(PreemptionVerdict.FORBIDDEN, "preemption.policies", "", "no kind serves this ask")


class ReadingIndex(VictimIndex):
    """Rankings of victims for questions, apart from those of the partition, which reading would change.

    They are kept from one question to the next. Allocations do not change during one answer, so each leaf is compared
    with its ranking once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[Queue, RankedLeaf] = {}

    def begin_answer(self) -> None:
        """Begins a new answer, in which every ranking is compared before it is used."""
        self._checked.clear()
        self._leaves = {leaf: ranked for leaf, ranked in self._leaves.items() if leaf.applications}

    def rank_leaf(self, leaf: Queue) -> RankedLeaf:
        """Returns the ranking of *leaf*, which is compared with the leaf once in each answer."""
        checked = self._checked.get(leaf)
        if checked is None:
            checked = self._checked[leaf] = super().rank_leaf(leaf)
        return checked


def _find_unit_outlook(unit: GangUnit) -> PreemptionOutlook:
    """Returns the result of the last attempt of a gang that is placed as a whole, because no victims leave for one
    member alone."""
    refusal = unit.refusal
    if refusal is not None:
        return _describe_refusal(refusal)
    verdict = PreemptionVerdict
    if not all(ask.spec.allow_preempt_other for ask in unit.asks()):
        detail = "not all members may preempt, so nothing is preempted for any of them"
        blocked_by = "preemption policy of members of the gang"
        return PreemptionOutlook(verdict.FORBIDDEN, blocked_by, Outcome.ASK_MAY_NOT_PREEMPT, detail)
    blocked_by, detail = "it is placed together with its gang", "nothing is preempted for a part of a gang"
    return PreemptionOutlook(verdict.FORBIDDEN, blocked_by, Outcome.GANG_INCOMPLETE, detail)


def _describe_refusal(refusal: Refusal) -> PreemptionOutlook:
    verdict, nobody = PreemptionVerdict, refusal.outcome is Outcome.GANG_INCOMPLETE
    said = verdict.NO_VICTIMS if nobody else verdict.FORBIDDEN
    return PreemptionOutlook(said, "", refusal.outcome, refusal.detail, refusal.retry_ns)


def find_outlook(
    state: PartitionState, ask: Allocation, now_ns: int, *, limited: NotPlaced | None, index: ReadingIndex
) -> PreemptionOutlook:
    """Returns what preemption can do for a pending *ask* that *limited* keeps back (``None``: no limit does)."""
    verdict = PreemptionVerdict
    if ask.triggered:
        left = tuple(eviction.victim_record(victim, victim.priority) for victim in ask.victims.values())
        node_id = ask.reservation.node.node_id if ask.reservation is not None else ""
        hold = state.gangs.hold_of(ask)
        waits_for = len(left) if hold is None else sum(len(member.victims) for member in hold.members)
        leaving = f"{format_count(waits_for, 'victim is', 'victims are')} still to leave"
        if hold is not None:
            leaving += f", for {format_count(len(hold.members), 'member')} of its gang that hold their places"
            leaving += f" by plan {hold.number}" if hold.number else ""
        detail = leaving if waits_for else _describe_freed_room(ask)
        under_way = PreemptionOutlook(
            verdict.UNDER_WAY, "", Outcome.TRIGGERED, detail, ask.rearm_ns or None, node_id, left
        )
        return _add_history(state, ask, under_way)
    if limited is not None and not state.victims_may_help(ask, limited):
        what = f"{limited.account}" if limited.account is not None else f"{limited.queue}"
        return PreemptionOutlook(
            verdict.FORBIDDEN, f"{limited.reason}: preemption cannot help", "", f"victims make no room in {what}"
        )
    if isinstance(ask.group, GangUnit):
        return _find_unit_outlook(ask.group)
    hold = state.gangs.hold_of(ask)
    if hold is not None:
        if hold.refusal is not None:
            return _describe_refusal(hold.refusal)
        blocked_by, detail = "it saves room together with its gang", "nothing is preempted for a part of a gang"
        return PreemptionOutlook(verdict.FORBIDDEN, blocked_by, Outcome.GANG_INCOMPLETE, detail)
    if ask.place is AskPlace.POOLED:
        return PreemptionOutlook(
            verdict.FORBIDDEN, "it waits for a placeholder", "", "placeholders preempt, not the ask"
        )
    return _ask_kinds(state, ask, Circumstances(limited, index, now_ns))


def _ask_kinds(state: PartitionState, ask: Allocation, asked: Circumstances) -> PreemptionOutlook:
    """Returns the answer of the first kind that helps *ask*; if none does, the first answer that says why not."""
    refused: PreemptionOutlook | None = None
    for kind in KINDS:
        found = kind.foresee(state, ask, asked)
        if found is None:
            continue
        found = _only_watched(state, kind, _in_words(kind, found))
        if found.verdict not in _NO_HELP:
            return _add_history(state, ask, found)
        refused = refused or found
    return _add_history(state, ask, refused or _NO_KIND)


def _describe_freed_room(ask: Allocation) -> str:
    """Returns what has become of the room that the victims of *ask* left."""
    claim = ask.reservation
    if claim is None or claim.node.fits_holder(claim):
        return "its victims are gone, and it is about to be placed"
    return f"its victims are gone, and what they left on {claim.node.node_id} was taken by others"


def _add_history(state: PartitionState, ask: Allocation, found: PreemptionOutlook) -> PreemptionOutlook:
    """Returns *found* with what else has to be known: how often freed room was lost, and a guarantee further up that a
    smaller one below it keeps *ask* from."""
    said = [found.detail] if found.detail else []
    if found.outcome == Outcome.NOT_UNDER_GUARANTEE:
        for guarantee in list_guarantees(ask):
            for queue in guarantee.queue.lineage()[1:]:
                left = queue.guaranteed.get(guarantee.t, 0) - project_usage(queue, guarantee.t)
                if left > 0:
                    name = state.types.names[guarantee.t]
                    amounts = format_quantity(name, left), format_quantity(name, queue.guaranteed[guarantee.t])
                    below = f"the smaller guarantee of {guarantee.queue.path} decides"
                    short = f"{amounts[0]} {name} short of its {amounts[1]} guaranteed"
                    said.append(f"{queue.path} is {short}, but {below}")
    if ask.rearms:
        said.append(f"room that was freed for it was lost {format_count(ask.rearms, 'time')}")
    return found._replace(detail="; ".join(said))


def _in_words(kind: Kind, found: PreemptionOutlook) -> PreemptionOutlook:
    """Returns *found*; if it names nothing that prevents the attempt, with the meaning of its outcome from the record
    of *kind*."""
    if found.blocked_by or not found.outcome:
        return found
    return found._replace(blocked_by=kind.ending_of(Outcome(found.outcome)).words)


def _only_watched(state: PartitionState, kind: Kind, found: PreemptionOutlook) -> PreemptionOutlook:
    """Returns *found*; if shadow mode alone keeps *kind* from helping, returns an outlook that says so."""
    if found.verdict is not PreemptionVerdict.WOULD_HELP or not is_shadowed(state, kind.name):
        return found
    return found._replace(
        verdict=PreemptionVerdict.FORBIDDEN,
        blocked_by="governor: shadow",
        outcome=Outcome.SHADOW,
        detail=f"preemption.governor.shadow lists {kind.name}, so it is decided and recorded, but not carried out",
        not_before_ns=None,
    )
