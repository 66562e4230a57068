"""The call of ``kornel events``."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from kornel.v1.events_pb2 import WatchEventsRequest, WatchEventsResponse
from kornel.v1.events_pb2_grpc import EventServiceStub

from core.service.channels import open_channel
from core.service.client import CoreUnreachable, unreachable
from core.service.limits import MESSAGE_LIMIT

_OPTIONS = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]
_WORTH_ANOTHER_TRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


class StreamBroken(CoreUnreachable):
    """A stream ended although there may be more: the core went down, or dropped it."""


def watch(address: str, request: WatchEventsRequest, timeout_s: float) -> Iterator[WatchEventsResponse]:
    """What the core answers, as it comes. Raises ``CoreUnreachable``, or :class:`StreamBroken` after it began.

    *timeout_s*: for the first answer.
    """
    with open_channel(address, _OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError as error:
            raise CoreUnreachable(f"{address}: no answer within {timeout_s:g} s") from error
        began = False
        try:
            for response in EventServiceStub(channel).WatchEvents(request):
                began = True
                yield response
        except grpc.RpcError as error:
            failure = unreachable(address, error)
            if began and isinstance(error, grpc.Call) and error.code() in _WORTH_ANOTHER_TRY:
                raise StreamBroken(str(failure)) from error
            raise failure from error
