"""Writes messages of ``kornel.v1`` as JSON with the names of REST: ``allocationKey`` for ``allocation_key``.

Unlike in the JSON that protobuf defines, numbers of 64 bits are numbers, as everywhere in this interface, and an
enumeration value is its word in lower case: ``KIND_ADDED`` is ``added``. A field that is not set has its empty value,
unless it is a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kornel.core.rest.http.errors import RestError
from kornel.core.rest.serving.queries import read_positive, read_unsigned
from kornel.core.service.machine.loop_time import in_turns
from kornel.core.telling.encoding.documents import DOCUMENTS, Named, Schema, object_schema, refer_to

MessageT = TypeVar("MessageT", bound=Message)

_DEEPEST: Final = 10
"""The deepest nesting of messages; no request of this interface is nested as deep."""

MOST_SIGNS: Final = 8_192
"""The most punctuation characters of JSON outside of texts, such as commas and brackets, and the most quotes. Parsing
takes about five microseconds for each, during which nothing else is done."""

_SIGNS: Final = (b",", b":", b"[", b"{")
_QUOTE: Final = b'"'

_TYPES: Final = {
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
}


def check_structure(body: bytes) -> None:
    """Raises 400 for JSON in *body* with more values than any valid request has, however long its texts are.

    A quote does not end a text if it follows a backslash that is not escaped itself.
    """
    if len(body) <= MOST_SIGNS:
        return
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(_QUOTE)
    if quotes <= MOST_SIGNS:
        outside = b"".join(bare.split(_QUOTE)[::2])
        if sum(map(outside.count, _SIGNS)) <= MOST_SIGNS:
            return
    raise RestError(400, f"the body has too many values, its JSON may have {MOST_SIGNS} commas, colons and brackets")


def read_message(message_type: type[MessageT], body: bytes) -> MessageT:
    """Returns the message that the JSON in *body* describes; an empty body is an empty message. Raises 400."""
    try:
        text = body.decode().strip() or "{}"
        if not text.startswith("{"):
            raise RestError(400, "the body is not the JSON of this request: it begins with no {")
        return json_format.Parse(text, message_type(), max_recursion_depth=_DEEPEST)
    except (json_format.Error, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise RestError(400, f"the body is not the JSON of this request: {_first_line(error)}") from error


def read_parameters(message: MessageT, given: Mapping[str, str]) -> MessageT:
    """Returns *message* with the fields that *given* has under their names as texts. Raises 400.

    Entries of a list are separated by commas; ``tag.NAME`` gives an entry of a map ``tags``.
    """
    for field in message.DESCRIPTOR.fields:
        name, text = field.json_name, given.get(field.json_name, "")
        if _is_map(field):
            start = f"{name.removesuffix('s')}."
            entries = {key.removeprefix(start): value for key, value in given.items() if key.startswith(start)}
            getattr(message, field.name).update(entries)
        elif field.is_repeated:
            getattr(message, field.name).extend(filter(None, text.split(",")))
        elif field.enum_type is not None:
            numbers = {word: number for number, word in _enum_words(field.enum_type).items()}
            if text not in numbers:
                raise RestError(400, f'"{text}" is no {name}, give one of {", ".join(filter(None, numbers))}')
            setattr(message, field.name, numbers[text])
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            setattr(message, field.name, text)
        elif not field.has_presence:
            setattr(message, field.name, min(read_positive(given, name, 0), 2**31 - 1))
        elif text:
            setattr(message, field.name, min(read_unsigned(given, name, 0), 2**63 - 1))
    return message


class MessageDocument(NamedTuple):
    """Describes documents of one kind that are messages. ``write`` makes the document of a record."""

    name: str
    schema: Schema
    write: Callable[[Any], dict[str, Any]]


def document_of(name: str, message: type[Message], encode: Callable[[Any], Message]) -> MessageDocument:
    """Returns the description of a *message*, which *encode* makes of a record; the schema has this *name*."""
    found = MessageDocument(name, message_schema(message.DESCRIPTOR), lambda record: message_document(encode(record)))
    DOCUMENTS[name] = found
    return found


def document_like(described: Any) -> Named:
    """Returns the description of the documents that :func:`message_document` makes of the messages *described*; the
    schema has their name."""
    found = MessageDocument(described.name, message_schema(described), message_document)
    return DOCUMENTS.setdefault(described.name, found)


def message_schema(described: Any) -> Schema:
    """Returns the schema of the documents that :func:`message_document` makes of the messages *described*."""
    shown = {field.json_name: _field_schema(field) for field in described.fields}
    return object_schema(shown, [field.json_name for field in described.fields if not field.has_presence])


def _field_schema(field: FieldDescriptor) -> Schema:
    if _is_map(field):
        assert field.message_type is not None
        return {"type": "object", "additionalProperties": _value_schema(field.message_type.fields_by_name["value"])}
    return {"type": "array", "items": _value_schema(field)} if field.is_repeated else _value_schema(field)


def _value_schema(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return refer_to(document_like(field.message_type))
    return {"type": "string" if field.enum_type is not None else _TYPES.get(field.cpp_type, "integer")}


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def message_document(message: Message) -> dict[str, Any]:
    """Returns *message* as a document."""
    return {
        shown: [*map(write, getattr(message, name))] if listed else write(getattr(message, name))
        for shown, name, optional, listed, write in _list_writers(message.DESCRIPTOR)
        if not optional or message.HasField(name)
    }


async def long_document(message: Message) -> dict[str, Any]:
    """Returns *message* as a document, made in steps of a few milliseconds between which other tasks run."""
    document: dict[str, Any] = {}
    for shown, name, optional, listed, write in _list_writers(message.DESCRIPTOR):
        if listed:
            document[shown] = [item async for item in in_turns(map(write, getattr(message, name)))]
        elif not optional or message.HasField(name):
            document[shown] = write(getattr(message, name))
    return document


@cache
def _list_writers(described: Any) -> list[tuple[str, str, bool, bool, Callable[[Any], Any]]]:
    """Returns of each field of the messages *described* its name in documents and in messages, whether it may be
    absent, whether it is a list, and what writes its value, or each item."""
    return [
        (field.json_name, field.name, field.has_presence, field.is_repeated and not _is_map(field), _writer_of(field))
        for field in described.fields
    ]


def _writer_of(field: Any) -> Callable[[Any], Any]:
    if not _is_map(field):
        return _value_writer(field)
    write = _value_writer(field.message_type.fields_by_name["value"])
    return lambda value: {str(key): write(value[key]) for key in sorted(value)}


def _value_writer(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return message_document
    if field.enum_type is not None:
        words = _enum_words(field.enum_type)
        return lambda number: words.get(number, str(number))
    return lambda value: value


def _enum_words(enum: Any) -> dict[int, str]:
    """Returns the word of each number: its name without the common prefix. The number 0 has no word."""
    names = {value.number: value.name for value in enum.values}
    zero = names.get(0, "")
    prefix = zero.removesuffix("UNSPECIFIED") if zero.endswith("UNSPECIFIED") else ""
    words = {number: name.removeprefix(prefix).lower().replace("_", "-") for number, name in names.items()}
    return {**words, 0: ""} if prefix else words


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
