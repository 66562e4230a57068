"""The gRPC interface as a page: services, messages and enumerations with the comments of the .proto files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

from docs.site.markdown import cell, escaped, table

ROOT: Final = Path(__file__).resolve().parents[2]
PROTO: Final = ROOT / "proto"
PACKAGES: Final = ("si.v1", "kornel.v1")

_TYPES: Final = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
Place = tuple[int, ...]
"""Path of a declaration in its file, as in SourceCodeInfo."""

_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_NESTED, _NESTED_ENUM, _FIELD, _VALUE, _METHOD = 3, 4, 2, 2, 2


def page() -> str:
    """Markdown of the whole reference. Raises RuntimeError when protoc refuses the files."""
    lines = [
        "# gRPC reference",
        "",
        "Generated from the `.proto` files. How the calls behave together: [the wire](../serving.md). `si.v1` is the",
        "interface of YuniKorn; `kornel.v1` is what it lacks.",
        "",
    ]
    for file in descriptors():
        lines += _File(file).lines()
    return "\n".join(lines)


def descriptors() -> Sequence[FileDescriptorProto]:
    """The files of the contract with their comments."""
    names = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.glob("*/v*/*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "image"
        paths = [f"--proto_path={PROTO}", f"--proto_path={files('grpc_tools') / '_proto'}"]
        if protoc.main(["protoc", *paths, f"--descriptor_set_out={out}", "--include_source_info", *names]) != 0:
            raise RuntimeError("protoc failed, see its messages above")
        found = FileDescriptorSet.FromString(out.read_bytes()).file
    return sorted(found, key=lambda file: (PACKAGES.index(file.package), file.name))


class _File:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments: Mapping[Place, str] = {
            tuple(place.path): place.leading_comments.strip() or place.trailing_comments.strip()
            for place in file.source_code_info.location
        }

    def lines(self) -> Iterator[str]:
        yield from (f"## {self._file.name}", "")
        for index, service in enumerate(self._file.service):
            yield from self._service(service, (_SERVICE, index))
        for index, message in enumerate(self._file.message_type):
            yield from self._message(message, (_MESSAGE, index), self._file.package)
        for index, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, (_ENUM, index), self._file.package)

    def _service(self, service: ServiceDescriptorProto, place: Place) -> Iterator[str]:
        yield from self._heading(f"{self._file.package}.{service.name}", place)
        for index, method in enumerate(service.method):
            taken = f"{'stream ' * method.client_streaming}{_link(method.input_type)}"
            given = f"{'stream ' * method.server_streaming}{_link(method.output_type)}"
            yield from (f"**{method.name}** ({taken}) returns ({given})", "")
            yield from self._said((*place, _METHOD, index))

    def _message(self, message: DescriptorProto, place: Place, scope: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        name = f"{scope}.{message.name}"
        entries = {f".{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
        yield from self._heading(name, place)
        if message.field:
            yield from table("Field", "Type", "")
            for index, field in enumerate(message.field):
                said = cell(self._comments.get((*place, _FIELD, index), ""))
                choice = ""
                if field.HasField("oneof_index") and not field.proto3_optional:
                    choice = f" of `{message.oneof_decl[field.oneof_index].name}`"
                yield f"| `{field.name}` = {field.number} | {_type(field, entries)}{choice} | {said} |"
            yield ""
        for index, nested in enumerate(message.nested_type):
            yield from self._message(nested, (*place, _NESTED, index), name)
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*place, _NESTED_ENUM, index), name)

    def _enum(self, enum: EnumDescriptorProto, place: Place, scope: str) -> Iterator[str]:
        yield from self._heading(f"{scope}.{enum.name}", place)
        yield from table("Value", "")
        for index, value in enumerate(enum.value):
            yield f"| `{value.name}` = {value.number} | {cell(self._comments.get((*place, _VALUE, index), ''))} |"
        yield ""

    def _heading(self, name: str, place: Place) -> Iterator[str]:
        yield from (f"### {name} {{ #{_anchor(name)} }}", "")
        yield from self._said(place)

    def _said(self, place: Place) -> Iterator[str]:
        if said := self._comments.get(place):
            yield from (*(escaped(line.strip()) for line in said.splitlines()), "")


def _type(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto]) -> str:
    if entry := entries.get(field.type_name):
        key, value = entry.field
        return f"map of {_type(key, {})} to {_type(value, {})}"
    name = _link(field.type_name) if field.type_name else _TYPES[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    return f"optional {name}" if field.proto3_optional else name


def _link(name: str) -> str:
    """*name* begins with a dot, as descriptors have it."""
    full = name.removeprefix(".")
    if not full.startswith(PACKAGES):
        return full
    return f"[{full.split('.v1.')[1]}](#{_anchor(full)})"


def _anchor(name: str) -> str:
    return name.lower().replace(".", "-")
