"""Shims that place asks without a pause, each of its own kind, and note when they heard of which placement.

One is built on ``shim_client``, one is the example of the Go client, and one was written from the documentation alone
(`serving.md`, "Going on exactly" and "Several cores"), and reaches the cores through one address.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kornel.shim_client import Allocated, Ask, ShimClient
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e.harness import CONFIG, allocation_request, application_request, ask, create, node_request

EACH_S: Final = 0.05
"""The pause between two asks."""
AGAIN_S: Final = 0.1
"""The pause before the shim from the documentation connects again."""
ASKED_S: Final = 1.0
"""How often it asks whether the core leads, and how long it waits for the answer."""


FINAL: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
"""The ends of calls after which it would have to begin anew. A call that breaks while it is written may end INTERNAL in
gRPC for Python."""


class NotLeading(Exception):
    """The core does not lead, or no longer."""


class OutageShim:
    """A shim under which cores fail."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.heard: list[tuple[float, str]] = []
        """The placements in the order in which they were heard of: by the monotonic clock, and the key."""

    def note_placed(self, key: str) -> None:
        """Notes that *key* was placed."""
        self.heard.append((time.monotonic(), key))

    async def run(self) -> None:
        """Has asks placed until it is cancelled."""
        raise NotImplementedError


class PythonShim(OutageShim):
    """A shim that is built on ``shim_client`` and knows all *addresses*."""

    kind = "shim_client"

    def __init__(self, addresses: str) -> None:
        super().__init__()
        self._addresses = addresses

    async def run(self) -> None:
        """Has asks placed until it is cancelled."""
        async with ShimClient(self._addresses, "python") as client:
            await client.register(config=CONFIG)
            await client.create_nodes([create("n1", vcore=10**9)])
            owner = si.UserGroupInformation(user="ann")
            await client.add_applications(
                [si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=owner)]
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._place(client))
                async for update in client.updates():
                    if isinstance(update, Allocated):
                        self.note_placed(update.key)

    async def _place(self, client: ShimClient) -> None:
        number = 0
        while True:
            number += 1
            await client.submit_asks([Ask(f"python-{number}", "app", {"vcore": 1})])
            await asyncio.sleep(EACH_S)


class GoShim(OutageShim):
    """The example of the Go client, which knows all *addresses*: of its *tasks*, four run at a time."""

    kind = "Go client"

    def __init__(self, program: Path, addresses: str, tasks: int) -> None:
        super().__init__()
        self._command = [program, "--core", addresses, "--tasks", str(tasks), "--gang", "0", "--runtime", "200ms"]

    async def run(self) -> None:
        """Has asks placed until it is cancelled."""
        process = await asyncio.create_subprocess_exec(*self._command, stderr=PIPE)
        try:
            assert process.stderr is not None
            while line := (await process.stderr.readline()).decode():
                if found := re.search(r"(task-\d+) runs on", line):
                    self.note_placed(found[1])
            raise AssertionError("the Go shim has ended")
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class BookShim(OutageShim):
    """A shim that was written from the documentation and knows one *address*, at which any of the cores may answer.

    It keeps books of what it has sent and received.
    """

    kind = "from the docs"

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._session = [("kornel-session", uuid.uuid4().hex)]
        self._epoch = ""
        self._received = 0
        self._sent: list[si.Allocation] = []
        self._forgotten = 0

    async def run(self) -> None:
        """Has asks placed until it is cancelled."""
        while True:
            # Another channel of gRPC would share the connection to the same address.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(self._address, options=options) as channel:
                try:
                    if not self._epoch:
                        await self._prepare(si_pb2_grpc.SchedulerStub(channel))
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._watch(channel))
                        tasks.create_task(self._exchange(si_pb2_grpc.SchedulerStub(channel), tasks))
                except* (NotLeading, asyncio.InvalidStateError):
                    pass
                except* grpc.aio.AioRpcError as ended:
                    for error in ended.exceptions:
                        assert isinstance(error, grpc.aio.AioRpcError)
                        assert error.code() not in FINAL, error
            await asyncio.sleep(AGAIN_S)

    async def _prepare(self, scheduler: si_pb2_grpc.SchedulerAsyncStub) -> None:
        registering: Any = scheduler.RegisterResourceManager(
            si.RegisterResourceManagerRequest(rmID="docs", config=CONFIG), metadata=self._session
        )
        await registering
        epoch = dict(await registering.initial_metadata())["kornel-resume"]
        calls: list[tuple[Any, Any]] = [
            (scheduler.UpdateNode(metadata=self._session), node_request(create("n1", vcore=10**9), rm_id="docs")),
            (scheduler.UpdateApplication(metadata=self._session), application_request("app", rm_id="docs")),
        ]
        for call, request in calls:
            await call.write(request)
            assert (await call.read()).accepted
            call.cancel()
        self._epoch = str(epoch)

    async def _watch(self, channel: grpc.aio.Channel) -> None:
        """Raises :class:`NotLeading` when the core does not lead, and ``AioRpcError`` when it does not answer."""
        stub: Any = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="si.v1.Scheduler")
        while True:
            if (await stub.Check(asked, timeout=ASKED_S)).status != health_pb2.HealthCheckResponse.SERVING:
                raise NotLeading
            await asyncio.sleep(ASKED_S)

    async def _exchange(self, scheduler: si_pb2_grpc.SchedulerAsyncStub, tasks: asyncio.TaskGroup) -> None:
        """Goes on exactly where the last stream broke, until this one does."""
        at = ("kornel-resume", f"{self._epoch}/{self._received}")
        call: Any = scheduler.UpdateAllocation(metadata=[*self._session, at])
        await call.write(si.AllocationRequest(rmID="docs"))
        said = dict(await call.initial_metadata() or ())
        if "kornel-resume" in said:
            self._epoch, _, applied = str(said["kornel-resume"]).partition("/")
            assert int(applied) >= self._forgotten
            del self._sent[: int(applied) - self._forgotten]
            self._forgotten = int(applied)
            tasks.create_task(self._write(call))
        await self._read(call)

    async def _write(self, call: Any) -> None:
        again = self._sent[:]
        while True:
            number = self._forgotten + len(self._sent) + 1
            self._sent.append(ask(f"docs-{number}", "app", vcore=1))
            await call.write(allocation_request(*again, self._sent[-1], rm_id="docs"))
            again = []
            await asyncio.sleep(EACH_S)

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            self._received += sum(len(entries) for _, entries in response.ListFields())
            for placed in response.new:
                self.note_placed(placed.allocationKey)
        raise NotLeading
