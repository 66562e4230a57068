"""Names of a million characters, and names that somebody chose with care, in every text of every message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2
from tests.e2e.harness import CONFIG
from tests.hostile.attacked import AttackedCore
from tests.patience import PATIENCE_S

PROTO: Final = Path(__file__).parents[2] / "proto"
LENGTH: Final = 1_000_000
DEEPEST: Final = 5
"""Messages within messages that are filled."""

NAMES: Final = {
    "long": "x",
    "begins like a token": "eyJ",
    "begins like a key": "-----BEGIN ",
    "address": "://a:",
    "terminal": "\x1b[2J\x07\x9b\u202e\n\x00",
    "path": "root.",
    "bracket": "[",
    "wide": "\U0001f642\u0301",
}
STREAMS: Final[dict[str, Any]] = {
    "UpdateNode": si.NodeRequest,
    "UpdateApplication": si.ApplicationRequest,
    "UpdateAllocation": si.AllocationRequest,
}
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_STREAMED: Final = frozenset(request.DESCRIPTOR for request in STREAMS.values())


def endless(name: str) -> str:
    unit = NAMES[name]
    return unit * (LENGTH // len(unit))


def filled(kind: Descriptor, text: str, depth: int = 0) -> Iterator[Message]:
    """A message of *kind* for each text in it, which is *text* there; everything else is as a good shim has it."""
    for field in kind.fields:
        message: Any = good(kind)
        target = getattr(message, field.name)
        if field.message_type is None:
            if field.type != FieldDescriptor.TYPE_STRING:
                continue
            if field.is_repeated:
                target.extend([text] * 2)
            else:
                setattr(message, field.name, text)
            yield message
        elif field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING:
                target[text] = "value"
                yield message
                message = good(kind)
                getattr(message, field.name)["key"] = text
            elif field.message_type.fields_by_name["value"].message_type is not None:
                target[text].value = 1
            else:
                target[text] = 1
            yield message
        elif depth < DEEPEST:
            for inner in filled(field.message_type, text, depth + 1):
                message = good(kind)
                whole = getattr(message, field.name)
                if field.is_repeated:
                    del whole[:]
                    whole.append(inner)
                else:
                    whole.CopyFrom(inner)
                yield message


def good(kind: Descriptor) -> Any:
    """A message that the core would take, as far as its kind goes."""
    message: Any = message_factory.GetMessageClass(kind)()
    for name, value in (
        ("rmID", "rm-1" if kind in _STREAMED else "attacker"),  # A manager may spoil its own configuration.
        ("rm_id", "attacker"),
        ("allocationKey", "attack"),
        ("applicationID", "app"),
        ("nodeID", "n1"),
        ("maxAllocations", 1),
        ("action", int(si.NodeInfo.CREATE)),
        ("user", "ann"),
        ("queueName", "root.a"),
    ):
        if name in kind.fields_by_name:
            setattr(message, name, value)
    if kind is si.Allocation.DESCRIPTOR:
        message.resourcePerAlloc.resources["vcore"].value = 1
        message.nodeID = ""
    if kind is si.AllocationAsk.DESCRIPTOR:
        message.resourceAsk.resources["vcore"].value = 1
    return message


def services() -> Iterator[tuple[str, Descriptor]]:
    """All calls with one request, by path."""
    for path in sorted(PROTO.glob("*/v1/*_pb2.py")):
        module = import_module(
            f"kornel.{path.parent.relative_to(PROTO).as_posix().removeprefix('kornel/').replace('/', '.')}.{path.stem}"
        )
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if not method.client_streaming:
                    yield f"/{service.full_name}/{method.name}", method.input_type


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", STREAMS)
def test_streams(core: AttackedCore, method: str, name: str) -> None:
    """A message for each text of it: an entry is refused, or the stream ends."""
    messages = list(filled(STREAMS[method].DESCRIPTOR, endless(name)))
    size = sum(message.ByteSize() for message in messages)
    with core.attack(refused_bytes=size), grpc.insecure_channel(core.address, _OPTIONS) as channel:
        send = channel.stream_stream(
            f"/si.v1.Scheduler/{method}", request_serializer=lambda message: message.SerializeToString()
        )
        for message in messages:
            with suppress(grpc.RpcError):
                for _ in send(iter([message]), timeout=PATIENCE_S):
                    pass


@pytest.mark.parametrize("name", NAMES)
def test_calls(core: AttackedCore, name: str) -> None:
    """Every other call of every service, with each of its texts."""
    attacks = [(path, message) for path, kind in services() for message in filled(kind, endless(name))]
    size = sum(message.ByteSize() for _, message in attacks)
    assert len(attacks) > 60
    with core.attack(refused_bytes=size), grpc.insecure_channel(core.address, _OPTIONS) as channel:
        for path, message in attacks:
            call = channel.unary_stream(path, request_serializer=lambda request: request.SerializeToString())
            with suppress(grpc.RpcError):
                for _ in call(message, timeout=PATIENCE_S):
                    pass


def test_names_for_placement_filters(core: AttackedCore) -> None:
    """Expressions that going back would take years for: the configuration has them, anybody chooses the name."""
    rules = "".join(
        f"      - {{name: fixed, value: root.a, filter: {{{kind}: ['{expression}']}}}}\n"
        for expression in (r"^(a+)+$", r"^(\w+-?)*$", r"(.*a){20}x", r"^(a|aa)+$")
        for kind in ("users", "groups")
    )
    with grpc.insecure_channel(core.address, _OPTIONS) as channel:
        update = channel.unary_unary("/kornel.v1.ConfigurationService/UpdateConfiguration")
        send = channel.stream_stream("/si.v1.Scheduler/UpdateApplication")

        def configure(config: str) -> None:
            request = configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=config)
            update(request.SerializeToString(), timeout=PATIENCE_S)

        configure(f"{CONFIG}    placementrules:\n{rules}      - {{name: provided}}\n")
        applications = [
            si.AddApplicationRequest(
                applicationID=f"attack-{length}",
                queueName="root.none",
                ugi=si.UserGroupInformation(user="a" * length + "@", groups=["a" * length * 4 + "!"] * 100),
            )
            for length in (31, 40, 100, 250)
        ]
        with core.attack():
            request = si.ApplicationRequest(rmID="rm-1", new=applications)
            answers = send(iter([request.SerializeToString()]), timeout=PATIENCE_S)
            found = [si.ApplicationResponse.FromString(answer) for answer in answers]
        assert sum(len(answer.rejected) for answer in found) == len(applications)
        configure(CONFIG)
