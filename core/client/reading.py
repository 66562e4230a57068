"""What the command line reads from a running core, page by page, and does to its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import grpc
from kornel.v1 import admin_pb2 as admin
from kornel.v1 import read_pb2 as pb
from kornel.v1.admin_pb2_grpc import AdminServiceStub
from kornel.v1.read_pb2_grpc import ReadServiceStub

from core.client.calls import DEFAULT_TIMEOUT_S, unreachable
from core.client.channels import open_channel
from core.service.limits import MESSAGE_LIMIT

_OPTIONS: Final = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]
_PAGE: Final = 2_000

AnswerT = TypeVar("AnswerT")


class Reader:
    """One core at *address*. All methods raise :class:`core.client.calls.CoreUnreachable`. A context manager."""

    def __init__(self, address: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = open_channel(address, _OPTIONS)

    def __enter__(self) -> Reader:
        channel = self._channel.__enter__()
        self._read = ReadServiceStub(channel)
        self._admin = AdminServiceStub(channel)
        return self

    def __exit__(self, *raised: object) -> None:
        self._channel.__exit__(None, None, None)

    def queues(self, partition: str = "", path: str = "") -> pb.ListQueuesResponse:
        """All queues of one branch, parents first."""
        request = pb.ListQueuesRequest(partition=partition, path=path)
        whole = pb.ListQueuesResponse()
        while True:
            page = self._call(lambda: self._read.ListQueues(request, timeout=self._timeout_s))
            whole.queues.extend(page.queues)
            request.page_token = page.next_page_token
            if not request.page_token:
                return whole

    def applications(self, request: pb.ListApplicationsRequest, most: int = 0) -> pb.ListApplicationsResponse:
        """Applications as *request* wants them, *most* of them; 0: all. ``next_page_token``: there are more."""
        whole = pb.ListApplicationsResponse()
        while True:
            request.page_size = min(_PAGE, most - len(whole.applications)) if most else _PAGE
            page = self._call(lambda: self._read.ListApplications(request, timeout=self._timeout_s))
            whole.applications.extend(page.applications)
            request.page_token = whole.next_page_token = page.next_page_token
            if not request.page_token or (most and len(whole.applications) >= most):
                return whole

    def nodes(self, request: pb.ListNodesRequest, most: int = 0) -> pb.ListNodesResponse:
        """Nodes as *request* wants them, *most* of them; 0: all. ``next_page_token``: there are more."""
        whole = pb.ListNodesResponse()
        while True:
            request.page_size = min(_PAGE, most - len(whole.nodes)) if most else _PAGE
            page = self._call(lambda: self._read.ListNodes(request, timeout=self._timeout_s))
            whole.nodes.extend(page.nodes)
            request.page_token = whole.next_page_token = page.next_page_token
            if not request.page_token or (most and len(whole.nodes) >= most):
                return whole

    def application(self, application_id: str, partition: str = "") -> pb.GetApplicationResponse:
        """One application, live or ended."""
        request = pb.GetApplicationRequest(partition=partition, application_id=application_id)
        return self._call(lambda: self._read.GetApplication(request, timeout=self._timeout_s))

    def node(self, node_id: str, partition: str = "") -> pb.GetNodeResponse:
        """One node."""
        request = pb.GetNodeRequest(partition=partition, node_id=node_id)
        return self._call(lambda: self._read.GetNode(request, timeout=self._timeout_s))

    def health(self) -> pb.GetHealthReportResponse:
        """The checks that the core makes of itself."""
        return self._call(lambda: self._read.GetHealthReport(pb.GetHealthReportRequest(), timeout=self._timeout_s))

    def drain(self, node_id: str, partition: str = "") -> admin.DrainNodeResponse:
        """Take a node out of scheduling."""
        request = admin.DrainNodeRequest(partition=partition, node_id=node_id)
        return self._call(lambda: self._admin.DrainNode(request, timeout=self._timeout_s))

    def undrain(self, node_id: str, partition: str = "") -> admin.UndrainNodeResponse:
        """Have a node back."""
        request = admin.UndrainNodeRequest(partition=partition, node_id=node_id)
        return self._call(lambda: self._admin.UndrainNode(request, timeout=self._timeout_s))

    def _call(self, call: Callable[[], AnswerT]) -> AnswerT:
        try:
            return call()
        except grpc.RpcError as error:
            raise unreachable(self._address, error) from error
