"""The parts of the `kornel` command that need no running core."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from kornel.cli.app import COMMANDS, app
from kornel.cli.text.bounds import render_user
from kornel.cli.text.status import render_explanation, render_status
from kornel.shim_local.cli import app as local_app
from kornel.shim_mock.cli import app as mock_app
from kornel.v1.status_pb2 import (
    AskFailure,
    ExplainAskResponse,
    ExplainUserResponse,
    GetStatusResponse,
    LimitLevel,
    PartitionStatus,
    QueueBound,
    QueueStatus,
    UserStatus,
)

NOW_NS = 1_800_000_000 * 10**9

GOOD = "partitions:\n  - name: default\n    queues:\n      - name: root\n"
UPSTREAM = """
partitions:
  - name: default
    queues:
      - name: root
        properties:
          application.sort.policy: stateaware
        queues:
          - name: a
            properties:
              application.sort.policy: stateaware
"""


ODD = GOOD + "        queues: [{name: a, resources: {max: {Memory: 5}}}]\n"


SERVER_ONLY = (
    "kornel.core.process.server", "kornel.core.engine.engine", "kornel.core.rest", "kornel.core.config.loader",
    "starlette", "uvicorn",
    "sqlalchemy", "structlog", "cryptography", "jwt", "yaml",
)  # fmt: skip
"""What takes long to import and no client needs."""


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("text", "code", "said"), [(GOOD, 0, "checksum"), (ODD, 1, "warning"), ("partitions: 7\n", 2, ":1:")]
)
def test_config_check(tmp_path: Path, text: str, code: int, said: str) -> None:
    """Nothing wrong exits 0, warnings 1, errors 2; what is wrong is printed with its place."""
    file = tmp_path / "queues.yaml"
    file.write_text(text, encoding="utf-8")
    exit_code, output = run("config", "check", str(file))
    assert exit_code == code, output
    assert said in output


def test_what_concerns_yunikorn_is_told_to_who_asks(tmp_path: Path) -> None:
    """Everybody else has no use for it, and a check that finds nothing else exits 0."""
    file = tmp_path / "queues.yaml"
    file.write_text(UPSTREAM, encoding="utf-8")
    assert run("config", "check", str(file))[0] == 0
    exit_code, output = run("config", "check", str(file), "--yunikorn")
    assert exit_code == 1
    assert "YuniKorn" in output
    assert json.loads(run("config", "check", str(file), "--json")[1])["problems"] == []


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), ("", 0), (ODD, 1), ("partitions: 7\n", 2)])
def test_config_check_as_json(tmp_path: Path, text: str, code: int) -> None:
    """The judgement as the core's own validation gives it, with the same exit status as text."""
    file = tmp_path / "queues.yaml"
    file.write_text(text, encoding="utf-8")
    exit_code, output = run("config", "check", str(file), "--json")
    found = json.loads(output)
    assert exit_code == code
    assert found["valid"] == (code != 2)
    assert bool(found["checksum"]) == (code != 2)
    assert bool(found["problems"]) == (code != 0)
    assert all(problem["line"] and problem["message"] for problem in found["problems"])


def test_user_as_text() -> None:
    """The limits of a user, each with what is left of it, and the tightest one."""
    level = LimitLevel(path="root.a", kind="group", name="dev", application_count=1)
    level.max["vcore"], level.used["vcore"], level.headroom["vcore"] = 10_000, 12_000, -2_000
    found = ExplainUserResponse(user="ann", application_count=1, levels=[level])
    found.tightest.CopyFrom(QueueBound(type="vcore", path="root.a", left=-2_000, max=10_000))
    text = render_user(found)
    assert "group dev" in text
    assert "1 of any number" in text
    assert text.endswith("tightest: vcore at root.a, 2 above the max 10 of root.a")
    assert "no limit binds" in render_user(ExplainUserResponse(user="ann"))


