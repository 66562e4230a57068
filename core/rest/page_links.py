"""The addresses that the web page links to: the documentation, and Grafana."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kornel.core.telling.encoding.documents import Document, if_any
from kornel.core.telling.encoding.values import TEXT

PAGE_NAME: Final = "{page}"
"""The place of the name of a page in the address of the documentation."""


class BadLink(ValueError):
    """A text that was given as an address to link to is none."""


class PageLinks(NamedTuple):
    """``documentation``: an address with :data:`PAGE_NAME` in it. An empty address: no link."""

    documentation: str = ""
    grafana: str = ""


NO_LINKS: Final = PageLinks()

LINKS: Final = Document(
    "Links",
    PageLinks,
    {"documentation": if_any(TEXT, "documentation"), "grafana": if_any(TEXT, "grafana")},
    description="Where the page links to. In the address of the documentation {page} stands for the name of a page.",
)


def checked_links(documentation: str, grafana: str) -> PageLinks:
    """Returns the addresses as the page needs them. Raises :class:`BadLink`.

    An address of the documentation without :data:`PAGE_NAME` is that of the site which ``make docs`` builds.
    """
    if documentation and PAGE_NAME not in documentation:
        documentation = f"{documentation.rstrip('/')}/{PAGE_NAME}.html"
    for option, address in (("--docs-url", documentation), ("--grafana-url", grafana)):
        if address and not _is_web_address(address):
            raise BadLink(f"{option}: {address!r} is no address such as https://grafana.example.org/d/kornel")
    return PageLinks(documentation, grafana)


def _is_web_address(text: str) -> bool:
    """Tells whether *text* is an address of HTTP: another scheme, such as javascript, would run in the page."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text
