"""The command line's side of ``kornel.v1.HistoryService``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from kornel.v1 import history_pb2 as pb
from kornel.v1.history_pb2_grpc import HistoryServiceStub

from core.client.calls import unreachable
from core.client.channels import open_channel
from core.service.limits import MESSAGE_LIMIT

MOST_AT_ONCE: Final = 1_000

ResponseT = TypeVar("ResponseT", bound=Message)


class HistoryClient:
    """One connection. Every call raises :class:`core.client.calls.CoreUnreachable` when it fails.

    Lists are newest first, of *most* records at most, 0 for all.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = open_channel(address, [("grpc.max_receive_message_length", MESSAGE_LIMIT)])
        self._stub = HistoryServiceStub(self._channel)

    def __enter__(self) -> HistoryClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._channel.close()

    def applications(self, request: pb.ListPastApplicationsRequest, most: int = 0) -> list[pb.ApplicationRecord]:
        return list(self._pages(self._stub.ListPastApplications, request, "applications", most))

    def preemptions(self, request: pb.ListPreemptionsRequest, most: int = 0) -> list[pb.PreemptionRecord]:
        return list(self._pages(self._stub.ListPreemptions, request, "preemptions", most))

    def events(self, request: pb.ListEventsRequest, most: int = 0) -> list[pb.HistoryEvent]:
        return list(self._pages(self._stub.ListEvents, request, "events", most))

    def configurations(self, request: pb.ListConfigurationsRequest, most: int = 0) -> list[pb.ConfigurationRecord]:
        return list(self._pages(self._stub.ListConfigurations, request, "configurations", most))

    def status(self) -> pb.GetHistoryStatusResponse:
        return self._call(self._stub.GetHistoryStatus, pb.GetHistoryStatusRequest())

    def _pages(self, method: Callable[..., Any], request: Any, field: str, most: int) -> Iterator[Any]:
        left = most
        while True:
            request.page.page_size = min(left, MOST_AT_ONCE) if most else MOST_AT_ONCE
            answer = self._call(method, request)
            records = getattr(answer, field)
            yield from records
            left -= len(records)
            request.page.page_token = answer.next_page_token
            if not answer.next_page_token or (most and left <= 0):
                return

    def _call(self, method: Callable[..., ResponseT], request: Any) -> ResponseT:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise unreachable(self._address, error) from error
