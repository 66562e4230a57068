"""Holds the addresses that the web page links to: the documentation, and Grafana."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kornel.core.telling.encoding.documents import Document, if_any
from kornel.core.telling.encoding.values import TEXT

PAGE_NAME: Final = "{page}"
"""The text in the address of the documentation that stands for the name of a page."""


class BadLink(ValueError):
    """A text that was given as the address of a link is not an address."""


class PageLinks(NamedTuple):
    """The addresses of links; an empty one means no link. ``documentation`` contains :data:`PAGE_NAME`."""

    documentation: str = ""
    grafana: str = ""


NO_LINKS: Final = PageLinks()

LINKS: Final = Document(
    "Links",
    PageLinks,
    {"documentation": if_any(TEXT, "documentation"), "grafana": if_any(TEXT, "grafana")},
    description="The addresses of links. In that of the documentation, {page} stands for the name of a page.",
)


def checked_links(documentation: str, grafana: str) -> PageLinks:
    """Returns the addresses in the form that the page needs. Raises :class:`BadLink`.

    A documentation address without :data:`PAGE_NAME` counts as that of a site built by ``make docs``.
    """
    if documentation and PAGE_NAME not in documentation:
        documentation = f"{documentation.rstrip('/')}/{PAGE_NAME}.html"
    for option, address in (("--docs-url", documentation), ("--grafana-url", grafana)):
        if address and not _is_web_address(address):
            raise BadLink(f"{option}: {address!r} is not an address such as https://grafana.example.org/d/kornel")
    return PageLinks(documentation, grafana)


def _is_web_address(text: str) -> bool:
    """Tells whether *text* is an HTTP address. Another scheme, such as javascript, would run in the page."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text
