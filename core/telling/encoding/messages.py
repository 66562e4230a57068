"""Turns records into protobuf messages by the names of their fields.

A plan is made once for a class of records and a class of messages. A field of the message takes the field of the record
that has the same name, written as the types of the two say; a table names the exceptions. Making a plan raises
:class:`PlanError` when a field of the message is fed by nothing, and when a field of the record goes nowhere without
being listed as left out. So a field that is added on one side only is noticed when the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, get_args, get_origin

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from core.domain.resources import INT64_MAX, INT64_MIN, Resources, amounts_of, clamp
from core.telling.encoding.records import (
    Itself,
    Made,
    PlanError,
    Source,
    fetcher,
    fields_of,
    maker,
    type_at,
    without_none,
)

RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)

Convert = Callable[[Any], Any]

_INTEGERS: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)


class Encode(Protocol[RecordT_contra, MessageT_co]):
    """Makes a message of a record. *given* are the fields that the plan leaves to its caller: exactly those."""

    def __call__(self, record: RecordT_contra, /, **given: Any) -> MessageT_co: ...


class Encoders:
    """Knows how each class of records becomes each class of messages."""

    def __init__(self) -> None:
        self._plans: dict[tuple[type, type[Message]], _Plan[Any, Any]] = {}

    def add(
        self,
        record: type[RecordT],
        message: type[MessageT],
        sources: Mapping[str, Source] | None = None,
        *,
        left_out: Iterable[str] = (),
        given: Iterable[str] = (),
        unset: Iterable[str] = (),
    ) -> Encode[RecordT, MessageT]:
        """Plans how a *record* becomes a *message*, and returns what does it. Raises :class:`PlanError`.

        *sources* names what the fields of the message are made of whose names the record does not have, or whose values
        it has in another form. *left_out* are the fields of the record that are deliberately not shown, *given* those
        of the message that the caller gives with each record, *unset* those that are deliberately never set.
        """
        silent = frozenset(left_out), frozenset(unset)
        plan = _Plan(self, record, message, dict(sources or {}), *silent, frozenset(given))
        self._plans[record, message] = plan
        return plan.encode

    def plan(self, record: type, message: type[Message]) -> _Plan[Any, Any]:
        """Returns the plan for this pair; one that no table was given for takes every field by its name."""
        found = self._plans.get((record, message))
        if found is None:
            self.add(record, message)
            found = self._plans[record, message]
        return found


class _Plan(Generic[RecordT, MessageT]):
    """Which fields of a record become which fields of a message. ``used``: fields of the record that are shown."""

    def __init__(
        self,
        encoders: Encoders,
        record: type[RecordT],
        message: type[MessageT],
        sources: dict[str, Source],
        left_out: frozenset[str],
        unset: frozenset[str],
        given: frozenset[str],
    ) -> None:
        self._encoders = encoders
        self._record = record
        self._message = message
        self._fields = fields_of(record)
        self.used: set[str] = set()
        wanted: dict[str, Any] = {field.name: field for field in message.DESCRIPTOR.fields}
        self._complain(sources.keys() - wanted.keys(), "the message has no field")
        self._complain((given | unset) - wanted.keys(), "the message has no field")
        sources = {name: name for name in wanted if name in self._fields} | sources
        self._complain(wanted.keys() - sources.keys() - given - unset, "nothing feeds the message's field")
        self._complain(sources.keys() & (given | unset), "fed, and listed as given or unset, is")
        read: dict[str, str] = {}
        convert: dict[str, Convert] = {}
        make: dict[str, Convert] = {}
        for name, source in sources.items():
            match source:
                case str():
                    read[name] = source
                    if (conversion := self._conversion(wanted[name], source)) is not None:
                        convert[name] = conversion
                case Made(function, (field,)):
                    self._use(field)
                    read[name], convert[name] = field, function
                case Made():
                    for field in source.fields:
                        self._use(field)
                    make[name] = maker(source)
                case Itself():
                    inner = encoders.plan(record, GetMessageClass(wanted[name].message_type))
                    self.used |= inner.used
                    make[name] = inner.encode
        self._complain(left_out & self.used, "shown and listed as left out is")
        self._complain(left_out - self._fields.keys(), "the record has no field")
        self._complain(self._fields.keys() - self.used - left_out, "nowhere goes the record's field")
        self.encode: Final[Encode[RecordT, MessageT]] = _encoder(message, read, convert, make, given)

    def _complain(self, names: Iterable[str], what: str) -> None:
        if shown := ", ".join(sorted(names)):
            raise PlanError(f"{self._record.__name__} as {self._message.DESCRIPTOR.full_name}: {what} {shown}")

    def _use(self, path: str) -> Any:
        """Marks the first field of *path* as shown. Returns the type of the last one."""
        self.used.add(path.partition(".")[0])
        return type_at(self._record, path)

    def _conversion(self, field: FieldDescriptor, path: str) -> Convert | None:
        """Returns how the value at *path* is written into *field*; ``None``: as it is."""
        kind = self._use(path)
        inner, optional = without_none(kind)
        found = self._written(field, inner)
        if found is _UNFIT:
            self._complain([field.name], f"a {kind} does not fit into")
        if found is None or not optional:
            return found
        return partial(_unless_none, found)

    def _written(self, field: FieldDescriptor, kind: Any) -> Convert | None:
        origin, arguments = get_origin(kind), get_args(kind)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            if kind is Resources or (origin is not None and arguments[-1:] == (int,)):
                return fit_amounts
            return dict if arguments else _UNFIT
        if field.is_repeated:
            if origin is not tuple or arguments[1:] != (...,):
                return _UNFIT
            written = self._single(field, arguments[0])
            return written if written is None or written is _UNFIT else partial(_each, written)
        return self._single(field, kind)

    def _single(self, field: FieldDescriptor, kind: Any) -> Convert | None:
        if field.message_type is not None:
            return self._encoders.plan(kind, GetMessageClass(field.message_type)).encode
        if not isinstance(kind, type):
            return _UNFIT
        if field.enum_type is not None:
            return _tokens(field.enum_type, kind) if issubclass(kind, Enum) else _fitting(kind, int)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return _fitting(kind, str)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return _fitting(kind, bool)
        if field.cpp_type in _INTEGERS:
            return _fitting(kind, int) if kind is not bool else _UNFIT
        return _fitting(kind, float)


def _encoder(
    message: type[MessageT],
    read: Mapping[str, str],
    convert: Mapping[str, Convert],
    make: Mapping[str, Convert],
    given: frozenset[str],
) -> Encode[Any, MessageT]:
    """Returns the function that a plan comes down to.

    All fields are fetched in one go, and only those are looked at again that are written in another form: that is as
    fast as a call with each field spelled out.
    """
    names, conversions, makers = tuple(read), tuple(convert.items()), tuple(make.items())
    fetch = fetcher(read.values())

    def encode(record: Any, /, **more: Any) -> MessageT:
        found = dict(zip(names, fetch(record), strict=True))
        for name, conversion in conversions:
            found[name] = conversion(found[name])
        for name, make_one in makers:
            found[name] = make_one(record)
        if more.keys() != given:
            raise PlanError(f"{message.DESCRIPTOR.full_name} is to be given {sorted(given)}, not {sorted(more)}")
        return message(**found, **more)

    return encode


def fit_amounts(resources: Mapping[str, int]) -> Mapping[str, int]:
    """Returns *resources* as the wire can carry them: the books are exact, the sum of two quantities may be none."""
    amounts = amounts_of(resources) if isinstance(resources, Resources) else resources
    if not amounts or (max(amounts.values()) <= INT64_MAX and min(amounts.values()) >= INT64_MIN):
        return amounts
    return {name: clamp(amount) for name, amount in amounts.items()}


def _each(convert: Convert, values: Iterable[Any]) -> list[Any]:
    return [convert(value) for value in values]


def _unless_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _unfit(value: Any) -> Any:
    raise PlanError(f"{value!r} fits into no field")


_UNFIT: Final[Convert] = _unfit
"""Stands for a value that a field cannot hold."""


def _fitting(kind: type, wanted: type) -> Convert | None:
    return None if issubclass(kind, wanted) else _UNFIT


def _tokens(enum: EnumDescriptor, kind: type[Enum]) -> Convert:
    """Returns what turns members of *kind* into values of *enum*, whose names have that of the enum in front."""
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in enum.name).lstrip("_")
    numbers = {value.name: value.number for value in enum.values}
    known = {member: numbers.get(f"{prefix}_{member.name}".upper()) for member in kind}
    if None in known.values():
        return _UNFIT
    return known.__getitem__
