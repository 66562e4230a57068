"""Turns records into protobuf messages by the names of their fields.

A plan is made once for each pair of a record's class and a message's class. A field of the message takes its value from
the field with the same name of the record, or of its ``spec``, which is what a shim has sent. The value is converted
according to the two types; a table names the exceptions. Making a plan raises :class:`PlanError` if a field of the
message has no source, or if a field of the record is not used and not listed as left out. So a field that is added on
one side only is noticed when the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar, get_args, get_origin

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kornel.core.domain.resources import INT64_MAX, INT64_MIN, Resources, amounts_of, clamp_int64
from kornel.core.telling.encoding.code import FunctionText
from kornel.core.telling.encoding.records import (
    Itself,
    Made,
    PlanError,
    Source,
    fields_of,
    find_path,
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
    """Makes a message from a record. *given* has exactly the fields that the plan leaves to its caller."""

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
        """Plans how a *record* becomes a *message*, and returns the function that encodes it. Raises
        :class:`PlanError`.

        *sources* has the source of each field of the message that the record does not have under the same name or in
        the same form. *left_out* are fields of the record that are deliberately not shown, *given* fields of the
        message that the caller gives with each record, *unset* fields of the message that are deliberately never set.
        """
        silent = frozenset(left_out), frozenset(unset)
        plan = _Plan(self, record, message, dict(sources or {}), *silent, frozenset(given))
        self._plans[record, message] = plan
        return plan.encode

    def plan_for(self, record: type, message: type[Message]) -> _Plan[Any, Any]:
        """Returns the plan for this pair; without a table, fields are matched by name."""
        found = self._plans.get((record, message))
        if found is None:
            self.add(record, message)
            found = self._plans[record, message]
        return found


class _Plan(Generic[RecordT, MessageT]):
    """Encodes records of one class as messages. ``used``: the fields of the record that are shown."""

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
        self._refuse_any(sources.keys() - wanted.keys(), "the message has no field")
        self._refuse_any((given | unset) - wanted.keys(), "the message has no field")
        sources = {name: path for name in wanted if (path := find_path(record, name)) is not None} | sources
        self._refuse_any(wanted.keys() - sources.keys() - given - unset, "no source for the message's field")
        self._refuse_any(sources.keys() & (given | unset), "listed as given or unset, but with a source, is")
        parameters = ", ".join(["record", "/", *(["*"] if given else []), *sorted(given)])
        text = FunctionText(message.DESCRIPTOR.full_name, parameters)
        values = {name: self._value_of(text, wanted[name], source) for name, source in sources.items()}
        self._refuse_any(left_out & self.used, "listed as left out, but shown, is")
        self._refuse_any(left_out - self._fields.keys(), "the record has no field")
        self._refuse_any(self._fields.keys() - self.used - left_out, "not shown and not listed as left out is")
        fed = ", ".join(f"{name}={value}" for name, value in (values | {name: name for name in given}).items())
        text.add(f"return {text.name_of(message)}({fed})")
        self.encode: Final[Encode[RecordT, MessageT]] = text.make_function()

    def _refuse_any(self, names: Iterable[str], what: str) -> None:
        if shown := ", ".join(sorted(names)):
            raise PlanError(f"{self._record.__name__} as {self._message.DESCRIPTOR.full_name}: {what} {shown}")

    def _mark_shown(self, path: str) -> Any:
        """Marks the first field of *path* as shown. Returns the type of the last one."""
        self.used.add(path.partition(".")[0])
        return type_at(self._record, path)

    def _value_of(self, text: FunctionText, field: Any, source: Source) -> str:
        """Returns the expression for the value of *field*."""
        if isinstance(source, Made):
            for path in source.fields:
                self._mark_shown(path)
            return text.value_of(source)
        if isinstance(source, Itself):
            inner = self._encoders.plan_for(self._record, GetMessageClass(field.message_type))
            self.used |= inner.used
            return text.call_of(inner.encode, ["record"])
        kind = self._mark_shown(source)
        one, optional = without_none(kind)
        convert = self._conversion_to(field, one)
        if convert is _UNFIT:
            self._refuse_any([field.name], f"a {kind} does not fit into")
        value = text.value_of(source)
        if convert is None:
            return value
        if field.is_repeated and not _is_map(field):
            return f"[{text.call_of(convert, ['item'])} for item in {value}]"
        if optional:
            return f"{text.call_of(convert, ['value'])} if (value := {value}) is not None else None"
        return text.call_of(convert, [value])

    def _conversion_to(self, field: FieldDescriptor, kind: Any) -> Convert | None:
        """Returns the conversion of a value of *kind*, or of each value of a list; ``None``: none is needed."""
        origin, arguments = get_origin(kind), get_args(kind)
        if _is_map(field):
            if kind is Resources or (origin is not None and arguments[-1:] == (int,)):
                return fit_amounts
            return dict if arguments else _UNFIT
        if field.is_repeated:
            if origin is not tuple or arguments[1:] != (...,):
                return _UNFIT
            return self._conversion_of_one(field, arguments[0])
        return self._conversion_of_one(field, kind)

    def _conversion_of_one(self, field: FieldDescriptor, kind: Any) -> Convert | None:
        if field.message_type is not None:
            return self._encoders.plan_for(kind, GetMessageClass(field.message_type)).encode
        if not isinstance(kind, type):
            return _UNFIT
        if field.enum_type is not None:
            return _find_tokens(field.enum_type, kind) if issubclass(kind, Enum) else _as_it_is(kind, int)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return _as_it_is(kind, str)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return _as_it_is(kind, bool)
        if field.cpp_type in _INTEGERS:
            return _as_it_is(kind, int) if kind is not bool else _UNFIT
        return _as_it_is(kind, float)


def fit_amounts(resources: Mapping[str, int]) -> Mapping[str, int]:
    """Returns *resources* cut to 64 bits: the books are exact, so a sum may be too large for the wire."""
    amounts = amounts_of(resources) if isinstance(resources, Resources) else resources
    if not amounts or (max(amounts.values()) <= INT64_MAX and min(amounts.values()) >= INT64_MIN):
        return amounts
    return {name: clamp_int64(amount) for name, amount in amounts.items()}


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _refuse_value(value: Any) -> Any:
    raise PlanError(f"{value!r} fits into no field")


_UNFIT: Final[Convert] = _refuse_value
"""Stands for a value that a field cannot hold."""


def _as_it_is(kind: type, wanted: type) -> Convert | None:
    return None if issubclass(kind, wanted) else _UNFIT


def _find_tokens(enum: EnumDescriptor, kind: type[Enum]) -> Convert:
    """Returns the conversion of members of *kind* to values of *enum*, whose names begin with that of the enum."""
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in enum.name).lstrip("_")
    numbers = {value.name: value.number for value in enum.values}
    known = {member: numbers.get(f"{prefix}_{member.name}".upper()) for member in kind}
    if None in known.values():
        return _UNFIT
    return known.__getitem__
