"""What there is to know of a kind of preemption from outside its room: one record, read by everything that tells kinds
apart. The registry lists the records; configuration, engine, laws, metrics, log, history, REST, explain and the web
page hold no names of kinds of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import VictimBound
from kornel.core.laws.verdict import Violation
from kornel.core.partition.state import PartitionState
from kornel.core.policies.view import PartitionView


class Level(StrEnum):
    """How loudly the log tells of a decision."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


class Tone(StrEnum):
    """How good or bad the web page shows an outcome to be."""

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
    """How one way for a decision to end is treated.

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
    """Who decides something about preemption: a kind, or the governor, which bounds all kinds.

    name      as decisions, metrics, the history and ``queues.yaml`` write it
    outcomes  how its decisions can end; one that is not listed is unremarkable
    colour    on the web page
    """

    name: str
    outcomes: Mapping[Outcome, Ending]
    colour: Colour = Colour.GREY

    def ending(self, outcome: Outcome) -> Ending:
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
    """What ``queues.yaml`` can say of a kind below ``preemption``.

    switch   the key that turns the kind on, in its section if it has one; empty: listing it in ``policies`` is enough
    section  the keys of ``preemption.<name>``; empty: there is no such section
    bound    the default of ``governor.victims.<name>``; ``None``: the governor has no bound on victims for the kind
    serves   its victims leave for an ask, so that ``governor.victims.<name>.ask`` means something
    """

    switch: str = ""
    section: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    bound: VictimBound | None = None
    serves: bool = True


def do_nothing(state: PartitionState, now_ns: int) -> None:
    """Fits wherever a kind has nothing to do."""


def wants_nothing(state: PartitionState) -> bool:
    """Tells that a kind has no use for a round, whatever holds in *state*."""
    return False


@dataclass(frozen=True, slots=True)
class Driver:
    """What a kind does in a partition, and when.

    configured   the configuration in force is a new one
    in_round     its turn in a round of the preemption cycle, in the order of ``preemption.policies``
    wants_round  whether that turn could come to anything as things stand; without any that does there are no rounds
    """

    configured: Callable[[PartitionState, int], None] = do_nothing
    in_round: Callable[[PartitionState, int], None] = do_nothing
    wants_round: Callable[[PartitionState], bool] = wants_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(DecisionSource):
    """A kind of preemption.

    laws        the numbers of the laws that bind it, in order
    allowed_by  what lets it tell somebody to leave, in a sentence
    planner     who is to leave, or why nobody is; changes nothing
    check       the laws that one of its plans would break; shares no code with the planner
    driver      when it acts
    keys        what the configuration can say of it
    """

    laws: tuple[int, ...]
    allowed_by: str
    planner: Callable[..., Any]
    check: Callable[[PartitionView, Any], tuple[Violation, ...]]
    driver: Driver
    keys: ConfigurationKeys = ConfigurationKeys()

    @property
    def law_numbers(self) -> str:
        """The numbers of its laws as metrics and the history write them."""
        return " ".join(map(str, self.laws))
