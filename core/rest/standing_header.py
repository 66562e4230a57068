"""Adds a header to every answer of a standby, with the possible age of the answer and the address of the leader."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kornel.core.service.managers.standing import Standing

HEADER = "Kornel-Standing"


class StandingHeader:
    """Puts the header before the answers of *app* while this core does not lead."""

    def __init__(self, app: ASGIApp, standing: Standing) -> None:
        self._app = app
        self._standing = standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start" and not self._standing.leads:
                MutableHeaders(scope=message)[HEADER] = describe_standing(self._standing)
            await send(message)

        await self._app(scope, receive, send_marked)


def describe_standing(standing: Standing) -> str:
    """Returns the value of the header."""
    leader = f"; leader={standing.leader_address}" if standing.leader_address else ""
    return f"{standing.role}; behind={standing.behind_s:.3f}{leader}"
