"""Defines the forecasts with which kinds of preemption say what they could do for an ask, without deciding anything."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.domain.effects import VictimRecord
from kornel.core.model.not_placed import NotPlaced
from kornel.core.state.records.victim_index import VictimIndex

UNLISTED: Final = "preemption.policies"
"""The setting that lists the kinds of preemption, and so forbids every kind that it does not list."""
LIMITED: Final = "limit of one interval of the preemption cycle"


class Circumstances(NamedTuple):
    """The circumstances that a kind is given when it is asked what it could do for an ask.

    limited  the limit that keeps the ask back; ``None``: there is none
    victims  the allocations of each leaf, in the order in which they would be preempted
    """

    limited: NotPlaced | None
    victims: VictimIndex
    now_ns: int


class PreemptionVerdict(StrEnum):
    """The judgements of what preemption can do for an ask."""

    WOULD_HELP = "would-help"
    """The next attempt finds victims."""
    UNDER_WAY = "under-way"
    """The ask has preempted, and its victims are leaving."""
    NOT_NEEDED = "not-needed"
    """There is room without preemption."""
    FORBIDDEN = "forbidden"
    """A setting, limit, law or fence forbids preemption."""
    NO_VICTIMS = "no-victims"
    """Preemption is allowed, but the victims that the laws allow do not make enough room."""


class LawTally(NamedTuple):
    """The queues whose allocations are protected by the same rule: how many, and the first of them."""

    law: str
    queues: int
    allocations: int
    example: str


class PreemptionOutlook(NamedTuple):
    """The forecast for an attempt to preempt for an ask.

    blocked_by     the switch, limit, law, fence, delay or budget that prevents an attempt now; empty: there is none, or
                   the kind's record says what the outcome means
    outcome        the code (preemption.md I) of an attempt made now; empty: none could be made
    not_before_ns  when the next attempt may be made; ``None``: waiting does not help
    victims        the victims that would have to leave ``node_id``; while preemption is under way, those still there
    protected      if no victims are found, the laws that protect allocations, and how many
    """

    verdict: PreemptionVerdict
    blocked_by: str
    outcome: str
    detail: str
    not_before_ns: int | None = None
    node_id: str = ""
    victims: tuple[VictimRecord, ...] = ()
    protected: tuple[LawTally, ...] = ()
