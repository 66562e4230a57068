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
from kornel.core.journal.content.commands import decode_command, encode_command, write_command
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
    if kind is commands.PreemptTarget:
        return kind.QUEUE
    return {str: f"text {number}", bool: True, int: number}[kind]


@pytest.mark.parametrize("kind", get_args(Command))
def test_a_command_comes_out_as_it_went_in(kind: Any) -> None:
    """With every field set, and with as many at their defaults as there can be."""
    filled = make_filled(kind)
    least = {
        commands.SetOperatorDrain: ("p", "n", False),
        commands.PreemptByHand: ("p", commands.PreemptTarget.NODE, "n"),
    }
    empty = kind("rm", *least.get(kind, ()))
    for command in (filled, empty):
        message = pb.JournalCommand()
        encode_command(command, message)
        assert decode_command(pb.JournalCommand.FromString(message.SerializeToString())) == command
        assert decode_command(pb.JournalCommand.FromString(write_command(command))) == command


def round_trip(*specs: AllocationSpec) -> tuple[AllocationSpec, ...]:
    """What is read of a record of *specs*."""
    read = decode_command(pb.JournalCommand.FromString(write_command(commands.UpdateAllocations("rm", specs))))
    assert isinstance(read, commands.UpdateAllocations)
    return read.allocations


@pytest.mark.parametrize(
    "key",
    ["k", "k" * 127, "k" * 128, "k" * 20_000, "", "schlüssel", "\N{SLICE OF PIZZA}"],
    ids=["short", "just one byte long", "just two", "three", "none", "latin", "beyond"],
)
def test_asks_come_out_as_they_went_in_whatever_their_names(key: str) -> None:
    """Many in a row are joined from their names; lengths of one, two and three bytes, and names of more bytes than
    characters."""
    plain = AllocationSpec(key, "app-1", "[rm]default", Resources({"vcore": 1}))
    other = plain._replace(application_id=f"{key}-app", resources=Resources({"vcore": 300, "memory": 1 << 40}))
    asked = (plain, other, plain._replace(priority=-3), other._replace(created_s=0), plain._replace(resources=None))
    assert round_trip(*asked) == asked


@pytest.mark.parametrize("field", AllocationSpec._fields)
def test_each_field_of_one_ask_among_others_is_written(field: str) -> None:
    """The bytes that asks share are not taken for those of an ask that differs in one field."""
    plain = AllocationSpec("k", "app", "[rm]default", Resources({"vcore": 1}))
    filled = make_filled(AllocationSpec)
    differs = plain._replace(**{field: getattr(filled, field)})
    if field in ("tags", "topology", "devices"):
        # What the tags say is no field of its own in the record.
        differs = plain._replace(tags=filled.tags, topology=filled.topology, devices=filled.devices)
    asked = (plain, plain._replace(application_id="app-2"), differs, plain._replace(application_id="app-2"))
    assert round_trip(*asked) == asked


def test_asks_alike_in_all_but_their_keys_are_one_run() -> None:
    """Beside others that stand alone."""
    plain = AllocationSpec("k", "app", "[rm]default", Resources({"vcore": 1}))
    asked = (plain._replace(application_id="before"), *(plain._replace(key=f"k-{n}") for n in range(5)))
    message = pb.JournalCommand()
    encode_command(commands.UpdateAllocations("rm", asked), message)
    assert [len(run.further_keys) for run in message.allocations.allocations] == [0, 4]
    assert round_trip(*asked) == asked


@pytest.mark.parametrize("field", commands.ReleaseSpec._fields)
def test_each_field_of_one_release_among_others_is_written(field: str) -> None:
    """Only releases that differ in nothing but their keys are one run."""
    plain = commands.ReleaseSpec("[rm]default", "app", "k")
    differs = plain._replace(**{field: getattr(make_filled(commands.ReleaseSpec), field)})
    released = commands.UpdateAllocations("rm", releases=(plain, plain._replace(key="k-2"), differs, plain))
    assert decode_command(pb.JournalCommand.FromString(write_command(released))) == released


@pytest.mark.parametrize(
    "command",
    [
        commands.UpdateApplications("rm", (commands.ApplicationSpec("app", "root.q", "[rm]default", "ann"),)),
        commands.UpdateNodes("rm", (commands.NodeSpec("n", commands.NodeAction.CREATE, "[rm]default"),)),
    ],
)
def test_what_was_not_given_is_not_given_afterwards(command: Command) -> None:
    """A time or an amount that is absent does not come out as 0."""
    assert decode_command(pb.JournalCommand.FromString(write_command(command))) == command
