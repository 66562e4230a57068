"""Defines the permission that a request needs, and the interface of the guard, which makes all security checks of
REST."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from starlette.requests import Request
from starlette.types import Scope

from kornel.core.service.connections.callers import Permission


class Access(StrEnum):
    """The classes of routes. OPEN: every caller may use them, so that browsers can ask what is allowed and probes
    work."""

    OPEN = "open"
    READ = "read"
    CONFIGURE = "configure"
    PREEMPT = "preempt"
    ADMIN = "admin"


PERMISSIONS: Final = {
    Access.READ: Permission.READ,
    Access.CONFIGURE: Permission.CONFIGURE,
    Access.PREEMPT: Permission.PREEMPT,
    Access.ADMIN: Permission.ADMINISTER,
}
"""The permission that a caller needs for each class if there is a guard."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs that a core demands of its callers, as its documentation shows them.

    guarded      a security file says who may do what; otherwise every caller may do everything
    certificate  TLS requires a client certificate
    """

    guarded: bool = False
    certificate: bool = False


NO_PROOFS: Final = Proofs()
"""Says that the core demands no proofs."""


ADMITTED: Final = "kornel.admitted"
"""The key of a request's scope under which a guard keeps the caller that it admitted; absent without a guard."""


class Door(Protocol):
    """Admits or refuses requests before a handler runs and before the body is read; without one, all are admitted."""

    async def admit_request(self, request: Request, access: Access) -> None:
        """Raises :class:`kornel.core.rest.http.errors.RestError` with 401, 403 or 429 unless the caller may send it."""

    def end_request(self, scope: Scope) -> None:
        """End the request with this *scope*, admitted or not."""
