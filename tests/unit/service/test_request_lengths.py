"""Every text of every request has a limit before anything else sees the request."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kornel.core.service.calls.request_lengths import UNLIMITED, check_lengths
from kornel.core.service.wire.status_codes import InvalidRequest

PROTO = Path(__file__).parents[3] / "proto"
ENDLESS = "eyJ" * 400_000


def requests() -> Iterator[Descriptor]:
    """The requests of all calls of all services."""
    for path in sorted(PROTO.glob("*/v1/*_pb2.py")):
        module = import_module(
            f"kornel.{path.parent.relative_to(PROTO).as_posix().removeprefix('kornel/').replace('/', '.')}.{path.stem}"
        )
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield method.input_type


def texts(kind: Descriptor, path: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    """The way to each text in *kind* that stands in no list of messages."""
    for field in kind.fields:
        if field.message_type is None:
            if field.type == FieldDescriptor.TYPE_STRING:
                yield (*path, field)
        elif field.message_type.GetOptions().map_entry:
            yield (*path, field)
        elif not field.is_repeated:
            yield from texts(field.message_type, (*path, field))


CASES = {
    f"{kind.name}.{'.'.join(field.name for field in path)}": (kind, path)
    for kind in requests()
    for path in texts(kind)
    if path[-1].name not in UNLIMITED
}


def with_text(kind: Descriptor, path: tuple[FieldDescriptor, ...], text: str) -> Message:
    whole = message_factory.GetMessageClass(kind)()
    message: Any = whole
    for field in path[:-1]:
        message = getattr(message, field.name)
    last = path[-1]
    if last.message_type is not None:
        value = last.message_type.fields_by_name["value"]
        getattr(message, last.name)[text] = text if value.type == FieldDescriptor.TYPE_STRING else 1
    elif last.is_repeated:
        getattr(message, last.name).extend([text, text])
    else:
        setattr(message, last.name, text)
    return whole


@pytest.mark.parametrize("case", CASES)
def test_endless_text_is_refused(case: str) -> None:
    """It is named and measured, and not repeated."""
    kind, path = CASES[case]
    with pytest.raises(InvalidRequest, match=rf"^{path[-1].name} has [0-9,]+ characters, at most [0-9,]+$"):
        check_lengths(with_text(kind, path, ENDLESS))
    check_lengths(with_text(kind, path, "x" * 100))


def test_all_calls_are_looked_at() -> None:
    """So many that none was left out by mistake."""
    assert len(CASES) > 70
    assert {"AllocationRequest.rmID", "RegisterResourceManagerRequest.extraConfig"} <= set(CASES)
