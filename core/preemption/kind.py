"""The record of a kind of preemption, which holds what there is to know of it from outside its room and is read by
everything that tells kinds apart. The registry lists the records; configuration, engine, laws, metrics, log, history,
REST, explain and the web page hold no names of kinds of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from kornel.core.domain.commands import PreemptionNoticeAnswer
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import VictimBound
from kornel.core.laws.verdict import Violation
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.not_placed import NotPlaced
from kornel.core.partition.state import PartitionState
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.foresight import Circumstances, PreemptionOutlook


class Level(StrEnum):
    """The levels at which the log tells of a decision."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


class Tone(StrEnum):
    """The tones in which the web page shows how good or bad an outcome is."""

    NEUTRAL = ""
    GOOD = "good"
    ACCENT = "accent"
    WARN = "warn"
    BAD = "bad"


class Colour(StrEnum):
    """The colours that the web page has for kinds, in its light and in its dark theme."""

    BLUE = "blue"
    AMBER = "amber"
    VIOLET = "violet"
    TEAL = "teal"
    ROSE = "rose"
    GREY = "grey"


@dataclass(frozen=True, slots=True)
class Ending:
    """The treatment of one way for a decision to end.

    words    what it means by the laws or the bounds, for explanations; empty: its detail says enough
    law      the number of the law that alone decided so; empty: no single one did
    leaves   the victims that the decision names have to leave
    counted  its series is published before it happens for the first time
    level    of the line in the log
    tone     on the web page
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
    """The maker of decisions about preemption: a kind, or the governor, which bounds all kinds.

    name      as decisions, metrics, the history and ``queues.yaml`` write it
    outcomes  how its decisions can end; one that is not listed is unremarkable
    colour    on the web page
    """

    name: str
    outcomes: Mapping[Outcome, Ending]
    colour: Colour = Colour.GREY

    def ending_of(self, outcome: Outcome) -> Ending:
        """Returns how *outcome* is treated."""
        return self.outcomes.get(outcome, UNREMARKABLE)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a kind's own section ``preemption.<name>``. The type of *default* says what is written there.

    least    of a whole number
    most     of a number with a fraction
    choices  of a word
    """

    default: bool | int | float | str
    least: int = 0
    most: float = float("inf")
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigurationKeys:
    """The keys that a kind has in ``queues.yaml``, below ``preemption``.

    switch   the key that turns the kind on, in its section if it has one; empty: listing it in ``policies`` is enough
    section  the keys of ``preemption.<name>``; empty: there is no such section
    bound    the default of ``governor.victims.<name>``; ``None``: the governor has no bound on victims for the kind
    serves   its victims leave for an ask, so that ``governor.victims.<name>.ask`` means something
    derives  where the switch is on, queues that declare no guarantee have a derived one
    """

    switch: str = ""
    section: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    bound: VictimBound | None = None
    serves: bool = True
    derives: bool = False


def do_nothing(state: PartitionState, now_ns: int) -> None:
    """Fits wherever a kind has nothing to do."""


def wants_nothing(state: PartitionState) -> bool:
    """Tells that a kind has no use for a round, whatever holds in *state*."""
    return False


def resumes_nothing(state: PartitionState, now_ns: int) -> bool:
    """Tells that no ask of a kind had to wait for another kind."""
    return False


def is_never_busy(state: PartitionState) -> bool:
    """Tells that a kind has no work that goes on from slice to slice."""
    return False


def advance_nothing(state: PartitionState, now_ns: int, budget: int) -> None:
    """Fits a kind that is never busy."""


def ignore_arrival(state: PartitionState, allocation: Allocation, now_ns: int) -> None:
    """Fits a kind to which it does not matter what runs where."""


def ignore_amendment(state: PartitionState, allocation: Allocation, now_ns: int) -> None:
    """Fits a kind that learns of what has changed about allocations when it looks for victims."""


def repeats_nothing(state: PartitionState) -> None:
    """Fits a kind that announces nothing to shims."""


def knows_no_notice(state: PartitionState, answer: PreemptionNoticeAnswer) -> bool:
    """Tells that a notice does not belong to a kind that sends none."""
    return False


def leave_unplaced(state: PartitionState, group: AskGroup, why: NotPlaced, now_ns: int) -> tuple[int, bool]:
    """Returns that nothing was spent on *group*, and that it has to be set aside."""
    return 0, False


