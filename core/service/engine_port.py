"""The interface of an engine to the service: :class:`kornel.core.partition.engine.Engine` has it, a scripted fake in
tests too."""

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


class EnginePort(ReadableEngine, Protocol):
    """A deterministic engine: commands and times in, effects out; and its state, for readers."""

    @property
    def extra_config(self) -> Mapping[str, str]:
        """Extra settings in force, as the last accepted registration or configuration update gave them."""

    @property
    def preemption_interval_ns(self) -> int | None:
        """Returns the interval at which :meth:`preempt` wants to be called; ``None``: never."""

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        """Raises ``CommandRefused``, or ``ConfigError`` for a configuration that cannot be used."""

    def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
        """Does the same with an update, and yields often; nothing else may be asked of the engine before its end."""

    def prepare_configuration(self, text: str, configuration: Configuration) -> None:
        """Take the hint that *text* is *configuration*, so that a command with it need not be read again."""

    def build_ahead(self, rm_id: str, configuration: Configuration) -> Iterator[None]:
        """Build in small steps what a registration of *rm_id* with *configuration* is about to bring into force."""

    def cycle(self, now_ns: int, budget: int) -> Slice:
        """Returns one slice of at most about *budget* decisions."""

    def preempt(self, now_ns: int) -> list[Effect]:
        """Returns one periodic preemption round over all partitions."""

    def record_events(self) -> None:
        """Record the event history from now on, whether a shim wants it or not."""

    def observe_ignored(self, observer: Callable[[Ignored, str], None]) -> None:
        """Have *observer* called for every request entry without effect, with the cause and the ID it named."""

    def next_wakeup_ns(self) -> int | None:
        """Returns when :meth:`cycle` next has work by the passing of time alone."""