def test_config_check_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused like a missing one."""
    file = tmp_path / "queues.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert run("config", "check", str(file))[0] == 2


def test_serve_refuses_ldap_settings_that_cannot_be_used(tmp_path: Path) -> None:
    """Fatal at start, each fault with its file (config.md 11)."""
    (tmp_path / "Port").write_text("0")
    code, output = run("serve", "--grpc", "127.0.0.1:0", "--ldap-settings", str(tmp_path))
    assert code == 2
    assert f"{tmp_path / 'Port'}: '0' is not a port" in output
    assert f"{tmp_path / 'Host'}: is missing" in output


def test_serve_refuses_a_file_whose_resolver_does_not_work_here(tmp_path: Path) -> None:
    """At start and not with the first shim (B3)."""
    file = tmp_path / "queues.yaml"
    file.write_text(GOOD + "    usergroupresolver: {type: ldap}\n", encoding="utf-8")
    code, output = run("serve", "--config", str(file), "--ldap-settings", str(tmp_path / "none"))
    assert code == 2
    assert "there is no directory" in output


def test_version() -> None:
    """The version is printed behind the name."""
    code, output = run("version")
    assert code == 0
    assert output.startswith("kornel ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["serve", "health", "status", "dump", "ask", "config", "events", "version", "--version"]),
        (["serve"], ["--grpc", "--config", "--log-format", "--ready-file", "--callback-timeout", "precedence"]),
        (["serve"], ["--ldap-settings"]),
        (["config", "check"], ["FILE", "warnings"]),
    ],
)
def test_help_explains_itself(command: list[str], words: list[str]) -> None:
    """Help names every command and option, and which configuration takes precedence."""
    code, output = run(*command, "--help")
    assert code == 0
    assert all(word in output for word in words), output


@pytest.mark.parametrize("program", [app, local_app, mock_app], ids=["kornel", "kornel-local", "kornel-shim-mock"])
def test_no_help_is_taken_for_markup(program: typer.Typer) -> None:
    """Words in brackets would not be shown: they are how styles are written."""
    todo: list[Any] = [typer.main.get_command(program)]
    helps: list[str] = []
    while todo:
        command = todo.pop()
        todo += getattr(command, "commands", {}).values()
        helps += [command.help or "", *(getattr(option, "help", "") or "" for option in command.params)]
    assert len(helps) > 20
    assert [text for text in helps if re.search(r"\[[a-z]", text)] == []


def test_status_as_text() -> None:
    """Partitions and queues are shown with their amounts; what is empty is a dash."""
    status = GetStatusResponse(
        rm_id="rm-1",
        core_version="1",
        partitions=[
            PartitionStatus(
                name="[rm-1]default",
                node_count=2,
                total={"vcore": 10_000, "memory": 5 << 30},
                queues=[
                    QueueStatus(path="root", state="Active", used={"vcore": 1500}),
                    QueueStatus(path="root.a", state="Draining"),
                ],
                users=[UserStatus(user="bob", used={"vcore": 1}, application_count=2)],
            )
        ],
    )
    lines = render_status(status, NOW_NS).splitlines()
    assert "core 1, resource manager rm-1" in lines
    assert "  total vcore=10 memory=5Gi" in lines
    assert any(line.split()[:4] == ["root", "0", "vcore=1.5", "-"] for line in lines)
    assert any("root.a (draining)" in line for line in lines)
    assert any(line.split()[:3] == ["bob", "2", "1m"] for line in lines), lines


def test_an_ask_as_text() -> None:
    """Where it stands comes first, then what kept it from being placed, with times in UTC."""
    waiting = ExplainAskResponse(
        application_id="app",
        queue="root.a",
        state="Reserved",
        node_id="n1",
        failures=[AskFailure(message="no node has room", count=12, last_ns=1_700_000_000 * 10**9)],
    )
    assert render_explanation("k", waiting, NOW_NS).splitlines() == [
        "k: Reserved on n1",
        "application app, queue root.a",
        "",
        "  count  last                                   not placed because",
        "  12x    2023-11-14T22:13:20Z (1157 d 9 h ago)  no node has room",
    ]
    pending = ExplainAskResponse(application_id="app", queue="root.a", state="Pending")
    assert render_explanation("k", pending, NOW_NS).splitlines() == ["k: Pending", "application app, queue root.a"]


CLIENT_ONLY = ("grpc", "google.protobuf", "asyncio")
"""What a command imports that talks to a core."""


@pytest.mark.parametrize(
    ("arguments", "unwanted", "most"),
    [
        (["version"], ("typer", "rich", *CLIENT_ONLY, *SERVER_ONLY), 180),
        pytest.param(["--version"], ("typer", "rich", *CLIENT_ONLY, *SERVER_ONLY), 180, marks=pytest.mark.long),
        (["--help"], SERVER_ONLY, 640),
        (["serve", "--help"], ("grpc", "kornel.cli.asking", *SERVER_ONLY), 500),
        pytest.param(
            ["security", "token", "ann"],
            ("grpc", "kornel.core.process.server", "kornel.core.rest", "sqlalchemy"),
            500,
            marks=pytest.mark.long,
        ),
        (
            ["config", "check", "none.yaml"],
            ("kornel.core.process.server", "kornel.core.rest", "sqlalchemy", "starlette"),
            760,
        ),
        (
            ["status", "--grpc", "127.0.0.1:1", "--timeout", "0.1"],
            ("kornel.core", "rich", *SERVER_ONLY),
            480,
        ),
        pytest.param(
            ["nodes", "--grpc", "127.0.0.1:1", "--timeout", "0.1"],
            ("kornel.core", "rich", *SERVER_ONLY),
            480,
            marks=pytest.mark.long,
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], unwanted: tuple[str, ...], most: int) -> None:
    """Commands are typed by people, who notice each tenth of a second. Python itself and ours are counted together."""
    code = f"""
