"""Sends what a shim sends, and waits for the answers. Times are those of the caller's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc.aio

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc

if TYPE_CHECKING:
    from kornel.si.v1.si_pb2_grpc import SchedulerAsyncStub

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)
NODE_BATCH: Final = 500
AllocationStream: TypeAlias = "grpc.aio.StreamStreamCall[si.AllocationRequest, si.AllocationResponse]"
PATIENCE_S: Final = 300.0


class LoadError(Exception):
    """The core did not do what the load needs: it refused an entry, ended a stream, or did not answer."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of asks that were sent.

    *latencies_ms*: of each allocation since the message with its ask was handed to gRPC, sorted.
    *heard*: when each answer came, and the number of allocations by then.
    """

    took_s: float
    latencies_ms: list[float]
    heard: list[tuple[float, int]]

    @property
    def rate(self) -> float:
        """The number of allocations per second, from the first ask sent to the last allocation received."""
        return len(self.latencies_ms) / self.took_s

    def percentile_ms(self, percent: float) -> float:
        """Returns the latency that *percent* per cent of the allocations did not exceed."""
        return self.latencies_ms[min(len(self.latencies_ms) - 1, int(len(self.latencies_ms) * percent / 100))]


class Sender:
    """One resource manager on one connection. *metadata* goes with every call."""

    def __init__(self, channel: grpc.aio.Channel, rm_id: str, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self.rm_id = rm_id
        self._metadata = metadata
        self.stub: SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)

    async def register(self, config: str, extra_config: Mapping[str, str] | None = None) -> None:
        """Register with the queues of *config*."""
        await self.stub.RegisterResourceManager(
            si.RegisterResourceManagerRequest(
                rmID=self.rm_id, config=config, policyGroup="queues", extraConfig=extra_config or {}
            ),
            metadata=self._metadata,
        )

    async def report_nodes(self, infos: Sequence[si.NodeInfo]) -> float:
        """Report new nodes, until all are accepted. Returns the nodes per second."""
        began = time.perf_counter()
        stream = self.stub.UpdateNode(metadata=self._metadata)
        sending = asyncio.create_task(
            _write_all(
                stream,
                (
                    si.NodeRequest(rmID=self.rm_id, nodes=infos[start : start + NODE_BATCH])
                    for start in range(0, len(infos), NODE_BATCH)
                ),
            )
        )
        accepted = 0
        async with asyncio.timeout(PATIENCE_S):
            while accepted < len(infos):
                response = await _read(stream)
                if response.rejected:
                    raise LoadError(f"a node was refused: {response.rejected[0].reason}")
                accepted += len(response.accepted)
        took = time.perf_counter() - began
        await sending
        await stream.done_writing()
        return len(infos) / took

    async def add_applications(self, requests: Sequence[si.AddApplicationRequest]) -> None:
        """Add new applications, until all are accepted."""
        stream = self.stub.UpdateApplication(metadata=self._metadata)
        await stream.write(si.ApplicationRequest(rmID=self.rm_id, new=requests))
        accepted = 0
        async with asyncio.timeout(PATIENCE_S):
            while accepted < len(requests):
                response = await _read(stream)
                if response.rejected:
                    raise LoadError(f"an application was refused: {response.rejected[0].reason}")
                accepted += len(response.accepted)
        await stream.done_writing()

    @asynccontextmanager
    async def allocations(
        self,
    ) -> AsyncIterator[grpc.aio.StreamStreamCall[si.AllocationRequest, si.AllocationResponse]]:
        """Yields a stream for asks, allocations and releases."""
        stream = self.stub.UpdateAllocation(metadata=self._metadata)
        try:
            yield stream
            await stream.done_writing()
        except asyncio.InvalidStateError as error:
            raise await _describe_end(stream) from error
        except BaseException:
            stream.cancel()
            raise

    async def place_asks(
        self, messages: Sequence[si.AllocationRequest], expected: int | None = None, each_s: float = 0.0
    ) -> Placed:
        """Sends *messages*, one every *each_s* seconds or as fast as they are accepted, until *expected* asks are
        allocated; absent: all of them.

        Raises :class:`LoadError` if an ask is refused.
        """
        if expected is None:
            expected = sum(len(message.allocations) for message in messages)
        keys = [[ask.allocationKey for ask in message.allocations] for message in messages]
        sent: dict[str, float] = {}
        latencies: list[float] = []
        heard: list[tuple[float, int]] = []
        async with self.allocations() as stream, asyncio.timeout(PATIENCE_S):
            began = time.perf_counter()

            async def send() -> None:
                for number, (message, those) in enumerate(zip(messages, keys, strict=True)):
                    ahead_s = began + number * each_s - time.perf_counter()
                    if ahead_s > 0:
                        await asyncio.sleep(ahead_s)
                    sent.update(dict.fromkeys(those, time.perf_counter()))
                    await stream.write(message)

            sending = asyncio.create_task(send())
            while len(latencies) < expected:
                response = await _read(stream)
                now = time.perf_counter()
                latencies += [(now - sent[allocation.allocationKey]) * 1e3 for allocation in response.new]
                heard.append((now, len(latencies)))
                if response.rejectedAllocations:
                    raise LoadError(f"an ask was refused: {response.rejectedAllocations[0].reason}")
            took = time.perf_counter() - began
            await sending
        latencies.sort()
        return Placed(took, latencies, heard)

    async def place_singly(self, asks: Sequence[si.Allocation], each_s: float) -> Placed:
        """Sends each ask in a message of its own, one every *each_s* seconds, until all are allocated."""
        messages = [si.AllocationRequest(rmID=self.rm_id, allocations=[ask]) for ask in asks]
        return await self.place_asks(messages, each_s=each_s)


async def _write_all(stream: grpc.aio.StreamStreamCall[Any, Any], messages: Iterable[Any]) -> None:
    for message in messages:
        await stream.write(message)


async def _read(stream: grpc.aio.StreamStreamCall[Any, Any]) -> Any:
    """Returns the next response. Raises :class:`LoadError` when there is none."""
    response = await stream.read()
    if response is grpc.aio.EOF:
        raise await _describe_end(stream)
    return response


async def _describe_end(stream: grpc.aio.StreamStreamCall[Any, Any]) -> LoadError:
    return LoadError(f"the stream ended: {(await stream.code()).name}: {await stream.details()}")
