"""Defines the caller of a service. The service states which permission a call needs, and the guard decides.

A call runs with its caller in :data:`CALLER`; tasks started by the call inherit it. Without security, every caller may
do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network
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
    """The identity behind a call. ``name``: for logs. ``proved``: the proved name; empty: none was proved."""

    name: str
    proved: str

    def require(self, permission: Permission) -> None:
        """Raises :class:`kornel.core.service.wire.status_codes.NotPermitted` unless *permission* was granted."""

    def require_for_queue(self, permission: Permission, administers: AclCheck) -> None:
        """Raises the same error as :meth:`require`, unless the caller administers the queue in question."""

    def require_manager(self, rm_id: str) -> None:
        """Raises :class:`kornel.core.service.wire.status_codes.NotPermitted` unless the caller may act as resource
        manager *rm_id*.
        """

    def require_no_other_manager(self, rm_id: str) -> None:
        """Raises :class:`kornel.core.service.wire.status_codes.NotPermitted` for a manager that may not act as *rm_id*.

        A caller that may act as no manager at all is an operator, for whom only permissions count.
        """


class Everybody:
    """The caller of a core without security."""

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
"""The address of the caller that is being served, without a port; empty: not known."""

ANONYMOUS: Final = "anonymous"


def principal() -> str:
    """Returns the caller that is being served as it is recorded: ``cn:ops``, or ``anonymous@127.0.0.1``."""
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


def address_block(host: str) -> str:
    """Returns what counts as one address. For IPv6, that is the first 64 bits, because a client that has one of these
    addresses usually has all of them."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address) >> 64 << 64, 64)))
