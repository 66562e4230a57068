"""Makes a command of a function that asks a core: its options, its answer, and what it says when a call fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    EXIT_FAILED,
    Address,
    AsJson,
    Timeout,
    report_failure,
    spread_options,
)
from kornel.cli.terminal import echo_json, show_text

if TYPE_CHECKING:
    from google.protobuf.message import Message


@dataclass(frozen=True)
class CalledCore:
    """The core that a command calls."""

    grpc: Address = DEFAULT_ADDRESS
    timeout: Timeout = DEFAULT_TIMEOUT_S


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
    """Decorates a command with a parameter of :class:`CalledCore`, whose fields become options. The command exits with
    the reason when a call fails, and with the status *bad_input* when the core says that the arguments are wrong."""

    def decorate_command(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            try:
                command(**given)
            except CoreUnreachable as error:
                raise report_failure(error, bad_input if error.bad_input else EXIT_FAILED) from error

        return spread_options(run)

    return decorate_command
