"""Makes a command of a function that asks a core: its options, its calls, and what it says when one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import typer
from google.protobuf.message import Message
from grpc import Channel, RpcError

from kornel.cli.client.channels import open_channel
from kornel.cli.client.failures import CoreUnreachable, describe_failure
from kornel.cli.options import (
    DEFAULT_TIMEOUT_S,
    EXIT_FAILED,
    Address,
    AsJson,
    Timeout,
    report_failure,
    spread_options,
)
from kornel.cli.terminal import echo_json, show_text
from kornel.shared.addresses import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from types import TracebackType

PAGE: Final = 1_000
"""The most entries of a list that are read at once; every list of a core may have pages of this size."""

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True)
class CalledCore:
    """The core that a command calls over one connection, which the first call opens and the end of a ``with`` block
    closes."""

    grpc: Address = DEFAULT_ADDRESS
    timeout: Timeout = DEFAULT_TIMEOUT_S

    @cached_property
    def channel(self) -> Channel:
        """The connection. Raises :class:`kornel.cli.client.connection.ConnectionNotPossible`."""
        return open_channel(self.grpc)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened: Channel | None = self.__dict__.pop("channel", None)
        if opened is not None:
            opened.close()

    def call(self, method: Callable[..., ResponseT], request: Message, timeout_s: float | None = None) -> ResponseT:
        """Returns the answer of *method*, which a stub on :attr:`channel` has. Raises :class:`CoreUnreachable`."""
        try:
            return method(request, timeout=timeout_s or self.timeout)
        except RpcError as error:
            raise describe_failure(self.grpc, error) from error

    def read_list(self, method: Callable[..., ResponseT], request: Any, field: str, most: int = 0) -> ResponseT:
        """Returns the first page of a list with the entries of all further ones in *field*, at most *most*; 0: all. If
        there are more, ``next_page_token`` is set. Raises :class:`CoreUnreachable`."""
        page = request.page if "page" in request.DESCRIPTOR.fields_by_name else request
        whole: Any = None
        while True:
            page.page_size = min(PAGE, most - len(getattr(whole, field)) if whole else most) if most else PAGE
            answer: Any = self.call(method, request)
            if whole is None:
                whole = answer
            else:
                getattr(whole, field).extend(getattr(answer, field))
            page.page_token = whole.next_page_token = answer.next_page_token
            if not page.page_token or 0 < most <= len(getattr(whole, field)):
                return whole  # type: ignore[no-any-return]  # it is a ResponseT


@dataclass(frozen=True)
class Core(CalledCore):
    """The core that a command asks, and how its answer is shown."""

    as_json: AsJson = False

    def show(self, answer: Message | str, render: Callable[[], str]) -> None:
        """Prints *answer* as JSON, or the text that *render* makes of it."""
        if self.as_json:
            echo_json(answer)
        else:
            show_text(render())


@dataclass(frozen=True)
class PartitionCore(Core):
    """A core, and the partition that is meant."""

    partition: Annotated[str, typer.Option(help="Partition of the object; empty means default.")] = ""


@dataclass(frozen=True)
class ManagerCore(Core):
    """A core, and the resource manager that is meant."""

    manager: Annotated[
        str,
        typer.Option("--manager", metavar="RM_ID", help="Resource manager; needed if several are registered."),
    ] = ""


def asks_core(*, bad_input: int = EXIT_FAILED) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command with a parameter *core* of :class:`CalledCore`, whose fields become options. The command
    exits with the reason when a call fails, and with the status *bad_input* when the core says that the arguments are
    wrong."""

    def decorate_command(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            try:
                with given["core"]:
                    command(**given)
            except CoreUnreachable as error:
                raise report_failure(error, bad_input if error.bad_input else EXIT_FAILED) from error

        return spread_options(run)

    return decorate_command
