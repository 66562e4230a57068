"""Describes each path in one row, which stands above its handler: how it is served, and what OpenAPI says (rest.md 3).

The first paragraph of the handler's docstring is what people read about the row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.http.access import Access
from kornel.core.telling.encoding import values
from kornel.core.telling.encoding.documents import Named, Schema, refer_to

JSON_TYPE: Final = "application/json"
YAML_TYPE: Final = "application/x-yaml"
PREFIX: Final = "/ws/v1"
IN_PARTITION: Final = f"{PREFIX}/partition/{{partition}}"

FLAG: Final = values.FLAG.schema
NAME: Final[Schema] = {"type": "string", "minLength": 1}
OBJECT: Final = values.ANYTHING.schema
POSITIVE: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 2**64 - 1}
UNSIGNED: Final[Schema] = {**values.COUNT.schema, "maximum": 2**64 - 1}

Handler = Callable[[Request], Awaitable[ASGIApp]]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[ASGIApp]])


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter. ``schema``: the schema of its decoded text."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One path with its method; it decorates the handler, whose docstring gives the ``summary``.

    path      a segment in braces stands for any value of that name
    identity  unique name, for generated clients; empty: OpenAPI leaves the row out, because it is not for programs
    tag       the part of the documentation that has the row
    answer    a document, a list of one kind of documents, or JSON of this schema; ``None``: the answer is not JSON
    errors    what statuses mean besides those that every row of this form has; empty: this row does not have it
    content   media types of a successful answer
    body      media type of the request's body; empty: it has none
    wanted    schema of the request's body
    status    status of a successful answer
    ours      YuniKorn has no such path
    long      answers may have megabytes, so only a few are made at a time
    """

    path: str
    identity: str = ""
    tag: str = ""
    answer: Named | list[Any] | Schema | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: Mapping[int, str] = field(default_factory=dict)
    content: tuple[str, ...] = (JSON_TYPE,)
    body: str = ""
    wanted: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    status: int = 200
    method: str = "GET"
    access: Access = Access.READ
    ours: bool = False
    long: bool = False
    summary: str = ""

    def __call__(self, handler: HandlerT) -> HandlerT:
        """Marks *handler* as the one of this row. A handler may have several."""
        summary = self.summary or " ".join((handler.__doc__ or "").partition("\n\n")[0].split())
        if self.ours:
            summary = f"Extension: {summary[:1].lower()}{summary[1:]}"
        handler.served = (replace(self, summary=summary), *getattr(handler, "served", ()))  # type: ignore[attr-defined]
        return handler

    @property
    def allowed(self) -> str:
        """The value of the ``Allow`` header: the methods in alphabetical order."""
        return ", ".join(sorted((self.method, "OPTIONS")))

    @property
    def schema(self) -> Schema | None:
        """The schema of a successful answer."""
        if isinstance(self.answer, list):
            return {"type": "array", "items": refer_to(self.answer[0])}
        return self.answer if self.answer is None or isinstance(self.answer, dict) else refer_to(self.answer)


def rows_of(owners: Iterable[object]) -> list[tuple[Row, Handler]]:
    """Returns the rows of *owners* with their handlers, those with the same tag together. An owner is a module, an
    object, or its class, if nobody is going to call the handlers."""
    by_tag: dict[str, list[tuple[Row, Handler]]] = {}
    for owner in owners:
        for name, member in vars(owner if isinstance(owner, type | ModuleType) else type(owner)).items():
            for row in getattr(member, "served", ()):
                by_tag.setdefault(row.tag, []).append((row, getattr(owner, name)))
    return [each for found in by_tag.values() for each in found]


def any_case(*words: str, empty: bool = False) -> Schema:
    """Returns the schema of one of *words*, in any case; with *empty*, an empty text is allowed as well."""
    spelt = ["".join(f"[{letter.lower()}{letter.upper()}]" for letter in word) for word in words]
    return {"type": "string", "pattern": f"^({'|'.join([*([''] if empty else []), *spelt])})$"}