def leave_gang(
    state: PartitionState, unit: GangUnit, members: Sequence[Allocation], why: NotPlaced, now_ns: int
) -> tuple[int, bool]:
    """Returns that nothing was spent on *unit*, and that it has to be set aside."""
    return 0, False


def leave_reserved(state: PartitionState, reservation: Reservation, limited: NotPlaced | None, now_ns: int) -> bool:
    """Tells that no room was made."""
    return False


def foresees_nothing(state: PartitionState, ask: Allocation, asked: Circumstances) -> PreemptionOutlook | None:
    """Returns ``None``: the kind makes no room for asks."""
    return None


@dataclass(frozen=True, slots=True)
class Driver:
    """The acts of a kind in a partition, by occasion.

    configured      the configuration in force is a new one
    in_round        its turn in a round of the preemption cycle, in the order of ``preemption.policies``
    tries_again     the reserved asks that this turn tries again, where something has changed for them; ``None``: none
    wants_round     whether that turn could come to anything as things stand; without any that does there are no rounds
    offer_due       a slice or a round begins: offer the asks whose next attempt is due
    resume          offer the asks that had to wait until another kind was busy no more; says whether there were any
    is_busy         whether it has work that goes on from slice to slice
    advance         go on with that work for about so many decisions
    serve_unplaced  make room for an ask of a group with asks that are due, which found no place; says what that cost in
                    decisions, and whether the group may stay where it is: it preempted, or has more to try
    serve_unit      make room for all members of a gang at once, which found no places; says the same
    serve_reserved  make room for an ask with a reservation, which a limit keeps back or nothing; says whether it did
    end_slice       a slice ends
    note_arrival    something holds an amount on a node that nobody checked
    note_amendment  something that runs has another priority, other tags or another preemption policy
    repeat_notices  a shim has subscribed: send the notices that still stand again
    note_answer     the shim has answered a notice; says whether it is one of this kind's in this partition
    """

    configured: Callable[[PartitionState, int], None] = do_nothing
    in_round: Callable[[PartitionState, int], None] = do_nothing
    tries_again: Callable[[Reservation], bool] | None = None
    wants_round: Callable[[PartitionState], bool] = wants_nothing
    offer_due: Callable[[PartitionState, int], None] = do_nothing
    resume: Callable[[PartitionState, int], bool] = resumes_nothing
    is_busy: Callable[[PartitionState], bool] = is_never_busy
    advance: Callable[[PartitionState, int, int], object] = advance_nothing
    serve_unplaced: Callable[[PartitionState, AskGroup, NotPlaced, int], tuple[int, bool]] = leave_unplaced
    serve_unit: Callable[[PartitionState, GangUnit, Sequence[Allocation], NotPlaced, int], tuple[int, bool]] = (
        leave_gang
    )
    serve_reserved: Callable[[PartitionState, Reservation, NotPlaced | None, int], bool] = leave_reserved
    end_slice: Callable[[PartitionState, int], None] = do_nothing
    note_arrival: Callable[[PartitionState, Allocation, int], None] = ignore_arrival
    note_amendment: Callable[[PartitionState, Allocation, int], None] = ignore_amendment
    repeat_notices: Callable[[PartitionState], None] = repeats_nothing
    note_answer: Callable[[PartitionState, PreemptionNoticeAnswer], bool] = knows_no_notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(DecisionSource):
    """A kind of preemption.

    laws        the numbers of the laws that bind it, in order
    allowed_by  what lets it tell somebody to leave, in a sentence
    planner     who is to leave, or why nobody is; changes nothing
    check       the laws that one of its plans would break; shares no code with the planner
    driver      when it acts
    foresee     what it could do for an ask, for explanations; ``None``: it does nothing for this one
    keys        what the configuration can say of it
    records     the classes of what it keeps in a partition, which a supposed change may touch and takes back
    """

    laws: tuple[int, ...]
    allowed_by: str
    planner: Callable[..., Any]
    check: Callable[[PartitionView, Any], tuple[Violation, ...]]
    driver: Driver
    foresee: Callable[[PartitionState, Allocation, Circumstances], PreemptionOutlook | None] = foresees_nothing
    keys: ConfigurationKeys = ConfigurationKeys()
    records: tuple[type, ...] = ()

    @property
    def law_numbers(self) -> str:
        """The numbers of its laws as metrics and the history write them."""
        return " ".join(map(str, self.laws))
