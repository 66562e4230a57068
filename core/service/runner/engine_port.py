"""The interface of an engine to the service, which :class:`kornel.core.engine.engine.Engine` and fakes in tests
have."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Protocol

from kornel.core.config.model import Configuration
from kornel.core.domain.commands import Command, UpdateConfiguration
from kornel.core.domain.effects import Effect
from kornel.core.domain.reasons import Ignored
from kornel.core.telling.reader import ReadableEngine


class Slice(Protocol):
    """The result of one scheduling slice."""

    @property
    def effects(self) -> list[Effect]:
        """The effects in the order of the decisions."""

    @property
    def more(self) -> bool:
        """Tells whether there may be more to decide at once."""

    @property
    def standing(self) -> Mapping[str, str]:
        """The partitions that have just broken the law of progress, each with what stands still there."""


class EnginePort(ReadableEngine, Protocol):
    """A deterministic engine: commands and times in, effects out, and its state for readers."""

    @property
    def extra_config(self) -> Mapping[str, str]:
        """The extra settings in force, from the last accepted registration or configuration update."""

    @property
    def preemption_interval_ns(self) -> int | None:
        """The interval at which :meth:`preempt` has to be called; ``None``: never."""

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        """Carry out *command* and return the effects. Raises ``CommandRefused``, or ``ConfigError`` for a configuration
        that cannot be used."""

    def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
        """Does the same as :meth:`apply` with an update, but yields often. The engine must not be used before the
        end."""

    def prepare_configuration(self, text: str, configuration: Configuration) -> None:
        """Keep *configuration*, parsed from *text*, so that a command with that text need not parse it again."""

    def build_ahead(self, rm_id: str, configuration: Configuration) -> Iterator[None]:
        """Build, in small steps, the partitions for a registration of *rm_id* with *configuration* that is about to
        come."""

    def cycle(self, now_ns: int, budget: int) -> Slice:
        """Run one slice of at most about *budget* decisions."""

    def preempt(self, now_ns: int) -> list[Effect]:
        """Run one round of the periodic preemption cycle in all partitions."""

    def record_events(self) -> None:
        """Record the event history from now on, whether or not a shim wants it."""

    def observe_ignored(self, observer: Callable[[Ignored, str], None]) -> None:
        """Call *observer* for every request entry without effect, with the cause and the ID in the entry."""

    def next_wakeup_ns(self) -> int | None:
        """Returns when :meth:`cycle` next has work because of time alone; ``None``: never."""
