"""Inspects a core: measures the free amounts of nodes with asks, and reads the rest from ``kornel.v1``.

If the core does not serve a call, the case continues and gets a note.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import grpc
import grpc.aio

from kornel.conformance import configs, messages
from kornel.conformance.clock import Clock
from kornel.conformance.connection import (
    CALL_TIMEOUT_S,
    PROBE_APP,
    RM,
    Connection,
    Settings,
    expect_nothing,
    reason_of,
)
from kornel.conformance.entries import Kind
from kornel.conformance.outcome import Mismatch, Skipped, check
from kornel.v1 import status_pb2, status_pb2_grpc


class Looking(Connection):
    """A connection that can also inspect the core."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, settings: Settings, *, rm: str = RM) -> None:
        super().__init__(channel, clock, settings, rm=rm)
        self._status: Final = status_pb2_grpc.StatusServiceStub(channel)
        self._probes = 0

    async def expect_free(self, free: Mapping[str, int]) -> None:
        """Expect the nodes to have exactly these amounts of vcore free, by filling them up.

        An amount of 0 or less means that nothing fits. All room is released afterwards. It needs nodes with enough of
        all other types, no ask that waits for room, and a configuration with
        :data:`kornel.conformance.configs.PROBE_QUEUE`.
        """
        self._probes += 1
        app = f"{PROBE_APP}-{self._probes}"
        side = self.allocations.side
        await self.send_applications(messages.application(app, configs.PROBE_QUEUE))
        await self.applications.side.take_entry(self.settings.deadline_s, f"{app} to be accepted")
        filled: list[tuple[int, str]] = []
        for number, amount in enumerate(sorted((a for a in free.values() if a > 0), reverse=True)):
            key = f"{app}-{number}"
            await self.send(messages.allocation(key, amount, app=app))
            got = await side.take_entry(
                self.settings.deadline_s, f"{amount} vcore to be free on one node of {dict(free)}"
            )
            check(got.kind is Kind.NEW and got.key == key, f"expected new {key}, got {got}{reason_of(got)}")
            filled.append((amount, got.detail))
        expected = sorted((amount, node) for node, amount in free.items() if amount > 0)
        check(sorted(filled) == expected, f"expected free {expected}, got {sorted(filled)}")
        await self.send(messages.allocation(f"{app}-more", 1, app=app))
        expect_nothing(await self.read_until_quiet())
        check(not len(side), f"expected no more than {dict(free)} to be free, but one more vcore fits")
        await self.send_applications(remove=[app])
        for _ in filled:
            await side.take_entry(self.settings.deadline_s, "the allocations of the measurement to be released")
        expect_nothing(await self._pass_fence())
        self.applications.side.clear()

    async def expect_total(self, total: Mapping[str, int]) -> None:
        """Expect the partition's capacity to be *total*, without types of amount 0."""
        await self._expect_status(lambda core: dict(core.partitions[0].total), dict(total), "total")

    async def expect_counts(self, *, nodes: int, asks: int, allocations: int) -> None:
        """Expect the partition to have these numbers of nodes, asks and allocations."""

        def count_objects(core: status_pb2.GetStatusResponse) -> object:
            here = core.partitions[0]
            return here.node_count, here.pending_ask_count, here.allocation_count

        await self._expect_status(count_objects, (nodes, asks, allocations), "nodes, asks and allocations")

    async def expect_used(self, queue: str, used: int) -> None:
        """Expect the allocations of *queue* to hold this much vcore."""
        await self._expect_status(lambda core: _find_queue(core, queue).used.get("vcore", 0), used, f"{queue} used")

    async def expect_pending(self, queue: str, pending: int) -> None:
        """Expect the asks of *queue* to ask for this much vcore."""
        await self._expect_status(
            lambda core: _find_queue(core, queue).pending.get("vcore", 0), pending, f"{queue} pending"
        )

    async def expect_user(self, used: int, user: str = messages.USER) -> None:
        """Expect all applications of *user* together to hold this much vcore."""

        def add_usage(core: status_pb2.GetStatusResponse) -> int:
            return sum(each.used.get("vcore", 0) for each in core.partitions[0].users if each.user == user)

        await self._expect_status(add_usage, used, f"usage of user {user}")

    async def expect_queue(self, queue: str, *, present: bool) -> None:
        """Expect *queue* to exist, or not to."""
        await self._expect_status(
            lambda core: any(each.path == queue for each in core.partitions[0].queues),
            present,
            f"{queue} exists",
        )

    async def expect_failure(self, key: str, text: str) -> None:
        """Expect *text* to be among the reasons why ask *key* waits. Raises Skipped if the core cannot explain asks."""
        request = status_pb2.ExplainAskRequest(partition=f"[{self.rm}]default", allocation_key=key)
        with skip_where_unserved("ExplainAsk of kornel.v1.StatusService"):
            answer = await self._status.ExplainAsk(request, timeout=CALL_TIMEOUT_S)
        counts = {failure.message: failure.count for failure in answer.failures}
        check(counts.get(text, 0) > 0, f"expected {key} to wait because of {text!r}, got {counts}")

    async def state_dump(self) -> Mapping[str, object]:
        """Returns the core's state dump. Raises Skipped if the core has none."""
        with skip_where_unserved("GetStateDump of kornel.v1.StatusService"):
            answer = await self._status.GetStateDump(
                status_pb2.GetStateDumpRequest(rm_id=self.rm), timeout=CALL_TIMEOUT_S
            )
        try:
            dump: object = json.loads(answer.json)
        except json.JSONDecodeError as error:
            raise Mismatch(f"the state dump is not JSON: {error}") from None
        if not isinstance(dump, dict):
            raise Mismatch("the state dump is not a JSON object")
        return dump

    async def _expect_status(
        self, look: Callable[[status_pb2.GetStatusResponse], object], wanted: object, what: str
    ) -> None:
        """Expect *look* to return *wanted* soon. If the core does not serve the call, the case gets a note instead."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.settings.deadline_s
        while True:
            try:
                core = await self._status.GetStatus(status_pb2.GetStatusRequest(rm_id=self.rm), timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                self.notes.append(f"not checked, because the core does not serve kornel.v1.StatusService: {what}")
                return
            got = look(core)
            if got == wanted:
                return
            if loop.time() > give_up:
                raise Mismatch(f"expected {what} to be {wanted}, got {got}")
            await asyncio.sleep(0.01)


def _find_queue(core: status_pb2.GetStatusResponse, path: str) -> status_pb2.QueueStatus:
    found = (queue for partition in core.partitions for queue in partition.queues if queue.path == path)
    return next(found, status_pb2.QueueStatus())


@contextmanager
def skip_where_unserved(service: str) -> Iterator[None]:
    """Raises Skipped if the core answers to a call in the block that it does not serve this call."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped(f"the core does not serve {service}") from None
        raise
