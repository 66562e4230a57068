"""Encodes the time after which a refused call may be tried again, by gRPC's richer error model.

A ``google.rpc.Status`` with a ``google.rpc.RetryInfo`` is sent in the trailing metadata, where the libraries of many
languages find it. These two messages are the only ones of their package that a core sends, so they are encoded here
field by field instead of depending on the package.
"""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration

from kornel.core.service.wire.message_bytes import encode_field, encode_number

DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"


def encode_retry_info(code: grpc.StatusCode, details: str, retry_s: float) -> bytes:
    """Returns a ``google.rpc.Status`` that says to try again after *retry_s*.

    Clients compare *code* and *details* with those of the call, and ignore the rest of a status that differs.
    """
    delay = Duration()
    delay.FromNanoseconds(round(retry_s * 1e9))
    info = Any(type_url=RETRY_INFO, value=encode_field(1, delay.SerializeToString()))
    number: int = code.value[0]
    return encode_number(1, number) + encode_field(2, details.encode()) + encode_field(3, info.SerializeToString())
