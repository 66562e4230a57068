"""A channel to the leader of several cores that share a journal.

One core leads and decides; the others are standbys and refer their callers to the leader. The channel asks each address
for the health of ``si.v1.Scheduler``, which is SERVING only at the leader, and sends all calls there. It keeps asking
the other addresses afterwards, because a leader that hangs does not end its calls, and another core may have taken
over. Each leader has its own epoch; a core with an earlier epoch only believes that it still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

import grpc
import grpc.aio
from google.protobuf import wrappers_pb2

from kornel.shim_client.call_status import ending_with_status
from kornel.shim_client.errors import ConnectionLost
from kornel.shim_client.stream import wait_until_ready

LEADER_KEY: Final = "kornel-leader"
"""The key of the trailing metadata in which a standby gives the leader's address."""

EPOCH_KEY: Final = "kornel-epoch"
"""The key of the trailing metadata in which a leader gives its epoch."""

SCHEDULER: Final = "si.v1.Scheduler"

SERVING: Final = 1
"""The number of the status SERVING in ``grpc.health.v1.HealthCheckResponse``."""

ASKED_S: Final = 1.0
"""The time within which a core has to answer whether it leads."""

PAUSE_S: Final = 0.1
"""The pause between two rounds of questions to all addresses while no core leads."""

MOST_NAMED: Final = 8
"""The most addresses that are remembered because a core named them; the oldest of them are forgotten."""

WATCH_S: Final = 1.0
"""The pause between two rounds of questions to the other addresses while a core leads."""


def split_addresses(address: str) -> tuple[str, ...]:
    """Returns the addresses in *address*, which are separated by commas."""
    return tuple(dict.fromkeys(part.strip() for part in address.split(",") if part.strip()))


class LeaderChannel(grpc.aio.Channel):
    """Behaves like a channel to one core: the leader that :meth:`find_leader` found last.

    With a single address, it is a channel to that core, whether it leads or not, until the core names another address.
    """

    def __init__(self, addresses: Iterable[str], make_channel: Callable[[str], grpc.aio.Channel]) -> None:
        self._given = list(dict.fromkeys(addresses))
        self._named: list[str] = []
        self._make_channel = make_channel
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._chosen = self._given[0]
        self._epoch = 0
        self._one_looks = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Returns the address to which calls are sent."""
        return self._chosen

    def note_leader(self, metadata: Any) -> bool:
        """Notes the leader's address from the trailing *metadata* of a call that a standby refused. Returns whether
        there is one."""
        leader = str(dict(metadata or ()).get(LEADER_KEY) or "")
        if not leader:
            return False
        if leader not in self._given:
            # Cores that are replaced often name a new address each time.
            self._named = [*(each for each in self._named if each != leader), leader]
            if len(self._named) > MOST_NAMED:
                self._named.remove(next(each for each in self._named if each != self._chosen))
        return True

    @property
    def _addresses(self) -> list[str]:
        return [*self._given, *self._named]

    async def find_leader(self, seconds: float) -> None:
        """Waits until a core leads, and sends calls to it from then on. Raises ConnectionLost after *seconds*."""
        async with self._one_looks:
            if len(self._addresses) == 1:
                await wait_until_ready(self._open(self._chosen), seconds)
                return
            try:
                async with asyncio.timeout(seconds):
                    while not await self._look(self._addresses, self._epoch):  # noqa: ASYNC110 - other programs set no events
                        await asyncio.sleep(PAUSE_S)
            except TimeoutError:
                where = ", ".join(self._addresses)
                raise ConnectionLost(f"no core leads at {where} (waited {seconds:g} s)") from None
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch(), name="look for another leader")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            await self._look([address for address in self._addresses if address != self._chosen], self._epoch + 1)

    async def _look(self, addresses: Iterable[str], epoch: int) -> bool:
        """Asks all *addresses* at once, and chooses the first core to answer that leads in *epoch* or later, and in no
        earlier one than the core that another search chose meanwhile. Returns whether there is one."""
        asking = [asyncio.create_task(self._ask(address)) for address in addresses]
        try:
            for answer in asyncio.as_completed(asking):
                found = await answer
                if found is not None and found[1] >= max(epoch, self._epoch):
                    self._epoch = found[1]
                    await self._choose(found[0])
                    return True
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await self._close_forgotten()
        return False

    async def _close_forgotten(self) -> None:
        """Closes the connections to addresses that are no longer remembered."""
        kept = {*self._addresses, self._chosen}
        for address in [each for each in self._channels if each not in kept]:
            await self._channels.pop(address).close()

    async def _ask(self, address: str) -> tuple[str, int] | None:
        """Returns *address* and the epoch if the core there leads, or ``None`` if it does not lead or does not
        answer."""
        # The wrapper types have the same encoding as the health messages, so that a shim does not need the health
        # package too.
        check = self._open(address).unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=wrappers_pb2.StringValue.SerializeToString,
            response_deserializer=wrappers_pb2.Int32Value.FromString,
        )
        call = check(wrappers_pb2.StringValue(value=SCHEDULER), timeout=ASKED_S)
        try:
            with ending_with_status():
                answer = await call
            said = str(dict(await call.trailing_metadata() or ()).get(EPOCH_KEY, ""))
        except grpc.aio.AioRpcError as error:
            # A core without the health service does not know of leaders either, so it counts as leading.
            known = error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)
            return (address, 0) if known else None
        if answer.value != SERVING:
            return None
        return address, int(said) if said.isdecimal() else 0

    async def _choose(self, address: str) -> None:
        if address == self._chosen:
            return
        before, self._chosen = self._chosen, address
        # Otherwise calls to a core that hangs would never end. Calls to a standby have ended already.
        channel = self._channels.pop(before, None)
        if channel is not None:
            await channel.close()

    def _open(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._make_channel(address)
        return channel

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Closes the connections to all cores."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        for channel in list(self._channels.values()):
            await channel.close(grace)
        self._channels.clear()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Returns the state of the connection to the chosen core."""
        return self._open(self._chosen).get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits until the state of the connection to the chosen core has changed."""
        await self._open(self._chosen).wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until the chosen core is connected."""
        await self._open(self._chosen).channel_ready()

    def unary_unary(self, *arguments: Any, **named: Any) -> Any:
        """Returns a callable that calls the chosen core with one request and one response."""
        return self._call_leader("unary_unary", arguments, named)

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        """Returns a callable that calls the chosen core with one request and a stream of responses."""
        return self._call_leader("unary_stream", arguments, named)

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        """Returns a callable that calls the chosen core with a stream of requests and one response."""
        return self._call_leader("stream_unary", arguments, named)

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        """Returns a callable that calls the chosen core with a stream of requests and a stream of responses."""
        return self._call_leader("stream_stream", arguments, named)

    def _call_leader(self, kind: str, arguments: Any, named: Any) -> Callable[..., Any]:
        """Returns a callable that makes its call on the channel of the core that is chosen at the time of the call."""

        def start(*request: Any, **options: Any) -> Any:
            return getattr(self._open(self._chosen), kind)(*arguments, **named)(*request, **options)

        return start
