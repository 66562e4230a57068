"""Defines the gate through which everything leaves the core: what the engine decided waits there until it may leave.

The task that owns the engine passes everything that goes out through a gate, in order: responses, questions, effects
for histories and metrics, answers to calls. Without a journal, nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


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
