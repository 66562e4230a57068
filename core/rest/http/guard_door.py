"""Lets the guard check each HTTP request. Its caller is known from a client certificate or a bearer token.

A stream of events whose caller has lost the right to it is cut off, because HTTP has no way to say why in the middle of
an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.types import Scope

from kornel.core.rest.http.access import ADMITTED, PERMISSIONS, Access
from kornel.core.rest.http.errors import RestError
from kornel.core.rest.http.http_protocol import ABORT, CERTIFICATE
from kornel.core.security.guard import Guard, Pass
from kornel.core.service.connections.callers import Permission
from kornel.core.service.wire.status_codes import NotAuthenticated, NotPermitted, TooMany

Administers = Callable[[str, str, str, Sequence[str]], bool]
"""Tells whether a queue of a partition is administered by a user with these groups."""


class GuardDoor:
    """Lets *guard* decide. Administrators of a queue may see the queue even without the permission to read
    everything."""

    def __init__(self, guard: Guard, administers: Administers) -> None:
        self._guard = guard
        self._administers = administers

    async def admit_request(self, request: Request, access: Access) -> None:
        """Raises :class:`RestError` with 401, 403 or 429 unless the caller may send the request."""
        if access is Access.OPEN:
            return
        proofs = request.headers.getlist("authorization")
        extensions = request.scope.get("extensions", {})
        host = request.client.host if request.client is not None else ""
        connection = f"{host} {request.client.port}" if request.client is not None and request.client.port else ""
        try:
            admitted = await self._guard.admit_call(
                None if not proofs else proofs[0] if len(proofs) == 1 else "",
                extensions.get(CERTIFICATE),
                host,
                connection,
            )
            request.scope[ADMITTED] = admitted
            self._check(admitted, request, PERMISSIONS[access])
        except NotAuthenticated as error:
            raise RestError(401, str(error), [("WWW-Authenticate", 'Bearer realm="kornel"')]) from error
        except NotPermitted as error:
            raise RestError(403, str(error)) from error
        except TooMany as error:
            raise RestError(429, str(error), [("Retry-After", "1")]) from error
        abort = extensions.get(ABORT)
        if abort is not None:
            admitted.on_end = abort["abort"]

    def end_request(self, scope: Scope) -> None:
        """End the request."""
        admitted = scope.pop(ADMITTED, None)
        if admitted is not None:
            self._guard.end_call(admitted)

    def _check(self, admitted: Pass, request: Request, permission: Permission) -> None:
        named = request.path_params
        if permission is Permission.READ and "queue" in named:
            admitted.require_for_queue(permission, partial(self._administers, named["partition"], named["queue"]))
        else:
            admitted.require(permission)
