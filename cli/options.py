"""Options and exit statuses that the commands of ``kornel`` share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Final, get_type_hints

import typer

from kornel.cli.client import connection
from kornel.cli.terminal import print_error

EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
COMPLETE_VARIABLE: Final = "_KORNEL_COMPLETE"
"""The environment variable with which the script of a shell asks for the next words."""
DEFAULT_TIMEOUT_S: Final = connection.DEFAULT_TIMEOUT_S

Address = Annotated[
    str,
    typer.Option(
        "--grpc",
        "--core",
        metavar="ADDR",
        envvar="KORNEL_ADDRESS",
        help="Where the core listens: host:port or unix:path; of several that share a journal, all, with commas between"
        " them: the leader is asked.",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the core's answer as JSON.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Resource type to show; repeatable.")]

_AT_THE_END: Final = {"as_json": 1, "timeout": 2}
"""The fields that stand behind all others of a class, in this order."""


def report_failure(error: str | Exception, status: int = EXIT_FAILED) -> typer.Exit:
    """Print *error*, and return the exit to be raised."""
    print_error(error)
    return typer.Exit(status)


def refuse_input(message: str | Exception) -> typer.Exit:
    """Print what is wrong with the arguments, and return the exit to be raised."""
    return report_failure(message, EXIT_BAD_INPUT)


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns *command* with each parameter that is a dataclass replaced by the fields of that class, of which typer
    makes options."""
    types = get_type_hints(command, include_extras=True)
    classes: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in classes:
            parameters += _fields_of(classes[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=types[parameter.name], kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in classes.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _fields_of(kind: Any) -> Iterator[Parameter]:
    types = get_type_hints(kind, include_extras=True)
    for field in sorted(fields(kind), key=lambda field: _AT_THE_END.get(field.name, 0)):
        default = Parameter.empty if field.default is MISSING else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name])
