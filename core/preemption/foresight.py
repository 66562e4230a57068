"""The answers of the kinds of preemption when they are asked what they could do for an ask: no decisions."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.domain.effects import VictimRecord
from kornel.core.model.not_placed import NotPlaced
from kornel.core.preemption.victim_index import VictimIndex

UNLISTED: Final = "preemption.policies"
"""Names the setting that leaves a kind out."""
LIMITED: Final = "limit of one interval of the preemption cycle"


class Circumstances(NamedTuple):
    """The circumstances in which a kind is asked what it could do for an ask.

    limited  the limit that keeps the ask back; ``None``: none does
    victims  the allocations of each leaf in the order in which they would go
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
    """There is room without it."""
    FORBIDDEN = "forbidden"
    """A switch, limit, law or fence stands against it."""
    NO_VICTIMS = "no-victims"
    """Preemption is allowed, but no victims that the laws allow make enough room."""


class LawTally(NamedTuple):
    """Queues whose allocations are protected by the same rule, and the first of them."""

    law: str
    queues: int
    allocations: int
    example: str


class PreemptionOutlook(NamedTuple):
    """The forecast for an attempt to preempt for an ask.

    blocked_by     switch, limit, law, fence, delay or budget that stands against an attempt now; empty: nothing does,
                   or what the outcome means by the kind's own record
    outcome        code of preemption.md I for an attempt made now; empty: none could be made
    not_before_ns  when the next attempt may be made; ``None``: waiting does not bring one
    victims        who would have to leave ``node_id`` (under way: who has still to leave)
    protected      for attempts that find nobody: what protects whom
    """

    verdict: PreemptionVerdict
    blocked_by: str
    outcome: str
    detail: str
    not_before_ns: int | None = None
    node_id: str = ""
    victims: tuple[VictimRecord, ...] = ()
    protected: tuple[LawTally, ...] = ()
