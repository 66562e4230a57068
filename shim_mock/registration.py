"""The registration of the simulated cluster with a core. It is repeated when the core has lost it.

A core keeps its state in memory, so after a restart it does not know the cluster. The streams then end with
ResyncRequired; the shim registers again, and the cluster reports everything that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import grpc

from kornel.shim_client import CallFailed, CoreUnreachable, RegistrationRefused, ShimClient, ShimClientError

Answer = TypeVar("Answer")

RETRY_S: Final = 0.2


class Registration:
    """The registration of one run. *config* is the queue configuration that the next registration sends.

    *reconnect_s* is the time in seconds within which a core has to answer again. With 0, the run ends when the core has
    lost the registration.
    """

    def __init__(self, client: ShimClient, config: str, *, reconnect_s: float = 0.0) -> None:
        self.config = config
        self.count = 0
        self._client = client
        self._reconnect_s = reconnect_s
        self._in_sync = asyncio.Event()
        self._in_sync.set()

    @property
    def renews(self) -> bool:
        """Tells whether the cluster registers again with a core that has lost its registration."""
        return self._reconnect_s > 0

    @property
    def in_sync(self) -> bool:
        """Tells whether the core knows the cluster."""
        return self._in_sync.is_set()

    async def wait_in_sync(self) -> None:
        """Wait until the core knows the cluster."""
        await self._in_sync.wait()

    def mark_in_sync(self) -> None:
        """Note that everything the core must know has been sent since the last registration."""
        self._in_sync.set()

    async def register_again(self) -> None:
        """Register again. Raises RegistrationRefused, or CoreUnreachable if the core does not come back."""
        self._in_sync.clear()
        self.count += 1
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._reconnect_s
        while True:
            try:
                return await self._client.register(config=self.config, version="shim-mock")
            except CoreUnreachable:
                if loop.time() > deadline_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def ask_until_answered(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Returns the answer of *ask*. If the connection breaks, *ask* is called again after the next registration."""
        while True:
            await self._in_sync.wait()
            try:
                return await ask()
            except ShimClientError as error:
                if not self.renews or not _is_broken_connection(error):
                    raise
            # The streams notice the break a moment later.
            await asyncio.sleep(RETRY_S)


def _is_broken_connection(error: ShimClientError) -> bool:
    """Tells whether *error* comes from the connection or the registration, and not from the request."""
    if isinstance(error, RegistrationRefused):
        return False
    if isinstance(error, CallFailed):
        return error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)
    return True
