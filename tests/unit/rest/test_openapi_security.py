"""What the OpenAPI document says of identities, for each way in which a core can be guarded."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.rest.application import all_rows
from kornel.core.rest.documents.openapi import docs_page, openapi_document
from kornel.core.rest.http.access import NO_PROOFS, Proofs

READ, ADMIN, OPEN = "/ws/v1/partitions", "/debug/stack", "/healthz/live"
TOKEN_OR_NOBODY = [{"bearer": ["read"]}, {}]
CERTIFICATE_AND_PERHAPS_TOKEN = [{"certificate": ["read"]}, {"certificate": [], "bearer": ["read"]}]


def described(proofs: Proofs) -> dict[str, Any]:
    return openapi_document(all_rows(), "1", proofs)


@pytest.mark.parametrize(
    ("proofs", "path", "security"),
    [
        (NO_PROOFS, READ, []),
        (NO_PROOFS, ADMIN, []),
        (Proofs(guarded=True), OPEN, []),
        (Proofs(guarded=True), READ, TOKEN_OR_NOBODY),
        (Proofs(guarded=True), ADMIN, [{"bearer": ["administer"]}]),
        (Proofs(guarded=True, certificate=True), READ, CERTIFICATE_AND_PERHAPS_TOKEN),
        (Proofs(guarded=True, certificate=True), OPEN, [{"certificate": []}]),
        (Proofs(certificate=True), ADMIN, [{"certificate": []}]),
    ],
)
def test_what_a_route_asks_for(proofs: Proofs, path: str, security: list[Any]) -> None:
    """Strangers may be granted reading and nothing more; TLS asks for certificates before there is a route."""
    document = described(proofs)
    assert document["paths"][path]["get"]["security"] == security
    assert {name for choice in security for name in choice} <= set(document["components"]["securitySchemes"])


@pytest.mark.parametrize(("proofs", "path", "refuses"), [
    (NO_PROOFS, READ, False), (Proofs(certificate=True), READ, False), (Proofs(guarded=True), OPEN, False),
    (Proofs(guarded=True), READ, True), (Proofs(guarded=True), ADMIN, True),
])  # fmt: skip
def test_refusals_are_described_where_there_are_some(proofs: Proofs, path: str, refuses: bool) -> None:
    answers = described(proofs)["paths"][path]["get"]["responses"]
    assert ({"401", "403", "429"} <= set(answers)) is refuses
    assert ({"401", "403", "429"}.isdisjoint(answers)) is not refuses
    if refuses:
        assert "WWW-Authenticate" in answers["401"]["headers"]
        assert "Retry-After" in answers["429"]["headers"]


def test_lists_with_pages_describe_the_headers_of_pages() -> None:
    for path, methods in described(NO_PROOFS)["paths"].items():
        operation = methods.get("get", {})
        named = {parameter["name"] for parameter in operation.get("parameters", ())}
        answered = operation.get("responses", {}).get("200", {})
        schema = answered.get("content", {}).get("application/json", {}).get("schema", {})
        assert ("Link" in answered.get("headers", {})) is ("cursor" in named), path
        assert ("cursor" in named) is (schema.get("type") == "array"), "every list has pages, and nothing else has"


def test_page_for_people_says_what_to_show() -> None:
    assert "administer" in docs_page(described(Proofs(guarded=True)))
