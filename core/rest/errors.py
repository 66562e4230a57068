"""What a handler refuses, and how the answer says so (rest.md 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class RestError(Exception):
    """An answer with ``status`` that carries ``message``, a short text that clients compare."""

    def __init__(self, status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


def not_found(what: str) -> RestError:
    """404 for *what*, such as ``Queue``."""
    return RestError(404, f"{what} not found")


def error_document(status: int, message: str) -> dict[str, Any]:
    """The error body. The capitalised keys are what the web page of YuniKorn reads (rest.md 9)."""
    return {
        "status_code": status,
        "message": message,
        "description": message,
        "StatusCode": status,
        "Message": message,
        "Description": message,
    }
