"""Lists that the command line reads from a running core page by page, and operators' changes to its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kornel.cli.client.connected import Connected
from kornel.cli.client.connection import DEFAULT_TIMEOUT_S
from kornel.v1 import admin_pb2 as admin
from kornel.v1 import read_pb2 as pb
from kornel.v1.admin_pb2_grpc import AdminServiceStub
from kornel.v1.read_pb2_grpc import ReadServiceStub

_PAGE: Final = 2_000


class Reader(Connected):
    """The calls that list objects of a core, and that drain nodes."""

    def __init__(self, address: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(address, timeout_s)
        self._read = ReadServiceStub(self._channel)
        self._admin = AdminServiceStub(self._channel)

    def queues(self, partition: str = "", path: str = "") -> pb.ListQueuesResponse:
        """Returns all queues of one branch, parents first."""
        request = pb.ListQueuesRequest(partition=partition, path=path)
        whole = pb.ListQueuesResponse()
        while True:
            page = self._call(self._read.ListQueues, request)
            whole.queues.extend(page.queues)
            request.page_token = page.next_page_token
            if not request.page_token:
                return whole

    def applications(self, request: pb.ListApplicationsRequest, most: int = 0) -> pb.ListApplicationsResponse:
        """Returns the applications that *request* selects, at most *most* of them; 0: all. If there are more,
        ``next_page_token`` is set."""
        whole = pb.ListApplicationsResponse()
        self._gather_pages(self._read.ListApplications, request, whole, "applications", most)
        return whole

    def nodes(self, request: pb.ListNodesRequest, most: int = 0) -> pb.ListNodesResponse:
        """Returns the nodes that *request* selects, at most *most* of them; 0: all. If there are more,
        ``next_page_token`` is set."""
        whole = pb.ListNodesResponse()
        self._gather_pages(self._read.ListNodes, request, whole, "nodes", most)
        return whole

    def list_domains(self, request: pb.ListDomainsRequest, most: int = 0) -> pb.ListDomainsResponse:
        """Returns the domains that *request* selects, at most *most* of them; 0: all. If there are more,
        ``next_page_token`` is set."""
        whole = pb.ListDomainsResponse()
        self._gather_pages(self._read.ListDomains, request, whole, "domains", most)
        return whole

    def list_claims(self, request: pb.ListClaimsRequest, most: int = 0) -> pb.ListClaimsResponse:
        """Returns the claims that *request* selects, at most *most* of them; 0: all. If there are more,
        ``next_page_token`` is set."""
        whole = pb.ListClaimsResponse()
        self._gather_pages(self._read.ListClaims, request, whole, "claims", most)
        return whole

    def list_waits(self, request: pb.ListWaitsRequest) -> pb.ListWaitsResponse:
        """Returns who waits longest."""
        return self._call(self._read.ListWaits, request)

    def application(self, application_id: str, partition: str = "") -> pb.GetApplicationResponse:
        """Returns one application, live or ended."""
        request = pb.GetApplicationRequest(partition=partition, application_id=application_id)
        return self._call(self._read.GetApplication, request)

    def node(self, node_id: str, partition: str = "") -> pb.GetNodeResponse:
        """Returns one node."""
        request = pb.GetNodeRequest(partition=partition, node_id=node_id)
        return self._call(self._read.GetNode, request)

    def health(self) -> pb.GetHealthReportResponse:
        """Returns the checks that the core makes of itself."""
        return self._call(self._read.GetHealthReport, pb.GetHealthReportRequest())

    def list_refusals(self, request: pb.ListRefusalsRequest) -> pb.ListRefusalsResponse:
        """Returns what the core refused lately, the newest first."""
        return self._call(self._read.ListRefusals, request)

    def drain(self, node_id: str, partition: str = "") -> admin.DrainNodeResponse:
        """Take a node out of scheduling."""
        request = admin.DrainNodeRequest(partition=partition, node_id=node_id)
        return self._call(self._admin.DrainNode, request)

    def undrain(self, node_id: str, partition: str = "") -> admin.UndrainNodeResponse:
        """Open a drained node to scheduling again."""
        request = admin.UndrainNodeRequest(partition=partition, node_id=node_id)
        return self._call(self._admin.UndrainNode, request)

    def _gather_pages(self, method: Callable[..., Any], request: Any, whole: Any, field: str, most: int) -> None:
        """Fill the list *field* of *whole* page by page, with at most *most* entries; 0: all.

        All other fields are those of the first page.
        """
        found = getattr(whole, field)
        while True:
            request.page_size = min(_PAGE, most - len(found)) if most else _PAGE
            page = self._call(method, request)
            if not found:
                whole.MergeFrom(page)
            else:
                found.extend(getattr(page, field))
            request.page_token = whole.next_page_token = page.next_page_token
            if not request.page_token or (most and len(found) >= most):
                return
