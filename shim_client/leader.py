"""A channel to the core that leads, of several that share a journal.

One core leads and decides; the others stand by and send everybody to it. The channel asks the health of
``si.v1.Scheduler`` at each address, which serves where the core leads, and has calls go there. While calls are open it
keeps asking at the others: a leader that hangs ends nothing by itself, and another one may have taken over. Each core
that leads does so in an epoch of its own; one with an earlier epoch only thinks that it still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

import grpc
import grpc.aio
from google.protobuf import wrappers_pb2

from kornel.shim_client.errors import ConnectionLost
from kornel.shim_client.stream import wait_until_ready

LEADER_KEY: Final = "kornel-leader"
"""The trailing metadata in which a core that stands by names the leader's address."""

EPOCH_KEY: Final = "kornel-epoch"
"""The trailing metadata in which a core that leads says its epoch."""

SCHEDULER: Final = "si.v1.Scheduler"

SERVING: Final = 1
"""The status of what serves, as ``grpc.health.v1.HealthCheckResponse`` numbers it."""

ASKED_S: Final = 1.0
"""The time that a core may take to say whether it leads."""

PAUSE_S: Final = 0.1
"""The pause between two questions at all addresses while nobody leads."""

WATCH_S: Final = 1.0
"""The pause between two questions whether another core leads now."""


def split_addresses(address: str) -> tuple[str, ...]:
    """Returns the addresses in *address*, which commas separate."""
    return tuple(dict.fromkeys(part.strip() for part in address.split(",") if part.strip()))


class LeaderChannel(grpc.aio.Channel):
    """Looks like a channel to one core: to the one that leads, as of :meth:`find_leader`.

    With one address, and as long as the core there names no other one, it is that core's, whether it leads or not.
    """

    def __init__(self, addresses: Iterable[str], make_channel: Callable[[str], grpc.aio.Channel]) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        self._make_channel = make_channel
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._chosen = self._addresses[0]
        self._epoch = 0
        self._one_looks = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Returns the address that calls go to."""
        return self._chosen

    def note_leader(self, metadata: Any) -> bool:
        """Takes note of the address in the trailing *metadata* of a call that a core refused which stands by. Returns
        whether there is one."""
        leader = dict(metadata or ()).get(LEADER_KEY)
        if not leader:
            return False
        if str(leader) not in self._addresses:
            self._addresses.append(str(leader))
        return True

    async def find_leader(self, seconds: float) -> None:
        """Waits until a core leads, and has calls go there from then on. Raises ConnectionLost after *seconds*."""
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
        """Asks at *addresses* at once, and chooses the first that leads in *epoch* or later. Returns whether there is
        one."""
        asking = [asyncio.create_task(self._ask(address)) for address in addresses]
        try:
            for answer in asyncio.as_completed(asking):
                found = await answer
                if found is not None and found[1] >= epoch:
                    self._epoch = found[1]
                    await self._choose(found[0])
                    return True
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return False

    async def _ask(self, address: str) -> tuple[str, int] | None:
        """Returns *address* and the epoch if the core there leads; ``None``: it does not, or does not answer."""
        # Wrappers have the bytes of health's messages, so that nobody who connects a shim needs its package too.
        check = self._open(address).unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=wrappers_pb2.StringValue.SerializeToString,
            response_deserializer=wrappers_pb2.Int32Value.FromString,
        )
        call = check(wrappers_pb2.StringValue(value=SCHEDULER), timeout=ASKED_S)
        try:
            answer = await call
            said = str(dict(await call.trailing_metadata() or ()).get(EPOCH_KEY, ""))
        except grpc.aio.AioRpcError as error:
            # Who serves, and says nothing of health, knows nothing of leaders either.
            known = error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)
            return (address, 0) if known else None
        if answer.value != SERVING:
            return None
        return address, int(said) if said.isdecimal() else 0

    async def _choose(self, address: str) -> None:
        if address == self._chosen:
            return
        before, self._chosen = self._chosen, address
        # Calls to a core that hangs would never end otherwise; those to one that stands by have ended.
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
        """Waits until the state of the connection to the chosen core is another one."""
        await self._open(self._chosen).wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until the chosen core is connected."""
        await self._open(self._chosen).channel_ready()

    def unary_unary(self, *arguments: Any, **named: Any) -> Any:
        """Returns what calls the chosen core, with one request and one response."""
        return self._call_leader("unary_unary", arguments, named)

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        """Returns what calls the chosen core, with one request and a stream of responses."""
        return self._call_leader("unary_stream", arguments, named)

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        """Returns what calls the chosen core, with a stream of requests and one response."""
        return self._call_leader("stream_unary", arguments, named)

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        """Returns what calls the chosen core, with streams of both."""
        return self._call_leader("stream_stream", arguments, named)

    def _call_leader(self, kind: str, arguments: Any, named: Any) -> Callable[..., Any]:
        """Returns what makes a call on the channel of whoever leads when it is made."""

        def start(*request: Any, **options: Any) -> Any:
            return getattr(self._open(self._chosen), kind)(*arguments, **named)(*request, **options)

        return start