import sys
from kornel.cli.entry import main
try:
    main()
except SystemExit:
    pass
print([name for name in {unwanted} if name in sys.modules], len(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    found, _, count = done.stderr.splitlines()[-1].rpartition(" ")
    assert found == "[]"
    assert int(count) <= most


NEEDED_FOR_WHAT_IS_OFF = ("sqlalchemy", "alembic", "psycopg", "sqlite3", "cryptography", "jwt", "opentelemetry")
"""What a core imports for a database, for TLS and tokens, and for tracing."""


@pytest.mark.parametrize(
    ("options", "unwanted", "most"),
    [
        pytest.param(["--history", "off"], NEEDED_FOR_WHAT_IS_OFF, 1_268, id="history off"),
        pytest.param([], NEEDED_FOR_WHAT_IS_OFF[4:], 1_345, id="history on", marks=pytest.mark.long),
    ],
)
def test_a_core_imports_only_what_it_serves_with(
    options: list[str], unwanted: tuple[str, ...], most: int, tmp_path: Path
) -> None:
    """The modules take most of the time until a core listens."""
    code = f"""
import sys
from kornel.cli.entry import main
from kornel.core.process.server import KornelServer
async def stop_at_once(self, stop):
    print(self.address, [name for name in {unwanted} if name in sys.modules], len(sys.modules))
    await self.stop()
    return True
KornelServer.serve = stop_at_once
main()
"""
    arguments = ["serve", "--grpc", "127.0.0.1:0", "--rest-address", "127.0.0.1:0", *options]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "STATE_DIRECTORY": ""},
    )
    address, found, count = done.stdout.split()[0], *done.stdout.strip().partition(" ")[2].rsplit(" ", 1)
    assert address.startswith("127.0.0.1:")
    assert found == "[]"
    assert int(count) <= most


def test_every_command_of_the_table_is_there_and_under_its_own_name() -> None:
    """A module or a name that does not exist would show only when somebody uses the command."""
    group = typer.main.get_group(app)
    built = {name: command.name for name, command in group.commands.items()}
    assert built == {name: name for name in [*COMMANDS, "version"]}
