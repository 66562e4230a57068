"""Defines the errors of handlers, and the bodies of the answers that report them (rest.md 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kornel.core.telling.encoding.documents import Document, always
from kornel.core.telling.encoding.values import TEXT, WHOLE


class RestError(Exception):
    """An answer with ``status`` that carries ``message``, a short text that clients compare."""

    def __init__(self, status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


def not_found(what: str) -> RestError:
    """Returns the error 404 for *what*, such as ``Queue``."""
    return RestError(404, f"{what} not found")


class Failure(NamedTuple):
    """The content of an error body."""

    status: int
    message: str


ERROR: Final = Document(
    "Error",
    Failure,
    {
        "status_code": always(WHOLE, "status"),
        "message": always(TEXT, "message"),
        "description": always(TEXT, "message"),
        # The web page of YuniKorn reads these (rest.md 9).
        "StatusCode": always(WHOLE, "status", promised=False),
        "Message": always(TEXT, "message", promised=False),
        "Description": always(TEXT, "message", promised=False),
    },
)


def error_document(status: int, message: str) -> dict[str, Any]:
    """Returns the error body."""
    return ERROR.write(Failure(status, message))
