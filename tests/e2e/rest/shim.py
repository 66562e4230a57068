"""A core that serves HTTP, and a shim that keeps it busy."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2, configuration_pb2_grpc
from tests.e2e.harness import CONFIG, Conversation, Core, open_streams, resource, running_core
from tests.patience import PATIENCE_S
from tests.waiting import until

PREFIX = "/ws/v1"
P = f"{PREFIX}/partition/default"

TRUSTING_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Spares each client of plain HTTP to read the certificates of all authorities, which takes fifty milliseconds."""

TREE = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
          - name: a
            queues:
              - name: a1
"""


@dataclass
class Cluster:
    """``get`` asks over HTTP; everything else is the shim's side. Each call returns when all is settled."""

    core: Core
    http: httpx.AsyncClient
    nodes: Conversation
    applications: Conversation
    allocations: Conversation

    async def get(self, path: str, status: int = 200, **headers: str) -> Any:
        """The JSON at *path*. Fails for another status or for what is not as JSON answers are."""
        answer = await self.http.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json; charset=UTF-8"
        assert "access-control-allow-origin" not in answer.headers
        assert answer.text.endswith("\n")
        return answer.json()

    async def refused(self, path: str, status: int, message: str = "") -> str:
        """The message of the error at *path*, which is *message* if that is given."""
        body = await self.get(path, status)
        assert body["status_code"] == body["StatusCode"] == status
        assert body["message"] == body["description"] == body["Message"] == body["Description"] != ""
        if message:
            assert body["message"] == message
        return str(body["message"])

    async def register(self, config: str = CONFIG, build_info: Mapping[str, str] | None = None, **extra: str) -> None:
        await self.core.scheduler.RegisterResourceManager(
            si.RegisterResourceManagerRequest(
                rmID="rm-1", config=config, buildInfo=build_info or {}, extraConfig=_dotted(extra)
            ),
            timeout=PATIENCE_S,
        )

    async def configure(self, config: str = CONFIG, **extra: str) -> None:
        """``_`` in names of settings stands for a dot."""
        stub = configuration_pb2_grpc.ConfigurationServiceStub(self.core.channel)
        await stub.UpdateConfiguration(
            configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=config, extra_config=_dotted(extra))
        )

    async def node(self, node_id: str, attributes: Mapping[str, str] | None = None, **capacity: int) -> None:
        await self.node_action(node_id, si.NodeInfo.CREATE, attributes, **capacity)

    async def node_action(
        self, node_id: str, action: Any, attributes: Mapping[str, str] | None = None, **capacity: int
    ) -> None:
        info = si.NodeInfo(nodeID=node_id, action=action, attributes=attributes or {})
        if capacity:
            info.schedulableResource.CopyFrom(resource(**capacity))
        await self._tell(self.nodes, si.NodeRequest(rmID="rm-1", nodes=[info]))

    async def submit(
        self,
        *application_ids: str,
        queue: str = "root.default",
        user: str = "ann",
        groups: tuple[str, ...] = ("dev",),
        **fields: Any,
    ) -> None:
        added = [
            si.AddApplicationRequest(
                applicationID=application_id,
                queueName=queue,
                ugi=si.UserGroupInformation(user=user, groups=groups),
                **fields,
            )
            for application_id in application_ids
        ]
        await self._tell(self.applications, si.ApplicationRequest(rmID="rm-1", new=added))

    async def remove(self, application_id: str) -> None:
        gone = si.RemoveApplicationRequest(applicationID=application_id)
        await self._tell(self.applications, si.ApplicationRequest(rmID="rm-1", remove=[gone]))

    async def ask(
        self, key: str, application_id: str = "app", fields: Mapping[str, Any] | None = None, **amounts: int
    ) -> None:
        """An ask, or with ``nodeID`` among *fields* an allocation that there is already."""
        allocation = si.Allocation(
            allocationKey=key, applicationID=application_id, resourcePerAlloc=resource(**amounts), **(fields or {})
        )
        await self._tell(self.allocations, si.AllocationRequest(rmID="rm-1", allocations=[allocation]))

    async def release(self, key: str, application_id: str = "app", termination: Any = si.STOPPED_BY_RM) -> None:
        gone = si.AllocationRelease(applicationID=application_id, allocationKey=key, terminationType=termination)
        releases = si.AllocationReleasesRequest(allocationsToRelease=[gone])
        await self._tell(self.allocations, si.AllocationRequest(rmID="rm-1", releases=releases))

    async def _tell(self, stream: Conversation, request: Any) -> None:
        """Send *request* and return once the engine has had it, however busy the machine is, and all is settled."""
        metrics = self.core.metrics
        before = metrics.commands_applied + metrics.commands_refused
        await stream.send(request)
        await until(lambda: metrics.commands_applied + metrics.commands_refused > before, "the engine to have it")
        await self.core.settle()

    async def wait(self, seconds: float) -> None:
        """Let time pass, a second at a time."""
        whole, rest = divmod(round(seconds * SECOND_NS), SECOND_NS)
        for _ in range(whole):
            self.core.clock.advance(SECOND_NS)
            await self.core.step()
        self.core.clock.advance(rest)
        await self.core.settle()

    async def run_and_finish(self, application_id: str, key: str = "") -> None:
        """Submit, run one task, end it, and let the application complete."""
        await self.submit(application_id)
        await self.ask(key or f"{application_id}-k", application_id, vcore=1)
        await self.release(key or f"{application_id}-k", application_id)
        await self.wait(31)


@asynccontextmanager
async def rest_cluster(**settings: Any) -> AsyncIterator[Cluster]:
    """A core with an open door for HTTP; nobody is registered, and the shim's streams are not open yet."""
    async with AsyncExitStack() as stack:
        core = await stack.enter_async_context(running_core(**{"rest_address": "127.0.0.1:0", **settings}))
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://{core.server.rest_address}", timeout=PATIENCE_S, verify=TRUSTING_NOBODY)
        )
        yield Cluster(core, http, *await stack.enter_async_context(open_streams(core)))


def _dotted(extra: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in extra.items()}
