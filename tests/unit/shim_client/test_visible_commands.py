"""What the mock and the kit say of a wrong argument has nothing in it that a terminal would obey."""

from __future__ import annotations

import pytest
from typer import Typer
from typer.testing import CliRunner

from kornel.conformance.cli import app as kit
from kornel.shim_mock.cli import app as mock

BAD = "\x1b[2J\x07\x9b31m\u202eFORGED\r\nline"


@pytest.mark.parametrize("app", [mock, kit], ids=["mock", "kit"])
@pytest.mark.parametrize(
    "arguments",
    [(BAD,), (f"--{BAD}",), ("COMMAND", f"--{BAD}"), ("COMMAND", "ARGUMENT", BAD, BAD, BAD)],
    ids=["command", "option", "option of a command", "argument too many"],
)
def test_wrong_arguments_are_shown_visibly(app: Typer, arguments: tuple[str, ...]) -> None:
    command, argument = {mock: ("run", "file"), kit: ("core", "1")}[app]
    given = [{"COMMAND": command, "ARGUMENT": argument}.get(each, each) for each in arguments]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "500", "TERM": "dumb"})
    assert result.exit_code == 2
    said = result.output + (result.stderr or "")
    assert "x1b[2J" in said
    assert "FORGED" in said
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(said)
