"""What the service needs of an engine: :class:`core.partition.engine.Engine` has it, a scripted fake in tests too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from core.config.model import Configuration
from core.domain.commands import Command
from core.domain.effects import Effect
from core.domain.reasons import Ignored
from core.domain.status import AskExplanation, EngineStatus, QueueExplanation, UserExplanation
from core.domain.views import ManagerView
from core.telling.allocations.explanation import Report
from core.telling.configuration.configuration_preview import WhatIf
from core.telling.reader import PartitionViews
from core.telling.what_if.supposition import Forecast, Supposition


class Slice(Protocol):
    """What one scheduling slice decided."""

    @property
    def effects(self) -> list[Effect]:
        """In the order of the decisions."""

    @property
    def more(self) -> bool:
        """Whether there may be more to decide at once."""


class EnginePort(Protocol):
    """A deterministic engine: commands and times in, effects out, nothing else."""

    @property
    def rm_id(self) -> str:
        """The registered resource manager; empty: none."""

    @property
    def manager(self) -> ManagerView | None:
        """How the registered resource manager described itself; ``None``: none."""

    @property
    def checksum(self) -> str:
        """Of the configuration in force; empty while nobody is registered."""

    @property
    def configuration(self) -> Configuration | None:
        """In force; ``None`` while nobody is registered."""

    @property
    def extra_config(self) -> Mapping[str, str]:
        """Extra settings in force, as the last accepted registration or configuration update gave them."""

    @property
    def preemption_interval_ns(self) -> int | None:
        """How often :meth:`preempt` wants to be called; ``None``: never."""

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        """Raises ``CommandRefused``, or ``ConfigError`` for a configuration that cannot be used."""

    def prepare(self, text: str, configuration: Configuration) -> None:
        """A hint: *configuration* is what *text* says, so a command with it need not be read again."""

    def what_if(self) -> WhatIf:
        """A copy of what configurations shape, to try one on."""

    def explain_queue(self, partition: str, path: str) -> QueueExplanation | None:
        """What bounds a queue. *partition*: full name. ``None``: unknown."""

    def administers(self, partition: str, path: str, user: str, groups: Sequence[str]) -> bool:
        """Whether *user* administers the queue at *path* in *partition* (full name)."""

    def explain_user(self, partition: str, user: str) -> UserExplanation | None:
        """What limits a user. *partition*: full name. ``None``: unknown."""

    def cycle(self, now_ns: int, budget: int) -> Slice:
        """One slice of at most about *budget* decisions."""

    def preempt(self, now_ns: int) -> list[Effect]:
        """One periodic preemption round over all partitions."""

    def record_events(self) -> None:
        """Somebody wants the event history from now on, whether a shim does or not."""

    def observe_ignored(self, observer: Callable[[Ignored, str], None]) -> None:
        """Have *observer* told of every request entry without effect: cause, and the ID it named."""

    def next_wakeup_ns(self) -> int | None:
        """When :meth:`cycle` next has work by the passing of time alone."""

    def status(self, *, audited: bool = False, now_ns: int = 0) -> EngineStatus:
        """The whole core in plain values. *audited*: check the books too, which takes time."""

    def resolver_of(self, partition: str) -> str:
        """Who is to be asked for the groups of users of *partition* (full name); empty: nobody, or no such one."""

    def explain(self, partition: str, key: str) -> AskExplanation | None:
        """Where an ask or allocation stands. *partition*: full name. ``None``: unknown."""

    def explain_work(self, partition: str, name: str, now_ns: int) -> Report | None:
        """Why an ask or application waits, or who took its room. *partition*: full name. ``None``: unknown."""

    def suppose(self, partition: str, question: Supposition, now_ns: int) -> Forecast | None:
        """What would come of *question*; changes nothing. ``None``: no such partition. Raises ``CommandRefused``."""

    def views(self, partition: str, now_ns: int) -> PartitionViews | None:
        """What *partition* (full name) shows of itself; ``None``: no such partition."""

    def partition_names(self) -> list[str]:
        """The full names of all partitions, sorted."""
