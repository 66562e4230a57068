"""The interface by which the task that owns the engine survives a bug in the engine. A journal implements it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kornel.core.domain.commands import Command, StreamCommand
from kornel.core.domain.effects import Effect


class Restorer(Protocol):
    """Restores the state of the engine before a call on which it failed."""

    @property
    def ready(self) -> bool:
        """Tells whether the engine can be restored, because there is a journal."""

    @property
    def last_record(self) -> int:
        """The number of the record of the last call."""

    async def restore_engine(self, error: Exception, record: int) -> None:
        """Restores the state of the engine before its last call, that of *record*, which failed with *error*. No other
        call may have been made since.

        Raises the error that prevents this; the engine cannot be used then.
        """

    def split_command(self, command: StreamCommand) -> Iterable[StreamCommand]:
        """Returns *command* entry by entry, in the order in which an engine handles them."""

    def refuse_entries(self, command: Command, now_ns: int) -> list[Effect]:
        """Returns the refusals of those entries of *command* that get an answer."""


class NoRestorer:
    """Restores nothing, because there is no journal."""

    ready = False
    last_record = 0

    async def restore_engine(self, error: Exception, record: int) -> None:
        """Raises *error*."""
        raise error

    def split_command(self, command: StreamCommand) -> Iterable[StreamCommand]:
        """Returns *command*."""
        return [command]

    def refuse_entries(self, command: Command, now_ns: int) -> list[Effect]:
        """Returns nothing."""
        return []
