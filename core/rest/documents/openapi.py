"""Makes the OpenAPI 3.1 document from the rows, and a page that shows it without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

from kornel.core.rest.http.access import PERMISSIONS, Access, Proofs
from kornel.core.rest.http.errors import ERROR
from kornel.core.rest.serving.rows import JSON_TYPE, NAME, Row, any_case
from kornel.core.telling.encoding.documents import DOCUMENTS, Named, refer_to

_STATUS_TEXTS: Final = {405: "The path does not support this method.", 500: "The core failed while it answered."}
_GUARD_TEXTS: Final = {
    401: "The caller sent no token or certificate, or one that is not valid.",
    403: "The caller does not have the permission.",
    429: "The caller sends too many requests, or too many tokens or certificates from its address were refused.",
}
"""The texts for a core with a security file; routes open to every caller do not have them."""

_HEADERS: Final[dict[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": "The scheme to answer with: Bearer."},
    405: {"Allow": "The methods of the path."},
    429: {"Retry-After": "Seconds to wait."},
}
_PAGE_HEADERS: Final = {
    "X-Total-Count": "Items of all pages; only with a parameter that chooses or sorts items.",
    "Link": 'Where the next page is, with rel="next"; absent on the last one.',
}
_GUARDED: Final = (
    " The names in security are permissions that the site grants. Administrators of a queue may read it without one."
    " Where a request needs no token or certificate, the site may have granted reading to everybody."
)
_BEARER, _CERTIFICATE = "bearer", "certificate"
_SCHEMES: Final = {
    _BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "A static token of the site, or a JWT that its OIDC issuer signed. It takes precedence"
        " over the certificate.",
    },
    _CERTIFICATE: {"type": "mutualTLS", "description": "A client certificate that one of the core's CAs signed."},
}
_NAMED: Final = re.compile(r"{([a-z]+)}")

_PATH_PARAMETERS: Final = {
    "partition": "Name of the partition, without the resource manager's name in front of it.",
    "queue": "Full path. Decoded twice; a name with / is sent as %252F. Case does not matter.",
    "application": "Application ID.",
    "node": "Node ID.",
    "user": "User name. Decoded twice.",
    "group": "Group name. Decoded twice.",
    "state": "Upper or lower case: active, completed or rejected; of the applications in a queue only active.",
}
_PATH_SCHEMAS: Final = {
    "queue": {"type": "string", "pattern": r"^[a-zA-Z0-9_:#@-]{1,64}(\.[a-zA-Z0-9_:#@-]{1,64})*$"},
    "user": {"type": "string", "pattern": r"^[_a-zA-Z][a-zA-Z0-9:#_.@-]*[$]?$"},
    "group": {"type": "string", "pattern": r"^[_a-zA-Z][a-zA-Z0-9:_.-]*$"},
    "state": any_case("active", "completed", "rejected"),
}
"""The schemas of names as they are sent after one decoding and one encoding; an existing one may be decoded once
more."""


def openapi_document(rows: Iterable[Row], version: str, proofs: Proofs) -> dict[str, Any]:
    """Returns the OpenAPI document of *rows*. *version*: that of this core. *proofs*: those that it demands of its
    callers."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kornel REST interface",
            "version": version,
            "description": "Compatible with /ws/v1 of Apache YuniKorn's core. Parts marked as extensions are"
            " Kornel's own." + (_GUARDED if proofs.guarded else ""),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {row.path: {row.method.lower(): _describe_row(row, proofs)} for row in rows if row.identity},
        "components": {
            "schemas": {name: document.schema for name, document in DOCUMENTS.items()},
            "securitySchemes": _SCHEMES,
        },
    }


def _security_of(access: Access, proofs: Proofs) -> list[dict[str, list[str]]]:
    """Returns the alternatives of which one admits a request; an empty list: every caller is admitted. The names in
    each alternative are the permission that the request needs."""
    granted = [str(PERMISSIONS[access])] if proofs.guarded and access is not Access.OPEN else []
    choices = []
    if granted and proofs.certificate:
        choices = [{_CERTIFICATE: granted}, {_CERTIFICATE: [], _BEARER: granted}]
    elif granted:
        choices = [{_BEARER: granted}]
    elif proofs.certificate:
        choices = [{_CERTIFICATE: []}]
    if granted and access is Access.READ and not proofs.certificate:
        choices.append({})  # A site may allow unknown callers to read, and nothing more.
    return choices


def _describe_row(row: Row, proofs: Proofs) -> dict[str, Any]:
    names = _NAMED.findall(row.path)
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS[name],
            "schema": _PATH_SCHEMAS.get(name, NAME),
        }
        for name in names
    ]
    if "queue" in names and "state" in names:
        parameters[-1]["schema"] = any_case("active")
    parameters += [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "description": parameter.description,
            "schema": dict(parameter.schema),
        }
        for parameter in row.parameters
    ]
    described: dict[str, Any] = {
        "operationId": row.identity,
        "tags": [row.tag],
        "summary": row.summary,
        "responses": _describe_responses(row, names, guarded=proofs.guarded and row.access is not Access.OPEN),
        "security": _security_of(row.access, proofs),
        "x-access": str(row.access),
    }
    if parameters:
        described["parameters"] = parameters
    if row.body:
        described["requestBody"] = {"required": False, "content": {row.body: {"schema": dict(row.wanted)}}}
    return described


