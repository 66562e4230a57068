"""Defines the record of a kind of preemption, which holds everything that code outside the package of the kind needs to
know. The registry lists the records. Configuration, engine, laws, metrics, log, history, REST, explain and the web page
read them and contain no names of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from kornel.core.domain.commands import PreemptionNoticeAnswer
from kornel.core.domain.reasons import Outcome
from kornel.core.laws.verdict import Violation
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.not_placed import NotPlaced
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.budgets import NAME as GOVERNOR_NAME
from kornel.core.preemption.foresight import Circumstances, PreemptionOutlook
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold


class Level(StrEnum):
    """The levels at which the log reports decisions."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


class Tone(StrEnum):
    """The colours of an outcome on the web page, from good to bad."""

    NEUTRAL = ""
    GOOD = "good"
    ACCENT = "accent"
    WARN = "warn"
    BAD = "bad"


class Colour(StrEnum):
    """The colours of kinds on the web page, in its light and its dark theme."""

    BLUE = "blue"
    AMBER = "amber"
    VIOLET = "violet"
    TEAL = "teal"
    ROSE = "rose"
    GREY = "grey"


@dataclass(frozen=True, slots=True)
class Ending:
    """The treatment of one outcome of a decision.

    words    its meaning by the laws or the bounds, for explanations; empty: its detail says enough
    law      the number of the only law that decided so; empty: no single law did
    leaves   tells whether the victims that the decision names have to leave
    counted  tells whether its metric is published before it happens for the first time
    level    the level of its line in the log
    tone     its colour on the web page
    """

    words: str = ""
    law: str = ""
    leaves: bool = False
    counted: bool = False
    level: Level = Level.DEBUG
    tone: Tone = Tone.NEUTRAL


UNREMARKABLE: Final = Ending()


@dataclass(frozen=True, slots=True)
class DecisionSource:
    """A source of decisions about preemption: a kind, or the governor, which bounds all kinds.

    name      its name in decisions, metrics, the history and ``queues.yaml``
    outcomes  the outcomes of its decisions; one that is not listed is unremarkable
    colour    its colour on the web page
    """

    name: str
    outcomes: Mapping[Outcome, Ending]
    colour: Colour = Colour.GREY

    def ending_of(self, outcome: Outcome) -> Ending:
        """Returns the treatment of *outcome*."""
        return self.outcomes.get(outcome, UNREMARKABLE)


def do_nothing(*_: object) -> None:
    """Does nothing; stands for an act that a kind does not have, and for the answer that there is nothing."""


def say_no(*_: object) -> bool:
    """Returns false; stands for a question to which the answer of a kind is always no."""
    return False


def say_yes(*_: object) -> bool:
    """Returns true; stands for a question to which the answer of a kind is always yes."""
    return True


def count_nothing(*_: object) -> int:
    """Returns 0: the kind cannot say how much of its work is left, or has none that continues from slice to slice."""
    return 0


def set_aside(*_: object) -> tuple[int, bool]:
    """Returns that nothing was spent on a group or a gang, and that it has to be set aside."""
    return 0, False


