"""Converts commands to messages of ``kornel.v1`` and back.

Successive entries that differ only in their keys form one run: a shim sends many equal asks, and for all but the first
of them only the key has to be written. Everything else is converted by the names of its fields (:mod:`.by_name`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import add, attrgetter, eq, itemgetter
from typing import Any, Final, cast

from kornel.core.domain.commands import (
    PLAIN_FIELDS,
    AllocationSpec,
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    DetachCallbacks,
    PreemptByHand,
    RegisterManager,
    ReleaseSpec,
    SetOperatorDrain,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.devices import read_wants
from kornel.core.domain.topology import read_request
from kornel.core.journal.content.by_name import RESOURCES, Codec, Part
from kornel.core.service.wire.message_bytes import ENCODING, encode_field, join_fields
from kornel.v1 import journal_pb2 as pb

_KEY: Final = itemgetter(AllocationSpec._fields.index("key"))
_ALL_BUT_KEY: Final = itemgetter(slice(AllocationSpec._fields.index("application_id"), None))
_APPLICATION: Final = itemgetter(AllocationSpec._fields.index("application_id"))
_REST: Final = itemgetter(slice(AllocationSpec._fields.index("partition"), None))
_TAGS: Final = itemgetter(AllocationSpec._fields.index("tags"))

RESTS_KNOWN: Final = 4_096
"""The most asks, different apart from their names, whose bytes are remembered."""

_KNOWN_RESTS: Final[dict[tuple[object, ...], str]] = {}

_ALLOCATIONS: Final = pb.JournalCommand.DESCRIPTOR.fields_by_name["allocations"].number

_new: Final = tuple.__new__

_RELEASE_KEY: Final = ReleaseSpec._fields.index("key")


def encode_command(command: Command, into: pb.JournalCommand) -> None:
    """Writes *command* into *into*, which is an empty message."""
    if type(command) is UpdateAllocations:
        into.allocations.SetInParent()
        into.allocations.MergeFromString(_write_allocations(command))
    else:
        field = _FIELDS[type(command)]
        _CODECS[field].write(command, getattr(into, field))


def write_command(command: Command) -> bytes:
    """Returns *command* as the bytes of a message. Those of allocations, which come by the thousand, are joined without
    building the message that they would have to be read into."""
    if type(command) is UpdateAllocations:
        return encode_field(_ALLOCATIONS, _write_allocations(command))
    message = pb.JournalCommand()
    encode_command(command, message)
    return message.SerializeToString()


def decode_command(message: pb.JournalCommand) -> Command:
    """Returns the command in *message*. Raises ValueError if it contains none that this version knows."""
    which = message.WhichOneof("command")
    if which is None:
        raise ValueError("a record of a command has none that this version knows")
    if which == "allocations":
        return _decode_allocations(message.allocations)
    found: Command = _CODECS[which].read(getattr(message, which))
    return found


def _write_allocations(command: UpdateAllocations) -> bytes:
    message = pb.JournalAllocations(rm_id=command.rm_id)
    _write_release_runs(command.ask_releases, message.ask_releases)
    _write_release_runs(command.releases, message.releases)
    return message.SerializeToString() + _write_allocation_runs(command.allocations)


def _decode_allocations(message: pb.JournalAllocations) -> UpdateAllocations:
    return UpdateAllocations(
        message.rm_id,
        tuple(_read_allocation_runs(message.allocations)),
        tuple(_read_release_runs(message.ask_releases)),
        tuple(_read_release_runs(message.releases)),
    )


def _write_allocation_runs(specs: Sequence[AllocationSpec]) -> bytes:
    """Returns *specs* as the field of their runs."""
    if not _has_runs(specs):
        joined = _join_single_runs(specs)
        if joined is not None:
            return joined
    message = pb.JournalAllocations()
    for _, group in groupby(specs, _ALL_BUT_KEY):
        first, *further = group
        run = message.allocations.add()
        _write_allocation(first, run.first)
        run.further_keys.extend(map(_KEY, further))
    return message.SerializeToString()


def _has_runs(specs: Sequence[AllocationSpec]) -> bool:
    """Tells whether two successive entries differ only in their keys. It compares their applications first, which costs
    least and is often enough."""
    for get in (_APPLICATION, _ALL_BUT_KEY):
        found = list(map(get, specs))
        if not any(map(eq, found, islice(found, 1, None))):
            return False
    return True


def _join_single_runs(specs: Sequence[AllocationSpec]) -> bytes | None:
    """Returns *specs* as runs of one entry each. They are joined from their names and from the bytes of all other
    fields, which many of them share, so no Python code runs for each of them. Returns ``None`` if some have tags, or
    names with more bytes than characters."""
    keys, applications = list(map(_KEY, specs)), list(map(_APPLICATION, specs))
    if any(map(_TAGS, specs)) or not ("".join(keys).isascii() and "".join(applications).isascii()):
        return None
    rests = list(map(_KNOWN_RESTS.get, map(_REST, specs)))
    if None in rests:
        rests = [rest or _write_rest(spec) for rest, spec in zip(rests, specs, strict=True)]
    fields = join_fields(("\n", keys), ("\x12", applications))
    firsts = list(join_fields(("\n", list(map(add, fields, cast("list[str]", rests))))))
    return "".join(join_fields(("\x12", firsts))).encode(ENCODING)


def _write_rest(spec: AllocationSpec) -> str:
    """Returns all fields of *spec* except its key and application as bytes, with one character for each byte."""
    message = pb.JournalAllocation()
    _write_allocation(spec._replace(key="", application_id=""), message)
    if len(_KNOWN_RESTS) >= RESTS_KNOWN:
        _KNOWN_RESTS.clear()
    rest = _KNOWN_RESTS[_REST(spec)] = message.SerializeToString(deterministic=True).decode(ENCODING)
    return rest


def _read_allocation_runs(runs: Iterable[pb.JournalAllocationRun]) -> Iterator[AllocationSpec]:
    for run in runs:
        first = _read_allocation(run.first)
        yield first
        rest = first[1:]
        for key in run.further_keys:
            yield _new(AllocationSpec, (key, *rest))


def _write_allocation(spec: AllocationSpec, message: pb.JournalAllocation) -> None:
    message.key = spec.key
    message.application_id = spec.application_id
    message.partition = spec.partition
    if spec.resources is not None:
        RESOURCES.write(spec.resources, message.resources)
    for name in PLAIN_FIELDS:
        value = getattr(spec, name)
        if value and name not in _FURTHER:
            setattr(message, name, value)
        elif value:
            message.further.add(name=name, value=str(value))
    if not spec.allow_preempt_self:
        message.refuses_preempt_self = True
    if spec.allow_preempt_other:
        message.allow_preempt_other = True
    if spec.created_s is not None:
        message.created_s = spec.created_s
    if spec.required_node:
        message.required_node = spec.required_node
    if spec.foreign:
        message.foreign = spec.foreign
    if spec.tags:
        for name, value in spec.tags:
            message.tags.add(name=name, value=value)
    if spec.legacy:
        message.legacy = True
    if spec.max_allocations != 1:
        message.further_allocations = spec.max_allocations - 1
    if spec.instance:
        message.instance = spec.instance
    if spec.dependent:
        message.dependent = True


_FURTHER: Final = frozenset(PLAIN_FIELDS).difference(pb.JournalAllocation.DESCRIPTOR.fields_by_name)
"""The fields of an allocation that are taken as they are sent and for which the journal has no field of their own."""

_read_own: Final[Callable[[pb.JournalAllocation], tuple[Any, ...]]] = attrgetter(*PLAIN_FIELDS)
_PARSERS: Final[dict[type, Callable[[str], Any]]] = {int: int, str: str, bool: lambda text: text == "True"}


def _read_further(message: pb.JournalAllocation) -> tuple[Any, ...]:
    """Returns the plain fields of an allocation, including those that have no field of their own in the journal."""
    further = {pair.name: pair.value for pair in message.further}
    defaults = AllocationSpec._field_defaults
    return tuple(
        getattr(message, name)
        if name not in _FURTHER
        else _PARSERS[type(defaults[name])](further[name])
        if name in further
        else defaults[name]
        for name in PLAIN_FIELDS
    )


def _read_allocation(message: pb.JournalAllocation) -> AllocationSpec:
    tags = tuple((pair.name, pair.value) for pair in message.tags)
    fields = (
        message.key,
        message.application_id,
        message.partition,
        RESOURCES.read(message.resources) if message.HasField("resources") else None,
        *(_read_further(message) if _FURTHER else _read_own(message)),
        not message.refuses_preempt_self,
        message.allow_preempt_other,
        message.created_s if message.HasField("created_s") else None,
        message.required_node,
        message.foreign,
        tags,
        message.legacy,
        message.further_allocations + 1,
        message.instance,
        message.dependent,
        # These fields only repeat the tags, so they are not written.
        read_request(tags) if tags else None,
        read_wants(tags) if tags else None,
    )
    return _new(AllocationSpec, fields)


def _write_release_runs(specs: Sequence[ReleaseSpec], runs: Any) -> None:
    before: ReleaseSpec | None = None
    run: Any = None
    for spec in specs:
        if before is not None and before == (*spec[:_RELEASE_KEY], before.key, *spec[_RELEASE_KEY + 1 :]):
            run.further_keys.append(spec.key)
            continue
        run = runs.add()
        _RELEASE.write(spec, run.first)
        before = spec


def _read_release_runs(runs: Iterable[pb.JournalReleaseRun]) -> Iterator[ReleaseSpec]:
    for run in runs:
        first = _RELEASE.read(run.first)
        yield first
        for key in run.further_keys:
            yield first._replace(key=key)


_ALLOCATION: Final = Part(_write_allocation, _read_allocation)

_RELEASE: Final = Codec(ReleaseSpec, pb.JournalRelease)

_CODECS: Final[Mapping[str, Codec[Any]]] = {
    "register": Codec(RegisterManager, pb.JournalRegistration),
    "unregister": Codec(UnregisterManager, pb.JournalUnregistration),
    "configuration": Codec(UpdateConfiguration, pb.JournalConfiguration),
    "nodes": Codec(UpdateNodes, pb.JournalNodes, {AllocationSpec: _ALLOCATION}),
    "drain": Codec(SetOperatorDrain, pb.JournalDrain),
    "by_hand": Codec(PreemptByHand, pb.JournalPreemption),
    "applications": Codec(UpdateApplications, pb.JournalApplications),
    "attach": Codec(AttachCallbacks, pb.JournalAttachment),
    "detach": Codec(DetachCallbacks, pb.JournalDetachment),
    "answers": Codec(AnswerCallbacks, pb.JournalAnswers),
}
"""The codecs of all commands but those of allocations, by the field of their message."""

_FIELDS: Final[Mapping[type, str]] = {codec.record: field for field, codec in _CODECS.items()}