def _describe_responses(row: Row, names: list[str], *, guarded: bool) -> dict[str, Any]:
    good: dict[str, Any] = {"description": row.summary}
    schema = row.schema
    if isinstance(row.answer, list) and schema is not None:
        good["headers"] = _describe_headers(_PAGE_HEADERS)
        schema = {**schema, "items": {"anyOf": [schema["items"], _part_of(row.answer[0])]}}
    if row.content:
        good["content"] = {
            media: {"schema": schema} if media == JSON_TYPE and schema is not None else {} for media in row.content
        }
    responses: dict[str, Any] = {str(row.status): good}
    error = {JSON_TYPE: {"schema": refer_to(ERROR)}}
    texts = {**_STATUS_TEXTS, **(_GUARD_TEXTS if guarded else {}), **_refusals_of(row, names), **row.errors}
    for status, text in texts.items():
        if not text:
            continue
        described = {"description": text, "content": {"text/plain": {}} if status == 405 else error}
        if status in _HEADERS:
            described["headers"] = _describe_headers(_HEADERS[status])
        responses.setdefault(str(status), described)
    return dict(sorted(responses.items()))


def _refusals_of(row: Row, names: list[str]) -> dict[int, str]:
    """Returns the statuses that follow from the *names* in the path and from the parameters."""
    texts = {}
    if row.parameters or _PATH_SCHEMAS.keys() & names:
        texts[400] = "A name or a parameter that cannot be read."
    if known := [name for name in names if name != "state"]:
        texts[404] = f"There is no such {' or '.join(known)}."
    return texts


def _part_of(item: Named) -> dict[str, Any]:
    """Returns the schema of an item with only those fields that the client names."""
    return {
        "type": "object",
        "propertyNames": {"enum": list(item.schema["properties"])},
        "description": "With the parameter fields, the item has only those fields.",
    }


def _describe_headers(texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()}


_STYLE: Final = """
:root{color-scheme:light dark;font:15px/1.5 system-ui,sans-serif}body{max-width:62rem;margin:2rem auto;padding:0 1rem}
code,pre{font:13px/1.5 ui-monospace,monospace}section{border-top:1px solid #8886;padding:.5rem 0}h3{margin:.4rem 0}
.m{display:inline-block;min-width:3.2rem;font-weight:600}table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;
vertical-align:top}summary{cursor:pointer}pre{overflow:auto;background:#8881;padding:.6rem}
"""


def docs_page(document: dict[str, Any]) -> str:
    """Returns *document* as a page of plain HTML: no scripts, and nothing from other hosts."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Kornel REST interface</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>Kornel REST interface</h1><p>{escape(document['info']['description'])}</p>",
        '<p>This document as JSON: <a href="/openapi.json">openapi.json</a>.</p>',
    ]
    tag = ""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                parts.append(f"<h2>{escape(tag)}</h2>")
            parts.append(_section_of(path, method, operation))
    parts.append("<h2>Schemas</h2>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(f'<section id="{escape(name)}"><h3>{escape(name)}</h3><table>')
        always = schema.get("required", ())
        for field, kind in schema["properties"].items():
            mark = "always" if field in always else ""
            parts.append(f"<tr><td><code>{escape(field)}</code></td><td>{_kind_of(kind)}</td><td>{mark}</td></tr>")
        parts.append("</table></section>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _section_of(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{p['in']}</td><td>{escape(p['description'])}</td></tr>"
        for p in operation.get("parameters", ())
    )
    answers = "".join(
        f"<tr><td>{status}</td><td>{escape(said['description'])}</td><td>{_describe_answer(said)}</td></tr>"
        for status, said in operation["responses"].items()
    )
    return (
        f'<section id="{escape(operation["operationId"])}"><h3><span class="m">{method.upper()}</span>'
        f"<code>{escape(path)}</code></h3><p>{escape(operation['summary'])}{_describe_demand(operation['security'])}</p>"
        f"<table>{rows}</table>"
        f"<details><summary>Answers</summary><table>{answers}</table></details></section>"
    )


def _describe_demand(security: list[dict[str, list[str]]]) -> str:
    """Returns the proof that a caller has to show, and in brackets the permission that is needed."""
    choices = [
        " and ".join(f"{name} ({', '.join(granted)})" if granted else name for name, granted in choice.items())
        for choice in security
        if choice
    ]
    return f" Takes {escape(', or '.join(choices))}." if choices else ""


def _describe_answer(said: dict[str, Any]) -> str:
    schema = said.get("content", {}).get(JSON_TYPE, {}).get("schema")
    return _kind_of(schema) if schema else escape(", ".join(said.get("content", ())))


def _kind_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind_of, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind_of(schema['items'])}"
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    if schema.get("properties"):
        return "; ".join(
            f"<code>{escape(name)}</code>: {_kind_of(below)}" for name, below in schema["properties"].items()
        )
    kind = schema.get("type", "anything")
    described = schema.get("description", "")
    return escape(f"{kind if isinstance(kind, str) else ' or '.join(kind)}. {described}" if described else str(kind))
