"""The permission that a request takes of its caller, and the interface of the guard: the one place where security joins
in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from starlette.requests import Request
from starlette.types import Scope

from kornel.core.service.callers import Permission


class Access(StrEnum):
    """Classes of routes. OPEN: anybody may, so that browsers can ask what is allowed and probes can probe."""

    OPEN = "open"
    READ = "read"
    CONFIGURE = "configure"
    ADMIN = "admin"


PERMISSIONS: Final = {
    Access.READ: Permission.READ,
    Access.CONFIGURE: Permission.CONFIGURE,
    Access.ADMIN: Permission.ADMINISTER,
}
"""The permission that a caller needs for each class, where there is a guard."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs that a core demands of its callers, for its documentation.

    guarded      a security file says who may do what; else whoever gets through may do everything
    certificate  TLS admits nobody without a client certificate
    """

    guarded: bool = False
    certificate: bool = False


NO_PROOFS: Final = Proofs()
"""Nobody is asked anything."""


ADMITTED: Final = "kornel.admitted"
"""The key of a request's scope under which a guard keeps the caller that it admitted; absent without a guard."""


class Door(Protocol):
    """Decides before a handler runs, and before the body of a request is read."""

    async def admit_request(self, request: Request, access: Access) -> None:
        """Raises :class:`kornel.core.rest.errors.RestError` with 401, 403 or 429 unless the caller may."""

    def end_request(self, scope: Scope) -> None:
        """End the request with this *scope*, admitted or not."""


class OpenDoor:
    """Everybody may do everything: for addresses that only this machine reaches."""

    async def admit_request(self, request: Request, access: Access) -> None:
        """Admits every request."""

    def end_request(self, scope: Scope) -> None:
        """Does nothing, since nothing was noted."""


OPEN_DOOR: Final[Door] = OpenDoor()
