"""The client of ``kornel.v1.HistoryService``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kornel.cli.client.connected import Connected
from kornel.v1 import history_pb2 as pb
from kornel.v1.history_pb2_grpc import HistoryServiceStub

MOST_AT_ONCE: Final = 1_000


class HistoryClient(Connected):
    """The calls about the history. Lists are newest first, of *most* records at most, 0 for all."""

    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__(address, timeout_s)
        self._stub = HistoryServiceStub(self._channel)

    def applications(self, request: pb.ListPastApplicationsRequest, most: int = 0) -> list[pb.ApplicationRecord]:
        """Returns the states that applications entered."""
        return list(self._read_pages(self._stub.ListPastApplications, request, "applications", most))

    def preemptions(self, request: pb.ListPreemptionsRequest, most: int = 0) -> list[pb.PreemptionRecord]:
        """Returns decisions to preempt."""
        return list(self._read_pages(self._stub.ListPreemptions, request, "preemptions", most))

    def sum_preemptions(self, request: pb.SumPreemptionsRequest) -> pb.SumPreemptionsResponse:
        """Returns sums of what preemption took for whom from whom."""
        return self._call(self._stub.SumPreemptions, request)

    def events(self, request: pb.ListEventsRequest, most: int = 0) -> list[pb.HistoryEvent]:
        """Returns events."""
        return list(self._read_pages(self._stub.ListEvents, request, "events", most))

    def configurations(self, request: pb.ListConfigurationsRequest, most: int = 0) -> list[pb.ConfigurationRecord]:
        """Returns configurations that came into force or were refused."""
        return list(self._read_pages(self._stub.ListConfigurations, request, "configurations", most))

    def list_usage(self, request: pb.ListUsageRequest) -> list[pb.UsagePoint]:
        """Returns how full a queue was, the oldest first."""
        return list(self._call(self._stub.ListUsage, request).points)

    def status(self) -> pb.GetHistoryStatusResponse:
        """Returns the state of the history."""
        return self._call(self._stub.GetHistoryStatus, pb.GetHistoryStatusRequest())

    def _read_pages(self, method: Callable[..., Any], request: Any, field: str, most: int) -> Iterator[Any]:
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