@dataclass(frozen=True, slots=True)
class Driver:
    """The acts of a kind in a partition, by occasion.

    configured      a new configuration is in force
    begin_again     another core continues with the partition, from a journal
    in_round        its turn in a round of the preemption cycle, in the order of ``preemption.policies``
    tries_again     tells whether this turn tries a reserved ask again, if something has changed for it; ``None``: none
    wants_round     tells whether that turn could achieve anything now; without such a kind there are no rounds
    has_work        tells whether a slice that begins now has anything for the kind to do; if there is none for any kind
                    and nothing is decided, the slice calls none of the next four and no ``end_slice``
    offer_due       a slice or a round begins: offers the asks whose next attempt is due
    resume          offers the asks that had to wait while another kind was busy; returns whether there were any
    is_busy         tells whether it has work that continues from slice to slice
    advance         continues that work for about the given number of decisions
    work_left       an upper bound for the steps that are left to the search under way; it falls with every slice, until
                    the search ends or something changes
    serve_unplaced  makes room for an ask of a group with due asks, which found no node; returns the cost in
                    decisions, and whether the group may stay where it is, because it has preempted or has more to try
    take_over       gives an ask that found no node the room made for another one; returns what is left of its claim
    serve_unit      makes room for all members of a gang that found no places; returns the same
    serve_reserved  makes room for an ask with a reservation, which a limit may keep back; returns whether it did
    end_slice       a slice ends
    note_arrival    an allocation holds an amount on a node without any check
    note_amendment  an allocation has got another priority, other tags or another preemption policy
    repeat_notices  a shim has subscribed: sends the open notices again
    note_answer     the shim has answered a notice; returns whether the notice belongs to this kind in this partition
    """

    configured: Callable[[PartitionState, int], None] = do_nothing
    begin_again: Callable[[PartitionState, int], None] = do_nothing
    in_round: Callable[[PartitionState, int], None] = do_nothing
    tries_again: Callable[[Reservation], bool] | None = None
    wants_round: Callable[[PartitionState], bool] = say_no
    has_work: Callable[[PartitionState, int], bool] = say_yes
    offer_due: Callable[[PartitionState, int], None] = do_nothing
    resume: Callable[[PartitionState, int], bool] = say_no
    is_busy: Callable[[PartitionState], bool] = say_no
    advance: Callable[[PartitionState, int, int], object] = do_nothing
    work_left: Callable[[PartitionState], int] = count_nothing
    serve_unplaced: Callable[[PartitionState, AskGroup, NotPlaced, int], tuple[int, bool]] = set_aside
    take_over: Callable[[PartitionState, Allocation, int], Reservation | None] = do_nothing
    serve_unit: Callable[
        [PartitionState, GangUnit | GangHold, Sequence[Allocation], NotPlaced, int], tuple[int, bool]
    ] = set_aside
    serve_reserved: Callable[[PartitionState, Reservation, NotPlaced | None, int], bool] = say_no
    end_slice: Callable[[PartitionState, int], None] = do_nothing
    note_arrival: Callable[[PartitionState, Allocation, int], None] = do_nothing
    note_amendment: Callable[[PartitionState, Allocation, int], None] = do_nothing
    repeat_notices: Callable[[PartitionState], None] = do_nothing
    note_answer: Callable[[PartitionState, PreemptionNoticeAnswer], bool] = say_no


BOUNDS: Final = MappingProxyType(
    {
        Outcome.BUDGET_SPENT: Ending("budget spent", tone=Tone.WARN),
        Outcome.COOLING_DOWN: Ending("pause of the queue that would lose", tone=Tone.WARN),
        Outcome.LOOP: Ending("two queues take from each other in turns", tone=Tone.WARN),
        Outcome.VICTIM_LIMIT: Ending("victims for one ask", counted=True, tone=Tone.WARN),
        Outcome.ROUND_LIMIT: Ending(tone=Tone.WARN),
    }
)
"""The outcomes with which a bound stops a lawful plan of a kind (preemption.md F7, K13)."""

GOVERNOR: Final = DecisionSource(
    name=GOVERNOR_NAME,
    outcomes=MappingProxyType(
        {
            outcome: Ending(counted=outcome is not Outcome.VICTIM_LIMIT, level=Level.INFO, tone=Tone.WARN)
            for outcome in BOUNDS
        }
    ),
)
"""The governor as a source of decisions: it bounds what all kinds take, and takes nothing itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(DecisionSource):
    """A kind of preemption.

    laws        the numbers of the laws that bind it, in order
    allowed_by  what allows it to ask for releases, as a sentence
    planner     finds victims, or the reason why there are none; changes nothing
    check       returns the laws that a plan of this kind would break; shares no code with the planner
    driver      its acts, by occasion
    foresee     forecasts what it could do for an ask, for explanations; ``None``: it does nothing for this ask
    records     the classes of its records in a partition, which a what-if may change and restores
    """

    laws: tuple[int, ...]
    allowed_by: str
    planner: Callable[..., Any]
    check: Callable[[PartitionView, Any], tuple[Violation, ...]]
    driver: Driver
    foresee: Callable[[PartitionState, Allocation, Circumstances], PreemptionOutlook | None] = do_nothing
    records: tuple[type, ...] = ()

    @property
    def law_numbers(self) -> str:
        """The numbers of its laws, as they appear in metrics and the history."""
        return " ".join(map(str, self.laws))
