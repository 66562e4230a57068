"""Turns records into messages of the journal and back, field by field, by their names.

A codec is made once for a class of records and its message, whose fields have to have the same names. So a field that
is added on one side only is noticed when the module that makes the codec is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kornel.core.domain.resources import Resources

RecordT = TypeVar("RecordT")


class Part(NamedTuple):
    """The conversion of one value. ``write`` fills a message, which is given, with the value; ``read`` returns it."""

    write: Callable[[Any, Any], None]
    read: Callable[[Any], Any]


def _write_resources(resources: Resources, message: Any) -> None:
    message.SetInParent()
    for name, quantity in resources.items():
        message.amounts.add(type=name, quantity=quantity)


def _read_resources(message: Any) -> Resources:
    return Resources({each.type: each.quantity for each in message.amounts})


RESOURCES: Final = Part(_write_resources, _read_resources)


class Codec(Generic[RecordT]):
    """Converts records of one class. *known*: the conversions of classes that do not go by names."""

    def __init__(self, record: type[RecordT], message: type[Message], known: Mapping[type, Part] | None = None) -> None:
        """Makes the codec. Raises TypeError if the fields do not have the same names or do not fit."""
        self.record: Final = record
        self._known = {Resources: RESOURCES, **(known or {})}
        names = [each.name for each in fields(record)] if is_dataclass(record) else list(record._fields)  # type: ignore[attr-defined]
        found: Mapping[str, Any] = message.DESCRIPTOR.fields_by_name
        if set(names) != set(found):
            raise TypeError(f"{record.__name__} and {message.DESCRIPTOR.name} differ by {set(names) ^ set(found)}")
        kinds = get_type_hints(record)
        self._parts = [(name, self._part_for(name, kinds[name], found[name])) for name in names]

    def write(self, record: RecordT, message: Any) -> None:
        """Writes *record* into *message*, which is empty."""
        message.SetInParent()
        for name, part in self._parts:
            part.write(getattr(record, name), message)

    def read(self, message: Any) -> RecordT:
        """Returns the record in *message*."""
        return self.record(*[part.read(message) for _, part in self._parts])

    def _part_for(self, name: str, kind: Any, field: FieldDescriptor) -> Part:
        """Returns the conversion of a field of a record, to and from the message that has this *field*."""
        choices = [each for each in get_args(kind) if each is not NoneType]
        optional = NoneType in get_args(kind)
        kind = choices[0] if optional else kind
        if field.is_repeated:
            return self._part_for_list(name, get_args(kind)[0], field)
        if field.message_type is not None:
            inner = self._known[kind]

            def write(value: Any, message: Any) -> None:
                if value is not None:
                    inner.write(value, getattr(message, name))

            return Part(write, lambda message: inner.read(getattr(message, name)) if message.HasField(name) else None)
        if optional:
            if not field.has_presence:
                raise TypeError(f"{name} may be absent, which its field cannot say")

            def write_given(value: Any, message: Any) -> None:
                if value is not None:
                    setattr(message, name, value)

            return Part(write_given, lambda message: getattr(message, name) if message.HasField(name) else None)
        if issubclass(kind, Enum) and issubclass(kind, str):
            return Part(
                lambda value, message: setattr(message, name, str(value)), lambda message: kind(getattr(message, name))
            )
        return Part(lambda value, message: setattr(message, name, value), lambda message: getattr(message, name))

    def _part_for_list(self, name: str, kind: Any, field: FieldDescriptor) -> Part:
        if field.message_type is None:
            return Part(
                lambda value, message: getattr(message, name).extend(value),
                lambda message: tuple(getattr(message, name)),
            )
        if get_origin(kind) is tuple:
            # The elements of a pair are the fields of its message, in their order.
            keys = [each.name for each in field.message_type.fields]

            def write_pairs(value: Any, message: Any) -> None:
                pairs = getattr(message, name)
                for pair in value:
                    pairs.add(**dict(zip(keys, pair, strict=True)))

            return Part(
                write_pairs,
                lambda message: tuple(tuple([getattr(each, key) for key in keys]) for each in getattr(message, name)),
            )
        inner: Any = self._known.get(kind) or Codec(kind, GetMessageClass(field.message_type), self._known)

        def write_all(value: Any, message: Any) -> None:
            added = getattr(message, name)
            for each in value:
                inner.write(each, added.add())

        return Part(write_all, lambda message: tuple(map(inner.read, getattr(message, name))))
