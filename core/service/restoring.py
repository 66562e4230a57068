"""Survives a bug in the engine: what the task that owns the engine needs for it, which a journal gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kornel.core.domain.commands import Command
from kornel.core.domain.effects import Effect


class Restorer(Protocol):
    """Gives the engine the state from before a call on which it failed."""

    @property
    def ready(self) -> bool:
        """Tells whether that can be done: there is a journal."""

    @property
    def last_record(self) -> int:
        """The number of the record of the last call."""

    async def restore_engine(self, error: Exception, record: int) -> None:
        """Makes the engine what it was before its last call, that of *record*, which failed with *error*; nothing may
        have been called since.

        Raises whatever keeps it from that; the engine cannot be used any more then.
        """

    def split_command(self, command: Command) -> Iterable[Command]:
        """Returns *command* entry by entry, in the order in which an engine takes them."""

    def refuse_entries(self, command: Command, now_ns: int) -> list[Effect]:
        """Returns the refusals of the entries of *command* that are answered at all."""


class NoRestorer:
    """Restores nothing, since there is no journal."""

    ready = False
    last_record = 0

    async def restore_engine(self, error: Exception, record: int) -> None:
        """Raises *error*."""
        raise error

    def split_command(self, command: Command) -> Iterable[Command]:
        """Returns *command*."""
        return [command]

    def refuse_entries(self, command: Command, now_ns: int) -> list[Effect]:
        """Returns nothing."""
        return []
