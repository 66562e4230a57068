"""Makes the call of ``kornel events``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import grpc

from kornel.core.client.calls import CoreUnreachable, describe_failure
from kornel.core.client.channels import open_channel
from kornel.core.service.limits import MESSAGE_LIMIT
from kornel.v1.events_pb2 import WatchEventsRequest, WatchEventsResponse
from kornel.v1.events_pb2_grpc import EventServiceStub

_OPTIONS = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]
_READY: Final = grpc.ChannelConnectivity.READY
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
    settled = {_READY} if patient else {_READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE}
    with open_channel(address, _OPTIONS) as channel:
        tried = threading.Event()
        channel.subscribe(lambda state: tried.set() if state in settled else None, try_to_connect=True)
        if not tried.wait(timeout_s):
            raise CoreUnreachable(f"no answer from {address} within {timeout_s:g} s; --timeout gives it more")
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
