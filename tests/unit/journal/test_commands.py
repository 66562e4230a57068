"""Every field of every command is in its record: one that were forgotten would be decided without."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

import pytest

from kornel.core.domain import commands
from kornel.core.domain.commands import AllocationSpec, Command
from kornel.core.domain.devices import DeviceRequest, read_wants
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, read_request
from kornel.core.journal.commands import decode_command, encode_command
from kornel.v1 import journal_pb2 as pb

RACK_TAGS = (("kornel.topology.required", "rack"),)
RACK = read_request(RACK_TAGS)
WANT_TAGS = (("kornel.gpu.count", "2"), ("kornel.gpu.devices", "g0,g1"))
WANTS = read_wants(WANT_TAGS)
"""The two fields that are not written: the tags, which are, say all of them."""


def make_filled(kind: Any, number: int = 7) -> Any:
    """Returns a value of *kind* in which no field has its default."""
    if kind is TopologyRequest:
        return RACK
    if kind is DeviceRequest:
        return WANTS
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind, vars(commands))
        filled = kind(**{name: make_filled(hint, at) for at, (name, hint) in enumerate(hints.items(), 7)})  # type: ignore[operator]
        return filled._replace(tags=(*RACK_TAGS, *WANT_TAGS)) if kind is AllocationSpec else filled
    given = [each for each in get_args(kind) if each not in (type(None), Ellipsis)]
    if Resources in (kind, *given):
        return Resources({"vcore": number, "memory": 1})
    if getattr(kind, "__origin__", None) is tuple:
        one = tuple(make_filled(each, number) for each in given)
        return (one[0], one[0]) if Ellipsis in get_args(kind) else one
    if given:
        return make_filled(given[0], number)
    return {str: f"text {number}", bool: True, int: number}[kind]


@pytest.mark.parametrize("kind", get_args(Command))
def test_a_command_comes_out_as_it_went_in(kind: Any) -> None:
    """With every field set, and with as many at their defaults as there can be."""
    filled = make_filled(kind)
    empty = kind("rm") if kind is not commands.SetOperatorDrain else kind("rm", "p", "n", False)
    for command in (filled, empty):
        message = pb.JournalCommand()
        encode_command(command, message)
        assert decode_command(pb.JournalCommand.FromString(message.SerializeToString())) == command
