"""The REST interface as a page, made from the OpenAPI document that a core serves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from docs.site.markdown import cell, escaped, table
from kornel import __version__
from kornel.core.rest.application import all_rows
from kornel.core.rest.documents.openapi import openapi_document
from kornel.core.rest.http.access import Proofs

_REFERENCE: Final = "#/components/schemas/"
_EVERYWHERE: Final = {"401", "403", "405", "429", "500"}
"""Statuses that every route may answer with; told once."""


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return openapi_document(all_rows(), __version__, Proofs(guarded=True))


def page() -> str:
    """Markdown of the whole reference."""
    described = document()
    lines = [
        "# REST reference",
        "",
        "Generated from the OpenAPI document, which a core serves at `/openapi.json`. What the answers mean and how",
        "pages, filters and events work: [REST](../rest.md). Who may call what: [security](../security.md).",
        "",
        "Every route may also answer 401 (the caller has to say who it is), 403 (the caller may not do this), 405 (the",
        "path takes another method), 429 (the caller asks too often) and 500 (the core failed), with",
        f"[Error](#{_anchor('Error')}) as body except for 405.",
        "",
    ]
    tag = ""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                lines += [f"## {tag}", ""]
            lines += _operation(method.upper(), path, operation)
    lines += ["## Schemas", ""]
    for name, schema in described["components"]["schemas"].items():
        lines += _schema(name, schema)
    return "\n".join(lines)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"### {method} `{path}` {{ #{operation['operationId'].lower()} }}", "")
    yield from (escaped(f"{operation['summary']} Access: {operation['x-access']}."), "")
    if parameters := operation.get("parameters"):
        yield from table("Parameter", "In", "")
        for parameter in parameters:
            yield f"| `{parameter['name']}` | {parameter['in']} | {cell(parameter['description'])} |"
        yield ""
    yield from table("Status", "Answer", "")
    for status, response in operation["responses"].items():
        if status in _EVERYWHERE:
            continue
        kinds = [
            f"{media} {_type(content['schema'])}" if "schema" in content else media
            for media, content in response.get("content", {}).items()
        ]
        yield f"| {status} | {', '.join(kinds)} | {cell(response['description'])} |"
    yield ""


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"### {name} {{ #{_anchor(name)} }}", "")
    if said := schema.get("description"):
        yield from (escaped(said), "")
    properties = schema.get("properties")
    if not properties:
        yield from (f"{_type(schema).capitalize()}.", "")
        return
    required = set(schema.get("required", ()))
    yield from table("Field", "Type", "")
    for field, kind in properties.items():
        presence = "" if field in required else "may be absent. "
        yield f"| `{field}` | {_type(kind)} | {cell(presence + str(kind.get('description', '')))} |"
    yield ""


def _type(schema: Mapping[str, Any] | bool) -> str:
    if isinstance(schema, bool) or not schema:
        return "anything"
    if reference := schema.get("$ref"):
        name = reference.removeprefix(_REFERENCE)
        return f"[{name}](#{_anchor(name)})"
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return " or ".join(_type(one) for one in schema[choice])
    kinds = schema.get("type", "anything")
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    return " or ".join(_named(name, schema) for name in names)


def _named(name: str, schema: Mapping[str, Any]) -> str:
    if name == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if name == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"map to {_type(values)}"
    return name


def _anchor(name: str) -> str:
    return "schema-" + re.sub(r"[^a-z0-9]+", "-", name.lower())
