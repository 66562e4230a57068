"""The way out of the core, where what the engine decided waits until it may leave.

The task that owns the engine passes everything that goes out through a gate, in order: responses, questions, what
histories and metrics observe, answers to calls. Without a journal nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Gate(Protocol):
    """The way out of the core. Used by the task that owns the engine, but for :meth:`check_intake`."""

    @property
    def waiting(self) -> int:
        """Returns how much waits to leave."""

    def pass_on(self, act: Callable[[], None]) -> None:
        """Calls *act* as soon as everything may leave that was decided before, behind what was passed on before."""

    def check_intake(self) -> None:
        """Raises :class:`kornel.core.service.status_codes.ServiceError` while nothing new can be taken."""

    def stop(self) -> None:
        """Have nobody wait any longer for something that cannot be done at the moment: the core ends."""

    async def wait_for_room(self) -> None:
        """Returns when the engine may go on: it is not too far ahead of what may leave.

        Raises :class:`kornel.core.service.status_codes.ServiceError` when nothing ever may again.
        """

    async def wait_until_passed(self) -> None:
        """Returns when everything that was passed on or decided so far may leave, and nothing waits.

        Raises :class:`kornel.core.service.status_codes.ServiceError` when it never will.
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
