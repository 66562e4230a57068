"""Who calls, as far as services need to know: they state what a call takes, and whoever guards the door decides.

A call runs with its caller in :data:`CALLER`; tasks started by the call inherit it. Without security everybody may do
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Final, Protocol

AclCheck = Callable[[str, Sequence[str]], bool]
"""Whether an access list grants something to a user with these groups."""


class Permission(StrEnum):
    """What a rule of the security file may grant, besides being a resource manager."""

    READ = "read"
    CONFIGURE = "configure"
    PREEMPT = "preempt"
    ADMINISTER = "administer"
    TEST_CLOCK = "test-clock"


class Caller(Protocol):
    """One call's identity. ``name``: for logs."""

    name: str

    def require(self, permission: Permission) -> None:
        """Raises :class:`core.service.status_codes.NotPermitted` unless *permission* was granted."""

    def require_for_queue(self, permission: Permission, administers: AclCheck) -> None:
        """As :meth:`require`, but whoever administers the queue in question needs no grant."""

    def require_manager(self, rm_id: str) -> None:
        """Raises :class:`core.service.status_codes.NotPermitted` unless it may act as resource manager *rm_id*."""


class Everybody:
    """The caller where nothing is guarded."""

    name = ""

    def require(self, permission: Permission) -> None:
        """Always granted."""

    def require_for_queue(self, permission: Permission, administers: AclCheck) -> None:
        """Always granted."""

    def require_manager(self, rm_id: str) -> None:
        """Always granted."""


EVERYBODY: Final[Caller] = Everybody()

CALLER: Final[ContextVar[Caller]] = ContextVar("caller", default=EVERYBODY)


def caller() -> Caller:
    """Of the call that is being served."""
    return CALLER.get()
