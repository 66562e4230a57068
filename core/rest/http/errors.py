"""Defines the errors of handlers, and the bodies of the answers that report them (rest.md 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import grpc

from kornel.core.telling.encoding.documents import Document, always
from kornel.core.telling.encoding.values import TEXT, WHOLE


class RestError(Exception):
    """An answer with ``status`` that carries ``message``, a short text that clients compare."""

    def __init__(self, status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


_STATUSES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
}


def refusal_of(code: grpc.StatusCode, details: str) -> RestError:
    """Returns the error that says over HTTP what *code* says over gRPC."""
    status = _STATUSES.get(code, 500)
    return RestError(status, details, [("Retry-After", "1")] if status == 503 else ())


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
