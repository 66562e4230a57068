"""The interfaces of a journal to the task that owns the engine, and what stands in for them without a journal.

Everything that goes out passes a gate, in order: responses, questions, effects for histories and metrics, answers to
calls. What the engine decided waits there until it may leave. A restorer lets the task survive a bug in the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kornel.core.domain.commands import Command, StreamCommand
from kornel.core.domain.effects import Effect


class Gate(Protocol):
    """The way out of the core. Only the task that owns the engine uses it, except for :meth:`check_intake`."""

    @property
    def waiting(self) -> int:
        """The number of acts that wait."""

    def pass_on(self, act: Callable[[], None]) -> None:
        """Calls *act* once everything that was decided before may leave, after all acts that were passed on before."""

    def check_intake(self) -> None:
        """Raises :class:`kornel.core.service.wire.status_codes.ServiceError` while no new commands can be accepted."""

    def stop(self) -> None:
        """Ends all waiting for something that cannot be done at the moment, because the core is stopping."""

    async def wait_for_room(self) -> None:
        """Returns when the engine may go on, because not too much waits to leave.

        Raises :class:`kornel.core.service.wire.status_codes.ServiceError` if it will never be able to.
        """

    async def wait_until_passed(self) -> None:
        """Returns when everything that was passed on or decided so far has left.

        Raises :class:`kornel.core.service.wire.status_codes.ServiceError` if that will never happen.
        """


class OpenGate:
    """A gate at which nothing waits."""

    waiting = 0

    def pass_on(self, act: Callable[[], None]) -> None:
        """Calls *act*."""
        act()

    def check_intake(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""

    async def wait_for_room(self) -> None:
        """Returns at once."""

    async def wait_until_passed(self) -> None:
        """Returns at once."""


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
