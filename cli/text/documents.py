"""Writes messages as JSON in one style: every field name is in snake case, also in messages of ``si.v1``, whose own
names have another style."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_NEW_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def write_message(message: Message, indent: int | None = 2) -> str:
    """Returns *message* with all its fields as JSON, in one line if *indent* is ``None``."""
    return json.dumps(message_values(message), indent=indent, ensure_ascii=False)


def message_values(message: Message) -> dict[str, Any]:
    """Returns *message* with all its fields as plain values; numbers of 64 bits are text, as in protobuf's JSON."""
    values = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return _rename_fields(values, message.DESCRIPTOR)


def _rename_fields(values: dict[str, Any], described: Any) -> dict[str, Any]:
    fields = described.fields_by_name
    return {
        _NEW_WORD.sub("_", name).lower(): _rename_inner(value, fields[name].message_type)
        for name, value in values.items()
    }


def _rename_inner(value: Any, described: Any) -> Any:
    """Returns the *value* of a field with the fields of messages within it renamed. *described* is the descriptor of
    these messages, ``None`` if there are none."""
    if described is None:
        return value
    if described.GetOptions().map_entry:
        inner = described.fields_by_name["value"].message_type
        return {key: _rename_inner(each, inner) for key, each in value.items()}
    if isinstance(value, list):
        return [_rename_fields(each, described) for each in value]
    return _rename_fields(value, described)
