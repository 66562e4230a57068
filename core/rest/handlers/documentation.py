"""Serves the documentation of the REST interface."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.documents.openapi import docs_page, openapi_document
from kornel.core.rest.documents.page_links import LINKS, PageLinks
from kornel.core.rest.http.access import Access, Proofs
from kornel.core.rest.serving.answers import HTML, json_answer, text_answer
from kornel.core.rest.serving.rows import OBJECT, PREFIX, Row


class DocumentationHandlers:
    """Serves the OpenAPI document, the page made from it, and the links; each is made once, at the first request."""

    def __init__(self, rows: Sequence[Row], version: str, proofs: Proofs, links: PageLinks) -> None:
        self._rows = rows
        self._version = version
        self._proofs = proofs
        self._links = json_answer(LINKS.write(links))

    @cached_property
    def _answers(self) -> tuple[ASGIApp, ASGIApp]:
        document = openapi_document(self._rows, self._version, self._proofs)
        page = text_answer(
            docs_page(document),
            content_type=HTML,
            headers=[("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")],
        )
        return json_answer(document), page

    @Row("/openapi.json", "openapi", "Operations", OBJECT, access=Access.OPEN)
    @Row(f"{PREFIX}/openapi.json", tag="Operations", access=Access.OPEN)
    async def openapi(self, _request: Request) -> ASGIApp:
        """Returns this document."""
        return self._answers[0]

    @Row("/docs", tag="Operations", access=Access.OPEN)
    async def show_page(self, _request: Request) -> ASGIApp:
        """Returns the same documentation as a page for people."""
        return self._answers[1]

    @Row(f"{PREFIX}/scheduler/links", "links", "Operations", LINKS, ours=True)
    async def show_links(self, _request: Request) -> ASGIApp:
        """Returns the addresses to which the web page links."""
        return self._links
