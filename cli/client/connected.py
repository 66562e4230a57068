"""A connection for several calls, which the clients of single services build on."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from kornel.cli.client.calls import failing_in_words
from kornel.cli.client.channels import open_channel
from kornel.cli.client.connection import DEFAULT_TIMEOUT_S

ResponseT = TypeVar("ResponseT", bound=Message)


class Connected:
    """A connection to the core at *address*; a context manager. Each call may take *timeout_s* seconds.

    Every call raises :class:`kornel.cli.client.failures.CoreUnreachable` when it fails.
    """

    def __init__(self, address: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = open_channel(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._channel.close()

    def _call(self, method: Callable[..., ResponseT], request: Any) -> ResponseT:
        with failing_in_words(self._address):
            return method(request, timeout=self._timeout_s)
