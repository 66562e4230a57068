"""The caller of a service, which states the permission that a call takes, while the guard decides.

A call runs with its caller in :data:`CALLER`; tasks started by the call inherit it. Without security everybody may do
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import unquote

from kornel.core.domain.names import LONGEST_OWNER

AclCheck = Callable[[str, Sequence[str]], bool]
"""Tells whether an access list grants something to a user with these groups."""


class Permission(StrEnum):
    """The permissions that a rule of the security file may grant, besides being a resource manager."""

    READ = "read"
    CONFIGURE = "configure"
    PREEMPT = "preempt"
    ADMINISTER = "administer"
    TEST_CLOCK = "test-clock"


class Caller(Protocol):
    """One call's identity. ``name``: for logs. ``proved``: the name that was proved; empty: none was."""

    name: str
    proved: str

    def require(self, permission: Permission) -> None:
        """Raises :class:`kornel.core.service.status_codes.NotPermitted` unless *permission* was granted."""

    def require_for_queue(self, permission: Permission, administers: AclCheck) -> None:
        """As :meth:`require`, but whoever administers the queue in question needs no grant."""

    def require_manager(self, rm_id: str) -> None:
        """Raises :class:`kornel.core.service.status_codes.NotPermitted` unless it may act as resource manager
        *rm_id*.
        """

    def require_no_other_manager(self, rm_id: str) -> None:
        """Raises :class:`kornel.core.service.status_codes.NotPermitted` for a manager that may not act as *rm_id*.

        A caller that may act as no manager at all is an operator, whom permissions alone bind.
        """


class Everybody:
    """The caller where nothing is guarded."""

    name = ""
    proved = ""

    def require(self, permission: Permission) -> None:
        """Grants everything."""

    def require_for_queue(self, permission: Permission, administers: AclCheck) -> None:
        """Grants everything."""

    def require_manager(self, rm_id: str) -> None:
        """Grants everything."""

    def require_no_other_manager(self, rm_id: str) -> None:
        """Grants everything."""


EVERYBODY: Final[Caller] = Everybody()

CALLER: Final[ContextVar[Caller]] = ContextVar("caller", default=EVERYBODY)


def caller() -> Caller:
    """Returns the caller of the call that is being served."""
    return CALLER.get()


PEER: Final[ContextVar[str]] = ContextVar("peer", default="")
"""Address from which the call comes that is being served, without a port; empty: not known."""

ANONYMOUS: Final = "anonymous"


def principal() -> str:
    """Returns who makes the call that is being served, as it is written down: ``cn:ops``, or
    ``anonymous@127.0.0.1``."""
    proved = caller().proved
    if len(proved) > LONGEST_OWNER:
        return f"{proved[:LONGEST_OWNER]}..."
    if proved:
        return proved
    peer = PEER.get()
    return f"{ANONYMOUS}@{peer}" if peer else ANONYMOUS


def host_of(peer: str) -> str:
    """Returns the address in gRPC's name of a peer, without its port: ``ipv4:10.0.0.1:4711`` gives ``10.0.0.1``."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    return unquote(address.rpartition(":")[0]).strip("[]")
