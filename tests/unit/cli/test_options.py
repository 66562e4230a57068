"""Commands take their common options from classes, and end alike when a call fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from kornel.cli.asking import Core, PartitionCore, asks_core
from kornel.cli.client.failures import CoreUnreachable

SEEN: list[object] = []


@dataclass(frozen=True)
class PatientCore(PartitionCore):
    """A core with another default, and an option of its own."""

    timeout: Annotated[float, typer.Option("--timeout")] = 60.0
    loud: Annotated[bool, typer.Option("--loud")] = False


def run(command: object, *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_fields_of_a_class_are_options() -> None:
    """They stand where the parameter is, those that all commands have behind those that the class adds."""

    @asks_core()
    def look(name: str = "", *, core: PatientCore) -> None:
        SEEN.append((name, core))

    assert run(look, "--name", "n1", "--partition", "p", "--loud", "--grpc", "h:1") == (0, "")
    assert [("n1", PatientCore(grpc="h:1", partition="p", loud=True, timeout=60.0))] == SEEN
    shown = run(look, "--help")[1]
    places = [shown.index(option) for option in ("--name", "--grpc", "--partition", "--loud", "--json", "--timeout")]
    assert places == sorted(places)


@pytest.mark.parametrize(("bad_input", "status"), [(False, 1), (True, 2)])
def test_a_failed_call_ends_the_command(bad_input: bool, status: int) -> None:
    """The reason is printed, and only what the core calls bad input exits with the status for that."""

    @asks_core(bad_input=2)
    def fail(core: Core) -> None:
        raise CoreUnreachable(f"nobody at {core.grpc}\nor nowhere", bad_input=bad_input)

    assert run(fail, "--core", "h:1") == (status, "nobody at h:1\n  or nowhere\n")
