"""Bytes of messages that are written without the messages: protobuf reads them as what was written."""

from __future__ import annotations

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, Int64Value

from kornel.core.service.wire.message_bytes import encode_field, encode_number

EDGES = (0, 1, 127, 128, 129, 16_383, 16_384, 2**31, 2**63 - 1, -1, -(2**63))


@pytest.mark.parametrize("value", EDGES)
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    """Small ones, those at the edges of one more byte, and negative ones."""
    raw = encode_number(1, value)
    assert Int64Value.FromString(raw) == Int64Value(value=value)
    assert raw == (Int64Value(value=value).SerializeToString() or b"\x08\x00")


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_a_field_is_read_as_it_was_written(size: int) -> None:
    """Whatever number of bytes its length takes."""
    assert BytesValue.FromString(encode_field(1, b"x" * size)).value == b"x" * size


def test_a_high_field_number_takes_two_bytes() -> None:
    """Field 16 is the first one whose tag does not fit into one byte."""
    assert encode_field(16, b"x") == b"\x82\x01\x01x"
