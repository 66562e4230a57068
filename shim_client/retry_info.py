"""The time that a core asks its caller to wait before another try: ``google.rpc.RetryInfo`` in the details of a status.

The message is read field by field, so that a shim needs no more packages than gRPC's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import grpc
from google.protobuf import any_pb2, duration_pb2, empty_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

DETAILS_KEY: Final = "grpc-status-details-bin"
_RETRY_INFO: Final = "google.rpc.RetryInfo"
_LENGTH_DELIMITED: Final = 2


def read_retry_delay(code: grpc.StatusCode, trailing: Any) -> float | None:
    """Returns the seconds after which a call that ended with RESOURCE_EXHAUSTED or UNAVAILABLE may be tried again.

    It returns ``None`` if the core gives no time, because another try would meet the same limit, or because no core
    answered. *trailing* is the trailing metadata of the call.
    """
    if code not in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
        return None
    try:
        for raw in (value for key, value in trailing or () if key == DETAILS_KEY and isinstance(value, bytes)):
            for detail in map(any_pb2.Any.FromString, _read_fields(raw, 3)):
                if detail.TypeName() == _RETRY_INFO:
                    delay = next(_read_fields(detail.value, 1), b"")
                    return max(0.0, duration_pb2.Duration.FromString(delay).ToNanoseconds() / 1e9)
    except DecodeError:
        return None
    return None


def _read_fields(raw: bytes, number: int) -> Iterator[bytes]:
    """Yields the contents of all fields with *number* in a message whose type is not known here."""
    fields = UnknownFieldSet(empty_pb2.Empty.FromString(raw))
    for field in (fields[index] for index in range(len(fields))):
        if field.field_number == number and field.wire_type == _LENGTH_DELIMITED:
            yield field.data
