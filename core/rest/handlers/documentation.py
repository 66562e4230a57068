"""The interface's documentation of itself."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.access import Proofs
from kornel.core.rest.answers import HTML, json_answer, text_answer
from kornel.core.rest.openapi import docs_page, openapi_document
from kornel.core.rest.page_links import LINKS, PageLinks
from kornel.core.rest.routing import Route


class DocumentationHandlers:
    """All answers are made once, when the routes are known."""

    def __init__(self, version: str, proofs: Proofs, links: PageLinks) -> None:
        self._version = version
        self._proofs = proofs
        self._links = json_answer(LINKS.write(links))

    def describe(self, routes: Iterable[Route]) -> None:
        """Take the *routes* to be documented."""
        document = openapi_document(routes, self._version, self._proofs)
        self._document = json_answer(document)
        self._page = text_answer(
            docs_page(document),
            content_type=HTML,
            headers=[("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")],
        )

    async def openapi(self, _request: Request) -> ASGIApp:
        """Returns the OpenAPI document."""
        return self._document

    async def page(self, _request: Request) -> ASGIApp:
        """Returns the same for people."""
        return self._page

    async def show_links(self, _request: Request) -> ASGIApp:
        """Returns the addresses that the web page links to."""
        return self._links
