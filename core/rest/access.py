"""What a request takes of its caller, and who decides: the one place where security joins in."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

from starlette.requests import Request
from starlette.types import Scope


class Access(StrEnum):
    """Classes of routes. OPEN: anybody may, so that browsers can ask what is allowed and probes can probe."""

    OPEN = "open"
    READ = "read"
    CONFIGURE = "configure"
    ADMIN = "admin"


class Door(Protocol):
    """Decides before a handler runs, and before the body of a request is read."""

    async def admit(self, request: Request, access: Access) -> None:
        """Raises :class:`core.rest.errors.RestError` with 401, 403 or 429 unless the caller may."""

    def leave(self, scope: Scope) -> None:
        """The request with this *scope* was answered, admitted or not."""


class OpenDoor:
    """Everybody may do everything: for addresses that only this machine reaches."""

    async def admit(self, request: Request, access: Access) -> None:
        """Admitted."""

    def leave(self, scope: Scope) -> None:
        """Nothing was noted."""


OPEN_DOOR: Final[Door] = OpenDoor()
