"""Makes the call of ``kornel events``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.cli.client.channels import open_channel
from kornel.cli.client.failures import CoreUnreachable, describe_failure
from kornel.v1.events_pb2 import WatchEventsRequest, WatchEventsResponse
from kornel.v1.events_pb2_grpc import EventServiceStub

_NOT_REACHED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_WORTH_ANOTHER_TRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


class StreamBroken(CoreUnreachable):
    """The stream ended although there may be more events: the core ended, or dropped it."""


def watch(
    address: str, request: WatchEventsRequest, timeout_s: float, *, patient: bool = False
) -> Iterator[WatchEventsResponse]:
    """Yields the core's answers as they arrive. Raises ``CoreUnreachable``, or :class:`StreamBroken` once the stream
    has begun.

    *timeout_s*: the time limit of the connection. With *patient*, it keeps trying, because the core may still be
    starting.
    """
    with open_channel(address) as channel:
        _connect(channel, address, timeout_s, patient=patient)
        began = False
        try:
            for response in EventServiceStub(channel).WatchEvents(request):
                began = True
                yield response
        except grpc.RpcError as error:
            failure = describe_failure(address, error)
            if began and isinstance(error, grpc.Call) and error.code() in _WORTH_ANOTHER_TRY:
                raise StreamBroken(str(failure)) from error
            raise failure from error


def _connect(channel: grpc.Channel, address: str, timeout_s: float, *, patient: bool) -> None:
    """Makes a call that any core answers, because the stream itself has no time limit.

    The states of a channel would say when it is connected, but they are watched by a thread that fails when the channel
    is closed soon afterwards.
    """
    ask = HealthStub(channel).Check  # type: ignore[attr-defined]  # the type stubs leave it out
    try:
        ask(HealthCheckRequest(), timeout=timeout_s, wait_for_ready=patient)
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() in _NOT_REACHED:
            raise describe_failure(address, error) from error
