"""A well-behaved shim beside an attack: it stays connected, and tells whether the core still serves it."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import status_pb2, status_pb2_grpc
from tests.e2e.harness import (
    CONFIG,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    release_request,
)
from tests.patience import PATIENCE_S

_AGAIN: Final = {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}


class Talk:
    """One stream of the bystander: requests from a queue, responses into another."""

    def __init__(self, method: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = method(iter(self._requests.get, None))
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, request: Any) -> Any:
        """The next response after *request*. Fails if the stream has ended, or says nothing."""
        self._requests.put(request)
        return self.hear(request)

    def hear(self, request: Any = None) -> Any:
        """The next response, to *request* or an earlier one."""
        try:
            answer = self._responses.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"no answer to {request}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self._requests.put(None)

    def _listen(self) -> None:
        try:
            for response in self._call:
                self._responses.put(response)
            self._responses.put(AssertionError("the stream ended"))
        except grpc.RpcError as error:
            self._responses.put(error)


def _ask_until_heard(method: Any, request: Any) -> Any:
    """The answer of a call. What gRPC refused beside an attack is asked again, as clients do."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return method(request, timeout=PATIENCE_S)
        except grpc.RpcError as refusal:
            if refusal.code() not in _AGAIN or time.monotonic() > deadline:
                raise


class Bystander:
    """A well-behaved shim, rm-1, whose three streams stay open through everything."""

    def __init__(self, address: str, pid: int, channel: grpc.Channel | None = None) -> None:
        """*channel*: how it connects, where that takes more than the address."""
        self.address = address
        self._pid = pid
        self._channel = grpc.insecure_channel(address) if channel is None else channel
        stub = si_pb2_grpc.SchedulerStub(self._channel)
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S)
        self.nodes, self._applications = Talk(stub.UpdateNode), Talk(stub.UpdateApplication)
        self._allocations = Talk(stub.UpdateAllocation)
        self._numbers = itertools.count()
        self.nodes.ask(node_request(create("n1")))
        self._applications.ask(application_request("app"))
        self._allocations.ask(allocation_request(ask("keeper")))

    def works(self, *, allocations: bool = True) -> None:
        """Fails unless each stream is answered, on itself, and the core says that it is well.

        Without *allocations* while another stream of that kind was bound later, and so receives.
        """
        number = next(self._numbers)
        node_id, application_id, key = f"node-{number}", f"app-{number}", f"key-{number}"
        assert self.nodes.ask(node_request(create(node_id))).accepted[0].nodeID == node_id
        accepted = self._applications.ask(application_request(application_id))
        while not accepted.accepted:
            accepted = self._applications.ask(si.ApplicationRequest(rmID="rm-1"))
        assert accepted.accepted[0].applicationID == application_id
        if allocations:
            assert self._allocations.ask(allocation_request(ask(key, vcore=1))).new[0].allocationKey == key
            release = si.AllocationRelease(applicationID="app", allocationKey=key, terminationType=si.STOPPED_BY_RM)
            assert self._allocations.ask(release_request(release)).released[0].allocationKey == key
        assert self._health() == health_pb2.HealthCheckResponse.SERVING

    def _health(self) -> int:
        """What the core says of itself."""
        check: Any = HealthStub(self._channel).Check  # type: ignore[attr-defined]
        return int(_ask_until_heard(check, health_pb2.HealthCheckRequest()).status)

    def status(self) -> status_pb2.PartitionStatus:
        stub: Any = status_pb2_grpc.StatusServiceStub(self._channel)
        answer = _ask_until_heard(stub.GetStatus, status_pb2.GetStatusRequest(audit=True))
        return answer.partitions[0]

    def connections(self) -> int:
        """Open files of the core's process, the sockets of its clients among them."""
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))

    def memory_mib(self) -> float:
        """Resident memory of the core's process."""
        for line in Path(f"/proc/{self._pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def close(self) -> None:
        for talk in (self.nodes, self._applications, self._allocations):
            talk.close()
        self._channel.close()
